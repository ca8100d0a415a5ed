//! Checks the examples: each is tested here or where a comment says, and the values of a sidecar start the program.

use std::{collections::BTreeSet, fs, path::Path};

use app::Config;
use capi_autoscaler_provider::cli::{Cli, Command};
use clap::Parser as _;
use rules::{Scope, ScopeSpec};
use serde_json::Value;
use service::listen::{GrpcAddress, PRIVATE_SOCKET};

use super::{read, root, yaml};

pub(crate) const EXAMPLES: [&str; 16] = [
    "examples/cluster-autoscaler/cloud-config.yaml",
    "examples/cluster-autoscaler/values.yaml",
    // Checked in tests/program/explain.rs, with their output.
    "examples/explain/dump.yaml",
    // Checked in tests/program/sandbox_demo.rs, whose table shows each with its capacity, or why it is none.
    "examples/node-groups/by-annotations.yaml",
    "examples/node-groups/cluster.yaml",
    "examples/node-groups/from-zero-by-annotations.yaml",
    "examples/node-groups/from-zero-by-status-capacity.yaml",
    "examples/node-groups/machine-set.yaml",
    "examples/node-groups/paused.yaml",
    "examples/node-groups/wrong.yaml",
    // The others are checked in this folder.
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
