//! The settings of a sandbox: its times, and the Cluster API contract version in which its objects are stored.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use serde_json::{Map, Value};

/// The label of a Machine's template that selects the behaviour of its Machines: see [`Behaviour`].
pub const BEHAVIOUR_LABEL: &str = "sandbox.capi-autoscaler-provider.io/machines";

/// The settings of a sandbox.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// The contract version of stored objects.
    pub contract: Contract,
    /// The durations of the steps.
    pub times: Times,
    /// The Nodes of each group, where its objects don't decide them. Then only Machines of these groups become Nodes.
    pub models: Option<Arc<Models>>,
}

/// A group of Machines: kind, namespace and name of a MachineDeployment, MachineSet or MachinePool.
pub type GroupKey = (String, String, String);

/// What new Nodes are like, by their group.
pub type Models = BTreeMap<GroupKey, Model>;

/// What the new Nodes of a group are like.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Model {
    /// The labels besides those of its Machine.
    pub labels: Map<String, Value>,
    /// The taints, as in `spec.taints`.
    pub taints: Vec<Value>,
    /// `status.capacity`
    pub capacity: Map<String, Value>,
    /// `status.allocatable`
    pub allocatable: Map<String, Value>,
    /// `status.nodeInfo`
    pub info: Map<String, Value>,
    /// The durations of the steps; `None` for those of all groups.
    pub times: Option<Times>,
}

/// What decides the Nodes of a group.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum NodeSource<'a> {
    /// Its annotations and its infrastructure template.
    Objects,
    Model(&'a Model),
    /// Nothing: other groups have models, and no Node of this one joins.
    Nothing,
}

impl Settings {
    /// Returns what decides the Nodes of the first of these groups that has a model.
    pub(crate) fn node_source(&self, groups: impl FnOnce() -> Vec<GroupKey>) -> NodeSource<'_> {
        let Some(models) = &self.models else { return NodeSource::Objects };
        groups().iter().find_map(|group| models.get(group)).map_or(NodeSource::Nothing, NodeSource::Model)
    }

    /// Returns the durations of the steps of the first of these groups that has a model.
    pub(crate) fn times_of(&self, groups: impl FnOnce() -> Vec<GroupKey>) -> Times {
        match self.node_source(groups) {
            NodeSource::Model(model) => model.times.unwrap_or(self.times),
            NodeSource::Objects | NodeSource::Nothing => self.times,
        }
    }
}

impl Model {
    /// Makes a Node that registers like those of its group.
    pub(crate) fn apply(&self, node: &mut Value) {
        for (key, value) in &self.labels {
            node["metadata"]["labels"][key] = value.clone();
        }
        let mut taints = node["spec"]["taints"].as_array().cloned().unwrap_or_default();
        let is_there = |taints: &[Value], taint: &Value| {
            taints.iter().any(|one| one["key"] == taint["key"] && one["effect"] == taint["effect"])
        };
        for taint in &self.taints {
            if !is_there(&taints, taint) {
                taints.push(taint.clone());
            }
        }
        if !taints.is_empty() {
            node["spec"]["taints"] = Value::Array(taints);
        }
        for (field, values) in
            [("capacity", &self.capacity), ("allocatable", &self.allocatable), ("nodeInfo", &self.info)]
        {
            if !values.is_empty() {
                node["status"][field] = Value::Object(values.clone());
            }
        }
    }
}

/// The contract versions of Cluster API. Both are served; this is the one in which the controllers write.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Contract {
    /// `cluster.x-k8s.io/v1beta1`
    V1Beta1,
    /// `cluster.x-k8s.io/v1beta2`
    #[default]
    V1Beta2,
}

impl Contract {
    /// Returns the `apiVersion`, with the group.
    pub fn api_version(self) -> &'static str {
        match self {
            Self::V1Beta1 => "cluster.x-k8s.io/v1beta1",
            Self::V1Beta2 => "cluster.x-k8s.io/v1beta2",
        }
    }

    /// Returns the version, without the group.
    pub fn version(self) -> &'static str {
        match self {
            Self::V1Beta1 => "v1beta1",
            Self::V1Beta2 => "v1beta2",
        }
    }
}

/// The durations of the steps. Zero means at once.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Times {
    /// From a Machine's creation until its bootstrap data exists (phase Pending).
    pub bootstrap: Duration,
    /// From then until its infrastructure exists, or has failed (phase Provisioning).
    pub provision: Duration,
    /// From then until its Node joins (phase Provisioned).
    pub join: Duration,
    /// From then until the Node is Ready.
    pub ready: Duration,
    /// From a Machine's deletion until its Node is drained.
    pub drain: Duration,
    /// From then until its infrastructure, its Node and the Machine itself are gone.
    pub terminate: Duration,
    /// The factor by which all steps take longer for Machines that are [`Behaviour::Slow`].
    pub slow_factor: u32,
}

impl Times {
    /// Times without any delay.
    pub const ZERO: Self = Self {
        bootstrap: Duration::ZERO,
        provision: Duration::ZERO,
        join: Duration::ZERO,
        ready: Duration::ZERO,
        drain: Duration::ZERO,
        terminate: Duration::ZERO,
        slow_factor: 1,
    };
}

impl Default for Times {
    /// Returns the times of a fast cloud.
    fn default() -> Self {
        Self {
            bootstrap: Duration::from_secs(1),
            provision: Duration::from_secs(20),
            join: Duration::from_secs(20),
            ready: Duration::from_secs(10),
            drain: Duration::from_secs(5),
            terminate: Duration::from_secs(15),
            slow_factor: 10,
        }
    }
}

/// The behaviour of a Machine, by the label [`BEHAVIOUR_LABEL`].
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Behaviour {
    /// The Machine becomes a Node. This is the default, without the label or with any other value.
    #[default]
    Joins,
    /// `slow`: the Machine becomes a Node, but everything takes longer.
    Slow,
    /// `never-join`: the infrastructure exists, but the Node never joins.
    NeverJoins,
    /// `fail`: the infrastructure fails permanently.
    Fails,
    /// `no-capacity`: the infrastructure provider finds no capacity, and keeps trying.
    NoCapacity,
}

impl Behaviour {
    /// Returns the behaviour that the label's value selects.
    pub fn parse(text: Option<&str>) -> Self {
        match text {
            Some("slow") => Self::Slow,
            Some("never-join") => Self::NeverJoins,
            Some("fail") => Self::Fails,
            Some("no-capacity") => Self::NoCapacity,
            Some(_) | None => Self::Joins,
        }
    }
}
