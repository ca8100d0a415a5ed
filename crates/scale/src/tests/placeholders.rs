//! Placeholders: replicas without a Machine, and those whose Machine is being deleted and has no Node any more. Their
//! deletion lowers the size and never removes another Machine.

use rstest::rstest;
use serde_json::json;

use super::{
    fake::{Fault, World, group, instance, nodes, status},
    held,
};
use crate::NamedNode;

const ABC: [&str; 3] = ["a", "b", "c"];

fn replicas(numbers: &[u32]) -> Vec<NamedNode> {
    let name = |number| instance(&format!("replica-MachineDeployment-team-a_workers-{number}"));
    numbers.iter().flat_map(name).collect()
}

#[tokio::test]
async fn a_repeat_whose_size_write_was_done_is_a_success() {
    let world = World::new(5, &ABC);
    world.api.fault("PATCH scale", Fault::CutAfter);
    world.scale.delete(group(), replicas(&[0, 1])).await.unwrap();
    world.scale.delete(group(), replicas(&[0, 1])).await.unwrap();
    assert_eq!(world.api.replicas(), 3);
}

#[rstest]
#[case::both(3, 3)]
#[case::one_of_them(4, 3)]
#[tokio::test]
async fn replica_placeholders_that_another_writer_removed_meanwhile_are_not_removed_again(
    #[case] written: i32,
    #[case] end: i32,
) {
    let world = World::new(5, &ABC);
    world.api.fault("PATCH scale", Fault::SizeIs(written));
    world.scale.delete(group(), replicas(&[0, 1])).await.unwrap();
    assert_eq!((world.api.replicas(), world.target_size()), (end, end));
}

#[tokio::test]
async fn one_that_has_become_a_machine_since_is_refused() {
    let world = World::new(5, &ABC);
    world.machine_unseen("d", &json!({}), &json!({}));
    let error = world.scale.delete(group(), replicas(&[0, 1])).await.unwrap_err();
    assert_eq!(error.code(), "failed_precondition", "{error}");
    assert_eq!(world.api.replicas(), 5);
    world.scale.delete(group(), replicas(&[0])).await.unwrap();
    assert_eq!(world.api.replicas(), 4);
}

/// The size was written by somebody else, and the Machines are counted anew.
#[tokio::test]
async fn one_that_becomes_a_machine_before_the_size_is_written_again_lowers_nothing() {
    let world = World::new(4, &ABC);
    let delete =
        held(&world, "PATCH scale", Fault::Hold, |scale| async move { scale.delete(group(), replicas(&[0])).await })
            .await;
    // Somebody asks for one more, and both are created.
    world.api.change("machinedeployments", "workers", json!({"spec": {"replicas": 5}}));
    for name in ["d", "e"] {
        world.machine_unseen(name, &json!({}), &json!({}));
    }
    world.api.release();
    delete.await.unwrap().unwrap();
    assert_eq!(world.api.replicas(), 5);
}

/// Builds a group with three Machines, of which `c` has no Node any more.
fn losing_a_node(size: i32) -> World {
    let world = World::new(size, &ABC);
    for name in ["a", "b"] {
        world.node(name, Some(&format!("cloud:///{name}")), &json!({}));
    }
    world
}

/// Builds a group with a Machine that hangs in deletion: its Node is gone, and the size still counts it.
fn hanging() -> World {
    let world = losing_a_node(3);
    world.api.hang("c");
    world.watch();
    world
}

#[tokio::test]
async fn a_replica_whose_machine_hangs_in_deletion_is_given_up_by_its_placeholder() {
    let world = hanging();
    world.scale.delete(group(), replicas(&[0])).await.unwrap();
    assert_eq!(world.api.replicas(), 2);
    world.scale.delete(group(), replicas(&[0])).await.unwrap();
    assert_eq!(world.api.replicas(), 2, "named again it lowers nothing more");
}

/// Another replica of this program may have deleted it, and be about to lower the size.
#[tokio::test]
async fn a_machine_that_has_been_in_deletion_for_moments_is_no_placeholder() {
    let world = losing_a_node(3);
    world.api.begin_to_delete("c");
    world.watch();
    let error = world.scale.delete(group(), replicas(&[0])).await.unwrap_err();
    assert_eq!(error.code(), "failed_precondition", "{error}");
    world.scale.decrease(group(), -1).await.unwrap();
    assert_eq!(world.api.replicas(), 3);
}

#[tokio::test]
async fn another_replica_of_the_program_sees_that_none_is_missing_any_more() {
    let world = hanging();
    let other = world.another_copy();
    world.scale.delete(group(), replicas(&[0])).await.unwrap();
    other.watch();
    let error = other.scale.delete(group(), replicas(&[0])).await.unwrap_err();
    assert_eq!((error.code(), world.api.replicas()), ("failed_precondition", 2), "{error}");
}

#[tokio::test]
async fn while_its_node_is_there_it_is_no_placeholder() {
    let world = hanging();
    world.node("c", Some("cloud:///c"), &json!({}));
    let error = world.scale.delete(group(), replicas(&[0])).await.unwrap_err();
    assert_eq!(error.code(), "failed_precondition", "{error}");
    assert_eq!(world.api.replicas(), 3);
}

#[tokio::test]
async fn placeholders_and_nodes_of_one_request_go_together() {
    let world = losing_a_node(6);
    world.api.hang("c");
    world.watch();
    let named = [nodes(&["a"]), replicas(&[0, 1])].concat();
    world.scale.delete(group(), named).await.unwrap();
    assert_eq!((world.api.replicas(), world.api.deleting()), (3, vec!["a".to_owned(), "c".to_owned()]));
}

#[tokio::test]
async fn the_minimum_holds_for_placeholders() {
    let world = World::new(2, &["a"]);
    world.set_min(2);
    let error = world.scale.delete(group(), replicas(&[0])).await.unwrap_err();
    assert_eq!((error.code(), world.api.replicas()), ("failed_precondition", 2), "{error}");
}

#[tokio::test]
async fn a_list_that_grew_too_old_between_two_pages_is_begun_anew() {
    let world = World::new(5, &ABC);
    world.api.fault("LIST machines", Fault::Answer(410, status(410, "the continue parameter is too old")));
    world.scale.delete(group(), replicas(&[0])).await.unwrap();
    assert_eq!(world.api.replicas(), 4);
}

#[tokio::test]
async fn a_decrease_gives_up_a_replica_whose_machine_hangs_in_deletion() {
    let world = hanging();
    world.scale.decrease(group(), -1).await.unwrap();
    assert_eq!(world.api.replicas(), 2);
}

#[tokio::test]
async fn a_decrease_stops_at_the_minimum() {
    let world = World::new(5, &["a"]);
    world.set_min(3);
    world.scale.decrease(group(), -5).await.unwrap();
    assert_eq!(world.api.replicas(), 3);
}

/// Cluster Autoscaler would end its loop on an error, and the webhook may refuse for ever.
#[tokio::test]
async fn a_decrease_whose_machine_is_not_let_go_succeeds_with_what_was_done() {
    let world = World::new(4, &["a"]);
    world.machine("x", &json!({}), &json!({}));
    world.api.fault("DELETE machine x", Fault::Answer(400, status(400, "no")));
    world.scale.decrease(group(), -3).await.unwrap();
    assert_eq!((world.api.replicas(), world.api.deleting()), (2, vec![]));
}

/// Cluster Autoscaler deletes each placeholder with an error, in every loop.
#[tokio::test]
async fn those_of_a_pool_without_quota_go_down_to_the_minimum() {
    let world = World::new(1, &["a"]);
    let pool = world.pool(5, &["cloud:///p1", "cloud:///p2"]);
    let quota =
        json!({"type": "InfrastructureReady", "status": "False", "reason": "Failed", "message": "QuotaExceeded"});
    let min = json!({"cluster.x-k8s.io/cluster-api-autoscaler-node-group-min-size": "3"});
    world.api.change("machinepools", "pool", json!({"metadata": {"annotations": min}}));
    world.api.status("machinepools", "pool", &json!({"deprecated": {"v1beta1": {"conditions": [quota]}}}));
    world.watch();
    let with_error = || {
        let instances = world.index.instances(&pool).unwrap().into_iter();
        instances
            .filter(|it| it.error.as_ref().is_some_and(|error| error.sent))
            .flat_map(|it| instance(&it.id))
            .collect::<Vec<_>>()
    };
    assert_eq!(with_error().len(), 2);
    world.scale.delete(pool.clone(), with_error()).await.unwrap();
    world.watch();
    assert_eq!((world.size_of_pool(), with_error().len()), (3, 0));
}
