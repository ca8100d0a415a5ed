//! A cluster whose Node is real: a kubelet in a container runs Pods of the project's image. It needs root, Docker and a
//! network, and must leave nothing behind.

mod cluster;
mod firewall;
mod groups;
mod leftovers;
mod release;
pub(crate) mod suite;
mod testbed;

pub(crate) use self::groups::fake_nodes;
pub use self::{
    cluster::{Cluster, POLL_INTERVAL, Purpose, TIMEOUT},
    firewall::remove_kube_router,
    groups::Group,
    leftovers::Leftovers,
    release::{Connection, Outside, Release},
    suite::{Scenario, VARIABLE},
    testbed::{Body, Testbed, run},
};
