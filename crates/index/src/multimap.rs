//! A multimap from a key to the values that share it, in order.

use std::{
    borrow::Borrow,
    cmp::Ordering,
    collections::{BTreeSet, HashMap, hash_map::Entry},
    hash::Hash,
};

/// A multimap whose values per key are a set. A key rarely has several, so the least one is kept apart: a Machine's
/// place in a relation then takes no list of its own.
#[derive(Debug)]
pub(super) struct Multimap<K, V> {
    /// The least value of each key.
    least: HashMap<K, V>,
    /// All other values.
    others: BTreeSet<(K, V)>,
}

impl<K, V> Default for Multimap<K, V> {
    fn default() -> Self {
        Self { least: HashMap::new(), others: BTreeSet::new() }
    }
}

impl<K: Clone + Eq + Hash + Ord, V: Clone + Ord> Multimap<K, V> {
    /// Inserts a value. It replaces an equal one, which may hold an older object or another copy of a text.
    pub(super) fn insert(&mut self, key: K, value: V) {
        match self.least.entry(key) {
            Entry::Vacant(place) => {
                place.insert(value);
            }
            Entry::Occupied(mut place) => {
                let other = match value.cmp(place.get()) {
                    Ordering::Less => place.insert(value),
                    Ordering::Greater => value,
                    Ordering::Equal => {
                        place.insert(value);
                        return;
                    }
                };
                self.others.replace((place.key().clone(), other));
            }
        }
    }

    pub(super) fn remove<Q>(&mut self, key: &Q, value: &V)
    where
        K: Borrow<Q>,
        Q: Eq + Hash + ?Sized,
    {
        let Some((known, least)) = self.least.get_key_value(key) else { return };
        let (removed, is_least) = ((known.clone(), value.clone()), least == value);
        if !is_least {
            self.others.remove(&removed);
            return;
        }
        let next = self.others.range::<(K, V), _>(&removed..).next().filter(|(other, _)| *other == removed.0).cloned();
        match next {
            Some(next) => {
                self.others.remove(&next);
                self.least.insert(next.0, next.1);
            }
            None => {
                self.least.remove(key);
            }
        }
    }

    /// Iterates over the values of a key, in order.
    pub(super) fn get<Q>(&self, key: &Q) -> impl Iterator<Item = &V>
    where
        K: Borrow<Q>,
        Q: Eq + Hash + ?Sized,
    {
        let least = self.least.get_key_value(key);
        let others = least.filter(|_| !self.others.is_empty()).map(|(key, least)| {
            let others = self.others.range((key.clone(), least.clone())..);
            others.take_while(move |(other, _)| other == key).map(|(_, value)| value)
        });
        least.map(|(_, value)| value).into_iter().chain(others.into_iter().flatten())
    }

    /// Returns the values of a key, copied, for callers that change the index meanwhile.
    pub(super) fn to_vec<Q>(&self, key: &Q) -> Vec<V>
    where
        K: Borrow<Q>,
        Q: Eq + Hash + ?Sized,
    {
        self.get(key).cloned().collect()
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.least.is_empty() && self.others.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_a_key_are_a_set_in_order() {
        let mut map = Multimap::default();
        for value in [3, 1, 3, 1, 2] {
            map.insert("key", value);
            map.insert("next", value + 10);
        }
        assert_eq!(map.to_vec("key"), [1, 2, 3]);
        assert_eq!(map.to_vec("next"), [11, 12, 13]);
        assert_eq!(map.to_vec("other"), [0; 0]);
    }

    #[test]
    fn nothing_is_left_when_the_last_value_goes() {
        let mut map = Multimap::default();
        for value in [1, 2, 3] {
            map.insert("key", value);
        }
        for (removed, left) in [(1, vec![2, 3]), (1, vec![2, 3]), (3, vec![2]), (2, vec![])] {
            map.remove("key", &removed);
            assert_eq!(map.to_vec("key"), left);
        }
        assert!(map.is_empty());
    }
}
