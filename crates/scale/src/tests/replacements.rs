//! Machines that never became a Node, at the min size: one is replaced from time to time, and the size stays.

use serde_json::{Value, json};

use super::fake::{Fault, World, group, instance, nodes, status};
use crate::{AtMinSize, NamedNode, ScaleOptions};

fn failed() -> Value {
    json!({"phase": "Failed", "deprecated": {"v1beta1": {"failureReason": "CreateError", "failureMessage": "no such image"}}})
}

/// Builds a group at its min size, 1, whose only Machine has failed.
fn at_min_size() -> World {
    let world = World::new(1, &[]);
    world.machine("a", &failed(), &json!({}));
    world
}

fn named(names: &[&str]) -> Vec<NamedNode> {
    names.iter().flat_map(|name| instance(&format!("failed-machine-team-a_{name}"))).collect()
}

/// Returns the number and the uid of the last replacement.
fn replaced(world: &World) -> Option<(u32, String)> {
    let replaced = world.index.scale_view(&group()).unwrap().replaced?;
    Some((replaced.count, replaced.uid.to_string()))
}

#[tokio::test]
async fn a_failed_machine_is_deleted_and_the_size_stays() {
    let world = at_min_size();
    world.scale.delete(group(), named(&["a"])).await.unwrap();
    assert!(world.api.is_deleting("a"));
    assert_eq!((world.api.replicas(), replaced(&world)), (1, Some((1, "uid-a".to_owned()))));
    assert_eq!(world.api.calls(), ["GET machine a", "DELETE machine a"]);

    world.watch();
    world.scale.delete(group(), named(&["a"])).await.unwrap();
    assert_eq!(world.api.calls().len(), 2, "named again it is on its way out");
}

/// Two callers at once, of which the second names the first one's Machine too. That one goes by the smaller size, and only
/// the other one is at the minimum.
#[tokio::test]
async fn a_machine_that_another_request_of_the_batch_takes_is_not_replaced() {
    let world = World::new(2, &[]);
    for machine in ["a", "b"] {
        world.machine(machine, &failed(), &json!({}));
    }
    let (first, second) =
        tokio::join!(world.scale.delete(group(), named(&["a"])), world.scale.delete(group(), named(&["a", "b"])));
    first.unwrap();
    second.unwrap();
    assert_eq!((world.api.replicas(), replaced(&world)), (1, Some((1, "uid-b".to_owned()))));
    assert!(world.api.is_deleting("a") && world.api.is_deleting("b"));
}

/// The words that the operator added say why, as in the answers.
#[tokio::test]
async fn one_that_cluster_autoscaler_gave_up_waiting_for_is_replaced_and_the_event_says_why() {
    let world = World::new(1, &[]);
    let condition = json!({"type": "InfrastructureReady", "status": "False", "reason": "NotReady",
        "message": "no blade left in rack 7"});
    world.machine("a", &json!({"phase": "Provisioning", "conditions": [condition]}), &json!({}));
    world.scale.delete(group(), instance("pending-machine-team-a_a")).await.unwrap();
    let reported = world.scale.history().of(&group());
    let says = |entry: &crate::HistoryEntry| entry.text.contains("is replaced: NotReady: no blade left in rack 7");
    assert!(reported.iter().any(says), "{reported:?}");
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
    assert!(!world.api.is_deleting("b"));
}

#[tokio::test]
async fn of_several_one_is_replaced_and_the_caller_learns_of_the_others() {
    let world = World::new(2, &[]);
    world.machine("a", &json!({"phase": "Pending"}), &json!({}));
    world.machine("b", &failed(), &json!({}));
    let both = [instance("pending-machine-team-a_a"), named(&["b"])].concat();
    let error = world.scale.delete(group(), both).await.unwrap_err();
    assert!(error.to_string().contains("Machine b is replaced, and 1 more have to wait"), "{error}");
    assert_eq!((world.api.is_deleting("a"), world.api.is_deleting("b")), (false, true));
    assert_eq!(world.api.replicas(), 2);
}

#[tokio::test]
async fn a_machine_with_a_node_is_for_a_machine_health_check() {
    let world = World::new(1, &["a"]);
    let error = world.scale.delete(group(), nodes(&["a"])).await.unwrap_err();
    assert!(error.to_string().contains("below the minimum of 1"), "{error}");
    assert!(!error.to_string().contains("replaced"), "{error}");
    assert_eq!(world.api.calls(), ["GET machine a"]);
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

#[tokio::test(start_paused = true)]
async fn a_lost_answer_counts_as_a_replacement() {
    let world = at_min_size();
    world.api.fault("DELETE machine a", Fault::CutAfter);
    world.scale.delete(group(), named(&["a"])).await.unwrap();
    assert!(world.api.is_deleting("a"));
    assert_eq!(replaced(&world), Some((1, "uid-a".to_owned())));
    world.watch();
    world.scale.delete(group(), named(&["a"])).await.unwrap();
}

/// It may be named again once the size may be lowered.
#[tokio::test(start_paused = true)]
async fn one_of_which_it_is_not_known_whether_it_was_deleted_is_deleted_when_it_is_named_again() {
    let world = at_min_size();
    world.api.fault("DELETE machine a", Fault::CutBefore);
    world.api.fault("DELETE machine a", Fault::Answer(403, status(403, "forbidden")));
    world.scale.delete(group(), named(&["a"])).await.unwrap();
    assert!(!world.api.is_deleting("a"));
    world.set_min(0);
    world.scale.delete(group(), named(&["a"])).await.unwrap();
    assert!(world.api.is_deleting("a"));
    assert_eq!(world.api.replicas(), 0);
}

#[tokio::test]
async fn one_that_joined_a_moment_ago_stays() {
    let world = at_min_size();
    world.api.status("machines", "a", &json!({"nodeRef": {"name": "a"}}));
    let error = world.scale.delete(group(), named(&["a"])).await.unwrap_err();
    assert_eq!(error.code(), "failed_precondition", "{error}");
    assert!(!world.api.is_deleting("a"));
}
