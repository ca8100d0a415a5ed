//! Tests which Nodes a group's labels come from after Nodes, Machines and MachineSets are added or deleted.

use rules::capi::{ObjectKey, ScalableKind};
use serde_json::{Value, json};

use super::objects::*;
use crate::{Change, Index};

const ZONE: &str = "topology.kubernetes.io/zone";
const TYPE: &str = "node.kubernetes.io/instance-type";

/// Returns the fields that set an object's template, failure domain and capacity to scale from zero.
fn made_from(template: &str, domain: Option<&str>) -> Value {
    let mut more = using_template(template);
    merge(&mut more, &capacity_annotations("4", "16Gi"));
    merge(&mut more, &json!({"spec": {"template": {"spec": {"failureDomain": domain}}}}));
    more
}

fn group(name: &str, template: &str, domain: Option<&str>) -> Vec<Change> {
    vec![
        deployment(name, 3, ("0", "9"), &made_from(template, domain)),
        set(name, &format!("{name}-1"), template, domain, 1),
    ]
}

fn set(group: &str, name: &str, template: &str, domain: Option<&str>, revision: u16) -> Change {
    let mut more = made_from(template, domain);
    merge(&mut more, &of_revision(revision, 1));
    set_of_with(group, name, &more)
}

fn member(set: &str, name: &str, zone: &str, instance_type: &str) -> Vec<Change> {
    let labels = json!({"metadata": {"labels": {ZONE: zone, TYPE: instance_type}}});
    vec![joined(&format!("MachineSet/{set}"), name), node(name, &labels)]
}

fn gone(name: &str) -> Vec<Change> {
    vec![Change::NodeGone(name.into()), Change::MachineGone(ObjectKey::new(NAMESPACE, name))]
}

fn apply(index: &Index, changes: impl IntoIterator<Item = Change>) {
    for change in changes {
        index.apply_quietly(change);
    }
}

/// Returns a label with its source.
fn label(index: &Index, group: &str, key: &str) -> Option<(String, String)> {
    let served = index.served(&id(&format!("MachineDeployment/team-a/{group}"))).unwrap();
    let label = served.definition.template.as_ref().unwrap().labels.get(key)?;
    Some((label.value.clone(), label.source.to_string()))
}

fn value(index: &Index, group: &str, key: &str) -> Option<String> {
    label(index, group, key).map(|(value, _)| value)
}

#[test]
fn a_group_that_was_in_two_zones_is_in_none_when_it_shrinks() {
    let index = index(group("workers", "t", None));
    apply(&index, member("workers-1", "a", "z1", "large"));
    assert_eq!(label(&index, "workers", ZONE), Some(("z1".into(), "Node a".into())));
    apply(&index, member("workers-1", "b", "z2", "large"));
    assert_eq!(value(&index, "workers", ZONE), None);
    assert_eq!(value(&index, "workers", TYPE).as_deref(), Some("large"));
    apply(&index, gone("a"));
    assert_eq!(value(&index, "workers", ZONE), None);
    apply(&index, gone("b"));
    assert_eq!(value(&index, "workers", ZONE), None);
}

/// Returns a Machine and its Node, which has no zone and has been ready for `minutes`.
fn member_without_zone(set: &str, name: &str, minutes: u32) -> Vec<Change> {
    let ready = json!([{"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z",
        "lastHeartbeatTime": format!("2026-01-01T00:{minutes:02}:00Z")}]);
    let amounts = json!({"cpu": "4", "memory": "16Gi"});
    let status = json!({"capacity": amounts, "allocatable": amounts, "conditions": ready});
    vec![joined(&format!("MachineSet/{set}"), name), node(name, &json!({"status": status}))]
}

#[test]
fn a_failure_domain_is_no_zone_of_a_group_whose_nodes_have_none() {
    let index = index(group("workers", "t", Some("rack-1")));
    apply(&index, group("others", "t", Some("rack-1")));
    assert_eq!(value(&index, "workers", ZONE).as_deref(), Some("rack-1"));
    apply(&index, member_without_zone("workers-1", "a", 9));
    assert_eq!(value(&index, "workers", ZONE).as_deref(), Some("rack-1"), "its label may come yet");
    apply(&index, member_without_zone("workers-1", "a", 10));
    assert_eq!(value(&index, "workers", ZONE), None);
    let served = index.served(&id("MachineDeployment/team-a/workers")).unwrap();
    let notes = &served.definition.notes;
    assert!(
        notes.iter().any(|note| note.contains("rack-1 isn't taken") && note.contains("Node a of the group")),
        "{notes:?}"
    );
    assert_eq!(value(&index, "others", ZONE).as_deref(), Some("rack-1"), "another group's Nodes may have one");

    apply(&index, gone("a"));
    assert_eq!(value(&index, "workers", ZONE), None, "the next one will have none either");
    apply(&index, member("workers-1", "b", "rack-1", "large"));
    assert_eq!(value(&index, "workers", ZONE).as_deref(), Some("rack-1"), "labels are given now");
}

#[test]
fn a_group_back_at_zero_keeps_the_zone_of_its_nodes_over_its_failure_domain() {
    let index = index(group("workers", "t", Some("1")));
    assert_eq!(value(&index, "workers", ZONE).as_deref(), Some("1"));
    apply(&index, member("workers-1", "a", "region-1", "large"));
    apply(&index, gone("a"));
    assert_eq!(label(&index, "workers", ZONE), Some(("region-1".into(), "learned from Node a".into())));
}

#[test]
fn a_node_that_contradicts_its_failure_domain_withdraws_those_of_all_groups_of_its_kind_of_template() {
    let index = index(group("here", "t", Some("1")).into_iter().chain(group("there", "u", Some("2"))));
    assert_eq!(value(&index, "there", ZONE).as_deref(), Some("2"));
    apply(&index, member("here-1", "a", "1", "large"));
    assert_eq!(value(&index, "there", ZONE).as_deref(), Some("2"), "they name the same");
    apply(&index, member("here-1", "b", "region-1", "large"));
    assert_eq!(value(&index, "there", ZONE), None);
    let notes = index.served(&id("MachineDeployment/team-a/there")).unwrap().definition.notes.clone();
    assert!(notes.len() == 1 && notes[0].contains("Node b"), "{notes:?}");
    apply(&index, gone("b"));
    assert_eq!(value(&index, "there", ZONE), None, "it has been seen");
}

/// Returns a group with a new template and two older MachineSets: Node `a`, of the newer one, has no zone, and Node `z`
/// has.
fn group_of_three_templates() -> Index {
    let index = index(group("workers", "t", None));
    apply(&index, [deployment("workers", 3, ("0", "9"), &made_from("v", None))]);
    apply(&index, [set("workers", "workers-2", "u", None, 2)]);
    apply(&index, [joined("MachineSet/workers-2", "a"), node("a", &json!({}))]);
    apply(&index, member("workers-1", "z", "z1", "large"));
    assert_eq!(value(&index, "workers", ZONE).as_deref(), Some("z1"));
    index
}

#[test]
fn a_deleted_machine_set_takes_the_labels_of_its_nodes_along_though_the_sample_stays() {
    let index = group_of_three_templates();
    apply(&index, [Change::ScalableGone(id("MachineSet/team-a/workers-1"))]);
    assert_eq!(value(&index, "workers", ZONE), None);
}

#[test]
fn the_newest_older_machine_set_counts_after_their_revisions_have_changed() {
    let index = group_of_three_templates();
    apply(&index, member("workers-2", "b", "z2", "huge"));
    assert_eq!(value(&index, "workers", ZONE).as_deref(), Some("z2"));
    apply(&index, [set("workers", "workers-1", "t", None, 3)]);
    assert_eq!(value(&index, "workers", ZONE).as_deref(), Some("z1"));
}

#[test]
fn in_a_rollout_the_nodes_of_the_new_template_count() {
    let index = index(group("workers", "t", Some("z1")));
    apply(&index, member("workers-1", "a", "z1", "large"));
    apply(&index, [deployment("workers", 3, ("0", "9"), &made_from("u", Some("z2")))]);
    assert_eq!(value(&index, "workers", ZONE).as_deref(), Some("z2"), "the old Node is in another failure domain");
    apply(&index, [set("workers", "workers-2", "u", Some("z2"), 2)]);
    apply(&index, member("workers-2", "b", "z2", "huge"));
    assert_eq!(label(&index, "workers", ZONE), Some(("z2".into(), "Node b".into())));
    assert_eq!(value(&index, "workers", TYPE).as_deref(), Some("huge"));
}

#[test]
fn labels_of_a_pools_template_reach_its_nodes_while_it_has_machines() {
    let labels = json!({"node.cluster.x-k8s.io/disk": "ssd", "tier": "web"});
    let taints = json!([{"key": "a", "effect": "NoSchedule", "propagation": "Always"}]);
    let mut more = made_from("t", None);
    merge(&mut more, &json!({"spec": {"template": {"metadata": {"labels": labels}, "spec": {"taints": taints}}}}));
    let pool = || scalable(ScalableKind::MachinePool, "pool", 0, ("0", "9"), &more);
    let index = index([joined("MachinePool/pool", "early"), pool()]);
    let seen = || {
        let served = index.served(&id("MachinePool/team-a/pool")).unwrap();
        let template = served.definition.template.clone().unwrap();
        assert!(template.taints.is_empty(), "no taint reaches a Node of a pool");
        ["node.cluster.x-k8s.io/disk", "tier"].map(|key| template.labels.contains_key(key))
    };
    assert_eq!(seen(), [true, false], "Cluster API syncs the first alone");
    apply(&index, [Change::MachineGone(ObjectKey::new(NAMESPACE, "early"))]);
    assert_eq!(seen(), [false, false]);
    apply(&index, [joined("MachinePool/pool", "late")]);
    assert_eq!(seen(), [true, false]);
    apply(&index, [joined("MachinePool/other", "late")]);
    assert_eq!(seen(), [false, false], "it went to another pool");
    apply(&index, [template_of("t", &json!({"infrastructureMachineKind": "CloudMachine"}))]);
    assert_eq!(seen(), [true, false], "its Machines will come");
}

/// Returns a Machine and its ready Node with these labels and features.
fn labelled(name: &str, labels: &Value, features: &[&str]) -> Vec<Change> {
    let amounts = json!({"cpu": "4", "memory": "16Gi"});
    let status = json!({"capacity": amounts, "allocatable": amounts, "declaredFeatures": features,
        "conditions": [{"type": "Ready", "status": "True"}]});
    vec![joined("MachineSet/workers-1", name), node(name, &json!({"metadata": {"labels": labels}, "status": status}))]
}

#[test]
fn what_a_groups_only_node_had_is_in_its_template_at_zero() {
    let volume = "topology.ebs.csi.aws.com/zone";
    let labels = json!({"kubernetes.io/hostname": "n1", "alpha.eksctl.io/instance-id": "i-1", "example.com/node": "n1",
        volume: "eu-1a", "team": "db", "node.kubernetes.io/windows-build": "10.0.20348"});
    let index = index(group("workers", "t", Some("eu-1a")).into_iter().chain(group("others", "t", Some("eu-1a"))));
    apply(&index, labelled("n1", &labels, &["B", "A"]));
    assert_eq!(label(&index, "workers", "team"), Some(("db".into(), "Node n1".into())));
    apply(&index, gone("n1"));
    let from = "learned from Node n1".to_owned();
    assert_eq!(label(&index, "workers", volume), Some(("eu-1a".into(), from.clone())));
    assert_eq!(label(&index, "workers", "team"), Some(("db".into(), from.clone())));
    for of_one_node in ["kubernetes.io/hostname", "alpha.eksctl.io/instance-id", "example.com/node"] {
        assert_eq!(value(&index, "workers", of_one_node), None);
    }
    let served = index.served(&id("MachineDeployment/team-a/workers")).unwrap();
    let template = served.definition.template.as_ref().unwrap();
    let features: Vec<_> = template.declared_features.iter().map(|it| (&*it.value, it.source.to_string())).collect();
    assert_eq!(features, [("A", from.clone()), ("B", from)]);
    // Another group of the same templates has the same kubelet, but labels of its own.
    let served = index.served(&id("MachineDeployment/team-a/others")).unwrap();
    assert_eq!(served.definition.template.as_ref().unwrap().declared_features.len(), 2);
    assert_eq!(value(&index, "others", "node.kubernetes.io/windows-build").as_deref(), Some("10.0.20348"));
    assert_eq!((value(&index, "others", "team"), value(&index, "others", volume)), (None, None));
}

#[test]
fn a_label_on_which_nodes_differ_is_in_no_template_though_they_are_gone() {
    let zone = "topology.csi.vmware.com/k8s-zone";
    let index = index(group("workers", "t", None));
    apply(&index, labelled("a", &json!({zone: "z1", "team": "db"}), &[]));
    apply(&index, labelled("b", &json!({zone: "z2", "team": "db"}), &[]));
    apply(&index, gone("a"));
    apply(&index, gone("b"));
    assert_eq!((value(&index, "workers", zone), value(&index, "workers", "team").as_deref()), (None, Some("db")));
}

#[test]
fn what_a_group_states_is_stronger_than_another_label_of_its_nodes() {
    let mut more = made_from("t", None);
    let stated = json!({"capacity.cluster-autoscaler.kubernetes.io/labels": "team=web"});
    merge(
        &mut more,
        &json!({"metadata": {"annotations": stated},
        "spec": {"template": {"metadata": {"labels": {"node.cluster.x-k8s.io/disk": "ssd"}}}}}),
    );
    let index = index(group("workers", "t", None).into_iter().chain([deployment("workers", 3, ("0", "9"), &more)]));
    apply(&index, labelled("a", &json!({"team": "db", "node.cluster.x-k8s.io/disk": "hdd"}), &[]));
    assert_eq!(value(&index, "workers", "team").as_deref(), Some("web"));
    assert_eq!(value(&index, "workers", "node.cluster.x-k8s.io/disk").as_deref(), Some("ssd"));
}

#[test]
fn in_a_rollout_other_labels_of_old_nodes_count_for_nothing() {
    let index = index(group("workers", "t", None));
    apply(&index, labelled("a", &json!({"team": "db", TYPE: "large"}), &["A"]));
    apply(&index, [deployment("workers", 3, ("0", "9"), &made_from("u", None))]);
    assert_eq!(value(&index, "workers", "team"), None, "a bootstrap template may set it");
    assert_eq!(value(&index, "workers", TYPE).as_deref(), Some("large"));
}
