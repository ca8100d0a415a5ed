//! A model of Cluster Autoscaler: its loop, the calls that come before any decision, and those that decisions share.
//!
//! It models CPUs as the only resource, and does not balance similar groups.

use std::{
    collections::BTreeMap,
    fmt::Display,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use anyhow::Result;
use fastrand::Rng;
use futures::future::join_all;
use k8s_openapi::api::core::v1::Node as CoreNode;
use proto::NodeGroup;
use tokio::{
    task::JoinSet,
    time::{Instant, sleep},
};
use tonic::Code;

use super::{
    Caller, Settings, Version, Workload,
    caller::{Fields, Options, grpc_node},
    state::{Ended, LoopInput, Memory},
    version::Pattern,
    workload::{Shape, is_leaving, is_ready},
};

/// The receiver of log lines.
pub(super) type Notes = Arc<dyn Fn(&str) + Send + Sync>;

/// A model of Cluster Autoscaler. Dropping it ends everything it does, as a kill would.
pub struct Driver {
    pub(super) caller: Caller,
    pub(super) workload: Workload,
    pub(super) pattern: Pattern,
    pub(super) fields: Fields,
    pub(super) settings: Settings,
    pub(super) notes: Notes,
    /// Stands in for the random iteration order of Go's maps.
    pub(super) rng: Rng,
    pub(super) memory: Memory,
    /// The deletes under way.
    pub(super) deletions: JoinSet<Ended>,
    loops: Arc<AtomicU64>,
}

impl Driver {
    /// Creates a driver of a version, which calls a provider and watches a workload cluster. [`Self::run`] starts it.
    pub fn new(
        caller: Caller,
        workload: Workload,
        version: Version,
        settings: Settings,
        rng: Rng,
        notes: impl Fn(&str) + Send + Sync + 'static,
    ) -> Self {
        let (pattern, fields) = (Pattern::of(version), Fields::of(version));
        let notes: Notes = Arc::new(notes);
        let (memory, deletions) = (Memory::default(), JoinSet::new());
        Self { caller, workload, pattern, fields, settings, notes, rng, memory, deletions, loops: Arc::default() }
    }

    /// Returns the number of loops that have ended, which goes on counting.
    pub fn loops(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.loops)
    }

    pub(super) fn note(&self, what: &str, about: &dyn Display) {
        (self.notes)(&format!("{what}: {about}"));
    }

    /// Returns the shape of a group's template, or `None` if the provider doesn't implement the call.
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

    /// Fetches all sizes again. If one call fails, all sizes are unknown.
    pub(super) async fn recalculate(&mut self, input: &LoopInput) {
        self.memory.targets = self.sizes(&input.groups).await.unwrap_or_else(|error| {
            self.note("no sizes", &error);
            BTreeMap::new()
        });
    }

    /// Fetches the instances of groups concurrently. A group whose call fails has none.
    pub(super) async fn ask_for_instances(&mut self, groups: &[NodeGroup]) {
        let answers = join_all(groups.iter().map(async |group| {
            let instances = self.caller.instances(&group.id).await.unwrap_or_default();
            (group.id.clone(), instances)
        }))
        .await;
        self.memory.instances.extend(answers);
    }

    /// Fetches a group's options the given number of times in a row, since no answer is cached. Returns `None` if a
    /// call fails.
    pub(super) async fn options(&self, group: &str, times: usize) -> Result<Option<Options>> {
        let defaults = self.fields.defaults(self.settings);
        let mut options = self.fields.options(&defaults, self.settings.startup)?;
        for _ in 0..times {
            match self.caller.options(group, defaults).await {
                Ok(Some(answer)) => {
                    let keeps = !self.pattern.loses_startup_time();
                    let startup = if keeps { self.settings.startup } else { Duration::ZERO };
                    options = self.fields.options(&answer, startup)?;
                }
                Ok(None) => {}
                Err(status) if status.code() == Code::Unimplemented => {}
                Err(_) => return Ok(None),
            }
        }
        Ok(Some(options))
    }

    /// Fetches the GPU label once. An error is not cached.
    pub(super) async fn fetch_gpu_label(&mut self) {
        if !self.memory.knows_gpu_label {
            self.memory.knows_gpu_label = self.caller.gpu_label().await.is_ok();
        }
    }

    /// Makes the GPU calls that Cluster Autoscaler makes when the first Node comes or goes.
    pub(super) async fn fetch_gpus(&mut self) {
        if !self.memory.knows_gpu_types {
            self.memory.knows_gpu_types = self.caller.gpu_types().await.is_ok();
        }
        self.fetch_gpu_label().await;
    }
}

/// The `NodeGroupForNode` calls per loop for a Node without a group: that answer is not cached.
const GROUP_CALLS_WITHOUT_GROUP: usize = 5;

/// The time without a successful loop after which Cluster Autoscaler is restarted.
const MAX_FAILING: Duration = Duration::from_secs(900);

/// The annotation of a Node that names the namespace of its Cluster.
const CLUSTER_NAMESPACE: &str = "cluster.x-k8s.io/cluster-namespace";

impl Driver {
    /// Runs loops until the future is dropped, or until the loops have failed for so long that Cluster Autoscaler would
    /// be restarted. An error ends a loop early.
    pub async fn run(mut self) {
        self.begin().await;
        let mut succeeded = Instant::now();
        while succeeded.elapsed() < MAX_FAILING {
            let scaled = self.memory.cooldown.scaled();
            match self.run_once().await {
                Ok(()) => {
                    succeeded = Instant::now();
                    self.loops.fetch_add(1, Ordering::Relaxed);
                }
                Err(error) => self.note("loop left", &format!("{error:#}")),
            }
            if scaled == self.memory.cooldown.scaled() || !self.pattern.follows_at_once() {
                sleep(self.settings.pause).await;
            }
        }
        self.note("ends", &"no loop has come to its end for long");
    }

    /// Fetches the instances and removes leftover taints, once, before the first Refresh.
    async fn begin(&mut self) {
        let groups = self.groups().await;
        self.ask_for_instances(&groups).await;
        self.memory.instances_since = Some(Instant::now());
        while let Err(error) = self.list().await {
            self.note("nothing listed yet", &format!("{error:#}"));
            sleep(Duration::from_secs(1)).await;
        }
        let nodes = self.memory.listed.clone().unwrap_or_default().0;
        let mut found = BTreeMap::new();
        for node in nodes {
            match self.group_of_node(&node).await {
                Ok(Some(group)) => found.entry(group).or_insert_with(Vec::new).push(node),
                Ok(None) => {}
                Err(error) => self.note("taints not looked at", &format!("{error:#}")),
            }
        }
        for node in found.values().flatten().filter(|node| is_leaving(node)) {
            let name = node.metadata.name.as_deref().unwrap_or_default();
            match self.workload.taint(name, false).await {
                Ok(()) => self.note("an old taint is off", &name),
                Err(error) => self.note("an old taint stays", &format!("{error:#}")),
            }
        }
        if let Err(error) = self.fetch_groups_of(&found).await {
            self.note("start", &format!("{error:#}"));
        }
    }

    async fn fetch_groups_of(&mut self, nodes: &BTreeMap<String, Vec<CoreNode>>) -> Result<()> {
        if nodes.is_empty() {
            return Ok(());
        }
        self.fetch_gpu_label().await;
        if self.pattern.asks_for_templates_of_nodes() {
            for (group, nodes) in nodes {
                for _ in nodes {
                    self.template(group).await?;
                }
            }
        }
        Ok(())
    }

    /// Runs one loop: updates the state, then scales up, or else down.
    async fn run_once(&mut self) -> Result<()> {
        self.collect_ended().await;
        if let Err(error) = self.list().await {
            // Cluster Autoscaler's informers keep serving their last state.
            self.note("nothing listed", &format!("{error:#}"));
        }
        let (nodes, pods) = self.memory.listed.clone().unwrap_or_default();
        let deleting = self.memory.deleting.clone();
        self.caller.refresh().await?;
        let groups = self.groups().await;
        let (nodes, others) = self.learn(&groups, nodes).await?;
        self.memory.targets = self.sizes(&groups).await?;
        let input = LoopInput { groups, nodes, others, pods, deleting };
        self.update(&input).await?;
        self.give_up(&input).await;
        if !self.is_healthy() {
            self.note("unhealthy", &format!("{:?}", self.memory.total));
            self.memory.unneeded.clear();
            return Ok(());
        }
        self.delete_failed(&input).await;
        if self.correct_sizes(&input).await? {
            return Ok(());
        }
        let scaled_up = self.scale_up(&input).await;
        if let Err(error) = &scaled_up {
            self.note("not scaled up", &format!("{error:#}"));
        }
        if self.pattern.goes_on_after_scale_up() || matches!(scaled_up, Ok(false)) {
            self.scale_down(&input).await?;
        }
        Ok(())
    }

    async fn list(&mut self) -> Result<()> {
        self.memory.listed = Some((self.workload.nodes().await?, self.workload.pods().await?));
        Ok(())
    }

    /// Returns the groups. An error counts as an empty list.
    async fn groups(&self) -> Vec<NodeGroup> {
        self.caller.groups().await.unwrap_or_else(|status| {
            self.note("no groups", &status);
            Vec::new()
        })
    }

    /// Returns the Nodes of each group and the Nodes without a group. Stores the shape of each group, from a ready Node
    /// or the template.
    async fn learn(
        &mut self,
        groups: &[NodeGroup],
        nodes: Vec<CoreNode>,
    ) -> Result<(BTreeMap<String, Vec<CoreNode>>, Vec<CoreNode>)> {
        let (ready, unready): (Vec<_>, Vec<_>) =
            nodes.into_iter().partition(|node| is_ready(node) && !is_leaving(node));
        let (mut nodes, mut others) = (BTreeMap::new(), Vec::new());
        self.sort_by_group(ready, &mut nodes, &mut others).await?;
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
        self.sort_by_group(unready, &mut nodes, &mut others).await?;
        Ok((nodes, others))
    }

    async fn sort_by_group(
        &self,
        nodes: Vec<CoreNode>,
        found: &mut BTreeMap<String, Vec<CoreNode>>,
        others: &mut Vec<CoreNode>,
    ) -> Result<()> {
        for node in nodes {
            match self.group_of_node(&node).await? {
                Some(group) => found.entry(group).or_default().push(node),
                None if self.is_of_another(&node) => {}
                None => others.push(node),
            }
        }
        Ok(())
    }

    async fn group_of_node(&self, node: &CoreNode) -> Result<Option<String>> {
        let calls = if self.is_of_another(node) { 1 } else { GROUP_CALLS_WITHOUT_GROUP };
        for _ in 0..calls {
            if let Some(group) = self.caller.group_of(&grpc_node(node)).await? {
                return Ok(Some(group.id));
            }
        }
        Ok(None)
    }

    /// Returns true for a Node of another namespace's Cluster, which this namespace's Cluster Autoscaler wouldn't see.
    fn is_of_another(&self, node: &CoreNode) -> bool {
        let annotations = node.metadata.annotations.as_ref();
        let namespace = annotations.and_then(|annotations| annotations.get(CLUSTER_NAMESPACE));
        let own = self.workload.namespace();
        namespace.zip(own).is_some_and(|(namespace, own)| namespace != own)
    }
}
