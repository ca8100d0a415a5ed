//! A MachineDeployment `team-a/workers` and its Machines in the sandbox's API, without controllers. Tests inject faults
//! between the API and the commands, and decide when the watches are updated.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::missing_panics_doc)]

mod api;

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use arc_swap::ArcSwapOption;
use kube::{Client, core::ApiResource};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::runtime::Handle;

pub use self::api::{FakeApi, Fault, status};
#[cfg(test)]
pub(crate) use self::api::{Path, answer};
use crate::{Api, EventRecorder, MayWrite, NamedNode, Scale, ScaleMetrics, ScaleOptions, WriteBudget};
use connect::discovery::CoreResources;
use index::{Change, Index, Memory, objects};
use rules::{
    CapacityWords, GroupId, Rules,
    capi::{Context, Keys, Machine, Meta, Node, ObjectKey, ScalableKind, ScalableResource},
};

const NAMESPACE: &str = "team-a";
const API_VERSION: &str = "cluster.x-k8s.io/v1beta2";
const MIN_SIZE: &str = "cluster.x-k8s.io/cluster-api-autoscaler-node-group-min-size";
const MAX_SIZE: &str = "cluster.x-k8s.io/cluster-api-autoscaler-node-group-max-size";
/// The end of the key of the annotation that marks a Machine.
const DELETE_MACHINE: &str = "/delete-machine";

/// What a copy of the program is started with.
#[derive(Default)]
pub struct Setup {
    /// The annotation keys, such as those of Kubermatic's `cluster.k8s.io`, whose MachineSets don't count Machines that are
    /// being deleted. The API serves the objects as Cluster API's all the same.
    pub keys: Keys,
    pub options: ScaleOptions,
    /// The Cluster, if it is one of many.
    pub tenant: Option<Arc<dyn MayWrite>>,
    pub events: EventRecorder,
    /// What it remembers of Nodes.
    pub memory: Option<Arc<Memory>>,
}

/// One copy of the program, on the API of a world. Its watches are updated when a test says so.
#[derive(Clone)]
pub struct Copy {
    pub index: Arc<Index>,
    pub scale: Scale,
    keys: Keys,
    held: Arc<Mutex<BTreeSet<ObjectKey>>>,
    api: FakeApi,
}

impl Copy {
    fn start(api: &FakeApi, setup: &Setup) -> Self {
        let index = Arc::new(empty_index().remembering(setup.memory.clone()));
        let served = api.clone();
        let client = Client::new(tower::service_fn(move |request| served.clone().serve(request)), "default");
        let resources = Arc::new(ArcSwapOption::from_pointee(resources()));
        let Setup { keys, options, tenant, events, .. } = setup;
        let calls = Api::new(client, resources, keys.clone());
        let calls = match tenant {
            Some(tenant) => calls.of_tenant(Arc::clone(tenant), &WriteBudget::default()),
            None => calls,
        };
        let (metrics, events) = (ScaleMetrics::default(), events.clone());
        let scale = Scale::new(Arc::clone(&index), calls, *options, metrics, events, Handle::current());
        let copy = Self { index, scale, keys: keys.clone(), held: Arc::default(), api: api.clone() };
        copy.watch();
        copy
    }

    /// Lets the watches show all objects.
    pub fn watch(&self) {
        let mut held = BTreeSet::new();
        for plural in ["machinedeployments", "machinesets", "machinepools", "machines"] {
            for value in self.api.all(plural) {
                show(&self.index, &value);
                if plural == "machines" {
                    held.insert(meta(&value).key);
                }
            }
        }
        let before = std::mem::replace(&mut *self.held.lock(), held.clone());
        for key in before.difference(&held) {
            self.index.apply_and_take_notices(Change::MachineGone(key.clone()));
        }
    }
}

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

    pub fn with_options(replicas: i32, machines: &[&str], options: ScaleOptions) -> Self {
        Self::with(replicas, machines, &Setup { options, ..Setup::default() })
    }

    pub fn with(replicas: i32, machines: &[&str], setup: &Setup) -> Self {
        let api = FakeApi::new();
        api.objects.load_values(vec![workers(replicas), machine_set(replicas)]).expect("loaded");
        for name in machines {
            load_machine(&api, name, &json!({"nodeRef": {"name": name}}), &json!({}));
        }
        let copy = Copy::start(&api, setup);
        Self { api, index: Arc::clone(&copy.index), scale: copy.scale.clone(), copy }
    }

    /// Returns another copy of the program, whose watches show the present objects.
    pub fn another_copy(&self) -> Copy {
        Copy::start(&self.api, &Setup { keys: self.copy.keys.clone(), ..Setup::default() })
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
        let annotations = json!({MIN_SIZE: min.to_string()});
        self.api.change("machinedeployments", "workers", json!({"metadata": {"annotations": annotations}}));
        self.watch();
    }

    /// Creates a MachinePool `team-a/pool` of this size that lists these instances, none of which is a Machine.
    pub fn pool(&self, replicas: i32, provider_ids: &[&str]) -> GroupId {
        let mut pool = scalable_object("MachinePool", "pool", replicas, &json!({"annotations": {MAX_SIZE: "10"}}));
        pool["spec"]["providerIDList"] = json!(provider_ids);
        self.api.objects.load_values(vec![pool]).expect("loaded");
        self.watch();
        GroupId::parse("MachinePool/team-a/pool").expect("an id")
    }

    /// Creates a MachineSet `team-a/bare` of this size without a MachineDeployment, with these running Machines.
    pub fn bare_set(&self, replicas: i32, machines: &[&str]) -> GroupId {
        let set = scalable_object("MachineSet", "bare", replicas, &json!({"annotations": {MAX_SIZE: "10"}}));
        self.api.objects.load_values(vec![set]).expect("loaded");
        let owner = owned_by("MachineSet", "bare");
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
        show(&self.index, &node);
    }

    pub fn target_size(&self) -> i32 {
        self.index.target_size(&group()).expect("a group")
    }
}

fn scalable_object(kind: &str, name: &str, replicas: i32, metadata: &Value) -> Value {
    let mut object = json!({
        "apiVersion": API_VERSION, "kind": kind,
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"clusterName": "prod", "replicas": replicas},
    });
    objects::merge(&mut object["metadata"], metadata);
    object
}

/// Returns the `ownerReferences` of an object with this owner.
pub(crate) fn owned_by(kind: &str, name: &str) -> Value {
    json!([{"apiVersion": API_VERSION, "kind": kind, "name": name, "uid": "x", "controller": true}])
}

pub(crate) fn machine_set(replicas: i32) -> Value {
    let owner = owned_by("MachineDeployment", "workers");
    scalable_object("MachineSet", "workers-1", replicas, &json!({"ownerReferences": owner}))
}

pub(crate) fn workers(replicas: i32) -> Value {
    let annotations = json!({MIN_SIZE: "1", MAX_SIZE: "10"});
    scalable_object("MachineDeployment", "workers", replicas, &json!({"annotations": annotations}))
}

fn load_machine(api: &FakeApi, name: &str, status: &Value, metadata: &Value) {
    api.objects.load_values(vec![machine(name, status, metadata)]).expect("loaded");
}

pub(crate) fn machine(name: &str, status: &Value, metadata: &Value) -> Value {
    let mut value = json!({
        "apiVersion": API_VERSION, "kind": "Machine",
        "metadata": {
            "name": name, "namespace": NAMESPACE, "uid": format!("uid-{name}"), "finalizers": ["machine.cluster.x-k8s.io"],
            "creationTimestamp": "2026-01-01T00:00:00Z", "ownerReferences": owned_by("MachineSet", "workers-1"),
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
pub fn nodes(names: &[&str]) -> Vec<NamedNode> {
    let node = |name: &&str| NamedNode {
        name: (*name).to_owned(),
        provider_id: format!("cloud:///{name}"),
        ..NamedNode::default()
    };
    names.iter().map(node).collect()
}

/// Returns Nodes of the pool of [`World::pool`] as Cluster Autoscaler names them: with Cluster API's annotations, which
/// a Node keeps when its instance has gone.
pub fn nodes_of_pool(names: &[&str]) -> Vec<NamedNode> {
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
pub fn instance(id: &str) -> Vec<NamedNode> {
    vec![NamedNode { name: id.to_owned(), provider_id: id.to_owned(), ..NamedNode::default() }]
}

/// The timeout for commands, longer than any takes on a slow machine.
pub const LONG: Duration = Duration::from_secs(60);

/// Returns the index of a program that has seen no object.
pub(crate) fn empty_index() -> Index {
    let capacity_words = CapacityWords::new(["no blade left"]).expect("words");
    Index::new(Rules { capacity_words, ..objects::rules() })
}

/// Lets the watches of an index show an object.
pub(crate) fn show(index: &Index, value: &Value) {
    let (meta, context) = (meta(value), Context::new("cluster.x-k8s.io"));
    let scalable = |kind| {
        let object = ScalableResource::decode(kind, meta.clone(), value, &context).expect("decodes");
        Change::Scalable(Arc::new(object))
    };
    index.apply_and_take_notices(match value["kind"].as_str() {
        Some("Node") => Change::Node(Arc::new(Node::decode(meta, value, &context).expect("decodes"))),
        Some("Machine") => Change::Machine(Arc::new(Machine::decode(meta, value, &context).expect("decodes"))),
        Some("MachineDeployment") => scalable(ScalableKind::MachineDeployment),
        Some("MachineSet") => scalable(ScalableKind::MachineSet),
        _ => scalable(ScalableKind::MachinePool),
    });
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
