//! Simulated controllers of Cluster API (behaviour as of v1.14). Each is a function from the objects it reads to the
//! writes it plans; it must never call an API or depend on a task. `crate::engine` passes the objects and executes the
//! writes.

pub(crate) mod cluster;
pub(crate) mod conditions;
pub(crate) mod fate;
pub(crate) mod keys;
pub(crate) mod machine;
pub(crate) mod machine_deployment;
pub(crate) mod machine_pool;
pub(crate) mod machine_set;
pub(crate) mod names;
pub(crate) mod node;
pub(crate) mod object;
pub(crate) mod plan;
pub(crate) mod pool_machines;
pub(crate) mod propagation;
mod version;

#[cfg(test)]
pub(crate) mod testing;

use jiff::Timestamp;

use self::names::Names;
pub use self::version::CapiVersion;
use crate::settings::Settings;

/// The context that every controller gets besides its objects.
pub(crate) struct Context<'a> {
    pub(crate) now: Timestamp,
    pub(crate) settings: &'a Settings,
    pub(crate) version: CapiVersion,
    pub(crate) names: &'a mut Names,
}
