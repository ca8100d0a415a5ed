//! What the driver makes of the state of groups before it decides anything: which instances have no Node, which increases came to their
//! end, and what has to be taken back.

use std::{
    collections::{BTreeMap, BTreeSet},
    mem::replace,
    time::{Duration, Instant},
};

use anyhow::Result;

use super::{
    driver::{Driver, Look, provider_id},
    pods::is_ready,
};
use crate::{
    proto::{ExternalGrpcNode, Instance, NodeGroup, instance_status::InstanceState},
    provider::made_up_node,
};

/// Says of a Node that is made up why it was.
const REASON: &str = "k8s.io/cluster-autoscaler/fake-node-reason";

/// After that long all instances are asked for again, whatever their group does.
const INSTANCES_LAST: Duration = Duration::from_secs(120);

/// An instance that has no Node and should have one.
#[derive(Clone, Debug)]
pub(super) struct Unregistered {
    group: String,
    since: Instant,
    /// How long it may take.
    provision: Duration,
}

impl Unregistered {
    fn is_late(&self) -> bool {
        self.since.elapsed() > self.provision
    }
}

impl Driver {
    /// Learns what has become of Nodes, instances and increases since the last loop.
    pub(super) async fn update(&mut self, look: &Look) -> Result<()> {
        self.refresh_instances(&look.groups).await;
        for (group, nodes) in &look.nodes {
            self.options(group, nodes.len() * self.pattern.questions_about_start()).await?;
        }
        self.find_unregistered(look).await?;
        self.close_increases(look).await?;
        self.find_failures().await?;
        self.find_incorrect_sizes(look);
        Ok(())
    }

    /// Of groups that are scaling up, and of those that aren't known.
    async fn refresh_instances(&mut self, groups: &[NodeGroup]) {
        let memory = &mut self.memory;
        if memory.instances_since.is_none_or(|since| since.elapsed() > INSTANCES_LAST) {
            memory.instances_since = Some(Instant::now());
            memory.instances.clear();
        }
        let ids: BTreeSet<_> = groups.iter().map(|group| &group.id).collect();
        memory.instances.retain(|id, _| ids.contains(id) && !memory.increases.contains_key(id));
        let unknown = groups.iter().filter(|group| !memory.instances.contains_key(&group.id));
        let unknown: Vec<_> = unknown.cloned().collect();
        self.ask_for_instances(&unknown).await;
    }

    /// Instances that should have a Node: it is asked of which group such a Node would be.
    async fn find_unregistered(&mut self, look: &Look) -> Result<()> {
        let registered: BTreeSet<_> = look.nodes.values().flatten().filter_map(provider_id).collect();
        let instances = self.memory.instances.values().flatten().filter(|instance| is_expected(instance));
        let missing: Vec<_> =
            instances.map(|instance| instance.id.clone()).filter(|id| !registered.contains(id)).collect();
        let mut unregistered = BTreeMap::new();
        for id in missing {
            let Some(group) = self.caller.group_of(&fake(&id, "unregistered")).await? else { continue };
            let Some(options) = self.options(&group.id, 1).await? else { continue };
            let since = self.memory.unregistered.get(&id).map_or_else(Instant::now, |known| known.since);
            unregistered.insert(id, Unregistered { group: group.id, since, provision: options.provision });
        }
        self.memory.unregistered = unregistered;
        Ok(())
    }

    /// Increases that have come to their end, or have taken too long. Some versions take back as much then, even if most of it came.
    async fn close_increases(&mut self, look: &Look) -> Result<()> {
        for (group, (by, until)) in self.memory.increases.clone() {
            let ready = look.nodes_of(&group).iter().filter(|node| is_ready(node)).count();
            let settled = ready + self.long_unregistered(&group);
            if look.sizes.get(&group).is_none_or(|size| usize::try_from(*size).is_ok_and(|size| settled >= size)) {
                self.memory.increases.remove(&group);
            } else if until < Instant::now() {
                self.memory.increases.remove(&group);
                self.memory.backed_off.insert(group.clone());
                self.note("took too long", &format!("{by} of {group}"));
                if self.pattern.takes_back()
                    && let Err(status) = self.caller.decrease(&group, -by).await
                {
                    // Unlike a correction, it doesn't end the loop.
                    self.note("not taken back", &status);
                }
            }
        }
        Ok(())
    }

    /// Groups that were to grow and have instances that say, as they didn't before, that they couldn't be made are asked no more.
    async fn find_failures(&mut self) -> Result<()> {
        let all = self.memory.instances.values().flatten().filter(|instance| has_failed(instance));
        let now: BTreeSet<_> = all.map(|instance| instance.id.clone()).collect();
        let known = replace(&mut self.memory.failed, now);
        let mut increases = BTreeMap::new();
        for (group, (by, until)) in self.memory.increases.clone() {
            let instances = self.memory.instances.get(&group).into_iter().flatten();
            let failed = instances.filter(|instance| has_failed(instance) && !known.contains(&instance.id)).count();
            if failed > 0 {
                self.options(&group, 1).await?;
                self.memory.backed_off.insert(group.clone());
            }
            let left = by.saturating_sub(i32::try_from(failed)?);
            if left > 0 {
                increases.insert(group, (left, until));
            }
        }
        self.memory.increases = increases;
        Ok(())
    }

    /// How many instances of a group have had no Node for too long. Nodes are not waited for in their place.
    pub(super) fn long_unregistered(&self, group: &str) -> usize {
        let all = self.memory.unregistered.values();
        all.filter(|one| one.group == group && one.is_late()).count()
    }

    /// Groups with more Nodes than their size, or with fewer and nothing that would become one. Instances that are being deleted or say
    /// that they failed are neither. A group with no Node and nothing that would become one is left alone.
    fn find_incorrect_sizes(&mut self, look: &Look) {
        let mut incorrect = BTreeMap::new();
        for (group, size) in &look.sizes {
            let nodes = look.nodes_of(group).len();
            let coming = self.memory.unregistered.values().filter(|one| one.group == *group).count();
            let expected = usize::try_from(*size).unwrap_or_default();
            if nodes + coming == 0 || (nodes <= expected && nodes + coming >= expected) {
                continue;
            }
            let known = self.memory.incorrect.get(group).filter(|known| (known.0, known.1) == (nodes, *size));
            let since = known.map_or_else(Instant::now, |(.., since)| *since);
            incorrect.insert(group.clone(), (nodes, *size, since));
        }
        self.memory.incorrect = incorrect;
    }

    /// Deletes instances that have had no Node for too long, as far as the minimum allows: at the minimum they are left as they are.
    pub(super) async fn give_up(&mut self, look: &Look) -> Result<()> {
        let mut late: BTreeMap<String, Vec<ExternalGrpcNode>> = BTreeMap::new();
        for (id, one) in &self.memory.unregistered {
            self.options(&one.group, 1).await?;
            if one.is_late() {
                late.entry(one.group.clone()).or_default().push(fake(id, "unregistered"));
            }
        }
        for group in &look.groups {
            let Some(mut nodes) = late.remove(&group.id) else { continue };
            let spare = self.caller.target_size(&group.id).await? - group.min_size;
            nodes.truncate(usize::try_from(spare).unwrap_or_default());
            if nodes.is_empty() {
                continue;
            }
            let deleted = self.delete_made_up("giving up", &group.id, &nodes).await?;
            self.memory.instances.remove(&group.id);
            if !deleted {
                // Other groups have to wait for the next loop.
                break;
            }
        }
        Ok(())
    }

    /// Deletes instances that say that they couldn't be made, in every loop and whatever the minimum.
    pub(super) async fn delete_failed(&mut self, look: &Look) -> Result<()> {
        let mut any = false;
        for (group, instances) in self.memory.instances.clone() {
            let failed = instances.iter().filter(|instance| has_failed(instance));
            let nodes: Vec<_> = failed.map(|instance| fake(&instance.id, "create-error")).collect();
            if !nodes.is_empty() {
                any |= self.delete_made_up("deleting what failed", &group, &nodes).await?;
            }
        }
        if any {
            self.sizes(&look.groups).await?;
        }
        Ok(())
    }

    /// One that is refused is named again in the next loop.
    async fn delete_made_up(&mut self, why: &str, group: &str, nodes: &[ExternalGrpcNode]) -> Result<bool> {
        self.options(group, 1).await?;
        let deleted = self.caller.delete(group, nodes).await;
        let names: Vec<_> = nodes.iter().map(|node| &node.name).collect();
        self.note(why, &format!("{names:?} of {group}: {deleted:?}"));
        if deleted.is_ok() {
            self.memory.instances.remove(group);
        }
        Ok(deleted.is_ok())
    }

    /// Sizes that have long been incorrect are made the number of Nodes. An answer that is no error counts as a correction, whatever came
    /// of it, and ends the loop for all groups; so does an error, before the groups that follow.
    pub(super) async fn correct_sizes(&mut self, look: &Look) -> Result<bool> {
        let mut any = false;
        for group in &look.groups {
            let Some(&(nodes, size, since)) = self.memory.incorrect.get(&group.id) else { continue };
            let Some(options) = self.options(&group.id, 1).await? else { continue };
            let by = i32::try_from(nodes)? - size;
            if by < 0 && since.elapsed() > options.provision {
                self.note("correcting", &format!("{} by {by}", group.id));
                self.caller.decrease(&group.id, by).await?;
                any = true;
            }
        }
        Ok(any)
    }
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

/// Whether it is going to have a Node.
fn is_expected(instance: &Instance) -> bool {
    instance
        .status
        .as_ref()
        .is_none_or(|status| status.instance_state() != InstanceState::InstanceDeleting && status.error_info.is_none())
}
