//! The reasons why an object is no node group, for rules, metrics, logs and reports alike.
//! [`evaluate`](super::evaluate) returns those that follow from the objects; an index of objects adds those that follow
//! from what it can read.

use std::fmt;

use crate::capi::{KARPENTER_MEMBER, PAUSED, REPLICAS_MANAGED_BY};

use crate::Problem;

/// The reason why an object is no node group.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Exclusion {
    /// No scope matches it.
    OutOfScope,
    /// Its MachineDeployment scales it: it is a MachineSet.
    OwnedByMachineDeployment,
    /// Its max size is 0.
    NotAutoscaled,
    /// Karpenter sizes it: it is a MachineDeployment.
    KarpenterMember,
    /// Its infrastructure provider writes the size that another autoscaler chooses: it is a MachinePool.
    ReplicasManagedElsewhere,
    /// Its bounds are invalid.
    InvalidBounds,
    /// It or its Cluster is paused.
    Paused,
    /// Another API is authoritative for it, which only OpenShift has.
    HandedOver,
    /// It has no replicas, and the capacity of a Node isn't known.
    NoScaleFromZero,
    /// Its namespace can't be read.
    NamespaceForbidden,
    /// It has no replicas, and its infrastructure template hasn't been read yet.
    WaitingForTemplate,
    /// It doesn't decode.
    Undecodable,
    /// It was deleted. A former group is served with its last values until the next Refresh.
    Gone,
}

impl Exclusion {
    /// All reasons.
    pub const ALL: [Self; 13] = [
        Self::OutOfScope,
        Self::OwnedByMachineDeployment,
        Self::NotAutoscaled,
        Self::KarpenterMember,
        Self::ReplicasManagedElsewhere,
        Self::InvalidBounds,
        Self::Paused,
        Self::HandedOver,
        Self::NoScaleFromZero,
        Self::NamespaceForbidden,
        Self::WaitingForTemplate,
        Self::Undecodable,
        Self::Gone,
    ];

    /// Returns the reason as a word of metrics and JSON.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::OutOfScope => "out_of_scope",
            Self::OwnedByMachineDeployment => "owned_by_machine_deployment",
            Self::NotAutoscaled => "not_autoscaled",
            Self::KarpenterMember => "karpenter_member",
            Self::ReplicasManagedElsewhere => "replicas_managed_elsewhere",
            Self::InvalidBounds => "invalid_bounds",
            Self::Paused => "paused",
            Self::HandedOver => "handed_over",
            Self::NoScaleFromZero => "no_scale_from_zero",
            Self::NamespaceForbidden => "namespace_forbidden",
            Self::WaitingForTemplate => "waiting_for_template",
            Self::Undecodable => "undecodable",
            Self::Gone => "gone",
        }
    }

    /// Returns true if someone has to fix something, false if the object is left out on purpose or for now.
    #[must_use]
    pub fn is_error(self) -> bool {
        match self {
            Self::InvalidBounds | Self::NoScaleFromZero | Self::NamespaceForbidden | Self::Undecodable => true,
            Self::OutOfScope
            | Self::OwnedByMachineDeployment
            | Self::NotAutoscaled
            | Self::KarpenterMember
            | Self::ReplicasManagedElsewhere
            | Self::Paused
            | Self::HandedOver
            | Self::WaitingForTemplate
            | Self::Gone => false,
        }
    }
}

/// Writes a sentence for people, with the remedy.
impl fmt::Display for Exclusion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OutOfScope => f.write_str(
                "it is out of scope: no --node-group-auto-discovery or --cluster fits its namespace, cluster name and \
                 labels",
            ),
            Self::OwnedByMachineDeployment => {
                f.write_str("its MachineDeployment owns it: set the size annotations there")
            }
            Self::NotAutoscaled => f.write_str(
                "it isn't autoscaled: set the annotation cluster-api-autoscaler-node-group-max-size to more than 0",
            ),
            Self::KarpenterMember => write!(
                f,
                "its label {KARPENTER_MEMBER} gives it to Karpenter, which sets its size: take off the label to have it \
                 autoscaled here"
            ),
            Self::ReplicasManagedElsewhere => write!(
                f,
                "its annotation {REPLICAS_MANAGED_BY} says that another autoscaler sizes it, and its infrastructure \
                 provider writes that size into spec.replicas: take off the annotation to have it autoscaled here"
            ),
            Self::InvalidBounds => f.write_str(
                "its size annotations can't be used: correct cluster-api-autoscaler-node-group-min-size and -max-size",
            ),
            Self::Paused => {
                write!(
                    f,
                    "it is paused: take off its annotation {PAUSED}, or set spec.paused of its Cluster to false"
                )
            }
            Self::HandedOver => f.write_str(
                "its status.authoritativeAPI names another API, so that its controller ignores it: have it be MachineAPI",
            ),
            Self::NoScaleFromZero => f.write_str(
                "it has no replicas and can't scale from zero: the cpu and memory of its Nodes must be known, from its \
                 infrastructure template's status.capacity or from the annotations \
                 capacity.cluster-autoscaler.kubernetes.io/cpu and …/memory",
            ),
            Self::NamespaceForbidden => f.write_str(
                "its namespace can't be read any more, so that nothing certain is known of it: grant list and watch there, \
                 or take the namespace out of the scope if it was deleted",
            ),
            Self::WaitingForTemplate => f.write_str(
                "it has no replicas, and its infrastructure template hasn't been read yet: the checks say why",
            ),
            Self::Undecodable => f.write_str("its object can't be read"),
            Self::Gone => f.write_str("its object was deleted"),
        }
    }
}

/// An object that is no node group.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Excluded {
    /// The reason.
    pub reason: Exclusion,
    /// The object's problems.
    pub problems: Vec<Problem>,
}

impl Excluded {
    /// Creates one with a single problem, which is the cause.
    #[must_use]
    pub fn by(reason: Exclusion, problem: Problem) -> Self {
        Self { reason, problems: vec![problem] }
    }
}

/// Excludes an object without a problem.
impl From<Exclusion> for Excluded {
    fn from(reason: Exclusion) -> Self {
        Self { reason, problems: Vec::new() }
    }
}

/// Writes the reason. The problem of an object that doesn't decode says more than that.
impl fmt::Display for Excluded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.reason, self.problems.first()) {
            (Exclusion::Undecodable, Some(problem)) => problem.fmt(f),
            (reason, _) => reason.fmt(f),
        }
    }
}
