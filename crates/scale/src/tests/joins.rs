//! Deletes that arrive while others of their group are being marked: they join them, one smaller size is written for
//! all, and nothing is read for them.

use std::time::Duration;

use serde_json::json;
use testkit::until_true;
use tokio::task::JoinHandle;

use super::fake::{Fault, World, group, instance, nodes, status};
use crate::{NodeName, ScaleError};

const ABCDE: [&str; 5] = ["a", "b", "c", "d", "e"];

type Deleting = JoinHandle<Result<(), ScaleError>>;

/// Begins a delete, and waits until one of its calls is held.
async fn held(world: &World, names: &[&str]) -> Deleting {
    let call = begin(world, nodes(names));
    world.api.held().await;
    call
}

fn begin(world: &World, nodes: Vec<NodeName>) -> Deleting {
    let scale = world.scale.clone();
    tokio::spawn(async move { scale.delete(group(), nodes).await })
}

/// Returns the number of calls that contain this text.
fn count(world: &World, call: &str) -> usize {
    world.api.calls().iter().filter(|it| it.contains(call)).count()
}

/// Waits until a condition holds.
async fn until(world: &World, what: impl Fn(&World) -> bool) {
    until_true("what the test waits for", || what(world)).await;
}

#[tokio::test]
async fn deletes_that_come_while_others_are_marked_are_lowered_with_them_without_a_read() {
    let world = World::new(5, &ABCDE);
    world.api.fault("PATCH machine a", Fault::Hold);
    let first = held(&world, &["a"]).await;
    let second = begin(&world, nodes(&["b", "c"]));
    until(&world, |world| world.api.marked() == ["b", "c"]).await;
    world.api.release();
    assert_eq!((first.await.unwrap(), second.await.unwrap()), (Ok(()), Ok(())));
    assert_eq!((world.api.replicas(), world.target_size()), (2, 2));
    assert_eq!(world.api.marked(), ["a", "b", "c"]);
    let calls = world.api.calls();
    assert_eq!(calls.iter().filter(|call| *call == "PATCH group").count(), 3, "two logs and one size: {calls:?}");
    assert_eq!(count(&world, "GET") + count(&world, "LIST"), 0, "{calls:?}");
}

#[tokio::test(start_paused = true)]
async fn deletes_that_come_just_after_others_are_marked_are_lowered_with_them() {
    let world = World::new(5, &ABCDE);
    let first = begin(&world, nodes(&["a"]));
    // The clock stands still while a task is ready.
    while world.api.marked() != ["a"] {
        tokio::task::yield_now().await;
    }
    for _ in 0..1_000 {
        tokio::task::yield_now().await;
    }
    assert_eq!(count(&world, "PATCH group"), 1, "a is logged and marked: {:?}", world.api.calls());
    let second = begin(&world, nodes(&["b", "c"]));
    assert_eq!((first.await.unwrap(), second.await.unwrap()), (Ok(()), Ok(())));
    assert_eq!((world.api.replicas(), world.api.marked()), (2, vec!["a".to_owned(), "b".to_owned(), "c".to_owned()]));
    let calls = world.api.calls();
    assert_eq!(count(&world, "PATCH group"), 3, "two logs and one size: {calls:?}");
    assert_eq!(count(&world, "GET") + count(&world, "LIST"), 0, "{calls:?}");
}

/// The calls of one caller may come a moment apart, and one log serves them all.
#[tokio::test(start_paused = true)]
async fn deletes_that_come_a_moment_apart_are_logged_together() {
    let world = World::new(5, &ABCDE);
    let first = begin(&world, nodes(&["a"]));
    for _ in 0..1_000 {
        tokio::task::yield_now().await;
    }
    assert_eq!(count(&world, "PATCH"), 0, "no time has passed: {:?}", world.api.calls());
    let second = begin(&world, nodes(&["b"]));
    assert_eq!((first.await.unwrap(), second.await.unwrap()), (Ok(()), Ok(())));
    let calls = world.api.calls();
    assert_eq!(count(&world, "PATCH group"), 2, "one log and one size: {calls:?}");
    assert_eq!((world.api.replicas(), world.api.marked()), (3, vec!["a".to_owned(), "b".to_owned()]));
}

#[tokio::test(start_paused = true)]
async fn deletes_that_come_at_the_last_moment_are_lowered_with_the_first() {
    let world = World::new(5, &ABCDE);
    world.api.fault("PATCH machine a", Fault::Hold);
    let first = held(&world, &["a"]).await;
    tokio::time::sleep(Duration::from_millis(498)).await;
    let second = begin(&world, nodes(&["b"]));
    tokio::time::sleep(Duration::from_millis(100)).await;
    world.api.release();
    assert_eq!((first.await.unwrap(), second.await.unwrap()), (Ok(()), Ok(())));
    assert_eq!(world.api.replicas(), 3);
}

#[tokio::test]
async fn the_first_request_lowers_the_size_even_if_joining_requests_fail() {
    let world = World::new(3, &["a", "b", "c"]);
    world.api.fault("PATCH machine a", Fault::Hold);
    let first = held(&world, &["a"]).await;
    let too_many = begin(&world, nodes(&["b", "c"]));
    let error = too_many.await.unwrap().unwrap_err();
    assert_eq!(error.code(), "failed_precondition", "the minimum is 1, and a was there first: {error}");
    world.api.release();
    first.await.unwrap().unwrap();
    assert_eq!((world.api.replicas(), world.api.marked()), (2, vec!["a".to_owned()]));
}

#[tokio::test]
async fn a_node_that_is_being_marked_is_named_again_and_lowers_the_size_once() {
    let world = World::new(5, &ABCDE);
    world.api.fault("PATCH machine a", Fault::Hold);
    let first = held(&world, &["a"]).await;
    let (again, other) = (begin(&world, nodes(&["a"])), begin(&world, nodes(&["a", "b"])));
    until(&world, |world| world.api.marked() == ["b"]).await;
    world.api.release();
    assert_eq!(count(&world, "PATCH machine a"), 1, "it was on its way");
    let answers = (first.await.unwrap(), again.await.unwrap(), other.await.unwrap());
    assert_eq!(answers, (Ok(()), Ok(()), Ok(())));
    assert_eq!(world.api.replicas(), 3);
}

#[tokio::test]
async fn an_increase_that_stands_between_is_not_overtaken() {
    let world = World::new(5, &ABCDE);
    world.api.fault("PATCH machine a", Fault::Hold);
    let first = held(&world, &["a"]).await;
    let more = tokio::spawn({
        let scale = world.scale.clone();
        async move { scale.increase(group(), 5).await }
    });
    tokio::task::yield_now().await;
    let last = begin(&world, nodes(&["b"]));
    tokio::task::yield_now().await;
    world.api.release();
    assert_eq!((first.await.unwrap(), more.await.unwrap(), last.await.unwrap()), (Ok(()), Ok(()), Ok(())));
    let calls = world.api.calls();
    let position = |call: &str| calls.iter().position(|it| it == call).unwrap();
    assert!(position("PATCH scale") < position("PATCH machine b"), "{calls:?}");
    assert_eq!(world.api.replicas(), 8);
}

#[tokio::test]
async fn nobody_joins_where_a_mark_has_failed() {
    let world = World::new(5, &ABCDE);
    world.api.fault("PATCH machine a", Fault::Answer(403, status(403, "forbidden")));
    world.api.fault("PATCH machine b", Fault::Hold);
    let first = held(&world, &["a", "b"]).await;
    // The refusal of a arrives before the answer for b.
    until(&world, |world| count(world, "PATCH machine a") == 1).await;
    let second = begin(&world, nodes(&["c"]));
    world.api.release();
    assert_eq!(first.await.unwrap().unwrap_err().code(), "permission_denied");
    second.await.unwrap().unwrap();
    assert_eq!((world.api.marked(), world.api.replicas()), (vec!["c".to_owned()], 4));
}

#[tokio::test]
async fn a_replica_without_a_machine_joins_and_lowers_the_size_by_itself() {
    let world = World::new(5, &["a", "b", "c"]);
    world.api.fault("PATCH machine a", Fault::Hold);
    let first = held(&world, &["a"]).await;
    let replica = begin(&world, instance("replica-MachineDeployment-team-a_workers-1"));
    tokio::task::yield_now().await;
    world.api.release();
    assert_eq!((first.await.unwrap(), replica.await.unwrap()), (Ok(()), Ok(())));
    assert_eq!(world.api.replicas(), 3);
}

/// The size that is lowered for b may be counted for a Machine that would replace it, so the earlier state of c can't
/// be trusted any more.
#[tokio::test]
async fn after_one_that_was_being_deleted_those_who_join_are_read() {
    let world = World::new(5, &ABCDE);
    world.api.begin_to_delete("b");
    world.watch();
    world.api.fault("PATCH machine b", Fault::Hold);
    let first = held(&world, &["b"]).await;
    let second = begin(&world, nodes(&["c"]));
    until(&world, |world| count(world, "GET machine c") == 1).await;
    world.api.release();
    assert_eq!((first.await.unwrap(), second.await.unwrap()), (Ok(()), Ok(())));
    assert_eq!(world.api.replicas(), 3);
}

#[tokio::test]
async fn a_size_that_somebody_changes_meanwhile_is_built_upon_by_all() {
    let world = World::new(5, &ABCDE);
    world.api.fault("PATCH machine a", Fault::Hold);
    let first = held(&world, &["a"]).await;
    world.api.change("machinedeployments", "workers", json!({"spec": {"replicas": 7}}));
    let second = begin(&world, nodes(&["b"]));
    until(&world, |world| world.api.marked() == ["b"]).await;
    world.api.release();
    assert_eq!((first.await.unwrap(), second.await.unwrap()), (Ok(()), Ok(())));
    assert_eq!(world.api.replicas(), 5);
}
