//! Cluster Autoscaler, played: it asks the program what the versions from 1.33 on ask, in their order, and remembers from loop to loop
//! what they remember. The end-to-end tests and the simulation share it.
//!
//! It may use none of the program's own code but the wire types: a mistake there would then be in the question and in the answer. Time is
//! tokio's, and chance is handed in, so that a seed decides all of it.

mod actuation;
mod backoff;
mod caller;
mod choice;
mod driver;
mod fields;
mod pattern;
mod pods;
mod rooms;
mod scale_down;
mod state;
mod version;
mod workload;

use std::time::Duration;

pub use caller::{Caller, DEADLINE, Way, ask, made_up_node};
pub use driver::Driver;
pub use pods::{Cpu, Shape, TO_BE_DELETED, UNINITIALIZED, asks_for, fits, is_ready, is_unschedulable};
pub use version::Version;
pub use workload::Workload;

/// Cluster Autoscaler's options, as far as they are played.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// From the end of a loop to the start of the next.
    pub pause: Duration,
    /// A Node must be unneeded for so long before it goes.
    pub unneeded: Duration,
    /// A Node that isn't ready must be unneeded for so long.
    pub unready: Duration,
    /// A Node that hasn't joined after so long is given up.
    pub provision: Duration,
    /// A Node that isn't ready counts as one that is starting for so long.
    pub startup: Duration,
    /// No Node goes for so long after a group was increased.
    pub delay_after_add: Duration,
    /// Nor after Nodes began to go.
    pub delay_after_delete: Duration,
    /// Nor after Nodes couldn't be made to go.
    pub delay_after_failure: Duration,
    /// From a Node's taint to its deletion.
    pub delay_after_taint: Duration,
    /// A Node that can't be removed is looked at again after so long.
    pub recheck: Duration,
    /// The Pods of a Node have so long to leave it.
    pub drain: Duration,
    /// Nothing is done about Pods that are all new.
    pub waits_for_more_pods: bool,
    /// The number of Nodes that go at once.
    pub parallelism: usize,
    /// The number of those that may have to be drained.
    pub drain_parallelism: usize,
    /// For how long a group that failed isn't increased at first, at most, and after how long without a failure it is forgotten.
    pub backoff: Backoff,
    /// Which of the groups that would do is chosen.
    pub expander: Expander,
}

impl Default for Settings {
    /// Cluster Autoscaler's own.
    fn default() -> Self {
        let minutes = |minutes: u64| Duration::from_secs(60 * minutes);
        Self {
            pause: Duration::from_secs(10),
            unneeded: minutes(10),
            unready: minutes(20),
            provision: minutes(15),
            startup: minutes(15),
            delay_after_add: minutes(10),
            delay_after_delete: Duration::ZERO,
            delay_after_failure: minutes(3),
            delay_after_taint: Duration::from_secs(5),
            recheck: minutes(5),
            drain: minutes(10),
            waits_for_more_pods: true,
            parallelism: 10,
            drain_parallelism: 1,
            backoff: Backoff { initial: minutes(5), max: minutes(30), reset: minutes(180) },
            expander: Expander::LeastWaste,
        }
    }
}

/// The times for which groups that failed are left alone.
#[derive(Clone, Copy, Debug)]
pub struct Backoff {
    /// After the first failure.
    pub initial: Duration,
    /// However many there were.
    pub max: Duration,
    /// Without a failure for so long, a group starts from the beginning.
    pub reset: Duration,
}

/// Which of the groups that would do is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expander {
    /// The one with the least left over.
    LeastWaste,
    /// The cheapest, by the provider's prices.
    Price,
}

impl Expander {
    /// As Cluster Autoscaler calls it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::LeastWaste => "least-waste",
            Self::Price => "price",
        }
    }
}
