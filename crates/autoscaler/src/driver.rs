//! Cluster Autoscaler's loop: what it asks before it decides anything, and in which order.
//!
//! It knows no resources but CPUs, and balances no groups.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Display,
    sync::Arc,
    time::Duration,
};

use anyhow::Result;
use capi_autoscaler_provider::proto::{ExternalGrpcNode, Instance, NodeGroup};
use fastrand::Rng;
use futures::future::join_all;
use k8s_openapi::api::core::v1::{Node as CoreNode, Pod};
use tokio::{
    task::JoinSet,
    time::{Instant, sleep},
};
use tonic::Code;

use super::{
    Caller, Settings, Version, Workload,
    actuation::{Ended, Going},
    backoff::BackedOff,
    fields::{Fields, Options},
    pattern::Pattern,
    pods::{Shape, is_leaving, is_ready},
    scale_down::Cooldown,
    state::{Readiness, Request, Unregistered},
};

/// The number of times that a loop asks for the group of a Node of none: that answer is not kept.
const QUESTIONS_ABOUT_OTHERS: usize = 5;

/// After that long all instances are asked for again, whatever their group does.
pub(crate) const INSTANCES_LAST: Duration = Duration::from_secs(120);

/// After that long without a loop that came to its end it is restarted.
const MAX_FAILING: Duration = Duration::from_secs(900);

/// An annotation that Cluster API writes on Nodes.
const CLUSTER_NAMESPACE: &str = "cluster.x-k8s.io/cluster-namespace";

/// Where notes go.
pub(crate) type Notes = Arc<dyn Fn(&str) + Send + Sync>;

/// A Cluster Autoscaler. Dropping it ends all that it does, as a kill would.
pub struct Driver {
    pub(crate) caller: Caller,
    pub(crate) workload: Workload,
    pub(crate) pattern: Pattern,
    pub(crate) fields: Fields,
    pub(crate) settings: Settings,
    pub(crate) notes: Notes,
    /// Where Go's maps have no order.
    pub(crate) chance: Rng,
    pub(crate) memory: Memory,
    /// Deletes under way.
    pub(crate) deletions: JoinSet<Ended>,
}

/// The state that lasts from one loop to the next.
#[derive(Default)]
pub(crate) struct Memory {
    /// The Nodes and Pods that were listed last.
    listed: Option<(Vec<CoreNode>, Vec<Pod>)>,
    /// A ready Node of each group, or its template, which is not asked for any more once the group has had a ready Node.
    pub(crate) shapes: BTreeMap<String, Shape>,
    seen_ready: BTreeSet<String>,
    /// The sizes of the groups, as they were when they were asked for last.
    pub(crate) targets: BTreeMap<String, i32>,
    /// The Nodes of each group in this loop, counted by state. A group without Nodes and without instances to come has no entry.
    pub(crate) readiness: BTreeMap<String, Readiness>,
    /// The number of Nodes, and how many of them broke down.
    pub(crate) total: (usize, usize),
    /// The instances of each group, as they were when it was last asked, and when all of them were.
    pub(crate) instances: BTreeMap<String, Vec<Instance>>,
    pub(crate) instances_since: Option<Instant>,
    /// Groups whose instances are asked for again in the next loop.
    pub(crate) invalid: BTreeSet<String>,
    /// Instances that have no Node, by id.
    pub(crate) unregistered: BTreeMap<String, Unregistered>,
    /// The instances that said in the last loop that they couldn't be made.
    pub(crate) failed: BTreeSet<String>,
    /// Groups whose size isn't the number of their Nodes: that number, the size, and since when.
    pub(crate) incorrect: BTreeMap<String, (usize, i32, Instant)>,
    /// Groups that didn't bring what they were asked for.
    pub(crate) backed_off: BackedOff,
    /// Increases whose Nodes have yet to join.
    pub(crate) requests: BTreeMap<String, Request>,
    /// Since when Nodes have been unneeded, by name.
    pub(crate) unneeded: BTreeMap<String, Instant>,
    /// Until when Nodes aren't looked at again that couldn't be removed, by name.
    pub(crate) unremovable: BTreeMap<String, Instant>,
    /// Nodes that are being drained or deleted, by name.
    pub(crate) going: BTreeMap<String, Going>,
    /// When groups and Nodes were changed last.
    pub(crate) cooldown: Cooldown,
    /// True once the question was answered: it is asked once, and the answer kept for good.
    knows_gpu_label: bool,
    knows_gpu_types: bool,
}

/// The objects that one loop looks at.
pub(crate) struct Look {
    pub(crate) groups: Vec<NodeGroup>,
    /// The Nodes of each group.
    pub(crate) nodes: BTreeMap<String, Vec<CoreNode>>,
    /// Those of none.
    pub(crate) others: Vec<CoreNode>,
    pub(crate) pods: Vec<Pod>,
    /// The Nodes that were going when the loop began.
    pub(crate) going: BTreeMap<String, Going>,
}

impl Look {
    pub(crate) fn nodes_of(&self, group: &str) -> &[CoreNode] {
        self.nodes.get(group).map(Vec::as_slice).unwrap_or_default()
    }

    pub(crate) fn all_nodes(&self) -> impl Iterator<Item = &CoreNode> {
        self.nodes.values().flatten().chain(&self.others)
    }
}

impl Driver {
    /// One of a version, which calls the program and looks at a workload cluster. It begins when it is run.
    pub fn new(
        caller: Caller,
        workload: Workload,
        version: Version,
        settings: Settings,
        chance: Rng,
        notes: impl Fn(&str) + Send + Sync + 'static,
    ) -> Self {
        let (pattern, fields) = (Pattern::of(version), Fields::of(version));
        let notes: Notes = Arc::new(notes);
        let (memory, deletions) = (Memory::default(), JoinSet::new());
        Self { caller, workload, pattern, fields, settings, notes, chance, memory, deletions }
    }

    /// Goes on until it is dropped, or has failed for so long that it would be restarted. A loop that fails is left.
    pub async fn run(mut self) {
        self.begin().await;
        let mut succeeded = Instant::now();
        while succeeded.elapsed() < MAX_FAILING {
            let scaled = self.memory.cooldown.scaled();
            match self.look().await {
                Ok(()) => succeeded = Instant::now(),
                Err(error) => self.note("loop left", &format!("{error:#}")),
            }
            if scaled == self.memory.cooldown.scaled() || !self.pattern.follows_at_once() {
                sleep(self.settings.pause).await;
            }
        }
        self.note("ends", &"no loop has come to its end for long");
    }

    pub(crate) fn note(&self, what: &str, about: &dyn Display) {
        (self.notes)(&format!("{what}: {about}"));
    }

    /// Before the first Refresh it learns the instances, and takes off the taints that another one left: never again.
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
        if let Err(error) = self.learn_about_nodes(&found).await {
            self.note("start", &format!("{error:#}"));
        }
    }

    async fn learn_about_nodes(&mut self, nodes: &BTreeMap<String, Vec<CoreNode>>) -> Result<()> {
        if nodes.is_empty() {
            return Ok(());
        }
        self.learn_gpu_label().await;
        if self.pattern.asks_for_templates_of_nodes() {
            for (group, nodes) in nodes {
                for _ in nodes {
                    self.template(group).await?;
                }
            }
        }
        Ok(())
    }

    /// Looks once, and scales up or else down.
    async fn look(&mut self) -> Result<()> {
        self.learn_what_ended().await;
        if let Err(error) = self.list().await {
            // Its informers go on showing what they had.
            self.note("nothing listed", &format!("{error:#}"));
        }
        let (nodes, pods) = self.memory.listed.clone().unwrap_or_default();
        let going = self.memory.going.clone();
        self.caller.refresh().await?;
        let groups = self.groups().await;
        let (nodes, others) = self.learn(&groups, nodes).await?;
        self.memory.targets = self.sizes(&groups).await?;
        let look = Look { groups, nodes, others, pods, going };
        self.update(&look).await?;
        self.give_up(&look).await;
        if !self.is_healthy() {
            self.note("unhealthy", &format!("{:?}", self.memory.total));
            self.memory.unneeded.clear();
            return Ok(());
        }
        self.delete_failed(&look).await;
        if self.correct_sizes(&look).await? {
            return Ok(());
        }
        let scaled_up = self.scale_up(&look).await;
        if let Err(error) = &scaled_up {
            self.note("not scaled up", &format!("{error:#}"));
        }
        if self.pattern.goes_on_after_scale_up() || matches!(scaled_up, Ok(false)) {
            self.scale_down(&look).await?;
        }
        Ok(())
    }

    async fn list(&mut self) -> Result<()> {
        self.memory.listed = Some((self.workload.nodes().await?, self.workload.pods().await?));
        Ok(())
    }

    /// An error reads as no groups at all.
    async fn groups(&self) -> Vec<NodeGroup> {
        self.caller.groups().await.unwrap_or_else(|status| {
            self.note("no groups", &status);
            Vec::new()
        })
    }

    /// The Nodes of each group and those of none, and what a Node of each would be like: as one that is ready, or as the program says.
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
        let questions = if self.is_of_another(node) { 1 } else { QUESTIONS_ABOUT_OTHERS };
        for _ in 0..questions {
            if let Some(group) = self.caller.group_of(&asked(node)).await? {
                return Ok(Some(group.id));
            }
        }
        Ok(None)
    }

    /// Returns true for a Node of another namespace, of which a Cluster Autoscaler of this one would know nothing.
    fn is_of_another(&self, node: &CoreNode) -> bool {
        let annotations = node.metadata.annotations.as_ref();
        let namespace = annotations.and_then(|annotations| annotations.get(CLUSTER_NAMESPACE));
        let own = self.workload.namespace();
        namespace.zip(own).is_some_and(|(namespace, own)| namespace != own)
    }

    /// The Node that a group would get, as the program answers.
    pub(crate) async fn template(&self, group: &str) -> Result<Option<Shape>> {
        match self.caller.template(group).await {
            Ok(answer) => Ok(Some((&self.fields.template(answer)?).into())),
            Err(status) if status.code() == Code::Unimplemented => Ok(None),
            Err(status) => Err(status.into()),
        }
    }

    pub(crate) async fn sizes(&self, groups: &[NodeGroup]) -> Result<BTreeMap<String, i32>> {
        let mut sizes = BTreeMap::new();
        for group in groups {
            sizes.insert(group.id.clone(), self.caller.target_size(&group.id).await?);
        }
        Ok(sizes)
    }

    /// Asks for all sizes once more. Where one isn't answered, none is known.
    pub(crate) async fn recalculate(&mut self, look: &Look) {
        self.memory.targets = self.sizes(&look.groups).await.unwrap_or_else(|error| {
            self.note("no sizes", &error);
            BTreeMap::new()
        });
    }

    /// The instances of groups, all at once. One that can't be asked has none.
    pub(crate) async fn ask_for_instances(&mut self, groups: &[NodeGroup]) {
        let asked = join_all(groups.iter().map(async |group| {
            let instances = self.caller.instances(&group.id).await.unwrap_or_default();
            (group.id.clone(), instances)
        }))
        .await;
        self.memory.instances.extend(asked);
    }

    /// A group's options, asked for so many times in a row, since no answer is kept. None if one of them was an error.
    pub(crate) async fn options(&self, group: &str, times: usize) -> Result<Option<Options>> {
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

    /// An error is no label, and not kept.
    async fn learn_gpu_label(&mut self) {
        if !self.memory.knows_gpu_label {
            self.memory.knows_gpu_label = self.caller.gpu_label().await.is_ok();
        }
    }

    /// Asks what Cluster Autoscaler asks when the first Node comes or goes.
    pub(crate) async fn learn_gpus(&mut self) {
        if !self.memory.knows_gpu_types {
            self.memory.knows_gpu_types = self.caller.gpu_types().await.is_ok();
        }
        self.learn_gpu_label().await;
    }
}

/// A Node as Cluster Autoscaler sends it.
pub(crate) fn asked(node: &CoreNode) -> ExternalGrpcNode {
    let metadata = node.metadata.clone();
    ExternalGrpcNode {
        provider_id: provider_id(node).unwrap_or_default(),
        name: metadata.name.unwrap_or_default(),
        labels: metadata.labels.unwrap_or_default().into_iter().collect(),
        annotations: metadata.annotations.unwrap_or_default().into_iter().collect(),
    }
}

pub(crate) fn provider_id(node: &CoreNode) -> Option<String> {
    node.spec.as_ref()?.provider_id.clone()
}
