//! The workload clusters: one API that all Clusters share, or one for each.

use std::collections::BTreeMap;

use serde_json::Value;
use tokio::sync::watch;

use super::port::{Change, Port};
use crate::{
    api::{Api, Resource},
    controllers::object::Object,
};

/// The API of each workload cluster, by the namespace and the name of its Cluster.
pub(crate) type WorkloadApis = BTreeMap<(String, String), Api>;

/// Returns the resource of Nodes.
pub(super) fn nodes() -> Resource {
    Resource::core("nodes")
}

/// The workload clusters of a management cluster.
pub(super) enum Workloads {
    Shared(Port),
    OfClusters(BTreeMap<(String, String), Port>),
}

fn port(api: &Api) -> Port {
    Port::new(api.as_manager("kubelets"), vec![nodes()])
}

impl Workloads {
    pub(super) fn shared(api: &Api) -> Self {
        Self::Shared(port(api))
    }

    pub(super) fn of_clusters(apis: &WorkloadApis) -> Self {
        Self::OfClusters(apis.iter().map(|(cluster, api)| (cluster.clone(), port(api))).collect())
    }

    /// Returns the workload cluster of an object.
    pub(super) fn of(&self, object: &Value) -> Option<&Port> {
        match self {
            Self::Shared(port) => Some(port),
            Self::OfClusters(ports) => {
                let cluster = object.text("/spec/clusterName")?;
                ports.get(&(object.namespace().to_owned(), cluster.to_owned()))
            }
        }
    }

    pub(super) fn subscribe(&self) -> Vec<watch::Receiver<u64>> {
        match self {
            Self::Shared(port) => vec![port.subscribe()],
            Self::OfClusters(ports) => ports.values().map(Port::subscribe).collect(),
        }
    }

    /// Returns the changes since the last call.
    pub(super) fn changes(&mut self) -> Vec<Change> {
        match self {
            Self::Shared(port) => port.changes(),
            Self::OfClusters(ports) => ports.values_mut().flat_map(Port::changes).collect(),
        }
    }
}
