//! Plays Cluster Autoscaler 1.33 to 1.37, loop by loop, for every state that a Machine can be in. It must never see a
//! size that it would correct, which ends its loop for all groups, and never request in vain the deletion of an
//! instance with an error; and its actions must come to an end.

use std::collections::BTreeSet;

use rstest::rstest;
use rules::InstanceState;
use serde_json::json;

use super::fake::{Fault, World, group, status};
use crate::{NamedNode, ScaleError};
use index::NodeQuery;

/// More loops than any of these states needs if each Machine is named alone.
const MOST_LOOPS: usize = 8;

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Failure {
    None,
    ForGood,
    NoCapacity,
}

/// The state of Machine `x` in a group with one healthy Machine `h`.
#[derive(Clone, Copy, Debug)]
#[allow(clippy::struct_excessive_bools, reason = "each is one part of the state")]
struct State {
    has_node: bool,
    has_node_ref: bool,
    has_provider_id: bool,
    is_deleting: bool,
    failure: Failure,
    is_rolling_out: bool,
    /// The size minus the minimum.
    above_min: i32,
    /// Replicas without a Machine.
    missing: i32,
}

/// The effects of one loop on the group.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
struct Loop {
    /// Instances that never registered and were named in a delete, with its answer.
    unregistered: Option<(BTreeSet<String>, Option<ScaleError>)>,
    /// Instances that were named for their error, with the answer.
    failed: Option<(BTreeSet<String>, Option<ScaleError>)>,
    /// The number of Nodes and the target size, if Nodes and unregistered instances don't add up to it. If that holds
    /// in two loops, Cluster Autoscaler corrects the size, and skips the rest of the loop for all groups.
    incorrect: Option<(i32, i32)>,
}

impl State {
    /// Builds a world in this state; `None` if there is no such state.
    fn world(self) -> Option<World> {
        // Cluster API finds a Node by its providerID, and so does everything else here.
        if (self.has_node_ref || self.has_node) && !self.has_provider_id {
            return None;
        }
        let size = 2 + self.missing;
        let world = World::new(size, &["h"]);
        let status = match self.failure {
            Failure::None => json!({}),
            Failure::ForGood => json!({"phase": "Failed", "failureReason": "CreateError", "failureMessage": "broken"}),
            Failure::NoCapacity => json!({"conditions": [
                {"type": "InfrastructureReady", "status": "False", "reason": "QuotaExceeded", "message": "no cores"},
            ]}),
        };
        let mut status = status;
        if self.has_node_ref {
            status["nodeRef"] = json!({"name": "x"});
        }
        world.machine("x", &status, &json!({}));
        if !self.has_provider_id {
            world.api.change("machines", "x", json!({"spec": {"providerID": null}}));
        }
        world.node("h", Some("cloud:///h"), &json!({}));
        if self.has_node {
            world.node("x", Some("cloud:///x"), &json!({}));
        }
        if self.is_deleting {
            world.api.hang("x");
        }
        if self.is_rolling_out {
            world.api.roll_out();
        }
        world.set_min(size - self.above_min);
        Some(world)
    }
}

/// Plays one loop, with caches that are up to date and after all timeouts.
async fn one_loop(world: &World, state: State) -> Loop {
    let mut did = Loop::default();
    let names: &[&str] = if state.has_node { &["h", "x"] } else { &["h"] };
    let registered: BTreeSet<_> = names.iter().map(|name| format!("cloud:///{name}")).collect();
    let is_registered = |id: &String| registered.contains(id);
    let of_group = |id: &&String| {
        let no_annotations = std::collections::HashMap::new();
        let query = NodeQuery { name: id, provider_id: id, annotations: &no_annotations };
        world.index.resolve(query).group() == Some(group())
    };
    let nodes = count(registered.iter().filter(of_group).count());
    let (target, min) = (world.target_size(), world.index.scale_view(&group()).unwrap().bounds.min);
    let instances = world.index.instances(&group()).unwrap();
    let sends_error = |instance: &&rules::Instance| instance.error.as_ref().is_some_and(|error| error.sent);
    let unregistered: BTreeSet<_> = instances
        .iter()
        .filter(|instance| !is_registered(&instance.id))
        .filter(|instance| instance.state != InstanceState::Deleting && !sends_error(instance))
        .map(|instance| instance.id.clone())
        .collect();
    let failed: BTreeSet<_> = instances
        .iter()
        .filter(|instance| instance.state == InstanceState::Creating && sends_error(instance))
        .map(|instance| instance.id.clone())
        .collect();

    let possible = usize::try_from(target - min).unwrap_or_default();
    let removed: BTreeSet<_> = unregistered.iter().take(possible).cloned().collect();
    if !removed.is_empty() {
        let answer = world.scale.delete(group(), named(&removed)).await.err();
        did.unregistered = Some((removed, answer));
    }
    if !failed.is_empty() {
        let answer = world.scale.delete(group(), named(&failed)).await.err();
        did.failed = Some((failed, answer));
    }
    let is_known = nodes > 0 || !unregistered.is_empty();
    if is_known && nodes < target - count(unregistered.len()) {
        did.incorrect = Some((nodes, target));
    }
    did
}

fn named(ids: &BTreeSet<String>) -> Vec<NamedNode> {
    ids.iter().map(|id| NamedNode { name: id.clone(), provider_id: id.clone(), ..NamedNode::default() }).collect()
}

fn count(count: usize) -> i32 {
    i32::try_from(count).unwrap()
}

/// Returns all combinations, as digits of a number.
fn states() -> impl Iterator<Item = State> {
    (0..2 * 2 * 2 * 2 * 3 * 2 * 3 * 2).map(move |mut number: usize| {
        let mut digit = |base: usize| {
            let digit = number % base;
            number /= base;
            digit
        };
        State {
            has_node: digit(2) == 1,
            has_node_ref: digit(2) == 1,
            has_provider_id: digit(2) == 1,
            is_deleting: digit(2) == 1,
            failure: [Failure::None, Failure::ForGood, Failure::NoCapacity][digit(3)],
            is_rolling_out: digit(2) == 1,
            above_min: count(digit(3)),
            missing: count(digit(2)),
        }
    })
}

#[tokio::test(start_paused = true)]
async fn no_state_of_a_machine_freezes_cluster_autoscaler() {
    let mut seen = 0;
    for state in states() {
        let Some(world) = state.world() else { continue };
        seen += 1;
        let mut loops: Vec<Loop> = Vec::new();
        let has_ended = loop {
            let did = one_loop(&world, state).await;
            let is_still = |before: &Loop| did.incorrect.is_some() && before.incorrect == did.incorrect;
            assert!(!loops.last().is_some_and(is_still), "{state:?} freezes all groups: {did:#?} after {loops:#?}");
            if let Some((ids, Some(error))) = &did.failed {
                panic!("{state:?}: {ids:?} are named for their errors in every loop, in vain: {error}");
            }
            if let Some((ids, Some(error))) = &did.unregistered {
                // Only a state that ends by itself may refuse: Cluster Autoscaler warns and goes on.
                assert!(
                    state.is_rolling_out,
                    "{state:?}: {ids:?} never registered, and their delete is refused: {error}"
                );
            }
            let is_quiet = did.failed.is_none() && did.unregistered.as_ref().is_none_or(|(_, error)| error.is_some());
            let is_same = loops.last() == Some(&did);
            loops.push(did);
            if is_quiet && is_same {
                break true;
            }
            if loops.len() > MOST_LOOPS {
                break false;
            }
            // The controllers catch up, and a Machine that is being deleted hangs.
            world.watch();
            tokio::time::sleep(std::time::Duration::from_secs(6)).await;
        };
        assert!(has_ended, "{state:?} doesn't come to an end: {loops:#?}");
        if state.has_node && state.has_provider_id && !state.is_deleting {
            assert!(!world.api.is_deleting("x"), "{state:?}: its Node runs: {loops:#?}");
        }
        world.scale.drain(super::fake::LONG).await.unwrap();
    }
    assert!(seen > 350, "{seen} states");
}

/// Builds a world with a failed Machine that has never been one of Cluster Autoscaler's Nodes.
fn failed_for_good(above_min: i32) -> World {
    let state = State { above_min, ..FAILED_FOR_GOOD };
    state.world().unwrap()
}

const FAILED_FOR_GOOD: State = State {
    has_node: false,
    has_node_ref: false,
    has_provider_id: false,
    is_deleting: false,
    failure: Failure::ForGood,
    is_rolling_out: false,
    above_min: 0,
    missing: 0,
};

/// A webhook, a policy or a missing permission keeps a failed Machine for any length of time.
#[rstest]
#[case::above_the_minimum(1, "DELETE machine x", 403, "admission webhook \"guard\" denied the request")]
#[case::by_its_size_above_the_minimum(1, "TRY scale", 403, "admission webhook \"guard\" denied the request")]
#[case::at_the_minimum(0, "DELETE machine x", 403, "admission webhook \"guard\" denied the request")]
#[case::by_a_policy_above_the_minimum(
    1,
    "DELETE machine x",
    422,
    "ValidatingAdmissionPolicy 'p' with binding 'b' denied request: no"
)]
#[case::by_a_policy_at_the_minimum(
    0,
    "DELETE machine x",
    422,
    "ValidatingAdmissionPolicy 'p' with binding 'b' denied request: no"
)]
#[tokio::test(start_paused = true)]
async fn a_failed_machine_that_is_not_let_go_freezes_nobody(
    #[case] above_min: i32,
    #[case] call: &'static str,
    #[case] code: u16,
    #[case] message: &str,
) {
    let world = failed_for_good(above_min);
    for _ in 0..1000 {
        world.api.fault(call, Fault::Answer(code, status(code, message)));
    }
    assert!(one_loop(&world, FAILED_FOR_GOOD).await.failed.is_some(), "it is tried");
    // It counts as one that may still come until it has been without an error for longer than Cluster Autoscaler waits
    // for a Node.
    let (minute, mut quiet, mut longest) = (std::time::Duration::from_secs(60), 0, 0);
    for _ in 0..12 * 60 {
        world.watch();
        let next = one_loop(&world, FAILED_FOR_GOOD).await;
        quiet = if next.failed.is_some() { 0 } else { quiet + 1 };
        longest = quiet.max(longest);
        assert!(next.incorrect.is_none() || next.failed.is_some(), "its instance may still come");
        tokio::time::sleep(minute).await;
    }
    assert!(longest > 60, "{longest} minutes");
    let is_tried_again = longest < 12 * 60;
    assert_eq!(is_tried_again, above_min == 0, "above the minimum Cluster Autoscaler itself names it again");
}

/// Returns the instances that Cluster Autoscaler names for their errors.
fn failed(world: &World) -> BTreeSet<String> {
    let instances = world.index.instances(&group()).unwrap();
    instances.iter().filter(|it| it.error.as_ref().is_some_and(|error| error.sent)).map(|it| it.id.clone()).collect()
}

/// Without the right to list Machines a replica can't be given up, nor a Machine that is named together with it.
#[tokio::test(start_paused = true)]
async fn a_failed_machine_named_with_a_replica_that_cannot_be_counted_is_named_once() {
    let world = State { above_min: 3, missing: 1, ..FAILED_FOR_GOOD }.world().unwrap();
    let machine = failed(&world);
    assert_eq!(machine.len(), 1);
    let instances = world.index.instances(&group()).unwrap();
    let replica = instances.iter().find(|it| it.id.starts_with("replica-")).unwrap().id.clone();
    for _ in 0..10 {
        world.api.fault("LIST machines", Fault::Answer(403, status(403, "forbidden")));
    }
    let both = machine.into_iter().chain([replica]).collect();
    let error = world.scale.delete(group(), named(&both)).await.unwrap_err();
    assert_eq!(error.code(), "permission_denied", "{error}");
    assert_eq!(failed(&world), BTreeSet::new());
}

/// An unreachable webhook delays each write for longer than Cluster Autoscaler waits.
#[tokio::test(start_paused = true)]
async fn a_failed_machine_whose_deletion_takes_too_long_freezes_nobody() {
    let world = failed_for_good(1);
    for _ in 0..100 {
        world.api.fault("DELETE machine x", Fault::AnswerAfter(429, 1));
    }
    let named = named(&failed(&world));
    assert_eq!(named.len(), 1);
    let call = tokio::time::timeout(std::time::Duration::from_secs(2), world.scale.delete(group(), named));
    assert!(call.await.is_err(), "its caller leaves first");
    tokio::time::sleep(std::time::Duration::from_secs(30)).await;
    assert_eq!(failed(&world), BTreeSet::new());
}
