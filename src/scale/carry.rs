//! From `wanted` to `lowered`: marks the Machines and lowers the size, for the command that logged them and for any copy
//! of the program that carries on what another one began; or takes them back when that is refused for good. It must
//! never lower the size for an entry that it hasn't marked under the entry's own ticket.

use std::{
    collections::{HashMap, HashSet},
    ops::ControlFlow,
};

use arcstr::ArcStr;
use futures::{StreamExt as _, stream};

use super::{
    Command, ScaleError,
    api::{CallError, GroupChange},
    batch::Marked,
    known::SIDE_BY_SIDE,
    metrics::Write,
    outcome::SizeWritten,
    retry::Attempts,
    rule::{self, Life, Lowering, Named},
};
use crate::{
    capi::{DELETING, Uid},
    index::GroupVersion,
    nodegroup::{Bounds, DeletionLog, Phase, Ticket, deletion_log::Entry},
};

/// Why entries were not lowered.
#[derive(Debug)]
pub(super) enum NotLowered {
    /// They have been taken back.
    Refused(ScaleError),
    /// They stay in the log, and a finisher goes on with them.
    Pending(ScaleError),
}

/// What has become of entries that were to be taken back.
enum TakenBack {
    /// None is in the log any more.
    All,
    /// Another copy has lowered some or all of them, as of this version.
    LoweredMeanwhile(GroupVersion),
}

impl NotLowered {
    pub(super) fn error(self) -> ScaleError {
        match self {
            Self::Refused(error) | Self::Pending(error) => error,
        }
    }
}

impl Command {
    /// Marks and lowers those of `uids` that are wanted, beginning at a version that has them in its log and with what is
    /// marked already. The version that it came to is returned.
    pub(super) async fn carry_out(
        &self,
        mut version: GroupVersion,
        uids: &HashSet<Uid>,
        bounds: Bounds,
        Marked { tickets: mut marked, mut failure }: Marked,
    ) -> Result<GroupVersion, NotLowered> {
        let mut attempts = self.attempts();
        let mut refused_at = None;
        loop {
            let log = self.log_of(&version).map_err(NotLowered::Refused)?;
            let wanted: Vec<_> = wanted(&log, uids).cloned().collect();
            if wanted.is_empty() {
                return Ok(version);
            }
            let strangers: Vec<_> = wanted.iter().filter(|entry| self.is_stranger(entry)).cloned().collect();
            if let Some(stranger) = strangers.first() {
                return self.give_back(&version, &strangers, self.names_a_stranger(stranger)).await;
            }
            let marks = match failure.take() {
                None => self.mark(&wanted, &mut marked).await,
                Some(failure) => Err(failure),
            };
            if let Err(error) = marks {
                if let ControlFlow::Break(end) = self.after_failure(&mut attempts, &error, &version, &wanted).await {
                    return end;
                }
                continue;
            }
            let lowering = match rule::lower(&log, version.replicas, bounds, &marked) {
                Ok(Some(lowering)) => lowering,
                Ok(None) => return Ok(version),
                Err(error) => return self.give_back(&version, &wanted, self.refused(&error)).await,
            };
            let error = match self.lower(&version, &lowering, &attempts).await {
                Ok(written) => return Ok(written),
                Err(error) => error,
            };
            if let CallError::Rejected(message) = &error
                && refused_at.as_ref() == Some(&version)
            {
                return self.give_back(&version, &wanted, self.refuses(lowering.to, message)).await;
            }
            refused_at = Some(version.clone());
            if let ControlFlow::Break(end) = self.after_failure(&mut attempts, &error, &version, &wanted).await {
                return end;
            }
            version =
                self.view_again(&mut attempts).await.map_err(|error| NotLowered::Pending(self.pending(&error)))?;
        }
    }

    /// Waits for the next attempt, or ends this one: for good, or so that a finisher goes on.
    async fn after_failure(
        &self,
        attempts: &mut Attempts,
        error: &CallError,
        version: &GroupVersion,
        wanted: &[Entry],
    ) -> ControlFlow<Result<GroupVersion, NotLowered>> {
        if attempts.again(error).await {
            return ControlFlow::Continue(());
        }
        ControlFlow::Break(match error {
            CallError::Forbidden(_) | CallError::Refused(_) | CallError::Missing(_) => {
                self.give_back(version, wanted, self.failed(error)).await
            }
            CallError::Rejected(_)
            | CallError::Conflict(_)
            | CallError::Busy(..)
            | CallError::Unknown(..)
            | CallError::Unauthorized(_)
            | CallError::NotDiscovered => Err(NotLowered::Pending(self.pending(error))),
        })
    }

    async fn lower(
        &self,
        version: &GroupVersion,
        lowering: &Lowering,
        attempts: &Attempts,
    ) -> Result<GroupVersion, CallError> {
        let log = lowering.log.print().map_err(|error| CallError::Refused(error.to_string()))?;
        let change = GroupChange { replicas: Some(lowering.to), log };
        let written = self.write(Write::Size, self.api().write_group(&self.id, version, &change)).await?;
        self.wrote(&written, SizeWritten { from: version.replicas, machines: &lowering.names, attempts });
        Ok(written)
    }

    /// Marks those that aren't under their ticket yet, side by side. One that is gone needs none, nor does one that
    /// somebody else has marked.
    async fn mark(&self, wanted: &[Entry], marked: &mut HashMap<Uid, Ticket>) -> Result<(), CallError> {
        let unmarked = wanted.iter().filter(|entry| marked.get(&entry.uid) != Some(&entry.ticket));
        let unmarked: Vec<_> = unmarked.cloned().collect();
        let marks = stream::iter(unmarked).map(async |entry| {
            let result = self.mark_one(&entry).await;
            (entry, result)
        });
        let results: Vec<_> = marks.buffer_unordered(SIDE_BY_SIDE).collect().await;
        let mut failure = None;
        for (entry, result) in results {
            match result {
                Ok(()) => {
                    marked.insert(entry.uid, entry.ticket);
                }
                Err(error) => failure = Some(error),
            }
        }
        failure.map_or(Ok(()), Err)
    }

    pub(super) async fn mark_one(&self, entry: &Entry) -> Result<(), CallError> {
        let key = self.machine_key(&entry.name);
        if self.index().is_of(&self.id, &key, &entry.uid).is_none() {
            match self.api().read_machine(&key, &entry.uid).await? {
                None => return Ok(()),
                Some(seen) if seen.is_of(&self.index().owners(&self.id)) => {}
                Some(_) => {
                    let why =
                        format!("the log names Machine {}, which isn't known yet as one of the group's", entry.name);
                    return Err(CallError::Unknown(why, None));
                }
            }
        }
        let is_marked_by_another =
            self.index().mark_of(&key, &entry.uid).is_some_and(|mark| Ticket::of_mark(&mark).is_none());
        if is_marked_by_another {
            return Ok(());
        }
        let mark = entry.ticket.mark();
        match self.write(Write::Mark, self.api().set_mark(&key, &entry.uid, &mark)).await {
            // Another Machine has its name by now, or another write came between.
            Err(error @ (CallError::Rejected(_) | CallError::Conflict(_))) => {
                match self.read_life(&named(entry)).await? {
                    Life::Gone => Ok(()),
                    Life::Alive | Life::Deleting => Err(error),
                }
            }
            Err(CallError::Missing(_)) => Ok(()),
            other => other,
        }
    }

    /// Ends entries that are refused for good. Where even that can't be written, nothing is refused: they are noted, and
    /// will be carried out when the API server lets it. Nor is it where another copy was let and has lowered them: then
    /// the version that it came to is returned.
    async fn give_back(
        &self,
        version: &GroupVersion,
        entries: &[Entry],
        why: ScaleError,
    ) -> Result<GroupVersion, NotLowered> {
        match self.take_back(version, entries).await {
            Ok(TakenBack::All) => Err(NotLowered::Refused(why)),
            Ok(TakenBack::LoweredMeanwhile(version)) => Ok(version),
            Err(error) => Err(NotLowered::Pending(ScaleError::Unavailable(format!(
                "{why}; nor can the decision be taken back ({}): the deletion stays noted in the annotation {DELETING} and \
                 is carried out when the API server lets it; ask again to learn its end",
                self.failed(&error)
            )))),
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
        for entry in taken.into_iter().filter(|entry| !self.is_stranger(entry)) {
            self.unmark(&entry.name, &entry.ticket.mark().into()).await;
        }
        Ok(if lowered.is_empty() { TakenBack::All } else { TakenBack::LoweredMeanwhile(version) })
    }

    /// Takes a mark of ours off. A failure is only logged: the finisher finds the mark again.
    pub(super) async fn unmark(&self, name: &ArcStr, mark: &ArcStr) -> bool {
        let key = self.machine_key(name);
        let result = self.write(Write::Unmark, self.api().take_mark(&key, mark)).await;
        // It is gone, or has another mark or none: that is as good.
        let is_off = matches!(result, Ok(()) | Err(CallError::Missing(_) | CallError::Rejected(_)));
        if let Err(error) = result
            && !is_off
        {
            tracing::warn!(group = %self.id, machine = %name, "can't take the delete-machine annotation back; this is tried again: {}", self.failed(&error));
        }
        is_off
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

/// The Machine that an entry is about.
pub(super) fn named(entry: &Entry) -> Named {
    Named { name: entry.name.clone(), uid: entry.uid.clone() }
}

fn wanted<'a>(log: &'a DeletionLog, uids: &'a HashSet<Uid>) -> impl Iterator<Item = &'a Entry> {
    log.entries().iter().filter(|entry| entry.phase == Phase::Wanted && uids.contains(&entry.uid))
}
