//! Checks the program's verdict on each example.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
    sync::Arc,
};

use app::Config;
use capi_autoscaler_provider::cli::{Cli, Command};
use rules::capi::{Context, InfrastructureTemplate, Keys, Meta, ObjectKey, ScalableKind, ScalableResource};
use rules::{
    Bounds, CapacityWords, Definition, ErrorRules, Excluded, InfrastructureState, RealNodes, Rules, Scope, ScopeSpec,
    TemplateRules, evaluate,
};
use service::listen::{GrpcAddress, PRIVATE_SOCKET};

use clap::Parser as _;
use rstest::rstest;
use serde_json::Value;

use super::{read, root, yaml};

pub(crate) const EXAMPLES: [&str; 16] = [
    "examples/cluster-autoscaler/cloud-config.yaml",
    "examples/cluster-autoscaler/values.yaml",
    // Checked in tests/program/explain.rs, with their output.
    "examples/explain/dump.yaml",
    "examples/node-groups/by-annotations.yaml",
    "examples/node-groups/cluster.yaml",
    "examples/node-groups/from-zero-by-annotations.yaml",
    "examples/node-groups/from-zero-by-status-capacity.yaml",
    "examples/node-groups/machine-set.yaml",
    "examples/node-groups/paused.yaml",
    "examples/node-groups/wrong.yaml",
    "examples/prices.yaml",
    "examples/rbac.yaml",
    "examples/watch/rules.yaml",
    // Checked in crates/whatif/tests.
    "examples/whatif/dump.yaml",
    "examples/whatif/huge.yaml",
    "examples/whatif/job.yaml",
];

#[test]
fn every_example_is_tested_here() {
    fn walk(folder: &Path, found: &mut BTreeSet<String>) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.ends_with("examples/topologies") || path.ends_with("examples/fleet") {
                // Checked in e2e/tests/chart, which renders the charts with them.
            } else if path.is_dir() {
                walk(&path, found);
            } else if path.extension().is_none_or(|extension| extension != "rs") && !path.ends_with("Cargo.toml") {
                // Cargo builds the programs with the tests.
                found.insert(path.strip_prefix(root()).unwrap().display().to_string());
            }
        }
    }
    let mut found = BTreeSet::new();
    walk(&root().join("examples"), &mut found);
    assert_eq!(found, EXAMPLES.map(str::to_owned).into());
}

fn meta(object: &Value) -> Meta {
    let text = |key: &str| object["metadata"][key].as_str().unwrap();
    Meta { key: ObjectKey::new(text("namespace"), text("name")), uid: "uid".into(), resource_version: "1".into() }
}

/// Returns the verdict on the example's group under the README's scope, with the infrastructure template of its file.
fn evaluated(path: &str) -> Result<Box<Definition>, Excluded> {
    let documents = yaml(path);
    let context = Context::new("cluster.x-k8s.io");
    let kind = ScalableKind::parse(documents[0]["kind"].as_str().unwrap()).unwrap();
    let object = ScalableResource::decode(kind, meta(&documents[0]), &documents[0], &context).unwrap();
    let template = documents.get(1).map(|template| {
        let reference = object.infrastructure.as_ref().unwrap();
        assert_eq!(template["kind"], *reference.kind);
        assert_eq!(template["metadata"]["name"], *reference.name);
        assert!(template["apiVersion"].as_str().unwrap().starts_with(&format!("{}/", reference.group)));
        InfrastructureTemplate::decode(meta(template), template).unwrap()
    });
    let rules = Rules {
        keys: Keys::default(),
        scope: Scope::Specs(vec![ScopeSpec::cluster("team-a", "prod")]),
        template: TemplateRules::default(),
        prices: Arc::default(),
        errors: ErrorRules::default(),
        capacity_words: CapacityWords::default(),
    };
    let known = template.as_ref().map_or(InfrastructureState::Unknown, InfrastructureState::Known);
    evaluate(&object, None, known, RealNodes::default(), &rules)
}

fn group(path: &str) -> Definition {
    match evaluated(path) {
        Ok(definition) => *definition,
        Err(Excluded { reason, problems }) => panic!("{path}: {reason} {problems:?}"),
    }
}

#[rstest]
#[case::paused("examples/node-groups/paused.yaml", "paused", 0)]
#[case::wrong("examples/node-groups/wrong.yaml", "size", 1)]
fn the_example_is_no_group_and_says_why(#[case] path: &str, #[case] expected: &str, #[case] count: usize) {
    match evaluated(path) {
        Ok(definition) => panic!("{path}: {definition:?}"),
        Err(Excluded { reason, problems }) => {
            assert!(reason.to_string().contains(expected), "{reason}");
            assert_eq!(problems.len(), count, "{problems:?}");
        }
    }
}

#[test]
fn the_examples_belong_to_the_cluster_of_the_example() {
    let cluster = &yaml("examples/node-groups/cluster.yaml")[1];
    let groups =
        EXAMPLES.iter().filter(|path| path.starts_with("examples/node-groups/") && !path.ends_with("/cluster.yaml"));
    for path in groups {
        let group = &yaml(path)[0];
        assert_eq!(group["spec"]["clusterName"], cluster["metadata"]["name"], "{path}");
        assert_eq!(group["metadata"]["namespace"], cluster["metadata"]["namespace"], "{path}");
    }
}

#[rstest]
#[case::annotations(
    "examples/node-groups/from-zero-by-annotations.yaml",
    Bounds { min: 0, max: 10 },
    &[("cpu", "16"), ("ephemeral-storage", "100Gi"), ("memory", "64Gi"), ("nvidia.com/gpu", "2"), ("pods", "110")],
    &["cluster-api/accelerator", "kubernetes.io/arch", "kubernetes.io/os", "node-role.kubernetes.io/gpu"],
    &["dedicated=gpu:NoSchedule"],
    true
)]
#[case::with_nodes(
    "examples/node-groups/by-annotations.yaml",
    Bounds { min: 1, max: 6 },
    &[("cpu", "8"), ("memory", "32Gi"), ("pods", "110")],
    &["kubernetes.io/arch", "kubernetes.io/os"],
    &[],
    false
)]
#[case::machine_set(
    "examples/node-groups/machine-set.yaml",
    Bounds { min: 1, max: 4 },
    &[("cpu", "2"), ("memory", "8Gi"), ("pods", "110")],
    &["kubernetes.io/arch", "kubernetes.io/os"],
    &[],
    false
)]
#[case::status_capacity(
    "examples/node-groups/from-zero-by-status-capacity.yaml",
    Bounds { min: 0, max: 5 },
    &[("cpu", "4"), ("memory", "16Gi"), ("pods", "110")],
    &["kubernetes.io/arch", "kubernetes.io/os", "node.cluster.x-k8s.io/pool"],
    &[],
    false
)]
fn the_example_is_a_group_that_scales_from_zero(
    #[case] path: &str,
    #[case] bounds: Bounds,
    #[case] capacity: &[(&str, &str)],
    #[case] labels: &[&str],
    #[case] taints: &[&str],
    #[case] overrides: bool,
) {
    let group = group(path);
    assert_eq!(group.bounds, bounds);
    assert_eq!(group.problems, []);
    assert_eq!(!group.options.is_empty(), overrides);
    let template = group.template.unwrap();
    let expected = capacity.iter().map(|(resource, text)| ((*resource).to_owned(), text.parse().unwrap()));
    let found = template.capacity.iter().map(|(resource, quantity)| (resource.clone(), quantity.value));
    assert_eq!(found.collect::<BTreeMap<_, _>>(), expected.collect());
    assert_eq!(template.labels.keys().collect::<Vec<_>>(), labels);
    assert_eq!(template.taints.iter().map(|taint| taint.value.to_string()).collect::<Vec<_>>(), taints);
}

#[test]
fn the_cloud_config_names_the_socket_of_the_sidecar_as_the_readme_does() {
    let [config] = &yaml("examples/cluster-autoscaler/cloud-config.yaml")[..] else { panic!("one document") };
    let address = config["address"].as_str().unwrap();
    assert_eq!(sidecar().1.listen.to_string(), address);
    assert!(read("README.md").contains(&format!("\naddress: {address}\n")));
}

/// Returns values for the official chart, and the resulting configuration of this program.
fn sidecar() -> (Value, Config) {
    let mut documents = yaml("examples/cluster-autoscaler/values.yaml");
    assert_eq!(documents.len(), 1);
    let values = documents.remove(0);
    let args = values["initContainers"][0]["args"].as_array().unwrap().iter().map(|arg| arg.as_str().unwrap());
    let Command::Serve(args) = Cli::parse_from(["x"].into_iter().chain(args)).command else { panic!("it isn't serve") };
    let config = Config::try_from(*args).unwrap();
    (values.clone(), config)
}

/// Both containers mount the directory of the socket, run as the user that owns it, and have no port for it.
#[test]
fn the_sidecar_serves_on_a_socket_of_the_user_that_both_run_as() {
    let (values, config) = sidecar();
    let GrpcAddress::Unix(path) = &config.listen else { panic!("{}", config.listen) };
    let mounted = |mounts: &Value| {
        let mut mounts = mounts.as_array().unwrap().iter();
        mounts.find(|mount| mount["mountPath"] == path.parent().unwrap().to_str().unwrap()).unwrap()["name"].clone()
    };
    let name = mounted(&values["extraVolumeMounts"]);
    assert_eq!(mounted(&values["initContainers"][0]["volumeMounts"]), name);
    let volume = values["extraVolumes"].as_array().unwrap().iter().find(|volume| volume["name"] == name).unwrap();
    assert!(volume["emptyDir"].is_object());
    assert_eq!((config.socket_mode, config.tls), (PRIVATE_SOCKET, None));
    let user = values["securityContext"]["runAsUser"].as_u64().unwrap();
    assert!(
        read("examples/cluster-autoscaler/values.yaml").contains(&format!("uid {user} owns")),
        "the owner is named"
    );
    assert!(values["initContainers"][0]["securityContext"]["runAsUser"].is_null());
    assert_eq!(values["initContainers"][0]["ports"].as_array().unwrap().len(), 2, "metrics and probes");
}

#[test]
fn the_chart_values_render_and_start_the_program() {
    let (values, config) = sidecar();
    assert_eq!(values["cloudProvider"], "externalgrpc");
    assert!(values["autoDiscovery"]["clusterName"].is_string(), "the chart renders nothing without");
    assert_eq!(values["extraArgs"]["cloud-config"], "/etc/cluster-autoscaler/cloud-config.yaml");
    let container = &values["initContainers"][0];
    assert_eq!(container["startupProbe"]["httpGet"]["path"], "/readyz", "Cluster Autoscaler waits for it");
    let ports = [&container["ports"][0], &container["ports"][1]].map(|port| port["containerPort"].as_u64().unwrap());
    assert_eq!(ports, [config.http_listen.port(), config.probe_listen.unwrap().port()].map(u64::from));
    assert_eq!(config.rules.scope, Scope::Specs(vec![ScopeSpec::cluster("team-a", "prod")]));
}
