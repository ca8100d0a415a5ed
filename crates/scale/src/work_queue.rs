//! The queue of groups that the finisher reconciles, first in, first out, with a limit on concurrent reconciles. A busy
//! group waits without a slot. It must neither wait nor make a call: the time is an input.

use std::{
    collections::{BTreeMap, HashMap},
    time::Duration,
};

use tokio::time::Instant;

use nodegroup::GroupId;

/// The maximum number of groups that are reconciled concurrently.
const GROUPS_AT_ONCE: usize = 8;
/// The pause after a reconcile that failed; it doubles up to the longest.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// The result of a reconcile of a group.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum ReconcileResult {
    /// The next change leads to another reconcile.
    Done,
    /// The group is due again at this time, even without a change.
    Waits(Instant),
    /// A call failed.
    Failed,
}

impl ReconcileResult {
    /// Combines the results of two reconciles of one group.
    pub(super) fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::Failed, _) | (_, Self::Failed) => Self::Failed,
            (Self::Waits(one), Self::Waits(other)) => Self::Waits(one.min(other)),
            (Self::Waits(until), Self::Done) | (Self::Done, Self::Waits(until)) => Self::Waits(until),
            (Self::Done, Self::Done) => Self::Done,
        }
    }
}

/// The reconciles of groups that are under way, due, or scheduled.
#[derive(Debug)]
pub(super) struct WorkQueue {
    /// Groups that are due, by their places in the queue; none has two places.
    queue: BTreeMap<u64, GroupId>,
    places: HashMap<GroupId, u64>,
    next_place: u64,
    /// The number of reconciles that may still begin.
    free: usize,
    /// Groups to reconcile again without a change, with the time.
    later: BTreeMap<GroupId, Instant>,
    /// The next pause of each group whose last reconcile failed.
    pauses: HashMap<GroupId, Duration>,
    has_stopped: bool,
}

impl Default for WorkQueue {
    fn default() -> Self {
        Self::with_slots(GROUPS_AT_ONCE)
    }
}

impl WorkQueue {
    fn with_slots(free: usize) -> Self {
        Self {
            queue: BTreeMap::new(),
            places: HashMap::new(),
            next_place: 0,
            free,
            later: BTreeMap::new(),
            pauses: HashMap::new(),
            has_stopped: false,
        }
    }

    /// Queues a group that has changed. After a failed reconcile a change doesn't shorten the pause: a group of many
    /// Machines changes all the time, and would repeat the failed call each time.
    pub(super) fn change(&mut self, id: GroupId) {
        if !(self.pauses.contains_key(&id) && self.later.contains_key(&id)) {
            self.enqueue(id);
        }
    }

    /// Queues the groups whose next reconcile is due.
    pub(super) fn take_later(&mut self, now: Instant) {
        let due: Vec<_> = self.later.iter().filter(|(_, at)| **at <= now).map(|(id, _)| id.clone()).collect();
        for id in due {
            self.later.remove(&id);
            self.enqueue(id);
        }
    }

    /// Returns the time at which the next reconcile is due.
    pub(super) fn next_time(&self) -> Option<Instant> {
        self.later.values().min().copied()
    }

    /// Begins the first reconcile in the queue whose group is idle, if a slot is free.
    pub(super) fn begin_first(&mut self, is_idle: impl Fn(&GroupId) -> bool) -> Option<GroupId> {
        if self.free == 0 {
            return None;
        }
        let id = self.queue.values().find(|id| is_idle(id))?.clone();
        self.begin(&id).then_some(id)
    }

    /// Begins the reconcile of a group, if it is due and a slot is free.
    pub(super) fn begin(&mut self, id: &GroupId) -> bool {
        let begins = self.free > 0 && self.dequeue(id);
        if begins {
            self.free -= 1;
            self.later.remove(id);
        }
        begins
    }

    /// Ends a reconcile with this result.
    pub(super) fn end(&mut self, id: &GroupId, result: ReconcileResult, now: Instant) {
        self.free += 1;
        match result {
            ReconcileResult::Done => {
                self.pauses.remove(id);
            }
            ReconcileResult::Waits(until) => {
                // An earlier failure no longer delays changes.
                self.pauses.remove(id);
                self.later.insert(id.clone(), until);
            }
            ReconcileResult::Failed => {
                let pause = self.pauses.entry(id.clone()).or_insert(FIRST_PAUSE);
                self.later.insert(id.clone(), now + *pause);
                *pause = (*pause * 2).min(LONGEST_PAUSE);
                // Changes made meanwhile, by the reconcile's own marks for example, wait for the pause as well.
                self.dequeue(id);
            }
        }
    }

    /// Lets no more reconciles begin.
    pub(super) fn stop(&mut self) {
        self.has_stopped = true;
        self.queue.clear();
        self.places.clear();
    }

    fn enqueue(&mut self, id: GroupId) {
        if !self.has_stopped && !self.places.contains_key(&id) {
            self.places.insert(id.clone(), self.next_place);
            self.queue.insert(self.next_place, id);
            self.next_place += 1;
        }
    }

    fn dequeue(&mut self, id: &GroupId) -> bool {
        let place = self.places.remove(id);
        place.is_some_and(|place| self.queue.remove(&place).is_some())
    }
}

#[cfg(test)]
impl WorkQueue {
    /// Returns a queue with this number of slots.
    pub(super) fn at_once(slots: usize) -> Self {
        Self::with_slots(slots)
    }

    /// Returns the groups that are due, in order.
    pub(super) fn waiting(&self) -> Vec<GroupId> {
        assert_eq!(self.queue.len(), self.places.len());
        self.queue.values().cloned().collect()
    }

    pub(super) fn free(&self) -> usize {
        self.free
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn group(name: &str) -> GroupId {
        GroupId::parse(&format!("MachineDeployment/team-a/{name}")).unwrap()
    }

    #[test]
    fn the_first_that_is_idle_begins_and_who_is_busy_keeps_its_place() {
        let mut work_queue = WorkQueue::at_once(2);
        for name in ["c", "a", "b", "c"] {
            work_queue.change(group(name));
        }
        assert_eq!(work_queue.begin_first(|id| *id != group("c")), Some(group("a")));
        assert_eq!(work_queue.begin_first(|_| true), Some(group("c")));
        assert_eq!(work_queue.begin_first(|_| true), None, "no slot is free");
        assert!(!work_queue.begin(&group("b")));
        work_queue.end(&group("a"), ReconcileResult::Done, Instant::now());
        assert!(work_queue.begin(&group("b")));
        assert_eq!(work_queue.waiting(), []);
    }

    #[test]
    fn pauses_after_failures_grow_up_to_a_minute_and_changes_dont_shorten_them() {
        let mut now = Instant::now();
        let mut work_queue = WorkQueue::default();
        work_queue.change(group("a"));
        let mut seconds = Vec::new();
        for _ in 0..8 {
            assert!(work_queue.begin(&group("a")));
            work_queue.change(group("a"));
            work_queue.end(&group("a"), ReconcileResult::Failed, now);
            work_queue.change(group("a"));
            assert_eq!(work_queue.waiting(), []);
            let next = work_queue.next_time().unwrap();
            seconds.push((next - now).as_secs());
            now = next;
            work_queue.take_later(now);
        }
        assert_eq!(seconds, [1, 2, 4, 8, 16, 32, 60, 60]);
        work_queue.begin(&group("a"));
        work_queue.end(&group("a"), ReconcileResult::Done, now);
        work_queue.change(group("a"));
        assert_eq!(work_queue.waiting(), [group("a")], "a success ends the pauses");
    }

    #[test]
    fn a_group_that_waits_is_looked_at_again_and_sooner_when_it_changes() {
        let now = Instant::now();
        let mut work_queue = WorkQueue::default();
        work_queue.change(group("a"));
        work_queue.begin(&group("a"));
        work_queue.end(&group("a"), ReconcileResult::Waits(now + Duration::from_secs(2)), now);
        work_queue.take_later(now + Duration::from_secs(1));
        assert_eq!(work_queue.waiting(), []);
        work_queue.change(group("a"));
        assert_eq!(work_queue.waiting(), [group("a")]);
        work_queue.take_later(now + Duration::from_secs(2));
        assert_eq!(work_queue.waiting(), [group("a")], "it stands there once");
    }
}
