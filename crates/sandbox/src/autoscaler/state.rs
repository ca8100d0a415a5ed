//! The state of a driver, which lasts from one loop to the next, and what each loop does about it before any decision:
//! instances without a Node, finished increases, and sizes to correct.

use std::{
    collections::{BTreeMap, BTreeSet},
    mem::{replace, take},
    time::Duration,
};

use anyhow::{Context as _, Result};
use futures::future::join_all;
use k8s_openapi::api::core::v1::{Node as CoreNode, Pod};
use proto::{ExternalGrpcNode, Instance, NodeGroup, instance_status::InstanceState};
use tokio::time::Instant;

use super::{
    Backoff,
    caller::{made_up_node, provider_id},
    driver::Driver,
    workload::{Shape, is_leaving, is_ready, is_younger},
};

/// The age at which the instances of all groups are fetched again.
const INSTANCES_LAST: Duration = Duration::from_secs(120);

/// The annotation of a made-up Node that gives the reason for it.
const REASON: &str = "k8s.io/cluster-autoscaler/fake-node-reason";

/// The tolerated number of unready Nodes, and their tolerated share of all Nodes.
const OK_UNREADY: (usize, f64) = (3, 0.45);

impl Driver {
    /// Updates the state of Nodes, instances and increases since the last loop.
    pub(super) async fn update(&mut self, input: &LoopInput) -> Result<()> {
        self.refresh_instances(&input.groups).await?;
        self.find_unregistered(input).await;
        self.measure_readiness(input).await?;
        self.close_requests(input).await;
        self.find_failures().await?;
        self.find_incorrect_sizes();
        Ok(())
    }

    /// Fetches the instances of groups that are scaling up, and of groups that aren't cached. Fetches those of all
    /// groups at intervals, where an error counts as no instances.
    async fn refresh_instances(&mut self, groups: &[NodeGroup]) -> Result<()> {
        if self.memory.instances_since.is_none_or(|since| since.elapsed() > INSTANCES_LAST) {
            self.memory.instances_since = Some(Instant::now());
            self.memory.instances.clear();
            self.memory.invalid.clear();
            self.ask_for_instances(groups).await;
            return Ok(());
        }
        let ids: BTreeSet<_> = groups.iter().map(|group| &group.id).collect();
        let invalid = take(&mut self.memory.invalid);
        let known = self.memory.instances.keys();
        let stale = known.filter(|id| !ids.contains(id) || invalid.contains(*id) || self.is_scaling_up(id));
        for id in stale.cloned().collect::<Vec<_>>() {
            self.memory.instances.remove(&id);
        }
        let unknown: Vec<_> = groups.iter().filter(|group| !self.memory.instances.contains_key(&group.id)).collect();
        let answers = join_all(unknown.iter().map(async |group| match self.caller.instances(&group.id).await {
            Ok(instances) => Ok(instances),
            Err(_) => self.caller.instances(&group.id).await,
        }));
        for (group, instances) in unknown.iter().zip(answers.await) {
            let instances = instances.with_context(|| format!("instances of {}", group.id))?;
            self.memory.instances.insert(group.id.clone(), instances);
        }
        Ok(())
    }

    /// Finds the instances that should have a Node, and asks for the group of each.
    async fn find_unregistered(&mut self, input: &LoopInput) {
        let registered: BTreeSet<_> = input.all_nodes().filter_map(provider_id).collect();
        let instances = self.memory.instances.values().flatten().filter(|instance| is_expected(instance));
        let missing: Vec<_> =
            instances.map(|instance| instance.id.clone()).filter(|id| !registered.contains(id)).collect();
        let mut unregistered = BTreeMap::new();
        for id in missing {
            let since = self.memory.unregistered.get(&id).map_or_else(Instant::now, |known| known.since);
            let of = self.group_and_provision(&id).await;
            unregistered.insert(id, Unregistered { since, of });
        }
        self.memory.unregistered = unregistered;
    }

    async fn group_and_provision(&self, id: &str) -> Option<(String, Duration)> {
        let group = self.caller.group_of(&fake(id, "unregistered")).await.ok()??;
        let options = self.options(&group.id, 1).await.ok()??;
        Some((group.id, options.provision))
    }

    async fn measure_readiness(&mut self, input: &LoopInput) -> Result<()> {
        let mut all = BTreeMap::new();
        for (group, nodes) in &input.nodes {
            let questions = nodes.len() * self.pattern.questions_about_start();
            let options = self.options(group, questions).await?;
            let startup = options.map_or(self.settings.startup, |options| options.startup);
            let readiness: &mut Readiness = all.entry(group.clone()).or_default();
            for node in nodes {
                readiness.add(node, startup);
            }
        }
        for one in self.memory.unregistered.values() {
            let Some((group, _)) = &one.of else { continue };
            let readiness: &mut Readiness = all.entry(group.clone()).or_default();
            *(if one.is_late() { &mut readiness.late } else { &mut readiness.unregistered }) += 1;
        }
        let mut others = Readiness::default();
        for node in &input.others {
            others.add(node, self.settings.startup);
        }
        let unready = all.values().map(|readiness| readiness.unready).sum::<usize>() + others.unready;
        self.memory.total = (input.all_nodes().count(), unready);
        self.memory.readiness = all;
        Ok(())
    }

    /// Returns the number of Nodes of a group that have yet to join, requested or not.
    pub(super) fn upcoming(&self, group: &str) -> usize {
        let target = self.memory.targets.get(group).map_or(0, |size| usize::try_from(*size).unwrap_or_default());
        let there = self.memory.readiness.get(group).map_or(0, |one| one.ready + one.unready + one.late);
        target.saturating_sub(there)
    }

    /// Returns the number of Nodes of a group that count as upcoming.
    pub(super) fn counted_upcoming(&self, group: &str) -> usize {
        let nobody_waits =
            !self.memory.requests.contains_key(group) || self.memory.backed_off.has(group, Instant::now());
        if nobody_waits && !self.pattern.expects_nodes_nobody_waits_for() {
            return 0;
        }
        self.upcoming(group)
    }

    /// Returns the starting Nodes of a group that count as upcoming.
    pub(super) fn starting(&self, group: &str) -> BTreeSet<String> {
        if self.counted_upcoming(group) == 0 {
            return BTreeSet::new();
        }
        self.memory.readiness.get(group).map(|readiness| readiness.starting.clone()).unwrap_or_default()
    }

    /// Returns true if an increase of a group isn't finished.
    fn waits_for_nodes(&self, group: &str) -> bool {
        let Some(target) = self.memory.targets.get(group) else { return false };
        let Some(readiness) = self.memory.readiness.get(group) else { return *target > 0 };
        if self.pattern.counts_nodes_that_go() {
            usize::try_from(*target).is_ok_and(|target| target > readiness.registered - readiness.starting.len())
        } else {
            self.upcoming(group) > 0
        }
    }

    fn is_scaling_up(&self, group: &str) -> bool {
        self.memory.requests.contains_key(group) && self.waits_for_nodes(group)
    }

    /// Returns true if few enough Nodes are unready for the loop to go on.
    pub(super) fn is_healthy(&self) -> bool {
        let (nodes, unready) = self.memory.total;
        !is_too_many(unready, nodes)
    }

    /// Returns true if a group may be increased: it isn't backed off, and few Nodes are missing beyond the increase
    /// under way.
    pub(super) fn is_safe(&self, group: &str) -> bool {
        if self.memory.backed_off.has(group, Instant::now()) {
            return false;
        }
        let Some(target) = self.memory.targets.get(group) else { return false };
        let target = usize::try_from(*target).unwrap_or_default();
        let asked_for = self.memory.requests.get(group).map_or(0, |request| request.by);
        let asked_for = usize::try_from(asked_for).unwrap_or_default();
        let Some(readiness) = self.memory.readiness.get(group) else { return target <= asked_for };
        let expected = target.saturating_sub(readiness.late).saturating_sub(asked_for);
        let there = readiness.ready + readiness.unready + readiness.starting.len();
        !is_too_many(expected.saturating_sub(readiness.ready), there)
    }

    /// Adds to the increase under way of a group, or takes from it.
    pub(super) async fn register_increase(&mut self, group: &str, by: i32) -> Result<()> {
        // Without options nothing is registered.
        let Some(options) = self.options(group, 1).await? else { return Ok(()) };
        let until = Instant::now() + options.provision;
        match self.memory.requests.get_mut(group) {
            None if by > 0 => {
                self.memory.requests.insert(group.to_owned(), Request { by, until });
            }
            None => {}
            Some(request) if request.by + by <= 0 => {
                self.memory.requests.remove(group);
            }
            Some(request) => {
                request.by += by;
                if by > 0 {
                    request.until = until;
                }
            }
        }
        Ok(())
    }

    pub(super) fn back_off(&mut self, group: &str) {
        self.memory.backed_off.fail(group, Instant::now(), self.settings.backoff);
    }

    /// Closes the increases that are finished or have taken too long. Some versions then revert the whole increase,
    /// even if most Nodes have joined.
    async fn close_requests(&mut self, input: &LoopInput) {
        self.memory.backed_off.forget(Instant::now(), self.settings.backoff);
        for (group, request) in self.memory.requests.clone() {
            if !self.waits_for_nodes(&group) {
                self.memory.requests.remove(&group);
            } else if request.until < Instant::now() {
                self.memory.requests.remove(&group);
                self.back_off(&group);
                self.note("took too long", &format!("{} of {group}", request.by));
                let is_there = input.groups.iter().any(|one| one.id == group);
                if self.pattern.takes_back()
                    && is_there
                    && let Err(status) = self.caller.decrease(&group, -request.by).await
                {
                    // An error here, unlike one of a correction, doesn't end the loop.
                    self.note("not taken back", &status);
                }
            }
        }
    }

    /// Backs off the groups that are growing and have instances with a new error.
    async fn find_failures(&mut self) -> Result<()> {
        let all = self.memory.instances.values().flatten().filter(|instance| has_failed(instance));
        let now: BTreeSet<_> = all.map(|instance| instance.id.clone()).collect();
        let known = replace(&mut self.memory.failed, now);
        for group in self.memory.instances.keys().cloned().collect::<Vec<_>>() {
            let mut by_code: BTreeMap<(String, i32), i32> = BTreeMap::new();
            let failed = self.memory.instances[&group].iter().filter(|one| has_failed(one) && !known.contains(&one.id));
            for error in failed.filter_map(|instance| instance.status.as_ref()?.error_info.as_ref()) {
                *by_code.entry((error.error_code.clone(), error.instance_error_class)).or_default() += 1;
            }
            for ((code, _), count) in by_code {
                if self.is_scaling_up(&group) {
                    self.note("failed", &format!("{count} of {group}: {code}"));
                    self.register_increase(&group, -count).await?;
                    self.back_off(&group);
                }
            }
        }
        Ok(())
    }

    /// Finds the groups with more Nodes than their size, or whose Nodes and expected instances are fewer than their
    /// size. Instances that are being deleted or have an error don't count. A group without Nodes and without expected
    /// instances is left alone.
    fn find_incorrect_sizes(&mut self) {
        let mut incorrect = BTreeMap::new();
        for (group, size) in &self.memory.targets {
            let Some(readiness) = self.memory.readiness.get(group) else { continue };
            let nodes = readiness.registered;
            let coming = readiness.unregistered + readiness.late;
            let expected = usize::try_from(*size).unwrap_or_default();
            if nodes <= expected && nodes + coming >= expected {
                continue;
            }
            let known = self.memory.incorrect.get(group).filter(|known| (known.0, known.1) == (nodes, *size));
            let since = known.map_or_else(Instant::now, |(.., since)| *since);
            incorrect.insert(group.clone(), (nodes, *size, since));
        }
        self.memory.incorrect = incorrect;
    }

    /// Deletes the instances past their provision time, down to the min size.
    pub(super) async fn give_up(&mut self, input: &LoopInput) {
        let mut late: BTreeMap<String, Vec<ExternalGrpcNode>> = BTreeMap::new();
        for (id, one) in &self.memory.unregistered {
            let Some((group, _)) = &one.of else { continue };
            let Ok(Some(options)) = self.options(group, 1).await else {
                self.note("nothing given up", &format!("no options of {group}"));
                return;
            };
            if one.since.elapsed() > options.provision {
                late.entry(group.clone()).or_default().push(fake(id, "unregistered"));
            }
        }
        let mut groups: Vec<_> = input.groups.iter().filter(|group| late.contains_key(&group.id)).collect();
        self.rng.shuffle(&mut groups);
        for group in groups {
            let Some(mut nodes) = late.remove(&group.id) else { continue };
            self.rng.shuffle(&mut nodes);
            let Ok(size) = self.caller.target_size(&group.id).await else { continue };
            nodes.truncate(usize::try_from(size - group.min_size).unwrap_or_default());
            if nodes.is_empty() {
                continue;
            }
            let deleted = self.delete_made_up("giving up", &group.id, &nodes).await;
            self.memory.invalid.insert(group.id.clone());
            if deleted == Some(false) {
                // An error ends the pass: other groups wait for the next loop.
                break;
            }
        }
    }

    /// Deletes the instances with an error, in every loop and below the min size too.
    pub(super) async fn delete_failed(&mut self, input: &LoopInput) {
        let mut any = false;
        let mut groups: Vec<_> = self.memory.instances.clone().into_iter().collect();
        self.rng.shuffle(&mut groups);
        for (group, instances) in groups {
            let failed = instances.iter().filter(|instance| has_failed(instance));
            let nodes: Vec<_> = failed.map(|instance| fake(&instance.id, "create-error")).collect();
            if !nodes.is_empty() {
                any |= self.delete_made_up("deleting what failed", &group, &nodes).await == Some(true);
            }
        }
        if any {
            self.recalculate(input).await;
        }
    }

    /// Deletes instances by their made-up Nodes. A refused delete is sent again in the next loop. Returns `None` if
    /// nothing was sent.
    async fn delete_made_up(&mut self, why: &str, group: &str, nodes: &[ExternalGrpcNode]) -> Option<bool> {
        self.options(group, 1).await.ok()??;
        let deleted = self.caller.delete(group, nodes).await;
        let names: Vec<_> = nodes.iter().map(|node| &node.name).collect();
        self.note(why, &format!("{names:?} of {group}: {deleted:?}"));
        if deleted.is_ok() {
            self.memory.invalid.insert(group.to_owned());
        }
        Some(deleted.is_ok())
    }

    /// Sets sizes that have long been incorrect to the number of Nodes. An answer without error counts as a correction,
    /// even if the size stays the same, and ends the loop for all groups. An error ends the loop before the remaining
    /// groups are corrected.
    pub(super) async fn correct_sizes(&mut self, input: &LoopInput) -> Result<bool> {
        let mut any = false;
        for group in &input.groups {
            let Some(&(nodes, size, since)) = self.memory.incorrect.get(&group.id) else { continue };
            let options = self.options(&group.id, 1).await?;
            let options = options.with_context(|| format!("no options of {}", group.id))?;
            let by = i32::try_from(nodes)? - size;
            if by < 0 && since.elapsed() > options.provision {
                self.note("correcting", &format!("{} by {by}", group.id));
                self.caller.decrease(&group.id, by).await.context("correcting a size")?;
                any = true;
            }
        }
        Ok(any)
    }
}

fn fake(instance: &str, reason: &str) -> ExternalGrpcNode {
    let annotations = [(REASON.to_owned(), reason.to_owned())].into_iter().collect();
    ExternalGrpcNode { annotations, ..made_up_node(instance) }
}

fn is_too_many(unready: usize, of: usize) -> bool {
    let (ok, part) = OK_UNREADY;
    #[expect(clippy::cast_precision_loss, reason = "so many Nodes are in no cluster")]
    let too_many = unready as f64 > part * of as f64;
    unready > ok && too_many
}

fn has_failed(instance: &Instance) -> bool {
    instance
        .status
        .as_ref()
        .is_some_and(|status| status.instance_state() == InstanceState::InstanceCreating && status.error_info.is_some())
}

/// Returns true if an instance is expected to become a Node.
fn is_expected(instance: &Instance) -> bool {
    instance
        .status
        .as_ref()
        .is_none_or(|status| status.instance_state() != InstanceState::InstanceDeleting && status.error_info.is_none())
}

/// The state that lasts from one loop to the next.
#[derive(Default)]
pub(super) struct Memory {
    /// The Nodes and Pods of the last successful list.
    pub(super) listed: Option<(Vec<CoreNode>, Vec<Pod>)>,
    /// The shape of a ready Node of each group, or of its template until the group has had a ready Node.
    pub(super) shapes: BTreeMap<String, Shape>,
    pub(super) seen_ready: BTreeSet<String>,
    /// The target sizes of the groups, as last answered.
    pub(super) targets: BTreeMap<String, i32>,
    /// The Nodes of each group in this loop, counted by state. A group without Nodes and without expected instances has
    /// no entry.
    pub(super) readiness: BTreeMap<String, Readiness>,
    /// The number of Nodes, and the number of unready ones.
    pub(super) total: (usize, usize),
    /// The instances of each group, as last answered.
    pub(super) instances: BTreeMap<String, Vec<Instance>>,
    pub(super) instances_since: Option<Instant>,
    /// The groups whose instances are fetched again in the next loop.
    pub(super) invalid: BTreeSet<String>,
    /// The instances without a Node, by id.
    pub(super) unregistered: BTreeMap<String, Unregistered>,
    /// The instances that had an error in the last loop.
    pub(super) failed: BTreeSet<String>,
    /// The groups whose size isn't the number of their Nodes: that number, the size, and the time since when.
    pub(super) incorrect: BTreeMap<String, (usize, i32, Instant)>,
    /// The groups that failed to grow.
    pub(super) backed_off: BackedOff,
    /// The increases whose Nodes have yet to join.
    pub(super) requests: BTreeMap<String, Request>,
    /// The time since which a Node has been unneeded, by name.
    pub(super) unneeded: BTreeMap<String, Instant>,
    /// The time until which a Node that couldn't be removed is skipped, by name.
    pub(super) unremovable: BTreeMap<String, Instant>,
    /// The Nodes that are being drained or deleted, by name.
    pub(super) deleting: BTreeMap<String, NodeDeletion>,
    /// The times of the last changes to groups and Nodes.
    pub(super) cooldown: Cooldown,
    /// True once `GPULabel` has succeeded, whose answer is cached for good.
    pub(super) knows_gpu_label: bool,
    pub(super) knows_gpu_types: bool,
}

/// The objects that one loop works on.
pub(super) struct LoopInput {
    pub(super) groups: Vec<NodeGroup>,
    pub(super) nodes: BTreeMap<String, Vec<CoreNode>>,
    /// The Nodes without a group.
    pub(super) others: Vec<CoreNode>,
    pub(super) pods: Vec<Pod>,
    /// The Nodes that were being deleted when the loop began.
    pub(super) deleting: BTreeMap<String, NodeDeletion>,
}

impl LoopInput {
    pub(super) fn nodes_of(&self, group: &str) -> &[CoreNode] {
        self.nodes.get(group).map(Vec::as_slice).unwrap_or_default()
    }

    pub(super) fn all_nodes(&self) -> impl Iterator<Item = &CoreNode> {
        self.nodes.values().flatten().chain(&self.others)
    }
}

/// An instance that has no Node and should have one.
#[derive(Clone, Debug)]
pub(super) struct Unregistered {
    pub(super) since: Instant,
    /// The group and its provision time, or `None` if the call failed.
    pub(super) of: Option<(String, Duration)>,
}

impl Unregistered {
    pub(super) fn is_late(&self) -> bool {
        self.of.as_ref().is_some_and(|(_, provision)| self.since.elapsed() > *provision)
    }
}

/// An increase whose Nodes have yet to join.
#[derive(Clone, Copy, Debug)]
pub(super) struct Request {
    pub(super) by: i32,
    pub(super) until: Instant,
}

/// The Nodes of a group, and the instances that should become one, counted by state.
#[derive(Clone, Debug, Default)]
pub(super) struct Readiness {
    pub(super) ready: usize,
    /// The number of Nodes that were ready and aren't any more.
    pub(super) unready: usize,
    /// The names of the Nodes that have never been ready and may still take a while.
    pub(super) starting: BTreeSet<String>,
    pub(super) registered: usize,
    pub(super) unregistered: usize,
    /// The number of instances past their provision time. They count as present, so no Node is expected for them.
    pub(super) late: usize,
}

impl Readiness {
    pub(super) fn add(&mut self, node: &CoreNode, startup: Duration) {
        self.registered += 1;
        if is_leaving(node) {
            // A Node that is being deleted counts as gone.
        } else if is_ready(node) {
            self.ready += 1;
        } else if is_younger(&node.metadata, startup) {
            self.starting.extend(node.metadata.name.clone());
        } else {
            self.unready += 1;
        }
    }
}

/// A Node that is being drained or deleted.
#[derive(Clone, Debug)]
pub(super) struct NodeDeletion {
    pub(super) group: String,
    pub(super) drains: bool,
}

pub(super) struct Ended {
    pub(super) node: String,
    pub(super) group: String,
    pub(super) result: Result<()>,
}

/// The times of the last changes to groups and Nodes.
#[derive(Debug, Default)]
pub(super) struct Cooldown {
    /// The last increase of a group.
    pub(super) increased: Option<Instant>,
    /// The last start of a removal.
    pub(super) deleted: Option<Instant>,
    /// The last failure of a removal.
    pub(super) failed: Option<Instant>,
    /// True for the rest of this loop, since Pods are too new to be considered.
    pub(super) this_loop: bool,
}

impl Cooldown {
    /// Returns the times of the last increase and of the last removal.
    pub(super) fn scaled(&self) -> (Option<Instant>, Option<Instant>) {
        (self.increased, self.deleted)
    }
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    duration: Duration,
    until: Instant,
    failed: Instant,
}

/// The groups that failed recently, by id.
#[derive(Debug, Default)]
pub(super) struct BackedOff(BTreeMap<String, Entry>);

impl BackedOff {
    /// Records a failure. A failure during the backoff keeps its duration; a later one doubles it.
    pub(super) fn fail(&mut self, group: &str, now: Instant, times: Backoff) {
        let duration = match self.0.get(group) {
            Some(known) if known.until < now => (known.duration * 2).min(times.max),
            Some(known) => known.duration,
            None => times.initial,
        };
        self.0.insert(group.to_owned(), Entry { duration, until: now + duration, failed: now });
    }

    /// Returns true if a group is backed off and must not be increased.
    pub(super) fn has(&self, group: &str, now: Instant) -> bool {
        self.0.get(group).is_some_and(|entry| entry.until >= now)
    }

    /// Forgets groups whose last failure is longer ago than the reset time.
    pub(super) fn forget(&mut self, now: Instant, times: Backoff) {
        self.0.retain(|_, entry| entry.failed + times.reset >= now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMES: Backoff = Backoff {
        initial: Duration::from_secs(300),
        max: Duration::from_secs(1800),
        reset: Duration::from_secs(3 * 3600),
    };

    #[test]
    fn failures_double_it_up_to_a_limit_and_times_without_any_end_it() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut groups = BackedOff::default();
        groups.fail("a", at(0), TIMES);
        // A second increase that was under way at the same time fails too.
        groups.fail("a", at(10), TIMES);
        assert!(groups.has("a", at(310)));
        assert!(!groups.has("a", at(311)));
        assert!(!groups.has("b", at(0)));
        let mut now = 311;
        for duration in [600, 1200, 1800, 1800] {
            groups.fail("a", at(now), TIMES);
            assert!(groups.has("a", at(now + duration)));
            now += duration + 1;
            assert!(!groups.has("a", at(now)), "longer than {duration}");
        }
        groups.forget(at(now), TIMES);
        groups.fail("a", at(now), TIMES);
        assert!(groups.has("a", at(now + 1800)));
        now += 3 * 3600 + 1;
        groups.forget(at(now), TIMES);
        groups.fail("a", at(now), TIMES);
        assert!(!groups.has("a", at(now + 301)));
    }
}
