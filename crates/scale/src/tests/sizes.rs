//! Increases and decreases, the state that each fault of a size write leaves behind, and sizes that one manager keeps
//! putting back: increases are refused then, so that Cluster Autoscaler tries other groups.

use std::time::Duration;

use rstest::rstest;
use serde_json::{Value, json};

use super::{
    fake::{Fault, LONG, World, group, instance, status},
    held, leave,
};
use crate::ScaleError;
use index::Hold;

#[tokio::test]
async fn each_increase_is_one_write_without_a_read_and_builds_on_the_last_before_the_watch_has_shown_it() {
    let world = World::new(2, &["a", "b"]);
    world.scale.increase(group(), 3).await.unwrap();
    assert_eq!(world.api.replicas(), 5);
    assert_eq!(world.api.calls(), ["PATCH scale"]);
    assert_eq!(world.target_size(), 5);
    world.scale.increase(group(), 2).await.unwrap();
    assert_eq!((world.api.replicas(), world.target_size()), (7, 7));
    assert_eq!(world.api.calls(), ["PATCH scale", "PATCH scale"]);
}

/// Cluster Autoscaler's timeout for the instances of an increase ends after that for the increase, with a loop in
/// between.
#[tokio::test(start_paused = true)]
async fn instances_of_an_increase_have_ids_of_their_own_for_one_minute() {
    let ids = |world: &World| -> Vec<String> {
        world.index.instances(&group()).unwrap().into_iter().map(|instance| instance.id).collect()
    };
    let world = World::new(3, &["joined"]);
    let made = |time: jiff::Timestamp| json!({"creationTimestamp": time.to_string()});
    let now = jiff::Timestamp::now();
    world.machine("old", &json!({}), &made(now - jiff::SignedDuration::from_mins(10)));
    assert_eq!(
        ids(&world)[1..],
        ["pending-machine-team-a_old", "replica-MachineDeployment-team-a_workers-0"],
        "nobody has increased it"
    );
    world.scale.increase(group(), 1).await.unwrap();
    world.machine("fresh", &json!({}), &made(now));
    let replica = "new-replica-MachineDeployment-team-a_workers-0";
    assert_eq!(ids(&world)[..2], ["new-pending-machine-team-a_fresh", "cloud:///joined"]);
    assert_eq!(ids(&world)[2..], ["pending-machine-team-a_old", replica]);
    tokio::time::advance(Duration::from_secs(59)).await;
    assert_eq!(ids(&world)[3], replica);
    tokio::time::advance(Duration::from_secs(1)).await;
    assert_eq!(ids(&world)[0], "pending-machine-team-a_fresh");
    assert_eq!(ids(&world)[3], "replica-MachineDeployment-team-a_workers-0");
    world.scale.decrease(group(), -1).await.unwrap();
    assert_eq!(ids(&world)[0], "pending-machine-team-a_fresh", "a smaller size is no increase");
}

/// The watch may show a write of this process before its answer arrives; no read is needed to find its writer.
#[tokio::test]
async fn a_size_that_the_watch_shows_before_its_answer_is_read_by_nobody() {
    let world = World::new(2, &["a", "b"]);
    world.scale.increase(group(), 1).await.unwrap();
    let increase = |delta| {
        held(&world, "PATCH scale", Fault::HoldAnswer, move |scale| async move { scale.increase(group(), delta).await })
    };
    let two = increase(2).await;
    world.watch();
    quiet().await;
    assert_eq!(world.api.calls(), ["PATCH scale", "PATCH scale"], "the answer is on its way");
    world.api.release();
    two.await.unwrap().unwrap();
    quiet().await;
    assert_eq!(world.api.calls(), ["PATCH scale", "PATCH scale"]);

    let one = increase(1).await;
    world.resize(3);
    world.api.release();
    one.await.unwrap().unwrap();
    quiet().await;
    assert_eq!(world.api.calls()[2..], ["PATCH scale", "GET group"], "somebody else has written it meanwhile");
}

/// Lets all tasks run until they wait: the API of these tests waits for nothing but faults.
async fn quiet() {
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn ids_of_no_group_leave_nothing_behind() {
    let world = World::new(4, &["a", "b", "c", "d"]);
    for n in 0..100 {
        let other = rules::GroupId::parse(&format!("MachineDeployment/team-a/other-{n}")).unwrap();
        world.scale.increase(other, 1).await.unwrap_err();
    }
    world.scale.increase(group(), 1).await.unwrap();
    world.scale.drain(LONG).await.unwrap();
    assert_eq!(world.scale.busy_groups(), 0);
}

/// Each fault of the first size write of an increase by 3 from 2, with the size at the end and the result.
#[rstest]
#[case::conflict(Fault::Answer(409, status(409, "the object has been modified")), 5, "ok")]
#[case::size_changed_meanwhile(Fault::SizeIs(4), 7, "ok")]
#[case::size_changed_to_zero_whose_field_is_absent(Fault::SizeIs(0), 3, "ok")]
#[case::size_changed_so_that_max_is_passed(Fault::SizeIs(9), 9, "failed_precondition")]
#[case::busy(Fault::Answer(429, status(429, "too many requests")), 5, "ok")]
#[case::busy_with_a_wish(Fault::Answer(429, with_retry_after(1)), 5, "ok")]
#[case::busy_with_a_wish_in_the_header(Fault::AnswerAfter(429, 1), 5, "ok")]
#[case::busy_for_long(Fault::Answer(429, with_retry_after(600)), 2, "unavailable")]
#[case::internal_error(Fault::Answer(500, status(500, "etcd")), 5, "ok")]
#[case::credentials_are_exchanged(Fault::Answer(401, status(401, "Unauthorized")), 5, "ok")]
#[case::done_but_internal_error(Fault::DoneBut(500), 5, "ok")]
#[case::done_but_a_load_balancer_lost_the_answer(Fault::DoneBut(503), 5, "ok")]
#[case::done_but_a_proxy_lost_patience(Fault::DoneBut(408), 5, "ok")]
#[case::rejected_once(Fault::Answer(422, status(422, "the test failed")), 5, "ok")]
#[case::cut_before_it_was_done(Fault::CutBefore, 5, "ok")]
#[case::cut_after_it_was_done(Fault::CutAfter, 5, "ok")]
#[case::forbidden(Fault::Answer(403, status(403, "forbidden")), 2, "permission_denied")]
#[case::gone(Fault::Answer(404, status(404, "not found")), 2, "not_found")]
#[case::refused_as_malformed(Fault::Answer(400, status(400, "denied")), 2, "failed_precondition")]
#[case::refused_by_a_webhook(
    Fault::Answer(403, status(403, "admission webhook \"validation.cluster.x-k8s.io\" denied the request: no")),
    2,
    "failed_precondition"
)]
#[case::refused_by_a_policy(
    Fault::Answer(
        403,
        status(403, "forbidden: ValidatingAdmissionPolicy 'quota' with binding 'quota' denied request: no")
    ),
    2,
    "failed_precondition"
)]
#[tokio::test]
async fn a_size_write_ends_in_a_known_state(#[case] fault: Fault, #[case] replicas: i32, #[case] result: &str) {
    let world = World::new(2, &[]);
    world.api.fault("PATCH scale", fault);
    let answer = tokio::time::timeout(LONG, world.scale.increase(group(), 3)).await.expect("in time");
    assert_eq!(answer.as_ref().map_or_else(ScaleError::code, |()| "ok"), result, "{answer:?}");
    assert_eq!(world.api.replicas(), replicas);
    if answer.is_ok() {
        assert_eq!(world.target_size(), replicas);
    }
}

#[tokio::test]
async fn a_size_that_validation_refuses_again_is_refused_for_good() {
    let world = World::new(2, &[]);
    for _ in 0..2 {
        world.api.fault("PATCH scale", Fault::Answer(422, status(422, "spec.replicas: too many")));
    }
    let error = world.scale.increase(group(), 3).await.unwrap_err();
    assert!(matches!(&error, ScaleError::FailedPrecondition(why) if why.contains("too many")), "{error:?}");
    assert_eq!(world.api.replicas(), 2);
}

#[tokio::test]
async fn conflicts_in_a_row_are_no_refusal() {
    let world = World::new(2, &[]);
    for _ in 0..3 {
        world.api.fault("PATCH scale", Fault::Answer(409, status(409, "the object has been modified")));
    }
    world.scale.increase(group(), 3).await.unwrap();
    assert_eq!(world.api.replicas(), 5);
}

/// Another copy was asked for the same increase, and its write isn't taken for the lost one.
#[tokio::test]
async fn a_lost_write_and_another_copys_write_of_the_same_size_are_two_increases() {
    let world = World::new(2, &[]);
    let other = world.another_copy();
    world.api.fault("PATCH scale", Fault::CutBefore);
    let increase =
        held(&world, "GET group", Fault::Hold, |scale| async move { scale.increase(group(), 3).await }).await;
    other.scale.increase(group(), 3).await.unwrap();
    world.api.release();
    assert_eq!(increase.await.unwrap(), Ok(()));
    assert_eq!(world.api.replicas(), 8);
}

/// A size of 0 that is written as a Scale has no field manager.
#[tokio::test]
async fn a_lost_write_of_a_size_of_zero_has_a_known_result_too() {
    let world = World::new(2, &[]);
    world.set_min(0);
    world.api.fault("PATCH scale", Fault::CutAfter);
    world.scale.decrease(group(), -2).await.unwrap();
    assert_eq!(world.api.replicas(), 0);
    assert_eq!(world.api.calls(), ["LIST machines", "PATCH scale", "GET group"]);
}

#[tokio::test]
async fn a_lost_answer_and_no_right_to_read_is_no_refusal() {
    let world = World::new(2, &[]);
    world.api.fault("PATCH scale", Fault::CutAfter);
    world.api.fault("GET group", Fault::Answer(403, status(403, "forbidden")));
    let error = world.scale.increase(group(), 3).await.unwrap_err();
    assert!(matches!(&error, ScaleError::Unavailable(why) if why.contains("2 to 5")), "{error:?}");
    assert_eq!(world.api.replicas(), 5);
}

#[tokio::test]
async fn the_size_of_a_group_that_was_made_anew_is_decided_anew() {
    let world = World::new(2, &[]);
    world.api.make_group_anew(2);
    world.scale.increase(group(), 3).await.unwrap();
    assert_eq!(world.api.calls(), ["PATCH scale", "GET group", "PATCH scale"]);
    assert_eq!(world.api.replicas(), 5);
}

#[tokio::test]
async fn the_size_of_a_group_that_was_made_anew_is_not_written_for_a_caller_that_has_left() {
    let world = World::new(2, &[]);
    world.api.fault("PATCH scale", Fault::CutAfter);
    let increase =
        held(&world, "GET group", Fault::Hold, |scale| async move { scale.increase(group(), 3).await }).await;
    leave(&world, increase, async || world.api.make_group_anew(2)).await;
    assert_eq!((world.api.replicas(), world.api.calls()), (2, vec!["PATCH scale".to_owned(), "GET group".to_owned()]));
}

#[rstest]
#[case::down_to_those_with_nodes(&["a", "b"], &["c", "d"], 4, -3, 2)]
#[case::replicas_without_machines_go(&["a"], &[], 4, -2, 2)]
#[tokio::test]
async fn a_decrease_stops_at_the_machines_that_have_a_node(
    #[case] with_node: &[&str],
    #[case] without_node: &[&str],
    #[case] size: i32,
    #[case] delta: i32,
    #[case] end: i32,
) {
    let world = World::new(size, with_node);
    for name in without_node {
        world.machine(name, &json!({}), &json!({}));
    }
    world.scale.decrease(group(), delta).await.unwrap();
    assert_eq!(world.api.replicas(), end);
    assert_eq!(world.target_size(), end);
}

#[tokio::test]
async fn a_decrease_deletes_as_many_machines_without_a_node_as_go_and_failed_ones_first() {
    let world = World::new(4, &["a"]);
    for (name, status) in
        [("b", json!({})), ("c", json!({"phase": "Failed", "failureMessage": "broken"})), ("d", json!({}))]
    {
        world.machine(name, &status, &json!({}));
    }
    world.scale.decrease(group(), -2).await.unwrap();
    assert_eq!(world.api.replicas(), 2);
    assert_eq!(world.api.deleting(), ["b", "c"]);
}

/// Cluster Autoscaler still takes it for an instance, and names it a moment later.
#[rstest]
#[case::as_it_was_reported("pending-machine-team-a_b")]
#[case::as_it_was_reported_later("failed-machine-team-a_b")]
#[tokio::test]
async fn a_machine_that_a_decrease_has_taken_may_be_named_when_it_is_gone(#[case] id: &str) {
    let world = World::new(3, &["a", "c"]);
    world.machine("b", &json!({}), &json!({}));
    world.scale.decrease(group(), -1).await.unwrap();
    assert_eq!(world.api.deleting(), ["b"]);
    world.api.remove("b");
    world.watch();
    let calls = world.api.calls();
    world.scale.delete(group(), instance(id)).await.unwrap();
    assert_eq!((world.api.replicas(), world.api.calls()), (2, calls));
    let error = world.scale.delete(group(), instance("pending-machine-team-a_z")).await.unwrap_err();
    assert_eq!(error.code(), "not_found", "nobody has heard of it");
}

/// Cluster Autoscaler takes the increase for failed, and buys elsewhere.
#[rstest]
#[case::nothing_has_happened(|_: &World| {}, 2)]
#[case::a_machine_has_come(|world: &World| world.machine_unseen("c", &json!({}), &json!({})), 5)]
#[case::cluster_api_has_seen_it(|world: &World| world.api.status("machinedeployments", "workers", &json!({"replicas": 2})), 5)]
#[case::the_watch_shows_another_size(|world: &World| world.resize(4), 4)]
#[case::another_size_comes_while_machines_are_listed(|world: &World| world.api.fault("LIST machines", Fault::SizeIs(4)), 4)]
#[case::it_is_tried_once(|world: &World| world.api.fault("PATCH scale", Fault::CutBefore), 5)]
#[tokio::test]
async fn an_increase_whose_caller_left_before_it_was_written_is_given_back(
    #[case] meanwhile: fn(&World),
    #[case] end: i32,
) {
    let world = increase_and_leave(Duration::ZERO, meanwhile).await;
    assert_eq!(world.api.replicas(), end);
}

/// A Machine that has come for it may have a Node by then.
#[rstest]
#[case(9, 2)]
#[case(11, 5)]
#[tokio::test(start_paused = true)]
async fn an_increase_is_given_back_within_ten_seconds(#[case] seconds: u64, #[case] end: i32) {
    let world = increase_and_leave(Duration::from_secs(seconds), |_| {}).await;
    assert_eq!(world.api.replicas(), end);
}

/// Lets the caller of an increase by 3 from 2 leave before its answer comes, so long after it was sent.
async fn increase_and_leave(after: Duration, meanwhile: fn(&World)) -> World {
    let world = World::new(2, &["a", "b"]);
    let call =
        held(&world, "PATCH scale", Fault::HoldAnswer, |scale| async move { scale.increase(group(), 3).await }).await;
    let meanwhile = async || {
        meanwhile(&world);
        tokio::time::sleep(after).await;
    };
    leave(&world, call, meanwhile).await;
    world
}

fn with_retry_after(seconds: u32) -> Value {
    let mut busy = status(429, "too many requests");
    busy["details"] = json!({"retryAfterSeconds": seconds});
    busy
}

/// Raises the size, and lets somebody put it back. Returns the answer to the increase.
async fn raised_and_put_back(world: &World) -> Result<(), ScaleError> {
    let answer = world.scale.increase(group(), 1).await;
    world.api.change("machinedeployments", "workers", json!({"spec": {"replicas": 2}}));
    world.watch();
    tokio::time::sleep(Duration::from_millis(10)).await;
    answer
}

#[tokio::test(start_paused = true)]
async fn a_size_that_was_put_back_twice_is_not_raised_for_half_an_hour() {
    let world = World::new(2, &["a", "b"]);
    raised_and_put_back(&world).await.unwrap();
    assert_eq!(world.index.held(&group()), None, "a person may change a size once");
    raised_and_put_back(&world).await.unwrap();
    let Some(Hold::SizePutBack(manager)) = world.index.held(&group()) else { panic!("it isn't held") };
    let error = raised_and_put_back(&world).await.unwrap_err();
    assert_eq!(error.code(), "failed_precondition", "{error}");
    assert!(error.to_string().contains(&format!("field manager {manager} keeps putting the size back")), "{error}");
    assert!(error.to_string().contains("once both size annotations are set"), "else Cluster API writes 1: {error}");
    assert!(world.index.options(&group()).unwrap().scale_down_unneeded_time.is_some());
    tokio::time::advance(Duration::from_secs(30 * 60)).await;
    raised_and_put_back(&world).await.unwrap();
}
