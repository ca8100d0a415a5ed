//! A queue of the objects to be reconciled, now and later. An object is in it once, however often it has changed.

use std::{
    collections::{BTreeSet, HashMap, HashSet, VecDeque},
    hash::Hash,
};

use jiff::Timestamp;

/// A queue whose due keys come in the order in which they became due.
#[derive(Debug)]
pub(super) struct Queue<K> {
    due: VecDeque<K>,
    is_due: HashSet<K>,
    later: BTreeSet<(Timestamp, K)>,
    times: HashMap<K, Timestamp>,
}

impl<K> Default for Queue<K> {
    fn default() -> Self {
        Self { due: VecDeque::new(), is_due: HashSet::new(), later: BTreeSet::new(), times: HashMap::new() }
    }
}

impl<K: Clone + Eq + Hash + Ord> Queue<K> {
    /// Adds a key to be reconciled now.
    pub(super) fn add(&mut self, key: K) {
        if self.is_due.insert(key.clone()) {
            self.due.push_back(key);
        }
    }

    /// Adds a key to be reconciled at a time, or earlier if it is queued for an earlier one.
    pub(super) fn add_at(&mut self, time: Timestamp, key: K) {
        if let Some(known) = self.times.get(&key).copied() {
            if known <= time {
                return;
            }
            self.later.remove(&(known, key.clone()));
        }
        self.times.insert(key.clone(), time);
        self.later.insert((time, key));
    }

    /// Makes everything due up to `now`.
    pub(super) fn advance(&mut self, now: Timestamp) {
        while let Some((time, _)) = self.later.first()
            && *time <= now
            && let Some((_, key)) = self.later.pop_first()
        {
            self.times.remove(&key);
            self.add(key);
        }
    }

    /// Takes the next key that is due.
    pub(super) fn pop(&mut self) -> Option<K> {
        let key = self.due.pop_front()?;
        self.is_due.remove(&key);
        Some(key)
    }

    pub(super) fn is_idle(&self) -> bool {
        self.due.is_empty()
    }

    /// Returns the time at which the next key becomes due.
    pub(super) fn next(&self) -> Option<Timestamp> {
        self.later.first().map(|(time, _)| *time)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::clock::after;

    #[test]
    fn an_object_is_looked_at_once_however_often_it_was_added() {
        let mut queue = Queue::default();
        queue.add("a");
        queue.add("b");
        queue.add("a");
        assert_eq!([queue.pop(), queue.pop(), queue.pop()], [Some("a"), Some("b"), None]);
        assert!(queue.is_idle());
    }

    #[test]
    fn the_earliest_time_counts() {
        let start = Timestamp::UNIX_EPOCH;
        let at = |seconds| after(start, Duration::from_secs(seconds));
        let mut queue = Queue::default();
        queue.add_at(at(5), "a");
        queue.add_at(at(9), "a");
        queue.add_at(at(3), "a");
        assert_eq!(queue.next(), Some(at(3)));
        queue.advance(at(2));
        assert_eq!(queue.pop(), None);
        queue.advance(at(10));
        assert_eq!((queue.pop(), queue.pop(), queue.next()), (Some("a"), None, None));
    }
}
