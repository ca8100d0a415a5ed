//! The search for unneeded Nodes, and the choice of those that may be removed now.

use std::{collections::BTreeMap, time::Duration};

use anyhow::Result;
use k8s_openapi::api::core::v1::{Node as CoreNode, Pod};
use proto::NodeGroup;
use tokio::time::Instant;

use super::{
    driver::Driver,
    memory::LoopInput,
    pods::{ClusterSnapshot, Shape, is_being_deleted, is_movable, is_on, is_ready, used},
    version::OPTIONS_CALLS_FOR_UTILIZATION,
};

/// An unneeded Node.
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
