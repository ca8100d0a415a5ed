//! Tests of decoding. Real objects, served by an API server under Cluster API's own controllers, decode alike in both
//! contract versions, and each field is found in the place that either version has for it.

use std::{collections::BTreeMap, fmt, path::Path};

use arcstr::ArcStr;

use proptest::prelude::*;
use rstest::rstest;
use serde_json::{Value, json};
use shared_informer::Projection;

use super::*;

mod bounds;
mod machine_api;
mod rollouts;
mod tags;

/// Returns the identity as the informers pass it.
fn meta_of(object: &Value) -> Meta {
    let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default();
    Meta {
        key: ObjectKey::new(text("namespace"), text("name")),
        uid: text("uid").into(),
        resource_version: text("resourceVersion").into(),
    }
}

/// Any decoded object of Cluster API.
#[derive(Debug, PartialEq)]
enum Read {
    Cluster(Cluster),
    Scalable(Box<ScalableResource>),
    Machine(Box<Machine>),
}

fn read(object: &Value, context: &Context) -> Result<Read, String> {
    let meta = meta_of(object);
    let kind = object["kind"].as_str().unwrap_or_default();
    match (kind, ScalableKind::parse(kind)) {
        ("Cluster", _) => Cluster::decode(meta, object).map(Read::Cluster),
        ("Machine", _) => Machine::decode(meta, object, context).map(|machine| Read::Machine(Box::new(machine))),
        (_, Some(kind)) => {
            ScalableResource::decode(kind, meta, object, context).map(|object| Read::Scalable(Box::new(object)))
        }
        (_, None) => Err(format!("{kind} isn't read")),
    }
}

fn fixture(moment: &str, file: &str) -> Vec<Value> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures").join(moment).join(file);
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let list: Value = serde_yaml::from_str(&text).unwrap();
    list["items"].as_array().unwrap().clone()
}

/// Returns the objects of a moment in one contract version, by kind and name.
fn management(moment: &str, version: &str) -> BTreeMap<String, Read> {
    let context = Context::new(DEFAULT_GROUP);
    fixture(moment, &format!("management-{version}.yaml"))
        .iter()
        .map(|object| {
            let name = |field: &Value| field.as_str().unwrap_or_default().to_owned();
            let key = format!("{}/{}", name(&object["kind"]), name(&object["metadata"]["name"]));
            (key, read(object, &context).unwrap())
        })
        .collect()
}

fn scalable(kind: ScalableKind, object: &Value) -> ScalableResource {
    ScalableResource::decode(kind, meta_of(object), object, &Context::new(DEFAULT_GROUP)).unwrap()
}

fn deployment(object: &Value) -> ScalableResource {
    scalable(ScalableKind::MachineDeployment, object)
}

fn machine(object: &Value) -> Machine {
    Machine::decode(meta_of(object), object, &Context::new(DEFAULT_GROUP)).unwrap()
}

#[rstest]
#[case("steady", 7)]
#[case("rollout", 9)]
#[case("scaling", 8)]
fn real_objects_read_alike_in_both_contract_versions(#[case] moment: &str, #[case] count: usize) {
    let (old, new) = (management(moment, "v1beta1"), management(moment, "v1beta2"));
    assert_eq!(old.len(), count);
    assert_eq!(old.keys().collect::<Vec<_>>(), new.keys().collect::<Vec<_>>());
    for (name, object) in &old {
        assert_eq!(object, &new[name], "{moment}: {name}");
    }
}

#[test]
fn a_real_machine_deployment_says_all_that_is_read() {
    let objects = management("steady", "v1beta2");
    let Read::Scalable(object) = &objects["MachineDeployment/stage-md-0-mnr6p"] else { panic!("{objects:?}") };
    assert_eq!(object.meta.key.to_string(), "team-a/stage-md-0-mnr6p");
    assert_eq!(&*object.cluster_name, "stage");
    assert_eq!((object.replicas, object.status_replicas), (Some(3), 3));
    assert_eq!((&object.deployment, object.revision), (&None, Some(1)));
    assert_eq!(&*object.annotations["cluster.x-k8s.io/cluster-api-autoscaler-node-group-max-size"], "10");
    assert_eq!(&*object.labels["topology.cluster.x-k8s.io/deployment-name"], "md-0");
    assert_eq!(&*object.template_labels["topology.cluster.x-k8s.io/deployment-name"], "md-0");
    let reference = object.infrastructure.as_ref().unwrap();
    assert_eq!(KindRef::from(reference).to_string(), "DevMachineTemplate.infrastructure.cluster.x-k8s.io");
    assert_eq!(&*reference.name, "stage-md-0-qbpzs");
    let bootstrap = object.bootstrap.as_ref().unwrap();
    assert_eq!((&*bootstrap.group, &*bootstrap.kind), ("bootstrap.cluster.x-k8s.io", "KubeadmConfigTemplate"));
}

#[rstest]
#[case("steady")]
#[case("rollout")]
#[case("scaling")]
fn real_nodes_lead_to_their_machines(#[case] moment: &str) {
    let context = Context::new(DEFAULT_GROUP);
    let nodes = fixture(moment, "workload-nodes.yaml");
    assert!(nodes.len() > 3);
    for object in &nodes {
        let node = Node::decode(meta_of(object), object, &context).unwrap();
        let name = node.meta.key.name.clone();
        assert_eq!(node.provider_id.as_deref(), Some(format!("in-memory://{name}").as_str()));
        assert_eq!(node.machine, Some(ObjectKey::new("team-a", name)));
    }
}

#[rstest]
#[case::v1beta1(json!({"apiVersion": "infra.example/v1beta1", "kind": "VMTemplate", "name": "a"}), Some("infra.example"))]
#[case::v1beta2(json!({"apiGroup": "infra.example", "kind": "VMTemplate", "name": "a"}), Some("infra.example"))]
#[case::the_group_goes_before_the_version(
    json!({"apiGroup": "infra.example", "apiVersion": "old.example/v1", "kind": "VMTemplate", "name": "a"}),
    Some("infra.example")
)]
#[case::an_empty_group(
    json!({"apiGroup": "", "apiVersion": "infra.example/v1", "kind": "VMTemplate", "name": "a"}), Some("infra.example")
)]
#[case::neither(json!({"kind": "VMTemplate", "name": "a"}), None)]
#[case::no_kind(json!({"apiGroup": "infra.example", "name": "a"}), None)]
#[case::no_name(json!({"apiGroup": "infra.example", "kind": "VMTemplate"}), None)]
fn an_infrastructure_reference_has_its_group(#[case] reference: Value, #[case] group: Option<&str>) {
    let object = deployment(&json!({"spec": {"template": {"spec": {"infrastructureRef": reference}}}}));
    assert_eq!(object.infrastructure.map(|reference| reference.group).as_deref(), group);
}

#[rstest]
#[case::v1beta1(
    json!({"configRef": {"apiVersion": "bootstrap.example/v1beta1", "kind": "ConfigTemplate", "name": "a"}}),
    Some("bootstrap.example ConfigTemplate a")
)]
#[case::v1beta2(
    json!({"configRef": {"apiGroup": "bootstrap.example", "kind": "ConfigTemplate", "name": "a"}}),
    Some("bootstrap.example ConfigTemplate a")
)]
#[case::a_secret(json!({"dataSecretName": "a"}), Some(" Secret a"))]
#[case::both(
    json!({"configRef": {"apiGroup": "bootstrap.example", "kind": "ConfigTemplate", "name": "a"}, "dataSecretName": "b"}),
    Some("bootstrap.example ConfigTemplate a")
)]
#[case::an_empty_secret(json!({"dataSecretName": ""}), None)]
#[case::neither(json!({}), None)]
fn a_bootstrap_reference_is_read(#[case] bootstrap: Value, #[case] expected: Option<&str>) {
    let object = deployment(&json!({"spec": {"template": {"spec": {"bootstrap": bootstrap}}}}));
    let found = object.bootstrap.map(|it| format!("{} {} {}", it.group, it.kind, it.name));
    assert_eq!(found.as_deref(), expected);
}

#[rstest]
#[case::of_the_template(json!({"template": {"spec": {"failureDomain": "a"}}}), Some("a"))]
#[case::of_a_pool_with_one(json!({"failureDomains": ["a"]}), Some("a"))]
#[case::the_template_goes_first(json!({"failureDomains": ["b"], "template": {"spec": {"failureDomain": "a"}}}), Some("a"))]
#[case::several_say_nothing(json!({"failureDomains": ["a", "b"]}), None)]
#[case::an_empty_one(json!({"template": {"spec": {"failureDomain": ""}}}), None)]
#[case::none(json!({}), None)]
fn a_failure_domain_is_read(#[case] spec: Value, #[case] expected: Option<&str>) {
    assert_eq!(deployment(&json!({ "spec": spec })).failure_domain.as_deref(), expected);
}

#[rstest]
#[case::v1beta1(
    json!({"failureReason": "CreateError", "failureMessage": "no rights"}), Some("CreateError"), Some("no rights")
)]
#[case::v1beta2(
    json!({"deprecated": {"v1beta1": {"failureReason": "CreateError", "failureMessage": "no rights"}}}),
    Some("CreateError"), Some("no rights")
)]
#[case::one_from_each(
    json!({"failureReason": "CreateError", "deprecated": {"v1beta1": {"failureMessage": "no rights"}}}),
    Some("CreateError"), Some("no rights")
)]
#[case::reason_alone(json!({"failureReason": "CreateError"}), Some("CreateError"), None)]
#[case::message_alone(json!({"deprecated": {"v1beta1": {"failureMessage": "no rights"}}}), None, Some("no rights"))]
fn a_failure_is_found_in_either_place(
    #[case] status: Value,
    #[case] reason: Option<&str>,
    #[case] message: Option<&str>,
) {
    let object = json!({ "status": status });
    let of_pool = scalable(ScalableKind::MachinePool, &object).failure;
    for failure in [machine(&object).failure().cloned(), of_pool] {
        let failure = failure.unwrap();
        assert_eq!((failure.reason.as_deref(), failure.message.as_deref()), (reason, message));
    }
    assert_eq!(scalable(ScalableKind::MachineSet, &object).failure, None);
}

/// A fleet has a hundred thousand of each.
#[test]
fn machines_and_nodes_are_small() {
    assert_eq!((size_of::<Machine>(), size_of::<Node>()), (104, 104));
}

#[rstest]
#[case::no_status(json!({}))]
#[case::empty_texts(json!({"status": {"failureReason": "", "deprecated": {"v1beta1": {"failureMessage": ""}}}}))]
#[case::no_place(json!({"status": {"deprecated": {}}}))]
fn no_failure_is_none(#[case] object: Value) {
    assert_eq!(machine(&object).rare, None);
}

#[rstest]
#[case::v1beta2(json!({"conditions": [condition("InfrastructureReady", "False", "A")]}), Some("A"))]
#[case::v1beta1(
    json!({"conditions": [condition("InfrastructureReady", "False", "A")], "v1beta2": {"conditions": []}}), Some("A")
)]
#[case::what_v1beta1_has_of_v1beta2_goes_first(
    json!({
        "conditions": [condition("InfrastructureReady", "False", "A")],
        "v1beta2": {"conditions": [condition("InfrastructureReady", "False", "B")]},
    }),
    Some("B")
)]
#[case::without_a_reason(json!({"conditions": [{"type": "InfrastructureReady", "status": "False"}]}), Some(""))]
#[case::true_is_ready(json!({"conditions": [condition("InfrastructureReady", "True", "A")]}), None)]
#[case::unknown_is_not_false(json!({"conditions": [condition("InfrastructureReady", "Unknown", "A")]}), None)]
#[case::another_condition(json!({"conditions": [condition("Ready", "False", "A")]}), None)]
#[case::none(json!({"conditions": null}), None)]
fn infrastructure_that_is_not_ready(#[case] status: Value, #[case] reason: Option<&str>) {
    let machine = machine(&json!({ "status": status }));
    assert_eq!(machine.infrastructure_not_ready().map(|condition| &*condition.reason), reason);
}

/// Cluster API 1.14 mirrors a MachinePool's infrastructure in a condition of v1beta1 alone.
#[rstest]
#[case::v1beta1(json!({"conditions": [condition("InfrastructureReady", "False", "A")]}), Some("A"))]
#[case::v1beta2(
    json!({
        "conditions": [condition("MachinesUpToDate", "False", "B")],
        "deprecated": {"v1beta1": {"conditions": [condition("InfrastructureReady", "False", "A")]}},
    }),
    Some("A")
)]
#[case::one_of_v1beta2_goes_first(
    json!({
        "conditions": [condition("InfrastructureReady", "True", "B")],
        "deprecated": {"v1beta1": {"conditions": [condition("InfrastructureReady", "False", "A")]}},
    }),
    None
)]
#[case::another_condition(json!({"conditions": [condition("Ready", "False", "A")]}), None)]
#[case::none(json!({"deprecated": {}}), None)]
fn a_pool_whose_infrastructure_is_not_ready(#[case] status: Value, #[case] reason: Option<&str>) {
    let object = json!({ "status": status });
    let pool = scalable(ScalableKind::MachinePool, &object);
    assert_eq!(pool.infrastructure_not_ready.map(|condition| condition.reason.to_string()).as_deref(), reason);
    assert_eq!(deployment(&object).infrastructure_not_ready, None);
}

fn condition(kind: &str, status: &str, reason: &str) -> Value {
    json!({"type": kind, "status": status, "reason": reason, "message": "words"})
}

#[rstest]
#[case::v1beta1(json!({"apiVersion": "v1", "kind": "Node", "name": "worker-1", "uid": "x"}), Some("worker-1"))]
#[case::v1beta2(json!({"name": "worker-1"}), Some("worker-1"))]
#[case::empty(json!({"name": ""}), None)]
#[case::absent(json!(null), None)]
fn a_node_reference_has_the_name(#[case] reference: Value, #[case] name: Option<&str>) {
    assert_eq!(machine(&json!({"status": {"nodeRef": reference}})).node_name.as_deref(), name);
}

fn owner(api_version: &str, kind: &str, name: &str, controller: bool) -> Value {
    json!({"apiVersion": api_version, "kind": kind, "name": name, "uid": "x", "controller": controller})
}

const V1: &str = "cluster.x-k8s.io/v1beta1";
const V2: &str = "cluster.x-k8s.io/v1beta2";

#[rstest]
#[case::by_kind(json!([owner(V2, "MachineSet", "a", true)]), Some((ScalableKind::MachineSet, "a")))]
#[case::in_any_version(json!([owner(V1, "MachineSet", "a", true)]), Some((ScalableKind::MachineSet, "a")))]
#[case::a_machine_pool(json!([owner(V2, "MachinePool", "a", true)]), Some((ScalableKind::MachinePool, "a")))]
#[case::without_the_controller_flag(json!([owner(V2, "MachineSet", "a", false)]), Some((ScalableKind::MachineSet, "a")))]
#[case::the_controller_before_others(
    json!([owner(V2, "MachineSet", "a", false), owner(V2, "MachineSet", "b", true)]),
    Some((ScalableKind::MachineSet, "b"))
)]
#[case::a_kind_that_owns_no_machines(json!([owner(V2, "Cluster", "a", true)]), None)]
#[case::the_same_kind_of_another_group(json!([owner("other.example/v1", "MachineSet", "a", true)]), None)]
#[case::a_control_plane(json!([owner("controlplane.cluster.x-k8s.io/v1", "KubeadmControlPlane", "a", true)]), None)]
#[case::none(json!(null), None)]
fn a_machines_owner_is_found(#[case] owners: Value, #[case] expected: Option<(ScalableKind, &str)>) {
    let owner = machine(&json!({"metadata": {"ownerReferences": owners}})).owner;
    assert_eq!(owner.as_ref().map(|(kind, name)| (*kind, &**name)), expected);
}

#[test]
fn only_a_machine_set_has_a_machine_deployment() {
    let object = json!({"metadata": {"ownerReferences": [owner(V2, "MachineDeployment", "workers", true)]}});
    let of = |kind| scalable(kind, &object).deployment;
    assert_eq!(of(ScalableKind::MachineSet).as_deref(), Some("workers"));
    assert_eq!((of(ScalableKind::MachineDeployment), of(ScalableKind::MachinePool)), (None, None));
}

#[rstest]
#[case::text(json!("4"), "4")]
#[case::integer(json!(4), "4")]
#[case::float(json!(1.5), "1.5")]
#[case::another_type_is_left_to_the_rules(json!(true), "true")]
#[case::null(json!(null), "null")]
fn one_capacity_value_of_any_type_drops_no_other(#[case] value: Value, #[case] expected: &str) {
    let object = json!({"status": {"capacity": {"cpu": value, "memory": "16Gi"}}});
    let template = InfrastructureTemplate::decode(meta_of(&object), &object).unwrap();
    assert_eq!((&*template.capacity["cpu"], &*template.capacity["memory"]), (expected, "16Gi"));
}

#[rstest]
#[case::both(json!({"architecture": "arm64", "operatingSystem": "linux"}), Some("arm64"), Some("linux"))]
#[case::empty_texts_say_nothing(json!({"architecture": "", "operatingSystem": ""}), None, None)]
#[case::os_alone(json!({"operatingSystem": "linux"}), None, Some("linux"))]
#[case::none(json!(null), None, None)]
fn node_info_is_read(#[case] info: Value, #[case] architecture: Option<&str>, #[case] os: Option<&str>) {
    let object = json!({"status": {"nodeInfo": info}});
    let template = InfrastructureTemplate::decode(meta_of(&object), &object).unwrap();
    assert_eq!((template.architecture.as_deref(), template.operating_system.as_deref()), (architecture, os));
}

#[test]
fn an_overridden_group_moves_its_keys_and_its_owners() {
    let context = Context::new("example.com");
    let object = json!({"metadata": {
        "labels": {"example.com/cluster-name": "prod", "cluster.x-k8s.io/cluster-name": "other"},
        "annotations": {
            "example.com/cluster-api-autoscaler-node-group-max-size": "3",
            "cluster.x-k8s.io/cluster-api-autoscaler-node-group-max-size": "9",
            "cluster.x-k8s.io/paused": "",
            "machinedeployment.clusters.x-k8s.io/revision": "7",
        },
        "ownerReferences": [
            owner(V2, "MachineDeployment", "other", true),
            owner("example.com/v1", "MachineDeployment", "workers", false),
        ],
    }});
    let set = ScalableResource::decode(ScalableKind::MachineSet, meta_of(&object), &object, &context).unwrap();
    assert_eq!(&*set.cluster_name, "prod");
    assert_eq!(set.deployment.as_deref(), Some("workers"));
    assert_eq!(set.revision, Some(7));
    let annotations: Vec<_> = set.annotations.keys().map(|key| &**key).collect();
    assert_eq!(annotations, ["cluster.x-k8s.io/paused", "example.com/cluster-api-autoscaler-node-group-max-size"]);

    let object = json!({"metadata": {"annotations": {"example.com/delete-machine": "", "example.com/machine": "m",
        "example.com/cluster-namespace": "team-a", "cluster.x-k8s.io/machine": "other"}}});
    assert!(Machine::decode(meta_of(&object), &object, &context).unwrap().delete_mark().is_some());
    let node = Node::decode(meta_of(&object), &object, &context).unwrap();
    assert_eq!(node.machine, Some(ObjectKey::new("team-a", "m")));
}

#[rstest]
#[case::spec(json!({"clusterName": "a"}), json!({"cluster.x-k8s.io/cluster-name": "b"}), "a")]
#[case::else_the_label(json!({}), json!({"cluster.x-k8s.io/cluster-name": "b"}), "b")]
#[case::an_empty_spec_counts_as_none(json!({"clusterName": ""}), json!({"cluster.x-k8s.io/cluster-name": "b"}), "b")]
#[case::neither(json!({}), json!({}), "")]
fn the_cluster_name_comes_from(#[case] spec: Value, #[case] labels: Value, #[case] expected: &str) {
    assert_eq!(&*deployment(&json!({"metadata": {"labels": labels}, "spec": spec})).cluster_name, expected);
}

#[rstest]
#[case::by_spec(json!({"spec": {"paused": true}}), true)]
#[case::not_by_an_annotation_of_its_own(json!({"metadata": {"annotations": {"cluster.x-k8s.io/paused": "false"}}}), false)]
#[case::not(json!({"spec": {"paused": false}}), false)]
#[case::no_spec(json!({}), false)]
fn a_cluster_is_paused(#[case] object: Value, #[case] paused: bool) {
    let cluster = Cluster::decode(meta_of(&object), &object).unwrap();
    assert_eq!(cluster.paused, paused);
}

#[test]
fn the_rest_of_a_scalable_resource() {
    let object = deployment(&json!({
        "metadata": {"annotations": {"unread": "x"}},
        "spec": {
            "providerIDList": ["x://1", "", "x://2"],
            "template": {"spec": {
                "taints": [
                    {"key": "a", "effect": "NoSchedule", "propagation": "OnInitialization"},
                    {"key": "b", "value": "1", "effect": "NoExecute", "propagation": "Always"},
                ],
            }},
        },
    }));
    assert!(object.annotations.is_empty());
    assert_eq!((object.replicas, object.status_replicas, object.revision), (None, 0, None));
    assert_eq!(object.provider_ids, [ArcStr::from("x://1"), ArcStr::from("x://2")]);
    let taints: Vec<_> = object.taints.iter().map(|taint| (&*taint.key, &*taint.value, taint.propagation)).collect();
    assert_eq!(taints, [("a", "", Propagation::OnInitialization), ("b", "1", Propagation::Always)]);
}

#[rstest]
#[case("MachineDeployment", json!({"spec": {"replicas": "three"}}))]
#[case("MachineSet", json!({"metadata": {"labels": []}}))]
#[case("Machine", json!({"spec": {"providerID": 7}}))]
#[case("Cluster", json!({"spec": {"paused": "yes"}}))]
fn a_field_of_another_type_is_an_error_with_words(#[case] kind: &str, #[case] mut object: Value) {
    object["kind"] = kind.into();
    let error = read(&object, &Context::new(DEFAULT_GROUP)).unwrap_err();
    assert!(error.contains("invalid type"), "{error}");
}

/// What an informer finds in unusual JSON. It reads the text, and the other tests a tree of it: both must find the same.
#[derive(Debug, PartialEq)]
enum Found {
    Read,
    Undecodable,
    Nobody,
}

fn found<T: fmt::Debug + PartialEq>(
    projection: &Projection<T>,
    json: &str,
    decode: impl Fn(Meta, &Value) -> Result<T, String>,
) -> Found {
    let Some(object) = projection.read(json, &Interner::default()) else { return Found::Nobody };
    let Ok(content) = object.content else { return Found::Undecodable };
    if let Ok(tree) = serde_json::from_str(json) {
        assert_eq!(Ok(&*content), decode(object.metadata, &tree).as_ref(), "{json}");
    }
    Found::Read
}

#[rstest]
#[case::escapes(r#"{"metadata":{"name":"\u0061"},"spec":{"providerID":"x\/\/1"}}"#, Found::Read)]
#[case::a_key_with_an_escape(r#"{"met\u0061data":{"name":"a"},"spec":{}}"#, Found::Read)]
#[case::a_label_that_comes_twice(
    r#"{"metadata":{"name":"a","annotations":{"cluster.x-k8s.io/delete-machine":"1","a":"x","cluster.x-k8s.io/delete-machine":"2"}}}"#,
    Found::Read
)]
#[case::half_a_surrogate_pair_that_nobody_reads(r#"{"metadata":{"name":"a"},"spec":{"other":"\ud800"}}"#, Found::Read)]
#[case::a_field_that_comes_twice(
    r#"{"metadata":{"name":"a"},"spec":{"providerID":"x://1","providerID":"x://2"}}"#,
    Found::Undecodable
)]
#[case::a_number_for_a_text(r#"{"metadata":{"name":"a"},"spec":{"providerID":7}}"#, Found::Undecodable)]
#[case::a_huge_number(r#"{"metadata":{"name":"a","generation":1e999}}"#, Found::Undecodable)]
#[case::half_a_surrogate_pair(r#"{"metadata":{"name":"a"},"spec":{"providerID":"\ud800"}}"#, Found::Undecodable)]
#[case::metadata_twice(r#"{"metadata":{"name":"a"},"metadata":{"name":"b"}}"#, Found::Nobody)]
fn an_unusual_machine(#[case] json: &str, #[case] expected: Found) {
    let context = Context::new(DEFAULT_GROUP);
    let decode = |meta, tree: &Value| Machine::decode(meta, tree, &context);
    assert_eq!(found(&Machine::projection(&context), json, decode), expected);
}

#[rstest]
fn amounts_of_any_type_are_read(
    #[values(
        r#""4""#,
        r#""\u0034""#,
        "4",
        "-9223372036854775808",
        "18446744073709551615",
        "18446744073709551616",
        "-0",
        "1.5e3",
        "true",
        "null",
        r#"[1,"a",{"b":null}]"#,
        r#"{"b":1,"a":2,"b":3}"#
    )]
    amount: &str,
) {
    let context = Context::new(DEFAULT_GROUP);
    let capacity = format!(r#"{{"cpu":{amount},"memory":"1Gi","cpu2":{amount}}}"#);
    let template = format!(r#"{{"metadata":{{"name":"a"}},"status":{{"capacity":{capacity}}}}}"#);
    let of_template = found(&InfrastructureTemplate::projection(), &template, InfrastructureTemplate::decode);
    let ready = r#"[{"type":"Ready","status":"True"}]"#;
    let node = format!(
        r#"{{"metadata":{{"name":"a"}},"status":{{"capacity":{capacity},"allocatable":{capacity},"conditions":{ready}}}}}"#
    );
    let of_node = found(&Node::projection(&context), &node, |meta, tree| Node::decode(meta, tree, &context));
    assert_eq!((of_template, of_node), (Found::Read, Found::Read));
}

/// Generates JSON with the names of fields that are read.
fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        "\\PC{0,8}".prop_map(Value::from),
    ];
    let field = "(metadata|spec|status|template|labels|annotations|ownerReferences|conditions|capacity|nodeRef|taints)";
    leaf.prop_recursive(5, 40, 4, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(field, inner, 0..4).prop_map(|map| map.into_iter().collect()),
        ]
    })
}

proptest! {
    #[test]
    fn no_json_panics(object in any_json()) {
        let context = Context::new(DEFAULT_GROUP);
        let meta = || meta_of(&json!({}));
        let _ = Cluster::decode(meta(), &object);
        let _ = Machine::decode(meta(), &object, &context);
        let _ = Node::decode(meta(), &object, &context);
        let _ = InfrastructureTemplate::decode(meta(), &object);
        for kind in ScalableKind::ALL {
            let _ = ScalableResource::decode(kind, meta(), &object, &context);
        }
    }
}
