//! Placeholders: replicas without a Machine, and those whose Machine is being deleted and has no Node any more. Their
//! deletion lowers the size and never removes another Machine.

use capi::DELETING;
use nodegroup::{DeletionLog, LogAnnotation as _};
use rstest::rstest;
use serde_json::json;

use super::fake::{Fault, World, group, instance, nodes, status};
use crate::NodeName;

const ABC: [&str; 3] = ["a", "b", "c"];

fn replicas(numbers: &[u32]) -> Vec<NodeName> {
    let name = |number| instance(&format!("replica-MachineDeployment-team-a_workers-{number}"));
    numbers.iter().flat_map(name).collect()
}

/// The removal of a mark with the old ticket may be in flight.
#[tokio::test]
async fn a_decrease_that_another_copy_took_back_is_logged_again_under_another_ticket() {
    let world = World::new(2, &["a"]);
    world.machine("x", &json!({}), &json!({}));
    let scale = world.scale.clone();
    let [first, second] =
        world.tickets_of_a_log_taken_back(async move { scale.decrease(group(), -1).await }, "PATCH machine x").await;
    assert_ne!(first, second);
    assert_eq!(world.api.replicas(), 1);
}

/// The log is then as it was before, so the tests of the write pass.
#[tokio::test]
async fn a_log_write_of_a_smaller_size_that_arrives_after_it_was_taken_back_is_of_another_ticket() {
    let world = World::new(2, &["a"]);
    world.machine("x", &json!({}), &json!({}));
    world.api.fault("PATCH group", Fault::Late);
    world.api.fault("PATCH machine x", Fault::HoldBut(403));
    let scale = world.scale.clone();
    let command = tokio::spawn(async move { scale.decrease(group(), -1).await });
    world.api.held().await;
    let marked_under = world.api.tickets();
    world.api.release();
    let error = command.await.unwrap().unwrap_err();
    assert_eq!((error.code(), world.api.log()), ("unavailable", vec![]), "{error}");
    world.api.arrive();
    assert_eq!(world.api.log(), ["x wanted soft"]);
    assert_ne!(world.api.tickets(), marked_under);
}

#[tokio::test]
async fn a_smaller_size_of_which_another_copy_has_lowered_a_part_is_not_refused_for_good() {
    let world = World::new(3, &["a"]);
    world.machine("x", &json!({}), &json!({}));
    world.machine("y", &json!({}), &json!({}));
    world.api.fault("PATCH machine y", Fault::HoldBut(403));
    let scale = world.scale.clone();
    let command = tokio::spawn(async move { scale.decrease(group(), -2).await });
    world.api.held().await;
    let object = world.api.object("machinedeployments", "workers").unwrap();
    let log = DeletionLog::parse(object["metadata"]["annotations"][DELETING].as_str()).unwrap();
    world.api.set_log(&log.lowered(|entry| entry.name == "x").print().unwrap().unwrap());
    world.resize(2);
    world.api.release();
    let error = command.await.unwrap().unwrap_err();
    assert_eq!((error.code(), world.api.log()), ("unavailable", vec!["x lowered soft".to_owned()]), "{error}");
}

#[tokio::test]
async fn a_repeat_whose_size_write_was_done_is_a_success() {
    let world = World::new(5, &ABC);
    world.api.fault("PATCH group", Fault::CutAfter);
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
    world.api.fault("PATCH group", Fault::SizeIs(written));
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

#[tokio::test]
async fn one_that_becomes_a_machine_before_the_size_is_written_again_is_refused() {
    let world = World::new(4, &ABC);
    world.api.fault("PATCH group", Fault::Hold);
    let scale = world.scale.clone();
    let delete = tokio::spawn(async move { scale.delete(group(), replicas(&[0])).await });
    world.api.held().await;
    // Somebody asks for one more, and both are created.
    world.api.change("machinedeployments", "workers", json!({"spec": {"replicas": 5}}));
    for name in ["d", "e"] {
        world.machine_unseen(name, &json!({}), &json!({}));
    }
    world.api.release();
    let error = delete.await.unwrap().unwrap_err();
    assert_eq!(error.code(), "failed_precondition", "{error}");
    assert_eq!(world.api.replicas(), 5);
}

/// Builds a group with a Machine that hangs in deletion: its Node is gone, and the size still counts it.
fn hanging() -> World {
    let world = World::new(3, &ABC);
    for name in ["a", "b"] {
        world.node(name, Some(&format!("cloud:///{name}")), &json!({}));
    }
    world.api.begin_to_delete("c");
    world.watch();
    world
}

#[tokio::test]
async fn a_replica_whose_machine_hangs_in_deletion_is_given_up_by_its_placeholder() {
    let world = hanging();
    world.scale.delete(group(), replicas(&[0])).await.unwrap();
    assert_eq!((world.api.replicas(), world.api.log()), (2, vec!["c lowered".to_owned()]));
    assert_eq!(world.api.marked(), ["c"]);
}

#[tokio::test]
async fn its_placeholder_named_again_lowers_nothing_more() {
    let world = hanging();
    let other = world.another_copy();
    world.scale.delete(group(), replicas(&[0])).await.unwrap();
    world.scale.delete(group(), replicas(&[0])).await.unwrap();
    other.scale.delete(group(), replicas(&[0])).await.unwrap();
    assert_eq!(world.api.replicas(), 2, "the log shows every copy that it was lowered");
}

#[tokio::test]
async fn while_its_node_is_there_it_is_no_placeholder() {
    let world = hanging();
    world.node("c", Some("cloud:///c"), &json!({}));
    let error = world.scale.delete(group(), replicas(&[0])).await.unwrap_err();
    assert_eq!(error.code(), "failed_precondition", "{error}");
    assert_eq!(world.api.replicas(), 3);
}

#[tokio::test(start_paused = true)]
async fn one_that_comes_after_a_size_write_without_an_answer_is_not_refused_for_good() {
    let world = World::new(4, &ABC);
    world.api.fault("PATCH group", Fault::CutBefore);
    world.api.fault("GET group", Fault::Hold);
    let scale = world.scale.clone();
    let call = tokio::spawn(async move { scale.delete(group(), replicas(&[0])).await });
    world.api.held().await;
    world.machine_unseen("d", &json!({}), &json!({}));
    world.api.release();
    let error = call.await.unwrap().unwrap_err();
    assert_eq!(error.code(), "unavailable", "{error}");
    assert!(error.to_string().contains("isn't known whether"), "{error}");
}

#[tokio::test]
async fn a_request_of_which_only_a_placeholder_fails_is_not_refused_for_good() {
    let world = World::new(4, &ABC);
    world.api.fault("PATCH machine a", Fault::Hold);
    let scale = world.scale.clone();
    let both = [nodes(&["a"]), replicas(&[0])].concat();
    let delete = tokio::spawn(async move { scale.delete(group(), both).await });
    world.api.held().await;
    world.machine_unseen("d", &json!({}), &json!({}));
    world.api.release();
    let error = delete.await.unwrap().unwrap_err();
    assert_eq!(error.code(), "unavailable", "{error}");
    assert_eq!((world.api.replicas(), world.api.marked()), (3, vec!["a".to_owned()]));
}

#[tokio::test]
async fn placeholders_and_nodes_of_one_request_go_together() {
    let world = World::new(6, &ABC);
    for name in ["a", "b"] {
        world.node(name, Some(&format!("cloud:///{name}")), &json!({}));
    }
    world.api.begin_to_delete("c");
    world.watch();
    let named = [nodes(&["a"]), replicas(&[0, 1])].concat();
    world.scale.delete(group(), named).await.unwrap();
    assert_eq!(world.api.replicas(), 3);
    assert_eq!(world.api.marked(), ["a", "c"]);
}

#[tokio::test]
async fn the_minimum_holds_for_placeholders() {
    let world = World::new(2, &["a"]);
    world.set_min(2);
    let error = world.scale.delete(group(), replicas(&[0])).await.unwrap_err();
    assert_eq!((error.code(), world.api.replicas()), ("failed_precondition", 2), "{error}");
}

#[tokio::test]
async fn a_decrease_gives_up_a_replica_whose_machine_hangs_in_deletion() {
    let world = hanging();
    world.scale.decrease(group(), -1).await.unwrap();
    assert_eq!(world.api.replicas(), 2);
}

#[rstest]
#[case::down_to_the_minimum(5, 2, 2)]
#[case::at_the_minimum(2, 2, 2)]
#[case::below_the_minimum_already(2, 3, 2)]
#[tokio::test]
async fn a_decrease_stops_at_the_minimum(#[case] size: i32, #[case] min: i32, #[case] end: i32) {
    let world = World::new(size, &["a"]);
    world.machine("b", &json!({}), &json!({}));
    world.set_min(min);
    world.scale.decrease(group(), -5).await.unwrap();
    assert_eq!(world.api.replicas(), end);
}

/// A webhook refuses one Machine of a batch.
#[tokio::test]
async fn a_machine_whose_mark_is_refused_fails_only_the_requests_that_name_it() {
    let world = World::new(6, &["a", "b", "c", "d", "e", "f"]);
    let refusal = status(403, "admission webhook \"guard\" denied the request: keep b");
    world.api.fault("PATCH machine b", Fault::Answer(403, refusal));
    let scale = &world.scale;
    let (a, be, cd, e) = tokio::join!(
        scale.delete(group(), nodes(&["a"])),
        scale.delete(group(), nodes(&["b", "e"])),
        scale.delete(group(), nodes(&["c", "d"])),
        scale.delete(group(), nodes(&["e"])),
    );
    assert_eq!((a, cd, e), (Ok(()), Ok(()), Ok(())));
    let error = be.unwrap_err();
    assert_eq!(error.code(), "unavailable", "e goes, since another request names it: {error}");
    assert!(error.to_string().contains("keep b"), "{error}");
    assert_eq!(world.api.replicas(), 2);
    assert_eq!(world.api.marked(), ["a", "c", "d", "e"]);
    assert_eq!(world.api.log().len(), 4);
}

/// A request of the same batch fails after some time, so the Machines are counted anew.
#[tokio::test]
async fn one_that_becomes_a_machine_while_another_request_fails_is_refused() {
    let world = World::new(4, &ABC);
    world.api.fault("PATCH machine a", Fault::Answer(403, status(403, "forbidden")));
    world.api.fault("GET machine a", Fault::Hold);
    let (first, second) = (world.scale.clone(), world.scale.clone());
    let deletes = tokio::spawn(async move {
        tokio::join!(first.delete(group(), nodes(&["a"])), second.delete(group(), replicas(&[0])))
    });
    world.api.held().await;
    world.machine_unseen("d", &json!({"nodeRef": {"name": "d"}}), &json!({}));
    world.api.release();
    let (a, replica) = deletes.await.unwrap();
    assert_eq!((a.unwrap_err().code(), replica.unwrap_err().code()), ("permission_denied", "failed_precondition"));
    assert_eq!(world.api.replicas(), 4);
}

#[rstest]
#[case::by_a_right("PATCH machine x", 403)]
#[case::by_a_webhook("PATCH machine x", 400)]
#[tokio::test(start_paused = true)]
async fn a_smaller_target_size_of_which_only_the_placeholders_are_done_is_not_refused_for_good(
    #[case] call: &'static str,
    #[case] code: u16,
) {
    let world = World::new(4, &["a"]);
    world.machine("x", &json!({}), &json!({}));
    world.watch();
    for _ in 0..20 {
        world.api.fault(call, Fault::Answer(code, status(code, "no")));
    }
    let error = world.scale.decrease(group(), -3).await.unwrap_err();
    assert_eq!((error.code(), world.api.replicas()), ("unavailable", 2), "{error}");
    assert!(world.api.log().is_empty() && world.api.marked().is_empty(), "{:?}", world.api.log());
}
