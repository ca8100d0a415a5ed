//! Callers that leave: a command ends with its caller until its first write, however long its reads take.

use rstest::rstest;
use serde_json::json;

use super::{
    ABCD,
    fake::{Fault, World, group, instance, nodes},
    held, leave,
};
use crate::{NamedNode, Scale};

fn nothing(_: &World) {}

/// Cluster Autoscaler, which has given up, has made its Node schedulable again.
fn b_has_changed(world: &World) {
    world.api.change("machines", "b", json!({"metadata": {"labels": {"x": "y"}}}));
}

fn pending(world: &World) {
    world.machine("b", &json!({"phase": "Provisioned"}), &json!({}));
}

/// The caller leaves while this call of its delete is held, or of its decrease where nothing is named. At the minimum a
/// Machine that never joined is replaced by its DELETE alone.
#[rstest]
#[case::while_the_size_is_tried(5, &ABCD, nothing, "TRY scale", nodes(&["b"]), 5, &[])]
#[case::while_machines_are_counted(
    5, &ABCD, nothing, "LIST machines", instance("replica-MachineDeployment-team-a_workers-0"), 5, &[]
)]
#[case::one_that_has_changed_stays(4, &ABCD, b_has_changed, "DELETE machine b", nodes(&["b"]), 4, &[])]
#[case::one_is_not_replaced(1, &[], pending, "GET machine b", instance("pending-machine-team-a_b"), 1, &[])]
#[case::while_a_decrease_reads(4, &["a"], nothing, "LIST machines", vec![], 4, &[])]
#[case::while_the_size_of_a_decrease_is_tried(2, &["a"], pending, "TRY scale", vec![], 2, &[])]
#[case::what_has_begun_runs_to_its_end(4, &ABCD, nothing, "DELETE machine b", nodes(&["b"]), 3, &["b"])]
#[case::while_the_size_is_lowered(4, &ABCD, nothing, "PATCH scale", nodes(&["b"]), 3, &["b"])]
#[tokio::test]
async fn a_command_whose_caller_leaves_writes_nothing_unless_it_has_begun(
    #[case] size: i32,
    #[case] machines: &[&str],
    #[case] before: fn(&World),
    #[case] call: &'static str,
    #[case] named: Vec<NamedNode>,
    #[case] end: i32,
    #[case] deleting: &[&str],
) {
    let world = World::new(size, machines);
    before(&world);
    let command = |scale: Scale| async move {
        if named.is_empty() { scale.decrease(group(), -1).await } else { scale.delete(group(), named).await }
    };
    let command = held(&world, call, Fault::Hold, command).await;
    leave(&world, command, async || {}).await;
    assert_eq!((world.api.replicas(), world.target_size()), (end, end));
    assert_eq!(world.api.deleting(), deleting);
}
