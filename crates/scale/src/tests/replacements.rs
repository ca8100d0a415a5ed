//! Machines that never became a Node, at the min size: one is replaced from time to time, and the size stays.

use capi::REPLACED;
use serde_json::{Value, json};

use super::fake::{Fault, World, group, instance, nodes, status};
use crate::{AtMinSize, NodeName, ScaleOptions};

fn failed() -> Value {
    json!({"phase": "Failed", "deprecated": {"v1beta1": {"failureReason": "CreateError", "failureMessage": "no such image"}}})
}

/// Builds a group at its min size, 1, whose only Machine has failed.
fn at_min_size() -> World {
    let world = World::new(1, &[]);
    world.machine("a", &failed(), &json!({}));
    world
}

fn named(names: &[&str]) -> Vec<NodeName> {
    names.iter().flat_map(|name| instance(&format!("failed-machine-team-a_{name}"))).collect()
}

fn is_deleting(world: &World, machine: &str) -> bool {
    world.api.object("machines", machine).unwrap()["metadata"]["deletionTimestamp"].is_string()
}

/// Returns the number and the uid of the last replacement.
fn replaced(world: &World) -> Option<String> {
    let group = world.api.object("machinedeployments", "workers").unwrap();
    let text = group["metadata"]["annotations"][REPLACED].as_str()?;
    Some(text.split_once(' ').unwrap().1.to_owned())
}

/// Records a replacement of another Machine, long ago.
fn replaced_before(world: &World, count: u32) {
    let text = format!("2020-01-01T00:00:00Z {count} uid-old");
    world.api.change("machinedeployments", "workers", json!({"metadata": {"annotations": {REPLACED: text}}}));
    world.watch();
}

#[tokio::test]
async fn a_failed_machine_is_deleted_and_the_size_stays() {
    let world = at_min_size();
    world.scale.delete(group(), named(&["a"])).await.unwrap();
    assert!(is_deleting(&world, "a"));
    assert_eq!((world.api.replicas(), replaced(&world).as_deref()), (1, Some("1 uid-a")));
    assert_eq!(world.api.calls(), ["GET machine a", "PATCH group", "DELETE machine a"]);

    world.watch();
    world.scale.delete(group(), named(&["a"])).await.unwrap();
    let writes = world.api.calls().iter().filter(|call| !call.starts_with("LIST")).count();
    assert_eq!(writes, 3, "named again it is on its way out");
}

#[tokio::test]
async fn one_that_cluster_autoscaler_gave_up_waiting_for_is_replaced_too() {
    let world = World::new(1, &[]);
    world.machine("a", &json!({"phase": "Provisioned"}), &json!({}));
    world.scale.delete(group(), instance("pending-machine-team-a_a")).await.unwrap();
    assert!(is_deleting(&world, "a"));
}

#[tokio::test]
async fn the_next_one_waits_for_its_interval_and_the_caller_learns_when() {
    let world = at_min_size();
    world.scale.delete(group(), named(&["a"])).await.unwrap();
    world.api.change("machines", "a", json!({"metadata": {"finalizers": null}}));
    world.machine("b", &failed(), &json!({}));
    let error = world.scale.delete(group(), named(&["b"])).await.unwrap_err();
    assert_eq!(error.code(), "failed_precondition");
    for part in ["below the minimum of 1", "the next can be at 20"] {
        assert!(error.to_string().contains(part), "{part:?} isn't in {error}");
    }
    assert!(!is_deleting(&world, "b"));
}

#[tokio::test]
async fn of_several_one_is_replaced_and_the_caller_learns_of_the_others() {
    let world = World::new(2, &[]);
    world.machine("a", &json!({"phase": "Pending"}), &json!({}));
    world.machine("b", &failed(), &json!({}));
    let both = [instance("pending-machine-team-a_a"), named(&["b"])].concat();
    let error = world.scale.delete(group(), both).await.unwrap_err();
    assert!(error.to_string().contains("Machine b is replaced, and 1 more have to wait"), "{error}");
    assert_eq!((is_deleting(&world, "a"), is_deleting(&world, "b")), (false, true));
    assert_eq!((world.api.replicas(), world.api.marked()), (2, Vec::new()));
}

#[tokio::test]
async fn a_machine_with_a_node_is_for_a_machine_health_check() {
    let world = World::new(1, &["a"]);
    let error = world.scale.delete(group(), nodes(&["a"])).await.unwrap_err();
    assert!(error.to_string().contains("below the minimum of 1"), "{error}");
    assert!(!error.to_string().contains("replaced"), "{error}");
    assert!(world.api.calls().is_empty());
}

#[tokio::test]
async fn one_that_somebody_else_is_deleting_is_a_success_at_the_minimum_size_too() {
    let world = World::new(1, &["a"]);
    world.api.begin_to_delete("a");
    world.watch();
    world.scale.delete(group(), nodes(&["a"])).await.unwrap();
    assert_eq!((world.api.replicas(), replaced(&world)), (1, None));
}

#[tokio::test]
async fn turned_off_it_is_refused() {
    let options = ScaleOptions { at_min_size: AtMinSize::Refuse, ..ScaleOptions::default() };
    let world = World::with_options(1, &[], options);
    world.machine("a", &failed(), &json!({}));
    let error = world.scale.delete(group(), named(&["a"])).await.unwrap_err();
    assert_eq!(error.code(), "failed_precondition");
    assert_eq!(world.api.calls(), ["GET machine a"], "nothing is written");
}

#[tokio::test]
async fn above_the_minimum_size_nothing_is_replaced_but_the_size_lowered() {
    let world = World::new(2, &["a"]);
    world.machine("b", &failed(), &json!({}));
    world.scale.delete(group(), named(&["b"])).await.unwrap();
    assert_eq!((world.api.replicas(), replaced(&world)), (1, None));
}

#[tokio::test]
async fn of_two_copies_only_one_goes_on() {
    let world = World::new(2, &[]);
    world.machine("a", &failed(), &json!({}));
    world.machine("b", &failed(), &json!({}));
    // Its watches don't show the writes of the first copy.
    let other = world.another_copy();
    world.scale.delete(group(), named(&["a", "b"])).await.unwrap_err();
    let error = other.scale.delete(group(), named(&["a", "b"])).await.unwrap_err();
    assert_eq!(error.code(), "aborted", "{error}");
    assert_eq!((is_deleting(&world, "a"), is_deleting(&world, "b")), (true, false));
    assert_eq!(replaced(&world).as_deref(), Some("1 uid-a"));
}

#[tokio::test(start_paused = true)]
async fn another_copy_resumes_the_replacement_of_a_dead_copy_at_once_and_counts_it_once() {
    let world = at_min_size();
    for _ in 0..6 {
        world.api.fault("DELETE machine a", Fault::Answer(500, status(500, "no leader")));
    }
    let error = world.scale.delete(group(), named(&["a"])).await.unwrap_err();
    assert_eq!(error.code(), "unavailable", "{error}");
    assert!(!is_deleting(&world, "a"));

    let other = world.another_copy();
    other.scale.delete(group(), named(&["a"])).await.unwrap();
    assert!(is_deleting(&world, "a"));
    assert_eq!(replaced(&world).as_deref(), Some("1 uid-a"), "it counts once");
}

#[tokio::test(start_paused = true)]
async fn a_lost_answer_is_asked_for_again() {
    let world = at_min_size();
    world.api.fault("DELETE machine a", Fault::CutAfter);
    world.scale.delete(group(), named(&["a"])).await.unwrap_err();
    assert!(is_deleting(&world, "a"));
    world.watch();
    world.scale.delete(group(), named(&["a"])).await.unwrap();
}

#[tokio::test]
async fn one_that_joined_a_moment_ago_stays() {
    let world = at_min_size();
    world.api.change(
        "machines",
        "a",
        json!({"status": {"nodeRef": {"name": "a"}}, "metadata": {"labels": {"x": "y"}}}),
    );
    let error = world.scale.delete(group(), named(&["a"])).await.unwrap_err();
    assert_eq!(error.code(), "aborted", "{error}");
    assert!(!is_deleting(&world, "a"));
}

#[tokio::test]
async fn replacements_in_a_row_are_counted_until_one_joins() {
    let world = at_min_size();
    replaced_before(&world, 4);
    world.scale.delete(group(), named(&["a"])).await.unwrap();
    assert_eq!(replaced(&world).as_deref(), Some("5 uid-a"));

    let world = World::new(2, &[]);
    world.machine("a", &failed(), &json!({}));
    world.machine("b", &json!({"nodeRef": {"name": "b"}}), &json!({"creationTimestamp": "2021-01-01T00:00:00Z"}));
    world.resize(1);
    replaced_before(&world, 4);
    world.scale.delete(group(), named(&["a"])).await.unwrap();
    assert_eq!(replaced(&world).as_deref(), Some("1 uid-a"));
}

#[tokio::test]
async fn an_annotation_that_others_wrote_counts_for_nothing() {
    let world = at_min_size();
    world.api.change("machinedeployments", "workers", json!({"metadata": {"annotations": {REPLACED: "yes"}}}));
    world.watch();
    world.scale.delete(group(), named(&["a"])).await.unwrap();
    assert_eq!(replaced(&world).as_deref(), Some("1 uid-a"));
}

#[tokio::test]
async fn an_annotation_that_is_too_long_to_be_tested_is_named_and_nothing_is_replaced() {
    let world = at_min_size();
    for (bytes, is_replaced) in [(16_385, false), (16_384, true)] {
        let text = "y".repeat(bytes);
        world.api.change("machinedeployments", "workers", json!({"metadata": {"annotations": {REPLACED: text}}}));
        world.watch();
        let result = world.scale.delete(group(), named(&["a"])).await;
        assert_eq!(result.is_ok(), is_replaced);
        if let Err(error) = result {
            let error = error.to_string();
            assert!(
                error.contains(REPLACED) && error.contains("16385 bytes") && error.contains("remove it"),
                "{error}"
            );
            assert!(!is_deleting(&world, "a"));
        }
    }
    assert_eq!(replaced(&world).as_deref(), Some("1 uid-a"));
}
