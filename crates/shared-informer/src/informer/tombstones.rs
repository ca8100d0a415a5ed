//! Tombstones: recently deleted objects, remembered so that a late event doesn't bring them back. Must never grow
//! beyond its limit, nor keep a tombstone when a new list begins: a list overrules everything before it.

use std::collections::{HashMap, VecDeque};

use arcstr::ArcStr;

use crate::object::{Metadata, Uid};

/// The maximum number of deletions that an informer remembers. Each takes about a hundred bytes.
pub(super) const REMEMBERED: usize = 1024;

/// The recently deleted objects by uid, which is unique.
#[derive(Debug, Default)]
pub(super) struct Tombstones {
    by_uid: HashMap<Uid, Tombstone>,
    /// The uids in the order of their deletions.
    order: VecDeque<Uid>,
}

#[derive(Debug)]
struct Tombstone {
    namespace: ArcStr,
    until: Until,
}

/// The states of a deleted object that are out of date.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Until {
    /// States up to this version. A newer state is current, since an object that a selector dropped can match again.
    Version(u64),
    /// All states, since another object has the name.
    Forever,
}

impl Tombstones {
    /// Remembers a deletion that a watch reported. An object without a uid or a comparable version can't be
    /// recognized later, and isn't remembered.
    pub(super) fn add_deleted(&mut self, last: &Metadata) {
        if let Some(version) = last.resource_version.number() {
            self.remember(last, Until::Version(version));
        }
    }

    /// Remembers an object that another one has replaced under its name.
    pub(super) fn add_replaced(&mut self, old: &Metadata) {
        self.remember(old, Until::Forever);
    }

    /// Returns true if this state of an object is from before its deletion.
    pub(super) fn covers(&self, state: &Metadata) -> bool {
        let Some(tombstone) = self.by_uid.get(&state.uid) else { return false };
        match tombstone.until {
            Until::Forever => true,
            Until::Version(end) => state.resource_version.number().is_some_and(|version| version <= end),
        }
    }

    pub(super) fn forget(&mut self, namespace: Option<&str>) {
        let covered = |tombstone: &Tombstone| namespace.is_none_or(|namespace| tombstone.namespace == *namespace);
        self.by_uid.retain(|_, tombstone| !covered(tombstone));
        self.order.retain(|uid| self.by_uid.contains_key(uid));
    }

    fn remember(&mut self, object: &Metadata, until: Until) {
        if object.uid.is_empty() {
            return;
        }
        let tombstone = Tombstone { namespace: object.key.namespace.clone(), until };
        if self.by_uid.insert(object.uid.clone(), tombstone).is_some() {
            return;
        }
        self.order.push_back(object.uid.clone());
        if self.order.len() > REMEMBERED
            && let Some(oldest) = self.order.pop_front()
        {
            self.by_uid.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ObjectKey;

    fn state(namespace: &str, uid: &str, version: &str) -> Metadata {
        Metadata { key: ObjectKey::new(namespace, "a"), uid: uid.into(), resource_version: version.into() }
    }

    #[rstest::rstest]
    #[case::older("u", "9", true)]
    #[case::the_same("u", "10", true)]
    #[case::newer("u", "11", false)]
    #[case::another_object("v", "9", false)]
    #[case::not_a_number("u", "x", false)]
    fn states_up_to_the_end_are_out_of_date(#[case] uid: &str, #[case] version: &str, #[case] expected: bool) {
        let mut tombstones = Tombstones::default();
        tombstones.add_deleted(&state("one", "u", "10"));
        assert_eq!(tombstones.covers(&state("one", uid, version)), expected);
    }

    #[test]
    fn a_namespace_is_forgotten_alone() {
        let mut tombstones = Tombstones::default();
        tombstones.add_deleted(&state("one", "u", "10"));
        tombstones.add_deleted(&state("two", "v", "10"));
        tombstones.forget(Some("one"));
        assert!(!tombstones.covers(&state("one", "u", "10")) && tombstones.covers(&state("two", "v", "10")));
        tombstones.forget(None);
        assert!(tombstones.by_uid.is_empty() && tombstones.order.is_empty());
    }

    #[test]
    fn the_oldest_give_way() {
        let mut tombstones = Tombstones::default();
        for number in 0..=REMEMBERED {
            tombstones.add_deleted(&state("one", &number.to_string(), "10"));
            tombstones.add_deleted(&state("one", &number.to_string(), "11"));
        }
        assert_eq!((tombstones.by_uid.len(), tombstones.order.len()), (REMEMBERED, REMEMBERED));
        assert!(!tombstones.covers(&state("one", "0", "10")) && tombstones.covers(&state("one", "1", "11")));
    }
}
