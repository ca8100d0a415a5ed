//! Tests of the number of requests that commands make in the usual case: a group that has been quiet for a moment.

use std::{collections::BTreeMap, time::Duration};

use futures::future::join_all;
use sandbox::requests::Request;

use crate::world::{World, is_of_a_command};

const PATIENT: Duration = Duration::from_secs(30);

/// Counts the requests for commands by verb and kind. Lists count as reads.
fn counted(world: &World) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for request in world.sandbox.management().requests().all() {
        if is_of_a_command(&request) || request.verb == "list" {
            *counts.entry(kind_of(&request)).or_default() += 1;
        }
    }
    counts
}

fn kind_of(request: &Request) -> String {
    let kinds = ["/scale", "/machinedeployments", "/machinesets", "/machines"];
    let kind = kinds.into_iter().find(|kind| request.path.contains(kind));
    let tried = if request.query.contains("dryRun=All") { "try to " } else { "" };
    format!("{tried}{} {}", request.verb, kind.unwrap_or(&request.path))
}

fn expected<const N: usize>(counts: [(&str, usize); N]) -> BTreeMap<String, usize> {
    counts.into_iter().map(|(what, count)| (what.to_owned(), count)).collect()
}

/// Starts a world in which Cluster API's controllers have ended, so that only the commands' requests are counted.
async fn quiet(machines: usize) -> World {
    let world = World::start(machines).await;
    world.until_known().await;
    world.rest().await;
    world.sandbox.simulation().end().await;
    world.sandbox.management().requests().clear();
    world
}

#[tokio::test(flavor = "multi_thread")]
async fn an_increase_is_one_write_and_no_read() {
    let world = quiet(3).await;
    world.increase(2, PATIENT).await.unwrap();
    assert_eq!(counted(&world), expected([("patch /scale", 1)]));
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn deletes_of_one_node_each_at_once_are_a_delete_each_one_size_and_no_read() {
    const COUNT: usize = 50;
    // On a busy machine concurrent calls may arrive so far apart that the first are done before the last arrive: then
    // the test is repeated.
    for attempt in 1..=10 {
        let is_last = attempt == 10;
        let world = quiet(60).await;
        let nodes = world.nodes().into_iter().take(COUNT);
        let answers = join_all(nodes.map(|node| world.delete(vec![node], PATIENT))).await;
        assert!(answers.iter().all(Result::is_ok), "{answers:?}");
        assert_eq!(world.size(), i64::try_from(60 - COUNT).unwrap());
        let mut counted = counted(&world);
        // The size is tried once for all waiting calls, and once more for those that arrive while Machines are deleted.
        let tried = counted.remove("try to patch /scale").unwrap_or_default();
        let is_expected = counted == expected([("delete /machines", COUNT), ("patch /scale", 1)]);
        let is_expected = is_expected && (1..=2).contains(&tried);
        assert!(!is_last || is_expected, "{counted:?}, {tried} tried\n{}", world.describe());
        world.stop().await;
        if is_expected {
            return;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_is_going_already_is_named_again_without_a_request() {
    let world = quiet(3).await;
    let node = world.nodes().remove(0);
    world.delete(vec![node.clone()], PATIENT).await.unwrap();
    world.sandbox.management().requests().clear();
    world.delete(vec![node], PATIENT).await.unwrap();
    assert_eq!(counted(&world), expected([]));
    world.stop().await;
}
