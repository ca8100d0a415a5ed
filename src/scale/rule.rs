//! The rule of deletion as pure functions of what was seen (docs/delete-rule.md says why each step is there). No call is
//! made here, and nothing is decided about deletions anywhere else.

use std::collections::{HashMap, HashSet};

use arcstr::ArcStr;

use crate::{
    capi::{Machine, ScalableKind, ScalableResource, Uid},
    index::GroupVersion,
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
}

/// What a request names.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(super) struct Request {
    pub(super) machines: Vec<Named>,
    /// How many replicas without a Machine, or instances that are no Machines, which only lower the size.
    pub(super) others: usize,
}

/// What a group looks like when requests are decided.
#[derive(Clone, Debug)]
pub(super) struct Seen<'a> {
    pub(super) log: &'a DeletionLog,
    pub(super) replicas: i32,
    pub(super) bounds: Bounds,
    /// Of each Machine that a request names and that isn't in the log.
    pub(super) lives: &'a HashMap<Uid, Life>,
    /// All Machines of the group that are alive, at the same moment as `lives`. Empty where no named one is being
    /// deleted: only then it matters.
    pub(super) alive: &'a HashSet<Uid>,
}

/// Why a request isn't accepted.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum Refusal {
    /// A Machine is in the log for a smaller target size, and leaves it within seconds.
    InTheWay(ArcStr),
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
}

impl<'a> Acceptance<'a> {
    pub(super) fn new(seen: Seen<'a>, ticket: Ticket) -> Self {
        Self { log: seen.log.clone(), seen, ticket, others: 0 }
    }

    /// Accepts a request as a whole or not at all.
    pub(super) fn accept(&mut self, request: &Request) -> Result<(), Refusal> {
        let mut leaving = Vec::new();
        let mut deleting = Vec::new();
        for named in &request.machines {
            match self.log.get(&named.uid) {
                Some(entry) if entry.soft => return Err(Refusal::InTheWay(named.name.clone())),
                Some(_) => continue,
                None => {}
            }
            match self.seen.lives.get(&named.uid) {
                Some(Life::Alive) => leaving.push(named),
                Some(Life::Deleting) => deleting.push(named),
                Some(Life::Gone) | None => {}
            }
        }
        let others = self.others + request.others;
        let size = i64::from(self.seen.replicas) - as_i64(self.log.wanted() + leaving.len() + others);
        leaving.extend(deleting.into_iter().take(self.replaced(size, &leaving)));
        if leaving.len() + request.others > 0 {
            let count = self.log.wanted() + leaving.len() + others;
            size::delete(self.seen.replicas, count, self.seen.bounds).map_err(Refusal::BelowMin)?;
        }
        let entries = leaving.into_iter().map(|named| entry(named, &self.ticket, false));
        let log = self.log.clone().with(entries);
        log.print().map_err(Refusal::Log)?;
        (self.log, self.others) = (log, others);
        Ok(())
    }

    /// How many of those that are being deleted would be replaced by new Machines: as long as the size that is decided
    /// so far counts more than are there to stay.
    fn replaced(&self, size: i64, leaving: &[&Named]) -> usize {
        let stays = |uid: &Uid| self.log.get(uid).is_none() && !leaving.iter().any(|named| named.uid == *uid);
        let staying = self.seen.alive.iter().filter(|uid| stays(uid)).count();
        usize::try_from(size - as_i64(staying)).unwrap_or_default()
    }

    /// The log with all that was accepted, if that added to it.
    pub(super) fn log(&self) -> Option<&DeletionLog> {
        (self.log != *self.seen.log).then_some(&self.log)
    }
}

fn as_i64(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// A new entry of the log.
pub(super) fn entry(named: &Named, ticket: &Ticket, soft: bool) -> Entry {
    let Named { name, uid } = named.clone();
    Entry { name, uid, ticket: ticket.clone(), phase: Phase::Wanted, soft }
}

/// The write that lowers the size for what is wanted.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Lowering {
    pub(super) to: i32,
    pub(super) log: DeletionLog,
    /// The names of those for which it is lowered.
    pub(super) names: Vec<ArcStr>,
}

/// Lowers the size for entries that are wanted under the ticket under which they were marked; `None` when there are none.
/// Soft ones were asked for above the minimum, and know none.
pub(super) fn lower(
    log: &DeletionLog,
    replicas: i32,
    bounds: Bounds,
    marked: &HashMap<Uid, Ticket>,
) -> Result<Option<Lowering>, SizeError> {
    let is_ready = |entry: &Entry| entry.phase == Phase::Wanted && marked.get(&entry.uid) == Some(&entry.ticket);
    let ready: Vec<_> = log.entries().iter().filter(|entry| is_ready(entry)).collect();
    if ready.is_empty() {
        return Ok(None);
    }
    let min = if ready.iter().all(|entry| entry.soft) { 0 } else { bounds.min };
    let to = size::delete(replicas, ready.len(), Bounds { min, max: bounds.max })?;
    let names = ready.iter().map(|entry| entry.name.clone()).collect();
    Ok(Some(Lowering { to, log: log.clone().lowered(is_ready), names }))
}

/// What has become of a size write from `seen` to `to` whose answer was lost, by what the object is now.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Fate {
    Done,
    NotDone,
    /// The spec was written more than once since.
    Unknown,
}

/// The spec's generation tells how many writes there were since: none, or one, of which the size tells whose it was.
pub(super) fn fate(seen: &GroupVersion, now: &GroupVersion, to: i32) -> Fate {
    if now.uid != seen.uid || now.generation == seen.generation {
        return Fate::NotDone;
    }
    match (now.generation - seen.generation, now.replicas == to) {
        (1, true) => Fate::Done,
        (1, false) => Fate::NotDone,
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
    /// Takes a soft entry out of the log.
    ForgetSoft(Entry),
    /// Deletes the Machine itself: its deletion was spent on another one.
    Delete(Entry),
    /// Takes a mark of ours off that belongs to no entry: the Machine's name, and the mark.
    Unmark(ArcStr, ArcStr),
}

/// What is to be done about a group's deletions. The log and the Machines may be views that lag behind: what counts is
/// read again before it is done.
pub(super) fn finish(log: &DeletionLog, machines: &[std::sync::Arc<Machine>], followed: &HashSet<Uid>) -> Vec<Finish> {
    let mut steps = Vec::new();
    if log.wanted() > 0 {
        steps.push(Finish::CarryOn);
    }
    let are_others_followed =
        |uid: &Uid| log.entries().iter().all(|other| other.uid == *uid || followed.contains(&other.uid));
    let lowered = log.entries().iter().filter(|entry| entry.phase == Phase::Lowered);
    for entry in lowered.filter(|entry| followed.contains(&entry.uid)) {
        let life = machines.iter().find(|machine| machine.meta.uid == entry.uid).map(|machine| machine.deleting);
        match life {
            None => steps.push(Finish::ForgetGone(entry.clone())),
            Some(_) if entry.soft && are_others_followed(&entry.uid) => steps.push(Finish::ForgetSoft(entry.clone())),
            Some(false) if !entry.soft && are_others_followed(&entry.uid) => steps.push(Finish::Delete(entry.clone())),
            Some(_) => {}
        }
    }
    for machine in machines {
        if let Some(mark) = &machine.delete_mark
            && Ticket::of_mark(mark).is_some_and(|ticket| !log.has(&ticket))
        {
            steps.push(Finish::Unmark(machine.meta.key.name.clone(), mark.clone()));
        }
    }
    steps
}

/// The entries of `log` whose smaller size has reached whoever has the Machines made.
pub(super) fn followed(
    kind: ScalableKind,
    log: &DeletionLog,
    sets: &[std::sync::Arc<ScalableResource>],
) -> HashSet<Uid> {
    let has_acted = |set: &ScalableResource| set.observed_generation == set.generation;
    // A new Machine of an old MachineSet would be as wrong as one of the newest.
    if !sets.iter().all(|set| has_acted(set)) {
        return HashSet::new();
    }
    let reached: Vec<_> = match kind {
        ScalableKind::MachineDeployment => sets.iter().filter(|set| has_its_size(set, sets)).collect(),
        ScalableKind::MachineSet | ScalableKind::MachinePool => sets.iter().collect(),
    };
    let logs: Vec<_> =
        reached.into_iter().filter_map(|set| DeletionLog::parse(set.deleting_log.as_deref()).ok()).collect();
    let is_followed = |entry: &Entry| {
        let is_same = |copy: &Entry| copy.ticket == entry.ticket && copy.phase == Phase::Lowered;
        logs.iter().any(|copied| copied.get(&entry.uid).is_some_and(is_same))
    };
    log.entries()
        .iter()
        .filter(|entry| entry.phase == Phase::Lowered && is_followed(entry))
        .map(|entry| entry.uid.clone())
        .collect()
}

/// Whether a MachineSet has the size that came with its copy of the log. While several have Machines, in a rollout that
/// the group has opted to scale down in, none has the whole size.
fn has_its_size(set: &ScalableResource, sets: &[std::sync::Arc<ScalableResource>]) -> bool {
    let is_alone = sets.iter().filter(|set| set.replicas.unwrap_or_default() > 0).count() <= 1;
    !is_alone || set.desired_replicas == set.replicas
}
