//! An interner for texts that repeat from object to object: namespaces, referenced names, label values. Must never
//! keep unused texts alive for long: it sweeps itself as it grows.

use std::collections::HashSet;

use arcstr::ArcStr;
use parking_lot::Mutex;

/// The estimated memory in bytes below which a sweep isn't worth its time.
const SWEEP_FLOOR: usize = 128 << 10;
/// The maximum estimated memory in bytes of unused texts beside many used ones.
const MOST_UNUSED: usize = 8 << 20;
/// The estimated memory of a text besides its bytes: its header and its slot in the table.
const TEXT_WEIGHT: usize = 64;

/// A set of shared texts. Several factories may use one, so that objects of different clusters share the texts.
///
/// ```
/// use shared_informer::Interner;
///
/// let texts = Interner::default();
/// assert_eq!(texts.intern("worker-1").as_ptr(), texts.intern("worker-1").as_ptr());
/// ```
#[derive(Debug, Default)]
pub struct Interner {
    texts: Mutex<Texts>,
}

#[derive(Debug, Default)]
struct Texts {
    known: HashSet<ArcStr>,
    /// The estimated memory of all texts, so that both many short and few long ones cause a sweep.
    weight: usize,
    /// The estimated memory after the last sweep.
    kept: usize,
}

impl Texts {
    fn sweep(&mut self) {
        self.known.retain(|known| ArcStr::strong_count(known).is_none_or(|count| count > 1));
        self.weight = self.known.iter().map(|known| weight(known)).sum();
        self.kept = self.weight;
    }
}

fn weight(text: &str) -> usize {
    text.len() + TEXT_WEIGHT
}

impl Interner {
    /// Returns the shared copy of `text`.
    pub fn intern(&self, text: &str) -> ArcStr {
        if text.is_empty() {
            return ArcStr::new();
        }
        let mut texts = self.texts.lock();
        if let Some(known) = texts.known.get(text) {
            return known.clone();
        }
        if texts.weight >= SWEEP_FLOOR.max(texts.kept + texts.kept.min(MOST_UNUSED)) {
            texts.sweep();
        }
        texts.weight += weight(text);
        let text = ArcStr::from(text);
        texts.known.insert(text.clone());
        text
    }

    /// Drops the unused texts, as after many objects were dropped, if enough texts have come since the last sweep: it
    /// looks at those of all who share them, so that whoever provokes it must bring something each time.
    #[cfg(feature = "client")]
    pub(super) fn sweep(&self) {
        let mut texts = self.texts.lock();
        if texts.weight >= texts.kept + SWEEP_FLOOR {
            texts.sweep();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_texts_are_one_allocation() {
        let interner = Interner::default();
        assert!(ArcStr::ptr_eq(&interner.intern("a"), &interner.intern("a")));
    }

    #[test]
    fn texts_that_nobody_holds_are_swept() {
        let interner = Interner::default();
        let held = interner.intern("held");
        for index in 0..10_000 {
            interner.intern(&index.to_string());
        }
        let left = interner.texts.lock().known.len();
        assert!(left <= SWEEP_FLOOR / TEXT_WEIGHT, "{left} texts are left");
        assert!(ArcStr::ptr_eq(&held, &interner.intern("held")));
    }

    /// Returns a text of this weight.
    fn long(index: usize) -> String {
        format!("{index:0width$}", width = LONG - TEXT_WEIGHT)
    }

    const LONG: usize = 16 << 10;

    #[test]
    fn as_many_bytes_are_unused_as_are_used_and_never_more_than_a_bound() {
        for used in [64, 1_024] {
            let interner = Interner::default();
            let weight = || interner.texts.lock().weight;
            let held: Vec<_> = (0..used).map(|index| interner.intern(&long(index))).collect();
            assert_eq!(weight(), used * LONG);
            let most = weight() + weight().min(MOST_UNUSED);
            let weights = (used..used * 4).map(|index| {
                interner.intern(&long(index));
                weight()
            });
            assert_eq!(weights.max(), Some(most));
            assert_eq!(held.len(), used);
        }
    }
}
