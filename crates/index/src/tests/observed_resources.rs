//! Tests of observations of Nodes, and of the time for which they are kept.

use std::collections::BTreeMap;

use rstest::rstest;
use rules::capi::{ObjectKey, ScalableKind};
use rules::{GroupId, NodeTemplate, Rules, TemplateRules};
use serde_json::{Value, json};

use super::objects::*;
use crate::{Change, Index};

const OTHERS: &str = "MachineDeployment/team-a/others";

/// Returns the fields with which an object uses these templates.
fn templates(infrastructure: &str, bootstrap: &str) -> Value {
    let mut value = using_template(infrastructure);
    let configuration =
        json!({"apiGroup": "bootstrap.cluster.x-k8s.io", "kind": "CloudConfigTemplate", "name": bootstrap});
    merge(&mut value, &json!({"spec": {"template": {"spec": {"bootstrap": {"configRef": configuration}}}}}));
    value
}

/// Returns a MachineDeployment with its MachineSet.
fn group(name: &str, replicas: i32, templates: &Value) -> Vec<Change> {
    vec![deployment(name, replicas, ("0", "10"), templates), set(name, &format!("{name}-1"), 1, templates)]
}

fn set(deployment: &str, name: &str, revision: i64, templates: &Value) -> Change {
    let key = "machinedeployment.clusters.x-k8s.io/revision";
    let mut value = json!({"metadata": {"annotations": {key: revision.to_string()}}});
    merge(&mut value, templates);
    set_of_with(deployment, name, &value)
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

fn built(index: &Index, group: &str) -> NodeTemplate {
    index.served(&id(group)).unwrap().definition.template.clone().unwrap()
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
    let mut changes = group("workers", 1, &templates("small", "config"));
    changes.extend([small(), joined("MachineSet/workers-1", "a"), usual("a")]);
    changes
}

#[test]
fn the_reservation_of_a_real_node_is_subtracted_from_the_template_of_its_group() {
    let mut changes = observation();
    let last = changes.pop().unwrap();
    let index = index(changes);
    assert_eq!(allocatable(&index, WORKERS, "memory"), unknown("32Gi"));
    index.apply_quietly(last);
    assert_eq!(allocatable(&index, WORKERS, "memory"), known("30Gi", "a"));
    assert_eq!(allocatable(&index, WORKERS, "cpu"), known("7910m", "a"));
}

fn back_to_zero(index: &Index) {
    index.apply_quietly(Change::MachineGone(ObjectKey::new(NAMESPACE, "a")));
    index.apply_quietly(Change::NodeGone("a".into()));
    index.apply_quietly(deployment("workers", 0, ("0", "10"), &templates("small", "config")));
    index.refresh();
}

#[test]
fn it_lasts_as_long_as_the_templates_of_the_group() {
    let index = index(observation());
    back_to_zero(&index);
    assert_eq!(index.target_size(&id(WORKERS)), Some(0));
    assert_eq!(allocatable(&index, WORKERS, "memory"), known("30Gi", "a"), "it survives the return to zero");
    let renewed = templates("small", "other-config");
    for change in [deployment("workers", 0, ("0", "10"), &renewed), set("workers", "workers-2", 2, &renewed)] {
        index.apply_quietly(change);
    }
    // As long as Cluster API keeps the old MachineSet, its observation is the best one.
    assert_eq!(allocatable(&index, WORKERS, "memory"), known("30Gi", "a"));
    index.apply_quietly(Change::ScalableGone(id("MachineSet/team-a/workers-1")));
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
    changes.extend(group("others", 0, &templates(infrastructure, bootstrap)));
    let expected = from.map_or_else(|| unknown("32Gi"), |from| known("30Gi", from));
    let in_order = index(changes.clone());
    assert_eq!(allocatable(&in_order, OTHERS, "memory"), expected);
    changes.reverse();
    assert_eq!(allocatable(&index(changes), OTHERS, "memory"), expected);
}

#[test]
fn a_groups_own_node_goes_before_those_of_others() {
    let mut changes = observation();
    changes.extend(group("others", 1, &templates("small", "config")));
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
    index.apply_quietly(joined("MachineSet/workers-2", "b"));
    index.apply_quietly(node("b", &shows(&[("cpu", "16", "15"), ("memory", "62Gi", "60Gi")], &json!({}))));
    assert_eq!(allocatable(&index, WORKERS, "memory"), known("60Gi", "b"));
}

const GPU: &str = "nvidia.com/gpu";

fn with_gpus(gpus: &str, more: &Value) -> Value {
    let [cpu, memory] = USUAL;
    shows(&[cpu, memory, (GPU, gpus, gpus), ("hugepages-2Mi", "1Gi", "1Gi"), ("hugepages-1Gi", "0", "0")], more)
}

#[test]
fn extended_resources_and_huge_pages_are_learned_and_survive_zero() {
    let mut changes = observation();
    changes.push(node("a", &with_gpus("2", &json!({}))));
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
    for change in observation().into_iter().chain([node("a", &with_gpus("2", &json!({})))]) {
        index.apply_quietly(change);
    }
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
    changes.extend([node("a", &with_gpus("2", &json!({}))), deployment("workers", 1, ("0", "10"), &value)]);
    let index = index(changes);
    assert_eq!(capacity(&index, WORKERS, GPU), Some(("4".to_owned(), "annotation")));
    assert_eq!(capacity(&index, WORKERS, "hugepages-2Mi"), Some(("0".to_owned(), "annotation")));
    let notes = &index.served(&id(WORKERS)).unwrap().definition.notes;
    assert!(notes[0].contains("hugepages-2Mi 0, and Node a has 1Gi"), "{notes:?}");
    assert!(notes[1].contains("nvidia.com/gpu 4, and Node a has 2"), "{notes:?}");
}

#[rstest]
#[case::none_at_all(shows(&USUAL, &json!({})))]
#[case::none_yet(with_gpus("0", &json!({})))]
fn a_new_nodes_devices_are_waited_for(#[case] without: Value) {
    let mut changes = observation();
    changes.push(node("a", &with_gpus("2", &json!({}))));
    let index = index(changes);
    back_to_zero(&index);
    index.apply_quietly(joined("MachineSet/workers-1", "b"));
    index.apply_quietly(node("b", &without));
    assert_eq!(capacity(&index, WORKERS, GPU), Some(("2".to_owned(), "learned")));

    let mut settled = without;
    let ready = json!([{"type": "Ready", "status": "True",
        "lastTransitionTime": "2026-01-01T00:00:00Z", "lastHeartbeatTime": "2026-01-01T00:10:00Z"}]);
    settled["status"]["conditions"] = ready;
    index.apply_quietly(node("b", &settled));
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
    changes.extend(group("others", 0, &templates("medium", "config")));
    changes.extend(group("arms", 0, &of_arm));
    changes.extend(group("pages", 0, &with_pages));
    let index = index(changes);
    assert_eq!(capacity(&index, OTHERS, "hugepages-2Mi"), None);
    let resources = [USUAL[0], USUAL[1], ("hugepages-1Gi", "0", "0"), ("hugepages-2Mi", "0", "0"), ("a.b/c", "0", "0")];
    index.apply_quietly(node("a", &shows(&resources, &arch("amd64"))));
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
    index.apply_quietly(node("p", &shows(&[("cpu", "8", "8"), ("memory", "32Gi", "29Gi")], &json!({}))));
    assert_eq!(allocatable(&index, id, "memory"), known("29Gi", "p"));
    merge(&mut value, &json!({"spec": {"providerIDList": []}, "status": {"nodeRefs": []}}));
    index.apply_quietly(pool(&value));
    index.apply_quietly(Change::NodeGone("p".into()));
    assert_eq!(allocatable(&index, id, "memory"), known("29Gi", "p"));
}

#[test]
fn nothing_is_kept_of_a_group_that_is_gone() {
    let index = index(observation());
    for gone in [WORKERS, "MachineSet/team-a/workers-1"] {
        index.apply_quietly(Change::ScalableGone(GroupId::parse(gone).unwrap()));
    }
    index.refresh();
    assert!(index.inner.read().live.resources.is_empty());
}
