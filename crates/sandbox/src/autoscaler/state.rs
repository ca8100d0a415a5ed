//! The state of groups before any decision: instances without a Node, finished increases, and sizes to correct.

use std::{
    collections::{BTreeMap, BTreeSet},
    mem::{replace, take},
    time::Duration,
};

use anyhow::{Context as _, Result};
use futures::future::join_all;
use proto::{ExternalGrpcNode, Instance, NodeGroup, instance_status::InstanceState};
use tokio::time::Instant;

use super::{
    caller::{made_up_node, provider_id},
    driver::Driver,
    memory::{LoopInput, Readiness, Request, Unregistered},
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

    /// Backs off a group that failed to grow.
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

/// Returns the made-up Node of an instance without one.
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
