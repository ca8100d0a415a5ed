//! Node groups as an administrator creates them: one object and its template. Controllers do the rest.

use anyhow::{Result, ensure};
use kube::api::DynamicObject;
use sandbox::BEHAVIOUR_LABEL;
use serde_json::{Map, Value, json};

use super::testbed::{Controllers, Testbed};
pub use crate::pool::{MAX, MIN};
use crate::{
    capd,
    objects::infrastructure_reference,
    pool::{CAPACITY, Scalable},
};

/// The annotation with the time that a group's Nodes must be idle before they are removed.
pub const UNNEEDED: &str = "cluster.x-k8s.io/autoscaling-options-scaledownunneededtime";

/// A label of the scenarios' Nodes, which Cluster API propagates to them.
pub const NODE_POOL: &str = "node.cluster.x-k8s.io/pool";

/// The hook annotation that holds a Machine in deletion before its Node is drained.
pub const HOOK: &str = "pre-drain.delete.hook.machine.cluster.x-k8s.io/e2e";

/// The annotation with the time for which a lack of capacity is tolerated.
pub const GRACE: &str = "capi-autoscaler-provider.io/capacity-error-grace";

/// A node group that was created.
#[derive(Clone, Debug)]
pub struct Group {
    /// The expected id.
    pub id: String,
    /// The kind of the group's object.
    pub kind: &'static str,
    /// The name of that object and of its template, and the value of the label `pool` of its Machines.
    pub name: String,
}

/// Returns true if Cluster Autoscaler may change the size of an object, by its max size.
pub(crate) fn is_group(object: &DynamicObject) -> bool {
    object.metadata.annotations.as_ref().and_then(|all| all.get(MAX)).is_some_and(|max| max != "0")
}

/// A node group to be created.
#[derive(Clone, Debug)]
pub struct Workers {
    name: String,
    scalable: Scalable,
    replicas: i32,
    annotations: Map<String, Value>,
    labels: Map<String, Value>,
    taints: Vec<Value>,
    kubelet_labels: Map<String, Value>,
    capacity: Value,
    allocatable: Option<String>,
    publishes_capacity: bool,
    sized: bool,
    machines: bool,
}

impl Workers {
    /// Creates a MachineDeployment with bounds 0 to 10, no replicas and no capacity.
    pub fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            scalable: Scalable::MachineDeployment,
            replicas: 0,
            annotations: Map::new(),
            labels: Map::new(),
            taints: Vec::new(),
            kubelet_labels: Map::new(),
            capacity: json!({ "cpu": "4", "memory": "16Gi", "pods": "110" }),
            allocatable: None,
            publishes_capacity: false,
            sized: false,
            machines: false,
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

    /// Adds capacity annotations.
    pub fn sized(mut self) -> Self {
        self.sized = true;
        self
    }

    /// Sets the capacity of its Nodes, which its template publishes in `status.capacity`.
    pub fn publishing(mut self, capacity: Value) -> Self {
        self.capacity = capacity;
        self.publishes_capacity = true;
        self
    }

    /// Sets the CPU that its Nodes leave to Pods, where that isn't all.
    pub fn allocatable(mut self, cpu: &str) -> Self {
        self.allocatable = Some(cpu.to_owned());
        self
    }

    /// Sets the initial number of replicas.
    pub fn replicas(mut self, replicas: i32) -> Self {
        self.replicas = replicas;
        self
    }

    /// Adds a label to its Machines.
    pub fn label(mut self, key: &str, value: &str) -> Self {
        self.labels.insert(key.to_owned(), json!(value));
        self
    }

    /// Adds a label with which its kubelets register.
    pub fn kubelet_label(mut self, key: &str, value: &str) -> Self {
        self.kubelet_labels.insert(key.to_owned(), json!(value));
        self
    }

    /// Adds a taint that its Machines always propagate to their Nodes.
    pub fn taint(mut self, key: &str, value: &str, effect: &str) -> Self {
        self.taints.push(json!({ "key": key, "value": value, "effect": effect, "propagation": "Always" }));
        self
    }

    /// Sets the behaviour of its Machines, one of [`sandbox::Behaviour`].
    pub fn that(self, behaviour: &str) -> Self {
        self.label(BEHAVIOUR_LABEL, behaviour)
    }

    /// Gives a MachinePool a Machine for each Node.
    pub fn with_machines(mut self) -> Self {
        self.machines = true;
        self
    }

    /// Creates the template and the group.
    pub async fn create(self, testbed: &Testbed) -> Result<Group> {
        self.create_template(testbed).await?;
        self.create_group(testbed).await
    }

    /// Creates only the infrastructure template. Its capacity is written here if no provider does. In existing clusters
    /// all groups share one template.
    async fn create_template(&self, testbed: &Testbed) -> Result<()> {
        if testbed.is_existing() {
            return Ok(());
        }
        let template = match self.scalable {
            Scalable::MachineDeployment | Scalable::MachineSet if is_in_memory(testbed) => self.template_in_memory(),
            Scalable::MachinePool => json!({
                "kind": "LoopbackMachinePool",
                "metadata": { "name": self.name },
                "spec": { "capacity": self.capacity, "machines": self.machines },
            }),
            Scalable::MachineDeployment | Scalable::MachineSet => {
                let mut template = json!({
                    "kind": "LoopbackMachineTemplate",
                    "metadata": { "name": self.name },
                    "spec": {
                        "publishesCapacity": self.publishes_capacity,
                        "template": { "spec": {
                            "capacity": self.capacity,
                            "allocatableCpu": self.allocatable,
                            "nodeLabels": self.kubelet_labels,
                        } },
                    },
                });
                if self.publishes_capacity && testbed.is_simulated() {
                    template["status"] = json!({ "capacity": self.capacity });
                }
                template
            }
        };
        testbed.objects.create(template).await?;
        Ok(())
    }

    /// Returns a template for CAPD's machines, which have no capacity.
    fn template_in_memory(&self) -> Value {
        let mut template = json!({
            "kind": capd::TEMPLATE_KIND,
            "metadata": { "name": self.name },
            "spec": { "template": { "spec": { "backend": capd::in_memory() } } },
        });
        if self.publishes_capacity {
            template["status"] = json!({ "capacity": self.capacity });
        }
        template
    }

    /// Creates only the group.
    async fn create_group(&self, testbed: &Testbed) -> Result<Group> {
        let kind = self.scalable.kind();
        let name = testbed.tenant().map_or_else(|| self.name.clone(), |tenant| tenant.name(&self.name));
        let group = Group { id: testbed.id(kind, &name), kind, name };
        let mut labels = Map::new();
        labels.insert("cluster.x-k8s.io/cluster-name".to_owned(), json!(testbed.cluster));
        let mut annotations = self.annotations.clone();
        for (resource, quantity) in self.announced(testbed) {
            annotations.insert(format!("{CAPACITY}/{resource}"), quantity);
        }
        let spec = self.spec(testbed, &group)?;
        if let Some(tenant) = testbed.tenant() {
            tenant.receive(&group, &mut labels, &mut annotations);
        }
        let metadata = json!({ "name": group.name, "labels": labels, "annotations": annotations });
        testbed.objects.create(json!({ "kind": kind, "metadata": metadata, "spec": spec })).await?;
        Ok(group)
    }

    /// Returns the capacity in its annotations.
    fn announced(&self, testbed: &Testbed) -> Map<String, Value> {
        let mut capacity = match testbed.tenant() {
            // There the template publishes its real capacity, which may differ from the wanted one.
            Some(tenant) if self.publishes_capacity && !tenant.is_whole(&self.capacity["cpu"]) => self.capacity.clone(),
            Some(_) if self.sized => testbed.capacity(&testbed.cpu(1, 1)),
            None if self.sized => json!({ "cpu": "4", "memory": "16Gi" }),
            Some(_) | None => Value::Null,
        };
        let known = capacity.as_object_mut().map(std::mem::take).unwrap_or_default();
        known.into_iter().filter(|(resource, _)| resource != "pods").collect()
    }

    fn spec(&self, testbed: &Testbed, group: &Group) -> Result<Value> {
        let mut labels = self.labels.clone();
        labels.insert("pool".to_owned(), json!(group.name));
        if testbed.is_existing() && !labels.contains_key(NODE_POOL) {
            labels.insert(NODE_POOL.to_owned(), json!(testbed.mark()));
        }
        let mut machine = self.machine(testbed, group)?;
        machine["clusterName"] = json!(testbed.cluster);
        if !self.taints.is_empty() {
            machine["taints"] = json!(self.taints);
        }
        let mut spec = json!({
            "clusterName": testbed.cluster,
            "replicas": self.replicas,
            "template": { "metadata": { "labels": labels }, "spec": machine },
        });
        if self.scalable != Scalable::MachinePool {
            spec["selector"] = json!({ "matchLabels": { "pool": group.name } });
        }
        if self.scalable == Scalable::MachineDeployment {
            spec["rollout"] = json!({ "strategy": {
                "type": "RollingUpdate",
                "rollingUpdate": { "maxSurge": 1, "maxUnavailable": 0 },
            } });
        }
        Ok(spec)
    }

    /// Returns the Machine spec of its template.
    fn machine(&self, testbed: &Testbed, group: &Group) -> Result<Value> {
        let is_pool = self.scalable == Scalable::MachinePool;
        if let Some(tenant) = testbed.tenant() {
            ensure!(!is_pool, "{} is made after a MachineDeployment", group.id);
            let behaviour = self.labels.get(BEHAVIOUR_LABEL);
            let joins = behaviour.is_none();
            ensure!(
                joins || behaviour == Some(&json!("never-join")),
                "Machines of {} can't behave as {behaviour:?}: real ones support never-join alone",
                group.id
            );
            return Ok(tenant.machine(joins));
        }
        if is_in_memory(testbed) && !is_pool {
            return Ok(json!({
                "version": capd::MACHINE_VERSION,
                "bootstrap": { "configRef": {
                    "apiGroup": "bootstrap.cluster.x-k8s.io",
                    "kind": "KubeadmConfigTemplate",
                    "name": testbed.cluster,
                } },
                "infrastructureRef": infrastructure_reference(capd::TEMPLATE_KIND, &group.name),
            }));
        }
        let kind = if is_pool { "LoopbackMachinePool" } else { "LoopbackMachineTemplate" };
        Ok(json!({
            "bootstrap": { "dataSecretName": "none" },
            "infrastructureRef": infrastructure_reference(kind, &group.name),
        }))
    }
}

/// Returns true with CAPD's machines in memory.
fn is_in_memory(testbed: &Testbed) -> bool {
    matches!(testbed.controllers, Controllers::InMemory(_))
}

impl Testbed {
    /// Makes a MachineDeployment replace its Machines: by another version or, if they are real, by another template
    /// with the same content.
    pub async fn roll(&self, group: &Group) -> Result<()> {
        let spec = match self.tenant() {
            Some(tenant) => json!({ "infrastructureRef": { "name": tenant.another_template(group).await? } }),
            None => json!({ "version": "v1.36.2" }),
        };
        self.objects.patch(group.kind, &group.name, json!({ "spec": { "template": { "spec": spec } } })).await
    }
}
