//! Tests that a copy of the index has the same values as the RPCs' answers.

use std::collections::BTreeMap;

use rules::Instance;
use rules::capi::ScalableKind;
use serde_json::json;

use super::objects::*;
use crate::{Detail, GroupSnapshot, Index};

fn group(index: &Index, id_text: &str) -> GroupSnapshot {
    let mut snapshot = index.snapshot(Some(&id(id_text)), Detail::Instances);
    assert_eq!(snapshot.groups.len(), 1);
    snapshot.groups.remove(0)
}

fn instances(group: &GroupSnapshot) -> Vec<Instance> {
    group.instances(true).unwrap().map(|owned| owned.instance).collect()
}

#[test]
fn its_instances_and_sizes_are_those_that_are_answered() {
    let pool = json!({"spec": {"providerIDList": ["cloud:///zone/p1", "cloud:///zone/p2"]}});
    let changes = workers().into_iter().chain([
        scalable(ScalableKind::MachinePool, "pool", 3, ("0", "9"), &pool),
        deployment("empty", 0, ("0", "3"), &capacity_annotations("1", "1Gi")),
        // It has no providerID of its own, and gets its Node's.
        machine("MachineSet/workers-1", "d", &json!({"status": {"nodeRef": {"name": "d"}}})),
        node("d", &json!({})),
    ]);
    let index = index(changes);
    index.set_written(&id(WORKERS), written(&index, WORKERS, 6, "2"));
    let snapshot = index.snapshot(None, Detail::Instances);
    assert_eq!((snapshot.machines, snapshot.nodes), (4, 3));
    let groups: BTreeMap<_, _> = snapshot.groups.into_iter().map(|it| (it.id.to_string(), it)).collect();
    for text in [WORKERS, "MachinePool/team-a/pool", "MachineDeployment/team-a/empty"] {
        let group = &groups[text];
        assert!(group.standing.is_ok() && group.pinned, "{text}");
        assert_eq!(Some(group.size), index.target_size(&id(text)), "{text}");
        assert_eq!(Some(instances(group)), index.instances(&id(text)), "{text}");
    }
    let workers = &groups[WORKERS];
    let machines: Vec<_> = workers.instances(true).unwrap().map(|owned| owned.machine.unwrap_or_default()).collect();
    assert_eq!(machines, ["a", "b", "c", "d", "", ""]);
    assert_eq!((workers.size, workers.written.map(|written| written.replicas)), (6, Some(6)));
    assert_eq!(workers.object.as_ref().and_then(|object| object.replicas), Some(4));
    let set = &groups["MachineSet/team-a/workers-1"];
    assert!(set.standing.is_err());
    assert_eq!(instances(set), [], "they are shown by the MachineDeployment");
}

#[test]
fn a_group_that_turned_invalid_is_shown_with_its_problem_and_stays_pinned_until_a_refresh() {
    let index = index(workers());
    index.apply_quietly(deployment("workers", 4, ("many", "10"), &json!({})));
    let left_out = group(&index, WORKERS);
    assert!(matches!(&left_out.standing, Err(excluded) if excluded.problems.len() == 1));
    assert!(left_out.pinned);
    index.refresh();
    assert!(!group(&index, WORKERS).pinned);
    assert_eq!(index.snapshot(Some(&id("MachineDeployment/team-a/other")), Detail::Instances).groups.len(), 0);
}
