//! Deletes: what is logged, marked and lowered, in how many calls, and what a refusal or a fault leaves behind.

use rstest::rstest;
use serde_json::json;

use super::fake::{Fault, LONG, World, group, instance, nodes, status};
use crate::scale::ScaleError;

const ABCD: [&str; 4] = ["a", "b", "c", "d"];

#[tokio::test]
async fn a_delete_logs_marks_and_lowers_without_a_read() {
    let world = World::new(4, &ABCD);
    world.scale.delete(group(), nodes(&["b", "d"])).await.unwrap();
    assert_eq!(world.api.marked(), ["b", "d"]);
    assert_eq!(world.api.replicas(), 2);
    assert_eq!(world.target_size(), 2);
    assert_eq!(world.api.log(), ["b lowered", "d lowered"]);
    let mut calls = world.api.calls();
    calls[1..3].sort();
    assert_eq!(calls, ["PATCH group", "PATCH machine b", "PATCH machine d", "PATCH group"]);
    assert!(world.api.mark_of("b").unwrap().starts_with("capi-autoscaler-provider 20"), "whose mark, and when");
}

#[tokio::test]
async fn a_machine_that_the_watch_can_not_vouch_for_is_read_first() {
    let world = World::new(4, &ABCD);
    // The generation began after all that the watch of Machines has told.
    world.scale.increase(group(), 1).await.unwrap();
    world.scale.delete(group(), nodes(&["b"])).await.unwrap();
    let calls = world.api.calls();
    assert_eq!(calls, ["PATCH scale", "GET machine b", "PATCH group", "PATCH machine b", "PATCH group"]);
    assert_eq!(world.api.replicas(), 4);
}

#[tokio::test]
async fn a_node_named_twice_counts_once() {
    let world = World::new(4, &ABCD);
    world.scale.delete(group(), nodes(&["b", "b"])).await.unwrap();
    assert_eq!(world.api.replicas(), 3);
}

#[tokio::test]
async fn an_accepted_delete_repeated_writes_nothing_more() {
    let world = World::new(4, &ABCD);
    world.scale.delete(group(), nodes(&["b"])).await.unwrap();
    let before = world.api.calls().len();
    world.scale.delete(group(), nodes(&["b"])).await.unwrap();
    assert_eq!(world.api.calls().len(), before);
    assert_eq!(world.api.replicas(), 3);
}

#[tokio::test]
async fn a_delete_repeated_to_another_copy_lowers_nothing_more() {
    let world = World::new(4, &ABCD);
    let other = world.another_copy();
    world.scale.delete(group(), nodes(&["b"])).await.unwrap();
    other.scale.delete(group(), nodes(&["b"])).await.unwrap();
    assert_eq!(world.api.replicas(), 3, "the other copy's picture was from before");
    other.scale.delete(group(), nodes(&["c"])).await.unwrap();
    assert_eq!(world.api.replicas(), 2);
    // Entries stand in the order of their tickets, and those of one second in any.
    let mut log = world.api.log();
    log.sort();
    assert_eq!(log, ["b lowered", "c lowered"]);
}

#[tokio::test]
async fn a_delete_repeated_when_its_machine_is_gone_and_the_watch_has_not_heard_lowers_nothing() {
    let world = World::new(4, &ABCD);
    let other = world.another_copy();
    world.scale.delete(group(), nodes(&["b"])).await.unwrap();
    world.api.remove("b");
    let deleting = json!({"metadata": {"annotations": {"capi-autoscaler-provider.io/deleting": null}}});
    world.api.change("machinedeployments", "workers", deleting);
    other.scale.delete(group(), nodes(&["b"])).await.unwrap();
    assert_eq!(world.api.replicas(), 3);
}

#[tokio::test]
async fn deletes_of_one_node_each_at_once_are_one_batch() {
    let names = ["a", "b", "c", "d", "e", "f", "g", "h"];
    let world = World::new(8, &names);
    let deletes = names[..6].iter().map(|name| world.scale.delete(group(), nodes(&[name])));
    for result in futures::future::join_all(deletes).await {
        result.unwrap();
    }
    assert_eq!(world.api.replicas(), 2);
    assert_eq!(world.api.marked(), &names[..6]);
    let calls = world.api.calls();
    assert_eq!(calls.iter().filter(|call| *call == "PATCH group").count(), 2, "{calls:?}");
    assert_eq!(calls.len(), 8, "{calls:?}");
}

#[tokio::test]
async fn each_caller_of_a_batch_is_answered_for_its_own_nodes() {
    let world = World::new(3, &["a", "b", "c"]);
    let scale = &world.scale;
    let (unknown, first, two, second) = tokio::join!(
        scale.delete(group(), nodes(&["z"])),
        scale.delete(group(), nodes(&["a"])),
        scale.delete(group(), nodes(&["b", "c"])),
        scale.delete(group(), nodes(&["b"])),
    );
    assert_eq!(unknown.unwrap_err().code(), "not_found");
    assert_eq!((first, second), (Ok(()), Ok(())));
    assert_eq!(two.unwrap_err().code(), "failed_precondition", "the minimum is 1, and a was there first");
    assert_eq!((world.api.replicas(), world.api.marked()), (1, vec!["a".to_owned(), "b".to_owned()]));
}

#[tokio::test]
async fn an_increase_between_deletes_keeps_its_place() {
    let world = World::new(4, &ABCD);
    let scale = &world.scale;
    let (a, more, b) = tokio::join!(
        scale.delete(group(), nodes(&["a"])),
        scale.increase(group(), 6),
        scale.delete(group(), nodes(&["b"])),
    );
    assert_eq!((a, more, b), (Ok(()), Ok(()), Ok(())), "the maximum is 10");
    assert_eq!(world.api.replicas(), 8);
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
    assert!(!world.api.calls().iter().any(|call| call.contains("PATCH")), "{:?}", world.api.calls());
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
async fn a_log_that_is_none_of_ours_is_left_alone() {
    let world = World::new(4, &ABCD);
    let foreign = json!({"metadata": {"annotations": {"capi-autoscaler-provider.io/deleting": "v9"}}});
    world.api.change("machinedeployments", "workers", foreign);
    let error = world.scale.delete(group(), nodes(&["b"])).await.unwrap_err();
    assert_eq!(error.code(), "failed_precondition", "{error}");
    assert!(error.to_string().contains("capi-autoscaler-provider.io/deleting"), "{error}");
    let object = world.api.object("machinedeployments", "workers").unwrap();
    assert_eq!(object["metadata"]["annotations"]["capi-autoscaler-provider.io/deleting"], "v9");
}

#[tokio::test]
async fn a_replica_without_a_machine_only_lowers_the_size() {
    let world = World::new(4, &["a", "b"]);
    world.scale.delete(group(), instance("replica-MachineDeployment-team-a_workers-1")).await.unwrap();
    assert_eq!(world.api.replicas(), 3);
    assert_eq!(world.api.calls(), ["LIST machines", "PATCH group"]);
}

#[tokio::test]
async fn a_machine_without_a_node_is_deleted_by_its_placeholder() {
    let world = World::new(3, &["a", "b"]);
    world.machine("c", &json!({}), &json!({}));
    world.scale.delete(group(), instance("pending-machine-team-a_c")).await.unwrap();
    assert_eq!(world.api.marked(), ["c"]);
    assert_eq!(world.api.replicas(), 2);
}

/// The size says 4: three stay, and a new one would come in the place of the one that goes.
#[tokio::test]
async fn a_machine_that_somebody_else_deletes_lowers_the_size_where_it_would_be_replaced() {
    let world = World::new(4, &ABCD);
    world.api.begin_to_delete("b");
    world.watch();
    world.scale.delete(group(), nodes(&["b"])).await.unwrap();
    assert_eq!(world.api.replicas(), 3);
    assert!(world.api.calls().contains(&"LIST machines".to_owned()));
}

#[tokio::test]
async fn a_machine_that_goes_for_a_smaller_size_already_lowers_nothing_more() {
    let world = World::new(4, &ABCD);
    world.api.begin_to_delete("b");
    world.resize(3);
    world.scale.delete(group(), nodes(&["b"])).await.unwrap();
    assert_eq!(world.api.replicas(), 3);
    assert!(world.api.marked().is_empty());
}

#[tokio::test]
async fn an_accepted_instance_of_a_machine_pool_named_again_lowers_nothing_while_it_is_listed() {
    let world = World::new(1, &[]);
    let pool = world.pool(3, &["cloud:///a", "cloud:///b", "cloud:///c"]);
    for names in [["a"], ["a"], ["b"]] {
        world.scale.delete(pool.clone(), nodes(&names)).await.unwrap();
    }
    assert_eq!(world.size_of_pool(), 1);
    world.pool(3, &["cloud:///b", "cloud:///c", "cloud:///d"]);
    let error = world.scale.delete(pool.clone(), nodes(&["a"])).await.unwrap_err();
    assert_eq!(error.code(), "not_found", "it is gone: {error}");
    world.pool(3, &["cloud:///a", "cloud:///c", "cloud:///d"]);
    world.scale.delete(pool, nodes(&["a"])).await.unwrap();
    assert_eq!(world.size_of_pool(), 2, "it came anew");
}

/// Its infrastructure provider has taken another one. Cluster Autoscaler asks again in every loop.
#[tokio::test(start_paused = true)]
async fn an_instance_of_a_machine_pool_that_stays_lowers_the_size_again_however_often_it_is_named() {
    let world = World::new(1, &[]);
    let pool = world.pool(3, &["cloud:///a", "cloud:///b"]);
    for second in (0..=300).step_by(10) {
        world.scale.delete(pool.clone(), nodes(&["a"])).await.unwrap();
        assert_eq!(world.size_of_pool(), if second < 300 { 2 } else { 1 }, "after {second} s");
        tokio::time::advance(std::time::Duration::from_secs(10)).await;
    }
}

#[tokio::test]
async fn an_instance_that_no_one_can_delete_by_name_is_refused_where_the_operator_says_so() {
    let world = World::that_refuses_instances(1);
    let pool = world.pool(3, &["cloud:///a", "cloud:///b", "cloud:///c"]);
    let error = world.scale.delete(pool, nodes(&["a"])).await.unwrap_err();
    assert_eq!(error.code(), "failed_precondition", "{error}");
    assert!(error.to_string().contains("--machine-pool-deletes"), "{error}");
    assert_eq!(world.size_of_pool(), 3);
    assert!(world.api.calls().is_empty());
}

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

/// Another copy had the right that this one lacks, and its smaller size takes what is marked.
#[tokio::test]
async fn what_another_copy_has_lowered_is_not_taken_back_and_keeps_its_mark() {
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

/// Another copy carries on with single Machines, and not with requests as they were asked for.
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

/// Refused for good it would look to Cluster Autoscaler, which makes the Node schedulable again, while a finisher deletes it.
#[tokio::test]
async fn a_log_write_without_an_answer_that_cannot_be_looked_at_is_not_refused() {
    let world = World::new(4, &ABCD);
    world.api.fault("PATCH group", Fault::CutAfter);
    world.api.fault("GET group", Fault::Answer(403, status(403, "not now")));
    let error = world.scale.delete(group(), nodes(&["b"])).await.unwrap_err();
    assert!(matches!(&error, ScaleError::Unavailable(why) if why.contains("isn't known whether")), "{error:?}");
    assert_eq!(world.api.log(), ["b wanted"]);
}

/// A mark of its old ticket may be on its way off the Machine.
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

/// The log is then as it was before, so that nothing that the write tests has changed. A copy that has marked the Machine under
/// the other ticket lowers nothing for this one.
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

/// A copy that has written meanwhile has it rejected once; only a second time in a row it is the API server.
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

/// It was there when it was logged: whatever it went for, the size is lowered by it.
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
async fn what_is_decided_and_can_not_be_lowered_stays_in_the_log_and_says_so() {
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
async fn a_caller_that_goes_away_before_anything_is_written_ends_the_command() {
    let world = World::new(4, &ABCD);
    world.scale.increase(group(), 1).await.unwrap();
    world.api.fault("GET machine b", Fault::Hold);
    // The log's write fails, and the second attempt finds nobody who waits.
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

#[tokio::test]
async fn a_command_after_the_end_was_asked_for_is_refused() {
    let world = World::new(4, &ABCD);
    world.scale.drain(LONG).await.unwrap();
    let error = world.scale.delete(group(), nodes(&["b"])).await.unwrap_err();
    assert!(matches!(error, ScaleError::Unavailable(_)), "{error:?}");
    assert!(world.api.calls().is_empty());
}
