//! Node groups as an administrator makes them: one object and its template. Controllers do the rest.

use anyhow::Result;
use sandbox::BEHAVIOUR_LABEL;
use serde_json::{Map, Value, json};

use super::stage::{Stage, infrastructure_reference};
use crate::{capd, pool::Scalable};

const MIN: &str = "cluster.x-k8s.io/cluster-api-autoscaler-node-group-min-size";
const MAX: &str = "cluster.x-k8s.io/cluster-api-autoscaler-node-group-max-size";
const CAPACITY: &str = "capacity.cluster-autoscaler.kubernetes.io";

/// A node group to be created.
#[derive(Clone, Debug)]
pub struct Workers {
    name: String,
    scalable: Scalable,
    replicas: Option<i32>,
    annotations: Map<String, Value>,
    labels: Map<String, Value>,
    taints: Vec<Value>,
    template_kind: String,
    capacity: Value,
    publishes_capacity: bool,
    surge: i32,
    machines: bool,
}

/// A node group that was created.
#[derive(Clone, Debug)]
pub struct Group {
    /// As the program should call it.
    pub id: String,
    /// The kind of the object that is the group.
    pub kind: &'static str,
    /// The name of that object, of its template, and the value of the label `pool` of its Machines.
    pub name: String,
}

impl Workers {
    /// A MachineDeployment with a minimum of 0, a maximum of 10 and no replicas, whose capacity nobody says.
    #[must_use]
    pub fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            scalable: Scalable::MachineDeployment,
            replicas: Some(0),
            annotations: Map::new(),
            labels: Map::new(),
            taints: Vec::new(),
            template_kind: "LoopbackMachineTemplate".to_owned(),
            capacity: json!({ "cpu": "4", "memory": "16Gi", "pods": "110" }),
            publishes_capacity: false,
            surge: 1,
            machines: false,
        }
        .bounds(0, 10)
    }

    /// Makes it another kind of group.
    #[must_use]
    pub fn of(mut self, scalable: Scalable) -> Self {
        self.scalable = scalable;
        self
    }

    /// Sets the bounds in its annotations.
    #[must_use]
    pub fn bounds(self, min: i32, max: i32) -> Self {
        self.annotate(MIN, &min.to_string()).annotate(MAX, &max.to_string())
    }

    /// Adds an annotation.
    #[must_use]
    pub fn annotate(mut self, key: &str, value: &str) -> Self {
        self.annotations.insert(key.to_owned(), json!(value));
        self
    }

    /// Says in annotations what its Nodes have.
    #[must_use]
    pub fn sized(self) -> Self {
        self.annotate(&format!("{CAPACITY}/cpu"), "4").annotate(&format!("{CAPACITY}/memory"), "16Gi")
    }

    /// What its Nodes have, which its template says in `status.capacity`.
    #[must_use]
    pub fn publishing(mut self, capacity: Value) -> Self {
        self.capacity = capacity;
        self.publishes_capacity = true;
        self
    }

    /// How many replicas it begins with.
    #[must_use]
    pub fn replicas(mut self, replicas: i32) -> Self {
        self.replicas = Some(replicas);
        self
    }

    /// Leaves it to Cluster API how many replicas it begins with.
    #[must_use]
    pub fn without_replicas(mut self) -> Self {
        self.replicas = None;
        self
    }

    /// Adds a label to its Machines.
    #[must_use]
    pub fn label(mut self, key: &str, value: &str) -> Self {
        self.labels.insert(key.to_owned(), json!(value));
        self
    }

    /// Adds a taint that its Machines put on their Nodes, always.
    #[must_use]
    pub fn taint(mut self, key: &str, value: &str, effect: &str) -> Self {
        self.taints.push(json!({ "key": key, "value": value, "effect": effect, "propagation": "Always" }));
        self
    }

    /// How its Machines turn out, as [`sandbox::Behaviour`] says.
    #[must_use]
    pub fn that(self, behaviour: &str) -> Self {
        self.label(BEHAVIOUR_LABEL, behaviour)
    }

    /// Uses another kind of infrastructure template.
    #[must_use]
    pub fn template_kind(mut self, kind: &str) -> Self {
        kind.clone_into(&mut self.template_kind);
        self
    }

    /// How many Machines more than its replicas a rollout may make.
    #[must_use]
    pub fn surge(mut self, surge: i32) -> Self {
        self.surge = surge;
        self
    }

    /// Gives a MachinePool a Machine for each Node.
    #[must_use]
    pub fn with_machines(mut self) -> Self {
        self.machines = true;
        self
    }

    /// Creates the template and the group.
    pub async fn create(self, stage: &Stage) -> Result<Group> {
        self.create_template(stage).await?;
        self.create_group(stage).await
    }

    /// Creates the infrastructure template alone. Where no provider says its capacity, this does.
    pub async fn create_template(&self, stage: &Stage) -> Result<()> {
        let template = match self.scalable {
            Scalable::MachineDeployment | Scalable::MachineSet if stage.is_in_memory() => self.template_in_memory(),
            Scalable::MachinePool => json!({
                "kind": "LoopbackMachinePool",
                "metadata": { "name": self.name },
                "spec": { "capacity": self.capacity, "machines": self.machines },
            }),
            Scalable::MachineDeployment | Scalable::MachineSet => {
                let mut template = json!({
                    "kind": self.template_kind,
                    "metadata": { "name": self.name },
                    "spec": {
                        "publishesCapacity": self.publishes_capacity,
                        "template": { "spec": { "capacity": self.capacity } },
                    },
                });
                if self.publishes_capacity && stage.is_simulated() {
                    template["status"] = json!({ "capacity": self.capacity });
                }
                template
            }
        };
        stage.objects.create(template).await?;
        Ok(())
    }

    /// CAPD's machines have no capacity.
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

    /// Creates the group alone.
    pub async fn create_group(&self, stage: &Stage) -> Result<Group> {
        let mut labels = self.labels.clone();
        labels.insert("pool".to_owned(), json!(self.name));
        let kind = match self.scalable {
            Scalable::MachinePool => "LoopbackMachinePool",
            Scalable::MachineDeployment | Scalable::MachineSet if stage.is_in_memory() => capd::TEMPLATE_KIND,
            Scalable::MachineDeployment | Scalable::MachineSet => &self.template_kind,
        };
        let bootstrap = if stage.is_in_memory() {
            let group = "bootstrap.cluster.x-k8s.io";
            json!({ "configRef": { "apiGroup": group, "kind": "KubeadmConfigTemplate", "name": stage.cluster } })
        } else {
            json!({ "dataSecretName": "none" })
        };
        let mut spec = json!({
            "clusterName": stage.cluster,
            "template": {
                "metadata": { "labels": labels },
                "spec": {
                    "clusterName": stage.cluster,
                    "bootstrap": bootstrap,
                    "infrastructureRef": infrastructure_reference(kind, &self.name),
                },
            },
        });
        if stage.is_in_memory() {
            spec["template"]["spec"]["version"] = json!(capd::MACHINE_VERSION);
        }
        if !self.taints.is_empty() {
            spec["template"]["spec"]["taints"] = json!(self.taints);
        }
        if let Some(replicas) = self.replicas {
            spec["replicas"] = json!(replicas);
        }
        if self.scalable != Scalable::MachinePool {
            spec["selector"] = json!({ "matchLabels": { "pool": self.name } });
        }
        if self.scalable == Scalable::MachineDeployment {
            spec["rollout"] = json!({ "strategy": {
                "type": "RollingUpdate",
                "rollingUpdate": { "maxSurge": self.surge, "maxUnavailable": 0 },
            } });
        }
        let object = json!({
            "kind": self.scalable.kind(),
            "metadata": {
                "name": self.name,
                "labels": { "cluster.x-k8s.io/cluster-name": stage.cluster },
                "annotations": self.annotations,
            },
            "spec": spec,
        });
        stage.objects.create(object).await?;
        let kind = self.scalable.kind();
        Ok(Group { id: stage.id(kind, &self.name), kind, name: self.name.clone() })
    }
}
