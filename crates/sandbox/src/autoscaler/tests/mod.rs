//! Tests of state that lasts across loops, with a scripted provider, in virtual time.

mod provider;

use std::time::Duration;

use rstest::rstest;
use serde_json::json;
use tokio::time::sleep;

use super::{Settings, TO_BE_DELETED};
use crate::api::{DeleteOptions, Resource};
use provider::{Group, World, creating, node, pod, settings};

async fn seconds(seconds: u64) {
    sleep(Duration::from_secs(seconds)).await;
}

fn group(min: i32, size: i32) -> Group {
    Group { min, max: 10, size, deletes: true, ..Group::default() }
}

/// Some versions revert an increase that brings no Node within the provision time, others delete its instance. All of
/// them back off the group.
#[rstest]
#[case(33, "delete pending of a")]
#[case(35, "delete pending of a")]
#[case(36, "decrease a by -1")]
#[case(37, "decrease a by -1")]
#[tokio::test(start_paused = true)]
async fn an_increase_that_takes_too_long_is_taken_back(#[case] minor: u32, #[case] expected: &str) {
    let world = World::new([("a", group(0, 0))]);
    world.has([pod("web", "3", None)]);
    world.start(minor, settings());
    seconds(5).await;
    assert_eq!(world.commands(), ["increase a by 1"]);
    world.change("a", |group| group.instances = vec![creating("pending", None)]);
    seconds(90).await;
    assert_eq!(world.commands().len(), 1, "it comes");
    seconds(40).await;
    assert_eq!(world.commands()[1], expected);
    seconds(280).await;
    let increases = world.asked(&["increase"]).len();
    assert_eq!(increases, 1, "it is backed off: {:?}", world.commands());
    seconds(60).await;
    assert_eq!(world.asked(&["increase"]).len(), 2);
}

/// Since 1.36 an increase counts as finished once its instances are past their provision time. If the instance exists
/// in the loop right after the increase, both times end in one loop, and the group is never backed off.
#[rstest]
#[case::up_to_1_35(35, false, true)]
#[case::since_1_36(36, false, false)]
#[case::of_1_37(37, false, false)]
#[case::with_an_id_that_changes(36, true, true)]
#[case::of_1_37_with_an_id_that_changes(37, true, true)]
#[tokio::test(start_paused = true)]
async fn an_instance_that_is_there_at_once_hides_that_its_increase_took_too_long(
    #[case] minor: u32,
    #[case] id_changes: bool,
    #[case] backs_off: bool,
) {
    let world = World::new([("a", Group { shows: Some("new-pending"), ..group(0, 0) })]);
    world.has([pod("web", "3", None)]);
    world.start(minor, settings());
    seconds(60).await;
    assert_eq!(world.commands(), ["increase a by 1"]);
    if id_changes {
        world.change("a", |group| group.instances = vec![creating("pending", None)]);
    }
    // After the provision time, and another one for the instance with the other id.
    seconds(200).await;
    let increases = world.asked(&["increase"]).len();
    assert_eq!(increases == 1, backs_off, "{:?}", world.commands());
}

#[tokio::test(start_paused = true)]
async fn a_group_that_fails_is_asked_again_after_twice_the_time() {
    let world = World::new([("a", Group { refuses: true, ..group(0, 0) })]);
    world.has([pod("web", "3", None)]);
    world.start(36, settings());
    seconds(4 * 3600).await;
    let times: Vec<u64> = world.asked(&["increase"]).into_iter().map(|(at, _)| at).collect();
    let between: Vec<u64> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
    for (between, expected) in between.iter().zip([300, 600, 1200, 1800, 1800]) {
        assert!((expected..=expected + 10).contains(between), "{between} instead of {expected}");
    }
    assert!(between.len() >= 5, "{between:?}");
}

#[tokio::test(start_paused = true)]
async fn another_group_takes_over_from_one_whose_instances_fail() {
    let world = World::new([("a", Group { max: 1, deletes: false, ..group(0, 0) }), ("b", group(0, 0))]);
    world.has([pod("web", "3", None)]);
    world.change("b", |group| group.max = 0);
    world.start(36, settings());
    seconds(5).await;
    assert_eq!(world.commands(), ["increase a by 1"]);
    world.change("b", |group| group.max = 1);
    world.change("a", |group| group.instances = vec![creating("failed", Some("NoCapacity"))]);
    seconds(20).await;
    let commands = world.commands();
    assert!(commands.contains(&"increase b by 1".to_owned()), "{commands:?}");
    let deletes = commands.iter().filter(|command| *command == "delete failed of a").count();
    assert!(deletes > 1, "what is refused is named in every loop: {commands:?}");
}

#[tokio::test(start_paused = true)]
async fn a_size_is_corrected_once_it_was_wrong_for_as_long_as_a_node_may_take() {
    let world = World::new([("a", group(2, 2))]);
    world.has([node("a", "first", true)]);
    world.start(36, settings());
    seconds(95).await;
    assert!(world.commands().is_empty(), "{:?}", world.commands());
    seconds(30).await;
    assert_eq!(world.commands(), ["decrease a by -1"]);
    // An instance that is expected to become a Node is waited for.
    let other = World::new([("a", Group { instances: vec![creating("second", None)], ..group(2, 2) })]);
    other.has([node("a", "first", true)]);
    other.start(36, settings());
    seconds(300).await;
    assert!(other.commands().is_empty(), "{:?}", other.commands());
}

#[tokio::test(start_paused = true)]
async fn instances_without_a_node_are_given_up_as_far_as_the_minimum_allows() {
    let instances = vec![creating("x", None), creating("y", None)];
    let world = World::new([("a", Group { instances, ..group(2, 3) })]);
    world.has([node("a", "first", true), pod("web", "3", Some("first"))]);
    world.start(36, settings());
    seconds(95).await;
    assert!(world.commands().is_empty(), "{:?}", world.commands());
    seconds(300).await;
    let commands = world.commands();
    assert!(commands == ["delete x of a"] || commands == ["delete y of a"], "{commands:?}");
}

#[tokio::test(start_paused = true)]
async fn unneeded_nodes_go_in_parallel_down_to_the_minimum() {
    let world = World::new([("a", group(1, 4))]);
    world.has(["n1", "n2", "n3", "n4"].map(|name| node("a", name, true)));
    world.start(36, settings());
    seconds(58).await;
    assert!(world.commands().is_empty());
    assert!(world.tainted().is_empty());
    seconds(15).await;
    let asked = world.asked(&["delete"]);
    assert_eq!(asked.len(), 3, "{asked:?}");
    assert!(asked.iter().all(|(at, _)| *at == asked[0].0), "{asked:?}");
    assert_eq!(world.tainted().len(), 3);
    seconds(300).await;
    assert_eq!(world.asked(&["delete"]).len(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_node_whose_delete_is_refused_is_pods_again() {
    let world = World::new([("a", Group { deletes: false, ..group(0, 1) })]);
    world.has([node("a", "n1", true)]);
    world.start(36, settings());
    seconds(75).await;
    assert_eq!(world.commands(), ["delete n1 of a"]);
    assert!(world.tainted().is_empty());
}

#[rstest]
#[case::moves("web", &["delete n1 of a"])]
#[case::stays("web-stays", &[])]
#[tokio::test(start_paused = true)]
async fn a_node_that_is_used_little_is_drained_first(#[case] name: &str, #[case] expected: &[&str]) {
    let world = World::new([("a", group(0, 2))]);
    world.has([node("a", "n1", true), node("a", "n2", true)]);
    world.has([pod(name, "1", Some("n1")), pod("busy", "3", Some("n2"))]);
    world.start(36, settings());
    seconds(100).await;
    assert_eq!(world.commands(), expected);
    assert_eq!(world.names("pods").contains(&name.to_owned()), expected.is_empty());
}

#[tokio::test(start_paused = true)]
async fn nothing_goes_for_a_while_after_an_increase() {
    let world = World::new([("a", group(0, 1)), ("b", Group { max: 1, ..group(0, 0) })]);
    world.change("a", |group| group.max = 1);
    world.has([node("a", "n1", true), pod("busy", "3", Some("n1"))]);
    world.start(36, settings());
    seconds(5).await;
    world.has([pod("web", "3", None)]);
    seconds(10).await;
    assert_eq!(world.commands(), ["increase b by 1"]);
    world.has([node("b", "n2", true)]);
    let delete = DeleteOptions { grace: Some(0), ..DeleteOptions::default() };
    for name in ["busy", "web"] {
        world.workload.delete(&Resource::core("pods"), "apps", name, &delete).unwrap();
    }
    seconds(170).await;
    assert_eq!(world.commands().len(), 1, "{:?}", world.commands());
    seconds(50).await;
    assert_eq!(world.commands().len(), 3, "{:?}", world.commands());
}

#[tokio::test(start_paused = true)]
async fn old_taints_are_taken_off_before_the_first_refresh_and_never_again() {
    let taint = || json!([{ "key": TO_BE_DELETED, "value": "1", "effect": "NoSchedule" }]);
    let tainted = |group: &str, name: &str| {
        let mut node = node(group, name, true);
        node["spec"]["taints"] = taint();
        node
    };
    let world = World::new([("a", group(1, 1))]);
    world.has([tainted("a", "ours"), tainted("other", "theirs")]);
    let first = world.start(36, Settings { pause: Duration::from_secs(60), ..settings() });
    seconds(1).await;
    assert_eq!(world.tainted(), ["theirs"]);
    world.has([tainted("a", "new")]);
    seconds(600).await;
    assert_eq!(world.tainted(), ["new", "theirs"]);
    first.abort();
    world.start(36, settings());
    seconds(1).await;
    assert_eq!(world.tainted(), ["theirs"]);
}

#[rstest]
#[case::most(4, true)]
#[case::few(3, false)]
#[tokio::test(start_paused = true)]
async fn nothing_is_scaled_while_too_many_nodes_are_broken(#[case] broken: usize, #[case] stops: bool) {
    let world = World::new([("a", Group { max: 20, ..group(0, 8) })]);
    world.has((0..8).map(|number| node("a", &format!("n{number}"), number >= broken)));
    world.has((0..8).map(|number| pod(&format!("p{number}-stays"), "3", Some(&format!("n{number}")))));
    world.has([pod("web", "3", None)]);
    world.start(36, settings());
    seconds(30).await;
    assert_eq!(world.commands().is_empty(), stops, "{:?}", world.commands());
}

/// Up to 1.35, Nodes that a group lacks for its size count as free capacity even without an increase under way.
#[rstest]
#[case(35, true)]
#[case(36, false)]
#[tokio::test(start_paused = true)]
async fn nodes_that_nobody_waits_for_hold_pods_back_in_some_versions(#[case] minor: u32, #[case] holds: bool) {
    let world = World::new([("a", Group { instances: vec![creating("x", None)], ..group(0, 1) })]);
    world.has([pod("web", "3", None)]);
    world.start(minor, settings());
    seconds(60).await;
    assert_eq!(world.asked(&["increase"]).is_empty(), holds);
}

/// Options that keep a Node reset its unneeded time only in loops that reach the search for unneeded Nodes. A loop that
/// corrects a size fetches the options too but resets nothing: the first options that don't keep the Node remove it.
#[rstest]
#[case::loops_that_come_to_their_end(35, false)]
#[case::loops_that_correct_a_size(35, true)]
#[case::loops_of_1_37_that_correct_a_size(37, true)]
#[tokio::test(start_paused = true)]
async fn options_that_keep_a_node_restart_its_time_only_where_loops_come_to_their_end(
    #[case] minor: u32,
    #[case] corrects: bool,
) {
    let incorrect = Group { keeps_size: true, ..group(1, 1 + i32::from(corrects)) };
    let world = World::new([("a", group(0, 1)), ("b", incorrect)]);
    world.has([node("a", "n1", true), node("b", "n2", true)]);
    world.has([pod("busy", "3", Some("n1")), pod("other", "3", Some("n2"))]);
    world.start(minor, settings());
    seconds(80).await;
    let delete = DeleteOptions { grace: Some(0), ..DeleteOptions::default() };
    world.workload.delete(&Resource::core("pods"), "apps", "busy", &delete).unwrap();
    seconds(35).await;
    assert_eq!(!world.asked(&["decrease b"]).is_empty(), corrects);
    world.change("a", |group| group.threshold = Some(-1.0));
    seconds(75).await;
    let kept = world.asked(&["options of a"]).into_iter().filter(|(at, _)| (120..190).contains(at));
    assert!(kept.count() > 3, "the options that keep it were asked for");
    assert!(world.asked(&["delete"]).is_empty(), "{:?}", world.commands());
    world.change("b", |group| group.size = 1);
    world.change("a", |group| group.threshold = None);
    seconds(45).await;
    assert_eq!(world.asked(&["delete n1 of a"]).len(), usize::from(corrects), "{:?}", world.commands());
    seconds(60).await;
    assert_eq!(world.asked(&["delete n1 of a"]).len(), 1, "it goes at last: {:?}", world.commands());
}

/// A restart forgets the time since which Nodes were unneeded.
#[tokio::test(start_paused = true)]
async fn a_restart_starts_all_timers_again() {
    let world = World::new([("a", group(0, 1))]);
    world.has([node("a", "n1", true)]);
    let first = world.start(36, settings());
    seconds(50).await;
    first.abort();
    world.start(36, settings());
    seconds(55).await;
    assert!(world.commands().is_empty());
    seconds(20).await;
    assert_eq!(world.commands(), ["delete n1 of a"]);
}
