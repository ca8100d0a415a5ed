//! Shares text that repeats from object to object: namespaces, names that others refer to, label values. It must never
//! keep alive what nothing else holds for long: it sweeps itself as it grows.

use arcstr::ArcStr;
use hashbrown::HashSet;
use parking_lot::Mutex;

/// Below this weight a sweep isn't worth its time.
const SWEEP_FLOOR: usize = 128 << 10;
/// The weight of a text besides its bytes: its header and its place in the table.
const TEXT_WEIGHT: usize = 64;

/// A set of shared texts. One may serve several factories, so that objects of different clusters share what they name.
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
    known: HashSet<ArcStr, std::hash::RandomState>,
    /// The weight of all that are known: many short ones are worth a sweep, and few long ones as well.
    weight: usize,
    /// The weight of those that were left after the last sweep.
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
    /// The shared copy of `text`.
    pub fn intern(&self, text: &str) -> ArcStr {
        if text.is_empty() {
            return ArcStr::new();
        }
        let mut texts = self.texts.lock();
        if let Some(known) = texts.known.get(text) {
            return known.clone();
        }
        if texts.weight >= SWEEP_FLOOR.max(texts.kept * 2) {
            texts.sweep();
        }
        texts.weight += weight(text);
        let text = ArcStr::from(text);
        texts.known.insert(text.clone());
        text
    }

    /// Returns the number of texts held, those that only the interner holds included.
    pub fn len(&self) -> usize {
        self.texts.lock().known.len()
    }

    /// Returns true if no text is held.
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
        assert!(ArcStr::ptr_eq(&interner.intern("a"), &interner.intern("a")));
    }

    #[test]
    fn texts_that_nobody_holds_are_swept() {
        let interner = Interner::default();
        let held = interner.intern("held");
        for index in 0..10_000 {
            interner.intern(&index.to_string());
        }
        assert!(interner.len() <= SWEEP_FLOOR / TEXT_WEIGHT, "{} texts are left", interner.len());
        assert!(ArcStr::ptr_eq(&held, &interner.intern("held")));
    }

    #[test]
    fn long_texts_that_nobody_holds_are_swept_by_their_bytes() {
        let interner = Interner::default();
        let bytes = || interner.texts.lock().known.iter().map(ArcStr::len).sum::<usize>();
        for index in 0..1000 {
            interner.intern(&format!("{index:016384}"));
            assert!(bytes() <= 256 << 10, "{} bytes after {index} texts", bytes());
        }
    }
}
