//! The controllers, and the kinds that each of them reads.

use crate::{
    api::Resource,
    controllers::{keys, plan::Side},
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
    pub const OF_CLUSTER_API: [Self; 6] = [
        Self::Cluster,
        Self::MachineDeployment,
        Self::MachineSet,
        Self::Machine,
        Self::MachinePool,
        Self::MachineHealthCheck,
    ];

    /// Returns the kinds that the controller has a view of.
    #[must_use]
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

    /// Returns the kind that the controller reconciles.
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
    pub(super) fn resource(self, contract: Contract) -> Resource {
        let version = match contract {
            Contract::V1Beta1 => "v1beta1",
            Contract::V1Beta2 => "v1beta2",
        };
        let plural = match self {
            Self::Cluster => "clusters",
            Self::MachineDeployment => "machinedeployments",
            Self::MachineSet => "machinesets",
            Self::Machine => "machines",
            Self::MachinePool => "machinepools",
            Self::Node => return Resource::core("nodes"),
        };
        Resource::new(keys::GROUP, version, plural)
    }
}
