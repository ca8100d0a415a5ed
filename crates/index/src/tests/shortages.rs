//! Tests of the time since which a Machine or MachinePool lacks capacity, as the lack begins and ends.

use jiff::Timestamp;
use rules::capi::{ObjectKey, ScalableKind};
use serde_json::{Value, json};

use super::objects::*;
use crate::{Change, Index};

const LONG_AGO: &str = "2026-01-01T00:00:00Z";

fn saying(message: &str) -> Value {
    json!({"status": {"conditions": [{
        "type": "InfrastructureReady", "status": "False", "reason": "NotReady", "message": message,
        "lastTransitionTime": LONG_AGO,
    }]}})
}

fn says(message: &str) -> Change {
    machine("MachineSet/workers-1", "m", &saying(message))
}

fn group(changes: impl IntoIterator<Item = Change>) -> Index {
    let group = [deployment("workers", 1, ("0", "9"), &json!({})), set_of("workers", "workers-1")];
    index(group.into_iter().chain(changes))
}

fn since(index: &Index) -> Option<Timestamp> {
    index.members(&id(WORKERS))[0].shortage.map(|shortage| shortage.since)
}

/// Returns true if the error of the Machine is sent.
fn is_sent(index: &Index) -> bool {
    let instances = index.instances(&id(WORKERS)).unwrap();
    instances[0].error.as_ref().is_some_and(|error| error.sent)
}

#[test]
fn one_that_is_there_at_the_start_counts_from_its_condition() {
    let index = group([says("no available host found")]);
    assert_eq!(since(&index), Some(LONG_AGO.parse().unwrap()));
    assert!(is_sent(&index));
}

#[test]
fn one_that_comes_counts_from_then_until_it_goes() {
    let before = Timestamp::now();
    let index = group([says("waiting for bootstrap data"), says("no available host found")]);
    let first = since(&index).unwrap();
    assert!(first >= before && !is_sent(&index), "{first}");
    index.apply_and_take_notices(says("No available host found, trying on"));
    assert_eq!(since(&index), Some(first), "other words say the same");
    index.apply_and_take_notices(says("the host is being prepared"));
    assert_eq!(since(&index), None);
    index.apply_and_take_notices(says("no available host found"));
    assert!(since(&index).unwrap() > first, "it is another time");
    index.apply_and_take_notices(says("QuotaExceeded"));
    assert!(is_sent(&index), "nobody waits for a quota");
    index.apply_and_take_notices(Change::MachineGone(ObjectKey::new(NAMESPACE, "m")));
    assert!(index.inner.read().live.shortages.is_empty());
}

const POOL: &str = "MachinePool/team-a/pool";

/// Returns a MachinePool of this size that lists two instances.
fn pool(replicas: i32, message: &str) -> Change {
    let mut more = saying(message);
    merge(&mut more, &json!({"spec": {"providerIDList": ["cloud:///zone/a", "cloud:///zone/b"]}}));
    scalable(ScalableKind::MachinePool, "pool", replicas, ("0", "9"), &more)
}

fn pool_since(index: &Index) -> Option<Timestamp> {
    index.inner.read().live.groups[&id(POOL)].shortage.map(|shortage| shortage.since)
}

/// Returns the number of instances of the pool whose error is sent, and of those with an error.
fn errors_of_pool(index: &Index) -> (usize, usize) {
    let instances = index.instances(&id(POOL)).unwrap();
    let errors = instances.iter().filter_map(|it| it.error.as_ref());
    let errors = (errors.clone().filter(|error| error.sent).count(), errors.count());
    let snapshot = index.snapshot(Some(&id(POOL)), crate::Detail::Instances).groups.remove(0);
    assert_eq!(snapshot.instances(true).unwrap().map(|owned| owned.instance).collect::<Vec<_>>(), instances);
    assert_eq!(snapshot.counts.failed, errors.1 as u64);
    errors
}

#[test]
fn that_of_a_pool_counts_while_instances_are_missing() {
    let lacking = |replicas| pool(replicas, "err: AllocationFailed");
    let index = index([lacking(3)]);
    assert_eq!(pool_since(&index), Some(LONG_AGO.parse().unwrap()), "it was there at the start");
    assert_eq!(errors_of_pool(&index), (1, 1));
    index.apply_and_take_notices(lacking(2));
    assert_eq!((pool_since(&index), errors_of_pool(&index)), (None, (0, 0)), "it lacks nothing");
    index.apply_and_take_notices(lacking(4));
    assert_eq!(errors_of_pool(&index), (0, 2), "an increase has its own grace period");
    assert!(pool_since(&index).unwrap() > LONG_AGO.parse().unwrap());
    index.apply_and_take_notices(pool(4, "scalesets creating or updating"));
    assert_eq!((pool_since(&index), errors_of_pool(&index)), (None, (0, 0)), "it has recovered");
    index.apply_and_take_notices(pool(4, "err: QuotaExceeded"));
    assert_eq!(errors_of_pool(&index), (2, 2), "nobody waits for a quota");
    index.apply_and_take_notices(Change::ScalableGone(id(POOL)));
    assert_eq!(index.instances(&id(POOL)), Some(Vec::new()));
}
