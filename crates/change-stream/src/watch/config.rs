//! The configuration of a watch.
//!
//! `--cluster` narrows each of Cluster API's own kinds to one Cluster, for default kinds and named ones. Kinds whose
//! objects don't all name their Cluster are left as they are.

use std::collections::BTreeSet;

use connect::{ClusterRef, Source, WorkloadSource};

use super::catalog::{Resource, ResourceQuery};
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
    pub fn name(self) -> &'static str {
        match self {
            Self::Management => "management",
            Self::Workload => "workload",
        }
    }
}

/// The label by which Cluster API's objects name their Cluster.
const CLUSTER_LABEL: &str = "cluster-name";
/// The kinds to whose objects Cluster API adds this label.
const LABELLED: [&str; 5] = ["MachineDeployment", "MachineSet", "Machine", "MachinePool", "MachineHealthCheck"];

/// The Cluster that is watched.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Narrowing {
    /// Cluster API's group.
    pub group: String,
    /// The Cluster.
    pub cluster: ClusterRef,
}

impl Narrowing {
    /// Narrows `wanted` to the Cluster if it is this resource.
    pub(super) fn of_resource(&self, wanted: ResourceQuery, resource: &Resource) -> ResourceQuery {
        if resource.kind.group == self.group { self.of_kind(wanted, &resource.kind.kind) } else { wanted }
    }

    /// Narrows `wanted` to the Cluster, for a kind of Cluster API. It is idempotent.
    pub fn of_kind(&self, mut wanted: ResourceQuery, kind: &str) -> ResourceQuery {
        let and = |own: &mut Option<String>, more: String| match own {
            Some(own) if own.split(',').any(|part| part == more) => {}
            Some(own) => *own = format!("{own},{more}"),
            None => *own = Some(more),
        };
        match kind {
            // A Cluster is selected by its name, everything that belongs to it by a label.
            "Cluster" => and(&mut wanted.fields, format!("metadata.name={}", self.cluster.name())),
            kind if LABELLED.contains(&kind) => {
                and(&mut wanted.labels, format!("{}/{CLUSTER_LABEL}={}", self.group, self.cluster.name()));
            }
            _ => {}
        }
        wanted
    }
}
