//! A MachineDeployment `team-a/workers` and its Machines in the sandbox's API, without controllers. Tests inject faults
//! between the API and the commands, and decide when the watches are updated.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::missing_panics_doc,
    clippy::must_use_candidate
)]

mod api;
mod copy;

use std::{sync::Arc, time::Duration};

use kube::core::ApiResource;
use serde_json::{Value, json};

pub use self::{
    api::{FakeApi, Fault, status},
    copy::Copy,
};
#[cfg(test)]
pub(crate) use self::{
    api::{Path, answer},
    copy::{empty_index, show},
};
use crate::{EventRecorder, MachinePoolDeletes, MayWrite, NodeName, Scale, ScaleOptions};
use connect::discovery::CoreResources;
use index::Index;
use rules::GroupId;
use rules::capi::{Context, Meta, ObjectKey};

const NAMESPACE: &str = "team-a";
/// The end of the key of the annotation that marks a Machine.
const DELETE_MACHINE: &str = "/delete-machine";

/// The scale module over a fake API, with an index of the same objects.
pub struct World {
    pub api: FakeApi,
    pub index: Arc<Index>,
    pub scale: Scale,
    pub copy: Copy,
}

impl World {
    /// Builds a MachineDeployment of this size, with the bounds 1 and 10 and these running Machines.
    pub fn new(replicas: i32, machines: &[&str]) -> Self {
        Self::with_options(replicas, machines, ScaleOptions::default())
    }

    /// Builds a world in which deletes of instances that aren't Machines are refused.
    pub fn with_instance_deletes_refused(replicas: i32) -> Self {
        Self::with_options(
            replicas,
            &[],
            ScaleOptions { machine_pool_deletes: MachinePoolDeletes::Refuse, ..ScaleOptions::default() },
        )
    }

    /// Builds the world of one Cluster among many.
    pub fn of_tenant(replicas: i32, machines: &[&str], tenant: Arc<dyn MayWrite>) -> Self {
        Self::reporting_to(EventRecorder::off(), replicas, machines, tenant)
    }

    /// Builds the world of one Cluster among many, whose Events this recorder posts.
    pub fn reporting_to(events: EventRecorder, replicas: i32, machines: &[&str], tenant: Arc<dyn MayWrite>) -> Self {
        Self::build(replicas, machines, |api| Copy::new(api, ScaleOptions::default(), Some(tenant), events))
    }

    /// Builds the world of an annotation key group, such as Kubermatic's `cluster.k8s.io`, whose MachineSets don't count
    /// Machines that are being deleted. The API serves the objects as Cluster API's all the same.
    pub fn of_group(group: &str, replicas: i32, machines: &[&str]) -> Self {
        Self::build(replicas, machines, |api| Copy::of_group(group, api))
    }

    pub fn with_options(replicas: i32, machines: &[&str], options: ScaleOptions) -> Self {
        Self::build(replicas, machines, |api| Copy::new(api, options, None, EventRecorder::off()))
    }

    fn build(replicas: i32, machines: &[&str], copy: impl FnOnce(&FakeApi) -> Copy) -> Self {
        let api = FakeApi::new();
        api.objects.load_values(vec![workers(replicas), machine_set(replicas)]).expect("loaded");
        for name in machines {
            load_machine(&api, name, &json!({"nodeRef": {"name": name}}), &json!({}));
        }
        let copy = copy(&api);
        Self { api, index: Arc::clone(&copy.index), scale: copy.scale.clone(), copy }
    }

    /// Returns another copy of the program, whose watches show the present objects.
    pub fn another_copy(&self) -> Copy {
        self.copy.another()
    }

    /// Lets the watches show all objects.
    pub fn watch(&self) {
        self.copy.watch();
    }

    /// Sets the size as another client, and lets the watch show it.
    pub fn resize(&self, replicas: i32) {
        self.api.change("machinedeployments", "workers", json!({"spec": {"replicas": replicas}}));
        self.watch();
    }

    /// Sets the minimum of the group, and lets the watch show it.
    pub fn set_min(&self, min: i32) {
        let annotations = json!({"cluster.x-k8s.io/cluster-api-autoscaler-node-group-min-size": min.to_string()});
        self.api.change("machinedeployments", "workers", json!({"metadata": {"annotations": annotations}}));
        self.watch();
    }

    /// Creates a MachinePool `team-a/pool` of this size that lists these instances, none of which is a Machine.
    pub fn pool(&self, replicas: i32, provider_ids: &[&str]) -> GroupId {
        let pool = json!({
            "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "MachinePool",
            "metadata": {"name": "pool", "namespace": NAMESPACE, "annotations": {
                "cluster.x-k8s.io/cluster-api-autoscaler-node-group-max-size": "10",
            }},
            "spec": {"clusterName": "prod", "replicas": replicas, "providerIDList": provider_ids},
        });
        self.api.objects.load_values(vec![pool]).expect("loaded");
        self.watch();
        GroupId::parse("MachinePool/team-a/pool").expect("an id")
    }

    /// Creates a MachineSet `team-a/bare` of this size without a MachineDeployment, with these running Machines.
    pub fn bare_set(&self, replicas: i32, machines: &[&str]) -> GroupId {
        let set = json!({
            "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "MachineSet",
            "metadata": {"name": "bare", "namespace": NAMESPACE, "annotations": {
                "cluster.x-k8s.io/cluster-api-autoscaler-node-group-max-size": "10",
            }},
            "spec": {"clusterName": "prod", "replicas": replicas},
        });
        self.api.objects.load_values(vec![set]).expect("loaded");
        let owner = json!([
            {"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "MachineSet", "name": "bare", "uid": "x", "controller": true},
        ]);
        for name in machines {
            load_machine(&self.api, name, &json!({"nodeRef": {"name": name}}), &json!({"ownerReferences": owner}));
        }
        self.watch();
        GroupId::parse("MachineSet/team-a/bare").expect("an id")
    }

    pub fn size_of_pool(&self) -> i64 {
        self.api.object("machinepools", "pool").expect("the pool")["spec"]["replicas"].as_i64().expect("a size")
    }

    /// Creates or changes a Machine, and lets the watch show it.
    pub fn machine(&self, name: &str, status: &Value, metadata: &Value) {
        load_machine(&self.api, name, status, metadata);
        self.watch();
    }

    /// Creates or changes a Machine that the watch doesn't show.
    pub fn machine_unseen(&self, name: &str, status: &Value, metadata: &Value) {
        load_machine(&self.api, name, status, metadata);
    }

    /// Adds a Node with this providerID and these annotations to the workload cluster.
    pub fn node(&self, name: &str, provider_id: Option<&str>, annotations: &Value) {
        let node = json!({
            "kind": "Node",
            "metadata": {"name": name, "uid": format!("uid-of-node-{name}"), "annotations": annotations},
            "spec": {"providerID": provider_id},
            "status": {"conditions": [{"type": "Ready", "status": "True"}]},
        });
        copy::show(&self.index, &node);
    }

    pub fn target_size(&self) -> i32 {
        self.index.target_size(&group()).expect("a group")
    }
}

pub(crate) fn machine_set(replicas: i32) -> Value {
    json!({
        "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "MachineSet",
        "metadata": {"name": "workers-1", "namespace": NAMESPACE, "ownerReferences": [
            {"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "MachineDeployment", "name": "workers", "uid": "x", "controller": true},
        ]},
        "spec": {"clusterName": "prod", "replicas": replicas},
    })
}

pub(crate) fn workers(replicas: i32) -> Value {
    json!({
        "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "MachineDeployment",
        "metadata": {"name": "workers", "namespace": NAMESPACE, "annotations": {
            "cluster.x-k8s.io/cluster-api-autoscaler-node-group-min-size": "1",
            "cluster.x-k8s.io/cluster-api-autoscaler-node-group-max-size": "10",
        }},
        "spec": {"clusterName": "prod", "replicas": replicas},
    })
}

fn load_machine(api: &FakeApi, name: &str, status: &Value, metadata: &Value) {
    api.objects.load_values(vec![machine(name, status, metadata)]).expect("loaded");
}

pub(crate) fn machine(name: &str, status: &Value, metadata: &Value) -> Value {
    let mut value = json!({
        "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Machine",
        "metadata": {
            "name": name, "namespace": NAMESPACE, "uid": format!("uid-{name}"), "finalizers": ["machine.cluster.x-k8s.io"],
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "ownerReferences": [
                {"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "MachineSet", "name": "workers-1", "uid": "x", "controller": true},
            ],
        },
        "spec": {"clusterName": "prod", "providerID": format!("cloud:///{name}")},
        "status": status,
    });
    if let (Value::Object(into), Value::Object(from)) = (&mut value["metadata"], metadata.clone()) {
        into.extend(from);
    }
    value
}

pub fn group() -> GroupId {
    GroupId::parse("MachineDeployment/team-a/workers").expect("an id")
}

/// Returns the Nodes of the Machines with these names.
pub fn nodes(names: &[&str]) -> Vec<NodeName> {
    let node = |name: &&str| NodeName {
        name: (*name).to_owned(),
        provider_id: format!("cloud:///{name}"),
        ..NodeName::default()
    };
    names.iter().map(node).collect()
}

/// Returns Nodes of the pool of [`World::pool`] as Cluster Autoscaler names them: with Cluster API's annotations, which
/// a Node keeps when its instance has gone.
pub fn nodes_of_pool(names: &[&str]) -> Vec<NodeName> {
    let mut nodes = nodes(names);
    for node in &mut nodes {
        node.annotations = [
            ("cluster.x-k8s.io/cluster-namespace", NAMESPACE),
            ("cluster.x-k8s.io/owner-kind", "MachinePool"),
            ("cluster.x-k8s.io/owner-name", "pool"),
        ]
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .into();
    }
    nodes
}

/// Returns an instance without a Node, as Cluster Autoscaler names it.
pub fn instance(id: &str) -> Vec<NodeName> {
    vec![NodeName { name: id.to_owned(), provider_id: id.to_owned(), ..NodeName::default() }]
}

/// The timeout for commands, longer than any takes on a slow machine.
pub const LONG: Duration = Duration::from_secs(60);

pub(crate) fn context() -> Arc<Context> {
    Context::new("cluster.x-k8s.io")
}

pub(crate) fn meta(value: &Value) -> Meta {
    let text = |field: &str| value["metadata"][field].as_str().unwrap_or_default();
    Meta {
        key: ObjectKey::new(text("namespace"), text("name")),
        uid: text("uid").into(),
        resource_version: text("resourceVersion").into(),
    }
}

pub fn resources() -> CoreResources {
    let resource = |kind: &str, plural: &str| ApiResource {
        group: "cluster.x-k8s.io".to_owned(),
        version: "v1beta2".to_owned(),
        api_version: "cluster.x-k8s.io/v1beta2".to_owned(),
        kind: kind.to_owned(),
        plural: plural.to_owned(),
    };
    CoreResources {
        cluster: Some(resource("Cluster", "clusters")),
        machine_deployment: Some(resource("MachineDeployment", "machinedeployments")),
        machine_set: resource("MachineSet", "machinesets"),
        machine: resource("Machine", "machines"),
        machine_pool: Some(resource("MachinePool", "machinepools")),
    }
}
