//! Tests of explanations of manifests. The texts are snapshots; the values are tested in the modules that decide
//! them.

use std::fs;

use clap::Parser as _;
use rstest::rstest;
use rules::{
    capi::{InfrastructureRef, SpecDigest},
    remembered::{Bootstrap, Key, Templates},
};
use serde_json::{Value, json};

use super::*;
use crate::cli::{Cli, Command, UsageError};

const MAX: &str = "cluster.x-k8s.io/cluster-api-autoscaler-node-group-max-size";
const MIN: &str = "cluster.x-k8s.io/cluster-api-autoscaler-node-group-min-size";
const CAPACITY: &str = "capacity.cluster-autoscaler.kubernetes.io";

fn config(flags: &[&str]) -> Result<ExplainConfig, UsageError> {
    let Command::Explain(args) = Cli::try_parse_from(["x", "explain"].iter().chain(flags)).unwrap().command else {
        panic!("it isn't explain")
    };
    ExplainConfig::try_from(*args)
}

/// Explains these objects.
fn try_explained(objects: &[Value], flags: &[&str]) -> anyhow::Result<Findings> {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("fleet.json");
    fs::write(&path, json!({"apiVersion": "v1", "kind": "List", "items": objects}).to_string()).unwrap();
    let config = config(&[&["-f", path.to_str().unwrap()], flags].concat()).unwrap();
    config.of_manifests()
}

fn explained(objects: &[Value], flags: &[&str]) -> Findings {
    try_explained(objects, flags).unwrap()
}

/// Returns the text for people, without colours.
fn text_of(objects: &[Value], flags: &[&str]) -> String {
    explained(objects, flags).render(Output::Text, false).unwrap()
}

/// Returns a MachineDeployment with a max size of 5 in team-a, which refers to the DevMachineTemplate `workers`.
fn deployment(name: &str, replicas: i32, annotations: &[(&str, &str)]) -> Value {
    scalable("MachineDeployment", name, replicas, &[&[(MAX, "5")], annotations].concat())
}

fn scalable(kind: &str, name: &str, replicas: i32, annotations: &[(&str, &str)]) -> Value {
    let annotations: serde_json::Map<_, _> =
        annotations.iter().map(|(key, value)| ((*key).to_owned(), json!(value))).collect();
    let reference =
        json!({"apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "DevMachineTemplate", "name": "workers"});
    json!({
        "apiVersion": "cluster.x-k8s.io/v1beta2",
        "kind": kind,
        "metadata": {"name": name, "namespace": "team-a", "annotations": annotations},
        "spec": {"clusterName": "prod", "replicas": replicas, "template": {"spec": {"infrastructureRef": reference}}},
    })
}

fn template(status: &Value) -> Value {
    json!({
        "apiVersion": "infrastructure.cluster.x-k8s.io/v1beta1",
        "kind": "DevMachineTemplate",
        "metadata": {"name": "workers", "namespace": "team-a"},
        "status": status,
    })
}

fn known_template() -> Value {
    template(&json!({"capacity": {"cpu": 4, "memory": "32Gi"}, "nodeInfo": {"architecture": "arm64"}}))
}

fn capacity(name: &str) -> String {
    format!("{CAPACITY}/{name}")
}

#[test]
fn a_group_by_annotations() {
    let keys =
        ["cpu", "memory", "ephemeral-disk", "maxPods", "gpu-type", "gpu-count", "labels", "taints", "csi-driver"]
            .map(capacity);
    let values = [
        "8",
        "30.5Gi",
        "100Gi",
        "250",
        "nvidia.com/gpu",
        "2",
        "disk=ssd,cluster-api/accelerator=t4,topology.kubernetes.io/region=eu",
        "dedicated=gpu:NoSchedule,spot:PreferNoSchedule",
        "ebs.csi.aws.com=25",
    ];
    let mut annotations: Vec<_> = keys.iter().map(String::as_str).zip(values).collect();
    annotations.extend([
        (MIN, "1"),
        ("capacity.capi-autoscaler-provider.io/overhead", "cpu=100m,memory=800Mi"),
        ("capacity.capi-autoscaler-provider.io/resources", "hugepages-2Mi=1Gi"),
        ("capacity.capi-autoscaler-provider.io/price-per-hour", "0.526"),
        ("cluster.x-k8s.io/autoscaling-options-scaledownunneededtime", "20m"),
        ("cluster.x-k8s.io/autoscaling-options-scaledownutilizationthreshold", "0.4"),
    ]);
    insta::assert_snapshot!(text_of(&[deployment("gpus", 1, &annotations), known_template()], &[]));
}

#[test]
fn a_group_of_a_remembered_node() {
    let reference = InfrastructureRef {
        group: "infrastructure.cluster.x-k8s.io".into(),
        kind: "DevMachineTemplate".into(),
        name: "workers".into(),
    };
    let templates = Templates::new(&"team-a".into(), (&reference, SpecDigest::default()), Bootstrap::None);
    let entry = json!({
        "node": "workers-x2v9k", "group": "MachineDeployment/team-a/old", "cluster": "first", "settled": true,
        "seen": "2026-01-01T00:00:00Z", "kubernetes": "1.35",
        "capacity": {"cpu": "8", "memory": "32Gi", "nvidia.com/gpu": "1"},
        "allocatable": {"cpu": "7800m", "memory": "30Gi", "nvidia.com/gpu": "1"},
        "labels": {"team": "db", "rack": null}, "declaredFeatures": ["GuaranteedQoSPodCPUResize"],
        "offers": {
            "volumes": {"ebs.csi.aws.com": 25},
            "devices": {"nic.example.com": {"count": 2, "alike": {"{\"attributes\":{\"speed\":{\"int\":100}}}": 2}}},
        },
    });
    let config_map = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "remembered-nodes", "namespace": "team-a"},
        "data": {Key::new(&templates, "amd64").unwrap().to_string(): entry.to_string(), "README": "hello"},
    });
    let objects = [deployment("workers", 0, &[(MIN, "0")]), template(&json!({})), config_map];
    let age = regex::Regex::new(r"\(\d+d ago\)").unwrap();
    insta::assert_snapshot!(age.replace_all(&text_of(&objects, &[]), "(… ago)"));
}

#[test]
fn a_group_with_bad_entries() {
    let keys = ["cpu", "labels", "taints"].map(capacity);
    let values = ["lots", "tier,disk=ssd", "a=b:Never"];
    let mut annotations: Vec<_> = keys.iter().map(String::as_str).zip(values).collect();
    annotations.push(("cluster.x-k8s.io/autoscaling-options-scaledownunneededtime", "soon"));
    let template = template(&json!({"capacity": {"cpu": 4, "memory": "32Gi", "example.com/nic": "some"}}));
    let explained = explained(&[deployment("workers", 0, &annotations), template], &[]);
    insta::assert_snapshot!(explained.render(Output::Text, false).unwrap());
    assert_eq!(explained.verdict().unwrap_err().to_string(), "1 node group is invalid");
}

/// Returns a Cluster with this list of workers in its topology.
fn cluster_with(list: &str, worker: &Value) -> Value {
    json!({
        "apiVersion": "cluster.x-k8s.io/v1beta2",
        "kind": "Cluster",
        "metadata": {"name": "prod", "namespace": "team-a"},
        "spec": {"topology": {"classRef": {"name": "any"}, "version": "v1.34.0", "workers": {list: [worker]}}},
    })
}

/// Returns a worker of class `small` with these annotations.
fn worker(annotations: &[(&str, &str)]) -> Value {
    let annotations: serde_json::Map<_, _> =
        annotations.iter().map(|(key, value)| ((*key).to_owned(), json!(value))).collect();
    json!({"class": "small", "name": "md-0", "metadata": {"annotations": annotations}})
}

/// Returns a ClusterClass whose class `small` has a capacity and refers to the infrastructure template `workers`.
fn cluster_class(is_v1beta1: bool) -> Value {
    let reference = json!({
        "apiVersion": "infrastructure.cluster.x-k8s.io/v1beta1", "kind": "DevMachineTemplate", "name": "workers",
    });
    let metadata = json!({"annotations": {capacity("cpu"): "8", capacity("memory"): "16Gi", MAX: "9"}});
    let (version, small) = if is_v1beta1 {
        let template = json!({"metadata": metadata, "infrastructure": {"ref": reference}});
        ("v1beta1", json!({"class": "small", "template": template}))
    } else {
        let infrastructure = json!({"templateRef": reference});
        ("v1beta2", json!({"class": "small", "metadata": metadata, "infrastructure": infrastructure}))
    };
    json!({
        "apiVersion": format!("cluster.x-k8s.io/{version}"),
        "kind": "ClusterClass",
        "metadata": {"name": "any", "namespace": "team-a"},
        "spec": {"workers": {"machineDeployments": [small]}},
    })
}

/// A repository with ClusterClasses has no MachineDeployment.
#[rstest]
#[case::machine_deployments("machineDeployments", "MachineDeployment/team-a/prod-md-0")]
#[case::machine_pools("machinePools", "MachinePool/team-a/prod-md-0")]
fn annotations_in_a_topology_are_judged(#[case] list: &str, #[case] id: &str) {
    let wrong = [(MIN, "0"), (MAX, "three"), (&*capacity("cpu"), "8"), (&*capacity("memory"), "8112564 Ki")];
    let found = explained(&[cluster_with(list, &worker(&wrong))], &[]);
    assert_eq!(found.verdict().unwrap_err().to_string(), "1 node group is invalid");
    let left_out = &found.report.left_out[0];
    assert_eq!((left_out.id.as_str(), left_out.reason.as_str()), (id, "invalid_bounds"));
    assert!(left_out.problems[0].message.contains("\"three\""), "{left_out:?}");

    let corrected = [(MIN, "2"), (MAX, "3"), (&*capacity("cpu"), "8"), (&*capacity("memory"), "8112564 Ki")];
    let found = explained(&[cluster_with(list, &worker(&corrected))], &[]);
    assert_eq!(found.verdict().unwrap_err().to_string(), "1 node group is invalid");
    let group = &found.report.groups[0];
    assert_eq!((group.id.as_str(), group.cluster.as_str(), group.size), (id, "prod", 2));
    assert!(group.problems[0].message.contains("8112564 Ki"), "{group:?}");
    assert!(group.notes[0].contains("topology of Cluster team-a/prod"), "{group:?}");
}

#[rstest]
fn a_cluster_class_adds_what_a_topology_leaves_out(#[values(false, true)] is_v1beta1: bool) {
    let objects = [
        cluster_class(is_v1beta1),
        cluster_with("machineDeployments", &worker(&[(MAX, "5"), (MIN, "0"), (&*capacity("cpu"), "4")])),
        known_template(),
    ];
    let report = explained(&objects, &[]).report;
    let [group] = report.groups.as_slice() else { panic!("{report:?}") };
    assert_eq!((group.size, group.max_size), (0, 5));
    let capacity = &group.template.as_ref().unwrap().capacity;
    let amounts = ["cpu", "memory"].map(|name| capacity[name].value.to_string());
    assert_eq!(amounts, ["4", "16Gi"]);
    assert_eq!(capacity["memory"].overrode[0].value.to_string(), "32Gi", "of the template that the class names");
}

#[test]
fn a_cluster_class_without_a_cluster_is_judged() {
    let report = explained(&[cluster_class(false), known_template()], &[]).report;
    let [group] = report.groups.as_slice() else { panic!("{report:?}") };
    assert_eq!((group.id.as_str(), group.size, group.max_size), ("MachineDeployment/team-a/any-small", 1, 9));
    assert_eq!(group.notes, ["Cluster API makes one of ClusterClass team-a/any for each topology"]);
}

#[test]
fn a_machine_deployment_of_a_topology_that_is_there_is_explained_once() {
    let mut there = deployment("prod-md-0-x7k2p", 1, &[]);
    there["metadata"]["labels"] = json!({"topology.cluster.x-k8s.io/deployment-name": "md-0"});
    let objects = [cluster_with("machineDeployments", &worker(&[(MAX, "5")])), there];
    let report = explained(&objects, &[]).report;
    let ids: Vec<_> = report.groups.iter().map(|group| group.id.as_str()).collect();
    assert_eq!(ids, ["MachineDeployment/team-a/prod-md-0-x7k2p"]);
}

#[test]
fn a_machine_pool() {
    let mut pool = scalable("MachinePool", "pool", 2, &[(MAX, "5")]);
    pool["spec"]["template"]["metadata"] = json!({"labels": {"node-role.kubernetes.io/worker": ""}});
    insta::assert_snapshot!(text_of(&[pool, known_template()], &[]));
}

#[test]
fn a_group_that_does_not_scale_from_zero() {
    let key = capacity("cpu");
    insta::assert_snapshot!(text_of(&[deployment("workers", 2, &[(&key, "4")])], &[]));
}

/// Returns an object for each reason.
fn left_out() -> Vec<Value> {
    let mut owned = scalable("MachineSet", "owned", 1, &[(MAX, "5")]);
    owned["metadata"]["ownerReferences"] = json!([
        {"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "MachineDeployment", "name": "x", "controller": true}
    ]);
    let mut elsewhere = deployment("elsewhere", 1, &[]);
    elsewhere["spec"]["clusterName"] = json!("other");
    let mut undecodable = deployment("undecodable", 1, &[]);
    undecodable["spec"]["replicas"] = json!("one");
    vec![
        deployment("paused", 1, &[("cluster.x-k8s.io/paused", "")]),
        deployment("bounds", 1, &[(MIN, "7")]),
        scalable("MachineDeployment", "off", 1, &[]),
        deployment("nothing-known", 0, &[]),
        owned,
        elsewhere,
        undecodable,
        template(&json!({})),
    ]
}

#[test]
fn explain_shows_the_reason_and_the_remedy_for_each_group_that_is_left_out() {
    let flags = ["--all", "--node-group-auto-discovery", "clusterapi:clusterName=prod"];
    insta::assert_snapshot!(text_of(&left_out(), &flags));
}

#[test]
fn groups_that_another_autoscaler_sizes_are_left_out_on_purpose() {
    let (cpu, memory) = (capacity("cpu"), capacity("memory"));
    let mut spot = scalable("MachineDeployment", "spot", 0, &[(MAX, "10"), (&*cpu, "2"), (&*memory, "4G")]);
    spot["metadata"]["labels"] = json!({"node.cluster.x-k8s.io/karpenter-member": ""});
    let managed = ("cluster.x-k8s.io/replicas-managed-by", "external-autoscaler");
    let pool = scalable("MachinePool", "pool", 2, &[managed, (MIN, "0"), (MAX, "5")]);
    let found = explained(&[spot, pool], &["--all"]);
    let reasons: Vec<_> = found.report.left_out.iter().map(|object| object.reason.as_str()).collect();
    assert_eq!((reasons, found.report.groups.len()), (vec!["karpenter_member", "replicas_managed_elsewhere"], 0));
    found.verdict().unwrap();
}

#[test]
fn without_all_only_what_is_left_out_for_an_error_is_reported() {
    let report = explained(&left_out(), &[]).report;
    let reported: Vec<_> = report.left_out.iter().map(|object| object.reason.as_str()).collect();
    assert_eq!(reported, ["invalid_bounds", "no_scale_from_zero", "undecodable"]);
    assert!(report.left_out.iter().all(|object| object.invalid));
}

#[rstest]
#[case::all_is_well(&["md/team-a/well"], Ok(()))]
#[case::left_out_on_purpose(&["paused"], Ok(()))]
#[case::left_out_for_an_error(&["bounds"], Err((true, "1 node group is invalid")))]
#[case::a_value_that_is_ignored(&["odd"], Err((true, "1 node group is invalid")))]
#[case::an_object_that_cannot_be_read(&["-n", "team-b"], Err((true, "1 object can't be read")))]
#[case::several(&[], Err((true, "2 node groups are invalid; 1 object can't be read")))]
#[case::unknown(&["wel"], Err((false, "there is MachineDeployment/team-a/well")))]
fn the_verdict(#[case] flags: &[&str], #[case] expected: Result<(), (bool, &str)>) {
    let key = capacity("labels");
    let mut objects = vec![
        deployment("well", 0, &[]),
        deployment("paused", 0, &[("cluster.x-k8s.io/paused", "")]),
        deployment("bounds", 0, &[(MIN, "x")]),
        deployment("odd", 0, &[(&key, "a b")]),
        known_template(),
    ];
    // It isn't known which node groups this object concerns, so it counts unless one is named.
    if flags.first().is_none_or(|flag| *flag == "-n") {
        objects.push(json!({"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster",
            "metadata": {"name": "c"}, "spec": {"paused": "maybe"}}));
    }
    let explained = try_explained(&objects, flags);
    let was_explained = explained.is_ok();
    match (explained.and_then(|explained| explained.verdict()), expected) {
        (Ok(()), Ok(())) => {}
        (Err(error), Err((is_verdict, part))) => {
            assert_eq!(was_explained, is_verdict, "{error}");
            assert!(error.to_string().contains(part), "{error}");
        }
        (verdict, _) => panic!("{verdict:?}"),
    }
}

#[test]
fn the_namespace_is_that_of_manifests_which_name_none() {
    let mut group = deployment("workers", 0, &[]);
    let mut template = known_template();
    for object in [&mut group, &mut template] {
        object["metadata"].as_object_mut().unwrap().remove("namespace");
    }
    let ids = |flags: &[&str]| {
        let report = explained(&[group.clone(), template.clone()], flags).report;
        report.groups.into_iter().map(|group| group.id).collect::<Vec<_>>()
    };
    assert_eq!(ids(&[]), ["MachineDeployment/default/workers"]);
    assert_eq!(ids(&["-n", "team-b"]), ["MachineDeployment/team-b/workers"]);
}

/// Explains the example of the documentation.
fn example(flags: &[&str]) -> Findings {
    let dump = format!("{}/examples/explain/dump.yaml", env!("CARGO_MANIFEST_DIR"));
    config(&[&["-f", &dump], flags].concat()).unwrap().of_manifests().unwrap()
}

#[test]
fn nodes_in_several_zones_are_the_reason_why_none_is_sent() {
    let mut pool = scalable("MachinePool", "spread", 2, &[(MAX, "5")]);
    pool["status"] = json!({"nodeRefs": [{"name": "a"}, {"name": "b"}]});
    let node = |name: &str, zone: &str| {
        json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": {
            "topology.kubernetes.io/zone": zone, "topology.kubernetes.io/region": "eu",
        }}})
    };
    insta::assert_snapshot!(text_of(&[pool, known_template(), node("a", "eu-1a"), node("b", "eu-1b")], &[]));
}

#[test]
fn json_and_yaml_are_the_whole_report() {
    let explained = example(&["--all"]);
    let report = serde_json::to_value(&explained.report).unwrap();
    let json: Value = serde_json::from_str(&explained.render(Output::Json, true).unwrap()).unwrap();
    assert_eq!(json, report);
    let yaml: Value = serde_yaml::from_str(&explained.render(Output::Yaml, true).unwrap()).unwrap();
    assert_eq!(yaml, report);
    insta::assert_snapshot!(example(&["workers"]).render(Output::Json, false).unwrap());
}

#[test]
fn the_node_is_that_which_would_be_sent() {
    let explained = example(&["workers"]);
    insta::assert_snapshot!(explained.render(Output::Node, false).unwrap());
    let all: Vec<Value> = manifests::documents(&example(&[]).render(Output::Node, false).unwrap())
        .into_iter()
        .map(|document| document.value.unwrap())
        .collect();
    assert_eq!(all.len(), 2);
}

#[test]
fn colours_change_nothing_but_colours() {
    let explained = example(&["--all"]);
    let plain = explained.render(Output::Text, false).unwrap();
    let coloured = explained.render(Output::Text, true).unwrap();
    assert_ne!(plain, coloured);
    assert_eq!(anstream::adapter::strip_str(&coloured).to_string(), plain);
}

#[test]
fn nothing_that_a_terminal_obeys_is_printed() {
    let labels = capacity("labels");
    let mut group = deployment("workers", 0, &[(&labels, "a\u{1b}[31m=b\u{202e}")]);
    group["metadata"]["name"] = json!("work\u{9b}ers");
    let explained = explained(&[group, known_template()], &[]);
    for output in [Output::Text, Output::Json, Output::Yaml] {
        let text = explained.render(output, false).unwrap();
        let obeyed = |c: char| (c.is_control() && c != '\n') || c == '\u{202e}';
        assert!(!text.contains(obeyed), "{text:?}");
    }
}

#[test]
fn a_template_that_is_not_there_is_no_fault_of_the_group() {
    let keys = ["cpu", "memory"].map(capacity);
    let annotations: Vec<_> = keys.iter().map(|key| (key.as_str(), "8Gi")).collect();
    let explained = explained(&[deployment("workers", 0, &annotations)], &[]);
    assert!(explained.verdict().is_ok());
    let [note] = explained.report.groups[0].notes.as_slice() else { panic!("{:?}", explained.report.groups) };
    assert!(note.contains("DevMachineTemplate team-a/workers isn't among the manifests"), "{note}");
}

#[test]
fn prices_of_a_file_are_reported() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("prices.yaml");
    fs::write(&path, "resources:\n  cpu: 0.04\n  memory: 0.005\n").unwrap();
    let mut config = config(&["-f", "-", "--prices", path.to_str().unwrap()]).unwrap();
    config.load_prices().unwrap();
    config.manifests = vec![manifests::ManifestSource::Path(
        format!("{}/examples/explain/dump.yaml", env!("CARGO_MANIFEST_DIR")).into(),
    )];
    let report = config.of_manifests().unwrap().report;
    let price = report.groups[0].price_per_hour.as_ref().unwrap();
    assert_eq!(price.source.as_str(), "price file");
}

#[rstest]
#[case::stdin_twice(&["-f", "-", "-f", "-"], "only once")]
#[case::namespace(&["-n", "Team"], "--namespace: \"Team\"")]
#[case::timeout(&["--timeout", "0s"], "--timeout: \"0s\"")]
#[case::scope(&["--cluster", "a/b", "--all-clusters"], "exclude each other")]
fn a_wrong_call_names_the_flag(#[case] flags: &[&str], #[case] part: &str) {
    let error = config(flags).unwrap_err().to_string();
    assert!(error.contains(part), "{error}");
}
