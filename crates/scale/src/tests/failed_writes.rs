//! Deletes with a call that is refused, lost or late. Where it can't be known what was done, the size is left: a Machine
//! is replaced then.

use std::time::Duration;

use rstest::rstest;

use super::{
    ABCD,
    fake::{Fault, World, group, instance, nodes, status},
};
use crate::ScaleError;
use index::Hold;

fn denied() -> Fault {
    Fault::Answer(403, status(403, "admission webhook \"guard\" denied the request: keep b"))
}

/// Rights, webhooks and policies judge the dry run of the size, before anything is deleted.
#[rstest]
#[case::by_a_webhook(denied(), "failed_precondition")]
#[case::by_a_right(Fault::Answer(403, status(403, "forbidden")), "permission_denied")]
#[tokio::test(start_paused = true)]
async fn a_size_that_is_refused_deletes_nothing_and_holds_the_options(#[case] fault: Fault, #[case] code: &str) {
    let world = World::new(4, &ABCD);
    world.api.fault("TRY scale", fault);
    let error = world.scale.delete(group(), nodes(&["b"])).await.unwrap_err();
    assert_eq!(error.code(), code, "{error}");
    assert_eq!((world.api.replicas(), world.api.deleting(), world.api.calls().len()), (4, vec![], 1));
    assert!(matches!(world.index.held(&group()), Some(Hold::DeletesRefused(_))));
    let threshold = || world.index.options(&group()).unwrap().scale_down_utilization_threshold;
    assert_eq!(threshold(), Some(-1.0));
    tokio::time::advance(Duration::from_secs(600)).await;
    assert_eq!(threshold(), None, "it is tried again");
}

#[tokio::test]
async fn a_webhook_that_supports_no_dry_runs_is_not_asked() {
    let world = World::new(4, &ABCD);
    let unsupported = "admission webhook \"old\" does not support dry run";
    world.api.fault("TRY scale", Fault::Answer(400, status(400, unsupported)));
    world.scale.delete(group(), nodes(&["b"])).await.unwrap();
    assert_eq!((world.api.replicas(), world.api.deleting()), (3, vec!["b".to_owned()]));
}

/// Of the faults of a size write, the increases have all.
#[rstest]
#[case::tried_cut_before("TRY scale", Fault::CutBefore, 2)]
#[case::tried_busy("TRY scale", Fault::AnswerAfter(429, 1), 2)]
#[case::tried_conflict("TRY scale", Fault::Answer(409, status(409, "the object has been modified")), 2)]
#[case::tried_size_changed("TRY scale", Fault::SizeIs(6), 4)]
#[case::deleted_cut_before("DELETE machine b", Fault::CutBefore, 2)]
#[case::deleted_internal_error("DELETE machine b", Fault::Answer(500, status(500, "etcd")), 2)]
#[case::deleted_busy("DELETE machine b", Fault::Answer(429, status(429, "too many requests")), 2)]
#[case::deleted_conflict("DELETE machine b", Fault::Answer(409, status(409, "the object has been modified")), 2)]
#[case::lowered_cut_after("PATCH scale", Fault::CutAfter, 2)]
#[case::lowered_size_changed("PATCH scale", Fault::SizeIs(6), 4)]
#[tokio::test]
async fn a_fault_of_a_call_is_got_over(#[case] call: &'static str, #[case] fault: Fault, #[case] end: i32) {
    let world = World::new(4, &ABCD);
    world.api.fault(call, fault);
    world.scale.delete(group(), nodes(&["a", "b"])).await.unwrap();
    assert_eq!((world.api.replicas(), world.target_size()), (end, end));
    assert_eq!(world.api.deleting(), ["a", "b"]);
}

#[tokio::test]
async fn a_size_that_came_down_to_the_minimum_unseen_deletes_nothing() {
    let world = World::new(4, &ABCD);
    world.api.fault("TRY scale", Fault::SizeIs(1));
    let error = world.scale.delete(group(), nodes(&["b"])).await.unwrap_err();
    assert_eq!(error.code(), "failed_precondition", "{error}");
    assert_eq!((world.api.replicas(), world.api.deleting()), (1, vec![]));
}

/// Another replica of this program may have deleted it, and lowers the size then.
#[rstest]
#[case::cut_after(Fault::CutAfter)]
#[case::done_but(Fault::DoneBut(500))]
#[tokio::test]
async fn a_deletion_without_an_answer_that_may_be_anybodys_lowers_nothing(#[case] fault: Fault) {
    let world = World::new(4, &ABCD);
    world.api.fault("DELETE machine b", fault);
    let error = world.scale.delete(group(), nodes(&["b"])).await.unwrap_err();
    assert_eq!(error.code(), "unavailable", "{error}");
    assert!(error.to_string().contains("it may be replaced"), "{error}");
    assert_eq!((world.api.replicas(), world.api.deleting()), (4, vec!["b".to_owned()]));
}

#[tokio::test]
async fn a_machine_that_is_not_let_go_fails_only_the_requests_that_name_it() {
    let world = World::new(6, &["a", "b", "c", "d", "e", "f"]);
    world.api.fault("DELETE machine b", denied());
    let scale = &world.scale;
    let (a, be, cd, e) = tokio::join!(
        scale.delete(group(), nodes(&["a"])),
        scale.delete(group(), nodes(&["b", "e"])),
        scale.delete(group(), nodes(&["c", "d"])),
        scale.delete(group(), nodes(&["e"])),
    );
    assert_eq!((a, cd, e), (Ok(()), Ok(()), Ok(())));
    let error = be.unwrap_err();
    assert_eq!(error.code(), "unavailable", "e goes: {error}");
    assert!(error.to_string().contains("keep b"), "{error}");
    assert_eq!((world.api.replicas(), world.api.deleting().len()), (2, 4));
}

/// Cluster Autoscaler drains a Node before it asks for its deletion.
#[tokio::test]
async fn a_refused_delete_holds_the_options_and_the_next_is_tried_first() {
    let world = World::new(5, &ABCD);
    world.api.fault("DELETE machine b", denied());
    let error = world.scale.delete(group(), nodes(&["b"])).await.unwrap_err();
    assert_eq!((error.code(), world.api.replicas()), ("failed_precondition", 5), "{error}");
    let is_held = || matches!(world.index.held(&group()), Some(Hold::DeletesRefused(why)) if why.contains("keep b"));
    assert!(is_held());
    let replica = instance("replica-MachineDeployment-team-a_workers-0");
    world.scale.delete(group(), replica).await.unwrap();
    assert!(is_held(), "a replica without a Machine shows nothing about Machines");
    let before = world.api.calls().len();
    world.scale.delete(group(), nodes(&["c"])).await.unwrap();
    assert_eq!(world.api.calls()[before + 1..], ["TRY machine c", "DELETE machine c", "PATCH scale"]);
    assert_eq!(world.index.held(&group()), None, "it is allowed again");
    assert_eq!((world.api.replicas(), world.api.deleting()), (3, vec!["c".to_owned()]));
}

#[tokio::test(start_paused = true)]
async fn an_outage_does_not_end_the_hold_after_a_refused_delete() {
    let world = World::new(5, &ABCD);
    world.api.fault("DELETE machine b", denied());
    world.scale.delete(group(), nodes(&["b"])).await.unwrap_err();
    for _ in 0..20 {
        world.api.fault("TRY machine c", Fault::Answer(429, status(429, "too many requests")));
    }
    let error = world.scale.delete(group(), nodes(&["c"])).await.unwrap_err();
    assert_eq!(error.code(), "unavailable", "{error}");
    assert!(matches!(world.index.held(&group()), Some(Hold::DeletesRefused(why)) if why.contains("keep b")));
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_can_not_be_deleted_keeps_its_place() {
    let world = World::new(4, &ABCD);
    for _ in 0..20 {
        world.api.fault("DELETE machine b", Fault::Answer(429, status(429, "too many requests")));
    }
    let error = world.scale.delete(group(), nodes(&["b"])).await.unwrap_err();
    assert_eq!((error.code(), world.api.replicas(), world.api.deleting()), ("unavailable", 4, vec![]), "{error}");
}

/// An API server that is down for seconds.
#[tokio::test(start_paused = true)]
async fn a_smaller_size_is_tried_for_twenty_seconds() {
    let world = World::new(4, &ABCD);
    for _ in 0..12 {
        world.api.fault("PATCH scale", Fault::Answer(429, status(429, "too many requests")));
    }
    world.scale.delete(group(), nodes(&["b"])).await.unwrap();
    assert_eq!(world.api.replicas(), 3);
}

#[rstest]
#[case::refused(denied())]
#[case::forbidden(Fault::Answer(403, status(403, "forbidden")))]
#[tokio::test]
async fn after_a_size_that_is_refused_the_caller_learns_that_the_nodes_are_replaced(#[case] fault: Fault) {
    let world = World::new(4, &ABCD);
    world.api.fault("PATCH scale", fault);
    let error = world.scale.delete(group(), nodes(&["b", "c"])).await.unwrap_err();
    assert!(matches!(&error, ScaleError::Unavailable(why) if why.contains("Cluster API replaces them")), "{error:?}");
    assert_eq!((world.api.replicas(), world.api.deleting().len()), (4, 2));
}

/// Lowering it once too often takes a Node that nobody named.
#[tokio::test]
async fn a_smaller_size_without_an_answer_and_another_size_since_is_left() {
    let world = World::new(6, &["a", "b", "c", "d", "e", "f"]);
    world.api.fault("PATCH scale", Fault::CutAfter);
    world.api.fault("GET group", Fault::SizeIs(7));
    let error = world.scale.delete(group(), nodes(&["b"])).await.unwrap_err();
    assert!(matches!(&error, ScaleError::Unavailable(why) if why.contains("isn't known whether")), "{error:?}");
    assert_eq!(world.api.replicas(), 7);
}

#[tokio::test]
async fn a_size_that_comes_down_meanwhile_stops_at_the_minimum() {
    let world = World::new(4, &ABCD);
    world.api.fault("PATCH scale", Fault::SizeIs(2));
    let error = world.scale.delete(group(), nodes(&["b", "c"])).await.unwrap_err();
    assert_eq!(error.code(), "unavailable", "{error}");
    assert!(error.to_string().contains("pass the minimum of 1"), "{error}");
    assert_eq!(world.api.replicas(), 1);
}

/// Nothing is refused for good of a request of which a Machine may be gone.
#[tokio::test]
async fn a_request_with_a_lost_answer_and_a_refusal_is_not_refused_for_good() {
    let world = World::new(4, &ABCD);
    world.api.fault("DELETE machine a", Fault::CutAfter);
    world.api.fault("DELETE machine b", denied());
    let error = world.scale.delete(group(), nodes(&["b", "a"])).await.unwrap_err();
    assert_eq!((error.code(), world.api.replicas()), ("unavailable", 4), "{error}");
}

/// Nor of one that has lowered the size by a replica without a Machine.
#[tokio::test]
async fn a_request_with_a_refusal_and_a_replica_that_goes_is_not_refused_for_good() {
    let world = World::new(5, &ABCD);
    world.api.fault("DELETE machine b", denied());
    let named = [nodes(&["b"]), instance("replica-MachineDeployment-team-a_workers-0")].concat();
    let error = world.scale.delete(group(), named).await.unwrap_err();
    assert_eq!(error.code(), "unavailable", "{error}");
    assert_eq!((world.api.replicas(), world.api.deleting()), (4, vec![]));
}
