//! Tests of groups with rollouts: deletes are forbidden and options keep Nodes from being chosen, until the rollout
//! is over.

use capi::SCALE_DOWN_WHILE_ROLLING_OUT;
use nodegroup::{Overrides, RolloutCause, writing::Ongoing};
use rstest::rstest;
use serde_json::{Value, json};

use super::objects::*;
use crate::Index;

fn options(index: &Index) -> Overrides {
    index.served(&id(WORKERS)).unwrap().options.clone()
}

fn holding(index: &Index) -> Option<Ongoing> {
    index.scale_view(&id(WORKERS)).unwrap().rollout
}

/// Returns the rows of the metric: the cause, and true if deletes go on.
fn rollouts(index: &Index) -> Vec<(&'static str, bool)> {
    index.stats().rollouts.into_iter().map(|rollout| (rollout.cause, rollout.ignored)).collect()
}

fn workers_with(annotations: &Value) -> crate::Change {
    let mut more = capacity_annotations("4", "16Gi");
    merge(&mut more, &json!({"metadata": {"annotations": annotations}}));
    deployment("workers", 4, ("1", "10"), &more)
}

#[test]
fn a_rollout_forbids_deletes_from_its_first_machine_set_to_its_last() {
    let index = index(workers());
    assert_eq!((holding(&index), options(&index)), (None, Overrides::default()));

    index.apply_quietly(set_of_revision("workers", "workers-1", 1, 2));
    index.apply_quietly(set_of_revision("workers", "workers-2", 2, 1));
    let rollout = holding(&index).unwrap();
    assert_eq!(rollout.cause, RolloutCause::MachineSets);
    assert_eq!(rollout.since.to_string(), "2026-01-02T00:00:00Z", "the newest MachineSet's age");
    assert_eq!(options(&index).scale_down_utilization_threshold, Some(-1.0));
    assert_eq!(rollouts(&index), [("machine_sets", false)]);

    index.apply_quietly(set_of_revision("workers", "workers-1", 1, 0));
    assert_eq!((holding(&index), options(&index)), (None, Overrides::default()));
    assert_eq!(rollouts(&index), []);
}

#[test]
fn a_rollout_ends_with_the_last_old_machine_set_itself() {
    let index = index(workers());
    index.apply_quietly(set_of_revision("workers", "workers-2", 2, 1));
    assert!(holding(&index).is_some());
    index.apply_quietly(crate::Change::ScalableGone(id("MachineSet/team-a/workers-1")));
    assert_eq!(holding(&index), None);
}

#[rstest]
#[case::the_machine_deployment_comes_last(&[1, 2, 0])]
#[case::it_comes_first(&[0, 1, 2])]
fn the_order_of_arrival_does_not_matter(#[case] order: &[usize]) {
    let changes = [
        workers_with(&json!({})),
        set_of_revision("workers", "workers-1", 1, 2),
        set_of_revision("workers", "workers-2", 2, 1),
    ];
    let index = index(order.iter().map(|position| changes[*position].clone()));
    assert!(holding(&index).is_some());
    assert!(options(&index).scale_down_unneeded_time.is_some());
}

#[test]
fn a_group_that_opts_out_is_deleted_from_and_still_shown_as_rolling_out() {
    let index = index(workers());
    index.apply_quietly(set_of_revision("workers", "workers-2", 2, 1));
    index.apply_quietly(workers_with(&json!({SCALE_DOWN_WHILE_ROLLING_OUT: "true"})));
    assert_eq!((holding(&index), options(&index)), (None, Overrides::default()));
    assert_eq!(rollouts(&index), [("machine_sets", true)]);

    index.apply_quietly(workers_with(&json!({})));
    assert!(holding(&index).is_some());
}

#[test]
fn an_overridden_option_comes_back_after_the_rollout() {
    let annotation = json!({"cluster.x-k8s.io/autoscaling-options-scaledownutilizationthreshold": "0.4"});
    let index = index(workers());
    index.apply_quietly(workers_with(&annotation));
    index.apply_quietly(set_of_revision("workers", "workers-2", 2, 1));
    assert_eq!(options(&index).scale_down_utilization_threshold, Some(-1.0));
    index.apply_quietly(set_of_revision("workers", "workers-1", 1, 0));
    let own = Overrides { scale_down_utilization_threshold: Some(0.4), ..Overrides::default() };
    assert_eq!(options(&index), own);
}

/// Returns a MachineDeployment from the topology of `stage`, at this version.
fn of_topology(version: &str) -> crate::Change {
    let more = json!({
        "metadata": {"labels": {"topology.cluster.x-k8s.io/deployment-name": "md-0"}},
        "spec": {"template": {"spec": {"version": version}}},
    });
    deployment("workers", 4, ("1", "10"), &more)
}

#[test]
fn an_upgrade_of_the_topology_forbids_deletes_from_when_it_is_asked_for() {
    let index = index([of_topology("v1.35.0"), cluster_of_version("stage", "v1.35.0", &[])]);
    assert_eq!(holding(&index), None);

    index.apply_quietly(cluster_of_version("stage", "v1.36.0", &[]));
    let rollout = holding(&index).unwrap();
    assert_eq!(rollout.cause.as_str(), "topology");
    assert_eq!(rollout.since.to_string(), "2026-01-03T00:00:00Z", "the Cluster's condition");
    for part in ["v1.35.0", "v1.36.0"] {
        assert!(rollout.cause.to_string().contains(part), "{}", rollout.cause);
    }

    index.apply_quietly(cluster_of_version("stage", "v1.36.0", &["md-0"]));
    assert_eq!(holding(&index), None, "somebody holds it back");
    index.apply_quietly(cluster_of_version("stage", "v1.36.0", &[]));
    index.apply_quietly(of_topology("v1.36.0"));
    assert_eq!(holding(&index), None, "it is done, as far as the topology goes");
}

#[test]
fn without_any_time_in_the_objects_it_goes_on_since_it_was_first_seen() {
    let index = index(workers());
    let before = jiff::Timestamp::now();
    index.apply_quietly(set_of("workers", "workers-1"));
    let newer = json!({"metadata": {"annotations": {"machinedeployment.clusters.x-k8s.io/revision": "2"}}});
    index.apply_quietly(set_of_with("workers", "workers-2", &newer));
    let since = holding(&index).unwrap().since;
    assert!((before..=jiff::Timestamp::now()).contains(&since));
    index.apply_quietly(set_of_with(
        "workers",
        "workers-2",
        &json!({"spec": {"replicas": 3}, "metadata": newer["metadata"]}),
    ));
    assert_eq!(holding(&index).unwrap().since, since, "a later change doesn't make it younger");
}

#[rstest]
#[case::within(4, ("1", "10"), &[])]
#[case::at_the_bounds(4, ("4", "4"), &[])]
#[case::below_the_minimum(1, ("3", "10"), &[("min", 2)])]
#[case::above_the_maximum(12, ("3", "10"), &[("max", 2)])]
fn a_size_outside_the_bounds_is_answered_as_it_is_and_warned_of(
    #[case] replicas: i32,
    #[case] bounds: (&str, &str),
    #[case] expected: &[(&str, u64)],
) {
    let index = index([deployment("workers", replicas, bounds, &json!({}))]);
    assert_eq!(index.target_size(&id(WORKERS)), Some(replicas));
    let outside: Vec<_> = index.stats().outside_bounds.into_iter().map(|it| (it.bound, it.by)).collect();
    assert_eq!(outside, expected);
}
