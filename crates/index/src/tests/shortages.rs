//! Tests of the time since which a Machine lacks capacity, as the lack begins and ends.

use capi::ObjectKey;
use jiff::Timestamp;
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
    instances[0].error.is_some() && instances[0].sends_error
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
    index.apply_quietly(says("No available host found, trying on"));
    assert_eq!(since(&index), Some(first), "other words say the same");
    index.apply_quietly(says("the host is being prepared"));
    assert_eq!(since(&index), None);
    index.apply_quietly(says("no available host found"));
    assert!(since(&index).unwrap() > first, "it is another time");
    index.apply_quietly(says("QuotaExceeded"));
    assert!(is_sent(&index), "nobody waits for a quota");
    index.apply_quietly(Change::MachineGone(ObjectKey::new(NAMESPACE, "m")));
    assert!(index.inner.read().live.shortages.is_empty());
}

#[test]
fn a_group_may_have_its_own_grace_period() {
    let at_once = json!({"metadata": {"annotations": {"capi-autoscaler-provider.io/capacity-error-grace": "0"}}});
    let index = group([says(""), says("no available host found")]);
    assert!(!is_sent(&index));
    index.apply_quietly(deployment("workers", 1, ("0", "9"), &at_once));
    assert!(is_sent(&index));
}
