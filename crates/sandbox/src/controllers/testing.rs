//! Objects for the controllers' tests.

use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{CapiVersion, Context, object::Names};
use crate::settings::{Settings, Times};

/// Times whose sums are all different.
pub(crate) const TIMES: Times = Times {
    bootstrap: Duration::from_secs(1),
    provision: Duration::from_secs(10),
    join: Duration::from_secs(20),
    ready: Duration::from_secs(5),
    drain: Duration::from_secs(3),
    terminate: Duration::from_secs(7),
    slow_factor: 10,
};

pub(crate) fn context<'a>(settings: &'a Settings, names: &'a mut Names) -> Context<'a> {
    Context { now: Timestamp::UNIX_EPOCH, settings, version: CapiVersion::default(), names }
}

pub(crate) fn machine_deployment(name: &str, replicas: i64) -> Value {
    json!({
        "apiVersion": "cluster.x-k8s.io/v1beta2",
        "kind": "MachineDeployment",
        "metadata": { "name": name, "namespace": "team-a", "uid": name, "generation": 1 },
        "spec": {
            "clusterName": "prod",
            "replicas": replicas,
            "template": { "spec": { "clusterName": "prod", "version": "v1.35.0" } },
        },
    })
}

pub(crate) fn machine_set(name: &str, replicas: i64) -> Value {
    json!({
        "apiVersion": "cluster.x-k8s.io/v1beta2",
        "kind": "MachineSet",
        "metadata": { "name": name, "namespace": "team-a", "uid": name, "generation": 1 },
        "spec": {
            "clusterName": "prod",
            "replicas": replicas,
            "template": { "spec": { "clusterName": "prod" } },
        },
    })
}

pub(crate) fn running_machine(name: &str, set: &str) -> Value {
    json!({
        "apiVersion": "cluster.x-k8s.io/v1beta2",
        "kind": "Machine",
        "metadata": {
            "name": name,
            "namespace": "team-a",
            "uid": name,
            "generation": 1,
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "ownerReferences": [{ "kind": "MachineSet", "name": set, "uid": set, "controller": true }],
        },
        "spec": { "clusterName": "prod", "providerID": format!("sandbox:///team-a/{name}") },
        "status": { "phase": "Running", "nodeRef": { "name": name } },
    })
}
