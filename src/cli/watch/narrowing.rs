//! `--cluster`: how each of Cluster API's own kinds is narrowed to one Cluster, whether it is watched by default or was
//! named. Kinds of which not all objects name their Cluster are left as they are.

use super::catalog::{Resource, Wanted};

/// The label by which Cluster API's objects name their Cluster.
const CLUSTER_LABEL: &str = "cluster-name";
/// The kinds that Cluster API itself gives that label.
const LABELLED: [&str; 5] = ["MachineDeployment", "MachineSet", "Machine", "MachinePool", "MachineHealthCheck"];

/// The Cluster that is watched.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Narrowing {
    /// Cluster API's group.
    pub(super) group: String,
    /// The Cluster's name.
    pub(super) cluster: String,
}

impl Narrowing {
    /// Narrows `wanted` to the Cluster, if it turns out to be this resource.
    pub(super) fn of_resource(&self, wanted: Wanted, resource: &Resource) -> Wanted {
        if resource.kind.group == self.group { self.of_kind(wanted, &resource.kind.kind) } else { wanted }
    }

    /// Narrows `wanted` to the Cluster, as a kind of Cluster API. Doing it again changes nothing.
    pub(super) fn of_kind(&self, mut wanted: Wanted, kind: &str) -> Wanted {
        let and = |own: &mut Option<String>, more: String| match own {
            Some(own) if own.split(',').any(|part| part == more) => {}
            Some(own) => *own = format!("{own},{more}"),
            None => *own = Some(more),
        };
        match kind {
            // A Cluster is known by its name, everything of it by a label.
            "Cluster" => and(&mut wanted.fields, format!("metadata.name={}", self.cluster)),
            kind if LABELLED.contains(&kind) => {
                and(&mut wanted.labels, format!("{}/{CLUSTER_LABEL}={}", self.group, self.cluster));
            }
            _ => {}
        }
        wanted
    }
}
