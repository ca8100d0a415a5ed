//! Tests of the resolution of a Node, as Cluster Autoscaler describes it, to its group: one rule per test; and of a
//! Machine's Node, independent of its nodeRef, and the resulting instances.

use rstest::rstest;
use rules::InstanceState;
use rules::capi::ScalableKind;
use serde_json::{Value, json};

use super::objects::*;
use crate::{Change, Detail, Index};

#[rstest]
#[case::whole_provider_id("cloud:///zone/a", "a")]
#[case::tail_of_the_provider_id_where_it_is_unambiguous("cloud:////other-form/a", "a")]
#[case::pending_placeholder("pending-machine-team-a_c", "pending-machine-team-a_c")]
#[case::replica_placeholder("replica-MachineDeployment-team-a_workers-0", "replica-MachineDeployment-team-a_workers-0")]
#[case::template_node("", "template-node-for-MachineDeployment/team-a/workers-5577006791947779410")]
#[case::template_node_of_a_real_node(
    "cloud:///zone/a",
    "template-node-for-MachineDeployment/team-a/workers-1-upcoming-0"
)]
fn a_node_leads_to_its_group(#[case] provider_id: &str, #[case] name: &str) {
    assert_eq!(group_of(&index(workers()), provider_id, name).as_deref(), Some(WORKERS));
}

#[rstest]
#[case::unknown_node("cloud:///zone/z", "z")]
#[case::no_provider_id("", "a")]
#[case::placeholder_of_an_unknown_machine("pending-machine-team-a_z", "pending-machine-team-a_z")]
#[case::placeholder_of_an_unknown_group("replica-MachineDeployment-team-a_other-0", "x")]
#[case::template_of_an_unknown_group("", "template-node-for-MachineDeployment/team-a/other-1")]
fn a_node_of_no_group_leads_nowhere(#[case] provider_id: &str, #[case] name: &str) {
    assert_eq!(group_of(&index(workers()), provider_id, name), None);
}

#[test]
fn a_node_without_provider_id_leads_by_its_annotations() {
    let annotations = [("cluster.x-k8s.io/machine", "c"), ("cluster.x-k8s.io/cluster-namespace", "team-a")];
    assert_eq!(group_with(&index(workers()), "", "c", &annotations).as_deref(), Some(WORKERS));
    assert_eq!(group_with(&index(workers()), "", "c", &annotations[..1]), None);
}

#[rstest]
#[case::machine("m", &[WORKERS])]
#[case::node_by_its_machine("joined", &[WORKERS])]
#[case::node_by_its_provider_id("n", &[WORKERS])]
#[case::provider_id("x:///m", &[WORKERS])]
#[case::end_of_a_provider_id("shared", &["MachinePool/team-a/pool", WORKERS])]
#[case::provider_id_of_a_pool("y:///shared", &["MachinePool/team-a/pool"])]
#[case::node_of_a_pool("in-pool", &["MachinePool/team-a/pool"])]
#[case::part_of_a_name("join", &[])]
#[case::nothing("", &[])]
fn a_name_leads_to_the_groups_that_people_look_for(#[case] name: &str, #[case] expected: &[&str]) {
    let other = json!({"spec": {"providerID": "x:///shared"}, "status": {"nodeRef": {"name": "joined"}}});
    let mut changes = world(Some("x:///m"), &other, &with_id("x:///m"));
    let more = json!({"spec": {"providerIDList": ["y:///shared"]}, "status": {"nodeRefs": [{"name": "in-pool"}]}});
    changes.push(scalable(ScalableKind::MachinePool, "pool", 1, ("0", "9"), &more));
    let found: Vec<_> = index(changes).groups_of_name(name).iter().map(ToString::to_string).collect();
    let mut found: Vec<_> = found.iter().map(String::as_str).collect();
    found.sort_unstable();
    let mut expected = expected.to_vec();
    expected.sort_unstable();
    assert_eq!(found, expected);
}

#[rstest]
#[case::two_machines(machine("MachineSet/workers-1", "d", &with_id("cloud:///elsewhere/a")))]
#[case::a_machine_and_another_groups_pool(
    scalable(ScalableKind::MachinePool, "pool", 1, ("0", "9"), &json!({"spec": {"providerIDList": ["cloud:///elsewhere/a"]}}))
)]
fn a_tail_leads_nowhere_that_is_shared_by(#[case] other: Change) {
    let index = index(workers().into_iter().chain([other]));
    assert_eq!(group_of(&index, "cloud:////other-form/a", "a"), None);
    assert_eq!(group_of(&index, "cloud:///zone/a", "a").as_deref(), Some(WORKERS));
}

#[rstest]
#[case::one_pool_that_lists_it_twice(&[("pool", "a:///1/x b:///2/x")], Some("MachinePool/team-a/pool"))]
#[case::two_pools(&[("pool", "a:///1/x"), ("other", "b:///2/x")], None)]
fn a_tail_leads_to_the_one_machine_pool_that_has_it(#[case] pools: &[(&str, &str)], #[case] group: Option<&str>) {
    let pool = |(name, ids): &(&str, &str)| {
        let ids: Vec<_> = ids.split(' ').collect();
        scalable(ScalableKind::MachinePool, name, 2, ("0", "9"), &json!({"spec": {"providerIDList": ids}}))
    };
    let index = index(pools.iter().map(pool));
    assert_eq!(group_of(&index, "c:///3/x", "x").as_deref(), group);
    assert_eq!(group_of(&index, "a:///1/x", "x").as_deref(), Some("MachinePool/team-a/pool"));
}

/// Machine `a` of group `workers` and Machine `z` of group `others` have one providerID.
#[rstest]
#[case::the_one_whose_node_it_is("z-node", &[], Some("MachineDeployment/team-a/others"))]
#[case::the_one_its_annotations_name("x", &[("cluster.x-k8s.io/machine", "z"), ("cluster.x-k8s.io/cluster-namespace", "team-a")],
    Some("MachineDeployment/team-a/others"))]
#[case::nobody_can_know("x", &[], None)]
fn of_two_machines_with_one_provider_id(#[case] name: &str, #[case] by: &[(&str, &str)], #[case] group: Option<&str>) {
    let mut changes = workers();
    let more = json!({"spec": {"providerID": "cloud:///zone/a"}, "status": {"nodeRef": {"name": "z-node"}}});
    changes.push(deployment("others", 1, ("1", "10"), &json!({})));
    changes.push(set_of("others", "others-1"));
    changes.push(machine("MachineSet/others-1", "z", &more));
    assert_eq!(group_with(&index(changes), "cloud:///zone/a", name, by).as_deref(), group);
}

fn with_id(id: &str) -> Value {
    json!({"spec": {"providerID": id}})
}

fn naming(machine: &str, id: Option<&str>) -> Value {
    json!({
        "metadata": {"annotations": {"cluster.x-k8s.io/machine": machine, "cluster.x-k8s.io/cluster-namespace": NAMESPACE}},
        "spec": {"providerID": id},
    })
}

/// Returns a group of size 2 whose Machines have no nodeRef, with a Node.
fn world(machine_id: Option<&str>, other: &Value, node_n: &Value) -> Vec<Change> {
    let own = machine_id.map_or_else(|| json!({}), with_id);
    vec![
        deployment("workers", 2, ("1", "10"), &capacity_annotations("4", "16Gi")),
        set_of("workers", "workers-1"),
        machine("MachineSet/workers-1", "m", &own),
        machine("MachineSet/workers-1", "other", other),
        node("n", node_n),
    ]
}

fn shown(index: &Index) -> Vec<(String, InstanceState)> {
    let instances = index.instances(&id(WORKERS)).unwrap();
    instances.into_iter().map(|instance| (instance.id, instance.state)).collect()
}

#[rstest]
#[case::its_provider_id(Some("x:///n"), &json!({}), &with_id("x:///n"), Some("x:///n"))]
#[case::written_differently(Some("x:///n"), &json!({}), &with_id("x:///zone/n"), Some("x:///zone/n"))]
#[case::an_end_that_another_has_too(Some("x:///n"), &with_id("x:///other/n"), &with_id("x:///zone/n"), None)]
#[case::its_name(None, &json!({}), &naming("m", Some("x:///n")), Some("x:///n"))]
#[case::its_name_beside_another_id(Some("x:///m"), &json!({}), &naming("m", Some("x:///n")), Some("x:///n"))]
#[case::its_name_on_the_node_of_another(None, &with_id("x:///n"), &naming("m", Some("x:///n")), None)]
#[case::nothing(Some("x:///m"), &json!({}), &with_id("x:///n"), None)]
fn a_node_leads_to_its_machine_by(
    #[case] machine_id: Option<&str>,
    #[case] other: &Value,
    #[case] node_n: &Value,
    #[case] expected: Option<&str>,
    #[values(false, true)] node_comes_first: bool,
) {
    let mut changes = world(machine_id, other, node_n);
    if node_comes_first {
        changes.reverse();
    }
    let index = index(changes);
    let instance = |index: &Index| shown(index).into_iter().next().unwrap();
    let pending = ("pending-machine-team-a_m".to_owned(), InstanceState::Creating);
    match expected {
        Some(node_id) => {
            assert_eq!(instance(&index), (node_id.to_owned(), InstanceState::Running));
            assert_eq!(index.scale_view(&id(WORKERS)).unwrap().machines_with_node, 1, "whatever its nodeRef says");
        }
        None => assert_eq!(instance(&index), pending),
    }
    let members = index.members(&id(WORKERS));
    assert_eq!(members[0].has_joined(), expected.is_some());
    index.apply_and_take_notices(Change::NodeGone("n".into()));
    assert_eq!(instance(&index), pending, "its Node is gone");
}

/// The instance of an Azure scale set: what follows the last slash is no name of its own.
const SET: &str = "azure:///subscriptions/s/resourceGroups/g/x/virtualMachineScaleSets/vmss/virtualMachines/0";
/// The same, as another component writes it.
const SET_ON_NODE: &str = "azure:////subscriptions/s/resourcegroups/g/x/virtualMachineScaleSets/vmss/virtualMachines/0";

/// Cluster Autoscaler compares ids with those of Nodes, and deletes what seems to have none.
#[rstest]
#[case::one_slash_more("azure:///s/vms/n", "azure:////s/vms/n", true)]
#[case::one_slash_more_and_no_annotation("azure:///s/vms/n", "azure:////s/vms/n", false)]
#[case::with_the_namespace("kubevirt://n", "kubevirt://tenant/n", true)]
#[case::with_the_namespace_and_no_annotation("kubevirt://n", "kubevirt://tenant/n", false)]
#[case::in_lower_case("vsphere://4238AB", "vsphere://4238ab", true)]
#[case::in_lower_case_and_no_annotation("vsphere://4238AB", "vsphere://4238ab", false)]
#[case::of_a_scale_set(SET, SET_ON_NODE, true)]
#[case::of_a_scale_set_and_no_annotation(SET, SET_ON_NODE, false)]
#[case::altogether("x:///m", "y:///n", true)]
fn an_instance_has_the_id_of_the_node_that_is_there(
    #[case] on_machine: &str,
    #[case] on_node: &str,
    #[case] is_annotated: bool,
    #[values(false, true)] node_comes_first: bool,
) {
    let annotations = json!({"cluster.x-k8s.io/machine": "m", "cluster.x-k8s.io/cluster-namespace": NAMESPACE});
    let annotations = if is_annotated { annotations } else { json!({}) };
    let with_ref = json!({"spec": {"providerID": on_machine}, "status": {"nodeRef": {"name": "n"}}});
    let mut changes = vec![
        deployment("workers", 1, ("1", "10"), &capacity_annotations("4", "16Gi")),
        set_of("workers", "workers-1"),
        machine("MachineSet/workers-1", "m", &with_ref),
        node(
            "n",
            &json!({
                "metadata": {"annotations": annotations, "labels": {"kubernetes.io/arch": "arm64"}},
                "spec": {"providerID": on_node},
            }),
        ),
    ];
    if node_comes_first {
        changes.reverse();
    }
    let index = index(changes);
    assert_eq!(shown(&index), [(on_node.to_owned(), InstanceState::Running)]);
    let template = index.served(&id(WORKERS)).unwrap().definition.template.clone().unwrap();
    assert!(!is_annotated || template.labels["kubernetes.io/arch"].value == "arm64", "its Node is learned from");
    let annotations = [("cluster.x-k8s.io/machine", "m"), ("cluster.x-k8s.io/cluster-namespace", NAMESPACE)];
    let annotations = if is_annotated { &annotations[..] } else { &[] };
    assert_eq!(group_with(&index, on_node, "n", annotations).as_deref(), Some(WORKERS));
    index.apply_and_take_notices(Change::NodeGone("n".into()));
    assert_eq!(shown(&index), [(on_machine.to_owned(), InstanceState::Running)]);
}

/// Nodes of another cluster have the same names.
#[rstest]
#[case::another_machine_is_named(SET, &naming("of-another-cluster", Some("azure:////s/vms/n")))]
#[case::another_machine_is_named_and_there_is_no_id("", &naming("of-another-cluster", Some("x:///n")))]
#[case::it_has_another_id(SET, &with_id("azure:///t/vms/x"))]
fn a_node_with_the_name_in_a_node_ref_may_be_another(#[case] machine_id: &str, #[case] node_n: &Value) {
    let zone = "topology.kubernetes.io/zone";
    let mut labelled = json!({"metadata": {"labels": {zone: "zone-z"}}});
    merge(&mut labelled, node_n);
    let with_ref = json!({"spec": {"providerID": machine_id}, "status": {"nodeRef": {"name": "n"}}});
    let index = index([
        deployment("workers", 1, ("1", "10"), &capacity_annotations("4", "16Gi")),
        set_of("workers", "workers-1"),
        machine("MachineSet/workers-1", "m", &with_ref),
        node("n", &labelled),
    ]);
    let without_node = match machine_id {
        "" => ("pending-machine-team-a_m".to_owned(), InstanceState::Creating),
        id => (id.to_owned(), InstanceState::Running),
    };
    assert_eq!(shown(&index), [without_node]);
    let template = index.served(&id(WORKERS)).unwrap().definition.template.clone().unwrap();
    assert!(!template.labels.contains_key(zone), "nothing is learned from it");
}

/// A provider may write an id in another form into the list than its cloud controller into the Node.
#[rstest]
#[case::the_same("aws:///a/i-1", "aws:///a/i-1")]
#[case::one_slash_more("azure:///s/vms/n", "azure:////s/vms/n")]
#[case::of_a_scale_set(SET, SET_ON_NODE)]
fn an_instance_of_a_pool_has_the_id_of_the_node_that_is_there(#[case] listed: &str, #[case] on_node: &str) {
    let more = json!({"spec": {"providerIDList": [listed, "x:///no-node"]}, "status": {"nodeRefs": [{"name": "n"}]}});
    let pool = "MachinePool/team-a/pool";
    let index =
        index([scalable(ScalableKind::MachinePool, "pool", 2, ("0", "9"), &more), node("n", &with_id(on_node))]);
    let ids = |index: &Index| -> Vec<_> { index.instances(&id(pool)).unwrap().into_iter().map(|it| it.id).collect() };
    assert_eq!(ids(&index), [on_node, "x:///no-node"]);
    let snapshot = index.snapshot(Some(&id(pool)), Detail::Instances);
    assert!(snapshot.groups[0].instances(true).unwrap().map(|owned| owned.instance.id).eq(ids(&index)));
    assert_eq!(group_of(&index, on_node, "n").as_deref(), Some(pool));
    assert!(index.pool_lists(&id(pool), on_node));
    index.apply_and_take_notices(Change::NodeGone("n".into()));
    assert_eq!(ids(&index), [listed, "x:///no-node"]);
}

/// A Node that names a Machine isn't that one's while its providerID leads to another Machine alone.
#[test]
fn a_pool_that_lists_the_end_of_a_nodes_id_lets_the_node_lead_to_the_machine_that_it_names() {
    let changes = world(None, &json!({}), &naming("m", Some("x:///zone/t"))).into_iter().chain([
        deployment("others", 1, ("1", "10"), &json!({})),
        set_of("others", "others-1"),
        machine("MachineSet/others-1", "z", &with_id("y:///t")),
    ]);
    let index = index(changes);
    let pool = |ids: &[&str]| {
        scalable(ScalableKind::MachinePool, "pool", 1, ("0", "9"), &json!({"spec": {"providerIDList": ids}}))
    };
    let running = || {
        let group = index.snapshot(Some(&id(WORKERS)), Detail::Instances).groups.remove(0);
        let instances = group.instances(true).unwrap().filter(|owned| owned.instance.state == InstanceState::Running);
        assert_eq!(group.counts.running, instances.count() as u64);
        group.counts.running
    };
    assert_eq!(running(), 0);
    index.apply(pool(&["z:///t"]));
    assert_eq!(running(), 1, "nobody can know whose the end is");
    index.apply(pool(&[]));
    assert_eq!(running(), 0);
}

#[test]
fn a_machine_whose_provider_id_only_its_node_has_is_unidentified_without_it() {
    let with_node = json!({"status": {"nodeRef": {"name": "n"}}});
    let unidentified = |index: &Index| index.unidentified_machine().map(|key| key.name.to_string());
    let index = index(world(Some("x:///m"), &json!({}), &json!({"spec": {"providerID": null}})));
    assert_eq!(unidentified(&index), None, "neither has a nodeRef");
    index.apply(machine("MachineSet/workers-1", "other", &with_node));
    assert_eq!(unidentified(&index).as_deref(), Some("other"), "nor has its Node a providerID");
    index.apply(node("n", &with_id("x:///n")));
    assert_eq!(unidentified(&index), None);
    index.apply(Change::NodeGone("n".into()));
    assert_eq!(unidentified(&index).as_deref(), Some("other"));
    let mut deleting = with_node.clone();
    merge(&mut deleting, &json!({"metadata": {"deletionTimestamp": "2026-01-02T03:04:05Z"}}));
    index.apply(machine("MachineSet/workers-1", "other", &deleting));
    assert_eq!(unidentified(&index), None);
    index.apply(machine("MachineSet/workers-1", "other", &with_node));
    let mut identified = with_node;
    merge(&mut identified, &with_id("x:///other"));
    index.apply(machine("MachineSet/workers-1", "other", &identified));
    assert_eq!(unidentified(&index), None);
}
