//! A model of Cluster Autoscaler: it makes the calls of versions 1.33 and later, in their order, and keeps their state
//! from loop to loop. The end-to-end tests and the simulation share it.
//!
//! It must use none of the program's own code except the wire types, since a mistake in shared code would be on both
//! sides of a call. Time is tokio's and randomness is passed in, so that a seed decides everything.

mod caller;
mod driver;
mod scale_down;
mod scale_up;
mod state;
#[cfg(test)]
mod tests;
mod version;
mod workload;

use std::time::Duration;

pub use caller::{Caller, DEADLINE, GrpcService, ask, made_up_node};
pub use driver::Driver;
pub use version::Version;
pub use workload::{Cpu, Shape, TO_BE_DELETED, UNINITIALIZED, Workload, asks_for, fits, is_ready, is_unschedulable};

/// Cluster Autoscaler's options, as far as they are modelled.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// The time from the end of a loop to the start of the next.
    pub pause: Duration,
    /// The time that a Node must be unneeded before it is removed.
    pub unneeded: Duration,
    /// The same for a Node that isn't ready.
    pub unready: Duration,
    /// The time after which a Node that hasn't joined is given up.
    pub provision: Duration,
    /// The age up to which a Node that isn't ready counts as starting.
    pub startup: Duration,
    /// The time without removals after a group was increased.
    pub delay_after_add: Duration,
    /// The time without removals after Nodes were removed.
    pub delay_after_delete: Duration,
    /// The time without removals after a removal failed.
    pub delay_after_failure: Duration,
    /// The time from a Node's taint to its deletion.
    pub delay_after_taint: Duration,
    /// The time after which a Node that couldn't be removed is considered again.
    pub recheck: Duration,
    /// The time within which the Pods of a Node must leave it.
    pub drain: Duration,
    /// True if a loop does nothing when all pending Pods are new.
    pub waits_for_more_pods: bool,
    /// The number of Nodes that are removed at once.
    pub parallelism: usize,
    /// The number of Nodes among them that may need a drain.
    pub drain_parallelism: usize,
    /// The backoff of groups that failed to grow.
    pub backoff: Backoff,
    /// The strategy that chooses among groups that fit.
    pub expander: Expander,
}

impl Default for Settings {
    /// Returns Cluster Autoscaler's own defaults.
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

/// The backoff times of groups that failed to grow.
#[derive(Clone, Copy, Debug)]
pub struct Backoff {
    /// The backoff after the first failure.
    pub initial: Duration,
    /// The longest backoff.
    pub max: Duration,
    /// The time without a failure after which the backoff starts from the initial value.
    pub reset: Duration,
}

/// The strategy that chooses among groups that fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expander {
    /// The group with the fewest idle CPUs.
    LeastWaste,
    /// The cheapest group, by the provider's prices.
    Price,
}

impl Expander {
    /// Returns Cluster Autoscaler's name of this expander.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::LeastWaste => "least-waste",
            Self::Price => "price",
        }
    }
}
