use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use arcstr::ArcStr;
use jiff::{SignedDuration, Timestamp};
use proptest::prelude::*;
use rstest::rstest;
use serde_json::{Value, json};

use super::{content::print, *};
use crate::{
    DriverKind, InfrastructureState, RealNodes, Remembered, Rules, Scope, Source,
    capi::InfrastructureRef,
    evaluate,
    resource_list::{CPU, MEMORY},
    testing::{self, deployment, infrastructure},
};

const GPU: &str = "nvidia.com/gpu";

fn reference(kind: &str) -> InfrastructureRef {
    InfrastructureRef { group: "infrastructure.example.com".into(), kind: kind.into(), name: "any".into() }
}

fn spec(text: &str) -> SpecDigest {
    SpecDigest::of_bytes(text.as_bytes())
}

fn templates(namespace: &str, text: &str) -> Templates {
    Templates::new(&namespace.into(), (&reference("CloudMachineTemplate"), spec(text)), Bootstrap::None)
}

fn key(text: &str) -> Key {
    Key::new(&templates("team-a", text), "amd64").unwrap()
}

fn workers() -> GroupId {
    GroupId::parse("MachineDeployment/team-a/workers").unwrap()
}

/// The time at which entries are read: after all of them were seen.
const NOW: Timestamp = Timestamp::constant(365 * 24 * 3600, 0);

fn at(hours: i64) -> Timestamp {
    Timestamp::UNIX_EPOCH + SignedDuration::from_hours(hours)
}

/// Returns an entry of amounts and labels such as `cpu=4 memory=8Gi zone=a`; a word alone is a mark or a feature.
fn entry(text: &str) -> Entry {
    let mut entry = Entry {
        seen: Seen { at: at(0), node: "node".into(), group: workers(), cluster: "prod".into() },
        resources: BTreeMap::new(),
        labels: BTreeMap::new(),
        declared_features: Vec::new(),
        offers: Offers::default(),
        version: Minor::parse("v1.35.1"),
        settled: false,
        groups: BTreeSet::from([workers()]),
        failure_domain: Ok(None),
    };
    for word in format!("cpu=4 memory=8Gi {text}").split_whitespace() {
        match word.split_once('=') {
            None if word == "settled" => entry.settled = true,
            None => entry.declared_features.push(word.to_owned()),
            Some(("version", version)) => entry.version = Minor::parse(version),
            Some(("hour", hour)) => entry.seen.at = at(hour.parse().unwrap()),
            Some(("node", node)) => entry.seen.node = node.into(),
            Some(("domain", domain)) => entry.failure_domain = Ok(Some(domain.into())),
            Some((name, amount)) if name == CPU || name == MEMORY || name == "pods" || name == GPU => {
                let amount: Quantity = amount.parse().unwrap();
                entry.resources.insert(name.into(), Amounts { capacity: amount, allocatable: amount });
            }
            Some((name, "?")) => drop(entry.labels.insert(name.into(), None)),
            Some((name, value)) => drop(entry.labels.insert(name.into(), Some(value.into()))),
        }
    }
    entry
}

#[rstest]
#[case::equal("gpu=a", "gpu=a", "gpu=a")]
#[case::the_smallest("cpu=4 memory=9Gi", "cpu=3 memory=10Gi", "cpu=3 memory=9Gi")]
#[case::a_resource_that_one_lacks("pods=110", "", "")]
#[case::devices_may_come_late("nvidia.com/gpu=2", "", "nvidia.com/gpu=2")]
#[case::more_devices_came("nvidia.com/gpu=1", "nvidia.com/gpu=2", "nvidia.com/gpu=2")]
#[case::the_devices_of_a_settled_node("nvidia.com/gpu=2", "nvidia.com/gpu=1 settled", "nvidia.com/gpu=1 settled")]
#[case::none_came("nvidia.com/gpu=2", "settled", "settled")]
#[case::a_new_node_has_none_yet("nvidia.com/gpu=2 settled", "", "nvidia.com/gpu=2 settled")]
#[case::the_fewest_of_settled_nodes("nvidia.com/gpu=2 settled", "nvidia.com/gpu=1 settled", "nvidia.com/gpu=1 settled")]
#[case::a_label_that_may_come("team=db zone=a", "zone=a", "team=db zone=a")]
#[case::a_label_that_never_came("team=db zone=a", "zone=a settled", "zone=a settled")]
#[case::labels_that_differ("team=db zone=a", "team=db zone=b", "team=db zone=?")]
#[case::labels_that_differ_from_a_settled_nodes("zone=a settled", "zone=b", "settled")]
#[case::features_of_both("A B", "B C", "B")]
#[case::features_of_the_newer_version("A B", "B C version=1.36", "B C version=1.36")]
#[case::the_last_node("hour=1 node=a", "hour=2 node=b", "hour=2 node=b")]
fn entries_merge(#[case] one: &str, #[case] other: &str, #[case] expected: &str) {
    assert_eq!(entry(one).merge(&entry(other)), entry(expected));
    assert_eq!(entry(other).merge(&entry(one)), entry(expected), "the order doesn't matter");
}

#[rstest]
#[case::nothing("", "", false)]
#[case::another_node("", "node=x hour=23", false)]
#[case::age("", "hour=24", true)]
#[case::an_amount("", "cpu=3", true)]
#[case::a_label("team=db", "team=web", true)]
#[case::settled("", "settled", true)]
fn only_what_matters_is_news(#[case] known: &str, #[case] new: &str, #[case] expected: bool) {
    let known = entry(known);
    assert_eq!(known.merge(&entry(new)).is_news(&known), expected);
}

#[rstest]
#[case::equal("memory=100", None)]
#[case::more("memory=200", None)]
#[case::a_little_less("memory=99", None)]
#[case::less("memory=98", Some("memory"))]
#[case::devices_that_may_come("memory=100", None)]
#[case::devices_that_never_came("memory=100 settled", Some(GPU))]
fn a_smaller_node_is_known_by_its_first_smaller_resource(#[case] node: &str, #[case] expected: Option<&str>) {
    let known = entry("memory=100 nvidia.com/gpu=1 settled");
    let smaller = known.smaller(&entry(node));
    assert_eq!(smaller.as_ref().map(|smaller| smaller.resource.as_str()), expected);
}

#[test]
fn the_key_is_of_contents_architecture_and_namespace() {
    let infrastructure = (&reference("CloudMachineTemplate"), spec("a"));
    let named = |kind, text| Bootstrap::Known(Box::leak(Box::new(reference(kind))), spec(text));
    let keys = [
        Templates::new(&"team-a".into(), infrastructure, Bootstrap::None),
        Templates::new(&"team-b".into(), infrastructure, Bootstrap::None),
        Templates::new(&"team-a".into(), (&reference("OtherTemplate"), spec("a")), Bootstrap::None),
        Templates::new(&"team-a".into(), (infrastructure.0, spec("b")), Bootstrap::None),
        Templates::new(&"team-a".into(), infrastructure, Bootstrap::Unreadable),
        Templates::new(&"team-a".into(), infrastructure, named("ConfigTemplate", "a")),
        Templates::new(&"team-a".into(), infrastructure, named("ConfigTemplate", "b")),
    ];
    let of = |templates: &Templates| ["amd64", "arm64"].map(|arch| Key::new(templates, arch).unwrap().to_string());
    assert_eq!(keys.iter().flat_map(of).collect::<BTreeSet<_>>().len(), 14);
    let mut renamed = reference("CloudMachineTemplate");
    renamed.name = "other".into();
    assert_eq!(Templates::new(&"team-a".into(), (&renamed, spec("a")), Bootstrap::None), keys[0]);
    assert!(Key::new(&keys[0], "a.b").is_none() && Key::new(&keys[0], "").is_none());
    let key = Key::new(&keys[0], "amd64").unwrap();
    assert_eq!(Key::parse(&key.to_string()), Some(key));
}

#[rstest]
#[case::own("", "workers", None, true, "zone=a team=db")]
#[case::a_sister("", "others", None, true, "team=db")]
#[case::a_sister_in_the_same_place("domain=d", "others", Some("d"), true, "zone=a team=db")]
#[case::a_sister_elsewhere("domain=d", "others", Some("e"), true, "team=db")]
#[case::a_sister_whose_bootstrap_template_is_not_known("domain=d", "others", Some("d"), false, "zone=a")]
#[case::own_whose_bootstrap_template_is_not_known("", "workers", None, false, "zone=a team=db")]
fn labels_count_where_they_will_be_right(
    #[case] of: &str,
    #[case] group: &str,
    #[case] domain: Option<&str>,
    #[case] is_whole: bool,
    #[case] expected: &str,
) {
    let mut group = deployment(group);
    group.failure_domain = domain.map(ArcStr::from);
    let entry = entry(&format!("{of} topology.kubernetes.io/zone=a team=db topology.disk.example.com/zone=a"));
    let id = GroupId::of(group.kind, &group.meta);
    let found: BTreeSet<_> =
        entry.labels_for(&id, &group, is_whole).map(|(key, value)| format!("{key}={value}")).collect();
    let has = |label: &str| found.contains(label);
    assert_eq!(has("team=db"), expected.contains("team=db"));
    assert_eq!(has("topology.kubernetes.io/zone=a"), expected.contains("zone=a"));
    assert_eq!(has("topology.disk.example.com/zone=a"), expected == "zone=a team=db");
}

#[test]
fn groups_whose_nodes_are_in_one_place_keep_it_and_no_other_gets_it() {
    let sister = GroupId::parse("MachineDeployment/team-a/sister").unwrap();
    let of_sister = Entry {
        seen: Seen { group: sister.clone(), ..entry("").seen },
        groups: BTreeSet::from([sister]),
        ..entry("topology.kubernetes.io/zone=a")
    };
    let both = entry("topology.kubernetes.io/zone=a").merge(&of_sister);
    for (name, expected) in [("workers", 1), ("sister", 1), ("others", 0)] {
        let group = deployment(name);
        let id = GroupId::of(group.kind, &group.meta);
        assert_eq!(both.labels_for(&id, &group, true).count(), expected, "{name}");
    }
}

/// Returns an owner, and a Node with these labels and GPUs: all of them, and those that work.
fn node_with(labels: &Value, (gpus, working): (u32, u32)) -> (ScalableResource, Node) {
    let value = json!({
        "metadata": {"labels": labels},
        "status": {
            "conditions": [{
                "type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z",
                "lastHeartbeatTime": "2026-01-01T01:00:00Z",
            }],
            "capacity": {"cpu": "4", "memory": "8Gi", GPU: gpus.to_string()},
            "allocatable": {"cpu": "3", "memory": "7Gi", GPU: working.to_string()},
        },
    });
    let context = crate::capi::Context::new("cluster.x-k8s.io");
    (deployment("workers"), Node::decode(testing::meta("", "node"), &value, &context).unwrap())
}

#[test]
fn devices_that_are_out_of_service_count() {
    let of = |gpus| {
        let (owner, node) = node_with(&json!({}), gpus);
        Entry::of(&node, &owner, &workers(), at(0)).unwrap()
    };
    let entry = of((8, 0));
    assert_eq!((entry.resources[GPU].allocatable.to_string(), entry.settled), ("8".to_owned(), true));
    assert_eq!(entry.resources[CPU].allocatable.to_string(), "3");
    assert_eq!(entry.merge(&of((0, 0))), entry, "the device plugin starts again");
}

#[test]
fn of_too_many_labels_those_of_the_hardware_are_left_out() {
    let mut labels = json!({"team": "db", "nvidia.com/gpu.product": "L4"});
    for number in 0..100 {
        labels[format!("feature.node.kubernetes.io/cpu-cpuid.FEATURE{number:03}")] = json!("true");
    }
    let (owner, node) = node_with(&labels, (1, 1));
    let entry = Entry::of(&node, &owner, &workers(), at(0)).unwrap();
    assert!(entry.labels.contains_key("team") && entry.labels.contains_key("nvidia.com/gpu.product"));
    assert!((50..100).contains(&entry.labels.len()), "{}", entry.labels.len());
}

/// Returns a MachineDeployment with both bounds.
fn bounded() -> ScalableResource {
    let bounds = [("min-size", "0"), ("max-size", "5")];
    let annotations = testing::annotations("cluster.x-k8s.io/cluster-api-autoscaler-node-group-", &bounds);
    ScalableResource { annotations, ..deployment("workers") }
}

/// The capacity of memory in the template, and its source.
#[rstest]
#[case::remembered(&[], &[], "8Gi", "remembered", true)]
#[case::over_the_status(&[("cpu", "2"), ("memory", "16Gi")], &[], "8Gi", "remembered", true)]
#[case::below_annotations(&[("cpu", "2"), ("memory", "16Gi")], &[("memory", "32Gi")], "32Gi", "annotation", true)]
#[case::without(&[("cpu", "2"), ("memory", "16Gi")], &[], "16Gi", "status.capacity", false)]
fn what_is_remembered_is_between_the_status_and_annotations(
    #[case] status: &[(&str, &str)],
    #[case] annotations: &[(&str, &str)],
    #[case] expected: &str,
    #[case] source: &str,
    #[case] remembers: bool,
) {
    let mut group = ScalableResource { replicas: Some(0), ..bounded() };
    group.annotations.extend(testing::annotations("capacity.cluster-autoscaler.kubernetes.io/", annotations));
    let entry = entry("nvidia.com/gpu=1 team=db F version=1.34");
    let remembered = Remembered { entry: &entry, arch: "arm64", is_whole: true };
    let nodes = RealNodes { remembered: remembers.then_some(remembered), ..RealNodes::default() };
    let template = infrastructure(status);
    let rules = Rules::new(Scope::All);
    let found = evaluate(&group, None, InfrastructureState::Known(&template), nodes, &rules).unwrap();
    let node = found.template.unwrap();
    let memory = &node.capacity[MEMORY];
    assert_eq!((memory.value.to_string().as_str(), memory.source.as_str()), (expected, source));
    assert_eq!(node.capacity.contains_key(GPU), remembers);
    assert_eq!(node.labels.get("team").map(|label| label.value.as_str()), remembers.then_some("db"));
    assert_eq!(node.labels["kubernetes.io/arch"].value, if remembers { "arm64" } else { "amd64" });
    assert_eq!(node.declared_features.len(), usize::from(remembers));
    assert_eq!(found.notes.iter().any(|note| note.contains("Kubernetes 1.34")), remembers);
    if remembers {
        let Source::Remembered(seen) = &node.labels["team"].source else { panic!() };
        let expected = "Node node of MachineDeployment/team-a/workers in Cluster prod, 1970-01-01 00:00Z";
        assert_eq!(seen.to_string(), expected);
    }
}

/// The GPUs of the template of a group whose `status.capacity` has one.
#[rstest]
#[case::the_device_plugin_may_come("nvidia.com/gpu=0", "1")]
#[case::none_works("nvidia.com/gpu=0 settled", "0")]
#[case::more_than_stated("nvidia.com/gpu=2 settled", "2")]
#[case::it_was_never_listed("settled", "1")]
fn no_devices_are_remembered_once_a_node_is_settled(#[case] remembered: &str, #[case] expected: &str) {
    let entry = entry(remembered);
    let remembered = Remembered { entry: &entry, arch: "amd64", is_whole: true };
    let nodes = RealNodes { remembered: Some(remembered), ..RealNodes::default() };
    let template = infrastructure(&[("cpu", "2"), (GPU, "1")]);
    let rules = Rules::new(Scope::All);
    let found = evaluate(&bounded(), None, InfrastructureState::Known(&template), nodes, &rules).unwrap();
    assert_eq!(found.template.unwrap().capacity[GPU].value.to_string(), expected);
}

#[test]
fn a_remembered_operating_system_is_stronger_than_node_info() {
    let entry = entry("kubernetes.io/os=windows");
    let remembered = Remembered { entry: &entry, arch: "amd64", is_whole: true };
    let nodes = RealNodes { remembered: Some(remembered), ..RealNodes::default() };
    let mut template = infrastructure(&[("cpu", "2")]);
    template.operating_system = Some("linux".into());
    let rules = Rules::new(Scope::All);
    let found = evaluate(&bounded(), None, InfrastructureState::Known(&template), nodes, &rules).unwrap();
    assert_eq!(found.template.unwrap().labels["kubernetes.io/os"].value, "windows");
}

#[test]
fn a_node_is_remembered_without_what_its_group_states_itself() {
    let mut owner = deployment("workers");
    owner.template_labels = BTreeMap::from([("team".into(), "db".into())]);
    let labels = json!({"kubernetes.io/arch": "amd64", "kubernetes.io/os": "linux", "disk": "ssd", "team": "db"});
    let node = |ready: &str| {
        let value = json!({"metadata": {"labels": labels}, "status": {
            "conditions": [{"type": "Ready", "status": ready}],
            "capacity": {"cpu": "4", "memory": "8Gi"},
            "allocatable": {"cpu": "3", "memory": "7Gi"},
        }});
        Node::decode(crate::testing::meta("", "node"), &value, &crate::capi::Context::new("cluster.x-k8s.io")).unwrap()
    };
    assert!(Entry::of(&node("False"), &owner, &workers(), at(0)).is_none(), "it shows no resources");
    let node = node("True");
    let entry = Entry::of(&node, &owner, &workers(), at(0)).unwrap();
    assert_eq!(entry.labels.keys().map(ArcStr::as_str).collect::<Vec<_>>(), ["disk", "kubernetes.io/os"]);
    assert_eq!((entry.seen.cluster.as_str(), entry.version), ("prod", Minor::parse("1.35")));
}

/// Returns the ResourceSlice of a Node with two GPUs, whose attributes and capacity are such as a driver publishes.
fn slice(node: &str) -> Value {
    let device = |number: u32| {
        json!({
            "name": format!("gpu-{number}"),
            "attributes": {
                "productName": {"string": "NVIDIA L4"}, "driverVersion": {"version": "550.54.15"}, "index": {"int": number},
                "uuid": {"string": format!("GPU-{node}-{number}")},
                "resource.kubernetes.io/pcieRoot": {"string": format!("pci0000:0{number}")},
            },
            "capacity": {"memory": {"value": "23034Mi"}},
        })
    };
    json!({"spec": {
        "driver": "gpu.nvidia.com", "nodeName": node, "devices": [device(0), device(1)],
        "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
    }})
}

fn csi_node(limit: u32) -> Value {
    json!({"spec": {"drivers": [
        {"name": "ebs.csi.aws.com", "nodeID": "i-0", "topologyKeys": [], "allocatable": {"count": limit}},
        {"name": "without.a.limit", "nodeID": "i-0"},
        {"name": "not a driver", "allocatable": {"count": 1}},
    ]}})
}

#[test]
fn the_volumes_and_devices_of_a_node_are_remembered_without_what_is_its_own() {
    let offers = Offers::of(Some(&csi_node(25)), Some(&[slice("a")]));
    assert_eq!(offers.volumes, Some(BTreeMap::from([("ebs.csi.aws.com".to_owned(), 25)])));
    let devices = &offers.devices.as_ref().unwrap()["gpu.nvidia.com"];
    let alike: Vec<_> = devices.alike.iter().map(|(text, count)| (text.as_str(), *count)).collect();
    let expected = concat!(
        r#"{"attributes":{"driverVersion":{"version":"550.54.15"},"productName":{"string":"NVIDIA L4"}},"#,
        r#""capacity":{"memory":{"value":"23034Mi"}}}"#
    );
    assert_eq!((devices.count, devices.pools, alike), (2, 1, vec![(expected, 2)]));
    assert_eq!(
        offers.merge(&Offers::of(Some(&csi_node(25)), Some(&[slice("b")]))),
        offers,
        "Nodes of one type offer the same"
    );
    let of_nonsense = Offers::of(Some(&json!(null)), Some(&[json!({"spec": 1})]));
    assert_eq!(of_nonsense, Offers { volumes: Some(BTreeMap::new()), devices: Some(BTreeMap::new()) });
}

/// Returns the slice of a pool in this generation, of which there are `of` slices.
fn slice_of(pool: &str, generation: i64, of: u32, device: &Value) -> Value {
    json!({"spec": {
        "driver": "gpu.nvidia.com", "devices": [device],
        "pool": {"name": pool, "generation": generation, "resourceSliceCount": of},
    }})
}

#[test]
fn only_whole_pools_of_the_newest_generation_are_counted() {
    let device = json!({"name": "gpu-0"});
    let count = |slices: &[Value]| {
        let devices = Offers::of(None, Some(slices)).devices?;
        Some(devices.get("gpu.nvidia.com").map(|devices| (devices.count, devices.pools)))
    };
    let (old, new, other) = (slice_of("a", 1, 1, &device), slice_of("a", 2, 1, &device), slice_of("b", 1, 1, &device));
    assert_eq!(count(&[old, new.clone()]), Some(Some((1, 1))), "a driver is about to delete the old one");
    assert_eq!(count(&[new.clone(), other]), Some(Some((2, 2))));
    assert_eq!(count(&[new, slice_of("b", 1, 2, &device)]), None, "another slice of this pool is to come");
    assert_eq!(count(&[]), Some(None));
}

#[test]
fn devices_that_share_counters_are_not_remembered() {
    let part = json!({"name": "gpu-0-part-0", "consumesCounters": [{"counterSet": "gpu-0", "counters": {}}]});
    let other = json!({"spec": {"driver": "nic.example.com", "devices": [{"name": "nic-0"}]}});
    let devices = Offers::of(None, Some(&[slice("a"), slice_of("b", 1, 1, &part), other])).devices.unwrap();
    assert_eq!(devices.keys().collect::<Vec<_>>(), ["nic.example.com"]);
}

#[test]
fn what_was_read_of_one_node_alone_counts() {
    let volumes = Offers::of(Some(&csi_node(25)), None);
    let devices = Offers::of(None, Some(&[slice("a")]));
    let both = volumes.merge(&devices);
    assert_eq!(both, Offers::of(Some(&csi_node(25)), Some(&[slice("a")])));
    assert_eq!(both.merge(&volumes), both, "without the right to read slices, nothing is forgotten");
}

#[test]
fn a_group_has_the_volumes_and_devices_that_are_remembered_unless_an_annotation_states_them() {
    let mut group = bounded();
    let entry = entry("settled").offering(&Offers::of(Some(&csi_node(25)), Some(&[slice("a")])));
    let remembered = Remembered { entry: &entry, arch: "amd64", is_whole: true };
    let nodes = RealNodes { remembered: Some(remembered), ..RealNodes::default() };
    let found = evaluate(&group, None, InfrastructureState::None, nodes, &Rules::new(Scope::All)).unwrap();
    let drivers: Vec<_> = found.drivers.iter().map(|driver| (driver.name.as_str(), driver.count)).collect();
    assert_eq!(drivers, [("gpu.nvidia.com", 2), ("ebs.csi.aws.com", 25)]);
    assert!(found.drivers.iter().all(|driver| matches!(driver.source, Source::Remembered(_))));
    let key = "capacity.cluster-autoscaler.kubernetes.io/csi-driver";
    group.annotations.insert(key.into(), "ebs.csi.aws.com=3".into());
    let found = evaluate(&group, None, InfrastructureState::None, nodes, &Rules::new(Scope::All)).unwrap();
    let limit = found.drivers.iter().find(|driver| driver.kind == DriverKind::Csi).unwrap();
    assert_eq!((limit.count, found.drivers.len()), (3, 2));
}

/// An entry in which some fields are replaced.
#[rstest]
#[case::no_json(json!(null), "EOF")]
#[case::no_cpu(json!({"capacity": {}, "allocatable": {}}), "must have cpu")]
#[case::no_quantity(json!({"capacity": {"cpu": "much"}}), "Kubernetes quantity")]
#[case::more_allocatable(json!({"allocatable": {"cpu": "2"}, "capacity": {"cpu": "1"}}), "more than capacity")]
#[case::another_namespace(json!({"group": "MachineSet/team-b/g"}), "another namespace")]
#[case::a_label(json!({"labels": {"a b": "c"}}), "label")]
#[case::the_hostname(json!({"labels": {"kubernetes.io/hostname": "c"}}), "isn't one that is remembered")]
#[case::more_alike_than_there_are(
    json!({"offers": {"devices": {"gpu.example.com": {"count": 1, "alike": {"{}": 2}}}}}),
    "offers must have"
)]
#[case::alike_that_is_no_device(
    json!({"offers": {"devices": {"gpu.example.com": {"count": 1, "alike": {"[1]": 1}}}}}),
    "offers must have"
)]
#[case::a_name(json!({"node": ""}), "must be names")]
fn a_broken_entry_is_set_aside_and_hurts_no_other(#[case] replaced: Value, #[case] why: &str) {
    let (good, name) = (print(&entry("team=db")), key("a").to_string());
    let mut broken: Value = serde_json::from_str(&good).unwrap();
    for (field, value) in replaced.as_object().into_iter().flatten() {
        broken[field] = value.clone();
    }
    let broken = if replaced.is_null() { "{".to_owned() } else { broken.to_string() };
    let bad = key("b").to_string();
    let content =
        Content::parse([(name.as_str(), good.as_str()), (bad.as_str(), broken.as_str())], Some("team-a"), NOW);
    assert_eq!(content.entries.values().map(|it| (**it).clone()).collect::<Vec<_>>(), [entry("team=db")]);
    let [set_aside] = content.set_aside.as_slice() else { panic!("{content:?}") };
    assert!(set_aside.why.contains(why), "{set_aside:?}");
}

#[rstest]
#[case::no_digest("team-a.amd64", "isn't namespace")]
#[case::an_odd_digest("team-a.amd64.xyz", "isn't namespace")]
#[case::a_readme("README", "isn't namespace")]
fn a_key_that_is_none_is_set_aside(#[case] name: &str, #[case] why: &str) {
    let content = Content::parse([(name, print(&entry("")).as_str())], None, NOW);
    assert!(content.entries.is_empty() && content.set_aside[0].why.contains(why), "{content:?}");
}

#[test]
fn an_entry_of_the_future_is_as_old_as_it_is_read() {
    let (name, text) = (key("a").to_string(), print(&entry("hour=100000")));
    let content = Content::parse([(name.as_str(), text.as_str())], None, NOW);
    assert_eq!(content.entries[&key("a")].seen.at, NOW);
}

#[test]
fn a_config_map_of_a_namespace_holds_entries_of_no_other() {
    let (name, text) = (key("a").to_string(), print(&entry("")));
    let parse = |namespace| Content::parse([(name.as_str(), text.as_str())], namespace, NOW);
    assert_eq!(parse(Some("team-b")).set_aside.len(), 1);
    assert_eq!((parse(Some("team-a")).entries.len(), parse(None).entries.len()), (1, 1));
}

/// Applies the changes of a write.
fn written(data: &mut BTreeMap<String, String>, changes: BTreeMap<String, Option<String>>) {
    for (name, value) in changes {
        match value {
            Some(value) => drop(data.insert(name, value)),
            None => drop(data.remove(&name)),
        }
    }
}

fn content(data: &BTreeMap<String, String>) -> Content {
    Content::parse(data.iter().map(|(name, value)| (name.as_str(), value.as_str())), None, NOW)
}

fn bytes(data: &BTreeMap<String, String>) -> usize {
    data.iter().map(|(name, value)| name.len() + value.len()).sum()
}

#[test]
fn the_oldest_that_nobody_uses_goes_first_and_what_is_new_never_does() {
    let names: Vec<_> = (0..MOST_ENTRIES).map(|number| format!("t{number}")).collect();
    let mut data: BTreeMap<_, _> = names
        .iter()
        .zip(0..)
        .map(|(name, hour)| (key(name).to_string(), print(&entry(&format!("hour={hour}")))))
        .collect();
    let used = BTreeSet::from([templates("team-a", "t0")]);
    let own = BTreeMap::from([(key("new"), Arc::new(entry("")))]);
    let changes = plan(&content(&data), &own, &used);
    let removed: Vec<_> = changes.iter().filter(|(_, value)| value.is_none()).map(|(name, _)| name.clone()).collect();
    assert_eq!(removed, [key("t1").to_string()]);
    written(&mut data, changes);
    assert_eq!(data.len(), MOST_ENTRIES);
    assert!(plan(&content(&data), &own, &used).is_empty(), "nothing is new");
}

#[test]
fn what_was_set_aside_makes_room_before_entries_do() {
    let mut data =
        BTreeMap::from([("hostile".to_owned(), "x".repeat(MOST_BYTES)), (key("a").to_string(), print(&entry("")))]);
    let own = BTreeMap::from([(key("b"), Arc::new(entry("")))]);
    let changes = plan(&content(&data), &own, &BTreeSet::new());
    written(&mut data, changes);
    assert_eq!(
        data.keys().cloned().collect::<BTreeSet<_>>(),
        BTreeSet::from([key("a"), key("b")].map(|key| key.to_string()))
    );
}

#[test]
fn an_entry_that_is_too_long_loses_what_is_alike_in_devices_and_then_its_labels() {
    let alike =
        (0..20).map(|number| (format!("{{\"attributes\":{{\"a\":{{\"string\":\"{number:0600}\"}}}}}}"), 1)).collect();
    let devices = BTreeMap::from([("gpu.example.com".to_owned(), Devices { count: 20, pools: 1, alike })]);
    let offers = Offers { devices: Some(devices), ..Offers::default() };
    let labels: Vec<_> = (0..200).map(|number| format!("label-{number}={}", "v".repeat(60))).collect();
    let labels = format!("kubernetes.io/os=linux {}", labels.join(" "));
    for (labels, expected) in [("kubernetes.io/os=linux team=db", 2), (labels.as_str(), 1)] {
        let own = BTreeMap::from([(key("a"), Arc::new(Entry { offers: offers.clone(), ..entry(labels) }))]);
        let mut data = BTreeMap::new();
        written(&mut data, plan(&Content::default(), &own, &BTreeSet::new()));
        let found = content(&data);
        let entry = &found.entries[&key("a")];
        let devices = &entry.offers.devices.as_ref().unwrap()["gpu.example.com"];
        assert_eq!((devices.count, devices.alike.len(), entry.labels.len()), (20, 0, expected));
        assert!(entry.labels.contains_key("kubernetes.io/os"));
        assert!(plan(&found, &own, &BTreeSet::new()).is_empty(), "it isn't written again");
    }
}

fn any_entry() -> impl Strategy<Value = Entry> {
    let parts =
        (1..4_i64, 1..4_i64, 0..3_i64, 0..3_u8, 0..3_u8, any::<bool>(), 0..60_i64, 34..37_u16, 0..2_u8, 0..2_u8);
    parts.prop_map(|(cpu, memory, gpu, team, zone, settled, hour, minor, domain, group)| {
        let mut text = format!("cpu={cpu} memory={memory}Gi hour={hour} node=n{hour} version=1.{minor}");
        for (name, value) in [("team", team), ("zone", zone), ("domain", domain)] {
            if value > 0 {
                text.extend([" ", name, "=", &value.to_string()]);
            }
        }
        if gpu > 0 {
            text.extend([" ", GPU, "=", &gpu.to_string()]);
        }
        let mut entry = entry(&format!("{text} {} F{minor} F{zone}", if settled { "settled" } else { "" }));
        entry.seen.group = GroupId::parse(&format!("MachineDeployment/team-a/g{group}")).unwrap();
        entry.groups = BTreeSet::from([entry.seen.group.clone()]);
        let device = json!({"name": "gpu", "attributes": {"model": {"string": team.to_string()}}});
        let slices: Vec<_> = (0..zone).map(|pool| slice_of(&format!("pool-{pool}"), 1, 1, &device)).collect();
        entry.offers = match gpu {
            0 => Offers::default(),
            1 => Offers::of(Some(&csi_node(u32::from(team))), None),
            _ => Offers::of(Some(&csi_node(u32::from(team))), Some(&slices)),
        };
        entry
    })
}

proptest! {
    #[test]
    fn merging_knows_no_order(a in any_entry(), b in any_entry(), c in any_entry()) {
        prop_assert_eq!(a.merge(&a), a.clone());
        prop_assert_eq!(a.merge(&b), b.merge(&a));
        prop_assert_eq!(a.merge(&b).merge(&c), a.merge(&b.merge(&c)));
    }

    #[test]
    fn nothing_is_larger_than_the_smallest_node(nodes in prop::collection::vec(any_entry(), 1..6)) {
        let all = nodes.iter().skip(1).fold(nodes[0].clone(), |all, node| all.merge(node));
        for node in &nodes {
            for resource in [CPU, MEMORY] {
                prop_assert!(all.resources[resource].allocatable <= node.resources[resource].allocatable);
            }
        }
        if let Some(fewest) = nodes.iter().filter(|node| node.settled).map(|node| node.resources.get(GPU).copied()).min_by_key(|it| it.map(|it| it.capacity)) {
            prop_assert_eq!(all.resources.get(GPU), fewest.as_ref());
        }
    }

    #[test]
    fn an_entry_is_read_as_it_is_written(one in any_entry(), other in any_entry()) {
        for entry in [one.merge(&other), one] {
            let (name, text) = (key("a").to_string(), print(&entry));
            let content = Content::parse([(name.as_str(), text.as_str())], Some("team-a"), NOW);
            prop_assert_eq!(&content.set_aside, &[]);
            prop_assert_eq!(&*content.entries[&key("a")], &entry);
        }
    }

    /// Two writers each write only on the version that they have seen; the one that lost reads and tries again.
    #[test]
    fn two_writers_lose_nothing(
        seen in prop::collection::vec((any::<bool>(), 0..4_u8, any_entry()), 1..20),
        writes in prop::collection::vec((any::<bool>(), any::<bool>()), 1..20),
    ) {
        let mut own = [BTreeMap::new(), BTreeMap::new()];
        let mut all = BTreeMap::<Key, Entry>::new();
        for (writer, number, entry) in seen {
            let key = key(&number.to_string());
            all.entry(key.clone()).and_modify(|known| *known = known.merge(&entry)).or_insert_with(|| entry.clone());
            own[usize::from(writer)]
                .entry(key)
                .and_modify(|known: &mut Arc<Entry>| *known = Arc::new(known.merge(&entry)))
                .or_insert_with(|| Arc::new(entry));
        }
        let (mut data, mut version) = (BTreeMap::new(), 0);
        let mut views = [(0, Content::default()), (0, Content::default())];
        let ends = [(false, true), (false, false), (true, true), (true, false)];
        for (writer, reads) in writes.into_iter().chain(ends) {
            let (known, view) = &mut views[usize::from(writer)];
            if reads {
                (*known, *view) = (version, content(&data));
            } else if *known == version {
                written(&mut data, plan(view, &own[usize::from(writer)], &BTreeSet::new()));
                version += 1;
            }
        }
        let stored = content(&data);
        prop_assert_eq!(stored.entries.keys().collect::<Vec<_>>(), all.keys().collect::<Vec<_>>());
        for (key, entry) in all {
            prop_assert!(!stored.entries[&key].merge(&entry).is_news(&stored.entries[&key]));
        }
    }

    #[test]
    fn no_content_panics(data in prop::collection::btree_map(any::<String>(), any::<String>(), 0..5), text in any::<String>()) {
        let named = key("a").to_string();
        let _ = content(&data);
        let _ = Content::parse([(named.as_str(), text.as_str())], None, NOW);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20))]

    #[test]
    fn the_content_keeps_to_its_bounds(
        odd in prop::collection::vec(("[a-z]{1,9}", 0..300_000_usize), 0..4),
        sizes in prop::collection::vec((any::<u16>(), 0..120_usize), 0..600),
    ) {
        let mut data: BTreeMap<_, _> = odd.into_iter().map(|(name, size)| (name, "x".repeat(size))).collect();
        for part in sizes.chunks(200) {
            let own = part.iter().map(|(name, size)| {
                let labels = (0..*size).map(|number| format!("label-{number}={}", "v".repeat(60))).collect::<Vec<_>>();
                (key(&name.to_string()), Arc::new(entry(&labels.join(" "))))
            });
            let changes = plan(&content(&data), &own.collect(), &BTreeSet::new());
            let is_write = !changes.is_empty();
            written(&mut data, changes);
            if is_write {
                prop_assert!(data.len() <= MOST_ENTRIES && bytes(&data) <= MOST_BYTES);
            }
        }
    }
}
