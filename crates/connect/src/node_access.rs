//! The choice of the credentials by which the Nodes of Clusters are read.

use std::str::FromStr;

use super::{ClientMaker, ClusterRef, SecretName, SecretNameError, WorkloadSource};

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
