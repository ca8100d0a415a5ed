//! Cluster: its pause, the Kubernetes version of its topology, and its choice by labels.

use std::collections::BTreeMap;

use arcstr::ArcStr;
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::Value;
use shared_informer::{Document, Projection};

use super::{CLIENT_NOT_BEFORE, DEFER_UPGRADE, HOLD_UPGRADE_SEQUENCE, MOST_LISTED, Meta, wire};

/// A Cluster as read here.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Cluster {
    /// Identity.
    pub meta: Meta,
    /// `spec.paused`: everything of this Cluster is paused. The annotation `cluster.x-k8s.io/paused` on the Cluster
    /// pauses only the Cluster itself.
    pub paused: bool,
    /// `spec.topology` of a Cluster with a ClusterClass.
    pub topology: Option<Box<Topology>>,
    /// True if its labels match the selector of [`Cluster::projection_selecting`].
    pub is_selected: bool,
    /// The certificates with which its autoscaler may call; `None` if it says nothing about them.
    pub client_not_before: Option<NotBefore>,
}

/// The choice of certificates by the time from which they are valid, in the annotation [`CLIENT_NOT_BEFORE`].
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum NotBefore {
    /// None that is valid from an earlier time.
    Time(Timestamp),
    /// None at all: the text isn't a time, and whoever wrote it wanted to exclude some.
    Unreadable,
}

impl NotBefore {
    fn of(text: &str) -> Self {
        wire::time(text).map_or(Self::Unreadable, Self::Time)
    }

    /// Returns true if a certificate that is valid from this time is excluded; one of an unknown time always is.
    pub fn excludes(self, valid_from: Option<Timestamp>) -> bool {
        match self {
            Self::Time(time) => valid_from.is_none_or(|from| from < time),
            Self::Unreadable => true,
        }
    }
}

/// The desired state in a Cluster's topology.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Topology {
    /// The Kubernetes version of the control plane and of all workers whose own isn't pinned.
    pub version: ArcStr,
    /// The MachineDeployments whose version is pinned: the name in the topology, and the version. Provisional: a
    /// worker's `version` is only proposed in Cluster API.
    pub pinned: Vec<(ArcStr, ArcStr)>,
    /// The MachineDeployments whose upgrade is held back by an annotation, by their names in the topology.
    pub held_back: Vec<ArcStr>,
    /// The MachineDeployments whose replicas the topology sets, by their names in it. The topology controller reverts
    /// every other size.
    pub sized: Vec<ArcStr>,
    /// The time since which the condition TopologyReconciled is False.
    pub unreconciled_since: Option<Timestamp>,
}

#[derive(Deserialize)]
struct Spec<'a> {
    #[serde(default)]
    paused: Option<bool>,
    #[serde(borrow)]
    topology: Option<TopologySpec<'a>>,
}

#[derive(Deserialize)]
struct TopologySpec<'a> {
    #[serde(borrow)]
    version: Option<wire::Text<'a>>,
    workers: Option<Workers<'a>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Workers<'a> {
    #[serde(borrow)]
    machine_deployments: Option<Vec<Worker<'a>>>,
}

#[derive(Deserialize)]
struct Worker<'a> {
    #[serde(borrow, default)]
    name: wire::Text<'a>,
    replicas: Option<i64>,
    version: Option<wire::Text<'a>>,
    metadata: Option<wire::Metadata<'a>>,
}

#[derive(Deserialize)]
struct Status<'a> {
    #[serde(borrow)]
    conditions: Option<Vec<wire::Condition<'a>>>,
    v1beta2: Option<wire::V1Beta2<'a>>,
}

impl Topology {
    /// Returns the desired version of a MachineDeployment, by its name in the topology.
    pub fn version_of(&self, name: &str) -> &ArcStr {
        self.pinned.iter().find(|(pinned, _)| pinned == name).map_or(&self.version, |(_, version)| version)
    }
}

/// The JSON of a Cluster.
struct Json;

impl Document for Json {
    type Json<'a> = wire::Object<'a, Spec<'a>, Status<'a>>;
}

impl Cluster {
    /// Decodes a Cluster of either contract version.
    ///
    /// # Errors
    /// The text of the decoding error, when a field that is read has another type.
    pub fn decode(meta: Meta, value: &Value) -> Result<Self, String> {
        Self::of(meta, wire::read(value)?)
    }

    /// Returns the projection with which an informer reads Clusters.
    pub fn projection() -> Projection<Self> {
        Self::measured(Projection::typed::<Json>("capi/Cluster", Self::of))
    }

    fn measured(projection: Projection<Self>) -> Projection<Self> {
        projection.with_identity_within(|cluster| &cluster.meta).with_bytes(Self::bytes)
    }

    /// Returns the bytes of its texts and its topology, without its identity.
    pub(super) fn bytes(&self) -> usize {
        self.topology.as_ref().map_or(0, |topology| {
            let pinned = topology.pinned.iter().flat_map(|(name, version)| [name, version]);
            let listed = pinned.chain(&topology.held_back).chain(&topology.sized);
            size_of::<Topology>() + topology.version.len() + wire::listed_bytes(listed)
        })
    }

    /// Returns the same projection, with a selector of Clusters by their labels.
    pub fn projection_selecting(
        selects: impl Fn(&BTreeMap<String, String>) -> bool + Send + Sync + 'static,
    ) -> Projection<Self> {
        Self::measured(Projection::typed::<Json>("capi/Cluster selected", move |meta, object| {
            let labels = object.metadata.labels.iter().flat_map(wire::Texts::iter);
            let labels = labels.map(|(key, value)| (key.to_owned(), (**value).to_owned())).collect();
            let is_selected = selects(&labels);
            Ok(Self { is_selected, ..Self::of(meta, object)? })
        }))
    }

    fn of(meta: Meta, object: wire::Object<'_, Spec<'_>, Status<'_>>) -> Result<Self, String> {
        let client_not_before = object.metadata.annotation(CLIENT_NOT_BEFORE).map(NotBefore::of);
        let (spec, status) = (object.spec, object.status);
        let paused = spec.as_ref().and_then(|spec| spec.paused).unwrap_or_default();
        let topology = spec.and_then(|spec| spec.topology);
        let workers = topology.iter().filter_map(|topology| topology.workers.as_ref()?.machine_deployments.as_ref());
        let mut listed = wire::TotalSize::at_most(MOST_LISTED);
        for worker in workers.flatten() {
            listed.add([&*wire::value(&worker.name), &*wire::value(worker.version.as_deref().unwrap_or_default())]);
        }
        listed.check("the names and versions of spec.topology.workers.machineDeployments")?;
        let topology = topology.and_then(|topology| {
            let version = topology.version.as_deref().filter(|version| !version.is_empty())?;
            Some(Box::new(Topology {
                version: ArcStr::from(wire::value(version)),
                pinned: topology.workers.as_ref().map(pinned).unwrap_or_default(),
                held_back: topology.workers.as_ref().map(held_back).unwrap_or_default(),
                sized: topology.workers.as_ref().map(sized).unwrap_or_default(),
                unreconciled_since: status.as_ref().and_then(unreconciled_since),
            }))
        });
        Ok(Self { meta, paused, topology, is_selected: false, client_not_before })
    }
}

/// Returns the names of the held-back MachineDeployments. As in Cluster API, `defer-upgrade` holds back one, and
/// `hold-upgrade-sequence` one and all that follow it in the list.
fn held_back(workers: &Workers<'_>) -> Vec<ArcStr> {
    let mut held = false;
    let mut names = Vec::new();
    for worker in workers.machine_deployments.iter().flatten() {
        let is_set = |key| worker.metadata.as_ref().is_some_and(|metadata| metadata.annotation(key).is_some());
        held |= is_set(HOLD_UPGRADE_SEQUENCE);
        if held || is_set(DEFER_UPGRADE) {
            names.push(ArcStr::from(wire::value(&worker.name)));
        }
    }
    names
}

fn sized(workers: &Workers<'_>) -> Vec<ArcStr> {
    let workers = workers.machine_deployments.iter().flatten();
    workers.filter(|worker| worker.replicas.is_some()).map(|worker| ArcStr::from(wire::value(&worker.name))).collect()
}

fn pinned(workers: &Workers<'_>) -> Vec<(ArcStr, ArcStr)> {
    let version = |worker: &Worker<'_>| {
        let version = worker.version.as_deref().filter(|version| !version.is_empty())?;
        Some((ArcStr::from(wire::value(&worker.name)), ArcStr::from(wire::value(version))))
    };
    workers.machine_deployments.iter().flatten().filter_map(version).collect()
}

fn unreconciled_since(status: &Status<'_>) -> Option<Timestamp> {
    wire::condition(status.v1beta2.as_ref(), status.conditions.as_ref(), "TopologyReconciled")
        .filter(|condition| condition.status == "False")
        .and_then(wire::Condition::since)
}
