//! Tests of groups with rollouts: deletes are forbidden and options keep Nodes from being chosen, until the rollout
//! is over.

use rules::capi::SCALE_DOWN_WHILE_ROLLING_OUT;
use rules::{Overrides, RolloutCause, rollout::Rollout};
use serde_json::{Value, json};

use super::objects::*;
use crate::{Detail, Index};

fn options(index: &Index) -> Overrides {
    index.served(&id(WORKERS)).unwrap().options.clone()
}

fn holding(index: &Index) -> Option<Rollout> {
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

    index.apply_and_take_notices(set_of_revision("workers", "workers-1", 1, 2));
    index.apply_and_take_notices(set_of_revision("workers", "workers-2", 2, 1));
    let rollout = holding(&index).unwrap();
    assert_eq!(rollout.cause, RolloutCause::MachineSets);
    assert_eq!(rollout.since.to_string(), "2026-01-02T00:00:00Z", "the newest MachineSet's age");
    assert_eq!(options(&index).scale_down_utilization_threshold, Some(-1.0));
    assert_eq!(rollouts(&index), [("machine_sets", false)]);
    let shown = index.snapshot(Some(&id(WORKERS)), Detail::Counts).groups.remove(0).rollout;
    assert_eq!(shown.map(|rollout| rollout.since), Some(rollout.since));

    index.apply_and_take_notices(set_of_revision("workers", "workers-1", 1, 0));
    assert_eq!((holding(&index), options(&index)), (None, Overrides::default()));
    assert_eq!(rollouts(&index), []);

    index.apply_and_take_notices(set_of_revision("workers", "workers-1", 1, 1));
    assert!(holding(&index).is_some());
    index.apply_and_take_notices(crate::Change::ScalableGone(id("MachineSet/team-a/workers-1")));
    assert_eq!(holding(&index), None);
}

#[test]
fn a_group_that_opts_out_is_deleted_from_and_still_shown_as_rolling_out() {
    let index = index(workers());
    index.apply_and_take_notices(set_of_revision("workers", "workers-2", 2, 1));
    index.apply_and_take_notices(workers_with(&json!({SCALE_DOWN_WHILE_ROLLING_OUT: "true"})));
    assert_eq!((holding(&index), options(&index)), (None, Overrides::default()));
    assert_eq!(rollouts(&index), [("machine_sets", true)]);

    index.apply_and_take_notices(workers_with(&json!({})));
    assert!(holding(&index).is_some());
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

    index.apply_and_take_notices(cluster_of_version("stage", "v1.36.0", &[]));
    let rollout = holding(&index).unwrap();
    assert_eq!(rollout.cause.as_str(), "topology");
    assert_eq!(rollout.since.to_string(), "2026-01-03T00:00:00Z", "the Cluster's condition");
    for part in ["v1.35.0", "v1.36.0"] {
        assert!(rollout.cause.to_string().contains(part), "{}", rollout.cause);
    }

    index.apply_and_take_notices(cluster_of_version("stage", "v1.36.0", &["md-0"]));
    assert_eq!(holding(&index), None, "somebody holds it back");
    index.apply_and_take_notices(cluster_of_version("stage", "v1.36.0", &[]));
    index.apply_and_take_notices(of_topology("v1.36.0"));
    assert_eq!(holding(&index), None, "it is done, as far as the topology goes");
}

#[test]
fn without_any_time_in_the_objects_it_goes_on_since_it_was_first_seen() {
    let index = index(workers());
    let before = jiff::Timestamp::now();
    index.apply_and_take_notices(set_of("workers", "workers-1"));
    let newer = json!({"metadata": {"annotations": {"machinedeployment.clusters.x-k8s.io/revision": "2"}}});
    index.apply_and_take_notices(set_of_with("workers", "workers-2", &newer));
    let since = holding(&index).unwrap().since;
    assert!((before..=jiff::Timestamp::now()).contains(&since));
    index.apply_and_take_notices(set_of_with(
        "workers",
        "workers-2",
        &json!({"spec": {"replicas": 3}, "metadata": newer["metadata"]}),
    ));
    assert_eq!(holding(&index).unwrap().since, since, "a later change doesn't make it younger");
}
