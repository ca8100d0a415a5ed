//! Detects that a MachineDeployment is rolling out, or about to. A smaller size is then spread over its MachineSets
//! and may remove another Machine than the annotated one (kubernetes/autoscaler#8494, #8531). Therefore nothing is
//! deleted meanwhile, and the group's options keep Cluster Autoscaler from choosing its Nodes.

use std::fmt;

use crate::capi::{Cluster, SCALE_DOWN_WHILE_ROLLING_OUT, ScalableResource, TOPOLOGY_NAME};
use arcstr::ArcStr;
use jiff::Timestamp;

use super::{GoDuration, Overrides, Problem, ProblemKind};

/// Longer than any rollout: 10 years. Cluster Autoscaler adds it to a time, and no sum comes near the limits of Go's
/// durations (292 years) and of its times with a monotonic clock (the year 2157).
const BEYOND_ANY_ROLLOUT: GoDuration = GoDuration::from_nanos(10 * 365 * 24 * 3_600 * 1_000_000_000);

/// A threshold that is below every utilization.
const NEVER: f64 = -1.0;

/// A MachineDeployment's rollout, under way or about to begin.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Rollout {
    /// The evidence for it.
    pub cause: RolloutCause,
    /// Its start, if the objects state it.
    pub since: Option<Timestamp>,
}

/// The evidence of a rollout.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum RolloutCause {
    /// MachineSets that aren't of the highest revision have replicas.
    MachineSets,
    /// Its Cluster's topology demands another version of Kubernetes, for all workers or for this one, and no annotation
    /// defers the upgrade.
    Topology {
        /// The current version.
        from: ArcStr,
        /// The version of the topology.
        to: ArcStr,
    },
}

impl RolloutCause {
    /// Returns the cause as a metric label.
    #[must_use]
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::MachineSets => "machine_sets",
            Self::Topology { .. } => "topology",
        }
    }
}

/// Writes the cause for people, without the group's name.
impl fmt::Display for RolloutCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::MachineSets => f.write_str("rolling out: its older MachineSets still have replicas"),
            Self::Topology { from, to } => {
                write!(f, "about to roll out: the topology of its Cluster asks for {to}, and it is at {from}")
            }
        }
    }
}

/// Returns the rollout of a MachineDeployment, by its MachineSets and its Cluster; `None` if there is none.
///
/// Its start is that of its condition RollingOut, or else the creation of its newest MachineSet; for a topology it is
/// that of the Cluster's condition TopologyReconciled.
///
/// Only the version of a topology counts. Any other change of a topology is written to the MachineDeployment at once,
/// and so appears in its MachineSets; only an upgrade waits for the control plane and for other MachineDeployments. One
/// that an annotation holds back may wait for months, and doesn't count.
/// The conditions are no evidence: TopologyReconciled names the waiting MachineDeployment only in prose, and
/// RollingOut is also True while a paused MachineDeployment has Machines of an older template, although nothing rolls
/// out.
pub fn rollout<'a>(
    deployment: &ScalableResource,
    machine_sets: impl IntoIterator<Item = &'a ScalableResource> + Clone,
    cluster: Option<&Cluster>,
) -> Option<Rollout> {
    if is_rolling_out(machine_sets.clone()) {
        let newest = || machine_sets.into_iter().max_by_key(|set| (set.revision, set.created))?.created;
        return Some(Rollout { cause: RolloutCause::MachineSets, since: deployment.rolling_out_since.or_else(newest) });
    }
    let topology = cluster?.topology.as_deref()?;
    let name = deployment.labels.get(TOPOLOGY_NAME)?;
    let from = deployment.version.as_ref()?;
    let to = topology.version_of(name);
    let waits = from != to && !topology.held_back.contains(name);
    waits.then(|| Rollout {
        cause: RolloutCause::Topology { from: from.clone(), to: to.clone() },
        since: topology.unreconciled_since,
    })
}

/// Returns true if a MachineSet below the highest revision has replicas, in spec or status. Call it with the
/// MachineSets of one MachineDeployment. A MachineSet without a revision is older than all that have one; two of the
/// highest revision are the end of a rollout, not a rollout.
pub fn is_rolling_out<'a>(machine_sets: impl IntoIterator<Item = &'a ScalableResource>) -> bool {
    let mut highest = None;
    let mut highest_has_replicas = false;
    for set in machine_sets {
        let has_replicas = set.replicas.unwrap_or_default() > 0 || set.status_replicas > 0;
        if highest.is_none_or(|highest| set.revision > highest) {
            if highest_has_replicas {
                return true;
            }
            highest = Some(set.revision);
            highest_has_replicas = has_replicas;
        } else if has_replicas {
            if highest != Some(set.revision) {
                return true;
            }
            highest_has_replicas = true;
        }
    }
    false
}

/// Returns the options of a group whose Nodes must not be scaled down: its own, with a threshold that no utilization is
/// below, and with times that are longer than any rollout. Either would suffice. A threshold or a time of 0 doesn't
/// mean "never" in every version of Cluster Autoscaler.
#[must_use]
pub fn hold(options: &Overrides) -> Overrides {
    Overrides {
        scale_down_utilization_threshold: Some(NEVER),
        scale_down_gpu_utilization_threshold: Some(NEVER),
        scale_down_unneeded_time: Some(BEYOND_ANY_ROLLOUT),
        scale_down_unready_time: Some(BEYOND_ANY_ROLLOUT),
        ..options.clone()
    }
}

/// Returns true for options that [`hold`] has made.
#[must_use]
pub fn is_hold(options: &Overrides) -> bool {
    options.scale_down_unneeded_time == Some(BEYOND_ANY_ROLLOUT)
}

/// Returns true if a group's annotation allows deletions while the group rolls out.
pub(super) fn is_ignored(object: &ScalableResource) -> Result<bool, Problem> {
    match object.annotations.get(SCALE_DOWN_WHILE_ROLLING_OUT).map(ArcStr::as_str) {
        None | Some("false") => Ok(false),
        Some("true") => Ok(true),
        Some(value) => Err(Problem::annotation(
            ProblemKind::Options,
            SCALE_DOWN_WHILE_ROLLING_OUT,
            value,
            "it must be true or false; it is ignored",
        )),
    }
}

#[cfg(test)]
mod tests;
