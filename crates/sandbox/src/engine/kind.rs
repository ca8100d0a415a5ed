//! The controllers, the kinds that each of them reads, and the reports of their steps.

use std::fmt;

use crate::{
    api::Resource,
    controllers::{Side, keys},
    settings::Contract,
};

/// A controller, or another actor on the objects.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Controller {
    /// Cluster API's controller of Clusters.
    Cluster,
    /// Cluster API's controller of MachineDeployments.
    MachineDeployment,
    /// Cluster API's controller of MachineSets.
    MachineSet,
    /// Cluster API's controller of Machines, with their infrastructure.
    Machine,
    /// Cluster API's controller of MachinePools, with their infrastructure and Nodes.
    MachinePool,
    /// The health check, which deletes Machines whose Node is unhealthy for long.
    MachineHealthCheck,
    /// The servers of Machines, which register Nodes and report if they are Ready.
    Kubelet,
    /// The actor that sets hooks on Machines and removes them.
    Hooks,
}

impl Controller {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::Cluster,
        Self::MachineDeployment,
        Self::MachineSet,
        Self::Machine,
        Self::MachinePool,
        Self::MachineHealthCheck,
        Self::Kubelet,
        Self::Hooks,
    ];

    /// The controllers that Cluster API runs in one process, which restart together.
    pub const OF_CLUSTER_API: [Self; 6] = {
        let [cluster, deployment, set, machine, pool, health, ..] = Self::ALL;
        [cluster, deployment, set, machine, pool, health]
    };

    /// Returns the kinds that the controller has a view of.
    pub fn reads(self) -> &'static [Kind] {
        match self {
            Self::Cluster => &[Kind::Cluster],
            Self::MachineDeployment => &[Kind::MachineDeployment, Kind::MachineSet, Kind::Machine, Kind::Cluster],
            Self::MachineSet => &[Kind::MachineSet, Kind::Machine, Kind::Cluster],
            Self::Machine => &[Kind::Machine, Kind::Node, Kind::MachineSet, Kind::Cluster],
            Self::MachinePool => &[Kind::MachinePool, Kind::Node, Kind::Cluster, Kind::Machine],
            Self::MachineHealthCheck => &[Kind::Machine, Kind::Node, Kind::Cluster],
            Self::Kubelet => &[Kind::Machine, Kind::Node, Kind::MachineSet],
            Self::Hooks => &[Kind::Machine],
        }
    }

    pub(super) fn of(self) -> Kind {
        match self {
            Self::Cluster => Kind::Cluster,
            Self::MachineDeployment => Kind::MachineDeployment,
            Self::MachineSet => Kind::MachineSet,
            Self::MachinePool => Kind::MachinePool,
            Self::Machine | Self::MachineHealthCheck | Self::Kubelet | Self::Hooks => Kind::Machine,
        }
    }

    pub(super) fn is_of_cluster_api(self) -> bool {
        Self::OF_CLUSTER_API.contains(&self)
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Cluster => "Cluster",
            Self::MachineDeployment => "MachineDeployment",
            Self::MachineSet => "MachineSet",
            Self::Machine => "Machine",
            Self::MachinePool => "MachinePool",
            Self::MachineHealthCheck => "MachineHealthCheck",
            Self::Kubelet => "kubelet",
            Self::Hooks => "hooks",
        }
    }
}

/// A kind that controllers read.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Kind {
    /// `cluster.x-k8s.io`
    Cluster,
    /// `cluster.x-k8s.io`
    MachineDeployment,
    /// `cluster.x-k8s.io`
    MachineSet,
    /// `cluster.x-k8s.io`
    Machine,
    /// `cluster.x-k8s.io`
    MachinePool,
    /// The Node of the workload cluster.
    Node,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 6] =
        [Self::Cluster, Self::MachineDeployment, Self::MachineSet, Self::Machine, Self::MachinePool, Self::Node];

    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Cluster => "Cluster",
            Self::MachineDeployment => "MachineDeployment",
            Self::MachineSet => "MachineSet",
            Self::Machine => "Machine",
            Self::MachinePool => "MachinePool",
            Self::Node => "Node",
        }
    }

    pub(super) fn side(self) -> Side {
        if self == Self::Node { Side::Workload } else { Side::Management }
    }

    /// Returns the kind in the version in which the controllers write it.
    pub fn resource(self, contract: Contract) -> Resource {
        let plural = match self {
            Self::Cluster => "clusters",
            Self::MachineDeployment => "machinedeployments",
            Self::MachineSet => "machinesets",
            Self::Machine => "machines",
            Self::MachinePool => "machinepools",
            Self::Node => return Resource::core("nodes"),
        };
        Resource::new(keys::GROUP, contract.version(), plural)
    }
}

/// The fault of a write.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Fault {
    /// No fault.
    #[default]
    None,
    /// The write isn't executed, and the controller gets an error.
    Before,
    /// The write is executed, and the controller gets an error nevertheless.
    After,
}

/// The state that a reconcile observes at its beginning, and uses to its end.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Observed {
    /// The number of the reconcile.
    pub reconcile: u64,
    /// The revision of the newest Machine in its controller's cache.
    pub machines: u64,
}

/// A step of a controller.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Step {
    /// The controller.
    pub controller: Controller,
    /// The namespace of the reconciled object.
    pub namespace: String,
    /// The name of that object.
    pub name: String,
    /// The action.
    pub act: Act,
    /// The state that its reconcile uses.
    pub observed: Observed,
}

/// The action of a step.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Act {
    /// The controller has read its views, and plans this many writes and waits.
    Planned(usize),
    /// A write succeeded.
    Wrote(String),
    /// The API refused a write, with this HTTP status.
    Refused(String, u16),
    /// A write wasn't executed, because of a fault.
    Failed(String),
    /// A write was executed, and its response was lost.
    Lost(String),
    /// The controller begins to wait until its view shows its own writes.
    Waits,
    /// The view shows them.
    HasWaited,
    /// The view hasn't shown them for too long, so that the reconcile fails.
    GaveUp,
}

impl fmt::Display for Step {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} {}/{}: ", self.controller.name(), self.namespace, self.name)?;
        match &self.act {
            Act::Planned(0) => out.write_str("has nothing to do"),
            Act::Planned(writes) => write!(out, "has {writes} steps to do"),
            Act::Wrote(what) => out.write_str(what),
            Act::Refused(what, code) => write!(out, "{what}: {code}"),
            Act::Failed(what) => write!(out, "{what}: fails"),
            Act::Lost(what) => write!(out, "{what}: done, the answer is lost"),
            Act::Waits => out.write_str("waits for its cache"),
            Act::HasWaited => out.write_str("its cache is up to date"),
            Act::GaveUp => out.write_str("has waited too long for its cache"),
        }
    }
}
