//! Scale-down: the search for unneeded Nodes, the choice of those that may be removed now, and their taints, drains and
//! deletes, which outlast the loop that began them.

use std::{collections::BTreeMap, time::Duration};

use anyhow::{Context as _, Result, ensure};
use futures::future::join_all;
use k8s_openapi::api::core::v1::{Node as CoreNode, Pod};
use proto::NodeGroup;
use tokio::time::{Instant, sleep};

use super::{
    Caller, Settings, Workload,
    caller::grpc_node,
    driver::{Driver, Notes},
    state::{Ended, LoopInput, NodeDeletion},
    version::{OPTIONS_CALLS_BEFORE_REMOVAL, OPTIONS_CALLS_FOR_UTILIZATION},
    workload::{ClusterSnapshot, Shape, is_being_deleted, is_movable, is_on, is_ready, used},
};

#[derive(Clone, Copy)]
pub(super) struct Removable<'a> {
    pub(super) group: &'a NodeGroup,
    pub(super) node: &'a CoreNode,
    pub(super) name: &'a str,
    /// True if it has Pods, which fit elsewhere.
    pub(super) drains: bool,
    since: Instant,
    unneeded: Duration,
}

impl Driver {
    /// Begins to delete Nodes that have been unneeded for as long as their options require, down to the min size.
    pub(super) async fn scale_down(&mut self, input: &LoopInput) -> Result<()> {
        let sizes = self.known_sizes(input).await;
        let candidates = self.candidates_for_removal(input, &sizes);
        let unneeded = self.find_unneeded(input, &candidates).await?;
        self.memory.unneeded = unneeded.iter().map(|one| (one.name.to_owned(), one.since)).collect();
        if candidates.is_empty() || self.cools_down() {
            return Ok(());
        }
        let sizes = self.known_sizes(input).await;
        for one in &unneeded {
            self.options(&one.group.id, self.pattern.questions_about_idle().1).await?;
        }
        let removals = self.choose_removals(input, &sizes, unneeded);
        if removals.is_empty() { Ok(()) } else { self.start_deletion(input, &removals).await }
    }

    fn cools_down(&self) -> bool {
        let (cooldown, settings) = (&self.memory.cooldown, &self.settings);
        let lasts = |since: Option<Instant>, delay| since.is_some_and(|since| since.elapsed() < delay);
        cooldown.this_loop
            || lasts(cooldown.increased, settings.delay_after_add)
            || lasts(cooldown.failed, settings.delay_after_failure)
            || lasts(cooldown.deleted, settings.delay_after_delete)
    }

    /// Returns the sizes. A group whose call fails has none.
    async fn known_sizes(&self, input: &LoopInput) -> BTreeMap<String, i32> {
        let mut sizes = BTreeMap::new();
        for group in &input.groups {
            if let Ok(size) = self.caller.target_size(&group.id).await {
                sizes.insert(group.id.clone(), size);
            }
        }
        sizes
    }

    /// Returns the Nodes of groups above their min size that are neither starting nor being deleted.
    fn candidates_for_removal<'a>(
        &self,
        input: &'a LoopInput,
        sizes: &BTreeMap<String, i32>,
    ) -> Vec<(&'a NodeGroup, &'a CoreNode)> {
        let mut candidates = Vec::new();
        for group in input.groups.iter().filter(|group| sizes.get(&group.id).is_some_and(|size| *size > group.min_size))
        {
            let starting = self.starting(&group.id);
            let nodes = input.nodes_of(&group.id).iter().filter(|node| {
                let name = name(node);
                !starting.contains(name) && !input.deleting.contains_key(name) && !is_being_deleted(node)
            });
            candidates.extend(nodes.map(|node| (group, node)));
        }
        candidates
    }

    /// Returns the candidates with low utilization whose Pods fit on other Nodes.
    async fn find_unneeded<'a>(
        &mut self,
        input: &'a LoopInput,
        candidates: &[(&'a NodeGroup, &'a CoreNode)],
    ) -> Result<Vec<Removable<'a>>> {
        let now = Instant::now();
        self.memory.unremovable.retain(|_, until| *until > now);
        let mut unneeded = Vec::new();
        let mut snapshot = ClusterSnapshot::default();
        for node in input.all_nodes().filter(|node| is_ready(node) && !input.deleting.contains_key(name(node))) {
            snapshot.add(node, &input.pods);
        }
        for &(group, node) in candidates {
            let name = name(node);
            if self.memory.unremovable.contains_key(name) {
                continue;
            }
            let Some(options) = self.options(&group.id, OPTIONS_CALLS_FOR_UTILIZATION).await? else { continue };
            if use_of(node, &input.pods) > options.threshold {
                continue;
            }
            let pods: Vec<&Pod> = input.pods.iter().filter(|pod| is_on(pod, node)).collect();
            if !pods.iter().all(|pod| is_movable(pod)) || !snapshot.vacate(name, &pods) {
                self.memory.unremovable.insert(name.to_owned(), now + self.settings.recheck);
                continue;
            }
            let since = self.memory.unneeded.get(name).copied().unwrap_or(now);
            let time = if is_ready(node) { options.unneeded } else { options.unready };
            unneeded.push(Removable { group, node, name, drains: !pods.is_empty(), since, unneeded: time });
        }
        for one in &unneeded {
            self.options(&one.group.id, self.pattern.questions_about_idle().0).await?;
        }
        Ok(unneeded)
    }

    /// Returns the Nodes that have been unneeded for long enough, down to the min size and up to the parallelism.
    fn choose_removals<'a>(
        &mut self,
        input: &LoopInput,
        sizes: &BTreeMap<String, i32>,
        mut unneeded: Vec<Removable<'a>>,
    ) -> Vec<Removable<'a>> {
        let mut spare: BTreeMap<&str, i32> = BTreeMap::new();
        for group in &input.groups {
            let deleting = input.deleting.values().filter(|one| one.group == group.id).count();
            let size = sizes.get(&group.id).copied().unwrap_or_default();
            spare.insert(&group.id, size - i32::try_from(deleting).unwrap_or(i32::MAX) - group.min_size);
        }
        let drains = input.deleting.values().filter(|one| one.drains).count();
        let mut left = self.settings.parallelism.saturating_sub(input.deleting.len());
        let mut drains_left = self.settings.drain_parallelism.saturating_sub(drains);
        self.rng.shuffle(&mut unneeded);
        unneeded.sort_by_key(|one| one.drains);
        let mut chosen = Vec::new();
        for one in unneeded.into_iter().filter(|one| one.since.elapsed() > one.unneeded) {
            let Some(spare) = spare.get_mut(&*one.group.id).filter(|spare| **spare > 0) else { continue };
            *spare -= 1;
            if left == 0 || (one.drains && drains_left == 0) {
                continue;
            }
            left -= 1;
            drains_left -= usize::from(one.drains);
            chosen.push(one);
        }
        chosen
    }
}

/// Returns the share of a Node's CPU that its Pods request.
fn use_of(node: &CoreNode, pods: &[Pod]) -> f64 {
    let there = Shape::from(node).cpu;
    #[expect(clippy::cast_precision_loss, reason = "so many CPUs are in no Node")]
    let part = |used: i64| used as f64 / there.max(1) as f64;
    part(used(node, pods))
}

fn name(node: &CoreNode) -> &str {
    node.metadata.name.as_deref().unwrap_or_default()
}

/// The interval between two looks at the Pods of a Node that is being drained.
const DRAIN_PAUSE: Duration = Duration::from_secs(5);

impl Driver {
    /// Collects the deletes that have ended since the last loop.
    pub(super) async fn collect_ended(&mut self) {
        let mut any = false;
        while let Some(ended) = self.deletions.try_join_next() {
            let Ok(Ended { node, group, result }) = ended else { continue };
            self.memory.deleting.remove(&node);
            any |= result.is_ok();
            let outcome = result.map_or_else(|error| format!("{error:#}"), |()| "done".to_owned());
            self.note("deleted", &format!("{node} of {group}: {outcome}"));
        }
        if any {
            self.fetch_gpus().await;
        }
    }

    /// Taints Nodes and begins to delete them one by one and concurrently, the empty ones first.
    pub(super) async fn start_deletion(&mut self, input: &LoopInput, removals: &[Removable<'_>]) -> Result<()> {
        let (of_group, of_node) = OPTIONS_CALLS_BEFORE_REMOVAL;
        let mut groups: BTreeMap<&str, usize> = BTreeMap::new();
        for one in removals {
            *groups.entry(&one.group.id).or_default() += 1;
        }
        for (group, nodes) in groups {
            self.options(group, of_group + nodes * of_node).await?;
        }
        for drains in [false, true] {
            let now: Vec<_> = removals.iter().filter(|one| one.drains == drains).collect();
            self.taint_all(&now.iter().map(|one| one.name).collect::<Vec<_>>()).await?;
            for one in now {
                let deletion = NodeDeletion { group: one.group.id.clone(), drains };
                self.memory.deleting.insert(one.name.to_owned(), deletion);
                let removal = Removal {
                    caller: self.caller.clone(),
                    workload: self.workload.clone(),
                    settings: self.settings,
                    notes: self.notes.clone(),
                    asks_for_template: self.pattern.asks_for_templates_of_deleted(),
                    node: one.node.clone(),
                    name: one.name.to_owned(),
                    group: one.group.id.clone(),
                    drains,
                };
                self.deletions.spawn(removal.run());
            }
        }
        self.memory.cooldown.deleted = Some(Instant::now());
        // Sizes are read while the deletes are under way, so they may or may not include them.
        self.recalculate(input).await;
        Ok(())
    }

    /// Taints all Nodes, or none.
    async fn taint_all(&mut self, names: &[&str]) -> Result<()> {
        let tainted = join_all(names.iter().map(async |name| self.workload.taint(name, true).await)).await;
        let Some(error) = tainted.iter().find_map(|tainted| tainted.as_ref().err()) else { return Ok(()) };
        let error = format!("{error:#}");
        for (name, tainted) in names.iter().zip(&tainted) {
            if tainted.is_ok()
                && let Err(error) = self.workload.taint(name, false).await
            {
                self.note("a taint stays", &format!("{error:#}"));
            }
        }
        self.memory.cooldown.failed = Some(Instant::now());
        anyhow::bail!("taints: {error}")
    }
}

/// A task that deletes one Node.
struct Removal {
    caller: Caller,
    workload: Workload,
    settings: Settings,
    notes: Notes,
    asks_for_template: bool,
    node: CoreNode,
    name: String,
    group: String,
    drains: bool,
}

impl Removal {
    /// Deletes the Node. If that fails, takes off its taint, so that Pods may use it again.
    async fn run(self) -> Ended {
        let result = self.remove().await;
        if result.is_err()
            && let Err(error) = self.workload.taint(&self.name, false).await
        {
            (self.notes)(&format!("a taint stays: {error:#}"));
        }
        Ended { node: self.name, group: self.group, result }
    }

    async fn remove(&self) -> Result<()> {
        if !self.settings.delay_after_taint.is_zero() {
            sleep(self.settings.delay_after_taint).await;
        }
        let pods = self.pods().await?;
        if self.drains {
            self.drain(&pods).await?;
        } else {
            ensure!(pods.is_empty(), "{} Pods have come", pods.len());
        }
        self.caller.delete(&self.group, &[grpc_node(&self.node)]).await.context("DeleteNodes")?;
        if self.asks_for_template {
            // Cluster Autoscaler needs the template for a metric.
            let _ = self.caller.template(&self.group).await;
        }
        Ok(())
    }

    async fn pods(&self) -> Result<Vec<Pod>> {
        let mut pods = self.workload.pods().await?;
        pods.retain(|pod| is_on(pod, &self.node));
        Ok(pods)
    }

    /// Evicts the Pods and waits until they have left.
    async fn drain(&self, pods: &[Pod]) -> Result<()> {
        let end = Instant::now() + self.settings.drain;
        for pod in pods {
            while let Err(error) = self.workload.evict(pod).await {
                ensure!(Instant::now() < end, "{error:#}");
                sleep(DRAIN_PAUSE).await;
            }
        }
        loop {
            let left = self.pods().await;
            let uids: Vec<_> = pods.iter().map(|pod| &pod.metadata.uid).collect();
            match left {
                Ok(left) if !left.iter().any(|pod| uids.contains(&&pod.metadata.uid)) => return Ok(()),
                Ok(left) => ensure!(Instant::now() < end, "{} Pods are left", left.len()),
                Err(error) => ensure!(Instant::now() < end, "{error:#}"),
            }
            sleep(DRAIN_PAUSE).await;
        }
    }
}
