//! The finisher: the outcome of decided deletions, whoever decided them, as the watches progress. The test plays the
//! controllers and the watches.

use std::time::Duration;

use capi::DELETING;
use nodegroup::GroupId;
use rstest::rstest;
use serde_json::{Value, json};
use testkit::Wait;

use super::{
    ABCD,
    fake::{Fault, World, group, nodes, status},
};
use index::Change;
use testkit::CapturedLog;

/// Lets the watches show all objects, again and again, until a condition holds.
pub(super) async fn until(world: &World, what: &str, is_so: impl Fn(&World) -> bool) {
    until_shown(world, || world.watch(), what, || is_so(world)).await;
}

/// The same by other watches than those of the world.
pub(super) async fn until_shown(world: &World, watch: impl Fn(), what: &str, is_so: impl Fn() -> bool) {
    let state = || format!("the log is {:?}, the calls were {:?}", world.api.log(), world.api.calls());
    let wait = Wait::new(what).within(Duration::from_secs(100)).every(Duration::from_millis(100)).showing(&state);
    let shown = || {
        let is_so = is_so();
        if !is_so {
            watch();
        }
        is_so
    };
    wait.condition(shown).await;
}

/// Lets the watches show all objects for a long while.
pub(super) async fn wait(world: &World) {
    for _ in 0..100 {
        world.watch();
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

pub(super) fn is_deleting(world: &World, machine: &str) -> bool {
    let machine = world.api.object("machines", machine).expect("the Machine");
    machine["metadata"]["deletionTimestamp"].is_string()
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_a_smaller_size_has_left_is_deleted_by_name_and_leaves_the_log_when_it_is_gone() {
    let world = World::new(4, &ABCD);
    world.scale.delete(group(), nodes(&["b"])).await.unwrap();
    wait(&world).await;
    assert!(!is_deleting(&world, "b"), "the MachineSet hasn't seen the smaller size yet");
    assert_eq!(world.api.log(), ["b lowered"]);
    world.api.follow();
    until(&world, "b is deleted", |world| is_deleting(world, "b")).await;
    wait(&world).await;
    assert_eq!(world.api.log(), ["b lowered"], "it isn't gone yet");
    world.api.remove("b");
    until(&world, "b has left the log", |world| world.api.log().is_empty()).await;
    assert_eq!(world.api.replicas(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_goes_for_the_smaller_size_is_not_deleted_by_name_though_its_watch_lags_behind() {
    let world = World::new(4, &ABCD);
    world.scale.delete(group(), nodes(&["b"])).await.unwrap();
    world.api.fault("GET machine b", Fault::Hold);
    world.api.follow();
    world.watch();
    world.api.held().await;
    // The MachineSet has observed the size, and b looks alive.
    world.api.begin_to_delete("b");
    world.api.release();
    wait(&world).await;
    assert_eq!(world.api.log(), ["b lowered"]);
    world.api.remove("b");
    until(&world, "b has left the log", |world| world.api.log().is_empty()).await;
    assert!(!world.api.calls().contains(&"DELETE machine b".to_owned()), "{:?}", world.api.calls());
}

#[tokio::test(start_paused = true)]
async fn a_machine_is_not_deleted_by_name_when_another_one_is_decided_upon_meanwhile() {
    let world = World::new(4, &ABCD);
    let other = world.another_copy();
    world.scale.delete(group(), nodes(&["b"])).await.unwrap();
    world.api.fault("GET machine b", Fault::Hold);
    world.api.follow();
    world.watch();
    world.api.held().await;
    other.scale.delete(group(), nodes(&["c"])).await.unwrap();
    world.api.release();
    wait(&world).await;
    assert!(!is_deleting(&world, "b"), "the smaller size for c could be spent on b");
    world.api.follow();
    until(&world, "b is deleted", |world| is_deleting(world, "b")).await;
}

/// A new delete could name its Machine while smaller sizes are in flight.
#[tokio::test(start_paused = true)]
async fn a_soft_entry_stays_when_another_deletion_is_decided_upon_meanwhile() {
    let world = World::new(4, &ABCD);
    let other = world.another_copy();
    world.api.set_log(r#"[{"ticket":"t","phase":"lowered","soft":true,"machines":{"b":"uid-b"}}]"#);
    world.api.fault("LIST machines", Fault::Hold);
    world.api.follow();
    world.watch();
    world.api.held().await;
    other.scale.delete(group(), nodes(&["c"])).await.unwrap();
    world.api.release();
    wait(&world).await;
    let has_soft = |world: &World| world.api.log().contains(&"b lowered soft".to_owned());
    assert!(has_soft(&world), "{:?}: the smaller size for c is on its way", world.api.log());
    world.api.follow();
    until(&world, "b has left the log", |world| !has_soft(world)).await;
}

#[tokio::test(start_paused = true)]
async fn wanted_entries_that_another_copy_left_in_the_log_are_lowered() {
    let world = World::new(4, &ABCD);
    world.api.set_log(r#"[{"ticket":"t","phase":"wanted","machines":{"b":"uid-b","d":"uid-d"}}]"#);
    until(&world, "both are lowered", |world| world.api.log() == ["b lowered", "d lowered"]).await;
    assert_eq!((world.api.replicas(), world.api.marked()), (2, vec!["b".to_owned(), "d".to_owned()]));
}

/// The permission to annotate a group gives none to other Machines.
#[rstest]
#[case::decided("wanted", &["b"], 3)]
#[case::and_the_size_lowered("lowered", &[], 4)]
#[tokio::test(start_paused = true)]
async fn a_machine_that_is_not_of_the_group_is_left_alone_whatever_the_log_says(
    #[case] phase: &str,
    #[case] marked: &[&str],
    #[case] size: i32,
) {
    let world = World::new(4, &["a", "b", "c"]);
    world.machine("control-plane", &json!({}), &json!({"ownerReferences": []}));
    let machines = json!({"control-plane": "uid-control-plane", "b": "uid-b"});
    world.api.set_log(&json!([{"ticket": "t", "phase": phase, "machines": machines}]).to_string());
    world.api.follow();
    until(&world, "it leaves the log", |world| world.api.log() == ["b lowered"]).await;
    assert_eq!((world.api.marked(), world.api.replicas()), (marked.iter().map(ToString::to_string).collect(), size));
    let calls = world.api.calls();
    assert!(!calls.iter().any(|call| call.contains("control-plane")), "{calls:?}");
}

/// Each entry costs a read, and anybody who may annotate a group can write a full log.
#[rstest]
#[case::decided("wanted")]
#[case::and_the_size_lowered("lowered")]
#[tokio::test(start_paused = true)]
async fn one_look_reads_a_limited_number_of_machines_that_nobody_knows(#[case] phase: &str) {
    let world = World::new(4, &ABCD);
    let machines: serde_json::Map<_, _> = (0..1_000).map(|n| (format!("m{n}"), json!(format!("u{n}")))).collect();
    world.api.set_log(&json!([{"ticket": "t", "phase": phase, "machines": machines}]).to_string());
    world.api.follow();
    until(&world, "a part has been dealt with", |world| world.api.calls().contains(&"PATCH group".to_owned())).await;
    let calls = world.api.calls();
    let reads = calls.iter().take_while(|call| *call != "PATCH group").filter(|call| call.starts_with("GET machine"));
    assert_eq!(reads.count(), 256);
    for _ in 0..8 {
        world.api.follow();
        wait(&world).await;
    }
    assert_eq!((world.api.log(), world.api.replicas()), (Vec::<String>::new(), 4), "the others have their turn");
}

#[rstest]
#[case::no_log("v9".to_owned(), "isn't a log")]
#[case::too_long("[".repeat(200_000), "200000 bytes")]
#[tokio::test(start_paused = true)]
async fn a_log_that_cannot_be_read_is_logged_once_and_nothing_is_done_for_it(#[case] text: String, #[case] why: &str) {
    let said = CapturedLog::default();
    let writer = said.clone();
    let log = tracing_subscriber::fmt().without_time().with_ansi(false).with_writer(move || writer.clone()).finish();
    let _log = tracing::subscriber::set_default(log);
    let world = World::new(4, &ABCD);
    world.api.set_log(&text);
    wait(&world).await;
    world.machine("e", &json!({}), &json!({}));
    wait(&world).await;
    let lines = said.take();
    assert_eq!(lines.matches("deletions can't be finished").count(), 1, "{lines}");
    assert!(lines.contains(why) && lines.contains("MachineDeployment/team-a/workers"), "{lines}");
    let refused = world.scale.delete(group(), nodes(&["b"])).await.unwrap_err();
    assert_eq!(refused.code(), "failed_precondition", "{refused}");
    assert!(refused.to_string().contains("MachineDeployment/team-a/workers"), "{refused}");
    assert!(!world.api.calls().iter().any(|call| call.contains("PATCH")), "{:?}", world.api.calls());
    world.api.set_log(&format!("{text} "));
    wait(&world).await;
    assert_eq!(said.take().matches("deletions can't be finished").count(), 1, "it is another text");
    world.scale.increase(group(), 1).await.unwrap();
    assert_eq!(world.api.replicas(), 5, "the group grows as before");
}

#[tokio::test(start_paused = true)]
async fn nothing_is_remembered_of_a_group_that_is_gone() {
    let world = World::new(4, &ABCD);
    for text in [r#"[{"ticket":"t","phase":"wanted","machines":{"b":"uid-b"}}]"#, "v9"] {
        world.api.set_log(text);
        world.watch();
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert_eq!(world.scale.shared.memory.len(), 1, "{text}");
        world.index.apply_quietly(Change::ScalableGone(group()));
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert_eq!(world.scale.shared.memory.len(), 0, "{text}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_size_write_that_is_refused_repeatedly_is_retried_less_often_even_if_objects_change() {
    let world = World::new(4, &ABCD);
    for _ in 0..1_000 {
        world.api.fault("PATCH group", Fault::Answer(403, status(403, "forbidden")));
    }
    world.api.set_log(r#"[{"ticket":"t","phase":"wanted","machines":{"b":"uid-b"}}]"#);
    // 100 changes, in 10 seconds.
    wait(&world).await;
    let tries = world.api.calls().iter().filter(|call| *call == "PATCH machine b").count();
    assert!((2..=4).contains(&tries), "{tries} tries after 2, 3, 5 and 9 seconds: {:?}", world.api.calls());
}

#[tokio::test(start_paused = true)]
async fn the_finisher_takes_back_a_wanted_entry_that_would_pass_the_minimum() {
    let world = World::new(1, &["a"]);
    world.api.set_log(r#"[{"ticket":"t","phase":"wanted","machines":{"a":"uid-a"}}]"#);
    until(&world, "the log is empty", |world| world.api.log().is_empty()).await;
    until(&world, "the mark is off", |world| world.api.marked().is_empty()).await;
    assert_eq!(world.api.replicas(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_mark_of_ours_that_belongs_to_nothing_is_taken_off_and_no_other_mark_is() {
    let world = World::new(4, &ABCD);
    marked_with(&world, "a", "capi-autoscaler-provider 2026-01-02T03:04:05Z-0");
    marked_with(&world, "b", "by hand");
    until(&world, "a's mark is off", |world| world.api.marked() == ["b"]).await;
    wait(&world).await;
    assert_eq!(world.api.mark_of("b").as_deref(), Some("by hand"));
}

#[tokio::test(start_paused = true)]
async fn a_mark_whose_entry_was_taken_out_is_taken_off_though_others_of_its_ticket_are_in_the_log() {
    let world = World::new(4, &ABCD);
    // The deletion of a hangs, so that its entry stays.
    world.api.set_log(r#"[{"ticket":"2026-01-02T03:04:05Z-0","phase":"lowered","machines":{"a":"uid-a"}}]"#);
    marked_with(&world, "a", "capi-autoscaler-provider 2026-01-02T03:04:05Z-0");
    marked_with(&world, "b", "capi-autoscaler-provider 2026-01-02T03:04:05Z-0");
    until(&world, "b's mark is off", |world| world.api.marked() == ["a"]).await;
}

#[tokio::test(start_paused = true)]
async fn nothing_is_done_while_the_group_is_paused_and_all_of_it_afterwards() {
    let world = World::new(4, &ABCD);
    let pause = |value| {
        let annotations = json!({"cluster.x-k8s.io/paused": value});
        world.api.change("machinedeployments", "workers", json!({"metadata": {"annotations": annotations}}));
    };
    pause(json!(""));
    world.api.set_log(r#"[{"ticket":"t","phase":"wanted","machines":{"b":"uid-b"}}]"#);
    wait(&world).await;
    assert!(world.api.calls().is_empty());
    pause(json!(null));
    until(&world, "b is lowered", |world| world.api.log() == ["b lowered"]).await;
}

#[tokio::test(start_paused = true)]
async fn a_log_that_is_none_of_ours_wakes_nobody() {
    let world = World::new(4, &ABCD);
    world.api.set_log("v9");
    wait(&world).await;
    assert!(world.api.calls().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_finisher_ends_with_its_copy() {
    let world = World::new(4, &ABCD);
    let copy = world.another_copy();
    let index = std::sync::Arc::downgrade(&copy.index);
    drop(copy);
    for _ in 0..100 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(index.strong_count(), 0, "somebody still holds it");
}

/// Builds a MachinePool of the Machines `pa`, `pb` and `pc`.
fn pool_of_three(world: &World) -> GroupId {
    let pool = world.pool(3, &["cloud:///pa", "cloud:///pb", "cloud:///pc"]);
    let owner = json!({"ownerReferences": [
        {"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "MachinePool", "name": "pool", "uid": "y", "controller": true},
    ]});
    for name in ["pa", "pb", "pc"] {
        world.machine(name, &json!({"phase": "Running", "nodeRef": {"name": name}}), &owner);
    }
    world.api.pool_status(&json!({"replicas": 3}));
    pool
}

fn log_of_pool(world: &World) -> Option<String> {
    let pool = world.api.object("machinepools", "pool").expect("the pool");
    pool["metadata"]["annotations"][DELETING].as_str().map(str::to_owned)
}

/// Lets time pass in which the watches show nothing.
async fn nothing_happens_for(seconds: u64) {
    tokio::time::sleep(Duration::from_secs(seconds)).await;
}

/// An infrastructure provider removes any of the pool's Machines for a smaller size.
#[tokio::test(start_paused = true)]
async fn a_named_machine_of_a_pool_goes_and_no_other_though_its_provider_takes_none() {
    let world = World::new(1, &["a"]);
    let pool = pool_of_three(&world);
    world.scale.delete(pool.clone(), nodes(&["pb"])).await.unwrap();
    assert_eq!((world.size_of_pool(), world.api.marked()), (2, vec!["pb".to_owned()]));
    world.scale.delete(pool, nodes(&["pb"])).await.unwrap();
    assert_eq!(world.size_of_pool(), 2, "named again, it lowers nothing");
    wait(&world).await;
    assert!(!is_deleting(&world, "pb"), "the smaller size hasn't been seen yet");

    world.api.follow_pool();
    world.api.pool_status(&json!({"replicas": 2}));
    world.watch();
    nothing_happens_for(301).await;
    assert!(is_deleting(&world, "pb"));
    world.api.remove("pb");
    until(&world, "pb has left the log", |world| log_of_pool(world).is_none_or(|log| !log.contains("uid-pb"))).await;
    assert_eq!(world.size_of_pool(), 2);
    assert!(!is_deleting(&world, "pa") && !is_deleting(&world, "pc"));
}

/// As an instance that isn't a Machine it would lower the size without a mark, and its infrastructure provider would
/// remove another one.
#[tokio::test]
async fn an_instance_of_a_pool_of_machines_whose_own_is_not_known_yet_is_asked_for_again() {
    let world = World::new(1, &["a"]);
    let pool = pool_of_three(&world);
    world.pool(4, &["cloud:///pa", "cloud:///pb", "cloud:///pc", "cloud:///pd"]);
    let error = world.scale.delete(pool, nodes(&["pd"])).await.unwrap_err();
    assert_eq!(error.code(), "aborted", "{error}");
    assert_eq!(world.size_of_pool(), 4);
}

/// The watch hasn't shown any of the pool's Machines yet.
#[tokio::test]
async fn an_instance_of_a_pool_whose_machines_are_all_unknown_yet_is_asked_for_again() {
    let world = World::new(1, &["a"]);
    let pool = world.pool(1, &["cloud:///pa"]);
    let owner = json!({"ownerReferences": [
        {"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "MachinePool", "name": "pool", "uid": "y", "controller": true},
    ]});
    world.machine_unseen("pa", &json!({"phase": "Running", "nodeRef": {"name": "pa"}}), &owner);
    let error = world.scale.delete(pool, nodes(&["pa"])).await.unwrap_err();
    assert_eq!(error.code(), "aborted", "{error}");
    assert_eq!(world.size_of_pool(), 1);
}

/// The pool's controller has observed the smaller size; its infrastructure provider hasn't acted on it, and may still
/// remove another Machine than the named one. Both would go.
#[tokio::test(start_paused = true)]
async fn a_machine_of_a_pool_is_not_deleted_by_name_before_its_provider_had_time_to_take_it() {
    let world = World::new(1, &["a"]);
    let pool = pool_of_three(&world);
    world.scale.delete(pool, nodes(&["pb"])).await.unwrap();
    world.api.follow_pool();
    world.watch();
    nothing_happens_for(600).await;
    assert!(!is_deleting(&world, "pb"), "status.replicas is still 3");

    world.api.pool_status(&json!({"replicas": 2}));
    world.watch();
    nothing_happens_for(290).await;
    assert!(!is_deleting(&world, "pb"), "its provider may be deleting it, or another one");
    world.api.pool_status(&json!({"replicas": 3}));
    world.watch();
    nothing_happens_for(60).await;
    assert!(!is_deleting(&world, "pb"), "the pool has grown again, and comes down anew");
    world.api.pool_status(&json!({"replicas": 2}));
    world.watch();
    nothing_happens_for(290).await;
    assert!(!is_deleting(&world, "pb"), "the time began anew");
    world.api.remove("pb");
    until(&world, "pb has left the log", |world| log_of_pool(world).is_none()).await;
    assert!(!world.api.calls().contains(&"DELETE machine pb".to_owned()), "{:?}", world.api.calls());
}

fn marked_with(world: &World, machine: &str, mark: &str) {
    let annotations = json!({"cluster.x-k8s.io/delete-machine": mark});
    world.api.change("machines", machine, json!({"metadata": {"annotations": annotations}}));
}

/// A mark whose answer was lost was sent again, and has arrived after that of a later acceptance.
#[tokio::test(start_paused = true)]
async fn a_machine_that_has_an_entry_is_marked_again_and_its_late_mark_is_not_taken_off() {
    let world = World::new(3, &ABCD);
    world.api.set_log(r#"[{"ticket":"new","phase":"lowered","machines":{"b":"uid-b"}}]"#);
    marked_with(&world, "b", "capi-autoscaler-provider old");
    until(&world, "b has its own mark", |world| {
        world.api.mark_of("b").as_deref() == Some("capi-autoscaler-provider new")
    })
    .await;
    let marks = world.api.calls().iter().filter(|call| *call == "PATCH machine b").count();
    assert_eq!(marks, 1, "it was never without a mark");
}

/// The cached group on which the step was decided had no entry yet.
#[tokio::test(start_paused = true)]
async fn a_mark_stays_when_its_machine_has_come_to_have_an_entry_meanwhile() {
    let world = World::new(3, &ABCD);
    world.api.fault("GET group", Fault::Hold);
    marked_with(&world, "b", "capi-autoscaler-provider old");
    world.watch();
    world.api.held().await;
    world.api.set_log(r#"[{"ticket":"new","phase":"lowered","machines":{"b":"uid-b"}}]"#);
    world.api.release();
    nothing_happens_for(1).await;
    assert_eq!(world.api.mark_of("b").as_deref(), Some("capi-autoscaler-provider new"));
}

/// Since Cluster API 1.11 a MachineSet's observedGeneration stays as it is while its reconciles fail, for example for
/// one Machine without its infrastructure object.
#[tokio::test(start_paused = true)]
async fn an_entry_leaves_though_the_reconciles_of_its_machine_set_end_with_errors() {
    let world = World::new(4, &ABCD);
    world.scale.delete(group(), nodes(&["b"])).await.unwrap();
    world.api.follow_with_errors();
    until(&world, "b is deleted", |world| is_deleting(world, "b")).await;
    world.api.remove("b");
    until(&world, "b has left the log", |world| world.api.log().is_empty()).await;
}

#[tokio::test(start_paused = true)]
async fn a_finished_deletion_is_forgotten_even_if_other_deletions_of_its_group_fail() {
    let world = World::new(4, &ABCD);
    world.api.set_log(r#"[{"ticket":"t","phase":"lowered","machines":{"b":"uid-b","c":"uid-c","d":"uid-d"}}]"#);
    world.api.follow();
    for machine in ["b", "d"] {
        world.api.remove(machine);
    }
    for _ in 0..10_000 {
        world.api.fault("GET machine b", Fault::Answer(500, status(500, "internal error")));
        world.api.fault("DELETE machine c", Fault::Answer(403, status(403, "admission webhook denied the request")));
    }
    until(&world, "d has left the log", |world| world.api.log() == ["b lowered", "c lowered"]).await;
}

/// Creates another MachineDeployment.
fn load_group(world: &World, name: &str) -> GroupId {
    let object = json!({
        "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "MachineDeployment",
        "metadata": {"name": name, "namespace": "team-a", "annotations": {
            "cluster.x-k8s.io/cluster-api-autoscaler-node-group-min-size": "1",
            "cluster.x-k8s.io/cluster-api-autoscaler-node-group-max-size": "10",
        }},
        "spec": {"clusterName": "prod", "replicas": 3},
    });
    world.api.objects.load_values(vec![object]).expect("loaded");
    GroupId::parse(&format!("MachineDeployment/team-a/{name}")).expect("an id")
}

#[tokio::test(start_paused = true)]
async fn groups_whose_commands_are_slow_hold_up_no_deletions_of_other_groups() {
    let world = World::new(4, &ABCD);
    let slow: Vec<_> = (0..8).map(|number| load_group(&world, &format!("slow-{number}"))).collect();
    world.watch();
    let mut callers = Vec::new();
    for id in &slow {
        world.api.fault("PATCH scale", Fault::Hold);
        let (scale, id) = (world.scale.clone(), id.clone());
        callers.push(tokio::spawn(async move { scale.increase(id, 1).await }));
        world.api.held().await;
    }
    let log = |log: Value| json!({"metadata": {"annotations": {DELETING: log.to_string()}}});
    for id in &slow {
        let lowered =
            json!([{"ticket": "t", "phase": "lowered", "machines": {"x": format!("uid-of-{}", id.key.name)}}]);
        world.api.change("machinedeployments", &id.key.name, log(lowered));
    }
    world.watch();
    nothing_happens_for(1).await;
    world.api.set_log(r#"[{"ticket":"t","phase":"wanted","machines":{"b":"uid-b"}}]"#);
    until(&world, "b is lowered", |world| world.api.log() == ["b lowered"]).await;
    for _ in &callers {
        world.api.release();
        nothing_happens_for(1).await;
    }
    for caller in callers {
        caller.await.expect("ran").expect("increased");
    }
}
