//! Decisions of the plan: each is drawn from the seed, who decides, and how many decisions of the kind came before. One
//! that is taken away shifts no other.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use fastrand::Rng;

/// The source of decisions.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Chance {
    seed: u64,
}

impl Chance {
    pub(crate) fn new(seed: u64) -> Self {
        Self { seed }
    }

    /// The draws of one decision.
    pub(crate) fn of(self, what: &str, actor: usize, ordinal: u64) -> Rng {
        // Its keys are fixed, whatever the operating system gives.
        let mut hasher = DefaultHasher::new();
        (self.seed, what, actor, ordinal).hash(&mut hasher);
        Rng::with_seed(hasher.finish())
    }
}
