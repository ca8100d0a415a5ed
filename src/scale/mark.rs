//! The marks of Machines: each is set under the ticket of its Machine's entry, and tells what it finds. It must never mark a
//! Machine that is given up as one that never joined without a test of the version in which it had no Node.

use std::collections::{HashMap, HashSet};

use arcstr::ArcStr;
use futures::{StreamExt as _, stream};

use super::{
    Command,
    api::{CallError, MachineSeen, WholeMachine},
    known::SIDE_BY_SIDE,
    metrics::Write,
    rule::{Life, Marking, Named, RULE},
};
use crate::{
    capi::{ObjectKey, Uid},
    informer::ResourceVersion,
    nodegroup::{Phase, Ticket, deletion_log::Entry},
};

/// The Machines of entries that are marked, and those that can't be.
#[derive(Debug, Default)]
pub(super) struct Marked {
    /// Each Machine, with the ticket that its mark has.
    pub(super) tickets: HashMap<Uid, Ticket>,
    /// Those of them that are being deleted or gone.
    pub(super) going: HashSet<Uid>,
    /// The Machines that couldn't be marked.
    pub(super) failures: HashMap<Uid, NotMarked>,
}

impl Marked {
    /// Notes that the Machine of an entry has its mark, or needs none.
    pub(super) fn add(&mut self, entry: &Entry, life: Life) {
        self.tickets.insert(entry.uid.clone(), entry.ticket.clone());
        if life != Life::Alive {
            self.going.insert(entry.uid.clone());
        }
    }

    /// Returns true if the Machine of an entry has its mark, or needs none.
    pub(super) fn has(&self, entry: &Entry) -> bool {
        self.tickets.get(&entry.uid) == Some(&entry.ticket)
    }
}

/// The reason for which a Machine wasn't marked.
#[derive(Debug)]
pub(super) enum NotMarked {
    Failed(CallError),
    /// It is given up as one that never joined, and has a Node by now.
    Joined,
    /// It was to steer which Machine goes, and goes by itself: the smaller size would take another.
    Going,
}

impl From<CallError> for NotMarked {
    fn from(error: CallError) -> Self {
        Self::Failed(error)
    }
}

impl Command {
    /// Marks those that aren't under their ticket yet, side by side, and notes those that couldn't be. One that is gone
    /// needs no mark, nor does one that somebody else has marked.
    pub(super) async fn mark(&self, wanted: &[&Entry], marked: &mut Marked) {
        let unmarked = wanted.iter().filter(|entry| !marked.has(entry));
        let unmarked: Vec<_> = unmarked.map(|entry| Entry::clone(entry)).collect();
        let marks = stream::iter(unmarked).map(async |entry| {
            let result = self.mark_one(&entry, None).await;
            (entry, result)
        });
        let results: Vec<_> = marks.buffer_unordered(SIDE_BY_SIDE).collect().await;
        for (entry, result) in results {
            match result {
                Ok(life) => marked.add(&entry, life),
                Err(failure) => {
                    marked.failures.insert(entry.uid, failure);
                }
            }
        }
    }

    /// Marks a Machine under its entry's ticket, and returns what its mark has shown of it. One that is given up as one that
    /// never joined is read whole first, unless `version` is one in which it had no Node, and the mark tests that version.
    pub(super) async fn mark_one(&self, entry: &Entry, version: Option<&ResourceVersion>) -> Result<Life, NotMarked> {
        let key = self.machine_key(&entry.name);
        if self.index().is_of(&self.id, &key, &entry.uid).is_none() {
            match self.api().read_machine(&key, &entry.uid).await? {
                None if entry.soft && entry.phase == Phase::Wanted => return Err(NotMarked::Going),
                None => return Ok(Life::Gone),
                Some(seen) if seen.is_of(&self.index().owners(&self.id)) => {}
                Some(_) => {
                    let why =
                        format!("the log names Machine {}, which isn't known yet as one of the group's", entry.name);
                    return Err(CallError::Unknown(why, None).into());
                }
            }
        }
        let is_marked_by_another =
            self.index().mark_of(&key, &entry.uid).is_some_and(|mark| Ticket::of_mark(&mark).is_none());
        if entry.gives_up() && entry.phase == Phase::Wanted {
            return self.mark_pending(&key, entry, version, is_marked_by_another).await;
        }
        if is_marked_by_another {
            return Ok(self.read_life(&named(entry)).await?);
        }
        let mark = entry.ticket.mark();
        match self.write(Write::Mark, self.api().set_mark(&key, &entry.uid, None, &mark)).await {
            // Another Machine has its name by now, or another write came between.
            Err(error @ (CallError::Rejected(_) | CallError::Conflict(_))) => {
                match self.read_life(&named(entry)).await? {
                    Life::Gone => Ok(Life::Gone),
                    Life::Alive | Life::Deleting => Err(error.into()),
                }
            }
            Err(CallError::Missing(_)) => Ok(Life::Gone),
            marked => Ok(life_of(&marked?)),
        }
    }

    async fn mark_pending(
        &self,
        key: &ObjectKey,
        entry: &Entry,
        known: Option<&ResourceVersion>,
        is_marked_by_another: bool,
    ) -> Result<Life, NotMarked> {
        // A mark that somebody else has set tests nothing: the Machine is read in its stead.
        let known = known.filter(|_| !is_marked_by_another);
        let version = if let Some(version) = known {
            Some(version.clone())
        } else {
            let machine = self.api().read_whole_machine(key, &entry.uid).await?;
            let life = life_of_whole(machine.as_ref());
            let has_node = || machine.as_ref().is_some_and(|machine| self.has_joined(key, machine));
            match RULE.marking(entry, life, life == Life::Alive && has_node()) {
                Marking::Mark => {}
                Marking::NotNeeded => return Ok(Life::Gone),
                Marking::Joined => return Err(NotMarked::Joined),
                Marking::Going => return Err(NotMarked::Going),
            }
            let version = machine.filter(|_| life == Life::Alive).map(|machine| machine.version);
            // Read after the Machine: an entry that was taken back meanwhile must not be marked.
            let seen = self.api().read_group(&self.id).await?;
            self.index().set_written(&self.id, seen.version.clone());
            let log = seen.version.log().map_err(|error| CallError::Refused(error.to_string()))?;
            if log.get(&entry.uid) != Some(entry) {
                let why = format!("the log has another entry of Machine {} by now, or none", entry.name);
                return Err(CallError::Conflict(why).into());
            }
            version
        };
        if is_marked_by_another {
            return Ok(if version.is_some() { Life::Alive } else { Life::Deleting });
        }
        let mark = entry.ticket.mark();
        match self.write(Write::Mark, self.api().set_mark(key, &entry.uid, version.as_ref(), &mark)).await {
            Err(CallError::Missing(_)) if entry.soft => Err(NotMarked::Going),
            Err(CallError::Missing(_)) => Ok(Life::Gone),
            // It has changed since: it is read again with the next attempt.
            marked => Ok(life_of(&marked?)),
        }
    }

    /// Takes a mark of ours off a Machine of this version. A failure is only logged: the finisher finds the mark again.
    pub(super) async fn unmark(&self, name: &ArcStr, mark: &ArcStr, version: &ResourceVersion) -> bool {
        let key = self.machine_key(name);
        let result = self.write(Write::Unmark, self.api().take_mark(&key, mark, version)).await;
        // It is gone, or has changed, so that it is looked at again.
        let is_off = matches!(result, Ok(()) | Err(CallError::Missing(_) | CallError::Rejected(_)));
        if let Err(error) = result
            && !is_off
        {
            tracing::warn!(group = %self.id, machine = %name, "can't take the delete-machine annotation back; this is tried again: {}", self.failed(&error));
        }
        is_off
    }
}

/// The Machine that an entry is about.
pub(super) fn named(entry: &Entry) -> Named {
    Named { name: entry.name.clone(), uid: entry.uid.clone(), never_joined: entry.gives_up() }
}

fn life_of_whole(machine: Option<&WholeMachine>) -> Life {
    match machine {
        None => Life::Gone,
        Some(machine) if machine.deleting => Life::Deleting,
        Some(_) => Life::Alive,
    }
}

fn life_of(machine: &MachineSeen) -> Life {
    if machine.deleting { Life::Deleting } else { Life::Alive }
}
