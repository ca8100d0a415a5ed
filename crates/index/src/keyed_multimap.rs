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

/// The values of a key that has had several, by their order. Never empty.
type Values<V> = BTreeMap<<V as Keyed>::Order, V>;

/// A multimap whose values per key are a set. A key has its values in one of two tables, so that a value without others
/// takes nothing but itself.
#[derive(Debug)]
pub(super) struct KeyedMultimap<V: Keyed> {
    /// Usually a key has one value.
    single: HashTable<V>,
    several: HashTable<Values<V>>,
    hashing: RandomState,
}

impl<V: Keyed> Default for KeyedMultimap<V> {
    fn default() -> Self {
        Self { single: HashTable::new(), several: HashTable::new(), hashing: RandomState::new() }
    }
}

fn key_of<V: Keyed>(values: &Values<V>) -> Option<&V::Key> {
    values.values().next().map(V::key)
}

impl<V: Keyed> KeyedMultimap<V> {
    /// Inserts a value, and replaces the one with the same key and order.
    pub(super) fn insert(&mut self, value: V) {
        let Self { single, several, hashing } = self;
        let hash = hashing.hash_one(value.key());
        if let Some(values) = several.find_mut(hash, |values| key_of(values) == Some(value.key())) {
            values.insert(value.order(), value);
            return;
        }
        match single.entry(hash, |known| known.key() == value.key(), |known| hashing.hash_one(known.key())) {
            Entry::Vacant(place) => {
                place.insert(value);
            }
            Entry::Occupied(mut place) if place.get().order() == value.order() => *place.get_mut() = value,
            Entry::Occupied(place) => {
                let values: Values<V> = [place.remove().0, value].map(|value| (value.order(), value)).into();
                let hash_of = |values: &Values<V>| key_of(values).map_or(0, |key| hashing.hash_one(key));
                several.insert_unique(hash, values, hash_of);
            }
        }
    }

    /// Removes the value with this one's key and order.
    pub(super) fn remove(&mut self, value: &V) {
        let hash = self.hashing.hash_one(value.key());
        let is_it = |known: &V| known.key() == value.key() && known.order() == value.order();
        if let Ok(place) = self.single.find_entry(hash, is_it) {
            place.remove();
        } else if let Ok(mut place) = self.several.find_entry(hash, |values| key_of(values) == Some(value.key())) {
            place.get_mut().remove(&value.order());
            if place.get().is_empty() {
                place.remove();
            }
        }
    }

    /// Iterates over the values of a key, in order.
    pub(super) fn get(&self, key: &V::Key) -> impl Iterator<Item = &V> {
        let (single, several) = self.find(key);
        single.into_iter().chain(several.into_iter().flat_map(|values| values.values()))
    }

    /// Iterates over the values of a key from `from` on, in order, in time proportional to the values taken. The only
    /// value of a key is returned even if it is before `from`.
    pub(super) fn get_from(&self, key: &V::Key, from: impl FnOnce() -> V::Order) -> impl Iterator<Item = &V> {
        let (single, several) = self.find(key);
        let several = several.map(|values| values.range(from()..).map(|(_, value)| value));
        single.into_iter().chain(several.into_iter().flatten())
    }

    fn find(&self, key: &V::Key) -> (Option<&V>, Option<&Values<V>>) {
        let hash = self.hashing.hash_one(key);
        let single = self.single.find(hash, |value| value.key() == key);
        let several =
            if single.is_none() { self.several.find(hash, |values| key_of(values) == Some(key)) } else { None };
        (single, several)
    }

    /// Returns true if there are no values.
    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.single.is_empty() && self.several.is_empty()
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
    fn a_value_without_others_takes_nothing_else() {
        let mut file = KeyedMultimap::default();
        file.insert(("key", 1, 'a'));
        file.insert(("other", 1, 'o'));
        assert_eq!((file.single.len(), file.several.len()), (2, 0));
        file.insert(("key", 2, 'b'));
        assert_eq!((file.single.len(), file.several.len()), (1, 1));
        file.remove(&("key", 3, 'x'));
        file.remove(&("other", 3, 'x'));
        file.remove(&("none", 1, 'x'));
        assert_eq!((shown(&file, "key"), shown(&file, "other")), ("ab".to_owned(), "o".to_owned()));
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
