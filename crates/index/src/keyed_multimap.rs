//! A multimap whose values hold their own key: as [`Multimap`](super::multimap::Multimap), for relations that every
//! Machine has, where a key beside each value would cost more than the value.

use std::{
    collections::BTreeMap,
    hash::{BuildHasher, Hash, RandomState},
};

use hashbrown::{HashTable, hash_table::Entry};

/// A value that contains its key.
pub(super) trait Keyed {
    /// The key of the value.
    type Key: Eq + Hash + ?Sized;
    /// The order among the values of one key, which also identifies them.
    type Order: Ord + std::fmt::Debug;

    /// Returns the key.
    fn key(&self) -> &Self::Key;
    /// Returns the position among the values of the key.
    fn order(&self) -> Self::Order;
}

/// Usually there is one value, stored inline. The map is the exception, and is never empty.
#[derive(Debug)]
enum Values<V: Keyed> {
    One(V),
    #[allow(clippy::box_collection, reason = "inline, the exception would make the rule twice as large")]
    Many(Box<BTreeMap<V::Order, V>>),
}

impl<V: Keyed> Values<V> {
    fn first(&self) -> Option<&V> {
        match self {
            Self::One(value) => Some(value),
            Self::Many(values) => values.values().next(),
        }
    }

    fn is_under(&self, key: &V::Key) -> bool {
        self.first().is_some_and(|value| value.key() == key)
    }
}

/// A multimap whose values per key are a set.
#[derive(Debug)]
pub(super) struct KeyedMultimap<V: Keyed> {
    table: HashTable<Values<V>>,
    hashing: RandomState,
}

impl<V: Keyed> Default for KeyedMultimap<V> {
    fn default() -> Self {
        Self { table: HashTable::new(), hashing: RandomState::new() }
    }
}

impl<V: Keyed> KeyedMultimap<V> {
    /// Inserts a value, and replaces the one with the same key and order.
    pub(super) fn insert(&mut self, value: V) {
        let hash = self.hashing.hash_one(value.key());
        let hash_of = |values: &Values<V>| values.first().map_or(0, |first| self.hashing.hash_one(first.key()));
        match self.table.entry(hash, |values| values.is_under(value.key()), hash_of) {
            Entry::Vacant(place) => {
                place.insert(Values::One(value));
            }
            Entry::Occupied(mut place) => match place.get_mut() {
                Values::One(known) if known.order() == value.order() => *known = value,
                Values::Many(values) => {
                    values.insert(value.order(), value);
                }
                values @ Values::One(_) => {
                    let Values::One(known) = std::mem::replace(values, Values::Many(Box::default())) else { return };
                    *values = Values::Many(Box::new([known, value].map(|value| (value.order(), value)).into()));
                }
            },
        }
    }

    /// Removes the value with this one's key and order.
    pub(super) fn remove(&mut self, value: &V) {
        let hash = self.hashing.hash_one(value.key());
        let Ok(mut place) = self.table.find_entry(hash, |values| values.is_under(value.key())) else { return };
        let empty = match place.get_mut() {
            Values::One(known) => known.order() == value.order(),
            Values::Many(values) => {
                values.remove(&value.order());
                values.is_empty()
            }
        };
        if empty {
            place.remove();
        }
    }

    /// Iterates over the values of a key, in order.
    pub(super) fn get(&self, key: &V::Key) -> impl Iterator<Item = &V> {
        let (one, many) = match self.find(key) {
            None => (None, None),
            Some(Values::One(value)) => (Some(value), None),
            Some(Values::Many(values)) => (None, Some(values.values())),
        };
        one.into_iter().chain(many.into_iter().flatten())
    }

    /// Iterates over the values of a key from `from` on, in order, in time proportional to the values taken. The only
    /// value of a key is returned even if it is before `from`.
    pub(super) fn get_from(&self, key: &V::Key, from: impl FnOnce() -> V::Order) -> impl Iterator<Item = &V> {
        let (one, many) = match self.find(key) {
            None => (None, None),
            Some(Values::One(value)) => (Some(value), None),
            Some(Values::Many(values)) => (None, Some(values.range(from()..).map(|(_, value)| value))),
        };
        one.into_iter().chain(many.into_iter().flatten())
    }

    fn find(&self, key: &V::Key) -> Option<&Values<V>> {
        self.table.find(self.hashing.hash_one(key), |values| values.is_under(key))
    }

    /// Returns true if there are no values.
    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.table.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Keyed for (&'static str, u8, char) {
        type Key = str;
        type Order = u8;

        fn key(&self) -> &str {
            self.0
        }

        fn order(&self) -> u8 {
            self.1
        }
    }

    fn shown(file: &KeyedMultimap<(&'static str, u8, char)>, key: &str) -> String {
        file.get(key).map(|value| value.2).collect()
    }

    #[test]
    fn values_of_a_key_are_a_set_in_order_and_the_newer_one_counts() {
        let mut file = KeyedMultimap::default();
        for value in [("key", 3, 'x'), ("key", 1, 'a'), ("other", 1, 'o'), ("key", 3, 'c'), ("key", 2, 'b')] {
            file.insert(value);
        }
        assert_eq!(shown(&file, "key"), "abc");
        assert_eq!(shown(&file, "other"), "o");
        assert_eq!(shown(&file, "none"), "");
        file.insert(("other", 1, 'p'));
        assert_eq!(shown(&file, "other"), "p");
    }

    #[test]
    fn values_are_taken_from_any_place_on() {
        let mut file = KeyedMultimap::default();
        file.insert(("one", 3, 'x'));
        assert_eq!(file.get_from("one", || 4).count(), 1);
        for order in [1, 3, 5] {
            file.insert(("many", order, 'x'));
        }
        assert_eq!(file.get_from("many", || 2).map(|value| value.1).collect::<Vec<_>>(), [3, 5]);
        assert_eq!(file.get_from("none", || 2).count(), 0);
    }

    #[test]
    fn nothing_is_left_when_the_last_value_goes() {
        let mut file = KeyedMultimap::default();
        for order in 0..3 {
            file.insert(("key", order, 'x'));
        }
        for order in [1, 1, 0, 2, 2] {
            assert!(!file.is_empty());
            file.remove(&("key", order, 'x'));
            if order == 2 {
                break;
            }
        }
        assert!(file.is_empty());
    }
}
