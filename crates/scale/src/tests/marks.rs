//! Mark, then lower: Machines of MachinePools, and of API groups whose MachineSets replace a Machine that is being
//! deleted at once.

use rules::capi::Keys;
use serde_json::json;

use super::{
    ABCD,
    fake::{Fault, Setup, World, group, instance, nodes, status},
    held, leave,
};
use crate::ScaleError;

fn of_kubermatic(replicas: i32, machines: &[&str]) -> World {
    World::with(replicas, machines, &Setup { keys: Keys::new("cluster.k8s.io"), ..Setup::default() })
}

fn world() -> World {
    of_kubermatic(4, &ABCD)
}

#[tokio::test]
async fn the_named_machines_are_marked_and_the_size_is_lowered_once() {
    let world = world();
    world.scale.delete(group(), nodes(&["b", "d"])).await.unwrap();
    assert_eq!((world.api.marked(), world.api.deleting()), (vec!["b".to_owned(), "d".to_owned()], vec![]));
    assert_eq!((world.api.replicas(), world.target_size()), (2, 2));
    let mark = world.api.mark_of("b").unwrap();
    assert!(mark.starts_with("capi-autoscaler-provider 20"), "whose mark, and when: {mark}");
}

#[tokio::test]
async fn one_that_is_named_again_lowers_nothing_more() {
    let world = world();
    let other = world.another_copy();
    for scale in [&world.scale, &world.scale, &other.scale] {
        scale.delete(group(), nodes(&["b"])).await.unwrap();
        assert_eq!((world.api.replicas(), world.api.marked()), (3, vec!["b".to_owned()]));
    }
}

#[tokio::test]
async fn one_that_is_being_deleted_is_replaced_at_once_and_lowers_nothing() {
    let world = world();
    world.api.begin_to_delete("b");
    world.scale.delete(group(), nodes(&["b"])).await.unwrap();
    assert_eq!((world.api.replicas(), world.api.marked()), (4, vec![]));
}

#[tokio::test]
async fn a_size_that_is_refused_takes_the_marks_off() {
    let world = world();
    world.api.fault("PATCH scale", Fault::Answer(403, status(403, "forbidden")));
    let error = world.scale.delete(group(), nodes(&["b"])).await.unwrap_err();
    assert!(matches!(error, ScaleError::PermissionDenied(_)), "{error:?}");
    assert_eq!((world.api.replicas(), world.api.marked()), (4, vec![]));
    world.scale.delete(group(), nodes(&["b"])).await.unwrap();
    assert_eq!((world.api.replicas(), world.api.marked()), (3, vec!["b".to_owned()]), "named again it goes");
}

#[tokio::test]
async fn one_that_joined_meanwhile_gets_no_mark() {
    let world = of_kubermatic(3, &["a", "c"]);
    world.machine("b", &json!({}), &json!({}));
    world.machine_unseen("b", &json!({"nodeRef": {"name": "b"}}), &json!({}));
    let error = world.scale.delete(group(), instance("pending-machine-team-a_b")).await.unwrap_err();
    assert_eq!(error.code(), "failed_precondition", "{error}");
    assert_eq!((world.api.replicas(), world.api.marked()), (3, vec![]));
}

#[tokio::test]
async fn a_decrease_marks_machines_that_never_joined() {
    let world = of_kubermatic(3, &["a"]);
    for name in ["b", "c"] {
        world.machine(name, &json!({}), &json!({}));
    }
    world.scale.decrease(group(), -1).await.unwrap();
    assert_eq!((world.api.replicas(), world.api.marked(), world.api.deleting()), (2, vec!["b".to_owned()], vec![]));
}

#[tokio::test]
async fn a_caller_that_leaves_while_its_machine_is_read_ends_the_command() {
    let world = world();
    let delete =
        held(&world, "GET machine b", Fault::Hold, |scale| async move { scale.delete(group(), nodes(&["b"])).await });
    leave(&world, delete.await, async || {}).await;
    assert_eq!((world.api.replicas(), world.api.marked()), (4, vec![]));
}
