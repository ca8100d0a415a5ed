//! A Cluster among many that is excluded while a command runs: nothing more is written for it.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use super::{
    ABCD,
    fake::{Fault, LONG, Setup, World, group, nodes},
    held,
};
use crate::{MayWrite, Scale, ScaleError};

/// Builds the world of a Cluster that is served until it has left.
fn world(replicas: i32, machines: &[&str]) -> (World, Arc<AtomicBool>) {
    let has_left = Arc::<AtomicBool>::default();
    let left = Arc::clone(&has_left);
    let may_write = move || if left.load(Ordering::Relaxed) { Err("it was opted out".to_owned()) } else { Ok(()) };
    let tenant = Some(Arc::new(may_write) as Arc<dyn MayWrite>);
    (World::with(replicas, machines, &Setup { tenant, ..Setup::default() }), has_left)
}

fn is_untouched(world: &World) {
    assert_eq!((world.api.deleting(), world.api.replicas()), (vec![], 4));
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

/// Other groups of the Cluster have used up its writes, and Cluster Autoscaler gives the command up meanwhile.
#[tokio::test(start_paused = true)]
async fn a_command_whose_caller_leaves_before_its_turn_is_not_written() {
    let (world, _) = world(4, &ABCD);
    for _ in 0..20 {
        drop(world.scale.shared.api.tenancy().slot().await);
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

/// What is deleted already is replaced, as after an outage.
#[tokio::test]
async fn a_delete_that_was_accepted_before_an_opt_out_deletes_nothing() {
    let (world, has_left) = world(4, &ABCD);
    let delete = |scale: Scale| async move { scale.delete(group(), nodes(&["b", "d"])).await };
    let command = held(&world, "TRY scale", Fault::HoldAnswer, delete).await;
    has_left.store(true, Ordering::Relaxed);
    world.api.release();
    assert_eq!(command.await.unwrap(), denied());
    is_untouched_and_deletable(&world);
}

#[tokio::test]
async fn a_delete_whose_machines_go_during_an_opt_out_says_that_they_are_replaced() {
    let (world, has_left) = world(4, &ABCD);
    let delete = |scale: Scale| async move { scale.delete(group(), nodes(&["b"])).await };
    let command = held(&world, "DELETE machine b", Fault::HoldAnswer, delete).await;
    has_left.store(true, Ordering::Relaxed);
    world.api.release();
    let error = command.await.unwrap().unwrap_err();
    assert!(matches!(&error, ScaleError::Unavailable(why) if why.contains("Cluster API replaces it")), "{error:?}");
    assert_eq!((world.api.replicas(), world.api.deleting()), (4, vec!["b".to_owned()]));
}

#[tokio::test]
async fn a_size_that_was_accepted_before_an_opt_out_is_not_written_again() {
    let (world, has_left) = world(4, &ABCD);
    let increase = |scale: Scale| async move { scale.increase(group(), 1).await };
    let command = held(&world, "PATCH scale", Fault::HoldBut(409), increase).await;
    has_left.store(true, Ordering::Relaxed);
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
