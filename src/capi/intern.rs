//! Shares text that repeats from object to object: namespaces, cluster names, owners, label values.
//! It must never keep alive what nothing else holds for long: it sweeps itself as it grows.

use std::{collections::HashSet, sync::Arc};

use parking_lot::Mutex;

/// Below this many texts a sweep isn't worth its time.
const SWEEP_FLOOR: usize = 1024;

/// A set of shared texts.
#[derive(Debug, Default)]
pub struct Interner {
    texts: Mutex<Texts>,
}

#[derive(Debug, Default)]
struct Texts {
    known: HashSet<Arc<str>>,
    /// How many were left after the last sweep.
    kept: usize,
}

impl Interner {
    /// The shared copy of `text`.
    pub fn intern(&self, text: &str) -> Arc<str> {
        let mut texts = self.texts.lock();
        if let Some(known) = texts.known.get(text) {
            return Arc::clone(known);
        }
        if texts.known.len() >= SWEEP_FLOOR.max(texts.kept * 2) {
            texts.known.retain(|known| Arc::strong_count(known) > 1);
            texts.kept = texts.known.len();
        }
        let text: Arc<str> = Arc::from(text);
        texts.known.insert(Arc::clone(&text));
        text
    }

    /// How many texts are held, those that only the interner holds included.
    pub fn len(&self) -> usize {
        self.texts.lock().known.len()
    }

    /// Whether nothing was interned yet.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_texts_are_one_allocation() {
        let interner = Interner::default();
        assert!(Arc::ptr_eq(&interner.intern("a"), &interner.intern("a")));
    }

    #[test]
    fn texts_that_nobody_holds_are_swept() {
        let interner = Interner::default();
        let held = interner.intern("held");
        for index in 0..10 * SWEEP_FLOOR {
            interner.intern(&index.to_string());
        }
        assert!(interner.len() <= SWEEP_FLOOR, "{} texts are left", interner.len());
        assert!(Arc::ptr_eq(&held, &interner.intern("held")));
    }
}
