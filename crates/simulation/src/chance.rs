//! Decisions of the plan. Each decision is drawn from the seed, its subject, its actor and its ordinal, so removing one
//! doesn't change another.

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

    /// Returns the seed of the decisions about one of several Clusters. Those about the first are the world's own.
    pub(crate) fn seed_of_cluster(self, number: usize) -> u64 {
        if number == 0 { self.seed } else { self.of("cluster", number, 0).u64(..) }
    }

    /// Returns the random generator of one decision.
    pub(crate) fn of(self, what: &str, actor: usize, ordinal: u64) -> Rng {
        // The hasher's keys are fixed, unlike those of a HashMap.
        let mut hasher = DefaultHasher::new();
        (self.seed, what, actor, ordinal).hash(&mut hasher);
        Rng::with_seed(hasher.finish())
    }
}
