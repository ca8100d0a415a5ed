//! The finisher's memory: the times since when deletions are left to other copies or to providers, and the entries
//! whose turn is next. It must make no call.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use capi::{Machine, Uid};
use nodegroup::{DeletionLog, GroupId, Phase, SharedLog, Ticket, deletion_log::Entry, writing::GroupVersion};
use parking_lot::Mutex;
use tokio::time::Instant;

use super::rule::{Finish, Followed, LEFT_TO_PROVIDER, LeftSince, RULE};

/// The time for which a wanted entry is left to the copy that may be lowering it. Only the number of conflicts depends
/// on it.
const LEFT_ALONE: Duration = Duration::from_secs(2);

/// The maximum number of Machines that one reconcile of a group reads, marks or deletes. Whoever may annotate a group
/// can name as many as a log holds, and each costs a call.
const MOST_CALLS: usize = 256;
/// The pause before the next reconcile of a group that the last one hasn't finished. The writes of the last one mostly
/// cause the next one earlier.
const NEXT_RECONCILE: Duration = Duration::from_secs(1);

/// The times since when deletions of each group are left to others, as seen by this process. They affect only the time
/// of a result, never the result.
#[derive(Default)]
pub(super) struct Memory(Mutex<HashMap<GroupId, Remembered>>);

/// The memory of one group.
#[derive(Default)]
struct Remembered {
    /// The wanted tickets, with the time at which each was first seen.
    wanted: HashMap<Ticket, Instant>,
    left: LeftSince,
    /// The number of entries that partial reconciles have dealt with, so that each entry has its turn.
    turn: usize,
    /// The unreadable log, which is logged once.
    unreadable: Option<SharedLog>,
}

impl Remembered {
    /// Takes as many entries as one reconcile may deal with, in rotation. Returns true if there are more.
    fn take_turn<T>(&mut self, mut all: Vec<T>) -> (Vec<T>, bool) {
        if all.len() <= MOST_CALLS {
            return (all, false);
        }
        let begin = self.turn % all.len();
        all.rotate_left(begin);
        all.truncate(MOST_CALLS);
        self.turn = self.turn.wrapping_add(MOST_CALLS);
        (all, true)
    }
}

fn costs_no_call(step: &Finish) -> bool {
    match step {
        // One list settles all soft entries, and wanted ones have a turn of their own.
        Finish::CarryOn | Finish::Leave(..) | Finish::ForgetSoft(_) => true,
        Finish::ForgetGone(_) | Finish::Delete(_) | Finish::MarkAgain(_) | Finish::Unmark(_) => false,
    }
}

fn earliest(one: Option<Instant>, other: Instant) -> Instant {
    one.map_or(other, |one| one.min(other))
}

impl Memory {
    pub(super) fn forget(&self, id: &GroupId) {
        self.0.lock().remove(id);
    }

    /// Decides what is to be done, and remembers since when Machines are left to their provider. Returns the steps, and
    /// the time at which the next reconcile is due.
    pub(super) fn decide(
        &self,
        id: &GroupId,
        log: &DeletionLog,
        machines: &[Arc<Machine>],
        followed: &Followed,
    ) -> (Vec<Finish>, Option<Instant>) {
        let mut groups = self.0.lock();
        let mut remembered = groups.remove(id).unwrap_or_default();
        remembered.unreadable = None;
        let steps = RULE.finish(log, machines, followed, &remembered.left, Instant::now().into_std());
        let key = |entry: &Entry| (entry.uid.clone(), entry.ticket.clone());
        let mut left = LeftSince::new();
        let mut until = None;
        for step in &steps {
            match step {
                Finish::Leave(entry, since) => {
                    left.insert(key(entry), *since);
                    until = Some(earliest(until, Instant::from_std(*since) + LEFT_TO_PROVIDER));
                }
                // If the call fails, it is repeated without another wait.
                Finish::Delete(entry) => left.extend(remembered.left.remove_entry(&key(entry))),
                Finish::CarryOn
                | Finish::ForgetGone(_)
                | Finish::ForgetSoft(_)
                | Finish::MarkAgain(_)
                | Finish::Unmark(_) => {}
            }
        }
        let wanted = log.entries().iter().filter(|entry| entry.phase == Phase::Wanted);
        let wanted: HashSet<_> = wanted.map(|entry| &entry.ticket).collect();
        remembered.wanted.retain(|ticket, _| wanted.contains(ticket));
        remembered.left = left;
        let (free, calls): (Vec<_>, _) = steps.into_iter().partition(costs_no_call);
        let (calls, is_part) = remembered.take_turn(calls);
        if is_part {
            until = Some(earliest(until, Instant::now() + NEXT_RECONCILE));
        }
        if is_part || !remembered.wanted.is_empty() || !remembered.left.is_empty() {
            groups.insert(id.clone(), remembered);
        }
        (free.into_iter().chain(calls).collect(), until)
    }

    /// Returns the number of groups of which something is remembered.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.0.lock().len()
    }

    /// Returns true if the group's unreadable log differs from the one before.
    pub(super) fn is_new_unreadable(&self, id: &GroupId, version: &GroupVersion) -> bool {
        let mut groups = self.0.lock();
        let unreadable = &mut groups.entry(id.clone()).or_default().unreadable;
        let is_new = *unreadable != version.log;
        unreadable.clone_from(&version.log);
        is_new
    }

    /// Returns the entries that have been wanted for so long that no other copy can be lowering them, at most as many
    /// as one reconcile deals with, and the time at which others are due.
    pub(super) fn ripe(&self, id: &GroupId, log: &DeletionLog) -> (HashSet<Uid>, Option<Instant>) {
        let now = Instant::now();
        let mut groups = self.0.lock();
        let remembered = groups.entry(id.clone()).or_default();
        let (mut ripe, mut next) = (Vec::new(), None);
        for entry in log.entries().iter().filter(|entry| entry.phase == Phase::Wanted) {
            let at = *remembered.wanted.entry(entry.ticket.clone()).or_insert(now) + LEFT_ALONE;
            if at <= now {
                ripe.push(entry.uid.clone());
            } else {
                next = Some(earliest(next, at));
            }
        }
        let (ripe, is_part) = remembered.take_turn(ripe);
        if is_part {
            next = Some(earliest(next, now + NEXT_RECONCILE));
        }
        (ripe.into_iter().collect(), next)
    }
}
