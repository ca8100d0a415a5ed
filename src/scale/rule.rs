//! The rule of deletion as pure functions of what was seen (docs/delete-rule.md says why each step is there). No call is
//! made here, and nothing is decided about deletions anywhere else.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use arcstr::ArcStr;
use tokio::time::Instant;

use super::writer::SizedBy;
use crate::{
    capi::{Machine, ScalableKind, ScalableResource, Uid},
    index::{GroupVersion, SetView},
    informer::ResourceVersion,
    nodegroup::{Bounds, DeletionLog, LogError, Phase, SizeError, Ticket, deletion_log::Entry, size},
};

/// What is known of a Machine, not from before the group's present size was there.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Life {
    Alive,
    Deleting,
    Gone,
}

/// A Machine that a request names.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub(super) struct Named {
    pub(super) name: ArcStr,
    pub(super) uid: Uid,
    /// True if it is given up as one that never joined: named by the id of such an instance, or chosen for a smaller
    /// target size.
    pub(super) never_joined: bool,
}

/// What a request names.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(super) struct Request {
    pub(super) machines: Vec<Named>,
    /// The number of placeholders of replicas.
    pub(super) replicas: usize,
    /// The number of instances of a MachinePool that are no Machines, which only lower the size.
    pub(super) instances: usize,
}

impl Request {
    /// Returns true if it names Machines alone.
    pub(super) fn is_of_machines(&self) -> bool {
        self.replicas + self.instances == 0
    }
}

/// The Machines of a group, as one list from the API server shows them at one moment.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(super) struct Listed {
    /// Those that aren't being deleted.
    pub(super) alive: HashSet<Uid>,
    /// Those that are being deleted and whose Node is there.
    pub(super) draining: HashSet<Uid>,
    /// Those that are being deleted and have no Node any more: Cluster Autoscaler has placeholders for them.
    pub(super) without_node: Vec<Named>,
    /// The number of instances of a MachinePool, which counts by these.
    pub(super) instances: Option<usize>,
}

impl Listed {
    /// Returns true if no Machine is there.
    fn is_empty(&self) -> bool {
        self.alive.is_empty() && self.draining.is_empty() && self.without_node.is_empty()
    }

    /// Returns true if a Machine is there.
    pub(super) fn has(&self, uid: &Uid) -> bool {
        let is_without_node = || self.without_node.iter().any(|named| named.uid == *uid);
        self.alive.contains(uid) || self.draining.contains(uid) || is_without_node()
    }

    /// Counts the placeholders of a size, without what leaves it.
    pub(super) fn placeholders(&self, size: i64, leaves: impl Fn(&Uid) -> bool) -> usize {
        let staying = self
            .instances
            .unwrap_or_else(|| self.alive.iter().chain(&self.draining).filter(|uid| !leaves(uid)).count());
        usize::try_from(size.saturating_sub(as_i64(staying))).unwrap_or_default()
    }
}

/// What a group looks like when requests are decided.
#[derive(Clone, Debug)]
pub(super) struct Seen<'a> {
    pub(super) log: &'a DeletionLog,
    pub(super) replicas: i32,
    pub(super) bounds: Bounds,
    /// Of each Machine that a request names and that isn't in the log.
    pub(super) lives: &'a HashMap<Uid, Life>,
    /// Those of them that have a Node although they are given up as ones that never joined.
    pub(super) joined: &'a HashSet<Uid>,
    /// All Machines of the group, at the same moment as `lives`. Empty where no named one is being deleted and no
    /// placeholder is named: only then it matters.
    pub(super) listed: &'a Listed,
    /// True if a MachineSet counts Machines that are being deleted as replicas. Where it doesn't, a new one comes for each
    /// at once, and a smaller size would take one that is alive.
    pub(super) counts_deleting: bool,
    /// The number of placeholders that are known to be given up already.
    pub(super) given_up: usize,
}

/// The part of an accepted request beside the Machines that it names.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(super) struct Accepted {
    /// Machines that are being deleted and have no Node any more, which its placeholders stand for.
    pub(super) without_node: Vec<Named>,
    /// The number of replicas without a Machine, which only lower the size.
    pub(super) replicas: usize,
}

/// Why a request isn't accepted.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum Refusal {
    /// A Machine is in the log for a smaller target size, and leaves it within seconds.
    InTheWay(ArcStr),
    /// A Machine has a Node although it is named as one that never joined.
    HasJoined(ArcStr),
    /// Placeholders have become Machines since.
    Replaced {
        named: usize,
        left: usize,
    },
    /// An instance of a MachinePool was named as one that is no Machine, and the pool has Machines: without a mark on its own
    /// another would go.
    IsOfMachines,
    BelowMin(SizeError),
    Log(LogError),
}

/// Requests of one batch that have been accepted so far, in order of arrival.
#[derive(Debug)]
pub(super) struct Acceptance<'a> {
    seen: Seen<'a>,
    ticket: Ticket,
    log: DeletionLog,
    others: usize,
    given_up: usize,
}

impl<'a> Acceptance<'a> {
    pub(super) fn new(seen: Seen<'a>, ticket: Ticket) -> Self {
        Self { log: seen.log.clone(), given_up: seen.given_up, seen, ticket, others: 0 }
    }

    /// Accepts a request as a whole or not at all.
    pub(super) fn accept(&mut self, request: &Request) -> Result<Accepted, Refusal> {
        if request.instances > 0 && !self.seen.listed.is_empty() {
            return Err(Refusal::IsOfMachines);
        }
        let mut leaving = Vec::new();
        let mut deleting = Vec::new();
        for named in &request.machines {
            match self.log.get(&named.uid) {
                Some(entry) if entry.soft => return Err(Refusal::InTheWay(named.name.clone())),
                Some(_) => continue,
                None => {}
            }
            if named.never_joined && self.seen.joined.contains(&named.uid) {
                return Err(Refusal::HasJoined(named.name.clone()));
            }
            match self.seen.lives.get(&named.uid) {
                Some(Life::Alive) => leaving.push(named),
                Some(Life::Deleting) => deleting.push(named),
                Some(Life::Gone) | None => {}
            }
        }
        let alive = leaving.len();
        let size = self.size_without(leaving.len() + request.instances);
        if self.seen.counts_deleting && !deleting.is_empty() {
            let replaced = self.replaced(size, &leaving);
            leaving.extend(deleting.into_iter().take(replaced));
        }
        let mut accepted = Accepted::default();
        let mut given_up = 0;
        if request.replicas > 0 {
            let listed = self.seen.listed;
            let leaves = |uid: &Uid| leaves(&self.log, uid) || leaving.iter().any(|named| named.uid == *uid);
            let size = self.size_without(leaving.len() + request.instances);
            let left = listed.placeholders(size, leaves).min(request.replicas);
            let joined = self.wanted_placeholders(request.replicas - left);
            given_up = request.replicas - left - joined.len();
            if given_up > self.given_up {
                return Err(Refusal::Replaced { named: request.replicas, left });
            }
            if listed.instances.is_none() {
                // One with a soft entry has lowered the size by its own place already.
                let is_free = |named: &&Named| self.log.get(&named.uid).is_none() && !leaves(&named.uid);
                let without_node = listed.without_node.iter().filter(is_free);
                accepted.without_node = without_node.take(left).cloned().collect();
            }
            accepted.replicas = left - accepted.without_node.len();
            leaving.extend(listed.without_node.iter().filter(|named| accepted.without_node.contains(named)));
            accepted.without_node.extend(joined);
        }
        let others = self.others + accepted.replicas + request.instances;
        if leaving.len() + accepted.replicas + request.instances > 0 {
            let count = self.log.wanted() + leaving.len() + others;
            size::delete(self.seen.replicas, count, self.seen.bounds).map_err(Refusal::BelowMin)?;
        }
        let entries = leaving.into_iter().enumerate().map(|(position, named)| {
            let counted = position >= alive;
            Entry { counted, ..entry(named, &self.ticket, false) }
        });
        let log = self.log.clone().with(entries);
        log.check().map_err(Refusal::Log)?;
        (self.log, self.others) = (log, others);
        self.given_up -= given_up;
        Ok(accepted)
    }

    /// Machines that placeholders stand for and whose deletion is wanted already, at most so many.
    fn wanted_placeholders(&self, most: usize) -> Vec<Named> {
        let is_wanted =
            |named: &&Named| self.log.get(&named.uid).is_some_and(|entry| entry.phase == Phase::Wanted && !entry.soft);
        self.seen.listed.without_node.iter().filter(is_wanted).take(most).cloned().collect()
    }

    /// The size that is decided so far, less as many.
    fn size_without(&self, count: usize) -> i64 {
        i64::from(self.seen.replicas) - as_i64(self.log.wanted() + self.others + count)
    }

    /// How many of those that are being deleted would be replaced by new Machines: as long as the size that is decided
    /// so far counts more than are there to stay.
    fn replaced(&self, size: i64, leaving: &[&Named]) -> usize {
        let logged = self.log.entries().iter().map(|entry| &entry.uid);
        let leaving: HashSet<_> = logged.chain(leaving.iter().map(|named| &named.uid)).collect();
        let staying = self.seen.listed.alive.iter().filter(|uid| !leaving.contains(uid)).count();
        usize::try_from(size - as_i64(staying)).unwrap_or_default()
    }

    /// The log with all that was accepted, if that added to it.
    pub(super) fn log(&self) -> Option<&DeletionLog> {
        (self.log != *self.seen.log).then_some(&self.log)
    }
}

/// Returns true if the log takes a Machine from those that stay. One that only steers which goes for a size that is lowered already
/// may stay after all.
pub(super) fn leaves(log: &DeletionLog, uid: &Uid) -> bool {
    log.get(uid).is_some_and(|entry| !entry.soft || entry.phase == Phase::Wanted)
}

fn as_i64(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// A new entry of the log.
pub(super) fn entry(named: &Named, ticket: &Ticket, soft: bool) -> Entry {
    let Named { name, uid, never_joined } = named.clone();
    let pending = never_joined && !soft;
    Entry { name, uid, ticket: ticket.clone(), phase: Phase::Wanted, soft, counted: false, pending }
}

/// The write that lowers the size for what is wanted.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Lowering {
    pub(super) to: i32,
    pub(super) log: DeletionLog,
    /// The names of those for which it is lowered.
    pub(super) names: Vec<ArcStr>,
}

/// Entries whose Machines go by themselves and whose places are filled, by a list from after the group was viewed: of `going`
/// as many as the size doesn't count beyond the Machines that stay. They leave the log, and the size stays as it is for them.
pub(super) fn filled(log: &DeletionLog, replicas: i32, listed: &Listed, going: &[&Entry]) -> HashSet<Uid> {
    let staying = listed.alive.iter().filter(|uid| log.get(uid).is_none()).count();
    let size = i64::from(replicas) - as_i64(log.wanted() - going.len());
    let open = usize::try_from(size - as_i64(staying)).unwrap_or_default();
    going.iter().skip(open).map(|entry| entry.uid.clone()).collect()
}

/// Lowers the size for entries that are wanted under the ticket under which they were marked, but for those whose places are
/// `filled`, which leave the log; `None` when there is nothing to write. Where the minimum leaves no room for all, the soft
/// ones stay.
pub(super) fn lower(
    log: &DeletionLog,
    replicas: i32,
    bounds: Bounds,
    marked: &HashMap<Uid, Ticket>,
    filled: &HashSet<Uid>,
) -> Result<Option<Lowering>, SizeError> {
    let is_filled = |entry: &Entry| filled.contains(&entry.uid);
    let is_ready = |entry: &Entry| {
        entry.phase == Phase::Wanted && marked.get(&entry.uid) == Some(&entry.ticket) && !is_filled(entry)
    };
    let lower = |is_such: &dyn Fn(&Entry) -> bool| {
        let names: Vec<_> =
            log.entries().iter().filter(|entry| is_such(entry)).map(|entry| entry.name.clone()).collect();
        let to = size::delete(replicas, names.len(), bounds)?;
        let is_written = !names.is_empty() || !filled.is_empty();
        Ok(is_written.then(|| Lowering { to, log: log.clone().without(is_filled).lowered(is_such), names }))
    };
    let is_hard = |entry: &Entry| is_ready(entry) && !entry.soft;
    lower(&is_ready).or_else(|error| match lower(&is_hard) {
        Ok(None) => Err(error),
        hard => hard,
    })
}

/// What has become of a size write from `seen` to `to` whose answer was lost, by what the object is now.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Fate {
    Done,
    /// If it arrives yet, it finds another object or size than it tests, or else what it is repeated for.
    NotDone,
    /// It may be among the writes since, and others came after it.
    Unknown,
}

/// The size's manager tells whether the last change of it was this one. Where it wasn't, the spec's generation tells how
/// many writes there were since, at most: none, or one, which isn't this one when it made another size. Where somebody
/// else made the same size, this one would have had to be undone in between, which takes three.
pub(super) fn fate(seen: &GroupVersion, now: &GroupVersion, to: i32, sized_by: SizedBy) -> Fate {
    if now.uid != seen.uid || now.generation == seen.generation {
        return Fate::NotDone;
    }
    match (now.generation - seen.generation, now.replicas == to, sized_by) {
        (_, true, SizedBy::This) => Fate::Done,
        (1, false, _) | (1 | 2, true, SizedBy::Another) => Fate::NotDone,
        _ => Fate::Unknown,
    }
}

/// One thing that the finisher has to do.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum Finish {
    /// Marks and lowers all that is wanted.
    CarryOn,
    /// Takes the entry of a Machine that seems gone out of the log, once it is known to be gone.
    ForgetGone(Entry),
    /// Takes a soft entry out of the log, once nothing is left to go for its smaller size.
    ForgetSoft(Entry),
    /// Deletes the Machine itself: its deletion was spent on another one.
    Delete(Entry),
    /// Leaves the Machine to its infrastructure provider, as since then.
    Leave(Entry, Instant),
    /// Marks a Machine under its entry's ticket, whose mark is that of an acceptance that is over.
    MarkAgain(Entry),
    /// Takes a mark of ours off that belongs to no entry, from a Machine of this version: a mark that lands meanwhile may
    /// have hidden that of a later entry.
    Unmark(Named, ArcStr, ResourceVersion),
}

/// A Machine is left to its infrastructure provider for so long once its MachinePool has come down to the smaller size: the
/// provider may be deleting it, and which one it has taken is told nowhere.
pub(super) const LEFT_TO_PROVIDER: Duration = Duration::from_secs(300);

/// Since when Machines of a MachinePool have been left to their infrastructure provider.
pub(super) type LeftSince = HashMap<(Uid, Ticket), Instant>;

/// What is to be done about a group's deletions. The log and the Machines may be views that lag behind: what counts is
/// read again before it is done.
pub(super) fn finish(
    log: &DeletionLog,
    machines: &[Arc<Machine>],
    followed: &Followed,
    left: &LeftSince,
    now: Instant,
) -> Vec<Finish> {
    let mut steps = Vec::new();
    if log.wanted() > 0 {
        steps.push(Finish::CarryOn);
    }
    let are_all_followed = followed.has_all(log);
    for entry in log.entries().iter().filter(|entry| followed.has(entry)) {
        let life = machines.iter().find(|machine| machine.meta.uid == entry.uid).map(|machine| machine.deleting);
        match life {
            None => steps.push(Finish::ForgetGone(entry.clone())),
            Some(_) if entry.soft && are_all_followed => steps.push(Finish::ForgetSoft(entry.clone())),
            Some(false) if !entry.soft && are_all_followed => steps.extend(by_name(entry, followed.by_name, left, now)),
            Some(_) => {}
        }
    }
    steps.extend(machines.iter().filter_map(|machine| {
        let named = Named { name: machine.meta.key.name.clone(), uid: machine.meta.uid.clone(), never_joined: false };
        of_mark(log, named, machine.delete_mark.as_ref()?, &machine.meta.resource_version)
    }));
    steps
}

/// Returns the step for a Machine's mark. One whose answer was lost is set again, and may come after that of a later
/// acceptance: without any the smaller size would take another Machine.
pub(super) fn of_mark(log: &DeletionLog, named: Named, mark: &ArcStr, version: &ResourceVersion) -> Option<Finish> {
    let ticket = Ticket::of_mark(mark)?;
    if log.has(&ticket) {
        return None;
    }
    match log.get(&named.uid) {
        None => Some(Finish::Unmark(named, mark.clone(), version.clone())),
        Some(entry) if entry.phase == Phase::Lowered => Some(Finish::MarkAgain(entry.clone())),
        // The Machine of a wanted entry is marked before the size is lowered for it.
        Some(_) => None,
    }
}

/// Returns the step for a Machine that is still there though its smaller size has been followed.
fn by_name(entry: &Entry, by_name: ByName, left: &LeftSince, now: Instant) -> Option<Finish> {
    match by_name {
        ByName::AtOnce => Some(Finish::Delete(entry.clone())),
        ByName::NotYet => None,
        ByName::InTime => {
            let since = left.get(&(entry.uid.clone(), entry.ticket.clone())).copied().unwrap_or(now);
            let is_time = now.saturating_duration_since(since) >= LEFT_TO_PROVIDER;
            Some(if is_time { Finish::Delete(entry.clone()) } else { Finish::Leave(entry.clone(), since) })
        }
    }
}

/// When a Machine may be deleted by name that a smaller size has left.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
enum ByName {
    /// Its MachineSet has counted it out.
    #[default]
    AtOnce,
    /// There are more replicas than its MachinePool should have: its provider hasn't acted.
    NotYet,
    /// Once its provider had the time to delete it.
    InTime,
}

/// The lowered entries whose smaller size has reached whoever has the Machines made, by uid and ticket.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(super) struct Followed {
    tickets: HashMap<Uid, Ticket>,
    by_name: ByName,
}

impl Followed {
    /// By what the objects show that have the Machines made.
    pub(super) fn by(kind: ScalableKind, sets: &[SetView]) -> Self {
        // A new Machine of an old MachineSet would be as wrong as one of the newest.
        if !sets.iter().all(|SetView { object: set, .. }| set.seen_generation == set.generation) {
            return Self::default();
        }
        let has_size = |set: &&SetView| match kind {
            ScalableKind::MachineDeployment => has_its_size(&set.object, sets),
            ScalableKind::MachineSet | ScalableKind::MachinePool => true,
        };
        let logs = sets.iter().filter(has_size).filter_map(|set| set.log.as_ref()?.read().ok());
        let lowered = logs.flat_map(DeletionLog::entries).filter(|entry| entry.phase == Phase::Lowered);
        let has_come_down =
            sets.iter().all(|SetView { object: pool, .. }| pool.status_replicas <= pool.replicas.unwrap_or_default());
        let by_name = match kind {
            ScalableKind::MachineDeployment | ScalableKind::MachineSet => ByName::AtOnce,
            ScalableKind::MachinePool if has_come_down => ByName::InTime,
            ScalableKind::MachinePool => ByName::NotYet,
        };
        Self { tickets: lowered.map(|entry| (entry.uid.clone(), entry.ticket.clone())).collect(), by_name }
    }

    /// Whether this entry is lowered and followed.
    pub(super) fn has(&self, entry: &Entry) -> bool {
        entry.phase == Phase::Lowered && self.tickets.get(&entry.uid) == Some(&entry.ticket)
    }

    /// Whether all entries of a log are.
    pub(super) fn has_all(&self, log: &DeletionLog) -> bool {
        log.entries().iter().all(|entry| self.has(entry))
    }

    /// Whether the Machine of an entry of this log may be deleted by name, if it is there: no other Machine is to go for
    /// which a smaller size may still take this one.
    pub(super) fn permits_by_name(&self, log: &DeletionLog, entry: &Entry) -> bool {
        self.by_name != ByName::NotYet && log.get(&entry.uid) == Some(entry) && self.has_all(log)
    }
}

/// Whether a MachineSet has the size that came with its copy of the log. While several have Machines, in a rollout that
/// the group has opted to scale down in, none has the whole size.
fn has_its_size(set: &ScalableResource, sets: &[SetView]) -> bool {
    let is_alone = sets.iter().filter(|set| set.object.replicas.unwrap_or_default() > 0).count() <= 1;
    !is_alone || set.desired_replicas == set.replicas
}

#[cfg(test)]
mod compared;
#[cfg(test)]
mod tests;
