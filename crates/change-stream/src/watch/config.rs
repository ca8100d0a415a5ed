//! The configuration of a watch.

use std::collections::BTreeSet;

use connect::{ClusterRef, Source, WorkloadSource};

use super::{Narrowing, ResourceQuery};
use crate::{changes::Pattern, notify::Rule};

/// The configuration of a watch.
#[derive(Clone, Debug)]
pub struct Config {
    /// The resources to watch.
    pub resources: Vec<ResourceQuery>,
    /// The namespaces.
    pub namespaces: NamespaceSelection,
    /// The paths that are ignored.
    pub ignore: Vec<Pattern>,
    /// The cluster.
    pub target: Target,
    /// True if the watch waits for missing resources and namespaces.
    pub allow_missing: bool,
    /// The rules for notifications.
    pub rules: Vec<Rule>,
    /// The only Cluster whose objects of Cluster API's kinds are watched.
    pub cluster: Option<ClusterRef>,
    /// The selection of that Cluster's objects.
    pub narrowing: Option<Narrowing>,
    /// The configuration for reaching the management cluster.
    pub management: Source,
    /// The configuration for reaching the workload cluster.
    pub workload: WorkloadSource,
}

/// The watched namespaces.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum NamespaceSelection {
    /// All namespaces.
    All,
    /// The namespaces that were named.
    Named(BTreeSet<String>),
    /// The namespace of the kubeconfig's context.
    OfContext,
}

/// The watched cluster.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Target {
    /// The management cluster.
    Management,
    /// The workload cluster.
    Workload,
}

impl Target {
    /// Returns the name of the cluster that changes report.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Management => "management",
            Self::Workload => "workload",
        }
    }
}
