//! The choice of the credentials by which the Nodes of Clusters are read.

use std::{fmt, str::FromStr, sync::Arc};

use super::{Clients, ClusterRef, SecretName, SecretNameError, WorkloadSource};

/// The credentials by which the Nodes of each Cluster are read.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum NodeAccess {
    /// A Secret of the Cluster's namespace.
    Secret(SecretName),
    /// None: no Nodes are read.
    None,
    /// Clients that are made without a configuration, as on the network of a simulation.
    Made(ClientMaker),
}

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

impl Default for NodeAccess {
    fn default() -> Self {
        Self::Secret(SecretName::default())
    }
}

impl FromStr for NodeAccess {
    type Err = SecretNameError;

    fn from_str(text: &str) -> Result<Self, SecretNameError> {
        if text == "none" { Ok(Self::None) } else { text.parse().map(Self::Secret) }
    }
}

impl NodeAccess {
    /// Returns the source of the clients of a Cluster's workload cluster.
    #[must_use]
    pub fn of(&self, cluster: &ClusterRef) -> WorkloadSource {
        match self {
            Self::Secret(name) => WorkloadSource::Secret(name.of(cluster)),
            Self::None => WorkloadSource::None,
            Self::Made(maker) => WorkloadSource::Made(cluster.clone(), maker.clone()),
        }
    }
}
