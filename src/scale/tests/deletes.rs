//! Deletes: which Machines are marked, by how much the size is lowered, and what a fault leaves behind.

use std::time::Duration;

use rstest::rstest;
use serde_json::json;

use super::fake::{Fault, LONG, World, group, instance, nodes, status};
use crate::scale::ScaleError;

#[tokio::test]
async fn a_delete_marks_the_named_machines_and_lowers_the_size_by_as_many() {
    let world = World::new(4, &["a", "b", "c", "d"]);
    world.scale.delete(group(), nodes(&["b", "d"])).await.unwrap();
    assert_eq!(world.api.marked(), ["b", "d"]);
    assert_eq!(world.api.replicas(), 2);
    assert_eq!(world.target_size(), 2);
    let calls = world.api.calls();
    assert_eq!(calls.last().map(String::as_str), Some("PATCH scale"), "the marks come first: {calls:?}");
    assert_eq!(calls.len(), 3);
    assert!(world.api.mark_of("b").unwrap().starts_with("capi-autoscaler-provider 20"), "whose mark, and when");
}

#[tokio::test]
async fn a_node_named_twice_counts_once() {
    let world = World::new(4, &["a", "b", "c", "d"]);
    world.scale.delete(group(), nodes(&["b", "b"])).await.unwrap();
    assert_eq!(world.api.replicas(), 3);
}

#[tokio::test]
async fn an_accepted_delete_repeated_lowers_nothing_more() {
    let world = World::new(4, &["a", "b", "c", "d"]);
    world.scale.delete(group(), nodes(&["b"])).await.unwrap();
    world.scale.delete(group(), nodes(&["b"])).await.unwrap();
    assert_eq!(world.api.replicas(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_did_not_go_in_time_is_deleted_when_it_is_named_again() {
    let world = World::new(4, &["a", "b", "c", "d"]);
    world.scale.delete(group(), nodes(&["b"])).await.unwrap();
    tokio::time::advance(Duration::from_secs(301)).await;
    world.scale.delete(group(), nodes(&["b"])).await.unwrap();
    assert_eq!(world.api.replicas(), 2);
}

#[tokio::test]
async fn an_accepted_instance_of_a_machine_pool_named_again_lowers_nothing_while_it_is_listed() {
    let world = World::new(1, &[]);
    let pool = world.pool(3, &["cloud:///a", "cloud:///b", "cloud:///c"]);
    for names in [["a"], ["a"], ["b"]] {
        world.scale.delete(pool.clone(), nodes(&names)).await.unwrap();
    }
    assert_eq!(world.api.replicas(), 1);
    world.pool(3, &["cloud:///b", "cloud:///c", "cloud:///d"]);
    let error = world.scale.delete(pool.clone(), nodes(&["a"])).await.unwrap_err();
    assert_eq!(error.code(), "not_found", "it is gone: {error}");
    world.pool(3, &["cloud:///a", "cloud:///c", "cloud:///d"]);
    world.scale.delete(pool, nodes(&["a"])).await.unwrap();
    assert_eq!(world.api.replicas(), 2, "it came anew");
}

#[tokio::test]
async fn a_machine_that_is_going_already_is_a_success_that_lowers_nothing() {
    let world = World::new(3, &["a", "b", "c"]);
    world.machine("b", &json!({"nodeRef": {"name": "b"}}), &json!({"deletionTimestamp": "2026-01-01T00:00:00Z"}));
    world.scale.delete(group(), nodes(&["b"])).await.unwrap();
    assert!(world.api.calls().is_empty());
}

#[tokio::test]
async fn deletes_of_one_node_each_at_once_lower_the_size_by_all_of_them() {
    let names = ["a", "b", "c", "d", "e", "f", "g", "h"];
    let world = World::new(8, &names);
    let deletes = names[..6].iter().map(|name| world.scale.delete(group(), nodes(&[name])));
    for result in futures::future::join_all(deletes).await {
        result.unwrap();
    }
    assert_eq!(world.api.replicas(), 2);
    assert_eq!(world.api.marked(), &names[..6]);
}

#[rstest]
#[case::below_min(nodes(&["a", "b"]), "failed_precondition")]
#[case::unknown_node(nodes(&["a", "z"]), "not_found")]
#[case::replicas_that_are_none(instance("replica-MachineDeployment-team-a_workers-0"), "failed_precondition")]
#[case::a_pending_one_that_has_joined(instance("pending-machine-team-a_a"), "failed_precondition")]
#[tokio::test]
async fn a_wrong_delete_writes_nothing(#[case] named: Vec<crate::scale::NodeName>, #[case] code: &str) {
    let world = World::new(2, &["a", "b"]);
    let error = world.scale.delete(group(), named).await.unwrap_err();
    assert_eq!(error.code(), code, "{error}");
    assert!(world.api.calls().is_empty());
}

#[tokio::test]
async fn a_node_of_another_group_refuses_the_request_and_is_named() {
    let world = World::new(2, &["a", "b"]);
    let foreign = instance("replica-MachineSet-team-a_workers-1-0");
    let error = world.scale.delete(group(), foreign).await.unwrap_err();
    assert!(!error.to_string().is_empty() && world.api.calls().is_empty(), "{error}");
    assert!(error.to_string().contains("replica-MachineSet-team-a_workers-1-0"), "{error}");
}

#[tokio::test]
async fn a_replica_without_a_machine_only_lowers_the_size() {
    let world = World::new(4, &["a", "b"]);
    world.scale.delete(group(), instance("replica-MachineDeployment-team-a_workers-1")).await.unwrap();
    assert_eq!(world.api.replicas(), 3);
    assert_eq!(world.api.calls(), ["PATCH scale"]);
}

#[tokio::test]
async fn a_machine_without_a_node_is_deleted_by_its_placeholder() {
    let world = World::new(3, &["a", "b"]);
    world.machine("c", &json!({}), &json!({}));
    world.scale.delete(group(), instance("pending-machine-team-a_c")).await.unwrap();
    assert_eq!(world.api.marked(), ["c"]);
    assert_eq!(world.api.replicas(), 2);
}

#[rstest]
#[case::refused_by_a_webhook(Fault::Answer(400, status(400, "denied")))]
#[case::forbidden(Fault::Answer(403, status(403, "forbidden")))]
#[case::size_changed_so_that_min_is_passed(Fault::SizeIs(2))]
#[tokio::test]
async fn a_size_write_that_is_refused_takes_the_marks_back(#[case] fault: Fault) {
    let world = World::new(4, &["a", "b", "c", "d"]);
    world.api.fault("PATCH scale", fault);
    world.scale.delete(group(), nodes(&["b", "d"])).await.unwrap_err();
    assert!(world.api.marked().is_empty());
}

#[tokio::test]
async fn marks_stay_while_it_is_not_known_whether_the_size_was_written() {
    let world = World::new(4, &["a", "b", "c", "d"]);
    world.api.fault("PATCH scale", Fault::CutAfter);
    for _ in 0..5 {
        world.api.fault("GET scale", Fault::Answer(500, status(500, "etcd")));
    }
    let error = world.scale.delete(group(), nodes(&["b"])).await.unwrap_err();
    assert_eq!(error.code(), "unavailable", "{error}");
    assert_eq!(world.api.replicas(), 3);
    assert_eq!(world.api.marked(), ["b"], "else the MachineSet would take another one");
}

#[tokio::test]
async fn a_refusal_after_a_lost_answer_takes_the_marks_back() {
    let world = World::new(4, &["a", "b", "c", "d"]);
    world.api.fault("PATCH scale", Fault::CutBefore);
    world.api.fault("PATCH scale", Fault::Answer(422, status(422, "spec.replicas: too few")));
    let error = world.scale.delete(group(), nodes(&["b"])).await.unwrap_err();
    assert_eq!(error.code(), "failed_precondition", "{error}");
    assert!(world.api.marked().is_empty());
}

#[rstest]
#[case::forbidden(Fault::Answer(403, status(403, "forbidden")), "permission_denied")]
#[case::gone(Fault::Answer(404, status(404, "not found")), "not_found")]
#[case::cut_after_it_was_done(Fault::CutAfter, "unavailable")]
#[tokio::test]
async fn a_mark_that_fails_takes_the_others_back_and_writes_no_size(#[case] fault: Fault, #[case] code: &str) {
    let world = World::new(4, &["a", "b", "c", "d"]);
    world.api.fault("PATCH machine b", fault);
    let error = world.scale.delete(group(), nodes(&["a", "b", "c"])).await.unwrap_err();
    assert_eq!(error.code(), code, "{error}");
    assert!(world.api.marked().is_empty());
    assert_eq!(world.api.replicas(), 4);
}

#[tokio::test]
async fn a_mark_that_somebody_else_set_is_not_taken_back() {
    let world = World::new(4, &["a", "b", "c", "d"]);
    let marked = json!({"annotations": {"cluster.x-k8s.io/delete-machine": "by hand"}});
    world.machine("b", &json!({"nodeRef": {"name": "b"}}), &marked);
    world.api.fault("PATCH scale", Fault::Answer(400, status(400, "denied")));
    world.scale.delete(group(), nodes(&["b", "c"])).await.unwrap_err();
    assert_eq!(world.api.marked(), ["b"]);
}

/// A caller that goes away while a call of its command is held, and the command's end.
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
async fn a_caller_that_goes_away_before_the_size_write_ends_the_command_and_its_marks() {
    let world = World::new(4, &["a", "b", "c", "d"]);
    world.api.fault("PATCH machine b", Fault::Hold);
    delete_and_go_away(&world).await;
    assert!(world.api.marked().is_empty());
    assert_eq!(world.api.replicas(), 4);
}

#[tokio::test]
async fn a_caller_that_goes_away_during_the_size_write_leaves_a_command_that_runs_to_its_end() {
    let world = World::new(4, &["a", "b", "c", "d"]);
    world.api.fault("PATCH scale", Fault::Hold);
    delete_and_go_away(&world).await;
    assert_eq!(world.api.marked(), ["b"]);
    assert_eq!(world.api.replicas(), 3);
    assert_eq!(world.target_size(), 3);
}

#[tokio::test]
async fn a_command_after_the_end_was_asked_for_is_refused() {
    let world = World::new(4, &["a", "b", "c", "d"]);
    world.scale.drain(LONG).await.unwrap();
    let error = world.scale.delete(group(), nodes(&["b"])).await.unwrap_err();
    assert!(matches!(error, ScaleError::Unavailable(_)), "{error:?}");
    assert!(world.api.calls().is_empty());
}
