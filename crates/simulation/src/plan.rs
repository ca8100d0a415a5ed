//! The plan of a world, its decisions, and the report on it. Each decision is drawn from the seed, its subject, its actor
//! and its ordinal, so removing one doesn't change another.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    hash::{DefaultHasher, Hash as _, Hasher as _},
};

use fastrand::Rng;

use crate::{Decision, Finding};

/// The plan of a world.
#[derive(Clone, Debug)]
#[allow(clippy::struct_excessive_bools, reason = "each is a choice of its own")]
pub struct Plan {
    /// The seed.
    pub seed: u64,
    /// The number of copies of the program; drawn from the seed if `None`.
    pub copies: Option<usize>,
    /// The time with faults and commands, in virtual seconds.
    pub seconds: u64,
    /// The quiet time after it, in virtual seconds.
    pub quiet: u64,
    /// The behaviour of controllers and Machines; drawn from the seed if `None`.
    pub habits: Option<Habits>,
    /// True if a MachinePool is among the groups of a quarter of the worlds.
    pub pools: bool,
    /// True if Nodes register with the taint that kubeadm gives them, until Cluster API has linked them.
    pub kubeadm: bool,
    /// True if the copies serve a fleet of two or three Clusters.
    pub fleet: bool,
    /// True if the copies remember Nodes, whose memory differs.
    pub remember: bool,
    /// The faults that don't strike, and the acts that are skipped.
    pub skipped: BTreeSet<Decision>,
    /// True if the trace is kept.
    pub traced: bool,
}

impl Plan {
    /// Returns a world of this seed as in `.ci/run`: 45 virtual minutes with faults, and 15 quiet ones.
    pub fn of(seed: u64) -> Self {
        Self {
            seed,
            copies: None,
            seconds: 2700,
            quiet: 900,
            habits: None,
            pools: false,
            kubeadm: false,
            fleet: false,
            remember: false,
            skipped: BTreeSet::new(),
            traced: false,
        }
    }
}

/// The outcome of a world.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// The hash of the whole trace.
    pub hash: u64,
    /// The trace, if it was kept.
    pub lines: Vec<String>,
    /// The number of calls that were answered.
    pub calls: u64,
    /// The number of answered calls that were to change a size or to delete.
    pub commands: u64,
    /// The number of requests that reached the API.
    pub requests: u64,
    /// The rules that were broken.
    pub findings: Vec<Finding>,
    /// The number of unpreventable events, by their cause.
    pub exceptions: BTreeMap<&'static str, u64>,
    /// The faults that struck, and the acts of all actors.
    pub struck: Vec<Decision>,
}

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

/// The behaviour of controllers and Machines.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, clap::ValueEnum)]
pub enum Habits {
    /// Views lag by milliseconds, writes succeed, and every Machine joins.
    #[default]
    Calm,
    /// As the seed says: views that lag by up to 40 s, writes that fail, restarts, Machines that never join or hang.
    Any,
}

impl fmt::Display for Habits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Calm => "calm",
            Self::Any => "any",
        })
    }
}
