//! A cluster whose Node is real: a kubelet in a container runs Pods of the project's image. It needs root, Docker and a
//! network, and must leave nothing behind.

mod cluster;
mod release;
pub(crate) mod suite;
mod testbed;

pub use self::{
    cluster::{Cluster, POLL_INTERVAL, Purpose, TIMEOUT},
    release::{Connection, Release},
    testbed::{Body, Testbed, create_group, run},
};
