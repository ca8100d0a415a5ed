//! Tests of the changes that wake the finisher: the last to arrive of a mark, its Machine's owner and the group.

use capi::ScalableKind;
use nodegroup::{SharedLog, writing::GroupVersion};
use rstest::rstest;
use serde_json::{Value, json};

use super::objects::*;
use crate::{Change, Index};

fn marked() -> Change {
    let annotations = json!({"cluster.x-k8s.io/delete-machine": "capi-autoscaler-provider t"});
    machine("MachineSet/workers-1", "a", &json!({"metadata": {"annotations": annotations}}))
}

fn workers_with(more: &Value) -> Change {
    deployment("workers", 1, ("1", "10"), more)
}

fn paused() -> Value {
    json!({"metadata": {"annotations": {"cluster.x-k8s.io/paused": ""}}})
}

fn group_and_set() -> [Change; 2] {
    [workers_with(&json!({})), set_of("workers", "workers-1")]
}

fn woken(index: &Index) -> bool {
    index.take_pending_deletes().contains(&id(WORKERS))
}

#[rstest]
#[case::the_machine([group_and_set().to_vec(), vec![marked()]].concat())]
#[case::the_machine_set(vec![workers_with(&json!({})), marked(), set_of("workers", "workers-1")])]
#[case::the_group(vec![marked(), set_of("workers", "workers-1"), workers_with(&json!({}))])]
#[case::a_machine_set_that_is_adopted(vec![
    workers_with(&json!({})), marked(), set_of("others", "workers-1"), set_of("workers", "workers-1"),
])]
#[case::a_group_that_is_not_paused_any_more(vec![
    workers_with(&paused()), set_of("workers", "workers-1"), marked(), workers_with(&json!({})),
])]
#[case::a_cluster_that_is_not_paused_any_more(vec![
    cluster("stage", true), workers_with(&json!({})), set_of("workers", "workers-1"), marked(), cluster("stage", false),
])]
#[case::a_group_that_decodes_again(vec![
    workers_with(&json!({})),
    Change::ScalableUndecodable(id(WORKERS), "broken".into()),
    set_of("workers", "workers-1"),
    marked(),
    workers_with(&json!({})),
])]
fn a_mark_wakes_by_whichever_comes_last(#[case] mut changes: Vec<Change>) {
    let index = Index::new(rules());
    let last = changes.pop().unwrap();
    for change in changes {
        index.apply_quietly(change);
    }
    // An earlier look would find nothing to do, or nothing that is allowed yet.
    let _ = index.take_pending_deletes();
    index.apply_quietly(last);
    assert!(woken(&index), "the mark is seen by nobody");
}

#[test]
fn a_mark_on_a_machine_of_a_machine_pool_wakes_by_the_pool_that_comes_after_it() {
    let annotations = json!({"cluster.x-k8s.io/delete-machine": "capi-autoscaler-provider t"});
    let index = Index::new(rules());
    index.apply_quietly(machine("MachinePool/pool", "a", &json!({"metadata": {"annotations": annotations}})));
    let _ = index.take_pending_deletes();
    index.apply_quietly(scalable(ScalableKind::MachinePool, "pool", 1, ("0", "5"), &json!({})));
    assert!(index.take_pending_deletes().contains(&id("MachinePool/team-a/pool")));
}

#[test]
fn a_status_of_a_group_whose_machines_have_a_mark_wakes_nobody() {
    let index = index(group_and_set().into_iter().chain([marked()]));
    assert!(woken(&index));
    for replicas in [1, 2] {
        index.apply_quietly(workers_with(&json!({"status": {"replicas": replicas}})));
        index.apply_quietly(set_of_with("workers", "workers-1", &json!({"status": {"replicas": replicas}})));
        assert!(!woken(&index));
    }
}

#[test]
fn a_mark_wakes_when_the_log_goes_that_a_read_alone_had_shown() {
    let index = index(group_and_set().into_iter().chain([marked()]));
    let log = r#"[{"ticket":"t","phase":"wanted","machines":{"a":"uid-of-a"}}]"#;
    let version = index.scale_view(&id(WORKERS)).unwrap().version;
    let seen = GroupVersion { resource_version: "12".into(), log: Some(SharedLog::new(log.into())), ..version };
    index.set_written(&id(WORKERS), seen);
    let _ = index.take_pending_deletes();
    // Another copy has removed the entry from the log, and couldn't remove the mark.
    index.apply_quietly(deployment("workers", 1, ("1", "14"), &json!({})));
    assert!(woken(&index), "the mark is seen by nobody");
}
