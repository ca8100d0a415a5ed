//! Deletes that arrive while others of their group are being deleted: they join them, and one smaller size is written
//! for all.

use std::time::Duration;

use serde_json::json;
use testkit::until_true;

use super::{
    Running, begin,
    fake::{Fault, World, group, instance, nodes, status},
};
use crate::{NamedNode, Scale};

const ABCDE: [&str; 5] = ["a", "b", "c", "d", "e"];

fn delete(world: &World, nodes: Vec<NamedNode>) -> Running {
    begin(world, |scale| async move { scale.delete(group(), nodes).await })
}

/// Begins a delete of `a`, and waits until its DELETE is held.
async fn held(world: &World) -> Running {
    let command = |scale: Scale| async move { scale.delete(group(), nodes(&["a"])).await };
    super::held(world, "DELETE machine a", Fault::Hold, command).await
}

fn count(world: &World, call: &str) -> usize {
    world.api.calls().iter().filter(|it| it.contains(call)).count()
}

async fn queued(world: &World, commands: usize) {
    until_true("the command waits", || world.scale.shared.lanes.waiting(&group()) == commands).await;
}

#[tokio::test]
async fn deletes_that_come_while_others_go_are_lowered_with_them() {
    let world = World::new(5, &ABCDE);
    let first = held(&world).await;
    let second = delete(&world, nodes(&["b", "c"]));
    queued(&world, 1).await;
    world.api.release();
    assert_eq!((first.await.unwrap(), second.await.unwrap()), (Ok(()), Ok(())));
    assert_eq!((world.api.replicas(), world.target_size(), world.api.deleting().len()), (2, 2, 3));
    assert_eq!((count(&world, "PATCH scale"), count(&world, "GET") + count(&world, "LIST")), (1, 0));
}

#[tokio::test]
async fn one_that_is_named_again_meanwhile_is_lowered_once() {
    let world = World::new(5, &ABCDE);
    let first = held(&world).await;
    let again = delete(&world, nodes(&["a", "b"]));
    queued(&world, 1).await;
    world.api.release();
    assert_eq!((first.await.unwrap(), again.await.unwrap()), (Ok(()), Ok(())));
    assert_eq!((world.api.replicas(), count(&world, "DELETE machine a")), (3, 1));
}

#[tokio::test]
async fn those_who_join_are_held_to_the_minimum() {
    let world = World::new(2, &["a", "b"]);
    let first = held(&world).await;
    let second = delete(&world, nodes(&["b"]));
    queued(&world, 1).await;
    world.api.release();
    first.await.unwrap().unwrap();
    assert_eq!(second.await.unwrap().unwrap_err().code(), "failed_precondition");
    assert_eq!((world.api.replicas(), world.api.deleting()), (1, vec!["a".to_owned()]));
}

#[tokio::test]
async fn an_increase_that_stands_between_is_not_overtaken() {
    let world = World::new(5, &ABCDE);
    let first = held(&world).await;
    let more = begin(&world, |scale| async move { scale.increase(group(), 5).await });
    queued(&world, 1).await;
    let last = delete(&world, nodes(&["b"]));
    queued(&world, 2).await;
    world.api.release();
    assert_eq!((first.await.unwrap(), more.await.unwrap(), last.await.unwrap()), (Ok(()), Ok(()), Ok(())));
    let calls = world.api.calls();
    let first_size = calls.iter().position(|it| it == "PATCH scale").unwrap();
    assert!(first_size < calls.iter().position(|it| it == "DELETE machine b").unwrap(), "{calls:?}");
    assert_eq!(world.api.replicas(), 8);
}

#[tokio::test]
async fn a_replica_without_a_machine_joins_and_lowers_the_size_by_itself() {
    let world = World::new(5, &["a", "b", "c"]);
    let first = held(&world).await;
    let replica = delete(&world, instance("replica-MachineDeployment-team-a_workers-1"));
    queued(&world, 1).await;
    world.api.release();
    assert_eq!((first.await.unwrap(), replica.await.unwrap()), (Ok(()), Ok(())));
    assert_eq!(world.api.replicas(), 3);
}

#[tokio::test]
async fn a_size_that_somebody_changes_meanwhile_is_built_upon_by_all() {
    let world = World::new(5, &ABCDE);
    let first = held(&world).await;
    world.api.change("machinedeployments", "workers", json!({"spec": {"replicas": 7}}));
    let second = delete(&world, nodes(&["b"]));
    queued(&world, 1).await;
    world.api.release();
    assert_eq!((first.await.unwrap(), second.await.unwrap()), (Ok(()), Ok(())));
    assert_eq!(world.api.replicas(), 5);
}

/// The Machines that are gone must not wait for the others for long: their places would be filled.
#[tokio::test(start_paused = true)]
async fn nobody_joins_after_half_a_second() {
    let world = World::new(5, &ABCDE);
    let first = held(&world).await;
    let second = delete(&world, nodes(&["b"]));
    queued(&world, 1).await;
    tokio::time::advance(Duration::from_millis(501)).await;
    world.api.release();
    assert_eq!((first.await.unwrap(), second.await.unwrap()), (Ok(()), Ok(())));
    assert_eq!((world.api.replicas(), count(&world, "PATCH scale")), (3, 2));
}

#[tokio::test]
async fn the_refusal_of_one_holds_up_none_of_those_who_join() {
    let world = World::new(5, &ABCDE);
    world.api.fault("DELETE machine a", Fault::HoldBut(400));
    let first = delete(&world, nodes(&["a", "b"]));
    world.api.held().await;
    let second = delete(&world, nodes(&["c"]));
    queued(&world, 1).await;
    world.api.fault("DELETE machine d", Fault::Answer(400, status(400, "no")));
    world.api.release();
    assert_eq!(first.await.unwrap().unwrap_err().code(), "unavailable");
    second.await.unwrap().unwrap();
    assert_eq!((world.api.deleting(), world.api.replicas()), (vec!["b".to_owned(), "c".to_owned()], 3));
}
