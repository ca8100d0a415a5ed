//! Commands while the group is rolling out: nothing is removed from it.

use capi::{DELETING, DESIRED_REPLICAS};
use serde_json::json;

use super::{
    ABCD,
    fake::{World, group, instance, nodes},
    finishing::{is_deleting, until, wait},
};
use crate::ScaleError;
use index::objects;

/// Builds a group of this size with 3 Machines, one of them of its newest MachineSet.
fn rolling_out(size: i32) -> World {
    let world = World::new(size, &["a", "b", "c"]);
    world.index.apply_quietly(objects::set_of_revision("workers", "workers-1", 1, 2));
    world.index.apply_quietly(objects::set_of_revision("workers", "workers-2", 2, 1));
    world
}

fn rolled_out(world: &World) {
    world.index.apply_quietly(objects::set_of_revision("workers", "workers-1", 1, 0));
}

#[tokio::test]
async fn a_delete_is_refused_before_anything_is_written_and_works_after_the_rollout() {
    let world = rolling_out(3);
    let error = world.scale.delete(group(), nodes(&["a"])).await.unwrap_err();
    assert!(matches!(error, ScaleError::FailedPrecondition(_)), "{error:?}");
    for part in [
        "MachineDeployment/team-a/workers is rolling out",
        "since 2026-01-02T00:00:00Z",
        "nothing was changed",
        "capi-autoscaler-provider.io/scale-down-while-rolling-out",
    ] {
        assert!(error.to_string().contains(part), "{part:?} isn't in {error}");
    }
    assert!(world.api.calls().is_empty());

    rolled_out(&world);
    world.scale.delete(group(), nodes(&["a"])).await.unwrap();
    assert_eq!((world.api.replicas(), world.api.marked()), (2, vec!["a".to_owned()]));
}

#[tokio::test]
async fn a_placeholder_is_not_given_up_either() {
    let world = rolling_out(4);
    let placeholder = instance("replica-MachineDeployment-team-a_workers-0");
    let error = world.scale.delete(group(), placeholder).await.unwrap_err();
    assert!(error.to_string().contains("rolling out"), "{error}");
    assert_eq!((error.code(), world.api.replicas()), ("failed_precondition", 4));
}

#[tokio::test]
async fn a_machine_that_is_going_already_is_a_success_all_the_same() {
    let world = rolling_out(3);
    let going = serde_json::json!({"deletionTimestamp": "2026-01-01T00:00:00Z"});
    world.machine("a", &serde_json::json!({"nodeRef": {"name": "a"}}), &going);
    world.scale.delete(group(), nodes(&["a"])).await.unwrap();
    let writes: Vec<_> = world.api.calls().into_iter().filter(|call| call.starts_with("PATCH")).collect();
    assert_eq!(writes, [""; 0], "the rollout makes it good, and lowers nothing");
}

/// An error would fail Cluster Autoscaler's loop (kubernetes/autoscaler#7928).
#[tokio::test]
async fn a_decrease_changes_nothing_and_succeeds() {
    let world = rolling_out(3);
    world.scale.decrease(group(), -1).await.unwrap();
    assert!(world.api.calls().is_empty());
    assert_eq!(world.target_size(), 3);
    let error = world.scale.decrease(group(), 1).await.unwrap_err();
    assert_eq!(error.code(), "invalid_argument", "what is wrong stays wrong");
}

#[tokio::test]
async fn an_increase_works() {
    let world = rolling_out(3);
    world.scale.increase(group(), 2).await.unwrap();
    assert_eq!(world.api.replicas(), 5);
}

/// Builds a group that began to roll out after `b` was deleted: only the newer MachineSet has received the smaller
/// size.
async fn rolling_out_after_a_delete() -> World {
    let world = World::new(4, &ABCD);
    world.node("a", Some("cloud:///a"), &json!({}));
    world.scale.delete(group(), nodes(&["b"])).await.unwrap();
    let group_now = world.api.object("machinedeployments", "workers").unwrap();
    give(&world, "workers-1", "4");
    world.api.status("machinesets", "workers-1", &json!({"observedGeneration": 1}));
    world.api.roll_out();
    give(&world, "workers-2", "3");
    let log = json!({"metadata": {"annotations": {DELETING: group_now["metadata"]["annotations"][DELETING]}}});
    world.api.change("machinesets", "workers-2", log);
    wait(&world).await;
    world
}

fn give(world: &World, set: &str, desired: &str) {
    world.api.change("machinesets", set, json!({"metadata": {"annotations": {DESIRED_REPLICAS: desired}}}));
}

/// A MachineSet that hasn't received the smaller size would replace the Machine.
#[tokio::test(start_paused = true)]
async fn a_machine_is_deleted_by_name_when_the_rollout_has_ended() {
    let world = rolling_out_after_a_delete().await;
    assert!(!is_deleting(&world, "b"));
    assert_eq!(world.api.log(), ["b lowered"]);
    let error = world.scale.delete(group(), nodes(&["b"])).await.unwrap_err();
    assert_eq!(error.code(), "unavailable");
    assert!(error.to_string().contains("MachineDeployment/team-a/workers: the size was lowered for Machine b already"));

    give(&world, "workers-1", "3");
    wait(&world).await;
    assert!(!is_deleting(&world, "b"), "nothing shows how much of the smaller size each has been given");

    for (set, replicas) in [("workers-1", 0), ("workers-2", 3)] {
        world.api.change("machinesets", set, json!({"spec": {"replicas": replicas}}));
        let generation = world.api.object("machinesets", set).unwrap()["metadata"]["generation"].clone();
        world.api.status("machinesets", set, &json!({"observedGeneration": generation}));
    }
    until(&world, "b is deleted", |world| is_deleting(world, "b")).await;
    world.watch();
    world.scale.delete(group(), nodes(&["b"])).await.unwrap();
    assert_eq!(world.api.replicas(), 3, "it lowers once");
}

/// Its nodeRef names the Node, which has no providerID.
#[tokio::test(start_paused = true)]
async fn a_repeated_delete_in_a_rollout_succeeds_where_the_node_runs() {
    let world = rolling_out_after_a_delete().await;
    world.machine("b", &json!({"nodeRef": {"name": "node-b"}}), &json!({}));
    world.node("node-b", None, &json!({}));
    world.scale.delete(group(), nodes(&["b"])).await.unwrap();
    assert_eq!(world.api.replicas(), 3, "it lowers once");
}
