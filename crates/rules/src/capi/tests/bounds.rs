//! The limits of what is kept of an object's texts and lists, and the bytes with which it counts in an informer's limit.
//! SECURITY.md has the table.

use std::fmt::Debug;

use shared_informer::Settings;

use super::*;

/// Decodes an object of any kind, and returns all that is kept of it, and the bytes with which it counts.
fn kept(kind: &str, object: &Value) -> Result<(String, usize), String> {
    let (meta, context) = (meta_of(object), Context::new(DEFAULT_GROUP));
    match kind {
        "Node" => Node::decode(meta, object, &context).map(|it| (format!("{it:?}"), it.bytes())),
        "Template" => InfrastructureTemplate::decode(meta, object).map(|it| (format!("{it:?}"), it.bytes())),
        _ => {
            let mut object = object.clone();
            object["kind"] = kind.into();
            read(&object, &context).map(|it| (format!("{it:?}"), it.bytes()))
        }
    }
}

impl Read {
    fn bytes(&self) -> usize {
        match self {
            Self::Cluster(cluster) => cluster.bytes(),
            Self::Scalable(scalable) => scalable.bytes(),
            Self::Machine(machine) => machine.bytes(),
        }
    }
}

/// Returns the length of the longest text that is kept of an object in which each `TEXT` has this many bytes, and checks
/// that it counts.
fn longest(kind: &str, object: &Value, bytes: usize) -> usize {
    let object = serde_json::from_str(&object.to_string().replace("TEXT", &"q".repeat(bytes))).unwrap();
    let (kept, counted) = kept(kind, &object).unwrap();
    let longest = kept.split(|character| character != 'q').map(str::len).max().unwrap();
    assert!((longest..longest + 1_000).contains(&counted), "{counted} bytes for a text of {longest}");
    longest
}

fn owned_by(kind: &str) -> Value {
    let owner = json!({"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": kind, "name": "TEXT", "controller": true});
    json!({"metadata": {"ownerReferences": [owner]}})
}

fn template(spec: &Value) -> Value {
    json!({"spec": {"template": {"spec": spec}}})
}

fn worker(worker: &Value) -> Value {
    json!({"spec": {"topology": {"version": "v1.34.0", "workers": {"machineDeployments": [worker]}}}})
}

#[rstest]
#[case("Machine", json!({"spec": {"clusterName": "TEXT"}}))]
#[case("Machine", json!({"spec": {"providerID": "TEXT"}}))]
#[case("Machine", json!({"status": {"nodeRef": {"name": "TEXT"}}}))]
#[case("Machine", owned_by("MachineSet"))]
#[case("Node", json!({"spec": {"providerID": "TEXT"}}))]
#[case("Node", json!({"metadata": {"labels": {"kubernetes.io/arch": "TEXT"}}}))]
#[case("Node", json!({"metadata": {"annotations": {"cluster.x-k8s.io/machine": "TEXT", "cluster.x-k8s.io/cluster-namespace": "n"}}}))]
#[case("Node", json!({"metadata": {"annotations": {"cluster.x-k8s.io/machine": "m", "cluster.x-k8s.io/cluster-namespace": "TEXT"}}}))]
#[case("Template", json!({"status": {"capacity": {"cpu": "TEXT"}}}))]
#[case("Template", json!({"status": {"nodeInfo": {"architecture": "TEXT"}}}))]
#[case("Template", json!({"status": {"nodeInfo": {"operatingSystem": "TEXT"}}}))]
#[case("Cluster", json!({"spec": {"topology": {"version": "TEXT"}}}))]
#[case("Cluster", worker(&json!({"name": "w", "version": "TEXT"})))]
#[case("Cluster", worker(&json!({"name": "TEXT", "version": "v1.34.0"})))]
#[case("Cluster", worker(&json!({"name": "TEXT", "replicas": 1})))]
#[case("Cluster", worker(&json!({"name": "TEXT", "metadata": {"annotations": {"topology.cluster.x-k8s.io/defer-upgrade": ""}}})))]
#[case("MachineDeployment", json!({"metadata": {"labels": {"team": "TEXT"}}}))]
#[case("MachineDeployment", json!({"metadata": {"annotations": {"capacity.cluster-autoscaler.kubernetes.io/cpu": "TEXT"}}}))]
#[case("MachineDeployment", json!({"spec": {"template": {"metadata": {"labels": {"team": "TEXT"}}}}}))]
#[case("MachineDeployment", json!({"spec": {"clusterName": "TEXT"}}))]
#[case("MachineDeployment", template(&json!({"failureDomain": "TEXT"})))]
#[case("MachineDeployment", template(&json!({"version": "TEXT"})))]
#[case("MachineDeployment", template(&json!({"taints": [{"key": "k", "value": "TEXT"}]})))]
#[case("MachineDeployment", template(&json!({"infrastructureRef": {"apiGroup": "g", "kind": "k", "name": "TEXT"}})))]
#[case("MachineDeployment", template(&json!({"bootstrap": {"dataSecretName": "TEXT"}})))]
#[case("MachineSet", owned_by("MachineDeployment"))]
#[case("MachinePool", json!({"spec": {"providerIDList": ["TEXT"]}}))]
#[case("MachinePool", json!({"status": {"nodeRefs": [{"name": "TEXT"}]}}))]
fn a_text_is_kept_up_to_its_bound(#[case] kind: &str, #[case] object: Value) {
    assert_eq!(longest(kind, &object, LONGEST_VALUE), LONGEST_VALUE);
    assert!(longest(kind, &object, LONGEST_VALUE + 1) < 10, "a text that says so takes its place");
}

#[rstest]
#[case("Machine", json!({"status": {"failureReason": "TEXT"}}))]
#[case("Machine", json!({"status": {"failureMessage": "TEXT"}}))]
#[case("Machine", json!({"status": {"conditions": [{"type": "InfrastructureReady", "status": "False", "reason": "TEXT"}]}}))]
#[case("Machine", json!({"status": {"conditions": [{"type": "InfrastructureReady", "status": "False", "message": "TEXT"}]}}))]
#[case("MachineSet", json!({"status": {"conditions": [
    {"type": "ScalingUp", "status": "True", "message": "Scaling up from 1 to 2 replicas is blocked because:\n* TEXT"},
]}}))]
#[case("MachinePool", json!({"status": {"failureMessage": "TEXT"}}))]
fn of_a_message_the_beginning_is_kept(#[case] kind: &str, #[case] object: Value) {
    for bytes in [LONGEST_MESSAGE, LONGEST_MESSAGE + 1, 200_000] {
        assert_eq!(longest(kind, &object, bytes), LONGEST_MESSAGE);
    }
}

#[rstest]
#[case("Machine", json!({"status": {"phase": "TEXT"}}))]
#[case("Machine", json!({"status": {"conditions": [{"type": "TEXT", "status": "TEXT", "lastTransitionTime": "TEXT"}]}}))]
#[case("MachineDeployment", json!({"status": {"phase": "TEXT", "authoritativeAPI": "TEXT"}}))]
#[case("MachineDeployment", json!({"status": {"conditions": [{"type": "RollingOut", "status": "True", "lastTransitionTime": "TEXT"}]}}))]
#[case("MachineDeployment", json!({"metadata": {"annotations": {"other": "TEXT"}}}))]
#[case("MachineSet", json!({"metadata": {"annotations": {"machinedeployment.clusters.x-k8s.io/revision": "TEXT"}}}))]
#[case("Cluster", worker(&json!({"name": "w", "metadata": {"annotations": {"topology.cluster.x-k8s.io/defer-upgrade": "TEXT"}}})))]
#[case("Cluster", json!({"metadata": {"labels": {"team": "TEXT"}}}))]
fn no_text_is_kept(#[case] kind: &str, #[case] object: Value) {
    assert!(longest(kind, &object, 100) < 10);
    assert!(longest(kind, &object, 200_000) < 10);
}

#[rstest]
#[case("MachineDeployment", json!({"spec": {"replicas": 2_147_483_647_u64}}), json!({"spec": {"replicas": 2_147_483_648_u64}}))]
#[case("MachineDeployment", json!({"status": {"replicas": 2_147_483_647_u64}}), json!({"status": {"replicas": 2_147_483_648_u64}}))]
fn a_number_beyond_its_bound_does_not_decode(#[case] kind: &str, #[case] at_bound: Value, #[case] beyond: Value) {
    assert!(kept(kind, &at_bound).is_ok() && kept(kind, &beyond).is_err());
}

#[test]
fn a_mark_is_kept_up_to_its_bound() {
    let marked = json!({"metadata": {"annotations": {"cluster.x-k8s.io/delete-machine": "TEXT"}}});
    assert_eq!([256, 257].map(|bytes| longest("Machine", &marked, bytes)), [256, 0]);
}

#[test]
fn the_revision_of_a_machine_set_is_read_up_to_its_bound() {
    let revision = |text: &str| {
        let annotations = json!({"machinedeployment.clusters.x-k8s.io/revision": text});
        scalable(ScalableKind::MachineSet, &json!({"metadata": {"annotations": annotations}})).revision
    };
    assert_eq!((revision("9223372036854775807"), revision("9223372036854775808")), (Some(i64::MAX), None));
}

/// Returns this many texts of 100 bytes, each with its own name.
fn texts(count: usize) -> impl Iterator<Item = (String, String)> {
    (0..count).map(|number| (format!("example.com/{number:03}"), "v".repeat(100)))
}

fn map(count: usize) -> Value {
    texts(count).map(|(name, text)| (name, Value::from(text))).collect()
}

/// Each entry counts some 250 bytes, and all of them together have a limit.
#[rstest]
#[case::labels("MachineDeployment", |count| json!({"metadata": {"labels": map(count)}}))]
#[case::labels_of_machines("MachineDeployment", |count| json!({"spec": {"template": {"metadata": {"labels": map(count)}}}}))]
#[case::labels_of_nodes("MachineDeployment", |count| template(&json!({"metadata": {"labels": map(count)}})))]
#[case::annotations("MachineDeployment", |count| {
    let annotation = |(name, text): (String, String)| (format!("{CAPACITY_PREFIX}{}", &name[8..]), text);
    json!({"metadata": {"annotations": texts(count).map(annotation).collect::<BTreeMap<_, _>>()}})
})]
#[case::taints("MachineDeployment", |count| {
    let taints = texts(count).map(|(key, value)| json!({"key": key, "value": value, "effect": "NoSchedule"}));
    template(&json!({"taints": taints.collect::<Vec<_>>()}))
})]
#[case::references("MachineDeployment", |count| {
    let text = "k".repeat(count * 80);
    template(&json!({"infrastructureRef": {"apiGroup": text, "kind": text, "name": text}}))
})]
#[case::amounts("Template", |count| json!({"status": {"capacity": map(count)}}))]
fn as_many_texts_are_kept_as_an_object_may_have(#[case] kind: &str, #[case] with: fn(usize) -> Value) {
    kept(kind, &with(110)).unwrap();
    let error = kept(kind, &with(140)).unwrap_err();
    assert!(error.contains(&format!("no more than {MOST_KEPT} are kept")), "{error}");
}

#[rstest]
#[case::instances_of_a_pool("MachinePool", |count| {
    let ids: Vec<_> = (0..count).map(|number| format!("aws:///eu-central-1a/i-{number:017x}")).collect();
    let nodes: Vec<_> = (0..count).map(|number| json!({"name": format!("ip-10-0-{number}")})).collect();
    json!({"spec": {"providerIDList": ids}, "status": {"nodeRefs": nodes}})
}, 1_600, 2_000)]
#[case::workers_of_a_topology("Cluster", |count| {
    let worker = |number: usize| json!({"name": format!("workers-{number:05}"), "replicas": 1});
    let workers: Vec<_> = (0..count).map(worker).collect();
    json!({"spec": {"topology": {"version": "v1.34.0", "workers": {"machineDeployments": workers}}}})
}, 3_000, 4_000)]
fn as_many_are_listed_as_an_object_may_have(
    #[case] kind: &str,
    #[case] with: fn(usize) -> Value,
    #[case] within: usize,
    #[case] beyond: usize,
) {
    kept(kind, &with(within)).unwrap();
    let error = kept(kind, &with(beyond)).unwrap_err();
    assert!(error.contains(&MOST_LISTED.to_string()), "{error}");
}

#[test]
fn of_a_node_that_shows_more_resources_than_any_none_is_taken() {
    let resources = |count: usize| {
        let mut amounts: Value = (0..count).map(|n| (format!("example.com/{n:04}"), Value::from("1"))).collect();
        (amounts["cpu"], amounts["memory"]) = (json!("4"), json!("16Gi"));
        let conditions = json!([{"type": "Ready", "status": "True"}]);
        let status = json!({"status": {"capacity": amounts, "allocatable": amounts, "conditions": conditions}});
        let node = Node::decode(meta_of(&status), &status, &Context::new(DEFAULT_GROUP)).unwrap();
        node.resources.as_ref().map(|resources| resources.iter().count())
    };
    // All of them are a text of as many bytes as are kept.
    assert_eq!((resources(779), resources(780)), (Some(781), None));
}

/// Returns the bytes of all texts of a value, by its debug form. A field that is added counts there by itself.
fn texts_in(value: &impl Debug) -> usize {
    format!("{value:?}").replace("\\n", "\n").split('"').skip(1).step_by(2).map(str::len).sum()
}

fn assert_counts(object: &impl Debug, meta: &Meta, bytes: usize) {
    let texts = texts_in(object) - texts_in(meta);
    assert!(texts <= bytes && bytes <= 4 * texts + 200, "{bytes} bytes for texts of {texts}: {object:?}");
}

#[rstest]
fn each_text_of_a_real_object_counts(
    #[values("steady", "scaling", "rollout")] moment: &str,
    #[values("v1beta1", "v1beta2")] version: &str,
) {
    let objects = management(moment, version);
    assert!(objects.len() > 3, "{objects:?}");
    for object in objects.values() {
        let meta = match object {
            Read::Cluster(cluster) => &cluster.meta,
            Read::Scalable(scalable) => &scalable.meta,
            Read::Machine(machine) => &machine.meta,
        };
        assert_counts(object, meta, object.bytes());
    }
}

/// A kind of as many objects as there may be isn't given up for its bytes, with names and identifiers as clouds have.
#[test]
fn a_fleet_of_as_many_machines_and_nodes_as_there_may_be_is_within_the_limit_of_bytes() {
    /// The memory of an object besides its content and texts, and that of its identity.
    const REST: usize = 128 + 80;
    let name = "ip-10-123-123-123.eu-central-1.compute.internal";
    let provider = "aws:///eu-central-1a/i-0123456789abcdef0";
    let condition = json!({"type": "Ready", "status": "True"});
    let amounts = json!({"cpu": "16", "memory": "65198776Ki", "pods": "110", "ephemeral-storage": "104779756Ki"});
    let node = json!({
        "metadata": {"name": name,
            "annotations": {"cluster.x-k8s.io/machine": "workers-x7k2p-4tq8z", "cluster.x-k8s.io/cluster-namespace": "team-a"},
            "labels": {"kubernetes.io/arch": "amd64", "kubernetes.io/os": "linux",
                "node.kubernetes.io/instance-type": "m7i.4xlarge", "topology.kubernetes.io/region": "eu-central-1",
                "topology.kubernetes.io/zone": "eu-central-1a"}},
        "spec": {"providerID": provider},
        "status": {"capacity": amounts, "allocatable": amounts, "conditions": [condition]},
    });
    let context = Context::new(DEFAULT_GROUP);
    let node = Node::decode(meta_of(&node), &node, &context).unwrap();
    assert!(node.resources.is_some());
    assert_counts(&node, &node.meta, node.bytes());
    let machine = json!({
        "metadata": {"namespace": "team-a", "name": "workers-x7k2p-4tq8z", "ownerReferences": [
            {"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "MachineSet", "name": "workers-x7k2p", "controller": true},
        ]},
        "spec": {"clusterName": "prod", "providerID": provider}, "status": {"nodeRef": {"name": name}},
    });
    let machine = Machine::decode(meta_of(&machine), &machine, &context).unwrap();
    for Settings { max_objects, max_bytes, .. } in [Settings::default(), Settings::of_many_tenants()] {
        for bytes in [size_of::<Node>() + node.bytes(), size_of::<Machine>() + machine.bytes()] {
            assert!(max_objects * (REST + bytes) <= max_bytes, "{bytes} bytes of an object");
        }
    }
}
