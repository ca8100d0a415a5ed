//! A Cluster among many that is excluded while a command runs: nothing more is written for it but what takes back what
//! was logged and marked.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use rstest::rstest;
use serde_json::json;
use tokio::task::JoinHandle;

use super::{
    ABCD,
    fake::{Fault, LONG, World, group, nodes},
};
use crate::{MayWrite, ScaleError};

/// A Cluster that is served until it is opted out.
#[derive(Default)]
struct Cluster {
    has_left: AtomicBool,
}

impl Cluster {
    fn opt_out(&self) {
        self.has_left.store(true, Ordering::Relaxed);
    }
}

impl MayWrite for Cluster {
    fn may_write(&self) -> Result<(), String> {
        if self.has_left.load(Ordering::Relaxed) { Err("it was opted out".to_owned()) } else { Ok(()) }
    }
}

fn world(replicas: i32, machines: &[&str]) -> (World, Arc<Cluster>) {
    let cluster = Arc::<Cluster>::default();
    (World::of_tenant(replicas, machines, Arc::clone(&cluster) as Arc<_>), cluster)
}

fn is_untouched(world: &World) {
    assert_eq!((world.api.marked(), world.api.log(), world.api.replicas()), (vec![], vec![], 4));
}

/// The API server was never asked for what was held back here, so it has refused nothing.
fn is_untouched_and_deletable(world: &World) {
    is_untouched(world);
    let members = world.index.members(&group());
    assert!(members.iter().all(|member| !member.undeletable), "the API server has refused no deletion");
}

fn denied() -> Result<(), ScaleError> {
    Err(ScaleError::PermissionDenied("MachineDeployment/team-a/workers: it was opted out".to_owned()))
}

/// Begins to delete Nodes, and waits until the API holds a call.
async fn held_delete(world: &World, names: &[&str]) -> JoinHandle<Result<(), ScaleError>> {
    let (scale, nodes) = (world.scale.clone(), nodes(names));
    let command = tokio::spawn(async move { scale.delete(group(), nodes).await });
    world.api.held().await;
    command
}

/// Other groups of the Cluster have used up its writes, and Cluster Autoscaler gives the command up meanwhile.
#[tokio::test(start_paused = true)]
async fn a_command_whose_caller_leaves_before_its_turn_is_not_written() {
    let (world, _) = world(4, &ABCD);
    for _ in 0..20 {
        drop(world.scale.shared.api.tenancy().turn().await);
    }
    for command in [1, 0] {
        let call = async {
            match command {
                0 => world.scale.increase(group(), 1).await,
                _ => world.scale.delete(group(), nodes(&["b"])).await,
            }
        };
        tokio::time::timeout(Duration::from_millis(20), call).await.unwrap_err();
    }
    world.scale.drain(LONG).await.unwrap();
    is_untouched_and_deletable(&world);
    assert!(world.api.calls().iter().all(|call| !call.starts_with("PATCH")), "{:?}", world.api.calls());
}

#[tokio::test]
async fn a_cluster_that_is_served_is_written_as_any() {
    let (world, _) = world(4, &ABCD);
    world.scale.delete(group(), nodes(&["b", "d"])).await.unwrap();
    world.scale.increase(group(), 3).await.unwrap();
    assert_eq!((world.api.marked(), world.api.replicas()), (vec!["b".to_owned(), "d".to_owned()], 5));
}

/// The opt-out comes during the log write, or during that of the mark of one of two Machines.
#[rstest]
#[case::while_it_is_logged("PATCH group")]
#[case::while_it_is_marked("PATCH machine b")]
#[tokio::test]
async fn a_delete_that_was_accepted_before_an_opt_out_is_taken_back(#[case] call: &'static str) {
    let (world, cluster) = world(4, &ABCD);
    world.api.fault(call, Fault::HoldAnswer);
    let command = held_delete(&world, &["b", "d"]).await;
    assert_eq!(world.api.log(), ["b wanted", "d wanted"]);
    cluster.opt_out();
    world.api.release();
    assert_eq!(command.await.unwrap(), denied());
    is_untouched_and_deletable(&world);
}

/// The size is written: what goes for it keeps its mark, or any other Machine would go.
#[tokio::test]
async fn a_delete_whose_size_is_written_during_an_opt_out_was_done() {
    let (world, cluster) = world(4, &ABCD);
    world.api.fault("PATCH machine b", Fault::Hold);
    let command = held_delete(&world, &["b"]).await;
    world.api.fault("PATCH group", Fault::HoldAnswer);
    world.api.release();
    world.api.held().await;
    cluster.opt_out();
    world.api.release();
    assert_eq!(command.await.unwrap(), Ok(()));
    assert_eq!(
        (world.api.marked(), world.api.log(), world.api.replicas()),
        (vec!["b".to_owned()], vec!["b lowered".to_owned()], 3)
    );
}

/// The ticket in the log shows that the write was done.
#[tokio::test]
async fn a_log_write_without_an_answer_is_looked_for_and_taken_back() {
    let (world, cluster) = world(4, &ABCD);
    world.api.fault("PATCH group", Fault::CutAfter);
    world.api.fault("GET group", Fault::Hold);
    let command = held_delete(&world, &["b"]).await;
    cluster.opt_out();
    world.api.release();
    command.await.unwrap().unwrap_err();
    is_untouched(&world);
}

/// A webhook is down at the opt-out.
#[tokio::test(start_paused = true)]
async fn a_deletion_that_cant_be_taken_back_at_an_opt_out_is_taken_back_later() {
    let (world, cluster) = world(4, &ABCD);
    world.api.fault("PATCH machine b", Fault::HoldAnswer);
    let command = held_delete(&world, &["b"]).await;
    cluster.opt_out();
    world.scale.leave();
    for _ in 0..3 {
        world.api.fault("PATCH group", Fault::Answer(403, json!({"message": "denied"})));
    }
    world.api.release();
    let answer = command.await.unwrap();
    assert!(matches!(answer, Err(ScaleError::Unavailable(_))), "{answer:?}");
    assert_eq!((world.api.marked(), world.api.log()), (vec!["b".to_owned()], vec!["b wanted".to_owned()]));
    tokio::time::sleep(Duration::from_secs(60)).await;
    is_untouched(&world);
    let calls = world.api.calls().len();
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert_eq!(world.api.calls().len(), calls, "nothing is left to do");
}

/// The program ended before it could: what is there is taken for another copy's, as after any restart.
#[tokio::test(start_paused = true)]
async fn a_deletion_that_was_never_taken_back_goes_on_after_the_next_opt_in() {
    let (world, cluster) = world(4, &ABCD);
    world.api.fault("PATCH machine b", Fault::HoldAnswer);
    let command = held_delete(&world, &["b"]).await;
    cluster.opt_out();
    world.scale.stop();
    world.api.fault("PATCH group", Fault::Answer(403, json!({"message": "denied"})));
    world.api.release();
    command.await.unwrap().unwrap_err();
    let next = world.another_copy();
    next.watch();
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!((world.api.marked(), world.api.replicas()), (vec!["b".to_owned()], 3));
}

#[tokio::test]
async fn a_size_that_was_accepted_before_an_opt_out_is_not_written_again() {
    let (world, cluster) = world(4, &ABCD);
    world.api.fault("PATCH scale", Fault::HoldBut(409));
    let scale = world.scale.clone();
    let command = tokio::spawn(async move { scale.increase(group(), 1).await });
    world.api.held().await;
    cluster.opt_out();
    world.api.release();
    assert_eq!(command.await.unwrap(), denied());
    is_untouched(&world);
    assert_eq!(world.scale.decrease(group(), -1).await, Ok(()), "there is nothing to decrease");
    let writes = || world.api.calls().into_iter().filter(|call| call.starts_with("PATCH")).count();
    let before = writes();
    assert_eq!(world.scale.increase(group(), 1).await, denied());
    assert_eq!(world.scale.delete(group(), nodes(&["a"])).await, denied());
    assert_eq!(writes(), before, "not even tried");
}
