//! Tests of feeds that replace each other: the index has exactly the objects of the last one.

use std::{collections::HashSet, sync::Arc};

use rules::capi::{Cluster, Machine, Node, ObjectKey};
use shared_informer::{DecodeError, Event, Handler, Metadata, Object};

use super::objects::{self, index};
use crate::{Feed, Index, IndexFeed};
use testkit::CapturedLog;

fn object(name: &str) -> Arc<Object<Node>> {
    let metadata = Metadata { key: ObjectKey::cluster(name), uid: "u".into(), resource_version: "1".into() };
    let crate::Change::Node(node) = objects::node(name, &serde_json::json!({})) else { unreachable!() };
    Arc::new(Object { metadata, content: Ok(node) })
}

fn undecodable(name: &str) -> Arc<Object<Node>> {
    let object = object(name);
    Arc::new(Object { metadata: object.metadata.clone(), content: Err(DecodeError::new("odd")) })
}

fn added(name: &str) -> Event<Node> {
    Event::Added { object: object(name), initial: true }
}

fn deleted(name: &str) -> Event<Node> {
    Event::Deleted { last: object(name), found_by_relist: false }
}

fn keys(names: &[&str]) -> HashSet<ObjectKey> {
    names.iter().map(|name| ObjectKey::new("", *name)).collect()
}

fn feed(index: &Arc<Index>, leftovers: HashSet<ObjectKey>) -> Feed<Node> {
    Feed::new(Arc::clone(index), (), leftovers)
}

fn nodes(index: &Index) -> u64 {
    index.stats().nodes
}

#[test]
fn the_nodes_of_a_former_feed_stay_until_the_next_feed_is_complete() {
    let index = Arc::new(index([]));
    let mut first = feed(&index, HashSet::new());
    first.handle(added("a"));
    first.handle(added("b"));
    let mut second = feed(&index, first.keys().take());
    second.handle(added("a"));
    assert_eq!(nodes(&index), 2);
    second.synced();
    assert_eq!(nodes(&index), 1);
    assert_eq!(second.keys().take(), keys(&["a"]));
}

/// An event may be in progress or queued when its feed is replaced.
#[test]
fn a_feed_that_was_taken_over_changes_nothing_any_more() {
    let index = Arc::new(index([]));
    let mut first = feed(&index, HashSet::new());
    first.handle(added("a"));
    let mut second = feed(&index, first.keys().take());
    first.handle(added("late"));
    first.handle(deleted("a"));
    first.synced();
    assert_eq!(nodes(&index), 1);
    second.synced();
    assert_eq!(nodes(&index), 0);
    assert!(first.keys().take().is_empty());
}

#[test]
fn a_feed_that_never_was_complete_hands_on_what_it_was_handed() {
    let index = Arc::new(index([]));
    let mut first = feed(&index, HashSet::new());
    for name in ["a", "b", "c"] {
        first.handle(added(name));
    }
    first.handle(deleted("c"));
    let mut second = feed(&index, first.keys().take());
    second.handle(added("d"));
    let leftovers = second.keys().take();
    assert_eq!(leftovers, keys(&["a", "b", "d"]));
    let mut third = feed(&index, leftovers);
    third.handle(added("b"));
    third.synced();
    assert_eq!(nodes(&index), 1);
}

#[test]
fn an_object_that_does_not_decode_is_one_that_was_shown() {
    let index = Arc::new(index([]));
    let mut feed = feed(&index, HashSet::new());
    feed.handle(added("a"));
    feed.handle(Event::Updated { old: object("a"), new: undecodable("a") });
    assert_eq!(nodes(&index), 1, "what was known of it stays");
    let mut second = self::feed(&index, feed.keys().take());
    second.handle(Event::Added { object: undecodable("a"), initial: true });
    second.synced();
    assert_eq!(nodes(&index), 1, "it is there");
    second.handle(Event::Deleted { last: undecodable("a"), found_by_relist: true });
    assert_eq!(nodes(&index), 0);
}

/// An existing Machine must not count as a missing one, nor a paused Cluster as an unpaused one.
#[test]
fn machines_and_clusters_that_do_not_decode_stay_as_they_were_too() {
    let key = || ObjectKey::new("team-a", "a");
    assert!(Machine::undecodable(&(), key(), "odd".into()).is_none());
    assert!(Cluster::undecodable(&(), key(), "odd".into()).is_none());
}

#[tokio::test(start_paused = true)]
async fn objects_that_do_not_decode_have_few_lines_a_minute_and_a_sum() {
    let index = Arc::new(index([]));
    let mut feed = feed(&index, HashSet::new());
    let said = CapturedLog::of(|| {
        for _ in 0..1_000 {
            feed.handle(Event::Updated { old: object("a"), new: undecodable("a") });
        }
    });
    assert_eq!(said.lines().count(), 10, "{said}");
    tokio::time::advance(std::time::Duration::from_secs(60)).await;
    let said = CapturedLog::of(|| feed.handle(Event::Updated { old: object("a"), new: undecodable("a") }));
    assert!(said.contains("more=990"), "{said}");
}
