//! Clients that are made without a configuration.

use std::{fmt, sync::Arc};

use super::{Clients, ClusterRef};

/// A maker of the clients of each Cluster's workload cluster.
#[derive(Clone)]
pub struct ClientMaker(Arc<dyn Fn(&ClusterRef) -> Clients + Send + Sync>);

impl ClientMaker {
    /// Returns a maker that calls a function.
    #[must_use]
    pub fn new(make: impl Fn(&ClusterRef) -> Clients + Send + Sync + 'static) -> Self {
        Self(Arc::new(make))
    }

    pub(super) fn make(&self, cluster: &ClusterRef) -> Clients {
        (self.0)(cluster)
    }
}

impl fmt::Debug for ClientMaker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ClientMaker")
    }
}

/// A maker is equal to its clones.
impl PartialEq for ClientMaker {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for ClientMaker {}
