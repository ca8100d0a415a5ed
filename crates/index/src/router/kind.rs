//! The kinds that are routed: those of the management cluster whose objects belong to one Cluster each.

use rules::GroupId;
use rules::capi::{Cluster, Machine, ObjectKey, ScalableKind, ScalableResource};

use crate::{Change, IndexFeed};

/// A kind whose objects belong to one Cluster each.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum RoutedKind {
    /// The Clusters themselves.
    Cluster,
    /// MachineDeployments, MachineSets or MachinePools.
    Scalable(ScalableKind),
    /// Machines.
    Machine,
}

impl RoutedKind {
    /// Returns the change for an object of this kind that is gone.
    pub(super) fn gone(self, key: ObjectKey) -> Change {
        match self {
            Self::Cluster => Change::ClusterGone(key),
            Self::Scalable(kind) => Change::ScalableGone(GroupId::new(kind, key)),
            Self::Machine => Change::MachineGone(key),
        }
    }
}

/// An object type that a [`Router`](super::Router) is fed with.
pub trait Routed: IndexFeed {
    /// Returns the kind.
    fn routed(kind: &Self::Kind) -> RoutedKind;
}

impl Routed for Cluster {
    fn routed((): &()) -> RoutedKind {
        RoutedKind::Cluster
    }
}

impl Routed for ScalableResource {
    fn routed(kind: &ScalableKind) -> RoutedKind {
        RoutedKind::Scalable(*kind)
    }
}

impl Routed for Machine {
    fn routed((): &()) -> RoutedKind {
        RoutedKind::Machine
    }
}
