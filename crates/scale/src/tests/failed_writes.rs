//! Deletes with a write that is refused, lost or late: each is carried out entirely, taken back entirely, or left in
//! the log.

use rstest::rstest;
use serde_json::json;

use super::{
    ABCD,
    fake::{Fault, World, group, nodes, status},
};
use crate::ScaleError;

/// Faults of the second write of the group, which lowers the size.
#[rstest]
#[case::refused_by_a_webhook(Fault::Answer(400, status(400, "denied")))]
#[case::forbidden(Fault::Answer(403, status(403, "forbidden")))]
#[case::size_changed_so_that_min_is_passed(Fault::SizeIs(2))]
#[tokio::test]
async fn a_size_write_that_is_refused_leaves_neither_log_nor_marks(#[case] fault: Fault) {
    let world = World::new(4, &ABCD);
    world.api.fault("PATCH machine b", Fault::Hold);
    let call = tokio::spawn({
        let scale = world.scale.clone();
        async move { scale.delete(group(), nodes(&["b", "d"])).await }
    });
    world.api.held().await;
    world.api.fault("PATCH group", fault);
    world.api.release();
    let error = call.await.unwrap().unwrap_err();
    assert!(["failed_precondition", "permission_denied"].contains(&error.code()), "{error}");
    assert_eq!((world.api.marked(), world.api.log()), (vec![], vec![]));
}

/// Another copy had the permission that this one lacks, and its smaller size removes the marked Machines.
#[tokio::test]
async fn a_deletion_that_another_copy_lowered_is_not_taken_back_and_its_machine_stays_marked() {
    let world = World::new(4, &ABCD);
    world.api.fault("PATCH machine b", Fault::Hold);
    let call = tokio::spawn({
        let scale = world.scale.clone();
        async move { scale.delete(group(), nodes(&["b"])).await }
    });
    world.api.held().await;
    world.api.fault("PATCH group", Fault::Answer(403, status(403, "forbidden")));
    world.api.fault("PATCH group", Fault::Hold);
    world.api.release();
    world.api.held().await;
    let group = world.api.object("machinedeployments", "workers").unwrap();
    let log = group["metadata"]["annotations"]["capi-autoscaler-provider.io/deleting"].as_str().unwrap();
    world.api.set_log(&log.replace("wanted", "lowered"));
    world.api.change("machinedeployments", "workers", json!({"spec": {"replicas": 3}}));
    world.api.release();
    assert_eq!(call.await.unwrap(), Ok(()), "it was done");
    assert_eq!((world.api.replicas(), world.api.log()), (3, vec!["b lowered".to_owned()]));
    assert_eq!(world.api.marked(), ["b"], "or any Machine would go for the smaller size");
}

/// Another copy carries on with single Machines, and not with whole requests.
#[tokio::test]
async fn a_request_of_which_another_copy_has_lowered_a_part_is_not_refused_for_good() {
    let world = World::new(4, &ABCD);
    world.api.fault("PATCH machine a", Fault::Hold);
    world.api.fault("PATCH machine b", Fault::Answer(403, status(403, "forbidden")));
    let call = tokio::spawn({
        let scale = world.scale.clone();
        async move { scale.delete(group(), nodes(&["a", "b"])).await }
    });
    world.api.held().await;
    world.api.fault("PATCH group", Fault::Hold);
    world.api.release();
    world.api.held().await;
    let group_now = world.api.object("machinedeployments", "workers").unwrap();
    let log = group_now["metadata"]["annotations"]["capi-autoscaler-provider.io/deleting"].as_str().unwrap();
    world.api.set_log(&log.replace("wanted", "lowered").replace(r#","b":"uid-b""#, ""));
    world.api.change("machinedeployments", "workers", json!({"spec": {"replicas": 3}}));
    world.api.release();
    let error = call.await.unwrap().unwrap_err();
    assert_eq!(error.code(), "unavailable", "{error}");
    assert!(error.to_string().contains("other Machines that were named with it go"), "{error}");
    assert_eq!((world.api.replicas(), world.api.log()), (3, vec!["a lowered".to_owned()]));
}

#[tokio::test]
async fn a_list_that_grew_too_old_between_two_pages_is_begun_anew() {
    let world = World::new(4, &ABCD);
    world.api.begin_to_delete("b");
    world.watch();
    world.api.fault("LIST machines", Fault::Answer(410, status(410, "the provided continue parameter is too old")));
    world.scale.delete(group(), nodes(&["b"])).await.unwrap();
    assert_eq!(world.api.replicas(), 3);
}

#[rstest]
#[case::cut_before(Fault::CutBefore)]
#[case::cut_after(Fault::CutAfter)]
#[case::done_but(Fault::DoneBut(500))]
#[case::done_but_a_proxy_lost_patience(Fault::DoneBut(408))]
#[case::busy(Fault::AnswerAfter(429, 1))]
#[case::conflict(Fault::Answer(409, status(409, "the object has been modified")))]
#[case::size_changed(Fault::SizeIs(6))]
#[tokio::test]
async fn a_fault_of_either_write_of_the_group_is_got_over(#[case] fault: Fault, #[values(1, 2)] nth: usize) {
    let world = World::new(4, &ABCD);
    let end = if matches!(fault, Fault::SizeIs(_)) { 5 } else { 3 };
    if nth == 1 {
        world.api.fault("PATCH group", fault);
        world.scale.delete(group(), nodes(&["b"])).await.unwrap();
    } else {
        world.api.fault("PATCH machine b", Fault::Hold);
        let call = tokio::spawn({
            let scale = world.scale.clone();
            async move { scale.delete(group(), nodes(&["b"])).await }
        });
        world.api.held().await;
        world.api.fault("PATCH group", fault);
        world.api.release();
        call.await.unwrap().unwrap();
    }
    assert_eq!(world.api.replicas(), end);
    assert_eq!(world.target_size(), end);
    assert_eq!((world.api.marked(), world.api.log()), (vec!["b".to_owned()], vec!["b lowered".to_owned()]));
}

/// Cluster Autoscaler would take it for a final refusal and make the Node schedulable again, while a finisher deletes
/// it.
#[tokio::test]
async fn a_log_write_without_an_answer_that_cannot_be_looked_at_is_not_refused() {
    let world = World::new(4, &ABCD);
    world.api.fault("PATCH group", Fault::CutAfter);
    world.api.fault("GET group", Fault::Answer(403, status(403, "not now")));
    let error = world.scale.delete(group(), nodes(&["b"])).await.unwrap_err();
    assert!(matches!(&error, ScaleError::Unavailable(why) if why.contains("isn't known whether")), "{error:?}");
    assert_eq!(world.api.log(), ["b wanted"]);
}

/// The removal of a mark with the old ticket may be in flight.
#[tokio::test]
async fn an_entry_that_another_copy_took_back_is_logged_anew_under_another_ticket() {
    let world = World::new(4, &ABCD);
    let scale = world.scale.clone();
    let [first, second] = world
        .tickets_of_a_log_taken_back(async move { scale.delete(group(), nodes(&["b"])).await }, "PATCH machine b")
        .await;
    assert_ne!(first, second);
    assert_eq!((world.api.marked(), world.api.replicas()), (vec!["b".to_owned()], 3));
}

/// The log is then as it was before, so the tests of the write pass. A copy that has marked the Machine under the other
/// ticket lowers nothing for this one.
#[tokio::test]
async fn a_log_write_that_arrives_after_it_was_taken_back_is_of_another_ticket_and_nothing_was_refused() {
    let world = World::new(4, &ABCD);
    world.api.fault("PATCH group", Fault::Late);
    world.api.fault("PATCH machine b", Fault::HoldBut(403));
    let scale = world.scale.clone();
    let command = tokio::spawn(async move { scale.delete(group(), nodes(&["b"])).await });
    world.api.held().await;
    let marked_under = world.api.tickets();
    world.api.release();
    let error = command.await.unwrap().unwrap_err();
    assert_eq!((error.code(), world.api.log()), ("unavailable", vec![]), "{error}");
    world.api.arrive();
    assert_eq!(world.api.log(), ["b wanted"]);
    assert_ne!(world.api.tickets(), marked_under);
}

#[rstest]
#[case::cut_before(Fault::CutBefore)]
#[case::cut_after(Fault::CutAfter)]
#[case::internal_error(Fault::Answer(500, status(500, "etcd")))]
#[case::conflict(Fault::Answer(409, status(409, "the object has been modified")))]
#[tokio::test]
async fn a_mark_that_fails_once_is_set_again(#[case] fault: Fault) {
    let world = World::new(4, &ABCD);
    world.api.fault("PATCH machine b", fault);
    world.scale.delete(group(), nodes(&["a", "b"])).await.unwrap();
    assert_eq!(world.api.marked(), ["a", "b"]);
    assert_eq!(world.api.replicas(), 2);
}

#[tokio::test]
async fn a_mark_that_is_forbidden_leaves_neither_log_nor_marks() {
    let world = World::new(4, &ABCD);
    world.api.fault("PATCH machine b", Fault::Answer(403, status(403, "forbidden")));
    let error = world.scale.delete(group(), nodes(&["a", "b", "c"])).await.unwrap_err();
    assert_eq!(error.code(), "permission_denied", "{error}");
    assert_eq!((world.api.marked(), world.api.log(), world.api.replicas()), (vec![], vec![], 4));
}

/// A write of another copy meanwhile causes one rejection; a second one in a row comes from the API server itself.
#[rstest]
#[case::without_an_answer(Fault::CutBefore)]
#[case::busy(Fault::Answer(429, status(429, "too many requests")))]
#[tokio::test]
async fn a_size_write_that_failed_is_not_refused_by_one_rejection(#[case] fault: Fault) {
    let world = World::new(4, &ABCD);
    world.api.fault("PATCH machine b", Fault::Hold);
    let scale = world.scale.clone();
    let command = tokio::spawn(async move { scale.delete(group(), nodes(&["b"])).await });
    world.api.held().await;
    world.api.fault("PATCH group", fault);
    world.api.fault("PATCH group", Fault::Answer(422, status(422, "the test failed")));
    world.api.release();
    command.await.unwrap().unwrap();
    assert_eq!((world.api.marked(), world.api.replicas()), (vec!["b".to_owned()], 3));
}

#[tokio::test]
async fn a_log_write_that_failed_is_not_refused_by_one_rejection() {
    let world = World::new(4, &ABCD);
    world.api.fault("PATCH group", Fault::Answer(429, status(429, "too many requests")));
    world.api.fault("PATCH group", Fault::Answer(422, status(422, "the test failed")));
    world.scale.delete(group(), nodes(&["b"])).await.unwrap();
    assert_eq!((world.api.marked(), world.api.replicas()), (vec!["b".to_owned()], 3));
}

/// The Machine existed when it was logged, so the size is lowered for it, whatever has removed it.
#[tokio::test]
async fn a_machine_that_is_gone_at_its_mark_needs_none_and_lowers_the_size() {
    let world = World::new(4, &ABCD);
    world.api.fault("PATCH machine b", Fault::Hold);
    let call = tokio::spawn({
        let scale = world.scale.clone();
        async move { scale.delete(group(), nodes(&["b"])).await }
    });
    world.api.held().await;
    world.api.remove("b");
    world.api.release();
    call.await.unwrap().unwrap();
    assert_eq!(world.api.replicas(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_deletion_whose_mark_keeps_failing_stays_in_the_log_and_its_error_reports_that() {
    let world = World::new(4, &ABCD);
    world.api.fault("PATCH machine b", Fault::CutBefore);
    for _ in 0..20 {
        world.api.fault("PATCH machine b", Fault::CutBefore);
    }
    let error = world.scale.delete(group(), nodes(&["b"])).await.unwrap_err();
    assert_eq!(error.code(), "unavailable", "{error}");
    assert!(error.to_string().contains("goes on"), "{error}");
    assert_eq!(world.api.log(), ["b wanted"]);
}

#[tokio::test]
async fn a_mark_that_somebody_else_set_is_as_good_and_is_not_taken_back() {
    let world = World::new(4, &ABCD);
    let marked = json!({"annotations": {"cluster.x-k8s.io/delete-machine": "by hand"}});
    world.machine("b", &json!({"nodeRef": {"name": "b"}}), &marked);
    world.api.fault("PATCH machine c", Fault::Answer(403, status(403, "denied")));
    world.scale.delete(group(), nodes(&["b", "c"])).await.unwrap_err();
    assert_eq!(world.api.marked(), ["b"]);
    assert_eq!(world.api.mark_of("b").as_deref(), Some("by hand"));
}
