//! From `wanted` to `lowered`: marks the Machines and lowers the size, for the command that logged them and for any copy
//! of the program that carries on what another one began; or takes them back when that is refused for good. It must
//! never lower the size for an entry that it hasn't marked under the entry's own ticket.

use std::collections::{HashMap, HashSet};

use futures::{StreamExt as _, stream};

use super::{
    Command, ScaleError,
    api::{CallError, GroupChange},
    known::SIDE_BY_SIDE,
    mark::{Marked, NotMarked},
    metrics::Write,
    outcome::SizeWritten,
    retry::Attempts,
    rule::{Lowering, RULE},
};
use crate::{
    capi::{DELETING, Uid},
    index::GroupVersion,
    nodegroup::{Bounds, DeletionLog, LogAnnotation as _, Phase, deletion_log::Entry},
};

/// The reason for which an entry was not lowered.
#[derive(Clone, Debug)]
pub(super) enum NotLowered {
    /// It has been taken back.
    Refused(ScaleError),
    /// It has been taken back, since its Machine has joined or the minimum leaves no room: it was only to steer which
    /// Machine goes, or was named as one that never joined.
    Spared(ScaleError),
    /// It stays in the log, and a finisher goes on with it.
    Pending(ScaleError),
}

/// The outcome of entries that were to be lowered.
#[derive(Debug)]
pub(super) struct Carried {
    /// The version that it came to.
    pub(super) version: GroupVersion,
    /// The number of entries for which the size was lowered here.
    pub(super) lowered: usize,
    /// Those that were not lowered.
    pub(super) failures: HashMap<Uid, NotLowered>,
}

/// Entries that can't be lowered, each with the reason.
type Failing = Vec<(Entry, NotLowered)>;

/// What has become of entries that were to be taken back.
struct TakenBack {
    version: GroupVersion,
    /// Another copy has lowered these meanwhile.
    lowered: HashSet<Uid>,
}

impl NotLowered {
    pub(super) fn error(&self) -> &ScaleError {
        match self {
            Self::Refused(error) | Self::Spared(error) | Self::Pending(error) => error,
        }
    }
}

impl Command {
    /// Marks and lowers those of `uids` that are wanted, beginning at a version that has them in its log and with what is
    /// marked already. What can't be lowered is taken back together with all that was asked for with it, and no more:
    /// each of `together` is one request.
    pub(super) async fn carry_out(
        &self,
        version: GroupVersion,
        uids: &HashSet<Uid>,
        together: &[HashSet<Uid>],
        bounds: Bounds,
        mut marked: Marked,
    ) -> Carried {
        let mut attempts = self.attempts();
        // The version on which the last write was rejected.
        let mut rejected_at = None;
        let mut carried = Carried { version, lowered: 0, failures: HashMap::new() };
        loop {
            let log = match self.log_of(&carried.version) {
                Ok(log) => log,
                Err(error) => {
                    let failures = uids.iter().map(|uid| (uid.clone(), NotLowered::Refused(error.clone())));
                    carried.failures.extend(failures);
                    return carried;
                }
            };
            let is_left = |entry: &&Entry| !carried.failures.contains_key(&entry.uid);
            let wanted: Vec<_> = wanted(&log, uids).filter(is_left).cloned().collect();
            if wanted.is_empty() {
                return carried;
            }
            let before = carried.version.clone();
            let failing = self.refused_of(&mut carried.version, &wanted, &mut marked, &mut attempts).await;
            if !failing.is_empty() {
                self.give_back(&mut carried, &wanted, failing, together).await;
                continue;
            }
            if carried.version != before || !wanted.iter().all(|entry| marked.has(entry)) {
                continue;
            }
            let mut to = carried.version.replicas;
            let error = match self.filled(&carried.version, &log, &marked).await {
                Ok(filled) => {
                    let lowering = match RULE.lower(&log, to, bounds, &marked.tickets, &filled) {
                        Ok(Some(lowering)) => lowering,
                        Ok(None) => return carried,
                        Err(error) => {
                            let refusal = self.refused(&error);
                            let all = wanted.iter().map(|it| (it.clone(), not_below_min(it, &refusal))).collect();
                            self.give_back(&mut carried, &wanted, all, together).await;
                            continue;
                        }
                    };
                    to = lowering.to;
                    match self.lower(&carried.version, &lowering, &attempts).await {
                        Ok(written) => {
                            for entry in wanted.iter().filter(|entry| filled.contains(&entry.uid)) {
                                tracing::info!(group = %self.id, machine = %entry.name, "the Machine goes by itself and another one has its place: the size stays as it is for it");
                            }
                            carried.version = written;
                            carried.lowered += lowering.names.len();
                            continue;
                        }
                        Err(error) => error,
                    }
                }
                Err(error) => error,
            };
            if let CallError::Rejected(message) = &error
                && rejected_at.as_ref() == Some(&carried.version)
            {
                self.couldnt_delete(wanted.iter().map(|entry| (&entry.name, &entry.uid)));
                let refusal = NotLowered::Refused(self.refuses(to, message));
                self.give_back(&mut carried, &wanted, all_of(&wanted, &refusal), together).await;
                continue;
            }
            rejected_at = matches!(error, CallError::Rejected(_)).then(|| carried.version.clone());
            if attempts.again(&error).await {
                match self.view_again(&mut attempts).await {
                    Ok(version) => carried.version = version,
                    Err(error) => return self.left_pending(carried, &wanted, &error),
                }
            } else if error.is_final() {
                self.couldnt_delete(wanted.iter().map(|entry| (&entry.name, &entry.uid)));
                let refusal = NotLowered::Refused(self.failed(&error));
                self.give_back(&mut carried, &wanted, all_of(&wanted, &refusal), together).await;
            } else {
                return self.left_pending(carried, &wanted, &error);
            }
        }
    }

    /// Marks those that aren't marked yet. Those that can't be are returned, each with the reason; none where the marks
    /// are to be tried again, on the version that is there then.
    async fn refused_of(
        &self,
        version: &mut GroupVersion,
        wanted: &[Entry],
        marked: &mut Marked,
        attempts: &mut Attempts,
    ) -> Failing {
        // Others have been taken back or lowered meanwhile, and are nobody's to mark any more.
        marked.failures.retain(|uid, _| wanted.iter().any(|entry| entry.uid == *uid));
        let (strangers, ours): (Vec<_>, Vec<_>) = wanted.iter().partition(|entry| self.is_stranger(entry));
        if !strangers.is_empty() {
            let refused = |entry: &Entry| (entry.clone(), NotLowered::Refused(self.names_a_stranger(entry)));
            return strangers.into_iter().map(refused).collect();
        }
        if marked.failures.is_empty() {
            self.mark(&ours, marked).await;
        }
        let unmarked = &mut marked.failures;
        let reason = |entry: &Entry| match unmarked.get(&entry.uid)? {
            NotMarked::Joined => Some(NotLowered::Spared(self.has_joined_meanwhile(&entry.name))),
            NotMarked::Going => Some(NotLowered::Spared(ScaleError::Aborted(format!(
                "{}: Machine {} is going by itself; the size stays as it is for it",
                self.id, entry.name
            )))),
            NotMarked::Failed(error) if error.is_final() => {
                self.couldnt_delete([(&entry.name, &entry.uid)]);
                Some(NotLowered::Refused(self.failed(error)))
            }
            NotMarked::Failed(_) => None,
        };
        let failing: Failing = wanted.iter().filter_map(|entry| Some((entry.clone(), reason(entry)?))).collect();
        if !failing.is_empty() {
            for (entry, _) in &failing {
                unmarked.remove(&entry.uid);
            }
            return failing;
        }
        let open = unmarked.values().find_map(|failure| match failure {
            NotMarked::Failed(error) => Some(error),
            NotMarked::Joined | NotMarked::Going => None,
        });
        let Some(error) = open else { return Failing::new() };
        if attempts.again(error).await {
            unmarked.clear();
            *version = self.view_again(attempts).await.unwrap_or_else(|_| version.clone());
            return Failing::new();
        }
        let pending = NotLowered::Pending(self.pending(error));
        let is_open = |entry: &&Entry| unmarked.contains_key(&entry.uid);
        let failing = wanted.iter().filter(is_open).map(|entry| (entry.clone(), pending.clone())).collect();
        unmarked.clear();
        failing
    }

    fn left_pending(&self, mut carried: Carried, wanted: &[Entry], error: &CallError) -> Carried {
        let pending = NotLowered::Pending(self.pending(error));
        carried.failures.extend(wanted.iter().map(|entry| (entry.uid.clone(), pending.clone())));
        carried
    }

    async fn lower(
        &self,
        version: &GroupVersion,
        lowering: &Lowering,
        attempts: &Attempts,
    ) -> Result<GroupVersion, CallError> {
        let log = lowering.log.print().map_err(|error| CallError::Refused(error.to_string()))?;
        if lowering.names.is_empty() {
            let change = GroupChange { replicas: None, log };
            return self.wrote_log(self.write(Write::Log, self.api().write_group(&self.id, version, &change)).await);
        }
        let change = GroupChange { replicas: Some(lowering.to), log };
        let written = self.write(Write::Size, self.api().write_group(&self.id, version, &change)).await?;
        self.wrote(&written, SizeWritten { from: version.replicas, machines: &lowering.names, attempts });
        Ok(written)
    }

    /// The entries whose Machines go by themselves and whose places are filled: a smaller size for them would take others.
    /// The watch may not have shown yet that somebody has deleted a Machine; its mark shows it.
    async fn filled(
        &self,
        version: &GroupVersion,
        log: &DeletionLog,
        marked: &Marked,
    ) -> Result<HashSet<Uid>, CallError> {
        let is_going = |entry: &&Entry| marked.has(entry) && marked.going.contains(&entry.uid);
        let is_open = |entry: &&Entry| entry.phase == Phase::Wanted && !entry.soft && !entry.counted;
        let going: Vec<_> = log.entries().iter().filter(is_open).filter(is_going).collect();
        if going.is_empty() {
            return Ok(HashSet::new());
        }
        Ok(RULE.filled(log, version.replicas, &self.list().await?, &going))
    }

    /// Ends entries that can't be lowered, and those that were asked for with them. Where even that can't be written,
    /// nothing is refused: they stay noted, and are carried out when the API server lets it. Nor is it where another copy
    /// was let and has lowered them.
    async fn give_back(&self, carried: &mut Carried, wanted: &[Entry], failing: Failing, together: &[HashSet<Uid>]) {
        let (pending, failing): (Vec<_>, Vec<_>) =
            failing.into_iter().partition(|(_, why)| matches!(why, NotLowered::Pending(_)));
        carried.failures.extend(pending.into_iter().map(|(entry, why)| (entry.uid, why)));
        let failing = with_their_requests(failing, wanted, together);
        if failing.is_empty() {
            return;
        }
        let entries: Vec<_> = failing.iter().map(|(entry, _)| entry.clone()).collect();
        match self.take_back(&carried.version, &entries).await {
            Ok(TakenBack { version, lowered }) => {
                carried.version = version;
                let ended = failing.into_iter().filter(|(entry, _)| !lowered.contains(&entry.uid));
                carried.failures.extend(ended.map(|(entry, why)| (entry.uid, why)));
            }
            Err(error) => {
                let failed = self.failed(&error);
                for (entry, why) in failing {
                    let why = ScaleError::Unavailable(format!(
                        "{}; nor can the decision be taken back ({failed}): the deletion stays noted in the annotation \
                         {DELETING} and is carried out when the API server lets it; ask again to learn its end",
                        why.error()
                    ));
                    carried.failures.insert(entry.uid, NotLowered::Pending(why));
                }
            }
        }
    }

    /// Takes entries out of the log, and then their marks off; in this order, so that a copy that marks or lowers
    /// meanwhile finds the entry gone. One that another copy has lowered meanwhile stays, and so does its mark: without
    /// it the smaller size would take any Machine. Marks that stay for nothing are left to the finisher.
    async fn take_back(&self, version: &GroupVersion, entries: &[Entry]) -> Result<TakenBack, CallError> {
        let mut attempts = self.attempts();
        let mut version = version.clone();
        let is_one = |entry: &Entry| entries.iter().any(|one| one.uid == entry.uid && one.ticket == entry.ticket);
        let is_such = |entry: &Entry| entry.phase == Phase::Wanted && is_one(entry);
        let log = loop {
            let log = version.log().map_err(|error| CallError::Refused(error.to_string()))?;
            if !log.entries().iter().any(is_such) {
                break log;
            }
            let text = log.without(is_such).print().map_err(|error| CallError::Refused(error.to_string()))?;
            let change = GroupChange { replicas: None, log: text };
            match self.wrote_log(self.write(Write::Log, self.api().write_group(&self.id, &version, &change)).await) {
                Ok(written) => version = written,
                Err(error) if attempts.again(&error).await => version = self.view_again(&mut attempts).await?,
                Err(error) => return Err(error),
            }
        };
        let (lowered, taken): (Vec<_>, Vec<_>) =
            entries.iter().partition(|one| log.get(&one.uid).is_some_and(|entry| entry.ticket == one.ticket));
        let ours: Vec<_> = taken.into_iter().filter(|entry| !self.is_stranger(entry)).cloned().collect();
        self.unmark_taken_back(ours).await;
        Ok(TakenBack { version, lowered: lowered.into_iter().map(|entry| entry.uid.clone()).collect() })
    }

    /// Takes the marks of entries off that were taken back. Each Machine is read before the log is, as by the finisher; a
    /// mark that stays for want of an answer is left to that.
    async fn unmark_taken_back(&self, entries: Vec<Entry>) {
        let reads = stream::iter(entries).map(async |entry: Entry| {
            let seen = self.api().read_machine(&self.machine_key(&entry.name), &entry.uid).await.ok()??;
            Some((entry, seen.version))
        });
        let seen: Vec<_> = reads.buffer_unordered(SIDE_BY_SIDE).filter_map(async |seen| seen).collect().await;
        if seen.is_empty() {
            return;
        }
        let Ok(group) = self.api().read_group(&self.id).await else { return };
        let Ok(log) = group.version.log() else { return };
        for (entry, version) in seen.into_iter().filter(|(entry, _)| log.get(&entry.uid).is_none()) {
            self.unmark(&entry.name, &entry.ticket.mark().into(), &version).await;
        }
    }

    /// Whether an entry names a Machine that isn't of this group. Such a one was written by somebody else: who may write
    /// annotations of a group has no right to its neighbours' Machines by that.
    pub(super) fn is_stranger(&self, entry: &Entry) -> bool {
        self.index().is_of(&self.id, &self.machine_key(&entry.name), &entry.uid) == Some(false)
    }

    fn names_a_stranger(&self, entry: &Entry) -> ScaleError {
        ScaleError::Aborted(format!(
            "{}: the annotation {DELETING} names Machine {}, which isn't of this group; the entry is taken out, and nothing \
             is deleted for it",
            self.id, entry.name
        ))
    }

    fn pending(&self, error: &CallError) -> ScaleError {
        ScaleError::Unavailable(format!(
            "{}; the deletion is decided and goes on: ask again to learn its end",
            self.failed(error)
        ))
    }
}

fn not_below_min(entry: &Entry, refusal: &ScaleError) -> NotLowered {
    if entry.soft { NotLowered::Spared(refusal.clone()) } else { NotLowered::Refused(refusal.clone()) }
}

fn all_of(wanted: &[Entry], why: &NotLowered) -> Failing {
    wanted.iter().map(|entry| (entry.clone(), why.clone())).collect()
}

/// Adds the rest of the requests that name what can't be lowered, but for what other requests name too.
fn with_their_requests(mut failing: Failing, wanted: &[Entry], together: &[HashSet<Uid>]) -> Failing {
    // Others of the request of one that has joined may be marked, and go on.
    let ends_its_request = |(_, why): &&(Entry, NotLowered)| !matches!(why, NotLowered::Spared(_));
    let ending: Vec<_> = failing.iter().filter(ends_its_request).map(|(entry, _)| entry.uid.clone()).collect();
    let fails = |request: &&HashSet<Uid>| ending.iter().any(|uid| request.contains(uid));
    let (failed, standing): (Vec<_>, Vec<_>) = together.iter().partition(fails);
    let is_named_by = |requests: &[&HashSet<Uid>], entry: &Entry| requests.iter().any(|it| it.contains(&entry.uid));
    let mut siblings = Failing::new();
    for entry in wanted.iter().filter(|entry| is_named_by(&failed, entry) && !is_named_by(&standing, entry)) {
        let of_request = failed.iter().find(|request| request.contains(&entry.uid));
        let reason = of_request.and_then(|request| failing.iter().find(|(failing, _)| request.contains(&failing.uid)));
        if let Some((_, why)) = reason
            && failing.iter().all(|(failing, _)| failing.uid != entry.uid)
        {
            siblings.push((entry.clone(), why.clone()));
        }
    }
    failing.extend(siblings);
    failing
}

fn wanted<'a>(log: &'a DeletionLog, uids: &'a HashSet<Uid>) -> impl Iterator<Item = &'a Entry> {
    log.entries().iter().filter(|entry| entry.phase == Phase::Wanted && uids.contains(&entry.uid))
}
