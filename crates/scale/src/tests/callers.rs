//! Callers that leave: a command ends with its caller until its first write, however long its reads take.

use rstest::rstest;
use serde_json::json;

use super::{
    ABCD,
    fake::{Fault, LONG, World, group, instance, nodes, status},
};
use crate::Scale;

/// Builds a world of two Machines with a Node and one without, `c`.
fn world(replicas: i32) -> World {
    let world = World::new(replicas, &["a", "b"]);
    world.machine("c", &json!({}), &json!({}));
    world
}

/// Drops the caller of a command while a read is held, and waits for the end of the command.
async fn leave_while_it_reads<T>(world: &World, read: &'static str, command: impl AsyncFn(Scale) -> T, now: impl Fn()) {
    world.api.fault(read, Fault::Hold);
    tokio::select! {
        biased;
        _ = command(world.scale.clone()) => panic!("it waits for the read"),
        () = world.api.held() => {}
    }
    now();
    world.api.release();
    world.scale.drain(LONG).await.unwrap();
}

async fn lower(scale: Scale) {
    let _ = scale.decrease(group(), -1).await;
}

fn is_untouched(world: &World, replicas: i32) {
    let writes: Vec<_> = world.api.calls().into_iter().filter(|call| call.starts_with("PATCH")).collect();
    assert!(writes.is_empty(), "{writes:?}");
    assert_eq!((world.api.replicas(), world.api.log(), world.api.marked()), (replicas, vec![], vec![]));
}

#[tokio::test]
async fn a_decrease_whose_caller_leaves_while_a_machine_is_read_writes_nothing() {
    let world = world(3);
    leave_while_it_reads(&world, "GET machine c", lower, || ()).await;
    is_untouched(&world, 3);
}

/// The chosen Machine is gone before the command reads it, and a replica without a Machine remains.
#[tokio::test]
async fn a_decrease_whose_machine_goes_and_whose_caller_leaves_writes_nothing() {
    let world = world(3);
    let gone = || world.api.remove("c");
    leave_while_it_reads(&world, "GET machine c", lower, gone).await;
    is_untouched(&world, 3);
}

#[rstest]
#[case::a_machine("pending-machine-team-a_c", "GET machine c")]
#[case::a_placeholder("replica-MachineDeployment-team-a_workers-0", "LIST machines")]
#[tokio::test]
async fn a_delete_whose_caller_leaves_while_it_reads_writes_nothing(#[case] id: &str, #[case] read: &'static str) {
    let world = world(4);
    let delete = async |scale: Scale| scale.delete(group(), instance(id)).await;
    leave_while_it_reads(&world, read, delete, || ()).await;
    is_untouched(&world, 4);
}

/// A Machine of the request is gone, so nothing is written for it, and a replica without a Machine remains.
#[tokio::test]
async fn a_delete_of_a_machine_that_is_gone_and_of_a_placeholder_ends_with_its_caller() {
    let world = world(4);
    world.api.remove("b");
    let named = [nodes(&["b"]), instance("replica-MachineDeployment-team-a_workers-0")].concat();
    // The list for the decision is answered; the one for the size write isn't.
    world.api.fault("LIST machines", Fault::SizeIs(4));
    let delete = async |scale: Scale| scale.delete(group(), named.clone()).await;
    leave_while_it_reads(&world, "LIST machines", delete, || ()).await;
    is_untouched(&world, 4);
}

/// A failed read has written nothing, so the caller may still leave after it.
#[tokio::test]
async fn a_decrease_whose_read_had_no_answer_ends_with_its_caller() {
    let world = world(3);
    world.api.fault("GET machine c", Fault::CutBefore);
    leave_while_it_reads(&world, "GET group", lower, || ()).await;
    is_untouched(&world, 3);
}

/// The answer to the log write was lost, so the command goes on to a known result.
#[tokio::test]
async fn a_decrease_that_may_have_written_goes_on() {
    let world = world(3);
    world.api.fault("PATCH group", Fault::CutAfter);
    leave_while_it_reads(&world, "GET group", lower, || ()).await;
    assert_eq!((world.api.replicas(), world.api.marked()), (2, vec!["c".to_owned()]));
}

/// Aborts a caller while a call of its command is held, and waits for the end of the command.
async fn delete_and_go_away(world: &World) {
    let call = tokio::spawn({
        let scale = world.scale.clone();
        async move { scale.delete(group(), nodes(&["b"])).await }
    });
    world.api.held().await;
    call.abort();
    assert!(call.await.unwrap_err().is_cancelled());
    world.api.release();
    world.scale.drain(LONG).await.unwrap();
}

#[tokio::test]
async fn a_caller_that_goes_away_before_anything_is_written_ends_the_command() {
    let world = World::new(4, &ABCD);
    world.scale.increase(group(), 1).await.unwrap();
    world.api.fault("GET machine b", Fault::Hold);
    // The log write fails, and the second attempt finds no caller.
    world.api.fault("PATCH group", Fault::Answer(409, status(409, "the object has been modified")));
    delete_and_go_away(&world).await;
    assert_eq!((world.api.marked(), world.api.log(), world.api.replicas()), (vec![], vec![], 5));
}

#[rstest]
#[case::while_it_is_logged("PATCH group")]
#[case::while_it_is_marked("PATCH machine b")]
#[tokio::test]
async fn a_caller_that_goes_away_after_the_first_write_leaves_a_command_that_runs_to_its_end(
    #[case] call: &'static str,
) {
    let world = World::new(4, &ABCD);
    world.api.fault(call, Fault::Hold);
    delete_and_go_away(&world).await;
    assert_eq!(world.api.marked(), ["b"]);
    assert_eq!(world.api.replicas(), 3);
    assert_eq!(world.target_size(), 3);
}
