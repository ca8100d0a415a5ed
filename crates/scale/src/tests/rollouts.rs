//! Commands while the group is rolling out: nothing is removed from it.

use serde_json::json;

use super::fake::{World, group, instance, nodes, owned_by};
use crate::{ScaleError, ScaleOptions};
use index::objects;

/// Builds a group of this size with 3 Machines, one of them of its newest MachineSet.
fn rolling_out(size: i32) -> World {
    let world = World::new(size, &["a", "b", "c"]);
    world.index.apply_and_take_notices(objects::set_of_revision("workers", "workers-1", 1, 2));
    world.index.apply_and_take_notices(objects::set_of_revision("workers", "workers-2", 2, 1));
    world
}

fn rolled_out(world: &World) {
    world.index.apply_and_take_notices(objects::set_of_revision("workers", "workers-1", 1, 0));
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
    assert_eq!((world.api.replicas(), world.api.deleting()), (2, vec!["a".to_owned()]));
}

#[tokio::test]
async fn a_placeholder_is_not_given_up_either_and_an_increase_works() {
    let world = rolling_out(4);
    let placeholder = instance("replica-MachineDeployment-team-a_workers-0");
    let error = world.scale.delete(group(), placeholder).await.unwrap_err();
    assert!(error.to_string().contains("rolling out"), "{error}");
    assert_eq!((error.code(), world.api.replicas()), ("failed_precondition", 4));
    world.scale.increase(group(), 2).await.unwrap();
    assert_eq!(world.api.replicas(), 6);
}

#[tokio::test]
async fn a_machine_that_is_going_already_is_a_success_all_the_same() {
    let world = rolling_out(3);
    let going = json!({"deletionTimestamp": "2026-01-01T00:00:00Z"});
    world.machine("a", &json!({"nodeRef": {"name": "a"}}), &going);
    world.scale.delete(group(), nodes(&["a"])).await.unwrap();
    assert_eq!(world.api.calls(), [""; 0], "the rollout makes it good, and lowers nothing");
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

/// Builds a group of this size that rolls out with the strategy OnDelete and permits deletes. Of its three Machines `a` is
/// of the older MachineSet, and `c` of the newer one.
fn on_delete(size: i32, options: ScaleOptions) -> World {
    let world = World::with_options(size, &["a", "b"], options);
    let group = json!({
        "metadata": {"annotations": {"capi-autoscaler-provider.io/scale-down-while-rolling-out": "true"}},
        "spec": {"rollout": {"strategy": {"type": "OnDelete"}}},
    });
    world.api.change("machinedeployments", "workers", group);
    world.api.roll_out();
    let times = [("workers-1", "2026-01-01T00:00:00Z"), ("workers-2", "2026-01-02T00:00:00Z")];
    for (set, time) in times {
        world.api.change("machinesets", set, json!({"metadata": {"creationTimestamp": time}}));
    }
    world.machine(
        "c",
        &json!({"nodeRef": {"name": "c"}}),
        &json!({"ownerReferences": owned_by("MachineSet", "workers-2")}),
    );
    world
}

/// Cluster API takes a smaller size from the oldest MachineSet alone.
#[tokio::test]
async fn with_on_delete_only_machines_of_the_oldest_machine_set_go() {
    let world = on_delete(3, ScaleOptions::default());
    for named in [nodes(&["c"]), nodes(&["a", "c"])] {
        let error = world.scale.delete(group(), named).await.unwrap_err();
        assert_eq!(error.code(), "failed_precondition", "{error}");
        assert!(error.to_string().contains("its oldest MachineSet, workers-1"), "{error}");
    }
    assert_eq!((world.api.replicas(), world.api.deleting()), (3, vec![]));
    world.scale.delete(group(), nodes(&["a"])).await.unwrap();
    assert_eq!((world.api.replicas(), world.api.deleting()), (2, vec!["a".to_owned()]));
}

#[tokio::test]
async fn with_on_delete_no_replica_is_given_up() {
    let world = on_delete(4, ScaleOptions::default());
    world.scale.decrease(group(), -1).await.unwrap();
    assert_eq!((world.api.replicas(), world.api.calls().len()), (4, 0));
}

#[tokio::test]
async fn a_server_that_may_not_write_decides_in_the_same_way_with_on_delete() {
    let world = on_delete(4, ScaleOptions { read_only: true, ..ScaleOptions::default() });
    let decreased = world.scale.decrease(group(), -1).await.unwrap_err();
    assert!(decreased.to_string().contains("the size would be left as it is"), "{decreased}");
    let newer = world.scale.delete(group(), nodes(&["c"])).await.unwrap_err();
    assert!(newer.to_string().contains("its oldest MachineSet, workers-1"), "{newer}");
    let older = world.scale.delete(group(), nodes(&["a"])).await.unwrap_err();
    assert!(older.to_string().contains("would be scaled from 4 to 3, for Machines a"), "{older}");
}
