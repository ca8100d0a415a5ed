//! A MachineDeployment `team-a/workers` and its Machines in the sandbox's API, without controllers; faults on demand
//! between it and the commands; and a watch that shows what is there when a test says so.

mod api;
mod copy;

use std::{sync::Arc, time::Duration};

use kube::core::ApiResource;
use serde_json::{Value, json};

pub(crate) use self::{
    api::{FakeApi, Fault, status},
    copy::Copy,
};
use crate::{
    discovery::CoreResources,
    index::{Change, Index},
    scale::{MachinePoolDeletes, NodeName, Scale, ScaleError, ScaleOptions},
};
use capi::{Context, DELETING, Meta, Node, ObjectKey};
use nodegroup::GroupId;

const NAMESPACE: &str = "team-a";
const DELETE_MACHINE: &str = "cluster.x-k8s.io/delete-machine";

/// The scale room over a fake API, with an index that knows the same.
pub(crate) struct World {
    pub(crate) api: FakeApi,
    pub(crate) index: Arc<Index>,
    pub(crate) scale: Scale,
    pub(crate) copy: Copy,
}

impl World {
    /// A MachineDeployment of this size, bounds 1 and 10, with these running Machines.
    pub(crate) fn new(replicas: i32, machines: &[&str]) -> Self {
        Self::with_options(replicas, machines, ScaleOptions::default())
    }

    /// The same, where deletes of instances that are no Machines are refused.
    pub(crate) fn that_refuses_instances(replicas: i32) -> Self {
        Self::with_options(
            replicas,
            &[],
            ScaleOptions { machine_pool_deletes: MachinePoolDeletes::Refuse, ..ScaleOptions::default() },
        )
    }

    pub(crate) fn with_options(replicas: i32, machines: &[&str], options: ScaleOptions) -> Self {
        let api = FakeApi::new();
        let set = json!({
            "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "MachineSet",
            "metadata": {"name": "workers-1", "namespace": NAMESPACE, "ownerReferences": [
                {"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "MachineDeployment", "name": "workers", "uid": "x", "controller": true},
            ]},
            "spec": {"clusterName": "prod", "replicas": replicas},
        });
        api.objects.load_values(vec![workers(replicas), set]).expect("loaded");
        for name in machines {
            load_machine(&api, name, &json!({"nodeRef": {"name": name}}), &json!({}));
        }
        let copy = Copy::new(&api, options);
        Self { api, index: Arc::clone(&copy.index), scale: copy.scale.clone(), copy }
    }

    /// Another copy of the program, whose watches show what there is now.
    pub(crate) fn another_copy(&self) -> Copy {
        Copy::new(&self.api, ScaleOptions::default())
    }

    /// The watches show all that there is.
    pub(crate) fn watch(&self) {
        self.copy.watch();
    }

    /// Somebody else sets the size, and the watch shows it.
    pub(crate) fn resize(&self, replicas: i32) {
        self.api.change("machinedeployments", "workers", json!({"spec": {"replicas": replicas}}));
        self.watch();
    }

    /// The group has this minimum, and the watch shows it.
    pub(crate) fn set_min(&self, min: i32) {
        let annotations = json!({"cluster.x-k8s.io/cluster-api-autoscaler-node-group-min-size": min.to_string()});
        self.api.change("machinedeployments", "workers", json!({"metadata": {"annotations": annotations}}));
        self.watch();
    }

    /// A MachinePool `team-a/pool` of this size that lists these instances; none of them is a Machine.
    pub(crate) fn pool(&self, replicas: i32, provider_ids: &[&str]) -> GroupId {
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

    pub(crate) fn size_of_pool(&self) -> i64 {
        self.api.object("machinepools", "pool").expect("the pool")["spec"]["replicas"].as_i64().expect("a size")
    }

    /// A Machine is there, or is so now, and the watch shows it.
    pub(crate) fn machine(&self, name: &str, status: &Value, metadata: &Value) {
        load_machine(&self.api, name, status, metadata);
        self.watch();
    }

    /// A Machine is so now, and the watch hasn't shown it.
    pub(crate) fn machine_unseen(&self, name: &str, status: &Value, metadata: &Value) {
        load_machine(&self.api, name, status, metadata);
    }

    /// The workload cluster shows a Node, by this providerID and with these annotations.
    pub(crate) fn node(&self, name: &str, provider_id: Option<&str>, annotations: &Value) {
        let value = json!({
            "metadata": {"name": name, "uid": format!("uid-of-node-{name}"), "annotations": annotations},
            "spec": {"providerID": provider_id},
            "status": {"conditions": [{"type": "Ready", "status": "True"}]},
        });
        let node = Node::decode(meta(&value), &value, &context()).expect("decodes");
        self.index.apply_quietly(Change::Node(Arc::new(node)));
    }

    /// Runs a command of one Machine whose log is written, with an error for an answer, and taken back by another copy before it
    /// is looked at. Returns its ticket then, and the one under which it is logged once the call `mark` comes.
    pub(crate) async fn tickets_of_a_log_taken_back(
        &self,
        command: impl Future<Output = Result<(), ScaleError>> + Send + 'static,
        mark: &'static str,
    ) -> [String; 2] {
        let only = || <[String; 1]>::try_from(self.api.tickets()).expect("one entry")[0].clone();
        self.api.fault("PATCH group", Fault::DoneBut(500));
        self.api.fault("GET group", Fault::Hold);
        let command = tokio::spawn(command);
        self.api.held().await;
        let first = only();
        self.api.change("machinedeployments", "workers", json!({"metadata": {"annotations": {DELETING: null}}}));
        self.api.fault(mark, Fault::Hold);
        self.api.release();
        self.api.held().await;
        let second = only();
        self.api.release();
        command.await.expect("no panic").expect("done");
        [first, second]
    }

    pub(crate) fn target_size(&self) -> i32 {
        self.index.target_size(&group()).expect("a group")
    }
}

fn workers(replicas: i32) -> Value {
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
    let mut value = json!({
        "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Machine",
        "metadata": {
            "name": name, "namespace": NAMESPACE, "uid": format!("uid-{name}"), "finalizers": ["machine.cluster.x-k8s.io"],
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
    api.objects.load_values(vec![value]).expect("loaded");
}

pub(crate) fn group() -> GroupId {
    GroupId::parse("MachineDeployment/team-a/workers").expect("an id")
}

/// Nodes by the names of their Machines.
pub(crate) fn nodes(names: &[&str]) -> Vec<NodeName> {
    let node = |name: &&str| NodeName {
        name: (*name).to_owned(),
        provider_id: format!("cloud:///{name}"),
        ..NodeName::default()
    };
    names.iter().map(node).collect()
}

/// An instance that has no Node, as Cluster Autoscaler names it.
pub(crate) fn instance(id: &str) -> Vec<NodeName> {
    vec![NodeName { name: id.to_owned(), provider_id: id.to_owned(), ..NodeName::default() }]
}

/// Longer than any command of these tests takes on a slow machine.
pub(crate) const LONG: Duration = Duration::from_secs(60);

fn context() -> Arc<Context> {
    Context::new("cluster.x-k8s.io")
}

fn meta(value: &Value) -> Meta {
    let text = |field: &str| value["metadata"][field].as_str().unwrap_or_default();
    Meta {
        key: ObjectKey::new(text("namespace"), text("name")),
        uid: text("uid").into(),
        resource_version: text("resourceVersion").into(),
    }
}

pub(crate) fn resources() -> CoreResources {
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
