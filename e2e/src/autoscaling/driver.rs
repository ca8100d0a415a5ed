//! A driver that asks the program what Cluster Autoscaler asks, in its order, and decides as simply as will do: of the groups with room
//! for pods that are pending, the one with the least left over grows; a Node that has been idle for long enough goes.
//!
//! It is no Cluster Autoscaler: it knows no resources but CPUs, moves no pods, and forgives no group that has failed.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    fmt::Display,
    fs::File,
    io::Write as _,
    path::Path,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result};
use futures::future::{join_all, try_join_all};
use k8s_openapi::api::core::v1::{Node as CoreNode, Pod};
use kube::api::DynamicObject;
use serde_json::{Value, json};

use super::{
    Settings, Version,
    pods::{TO_BE_DELETED, is_leaving, is_on, is_ready, is_unschedulable},
};
use crate::{
    objects::Objects,
    proto::{ExternalGrpcNode, Instance, NodeGroup, instance_status::InstanceState},
    provider::{Caller, made_up_node},
};

/// Time between its loops: it has less to think about than Cluster Autoscaler.
const PAUSE: Duration = Duration::from_millis(300);

/// How often it asks for each group's size in a loop.
const TARGET_SIZES: usize = 3;

/// How often it asks about a Node of no group: that answer is not kept.
const QUESTIONS_ABOUT_OTHERS: usize = 5;

/// Says of a Node that is made up why it was.
const REASON: &str = "k8s.io/cluster-autoscaler/fake-node-reason";

/// One driver.
pub struct Driver {
    pub(super) caller: Caller,
    pub(super) workload: Objects,
    pub(super) version: Version,
    pub(super) settings: Settings,
    log: File,
    pub(super) memory: Memory,
}

/// What it knows from one loop to the next.
#[derive(Default)]
pub(super) struct Memory {
    /// Since when Nodes have been idle, by name.
    idle: HashMap<String, Instant>,
    /// Since when instances have had no Node, by id.
    unregistered: HashMap<String, Instant>,
    /// The instances of each group, as they were when it was last asked.
    instances: BTreeMap<String, Vec<Instance>>,
    /// Groups that didn't bring what they were asked for.
    pub(super) backed_off: BTreeSet<String>,
    /// Groups that have had a ready Node: no template is asked for any more.
    pub(super) seen_ready: BTreeSet<String>,
    /// Increases whose Nodes have yet to join: to which size, by how much, and since when.
    pub(super) increases: BTreeMap<String, (i32, i32, Instant)>,
}

/// What one loop looks at.
pub(super) struct Look {
    pub(super) groups: Vec<NodeGroup>,
    pub(super) nodes: BTreeMap<String, Vec<CoreNode>>,
    pub(super) sizes: BTreeMap<String, i32>,
    pub(super) pods: Vec<Pod>,
}

impl Driver {
    /// For the pods of one namespace of a workload cluster.
    pub fn new(
        caller: Caller,
        workload: Objects,
        version: Version,
        settings: Settings,
        directory: &Path,
    ) -> Result<Self> {
        let log = File::create(directory.join("cluster-autoscaler.log"))?;
        Ok(Self { caller, workload, version, settings, log, memory: Memory::default() })
    }

    /// Goes on until it is dropped. A loop that fails is left, as Cluster Autoscaler leaves it.
    pub async fn run(mut self) {
        if let Err(error) = self.begin().await {
            self.note("start", &format!("{error:#}"));
        }
        loop {
            if let Err(error) = self.look().await {
                self.note("loop left", &format!("{error:#}"));
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    pub(super) fn note(&mut self, what: &str, about: &dyn Display) {
        // A log that can't be written is missed where it is shown.
        let _ = writeln!(self.log, "{what}: {about}");
    }

    /// What is asked before the first Refresh.
    async fn begin(&self) -> Result<()> {
        self.caller.gpu_label().await?;
        self.caller.gpu_types().await?;
        let groups = self.caller.groups().await?;
        self.nodes().await?;
        try_join_all(groups.iter().map(|group| self.caller.instances(&group.id))).await?;
        Ok(())
    }

    /// Looks once, and scales up or else down.
    async fn look(&mut self) -> Result<()> {
        self.caller.refresh().await?;
        let groups = self.caller.groups().await?;
        let nodes = self.nodes().await?;
        let mut sizes = BTreeMap::new();
        for _ in 0..TARGET_SIZES {
            for group in &groups {
                sizes.insert(group.id.clone(), self.caller.target_size(&group.id).await?);
            }
        }
        let pods: Result<Vec<Pod>> = self.workload.list("Pod", "").await?.into_iter().map(typed).collect();
        let look = Look { groups, nodes, sizes, pods: pods? };
        self.ask_for_instances(&look).await;
        if self.delete_failed().await? || self.give_up(&look).await? {
            return Ok(());
        }
        self.close_increases(&look).await?;
        for (group, nodes) in &look.nodes {
            if nodes.iter().any(is_ready) {
                self.memory.seen_ready.insert(group.clone());
            }
        }
        let pending: Vec<&Pod> = look.pods.iter().filter(|pod| is_unschedulable(pod)).collect();
        if pending.is_empty() { self.scale_down(&look).await } else { self.scale_up(&look, &pending).await }
    }

    /// The Nodes that belong to a group, by its id.
    async fn nodes(&self) -> Result<BTreeMap<String, Vec<CoreNode>>> {
        let mut found: BTreeMap<String, Vec<CoreNode>> = BTreeMap::new();
        for node in self.workload.list("Node", "").await? {
            let node: CoreNode = typed(node)?;
            for _ in 0..QUESTIONS_ABOUT_OTHERS {
                if let Some(group) = self.caller.group_of(&asked(&node)).await? {
                    found.entry(group.id).or_default().push(node);
                    break;
                }
            }
        }
        Ok(found)
    }

    /// Of groups that are scaling, all at once. One that can't be asked has none.
    async fn ask_for_instances(&mut self, look: &Look) {
        let known = &self.memory.instances;
        let scaling = look.groups.iter().filter(|group| {
            let (size, nodes) = (look.sizes[&group.id], look.nodes.get(&group.id).map_or(0, Vec::len));
            let instances = known.get(&group.id).map(Vec::len);
            usize::try_from(size) != Ok(nodes) || instances != Some(nodes)
        });
        let asked = join_all(scaling.map(async |group| {
            let instances = self.caller.instances(&group.id).await.unwrap_or_default();
            (group.id.clone(), instances)
        }))
        .await;
        self.memory.instances.extend(asked);
        self.memory.instances.retain(|id, _| look.sizes.contains_key(id));
    }

    /// Deletes instances that say that they couldn't be made, in every loop and whatever the minimum; their group is asked no more.
    async fn delete_failed(&mut self) -> Result<bool> {
        let mut any = false;
        for (group, instances) in self.memory.instances.clone() {
            let failed: Vec<_> = instances.iter().filter(|instance| has_failed(instance)).collect();
            if failed.is_empty() {
                continue;
            }
            any = true;
            if self.memory.increases.remove(&group).is_some() {
                self.memory.backed_off.insert(group.clone());
            }
            let nodes: Vec<_> = failed.iter().map(|instance| fake(&instance.id, "create-error")).collect();
            self.note("deleting what failed", &format!("{failed:?}"));
            self.caller.delete(&group, &nodes).await?;
            self.memory.instances.remove(&group);
        }
        Ok(any)
    }

    /// Deletes instances that have had no Node for too long, as far as the minimum allows.
    async fn give_up(&mut self, look: &Look) -> Result<bool> {
        let registered: BTreeSet<_> = look.nodes.values().flatten().filter_map(provider_id).collect();
        let mut unregistered = HashMap::new();
        let mut late: BTreeMap<String, Vec<ExternalGrpcNode>> = BTreeMap::new();
        for (group, instances) in &self.memory.instances {
            let missing = instances.iter().filter(|one| !registered.contains(&one.id) && !is_deleting(one));
            for instance in missing {
                let since = self.memory.unregistered.get(&instance.id).copied().unwrap_or_else(Instant::now);
                unregistered.insert(instance.id.clone(), since);
                if since.elapsed() > self.settings.provision {
                    late.entry(group.clone()).or_default().push(fake(&instance.id, "unregistered"));
                }
            }
        }
        self.memory.unregistered = unregistered;
        let mut any = false;
        for group in &look.groups {
            let Some(mut nodes) = late.remove(&group.id) else { continue };
            nodes.truncate(usize::try_from(look.sizes[&group.id] - group.min_size).unwrap_or_default());
            if nodes.is_empty() {
                continue;
            }
            any = true;
            self.note("giving up", &format!("{nodes:?}"));
            self.memory.backed_off.insert(group.id.clone());
            self.memory.increases.remove(&group.id);
            self.memory.instances.remove(&group.id);
            self.caller.delete(&group.id, &nodes).await?;
        }
        Ok(any)
    }

    /// Increases that have come to their end, or have taken too long: then as much is taken back, even if most of it came.
    async fn close_increases(&mut self, look: &Look) -> Result<()> {
        for (group, (size, by, since)) in self.memory.increases.clone() {
            let ready = look.nodes.get(&group).into_iter().flatten().filter(|node| is_ready(node)).count();
            if i32::try_from(ready)? >= size {
                self.memory.increases.remove(&group);
            } else if since.elapsed() > self.settings.provision {
                self.memory.increases.remove(&group);
                self.memory.backed_off.insert(group.clone());
                self.note("taking back", &format!("{by} of {group}"));
                self.caller.decrease(&group, -by).await?;
            }
        }
        Ok(())
    }

    /// Deletes Nodes that have been idle for as long as their options say, one by one and all at once, as far as the minimum allows.
    async fn scale_down(&mut self, look: &Look) -> Result<()> {
        let mut idle = HashMap::new();
        let mut going = Vec::new();
        for group in &look.groups {
            let nodes = look.nodes.get(&group.id).map(Vec::as_slice).unwrap_or_default();
            let leaving = i32::try_from(nodes.iter().filter(|node| is_leaving(node)).count())?;
            // Those on their way out are no part of the size any more once the provider has been told.
            let mut spare = look.sizes[&group.id] - group.min_size;
            spare = spare.min(i32::try_from(nodes.len())? - leaving - group.min_size);
            for node in nodes {
                let Some((threshold, unneeded)) = self.options(&group.id).await? else { continue };
                let name = node.metadata.name.clone().unwrap_or_default();
                let busy = look.pods.iter().any(|pod| is_on(pod, node));
                if busy || !is_ready(node) || is_leaving(node) || threshold <= 0.0 {
                    continue;
                }
                let since = self.memory.idle.get(&name).copied().unwrap_or_else(Instant::now);
                idle.insert(name, since);
                if since.elapsed() >= unneeded && spare > 0 {
                    spare -= 1;
                    going.push((group.id.as_str(), node));
                }
            }
        }
        self.memory.idle = idle;
        let ended = join_all(going.into_iter().map(async |(group, node)| {
            let name = node.metadata.name.clone().unwrap_or_default();
            let deleted = self.delete_tainted(group, node, &name).await;
            let outcome = deleted.map_or_else(|error| format!("{error:#}"), |()| "done".to_owned());
            (group.to_owned(), format!("{name} of {group}: {outcome}"))
        }))
        .await;
        for (group, said) in ended {
            self.memory.instances.remove(&group);
            self.note("deleted", &said);
        }
        Ok(())
    }

    async fn delete_tainted(&self, group: &str, node: &CoreNode, name: &str) -> Result<()> {
        self.taint(name, true).await?;
        let deleted = self.caller.delete(group, &[asked(node)]).await;
        if deleted.is_err() {
            self.taint(name, false).await?;
        }
        deleted.context("DeleteNodes")
    }

    async fn taint(&self, node: &str, on: bool) -> Result<()> {
        let object = self.workload.get("Node", node).await?;
        let mut taints: Vec<Value> = object.data["spec"]["taints"].as_array().cloned().unwrap_or_default();
        taints.retain(|taint| taint["key"] != TO_BE_DELETED);
        if on {
            taints.push(json!({ "key": TO_BE_DELETED, "effect": "NoSchedule" }));
        }
        let version = object.metadata.resource_version;
        let patch = json!({ "metadata": { "resourceVersion": version }, "spec": { "taints": taints } });
        self.workload.patch("Node", node, patch).await
    }
}

pub(super) fn typed<T: serde::de::DeserializeOwned>(object: DynamicObject) -> Result<T> {
    Ok(serde_json::from_value(serde_json::to_value(object)?)?)
}

/// A Node as Cluster Autoscaler sends it.
fn asked(node: &CoreNode) -> ExternalGrpcNode {
    let metadata = node.metadata.clone();
    ExternalGrpcNode {
        provider_id: provider_id(node).unwrap_or_default(),
        name: metadata.name.unwrap_or_default(),
        labels: metadata.labels.unwrap_or_default().into_iter().collect(),
        annotations: metadata.annotations.unwrap_or_default().into_iter().collect(),
    }
}

fn provider_id(node: &CoreNode) -> Option<String> {
    node.spec.as_ref()?.provider_id.clone()
}

/// A Node that is made up for an instance without one.
fn fake(instance: &str, reason: &str) -> ExternalGrpcNode {
    let annotations = [(REASON.to_owned(), reason.to_owned())].into_iter().collect();
    ExternalGrpcNode { annotations, ..made_up_node(instance) }
}

fn has_failed(instance: &Instance) -> bool {
    instance
        .status
        .as_ref()
        .is_some_and(|status| status.instance_state() == InstanceState::InstanceCreating && status.error_info.is_some())
}

fn is_deleting(instance: &Instance) -> bool {
    instance.status.as_ref().is_some_and(|status| status.instance_state() == InstanceState::InstanceDeleting)
}
