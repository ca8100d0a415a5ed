//! Detects that a MachineDeployment is rolling out, or about to. A smaller size is then spread over its MachineSets
//! and may remove another Machine than the annotated one (kubernetes/autoscaler#8494, #8531). Therefore nothing is
//! deleted meanwhile, unless an annotation permits it, and the group's options keep Cluster Autoscaler from choosing its
//! Nodes.

use std::fmt;

use crate::capi::{Cluster, SCALE_DOWN_WHILE_ROLLING_OUT, ScalableResource, TOPOLOGY_NAME};
use arcstr::ArcStr;
use jiff::Timestamp;

use super::{GoDuration, Overrides, Problem, ProblemKind, problem::switch};

/// Longer than any rollout: 10 years. Cluster Autoscaler adds it to a time, and no sum comes near the limits of Go's
/// durations (292 years) and of its times with a monotonic clock (the year 2157).
const BEYOND_ANY_ROLLOUT: GoDuration = GoDuration::from_nanos(10 * 365 * 24 * 3_600 * 1_000_000_000);

/// A threshold that is below every utilization.
const NEVER: f64 = -1.0;

/// The rollout of a group, in progress or about to begin.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Rollout {
    /// The evidence for it.
    pub cause: RolloutCause,
    /// The time of its beginning: from the objects, or else the time at which this process first saw it.
    pub since: Timestamp,
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

/// Returns the cause of a MachineDeployment's rollout, by its MachineSets and its Cluster, and its start, if the objects
/// state it. `None` if there is none.
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
) -> Option<(RolloutCause, Option<Timestamp>)> {
    if is_rolling_out(machine_sets.clone()) {
        let newest = || machine_sets.into_iter().max_by_key(|set| (set.revision, set.created))?.created;
        return Some((RolloutCause::MachineSets, deployment.rolling_out_since.or_else(newest)));
    }
    let topology = cluster?.topology.as_deref()?;
    let name = deployment.labels.get(TOPOLOGY_NAME)?;
    let from = deployment.version.as_ref()?;
    let to = topology.version_of(name);
    let waits = from != to && !topology.held_back.contains(name);
    let cause = || RolloutCause::Topology { from: from.clone(), to: to.clone() };
    waits.then(|| (cause(), topology.unreconciled_since))
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

/// Returns the MachineSet from which a rollout with the strategy OnDelete takes a smaller size: the oldest one that has
/// replicas (read in Cluster API 1.12 to 1.14; before, at least any but the newest loses Machines). `None` with another
/// strategy. Call it with the MachineSets of one MachineDeployment.
pub fn on_delete_shrinks_first<'a>(
    deployment: &ScalableResource,
    machine_sets: impl IntoIterator<Item = &'a ScalableResource>,
) -> Option<ArcStr> {
    if !deployment.on_delete {
        return None;
    }
    let sets = machine_sets.into_iter().filter(|set| set.replicas.unwrap_or_default() > 0);
    let oldest = sets.min_by_key(|set| (set.created, set.meta.key.name.clone()));
    oldest.map(|set| set.meta.key.name.clone())
}

/// Returns the options of a group whose Nodes must not be scaled down: its own, with a threshold that no utilization is
/// below, and with times that are longer than any rollout. Either would suffice. A threshold or a time of 0 doesn't
/// mean "never" in every version of Cluster Autoscaler.
pub fn keep_nodes(options: &Overrides) -> Overrides {
    Overrides {
        scale_down_utilization_threshold: Some(NEVER),
        scale_down_gpu_utilization_threshold: Some(NEVER),
        scale_down_unneeded_time: Some(BEYOND_ANY_ROLLOUT),
        scale_down_unready_time: Some(BEYOND_ANY_ROLLOUT),
        ..options.clone()
    }
}

/// Returns true for options that [`keep_nodes`] has made.
pub fn keeps_nodes(options: &Overrides) -> bool {
    options.scale_down_unneeded_time == Some(BEYOND_ANY_ROLLOUT)
}

/// Returns true if a group's annotation allows deletions while the group rolls out.
pub(super) fn is_ignored(object: &ScalableResource) -> Result<bool, Problem> {
    switch((ProblemKind::Options, SCALE_DOWN_WHILE_ROLLING_OUT), &object.annotations, false)
}

#[cfg(test)]
mod tests {
    use crate::capi::Topology;
    use rstest::rstest;

    use super::*;
    use crate::testing::{cluster, deployment, machine_set};

    /// Revision, spec.replicas, status.replicas.
    type Set = (Option<i64>, Option<i32>, i32);

    #[rstest]
    #[case::no_machine_set(&[], false)]
    #[case::one(&[(Some(1), Some(3), 3)], false)]
    #[case::an_old_one_is_empty(&[(Some(1), Some(0), 0), (Some(2), Some(3), 3)], false)]
    #[case::an_old_one_has_spec_replicas(&[(Some(1), Some(1), 0), (Some(2), Some(3), 3)], true)]
    #[case::an_old_one_has_status_replicas(&[(Some(1), Some(0), 1), (Some(2), Some(3), 3)], true)]
    #[case::the_new_one_is_empty_yet(&[(Some(1), Some(3), 3), (Some(2), Some(0), 0)], true)]
    #[case::revisions_are_numbers(&[(Some(10), Some(3), 3), (Some(9), Some(0), 0)], false)]
    #[case::the_order_does_not_matter(&[(Some(2), Some(3), 3), (Some(1), Some(1), 1)], true)]
    #[case::the_middle_one_counts(&[(Some(2), Some(1), 1), (Some(1), Some(0), 0), (Some(3), Some(3), 3)], true)]
    #[case::without_a_revision_it_is_the_oldest(&[(None, Some(1), 1), (Some(1), Some(3), 3)], true)]
    #[case::no_revision_at_all(&[(None, Some(1), 1)], false)]
    #[case::the_highest_revision_twice(&[(Some(2), Some(1), 1), (Some(2), Some(1), 1)], false)]
    #[case::absent_replicas_are_none(&[(Some(1), None, 0), (Some(2), Some(3), 3)], false)]
    fn a_machine_set_below_the_highest_revision_with_replicas(#[case] sets: &[Set], #[case] expected: bool) {
        let sets: Vec<_> = sets
            .iter()
            .map(|(revision, replicas, status_replicas)| {
                let mut set = machine_set("workers-1");
                set.revision = *revision;
                set.replicas = *replicas;
                set.status_replicas = *status_replicas;
                set
            })
            .collect();
        assert_eq!(is_rolling_out(&sets), expected);
        assert_eq!(is_rolling_out(sets.iter().rev()), expected);
    }

    fn at(text: &str) -> Option<Timestamp> {
        (!text.is_empty()).then(|| text.parse().unwrap())
    }

    /// Returns a MachineSet with replicas.
    fn set(revision: i64, created: &str) -> ScalableResource {
        let mut set = machine_set("workers-1");
        (set.revision, set.created) = (Some(revision), at(created));
        set
    }

    const EARLY: &str = "2026-01-01T00:00:00Z";
    const LATE: &str = "2026-01-02T00:00:00Z";
    const LATER: &str = "2026-01-03T00:00:00Z";

    #[rstest]
    #[case::the_condition_of_the_machine_deployment(LATER, EARLY, LATE, LATER)]
    #[case::else_the_newest_machine_set("", EARLY, LATE, LATE)]
    #[case::newest_is_the_highest_revision_after_a_step_back("", LATE, EARLY, EARLY)]
    #[case::not_the_older_one("", EARLY, "", "")]
    fn a_rollout_goes_on_since(
        #[case] condition: &str,
        #[case] older: &str,
        #[case] newest: &str,
        #[case] expected: &str,
    ) {
        let mut workers = deployment("workers");
        workers.rolling_out_since = at(condition);
        let sets = [set(2, newest), set(1, older)];
        let found = rollout(&workers, &sets, None);
        assert_eq!(found, Some((RolloutCause::MachineSets, at(expected))));
    }

    #[test]
    fn the_condition_alone_is_no_rollout() {
        // Paused rollouts keep the condition for as long as there are Machines of an older template.
        let mut workers = deployment("workers");
        workers.rolling_out_since = at(EARLY);
        assert_eq!(rollout(&workers, &[set(1, EARLY)], None), None);
    }

    /// Returns a Cluster whose topology is at v1.36.0 and holds these MachineDeployments back.
    fn upgraded(held_back: &[&str]) -> Cluster {
        let held_back = held_back.iter().map(|name| ArcStr::from(*name)).collect();
        let topology = Topology {
            version: "v1.36.0".into(),
            pinned: Vec::new(),
            held_back,
            sized: Vec::new(),
            unreconciled_since: at(LATE),
        };
        Cluster { topology: Some(Box::new(topology)), ..cluster() }
    }

    /// A pinned version differs from the Cluster's permanently; nothing rolls out until the pin is raised.
    #[rstest]
    #[case::it_has_its_version("v1.35.0", Some("v1.35.0"), None)]
    #[case::the_pin_was_raised("v1.34.0", Some("v1.35.0"), Some("v1.35.0"))]
    #[case::another_is_pinned("v1.35.0", None, Some("v1.36.0"))]
    fn a_pinned_machine_deployment_rolls_out_to_its_own_version(
        #[case] version: &str,
        #[case] pinned: Option<&str>,
        #[case] to: Option<&str>,
    ) {
        let mut workers = deployment("workers");
        workers.labels.insert(TOPOLOGY_NAME.into(), "md-0".into());
        workers.version = Some(version.into());
        let mut cluster = upgraded(&[]);
        let topology = cluster.topology.as_mut().unwrap();
        topology.pinned = vec![("md-1".into(), "v1.33.0".into())];
        topology.pinned.extend(pinned.map(|version| ("md-0".into(), version.into())));
        let found = rollout(&workers, &[set(1, EARLY)], Some(&cluster)).map(|(cause, _)| cause);
        assert_eq!(found, to.map(|to| RolloutCause::Topology { from: version.into(), to: to.into() }));
    }

    #[rstest]
    #[case::another_version("v1.35.0", &[], true)]
    #[case::the_same_version("v1.36.0", &[], false)]
    #[case::held_back("v1.35.0", &["md-0"], false)]
    #[case::another_one_is_held_back("v1.35.0", &["md-1"], true)]
    fn a_topology_rolls_a_machine_deployment_out(#[case] version: &str, #[case] held: &[&str], #[case] expected: bool) {
        let mut workers = deployment("workers");
        workers.labels.insert(TOPOLOGY_NAME.into(), "md-0".into());
        workers.version = Some(version.into());
        let found = rollout(&workers, &[set(1, EARLY)], Some(&upgraded(held)));
        let cause = RolloutCause::Topology { from: version.into(), to: "v1.36.0".into() };
        assert_eq!(found, expected.then(|| (cause, at(LATE))));
    }

    #[test]
    fn a_machine_deployment_that_no_topology_made_is_left_alone_by_it() {
        assert_eq!(rollout(&deployment("workers"), &[set(1, EARLY)], Some(&upgraded(&[]))), None);
    }

    #[test]
    fn once_machine_sets_show_it_they_are_the_cause() {
        let mut workers = deployment("workers");
        workers.labels.insert(TOPOLOGY_NAME.into(), "md-0".into());
        let found = rollout(&workers, &[set(1, EARLY), set(2, EARLY)], Some(&upgraded(&[]))).unwrap();
        assert_eq!(found.0, RolloutCause::MachineSets);
    }

    #[test]
    fn held_options_keep_nodes_from_being_chosen_and_leave_the_others() {
        let own = Overrides {
            scale_down_utilization_threshold: Some(0.4),
            max_node_provision_time: Some(GoDuration::from_nanos(7)),
            ignore_daemon_sets_utilization: Some(true),
            ..Overrides::default()
        };
        let ten_years: GoDuration = "87600h".parse().unwrap();
        let expected = Overrides {
            scale_down_utilization_threshold: Some(-1.0),
            scale_down_gpu_utilization_threshold: Some(-1.0),
            scale_down_unneeded_time: Some(ten_years),
            scale_down_unready_time: Some(ten_years),
            ..own.clone()
        };
        assert_eq!(keep_nodes(&own), expected);
    }

    #[rstest]
    #[case::absent(None, Ok(false))]
    #[case::on(Some("true"), Ok(true))]
    #[case::off(Some("false"), Ok(false))]
    #[case::neither(Some("yes"), Err("is \"yes\": it must be true or false"))]
    fn a_group_may_ignore_its_rollouts(#[case] value: Option<&str>, #[case] expected: Result<bool, &str>) {
        let mut workers = deployment("workers");
        workers.annotations.extend(value.map(|value| (SCALE_DOWN_WHILE_ROLLING_OUT.into(), value.into())));
        match (is_ignored(&workers), expected) {
            (Ok(ignored), Ok(expected)) => assert_eq!(ignored, expected),
            (Err(problem), Err(part)) => assert!(problem.message.contains(part), "{problem}"),
            (found, expected) => panic!("{found:?} isn't {expected:?}"),
        }
    }
}
