//! Callers that leave: a command ends with its caller until its first write, however long its reads take.

use rstest::rstest;
use serde_json::json;

use super::{
    ABCD,
    fake::{Fault, World, group, instance, nodes},
    held, leave,
};

/// Lets the caller of a delete leave while a call of it is held.
async fn delete_and_go_away(world: &World, call: &'static str, id: Option<&str>) {
    let named = id.map_or_else(|| nodes(&["b"]), instance);
    let command = held(world, call, Fault::Hold, |scale| async move { scale.delete(group(), named).await }).await;
    leave(world, command, async || {}).await;
}

/// Lets the caller of a decrease leave while a call of it is held.
async fn decrease_and_go_away(world: &World, call: &'static str) {
    let command = held(world, call, Fault::Hold, |scale| async move { scale.decrease(group(), -1).await }).await;
    leave(world, command, async || {}).await;
}

#[rstest]
#[case::while_the_size_is_tried("TRY scale", None)]
#[case::while_machines_are_counted("LIST machines", Some("replica-MachineDeployment-team-a_workers-0"))]
#[tokio::test]
async fn a_delete_whose_caller_leaves_before_anything_is_written_writes_nothing(
    #[case] call: &'static str,
    #[case] id: Option<&str>,
) {
    let world = World::new(5, &ABCD);
    delete_and_go_away(&world, call, id).await;
    assert_eq!((world.api.replicas(), world.api.deleting()), (5, vec![]));
}

#[rstest]
#[case::while_it_is_deleted("DELETE machine b")]
#[case::while_the_size_is_lowered("PATCH scale")]
#[tokio::test]
async fn a_delete_that_has_begun_runs_to_its_end(#[case] call: &'static str) {
    let world = World::new(4, &ABCD);
    delete_and_go_away(&world, call, None).await;
    assert_eq!((world.api.replicas(), world.target_size(), world.api.deleting()), (3, 3, vec!["b".to_owned()]));
}

/// Cluster Autoscaler, which has given up, has made its Node schedulable again.
#[tokio::test]
async fn a_machine_that_has_changed_stays_if_its_caller_has_left() {
    let world = World::new(4, &ABCD);
    world.api.change("machines", "b", json!({"metadata": {"labels": {"x": "y"}}}));
    delete_and_go_away(&world, "DELETE machine b", None).await;
    assert_eq!((world.api.replicas(), world.api.deleting()), (4, vec![]));
}

/// At the minimum size a Machine that never joined is replaced by its DELETE alone.
#[tokio::test]
async fn a_machine_is_not_replaced_for_a_caller_that_has_left() {
    let world = World::new(1, &[]);
    world.machine("a", &json!({"phase": "Provisioned"}), &json!({}));
    delete_and_go_away(&world, "GET machine a", Some("pending-machine-team-a_a")).await;
    assert_eq!((world.api.replicas(), world.api.deleting()), (1, vec![]));
}

#[tokio::test]
async fn a_decrease_whose_caller_leaves_while_it_reads_writes_nothing() {
    let world = World::new(4, &["a"]);
    decrease_and_go_away(&world, "LIST machines").await;
    assert_eq!(world.api.replicas(), 4);
}

#[tokio::test]
async fn a_decrease_whose_caller_leaves_while_the_size_is_tried_deletes_nothing() {
    let world = World::new(2, &["a"]);
    world.machine("b", &json!({}), &json!({}));
    decrease_and_go_away(&world, "TRY scale").await;
    assert_eq!((world.api.replicas(), world.api.deleting()), (2, vec![]));
}
