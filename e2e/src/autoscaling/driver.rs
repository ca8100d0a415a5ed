//! A driver that asks the program what Cluster Autoscaler asks, in its order, and decides as simply as will do: of the groups with room
//! for pods that are pending, the one with the least left over grows; a Node that has been idle for long enough goes.
//!
//! It is no Cluster Autoscaler: it knows no resources but CPUs, moves no pods, and forgives no group that has failed.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    fmt::Display,
    fs::File,
    io::Write as _,
    mem::replace,
    path::Path,
    time::{Duration, Instant},
};

use anyhow::Result;
use futures::future::join_all;
use k8s_openapi::api::core::v1::{Node as CoreNode, Pod};
use kube::api::DynamicObject;
use tonic::Code;

use super::{
    Settings, Version,
    fields::{Fields, Options},
    pattern::Pattern,
    pods::{Shape, is_leaving, is_ready, is_unschedulable},
    state::Unregistered,
};
use crate::{
    objects::Objects,
    proto::{ExternalGrpcNode, Instance, NodeGroup},
    provider::Caller,
};

/// Time between its loops: it has less to think about than Cluster Autoscaler.
const PAUSE: Duration = Duration::from_millis(300);

/// How often it asks about a Node of no group: that answer is not kept.
const QUESTIONS_ABOUT_OTHERS: usize = 5;

/// What Cluster API writes on Nodes.
const CLUSTER_NAMESPACE: &str = "cluster.x-k8s.io/cluster-namespace";

/// One driver.
pub struct Driver {
    pub(super) caller: Caller,
    pub(super) workload: Objects,
    pub(super) pattern: Pattern,
    pub(super) fields: Fields,
    pub(super) settings: Settings,
    log: File,
    pub(super) memory: Memory,
}

/// What it knows from one loop to the next.
#[derive(Default)]
pub(super) struct Memory {
    /// What a Node of a group would be like. That of a group that has had a ready Node is not asked for any more.
    pub(super) shapes: BTreeMap<String, Shape>,
    seen_ready: BTreeSet<String>,
    /// Since when Nodes have been idle, by name.
    pub(super) idle: HashMap<String, Instant>,
    /// The instances of each group, as they were when it was last asked, and when all of them were.
    pub(super) instances: BTreeMap<String, Vec<Instance>>,
    pub(super) instances_since: Option<Instant>,
    /// Instances that have no Node, by id.
    pub(super) unregistered: BTreeMap<String, Unregistered>,
    /// The instances that said in the last loop that they couldn't be made.
    pub(super) failed: BTreeSet<String>,
    /// Groups whose size isn't the number of their Nodes: that number, the size, and since when.
    pub(super) incorrect: BTreeMap<String, (usize, i32, Instant)>,
    /// Groups that didn't bring what they were asked for.
    pub(super) backed_off: BTreeSet<String>,
    /// Increases whose Nodes have yet to join: by how much, and until when.
    pub(super) increases: BTreeMap<String, (i32, Instant)>,
    /// When it last increased a group.
    pub(super) increased: Option<Instant>,
    /// What is asked once and kept for good.
    knows_gpu_label: bool,
    knows_gpu_types: bool,
}

/// What one loop looks at.
pub(super) struct Look {
    pub(super) groups: Vec<NodeGroup>,
    pub(super) nodes: BTreeMap<String, Vec<CoreNode>>,
    pub(super) sizes: BTreeMap<String, i32>,
    pub(super) pods: Vec<Pod>,
}

impl Look {
    pub(super) fn nodes_of(&self, group: &str) -> &[CoreNode] {
        self.nodes.get(group).map(Vec::as_slice).unwrap_or_default()
    }
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
        let (pattern, fields) = (Pattern::of(version), Fields::of(version));
        Ok(Self { caller, workload, pattern, fields, settings, log, memory: Memory::default() })
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
    async fn begin(&mut self) -> Result<()> {
        let groups = self.caller.groups().await?;
        self.ask_for_instances(&groups).await;
        self.memory.instances_since = Some(Instant::now());
        let mut nodes = BTreeMap::new();
        self.sort_by_group(self.listed_nodes().await?, &mut nodes).await?;
        if nodes.is_empty() {
            return Ok(());
        }
        self.learn_gpu_label().await?;
        if self.pattern.asks_for_templates_of_nodes() {
            for (group, nodes) in &nodes {
                for _ in nodes {
                    self.template(group).await?;
                }
            }
        }
        Ok(())
    }

    /// Looks once, and scales up or else down.
    async fn look(&mut self) -> Result<()> {
        self.caller.refresh().await?;
        let groups = self.caller.groups().await?;
        let pods: Result<Vec<Pod>> = self.workload.list("Pod", "").await?.into_iter().map(typed).collect();
        let nodes = self.learn(&groups).await?;
        let sizes = self.sizes(&groups).await?;
        let look = Look { groups, nodes, sizes, pods: pods? };
        self.update(&look).await?;
        self.give_up(&look).await?;
        self.delete_failed(&look).await?;
        if self.correct_sizes(&look).await? {
            return Ok(());
        }
        let pending: Vec<&Pod> = look.pods.iter().filter(|pod| is_unschedulable(pod)).collect();
        let scaled_up = self.scale_up(&look, &pending).await;
        if let Err(error) = &scaled_up {
            self.note("not scaled up", &format!("{error:#}"));
        }
        if self.pattern.goes_on_after_scale_up() || matches!(scaled_up, Ok(false)) {
            self.scale_down(&look).await?;
        }
        Ok(())
    }

    /// The Nodes of each group, and what a Node of each would be like: as one that is ready, or as the program says.
    async fn learn(&mut self, groups: &[NodeGroup]) -> Result<BTreeMap<String, Vec<CoreNode>>> {
        let (ready, others): (Vec<_>, Vec<_>) =
            self.listed_nodes().await?.into_iter().partition(|node| is_ready(node) && !is_leaving(node));
        let mut nodes = BTreeMap::new();
        self.sort_by_group(ready, &mut nodes).await?;
        for (group, nodes) in &nodes {
            self.memory.seen_ready.insert(group.clone());
            self.memory.shapes.extend(nodes.first().map(|node: &CoreNode| (group.clone(), node.into())));
        }
        for group in groups.iter().filter(|group| !self.memory.seen_ready.contains(&group.id)) {
            match self.template(&group.id).await? {
                Some(shape) => self.memory.shapes.insert(group.id.clone(), shape),
                None => self.memory.shapes.remove(&group.id),
            };
        }
        self.sort_by_group(others, &mut nodes).await?;
        Ok(nodes)
    }

    async fn listed_nodes(&self) -> Result<Vec<CoreNode>> {
        self.workload.list("Node", "").await?.into_iter().map(typed).collect()
    }

    async fn sort_by_group(&self, nodes: Vec<CoreNode>, found: &mut BTreeMap<String, Vec<CoreNode>>) -> Result<()> {
        for node in nodes {
            let questions = if self.is_of_another(&node) { 1 } else { QUESTIONS_ABOUT_OTHERS };
            for _ in 0..questions {
                if let Some(group) = self.caller.group_of(&asked(&node)).await? {
                    found.entry(group.id).or_default().push(node);
                    break;
                }
            }
        }
        Ok(())
    }

    /// Whether it is a Node of another scenario, of which a Cluster Autoscaler of this one would know nothing.
    fn is_of_another(&self, node: &CoreNode) -> bool {
        let annotations = node.metadata.annotations.as_ref();
        let namespace = annotations.and_then(|annotations| annotations.get(CLUSTER_NAMESPACE));
        namespace.is_some_and(|namespace| namespace != self.workload.namespace())
    }

    /// What the program says that a Node of a group would be like.
    pub(super) async fn template(&self, group: &str) -> Result<Option<Shape>> {
        match self.caller.template(group).await {
            Ok(answer) => Ok(Some((&self.fields.template(answer)?).into())),
            Err(status) if status.code() == Code::Unimplemented => Ok(None),
            Err(status) => Err(status.into()),
        }
    }

    pub(super) async fn sizes(&self, groups: &[NodeGroup]) -> Result<BTreeMap<String, i32>> {
        let mut sizes = BTreeMap::new();
        for group in groups {
            sizes.insert(group.id.clone(), self.caller.target_size(&group.id).await?);
        }
        Ok(sizes)
    }

    /// The instances of groups, all at once. One that can't be asked has none.
    pub(super) async fn ask_for_instances(&mut self, groups: &[NodeGroup]) {
        let asked = join_all(groups.iter().map(async |group| {
            let instances = self.caller.instances(&group.id).await.unwrap_or_default();
            (group.id.clone(), instances)
        }))
        .await;
        self.memory.instances.extend(asked);
    }

    /// A group's options, asked for so many times in a row, since no answer is kept. None if one of them was an error.
    pub(super) async fn options(&self, group: &str, times: usize) -> Result<Option<Options>> {
        let defaults = self.fields.defaults(self.settings);
        let mut options = self.fields.options(&defaults)?;
        for _ in 0..times {
            match self.caller.options(group, defaults).await {
                Ok(Some(answer)) => options = self.fields.options(&answer)?,
                Ok(None) => {}
                Err(status) if status.code() == Code::Unimplemented => {}
                Err(_) => return Ok(None),
            }
        }
        Ok(Some(options))
    }

    async fn learn_gpu_label(&mut self) -> Result<()> {
        if !replace(&mut self.memory.knows_gpu_label, true) {
            self.caller.gpu_label().await?;
        }
        Ok(())
    }

    /// What is asked when the first Node comes or goes.
    pub(super) async fn learn_gpus(&mut self) -> Result<()> {
        if !replace(&mut self.memory.knows_gpu_types, true) {
            self.caller.gpu_types().await?;
        }
        self.learn_gpu_label().await
    }
}

pub(super) fn typed<T: serde::de::DeserializeOwned>(object: DynamicObject) -> Result<T> {
    Ok(serde_json::from_value(serde_json::to_value(object)?)?)
}

/// A Node as Cluster Autoscaler sends it.
pub(super) fn asked(node: &CoreNode) -> ExternalGrpcNode {
    let metadata = node.metadata.clone();
    ExternalGrpcNode {
        provider_id: provider_id(node).unwrap_or_default(),
        name: metadata.name.unwrap_or_default(),
        labels: metadata.labels.unwrap_or_default().into_iter().collect(),
        annotations: metadata.annotations.unwrap_or_default().into_iter().collect(),
    }
}

pub(super) fn provider_id(node: &CoreNode) -> Option<String> {
    node.spec.as_ref()?.provider_id.clone()
}
