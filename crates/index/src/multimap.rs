//! A multimap from a key to the few values that share it, in order. It must never keep a key without values.

use std::{
    borrow::Borrow,
    collections::{BTreeSet, HashMap},
    hash::Hash,
};

/// Usually there is one value, stored inline. The set is the exception.
#[derive(Debug)]
enum Values<V> {
    One(V),
    Many(BTreeSet<V>),
}

/// A multimap whose values per key are a set.
#[derive(Debug)]
pub(super) struct Multimap<K, V> {
    entries: HashMap<K, Values<V>>,
}

impl<K, V> Default for Multimap<K, V> {
    fn default() -> Self {
        Self { entries: HashMap::new() }
    }
}

impl<K: Eq + Hash, V: Clone + Ord> Multimap<K, V> {
    pub(super) fn insert(&mut self, key: K, value: V) {
        match self.entries.get_mut(&key) {
            None => {
                self.entries.insert(key, Values::One(value));
            }
            // Equal values may hold different copies of a text: the newer copy is shared with the object that brought
            // it.
            Some(Values::One(known)) if *known == value => *known = value,
            Some(values @ Values::One(_)) => {
                let Values::One(known) = std::mem::replace(values, Values::Many(BTreeSet::new())) else { return };
                *values = Values::Many(BTreeSet::from([known, value]));
            }
            Some(Values::Many(known)) => {
                known.replace(value);
            }
        }
    }

    pub(super) fn remove<Q>(&mut self, key: &Q, value: &V)
    where
        K: Borrow<Q>,
        Q: Eq + Hash + ?Sized,
    {
        let empty = match self.entries.get_mut(key) {
            None => false,
            Some(Values::One(known)) => known == value,
            Some(Values::Many(known)) => {
                known.remove(value);
                known.is_empty()
            }
        };
        if empty {
            self.entries.remove(key);
        }
    }

    /// Iterates over the values of a key, in order.
    pub(super) fn get<Q>(&self, key: &Q) -> impl Iterator<Item = &V>
    where
        K: Borrow<Q>,
        Q: Eq + Hash + ?Sized,
    {
        let (one, many) = match self.entries.get(key) {
            None => (None, None),
            Some(Values::One(value)) => (Some(value), None),
            Some(Values::Many(values)) => (None, Some(values)),
        };
        one.into_iter().chain(many.into_iter().flatten())
    }

    /// Returns the values of a key, copied, for callers that change the index meanwhile.
    pub(super) fn to_vec<Q>(&self, key: &Q) -> Vec<V>
    where
        K: Borrow<Q>,
        Q: Eq + Hash + ?Sized,
    {
        self.get(key).cloned().collect()
    }

    /// Iterates over the keys.
    pub(super) fn keys(&self) -> impl Iterator<Item = &K> {
        self.entries.keys()
    }

    /// Returns true if there are no values.
    #[cfg(any(test, feature = "test-support"))]
    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_a_key_are_a_set_in_order() {
        let mut map = Multimap::default();
        for value in [3, 1, 3, 2] {
            map.insert("key", value);
        }
        assert_eq!(map.to_vec("key"), [1, 2, 3]);
        assert_eq!(map.to_vec("other"), [0; 0]);
    }

    #[test]
    fn nothing_is_left_when_the_last_value_goes() {
        let mut map = Multimap::default();
        map.insert("key", 1);
        map.insert("key", 2);
        map.remove("key", &1);
        map.remove("key", &1);
        assert_eq!(map.to_vec("key"), [2]);
        map.remove("key", &2);
        assert!(map.is_empty());
    }
}
