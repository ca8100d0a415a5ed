//! Creates node groups with their Machines and Nodes in the state that Cluster API's controllers would produce.

use anyhow::{Context, Result};
use serde_json::{Map, Value, json};

use crate::{
    objects::{CAPI_GROUP, Contract, INFRASTRUCTURE_GROUP, Objects, Place},
    proto::ExternalGrpcNode,
    world::World,
};

/// The annotation with a group's min size.
pub const MIN: &str = "cluster.x-k8s.io/cluster-api-autoscaler-node-group-min-size";
/// The annotation with a group's max size.
pub const MAX: &str = "cluster.x-k8s.io/cluster-api-autoscaler-node-group-max-size";
/// The prefix of the annotations with the capacity of a group's Nodes.
pub(crate) const CAPACITY: &str = "capacity.cluster-autoscaler.kubernetes.io";
const CLUSTER_NAME: &str = "cluster.x-k8s.io/cluster-name";
/// The label of its Nodes.
pub(crate) const MADE_UP: &str = "e2e.capi-autoscaler-provider.io/made-up";

/// The kind of the group's object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scalable {
    /// A `MachineDeployment` with one `MachineSet`.
    MachineDeployment,
    /// A `MachineSet` that no `MachineDeployment` owns.
    MachineSet,
    /// A `MachinePool`, which has Machines only if its infrastructure provider creates them.
    MachinePool,
}

impl Scalable {
    /// Returns the kind, as in ids.
    pub fn kind(self) -> &'static str {
        match self {
            Self::MachineDeployment => "MachineDeployment",
            Self::MachineSet => "MachineSet",
            Self::MachinePool => "MachinePool",
        }
    }
}

/// A group to be created.
#[derive(Clone, Debug)]
pub struct Pool {
    name: String,
    scalable: Scalable,
    replicas: usize,
    machines: usize,
    running: usize,
    has_machines: bool,
    annotations: Map<String, Value>,
    template: (String, String),
    unschedulable: bool,
}

/// The Cluster in which a group is created.
#[derive(Clone, Copy)]
struct Site<'a> {
    objects: &'a Objects,
    cluster: &'a str,
    unschedulable: bool,
}

/// A group that was created.
#[derive(Clone, Debug)]
pub struct Group {
    /// The expected id.
    pub id: String,
    /// The kind of the group's object.
    pub kind: &'static str,
    /// The name of that object.
    pub name: String,
    /// The names of its Machines, in order; those with a Node come first.
    pub machines: Vec<String>,
    /// Its Nodes as Cluster Autoscaler sends them, in the order of their Machines.
    pub nodes: Vec<ExternalGrpcNode>,
}

impl Pool {
    /// Creates a `MachineDeployment` with bounds 0 to 10 and no Machine.
    pub fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            scalable: Scalable::MachineDeployment,
            replicas: 0,
            machines: 0,
            running: 0,
            has_machines: false,
            annotations: Map::new(),
            template: ("DevMachineTemplate".to_owned(), "none".to_owned()),
            unschedulable: false,
        }
        .bounds(0, 10)
    }

    /// Makes it another kind of group.
    pub fn of(mut self, scalable: Scalable) -> Self {
        self.scalable = scalable;
        self
    }

    /// Sets the bounds in its annotations.
    pub fn bounds(self, min: i32, max: i32) -> Self {
        self.annotate(MIN, &min.to_string()).annotate(MAX, &max.to_string())
    }

    /// Adds an annotation.
    pub fn annotate(mut self, key: &str, value: &str) -> Self {
        self.annotations.insert(key.to_owned(), json!(value));
        self
    }

    /// Adds a capacity annotation, such as `cpu`.
    pub fn capacity(self, name: &str, value: &str) -> Self {
        self.annotate(&format!("{CAPACITY}/{name}"), value)
    }

    /// Adds capacity annotations that are enough to scale from zero.
    pub fn sized(self) -> Self {
        self.capacity("cpu", "4").capacity("memory", "16Gi")
    }

    /// Names the infrastructure template.
    pub fn template(mut self, kind: &str, name: &str) -> Self {
        self.template = (kind.to_owned(), name.to_owned());
        self
    }

    /// Sets the number of replicas, all with a Machine and a ready Node.
    pub fn running(mut self, count: usize) -> Self {
        self.running = count;
        self.pending(count)
    }

    /// Gives a `MachinePool` Machines.
    pub fn with_machines(mut self) -> Self {
        self.has_machines = true;
        self
    }

    /// Adds replicas that have a Machine without a Node.
    pub fn pending(mut self, count: usize) -> Self {
        self.machines += count;
        self.missing(count)
    }

    /// Adds replicas that have no Machine yet.
    pub fn missing(mut self, count: usize) -> Self {
        self.replicas += count;
        self
    }

    /// Keeps Pods off its Nodes, where a scheduler runs.
    pub fn unschedulable(mut self) -> Self {
        self.unschedulable = true;
        self
    }

    /// Creates the group and its objects in a scenario's Cluster.
    pub async fn create(self, world: &World) -> Result<Group> {
        world.create_cluster().await?;
        self.create_in(&world.objects, &world.cluster).await
    }

    /// Creates the group and its objects in an existing Cluster.
    pub async fn create_in(self, objects: &Objects, cluster: &str) -> Result<Group> {
        let site = Site { objects, cluster, unschedulable: self.unschedulable };
        let mut group = Group {
            id: format!("{}/{}/{}", self.scalable.kind(), site.objects.namespace(), self.name),
            kind: self.scalable.kind(),
            name: self.name.clone(),
            machines: Vec::new(),
            nodes: Vec::new(),
        };
        match self.scalable {
            Scalable::MachineDeployment => {
                let owner = self.create_scalable(site, "MachineDeployment", None).await?;
                let owner = self.create_scalable(site, "MachineSet", Some(owner)).await?;
                self.create_machines(site, &owner, &mut group).await?;
            }
            Scalable::MachineSet => {
                let owner = self.create_scalable(site, "MachineSet", None).await?;
                self.create_machines(site, &owner, &mut group).await?;
            }
            Scalable::MachinePool if self.has_machines => {
                let owner = self.create_machine_pool(site).await?;
                self.create_machines(site, &owner, &mut group).await?;
            }
            Scalable::MachinePool => {
                for number in 0..self.running {
                    let owner = json!({ "kind": "MachinePool", "name": self.name });
                    group.nodes.push(create_node(site, &format!("{}-{number}", self.name), &owner).await?);
                }
                self.create_machine_pool(site).await?;
            }
        }
        Ok(group)
    }

    /// Creates the `MachineDeployment` or `MachineSet`, and returns an owner reference to it.
    async fn create_scalable(&self, site: Site<'_>, kind: &str, owner: Option<Value>) -> Result<Value> {
        let mut labels = json!({ CLUSTER_NAME: site.cluster, "pool": self.name });
        let mut annotations = json!(self.annotations);
        let mut name = self.name.clone();
        if owner.is_some() {
            name += "-set";
            labels["cluster.x-k8s.io/deployment-name"] = json!(self.name);
            // The MachineDeployment controller sets this annotation, and copies the others.
            annotations["machinedeployment.clusters.x-k8s.io/revision"] = json!("1");
        }
        let mut spec = self.spec(site);
        spec["selector"] = json!({ "matchLabels": { "pool": self.name } });
        let object = json!({
            "kind": kind,
            "metadata": {
                "name": name,
                "labels": labels,
                "annotations": annotations,
                "ownerReferences": owner.into_iter().collect::<Vec<_>>(),
            },
            "spec": spec,
            "status": { "replicas": self.machines },
        });
        let created = site.objects.create(object).await?;
        Ok(owner_reference(site, kind, &name, created.metadata.uid.as_deref()))
    }

    async fn create_machines(&self, site: Site<'_>, owner: &Value, group: &mut Group) -> Result<()> {
        let reference = |kind: &str, name: &str| match site.objects.contract() {
            Contract::V1Beta1 => json!({ "apiVersion": "v1", "kind": kind, "name": name }),
            Contract::V1Beta2 | Contract::MachineApi => json!({ "name": name }),
        };
        for number in 0..self.machines {
            let name = format!("{}-{number}", self.name);
            let mut machine = json!({
                "kind": "Machine",
                "metadata": {
                    "name": name,
                    "labels": { CLUSTER_NAME: site.cluster, "pool": self.name },
                    "ownerReferences": [owner],
                    "finalizers": ["machine.cluster.x-k8s.io"],
                },
                "spec": {
                    "clusterName": site.cluster,
                    "bootstrap": { "dataSecretName": "none" },
                    "infrastructureRef": reference_to(site, "DevMachine", &name),
                },
                "status": { "phase": "Provisioning" },
            });
            if number < self.running {
                let node = create_node(site, &name, owner).await?;
                machine["spec"]["providerID"] = json!(node.provider_id);
                machine["status"] = json!({ "phase": "Running", "nodeRef": reference("Node", &node.name) });
                group.nodes.push(node);
            }
            site.objects.create(machine).await?;
            group.machines.push(name);
        }
        Ok(())
    }

    /// Creates the `MachinePool`, and returns an owner reference to it.
    async fn create_machine_pool(&self, site: Site<'_>) -> Result<Value> {
        let mut spec = self.spec(site);
        let ids = (0..self.running).map(|number| provider_id(&node_name(site, &format!("{}-{number}", self.name))));
        spec["providerIDList"] = json!(ids.collect::<Vec<_>>());
        let object = json!({
            "kind": "MachinePool",
            "metadata": {
                "name": self.name,
                "labels": { CLUSTER_NAME: site.cluster },
                "annotations": self.annotations,
            },
            "spec": spec,
            "status": { "replicas": self.machines },
        });
        let created = site.objects.create(object).await?;
        Ok(owner_reference(site, "MachinePool", &self.name, created.metadata.uid.as_deref()))
    }

    fn spec(&self, site: Site<'_>) -> Value {
        let (kind, name) = &self.template;
        json!({
            "clusterName": site.cluster,
            "replicas": self.replicas,
            "template": {
                "metadata": { "labels": { "pool": self.name } },
                "spec": {
                    "clusterName": site.cluster,
                    "bootstrap": { "dataSecretName": "none" },
                    "infrastructureRef": reference_to(site, kind, name),
                },
            },
        })
    }
}

/// Returns a reference to an infrastructure object in the form of the contract version.
fn reference_to(site: Site<'_>, kind: &str, name: &str) -> Value {
    match site.objects.contract() {
        Contract::V1Beta1 => json!({
            "apiVersion": format!("{INFRASTRUCTURE_GROUP}/v1beta2"),
            "kind": kind,
            "name": name,
            "namespace": site.objects.namespace(),
        }),
        Contract::V1Beta2 | Contract::MachineApi => json!({
            "apiGroup": INFRASTRUCTURE_GROUP,
            "kind": kind,
            "name": name,
        }),
    }
}

fn owner_reference(site: Site<'_>, kind: &str, name: &str, uid: Option<&str>) -> Value {
    json!({
        "apiVersion": Place::of(kind, site.objects.contract()).resource.api_version,
        "kind": kind,
        "name": name,
        "uid": uid,
        "controller": true,
        "blockOwnerDeletion": true,
    })
}

/// Returns a name that is unique in the cluster, since Nodes are cluster-scoped.
fn node_name(site: Site<'_>, machine: &str) -> String {
    format!("{}-{machine}", site.cluster)
}

fn provider_id(node: &str) -> String {
    format!("e2e:///{node}")
}

/// Creates a ready Node that Cluster API has annotated, and returns it as Cluster Autoscaler would send it.
async fn create_node(site: Site<'_>, machine: &str, owner: &Value) -> Result<ExternalGrpcNode> {
    let name = node_name(site, machine);
    let provider_id = provider_id(&name);
    let mut annotations = json!({
        format!("{CAPI_GROUP}/cluster-name"): site.cluster,
        format!("{CAPI_GROUP}/cluster-namespace"): site.objects.namespace(),
        format!("{CAPI_GROUP}/owner-kind"): owner["kind"],
        format!("{CAPI_GROUP}/owner-name"): owner["name"],
    });
    if owner["kind"] == "MachineSet" {
        annotations[format!("{CAPI_GROUP}/machine")] = json!(machine);
    }
    let node = json!({
        "kind": "Node",
        "metadata": { "name": name, "labels": { MADE_UP: "" }, "annotations": annotations },
        "spec": { "providerID": provider_id, "unschedulable": site.unschedulable },
        "status": {
            "capacity": { "cpu": "4", "memory": "16Gi", "pods": "110" },
            "allocatable": { "cpu": "4", "memory": "16Gi", "pods": "110" },
            "conditions": [{ "type": "Ready", "status": "True" }],
        },
    });
    site.objects.create(node).await?;
    let annotations = annotations
        .as_object()
        .into_iter()
        .flatten()
        .map(|(key, value)| {
            let value = value.as_str().context("an annotation that is no text")?;
            Ok((key.clone(), value.to_owned()))
        })
        .collect::<Result<_>>()?;
    Ok(ExternalGrpcNode { provider_id, name, annotations, ..ExternalGrpcNode::default() })
}
