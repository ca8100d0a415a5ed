//! A queue of the objects to be reconciled, now and later. An object is in it once, however often it has changed.

use std::{
    collections::{BTreeSet, HashMap, HashSet, VecDeque},
    hash::Hash,
};

use jiff::Timestamp;

/// The kinds that have a controller.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub(super) enum Kind {
    Cluster,
    MachineDeployment,
    MachineSet,
    Machine,
    MachinePool,
}

impl Kind {
    pub(super) const ALL: [Self; 5] =
        [Self::Cluster, Self::MachineDeployment, Self::MachineSet, Self::Machine, Self::MachinePool];

    pub(super) fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == text)
    }

    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Cluster => "Cluster",
            Self::MachineDeployment => "MachineDeployment",
            Self::MachineSet => "MachineSet",
            Self::Machine => "Machine",
            Self::MachinePool => "MachinePool",
        }
    }

    pub(super) fn plural(self) -> &'static str {
        match self {
            Self::Cluster => "clusters",
            Self::MachineDeployment => "machinedeployments",
            Self::MachineSet => "machinesets",
            Self::Machine => "machines",
            Self::MachinePool => "machinepools",
        }
    }
}

/// An object that has a controller.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub(super) struct Key {
    pub(super) kind: Kind,
    pub(super) namespace: String,
    pub(super) name: String,
}

/// A queue whose due keys come in the order in which they became due.
#[derive(Debug)]
pub(crate) struct Queue<K> {
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
    pub(crate) fn add(&mut self, key: K) {
        if self.is_due.insert(key.clone()) {
            self.due.push_back(key);
        }
    }

    /// Adds a key to be reconciled at a time, or earlier if it is queued for an earlier one.
    pub(crate) fn add_at(&mut self, time: Timestamp, key: K) {
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
    pub(crate) fn advance(&mut self, now: Timestamp) {
        while let Some((time, _)) = self.later.first()
            && *time <= now
            && let Some((_, key)) = self.later.pop_first()
        {
            self.times.remove(&key);
            self.add(key);
        }
    }

    /// Takes the next key that is due.
    pub(crate) fn pop(&mut self) -> Option<K> {
        let key = self.due.pop_front()?;
        self.is_due.remove(&key);
        Some(key)
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.due.is_empty()
    }

    /// Returns the time at which the next key becomes due.
    pub(crate) fn next(&self) -> Option<Timestamp> {
        self.later.first().map(|(time, _)| *time)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::clock::after;

    fn key(name: &str) -> Key {
        Key { kind: Kind::Machine, namespace: String::new(), name: name.to_owned() }
    }

    #[test]
    fn an_object_is_looked_at_once_however_often_it_was_added() {
        let mut queue = Queue::default();
        queue.add(key("a"));
        queue.add(key("b"));
        queue.add(key("a"));
        assert_eq!([queue.pop(), queue.pop(), queue.pop()], [Some(key("a")), Some(key("b")), None]);
        assert!(queue.is_idle());
    }

    #[test]
    fn the_earliest_time_counts() {
        let start = Timestamp::UNIX_EPOCH;
        let at = |seconds| after(start, Duration::from_secs(seconds));
        let mut queue = Queue::default();
        queue.add_at(at(5), key("a"));
        queue.add_at(at(9), key("a"));
        queue.add_at(at(3), key("a"));
        assert_eq!(queue.next(), Some(at(3)));
        queue.advance(at(2));
        assert_eq!(queue.pop(), None);
        queue.advance(at(10));
        assert_eq!((queue.pop(), queue.pop(), queue.next()), (Some(key("a")), None, None));
    }
}
