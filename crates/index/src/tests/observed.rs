//! Tests of what is observed of Nodes, labels and resources, and of how long it is kept.

use std::collections::BTreeMap;

use rstest::rstest;
use rules::capi::{ObjectKey, ScalableKind};
use rules::{NodeTemplate, Rules, TemplateRules};
use serde_json::{Value, json};

use super::objects::*;
use crate::{Change, Index};

const ZONE: &str = "topology.kubernetes.io/zone";
const OTHERS: &str = "MachineDeployment/team-a/others";
const TYPE: &str = "node.kubernetes.io/instance-type";

/// Returns the fields that set an object's template, failure domain and capacity to scale from zero.
fn made_from(template: &str, domain: Option<&str>) -> Value {
    let mut more = using_template(template);
    merge(&mut more, &capacity_annotations("4", "16Gi"));
    merge(&mut more, &json!({"spec": {"template": {"spec": {"failureDomain": domain}}}}));
    more
}

/// Returns a MachineDeployment with its MachineSet.
fn group(name: &str, more: &Value) -> Vec<Change> {
    vec![deployment(name, 3, ("0", "9"), more), set(name, &format!("{name}-1"), 1, more)]
}

fn set(group: &str, name: &str, revision: u16, more: &Value) -> Change {
    let mut value = of_revision(revision, 1);
    merge(&mut value, more);
    set_of_with(group, name, &value)
}

fn member(set: &str, name: &str, zone: &str, instance_type: &str) -> Vec<Change> {
    let labels = json!({"metadata": {"labels": {ZONE: zone, TYPE: instance_type}}});
    vec![joined(&format!("MachineSet/{set}"), name), node(name, &labels)]
}

fn built(index: &Index, group: &str) -> NodeTemplate {
    index.served(&id(group)).unwrap().definition.template.clone().unwrap()
}

fn notes(index: &Index, group: &str) -> Vec<String> {
    index.served(&id(group)).unwrap().definition.notes.clone()
}

/// Returns a label with its source.
fn label(index: &Index, group: &str, key: &str) -> Option<(String, String)> {
    let template = built(index, group);
    let label = template.labels.get(key)?;
    Some((label.value.clone(), label.source.to_string()))
}

fn value(index: &Index, group: &str, key: &str) -> Option<String> {
    label(index, group, key).map(|(value, _)| value)
}

#[test]
fn a_group_that_was_in_two_zones_is_in_none_when_it_shrinks() {
    let index = index(group("workers", &made_from("t", None)));
    apply(&index, member("workers-1", "a", "z1", "large"));
    assert_eq!(label(&index, WORKERS, ZONE), Some(("z1".into(), "Node a".into())));
    apply(&index, member("workers-1", "b", "z2", "large"));
    assert_eq!(value(&index, WORKERS, ZONE), None);
    assert_eq!(value(&index, WORKERS, TYPE).as_deref(), Some("large"));
    apply(&index, gone("a"));
    assert_eq!(value(&index, WORKERS, ZONE), None);
    apply(&index, gone("b"));
    assert_eq!(value(&index, WORKERS, ZONE), None);
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
    let index = index(group("workers", &made_from("t", Some("rack-1"))));
    apply(&index, group("others", &made_from("t", Some("rack-1"))));
    assert_eq!(value(&index, WORKERS, ZONE).as_deref(), Some("rack-1"));
    apply(&index, member_without_zone("workers-1", "a", 9));
    assert_eq!(value(&index, WORKERS, ZONE).as_deref(), Some("rack-1"), "its label may come yet");
    apply(&index, member_without_zone("workers-1", "a", 10));
    assert_eq!(value(&index, WORKERS, ZONE), None);
    let notes = notes(&index, WORKERS);
    assert!(
        notes.iter().any(|note| note.contains("rack-1 isn't taken") && note.contains("Node a of the group")),
        "{notes:?}"
    );
    assert_eq!(value(&index, OTHERS, ZONE).as_deref(), Some("rack-1"), "another group's Nodes may have one");

    apply(&index, gone("a"));
    assert_eq!(value(&index, WORKERS, ZONE), None, "the next one will have none either");
    apply(&index, member("workers-1", "b", "rack-1", "large"));
    assert_eq!(value(&index, WORKERS, ZONE).as_deref(), Some("rack-1"), "labels are given now");
}

#[test]
fn a_group_back_at_zero_keeps_the_zone_of_its_nodes_over_its_failure_domain() {
    let index = index(group("workers", &made_from("t", Some("1"))));
    assert_eq!(value(&index, WORKERS, ZONE).as_deref(), Some("1"));
    apply(&index, member("workers-1", "a", "region-1", "large"));
    apply(&index, gone("a"));
    assert_eq!(label(&index, WORKERS, ZONE), Some(("region-1".into(), "learned from Node a".into())));
}

#[test]
fn a_node_that_contradicts_its_failure_domain_withdraws_those_of_all_groups_of_its_kind_of_template() {
    let index = index(
        group("workers", &made_from("t", Some("1"))).into_iter().chain(group("others", &made_from("u", Some("2")))),
    );
    assert_eq!(value(&index, OTHERS, ZONE).as_deref(), Some("2"));
    apply(&index, member("workers-1", "a", "1", "large"));
    assert_eq!(value(&index, OTHERS, ZONE).as_deref(), Some("2"), "they name the same");
    apply(&index, member("workers-1", "b", "region-1", "large"));
    assert_eq!(value(&index, OTHERS, ZONE), None);
    let notes = notes(&index, OTHERS);
    assert!(notes.len() == 1 && notes[0].contains("Node b"), "{notes:?}");
    apply(&index, gone("b"));
    assert_eq!(value(&index, OTHERS, ZONE), None, "it has been seen");
}

/// Returns a group with a new template and two older MachineSets: Node `a`, of the newer one, has no zone, and Node `z`
/// has.
fn group_of_three_templates() -> Index {
    let index = index(group("workers", &made_from("t", None)));
    apply(&index, [deployment("workers", 3, ("0", "9"), &made_from("v", None))]);
    apply(&index, [set("workers", "workers-2", 2, &made_from("u", None))]);
    apply(&index, [joined("MachineSet/workers-2", "a"), node("a", &json!({}))]);
    apply(&index, member("workers-1", "z", "z1", "large"));
    assert_eq!(value(&index, WORKERS, ZONE).as_deref(), Some("z1"));
    index
}

#[test]
fn a_deleted_machine_set_takes_the_labels_of_its_nodes_along_though_the_sample_stays() {
    let index = group_of_three_templates();
    apply(&index, [Change::ScalableGone(id("MachineSet/team-a/workers-1"))]);
    assert_eq!(value(&index, WORKERS, ZONE), None);
}

#[test]
fn the_newest_older_machine_set_counts_after_their_revisions_have_changed() {
    let index = group_of_three_templates();
    apply(&index, member("workers-2", "b", "z2", "huge"));
    assert_eq!(value(&index, WORKERS, ZONE).as_deref(), Some("z2"));
    apply(&index, [set("workers", "workers-1", 3, &made_from("t", None))]);
    assert_eq!(value(&index, WORKERS, ZONE).as_deref(), Some("z1"));
}

#[test]
fn in_a_rollout_the_nodes_of_the_new_template_count() {
    let index = index(group("workers", &made_from("t", Some("z1"))));
    apply(&index, member("workers-1", "a", "z1", "large"));
    apply(&index, [deployment("workers", 3, ("0", "9"), &made_from("u", Some("z2")))]);
    assert_eq!(value(&index, WORKERS, ZONE).as_deref(), Some("z2"), "the old Node is in another failure domain");
    apply(&index, [set("workers", "workers-2", 2, &made_from("u", Some("z2")))]);
    apply(&index, member("workers-2", "b", "z2", "huge"));
    assert_eq!(label(&index, WORKERS, ZONE), Some(("z2".into(), "Node b".into())));
    assert_eq!(value(&index, WORKERS, TYPE).as_deref(), Some("huge"));
}

#[test]
fn a_pools_template_takes_the_labels_on_which_its_nodes_agree() {
    let pool = |nodes: &[&str]| {
        let mut more = capacity_annotations("4", "16Gi");
        let nodes: Vec<_> = nodes.iter().map(|name| json!({"name": name})).collect();
        merge(&mut more, &json!({"status": {"nodeRefs": nodes}}));
        scalable(ScalableKind::MachinePool, "pool", 2, ("0", "3"), &more)
    };
    let in_zone = |name: &str, zone: &str| node(name, &json!({"metadata": {"labels": {ZONE: zone}}}));
    let zone = |index: &Index| value(index, "MachinePool/team-a/pool", ZONE);
    let index = index([pool(&["a", "b"]), in_zone("b", "zone-b")]);
    assert_eq!(zone(&index).as_deref(), Some("zone-b"), "of those that are known");
    apply(&index, [in_zone("a", "zone-a")]);
    assert_eq!(zone(&index), None);
    apply(&index, [pool(&["b"])]);
    assert_eq!(zone(&index), None, "the next Node may be in either");
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
        let template = built(&index, "MachinePool/team-a/pool");
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
    let index = index(
        group("workers", &made_from("t", Some("eu-1a")))
            .into_iter()
            .chain(group("others", &made_from("t", Some("eu-1a")))),
    );
    apply(&index, labelled("n1", &labels, &["B", "A"]));
    assert_eq!(label(&index, WORKERS, "team"), Some(("db".into(), "Node n1".into())));
    apply(&index, gone("n1"));
    let from = "learned from Node n1".to_owned();
    assert_eq!(label(&index, WORKERS, volume), Some(("eu-1a".into(), from.clone())));
    assert_eq!(label(&index, WORKERS, "team"), Some(("db".into(), from.clone())));
    for of_one_node in ["kubernetes.io/hostname", "alpha.eksctl.io/instance-id", "example.com/node"] {
        assert_eq!(value(&index, WORKERS, of_one_node), None);
    }
    let template = built(&index, WORKERS);
    let features: Vec<_> = template.declared_features.iter().map(|it| (&*it.value, it.source.to_string())).collect();
    assert_eq!(features, [("A", from.clone()), ("B", from)]);
    // Another group of the same templates has the same kubelet, but labels of its own.
    assert_eq!(built(&index, OTHERS).declared_features.len(), 2);
    assert_eq!(value(&index, OTHERS, "node.kubernetes.io/windows-build").as_deref(), Some("10.0.20348"));
    assert_eq!((value(&index, OTHERS, "team"), value(&index, OTHERS, volume)), (None, None));
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
    let index =
        index(group("workers", &made_from("t", None)).into_iter().chain([deployment("workers", 3, ("0", "9"), &more)]));
    apply(&index, labelled("a", &json!({"team": "db", "node.cluster.x-k8s.io/disk": "hdd"}), &[]));
    assert_eq!(value(&index, WORKERS, "team").as_deref(), Some("web"));
    assert_eq!(value(&index, WORKERS, "node.cluster.x-k8s.io/disk").as_deref(), Some("ssd"));
}

#[test]
fn in_a_rollout_other_labels_of_old_nodes_count_for_nothing() {
    let index = index(group("workers", &made_from("t", None)));
    apply(&index, labelled("a", &json!({"team": "db", TYPE: "large"}), &["A"]));
    apply(&index, [deployment("workers", 3, ("0", "9"), &made_from("u", None))]);
    assert_eq!(value(&index, WORKERS, "team"), None, "a bootstrap template may set it");
    assert_eq!(value(&index, WORKERS, TYPE).as_deref(), Some("large"));
}

// Resources, and what pods don't get of them.

/// Returns the fields with which an object uses these templates.
fn templates(infrastructure: &str, bootstrap: &str) -> Value {
    let mut value = using_template(infrastructure);
    let configuration =
        json!({"apiGroup": "bootstrap.cluster.x-k8s.io", "kind": "CloudConfigTemplate", "name": bootstrap});
    merge(&mut value, &json!({"spec": {"template": {"spec": {"bootstrap": {"configRef": configuration}}}}}));
    value
}

/// Returns a ready Node with these resources: capacity and allocatable.
fn shows(resources: &[(&str, &str, &str)], more: &Value) -> Value {
    let amounts = |of: fn((&str, &str, &str)) -> (String, String)| {
        resources.iter().map(|resource| of(*resource)).collect::<BTreeMap<_, _>>()
    };
    let mut value = json!({"status": {
        "capacity": amounts(|(name, capacity, _)| (name.to_owned(), capacity.to_owned())),
        "allocatable": amounts(|(name, _, allocatable)| (name.to_owned(), allocatable.to_owned())),
        "conditions": [{"type": "Ready", "status": "True",
            "lastTransitionTime": "2026-01-01T00:00:00Z", "lastHeartbeatTime": "2026-01-01T00:00:05Z"}],
    }});
    merge(&mut value, more);
    value
}

const USUAL: [(&str, &str, &str); 2] = [("cpu", "8", "7910m"), ("memory", "32Gi", "30Gi")];

/// Returns the Node of Machine `name`, with the usual resources.
fn usual(name: &str) -> Change {
    node(name, &shows(&USUAL, &json!({})))
}

fn small() -> Change {
    template("small", &json!({"cpu": "8", "memory": "32Gi", "pods": "110"}))
}

/// Returns the allocatable amount of a resource, and the source of its overhead.
fn allocatable(index: &Index, group: &str, resource: &str) -> (String, String) {
    let template = built(index, group);
    let source = template.overhead.get(resource).map_or_else(String::new, |overhead| overhead.source.to_string());
    (template.allocatable(resource).unwrap().to_string(), source)
}

fn capacity(index: &Index, group: &str, resource: &str) -> Option<(String, &'static str)> {
    let template = built(index, group);
    template.capacity.get(resource).map(|amount| (amount.value.to_string(), amount.source.as_str()))
}

fn unknown(amount: &str) -> (String, String) {
    (amount.to_owned(), String::new())
}

fn known(amount: &str, from: &str) -> (String, String) {
    (amount.to_owned(), format!("learned from Node {from}"))
}

/// Returns group `workers` with one Machine `a` that became a Node, and its template.
fn observation() -> Vec<Change> {
    let mut changes = group("workers", &templates("small", "config"));
    changes.extend([small(), joined("MachineSet/workers-1", "a"), usual("a")]);
    changes
}

fn back_to_zero(index: &Index) {
    apply(index, gone("a"));
    index.apply_and_take_notices(deployment("workers", 0, ("0", "10"), &templates("small", "config")));
    index.refresh();
}

#[test]
fn it_lasts_as_long_as_the_templates_of_the_group() {
    let index = index(observation());
    back_to_zero(&index);
    assert_eq!(index.target_size(&id(WORKERS)), Some(0));
    assert_eq!(allocatable(&index, WORKERS, "memory"), known("30Gi", "a"), "it survives the return to zero");
    let renewed = templates("small", "other-config");
    apply(&index, [deployment("workers", 0, ("0", "10"), &renewed), set("workers", "workers-2", 2, &renewed)]);
    // As long as Cluster API keeps the old MachineSet, its observation is the best one.
    assert_eq!(allocatable(&index, WORKERS, "memory"), known("30Gi", "a"));
    index.apply_and_take_notices(Change::ScalableGone(id("MachineSet/team-a/workers-1")));
    assert_eq!(allocatable(&index, WORKERS, "memory"), unknown("32Gi"));
}

/// A restart is an index that has never seen a Node of the group.
#[rstest]
#[case::both_templates_are_the_same("small", "config", Some("a of MachineDeployment/team-a/workers"))]
#[case::another_infrastructure_template("large", "config", None)]
#[case::another_bootstrap_template("small", "other-config", None)]
fn a_group_learns_from_a_node_of_another_group_when(
    #[case] infrastructure: &str,
    #[case] bootstrap: &str,
    #[case] from: Option<&str>,
) {
    let mut changes = observation();
    changes.extend([template("large", &json!({"cpu": "8", "memory": "32Gi"}))]);
    changes.extend(group("others", &templates(infrastructure, bootstrap)));
    let expected = from.map_or_else(|| unknown("32Gi"), |from| known("30Gi", from));
    let in_order = index(changes.clone());
    assert_eq!(allocatable(&in_order, OTHERS, "memory"), expected);
    changes.reverse();
    assert_eq!(allocatable(&index(changes), OTHERS, "memory"), expected);
}

#[test]
fn a_groups_own_node_goes_before_those_of_others() {
    let mut changes = observation();
    changes.extend(group("others", &templates("small", "config")));
    changes.extend([joined("MachineSet/others-1", "z")]);
    changes.push(node("z", &shows(&[("cpu", "8", "7"), ("memory", "32Gi", "29Gi")], &json!({}))));
    let index = index(changes);
    assert_eq!(allocatable(&index, OTHERS, "memory"), known("29Gi", "z"));
    assert_eq!(allocatable(&index, WORKERS, "memory"), known("30Gi", "a"));
}

#[rstest]
#[case::it_is_not_ready(json!({"status": {"conditions": [{"type": "Ready", "status": "False"}]}}))]
#[case::nobody_knows_whether_it_is_ready(json!({"status": {"conditions": []}}))]
#[case::it_is_being_deleted(json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}))]
#[case::it_has_no_allocatable_yet(json!({"status": {"allocatable": null}}))]
#[case::it_has_no_capacity_yet(json!({"status": {"capacity": null}}))]
#[case::it_shows_no_memory(json!({"status": {"capacity": {"memory": "0"}, "allocatable": {"memory": "0"}}}))]
#[case::pods_get_no_cpu(json!({"status": {"allocatable": {"cpu": "0"}}}))]
#[case::its_memory_is_no_quantity(json!({"status": {"capacity": {"memory": "much"}}}))]
fn nothing_is_learned_from_a_node_while(#[case] more: Value) {
    let mut changes = observation();
    changes.pop();
    changes.push(node("a", &shows(&USUAL, &more)));
    assert_eq!(allocatable(&index(changes), WORKERS, "memory"), unknown("32Gi"));
}

#[test]
fn a_pod_is_never_promised_more_than_the_capacity_nor_less_than_nothing() {
    let mut changes = observation();
    changes.push(node("a", &shows(&[("cpu", "8", "9"), ("memory", "40Gi", "1Gi")], &json!({}))));
    let annotated = capacity_annotations("4", "16Gi");
    let mut value = templates("small", "config");
    merge(&mut value, &annotated);
    changes.push(deployment("workers", 1, ("0", "10"), &value));
    let index = index(changes);
    assert_eq!(allocatable(&index, WORKERS, "cpu"), known("4", "a"));
    assert_eq!(allocatable(&index, WORKERS, "memory"), known("0", "a"));
}

#[test]
fn a_nodes_capacity_goes_before_that_of_its_machine() {
    let mut changes = observation();
    changes.push(node("a", &shows(&[("cpu", "8", "8"), ("memory", "31Gi", "30Gi")], &json!({}))));
    let index = index(changes);
    assert_eq!(capacity(&index, WORKERS, "memory"), Some(("31Gi".to_owned(), "learned")));
    assert_eq!(capacity(&index, WORKERS, "cpu"), Some(("8".to_owned(), "status.capacity")));
    let overrode = &built(&index, WORKERS).capacity["memory"].overrode[0];
    assert_eq!(overrode.source.to_string(), "status.capacity of CloudMachineTemplate/small");
    assert_eq!(allocatable(&index, WORKERS, "memory"), known("30Gi", "a"));
}

#[test]
fn a_node_of_older_templates_shows_what_pods_do_not_get_and_nothing_else() {
    let mut changes = observation();
    changes.push(template("large", &json!({"cpu": "16", "memory": "64Gi"})));
    let large = templates("large", "config");
    changes.push(node(
        "a",
        &shows(&[("cpu", "8", "7"), ("memory", "31Gi", "30Gi"), ("a.example/nic", "2", "2")], &json!({})),
    ));
    changes.extend([deployment("workers", 1, ("0", "10"), &large), set("workers", "workers-2", 2, &large)]);
    let index = index(changes);
    assert_eq!(capacity(&index, WORKERS, "memory"), Some(("64Gi".to_owned(), "status.capacity")));
    assert_eq!(capacity(&index, WORKERS, "a.example/nic"), None);
    assert_eq!(allocatable(&index, WORKERS, "memory"), known("63Gi", "a"));
    index.apply_and_take_notices(joined("MachineSet/workers-2", "b"));
    index.apply_and_take_notices(node("b", &shows(&[("cpu", "16", "15"), ("memory", "62Gi", "60Gi")], &json!({}))));
    assert_eq!(allocatable(&index, WORKERS, "memory"), known("60Gi", "b"));
}

const GPU: &str = "nvidia.com/gpu";

fn with_gpus(gpus: &str) -> Value {
    let [cpu, memory] = USUAL;
    let pages = [("hugepages-2Mi", "1Gi", "1Gi"), ("hugepages-1Gi", "0", "0")];
    shows(&[cpu, memory, (GPU, gpus, gpus), pages[0], pages[1]], &json!({}))
}

#[test]
fn extended_resources_and_huge_pages_are_learned_and_survive_zero() {
    let mut changes = observation();
    changes.push(node("a", &with_gpus("2")));
    let index = index(changes);
    back_to_zero(&index);
    for (resource, amount) in [(GPU, "2"), ("hugepages-2Mi", "1Gi"), ("hugepages-1Gi", "0")] {
        assert_eq!(capacity(&index, WORKERS, resource), Some((amount.to_owned(), "learned")), "{resource}");
    }
}

#[test]
fn learning_them_can_be_turned_off() {
    let template = TemplateRules { learn_extended_resources: false, ..TemplateRules::default() };
    let index = Index::new(Rules { template, ..rules() });
    apply(&index, observation().into_iter().chain([node("a", &with_gpus("2"))]));
    assert_eq!(capacity(&index, WORKERS, GPU), None);
    assert_eq!(allocatable(&index, WORKERS, "memory"), known("30Gi", "a"));
}

#[test]
fn annotations_go_before_what_was_learned() {
    let mut value = templates("small", "config");
    merge(
        &mut value,
        &json!({"metadata": {"annotations": {
            "capacity.cluster-autoscaler.kubernetes.io/gpu-type": GPU,
            "capacity.cluster-autoscaler.kubernetes.io/gpu-count": "4",
            "capacity.capi-autoscaler-provider.io/resources": "hugepages-2Mi=0",
        }}}),
    );
    let mut changes = observation();
    changes.extend([node("a", &with_gpus("2")), deployment("workers", 1, ("0", "10"), &value)]);
    let index = index(changes);
    assert_eq!(capacity(&index, WORKERS, GPU), Some(("4".to_owned(), "annotation")));
    assert_eq!(capacity(&index, WORKERS, "hugepages-2Mi"), Some(("0".to_owned(), "annotation")));
    let notes = notes(&index, WORKERS);
    assert!(notes[0].contains("hugepages-2Mi 0, and Node a has 1Gi"), "{notes:?}");
    assert!(notes[1].contains("nvidia.com/gpu 4, and Node a has 2"), "{notes:?}");
}

#[rstest]
#[case::none_at_all(shows(&USUAL, &json!({})))]
#[case::none_yet(with_gpus("0"))]
fn a_new_nodes_devices_are_waited_for(#[case] without: Value) {
    let mut changes = observation();
    changes.push(node("a", &with_gpus("2")));
    let index = index(changes);
    back_to_zero(&index);
    index.apply_and_take_notices(joined("MachineSet/workers-1", "b"));
    index.apply_and_take_notices(node("b", &without));
    assert_eq!(capacity(&index, WORKERS, GPU), Some(("2".to_owned(), "learned")));

    let mut settled = without;
    let ready = json!([{"type": "Ready", "status": "True",
        "lastTransitionTime": "2026-01-01T00:00:00Z", "lastHeartbeatTime": "2026-01-01T00:10:00Z"}]);
    settled["status"]["conditions"] = ready;
    index.apply_and_take_notices(node("b", &settled));
    assert_eq!(capacity(&index, WORKERS, GPU).unwrap_or_default().0.trim_start_matches('0'), "");
}

#[test]
fn a_group_that_nothing_states_the_size_of_does_not_scale_from_zero_by_what_was_learned() {
    let mut changes = observation();
    changes.remove(2);
    let index = index(changes);
    assert!(index.served(&id(WORKERS)).unwrap().definition.template.is_none());
    back_to_zero(&index);
    assert!(index.groups().is_empty());
}

#[test]
fn groups_of_one_architecture_list_the_same_sizes_of_huge_pages() {
    let arch = |arch: &str| json!({"metadata": {"labels": {"kubernetes.io/arch": arch}}});
    let mut of_arm = templates("big", "config");
    let labels = json!({"capacity.cluster-autoscaler.kubernetes.io/labels": "kubernetes.io/arch=arm64"});
    merge(&mut of_arm, &json!({"metadata": {"annotations": labels}}));
    let mut with_pages = templates("large", "config");
    let pages = json!({"capacity.capi-autoscaler-provider.io/resources": "hugepages-2Mi=4Gi"});
    merge(&mut with_pages, &json!({"metadata": {"annotations": pages}}));
    let mut changes = observation();
    changes.extend(["medium", "big", "large"].map(|name| template(name, &json!({"cpu": "8", "memory": "32Gi"}))));
    changes.extend(group("others", &templates("medium", "config")));
    changes.extend(group("arms", &of_arm));
    changes.extend(group("pages", &with_pages));
    let index = index(changes);
    assert_eq!(capacity(&index, OTHERS, "hugepages-2Mi"), None);
    let resources = [USUAL[0], USUAL[1], ("hugepages-1Gi", "0", "0"), ("hugepages-2Mi", "0", "0"), ("a.b/c", "0", "0")];
    index.apply_and_take_notices(node("a", &shows(&resources, &arch("amd64"))));
    let sizes = |group: &str| {
        let template = built(&index, group);
        let sizes: Vec<_> =
            template.capacity.iter().map(|(name, amount)| (name.clone(), amount.value.to_string())).collect();
        sizes.into_iter().filter(|(name, _)| !["cpu", "memory", "pods"].contains(&name.as_str())).collect::<Vec<_>>()
    };
    let empty = |name: &str| (name.to_owned(), "0".to_owned());
    assert_eq!(sizes(OTHERS), [empty("hugepages-1Gi"), empty("hugepages-2Mi")], "Cluster Autoscaler compares them");
    assert_eq!(sizes("MachineDeployment/team-a/arms"), [], "an arm64 processor has other sizes");
    let stated = ("hugepages-2Mi".to_owned(), "4Gi".to_owned());
    assert_eq!(sizes("MachineDeployment/team-a/pages"), [empty("hugepages-1Gi"), stated]);
}

#[test]
fn the_nodes_of_a_machine_pool_are_observed() {
    let mut value = templates("small", "config");
    merge(
        &mut value,
        &json!({"spec": {"providerIDList": ["cloud:///zone/p"]}, "status": {"nodeRefs": [{"name": "p"}]}}),
    );
    let pool = |value: &Value| scalable(ScalableKind::MachinePool, "pool", 1, ("0", "9"), value);
    let index = index([small(), usual("p"), pool(&value)]);
    let id = "MachinePool/team-a/pool";
    assert_eq!(allocatable(&index, id, "memory"), known("30Gi", "p"));
    index.apply_and_take_notices(node("p", &shows(&[("cpu", "8", "8"), ("memory", "32Gi", "29Gi")], &json!({}))));
    assert_eq!(allocatable(&index, id, "memory"), known("29Gi", "p"));
    merge(&mut value, &json!({"spec": {"providerIDList": []}, "status": {"nodeRefs": []}}));
    index.apply_and_take_notices(pool(&value));
    index.apply_and_take_notices(Change::NodeGone("p".into()));
    assert_eq!(allocatable(&index, id, "memory"), known("29Gi", "p"));
}
