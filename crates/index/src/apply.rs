//! Applies each change to the objects and their relations, all under one lock. Nothing here may wait.

use std::sync::Arc;

use jiff::Timestamp;
use parking_lot::RwLockWriteGuard;
use rules::capi::{Machine, Node, ObjectKey, ScalableKind, ScalableResource};
use rules::{Excluded, Exclusion, GroupId, Problem, ProblemKind, Shortage};

use super::{
    change::Change,
    log::Notice,
    relations::{ByKey, Tail, TemplateKey, cluster_key, holder_key, id_of, owner_of, template_key},
    remembered_groups::{bootstrap_key, is_made_differently},
    state::{Index, Inner, LiveState},
    templates::Template,
};

/// The maximum number of groups that one change drops, so that its cost stays bounded after many deletions.
const DROPPED_AT_ONCE: usize = 4;

/// Evaluates all groups that are due. Readers and writers that wait get the lock in between.
pub(super) fn evaluate_all_due(inner: &mut RwLockWriteGuard<'_, Inner>) {
    while inner.live.evaluate_some_due() {
        RwLockWriteGuard::bump(inner);
    }
}

impl Index {
    /// Applies a change, and logs its effects on groups.
    pub fn apply(&self, change: Change) {
        self.log(self.apply_and_take_notices(change));
    }

    /// Applies a change, and returns its effects on groups.
    pub fn apply_and_take_notices(&self, change: Change) -> Vec<Notice> {
        let mut inner = self.inner.write();
        inner.live.apply(change);
        evaluate_all_due(&mut inner);
        let live = &mut inner.live;
        if std::mem::take(&mut live.wanted_changed) {
            self.wanted.send_replace(());
        }
        if !live.sizes_to_observe.is_empty() {
            self.written_sizes.send_replace(());
        }
        if !live.nodes_to_look_at.is_empty() {
            self.nodes_to_look_at.send_replace(());
        }
        live.take_notices()
    }
}

impl LiveState {
    pub(super) fn apply(&mut self, change: Change) {
        self.drop_deleted();
        match change {
            Change::Cluster(cluster) => {
                let key = cluster.meta.key.clone();
                let old = self.clusters.insert(key.clone(), Arc::clone(&cluster));
                // The rules read no other field, and a Cluster's status changes often.
                if old.as_ref().is_none_or(|old| old.topology != cluster.topology) {
                    self.update_rollouts(self.groups_by_cluster.to_vec(&key));
                }
                if old.is_none_or(|old| old.paused != cluster.paused) {
                    self.evaluate_all(self.groups_by_cluster.to_vec(&key));
                }
            }
            Change::ClusterGone(key) => {
                self.clusters.remove(&key);
                self.update_rollouts(self.groups_by_cluster.to_vec(&key));
                self.evaluate_all(self.groups_by_cluster.to_vec(&key));
            }
            Change::Scalable(object) => {
                self.set_scalable(&GroupId::of(object.kind, &object.meta), &object);
            }
            Change::ScalableGone(id) => self.remove_scalable(&id),
            Change::ScalableUndecodable(id, error) => {
                let problem = Problem::new(
                    ProblemKind::Undecodable,
                    format!(
                        "the object can't be read: {error}; correct the field, or report it if the API server accepts it"
                    ),
                );
                self.set_undecodable(&id, problem);
            }
            Change::Machine(machine) => self.set_machine(&machine),
            Change::MachineGone(key) => self.remove_machine(&key),
            Change::Node(node) => {
                let name = node.meta.key.name.clone();
                let old = self.nodes.insert(name.clone(), Arc::clone(&node));
                match node.created.time().filter(|_| node.is_unready) {
                    Some(created) => self.unready_nodes.insert(name.clone(), created),
                    None => self.unready_nodes.remove(&name),
                };
                self.relate_node(old.as_ref(), Some(&node));
                self.drop_counts_of_node(old.as_deref(), Some(&node));
                self.node_changed(&name);
            }
            Change::NodeGone(name) => {
                for pool in self.pools_by_node.to_vec(name.as_str()) {
                    self.remember_leaving_pool(&pool, [&name].into_iter());
                }
                let old = self.nodes.remove(&name);
                self.unready_nodes.remove(&name);
                self.relate_node(old.as_ref(), None);
                self.drop_counts_of_node(old.as_deref(), None);
                self.node_changed(&name);
            }
            Change::Template(kind, template) => {
                let key = (kind, template.meta.key.clone());
                self.set_template(&key, Some(Ok(template)));
            }
            Change::TemplateGone(kind, key) => self.set_template(&(kind, key), None),
            Change::TemplateUndecodable(kind, key, error) => self.set_template(&(kind, key), Some(Err(error))),
            Change::Kind(kind, state) => {
                if self.kinds.insert(kind.clone(), state.clone()).as_ref() != Some(&state) {
                    self.evaluate_and_remember(self.groups_by_kind.to_vec(&kind));
                }
            }
            Change::KindGone(kind) => {
                if self.kinds.remove(&kind).is_some() {
                    self.evaluate_all(self.groups_by_kind.to_vec(&kind));
                }
            }
            Change::ForbiddenNamespaces(now) => {
                let before = std::mem::replace(&mut self.forbidden_namespaces, now);
                let now = &self.forbidden_namespaces;
                let concerns = |id: &&GroupId| before.contains(&*id.key.namespace) != now.contains(&*id.key.namespace);
                self.evaluate_all(self.groups.keys().filter(concerns).cloned().collect());
            }
            Change::Remembered(templates) => self.memory_changed(&templates),
            Change::Prices(prices) => {
                self.rules.prices = prices;
                self.evaluate_all(self.groups.keys().cloned().collect());
            }
        }
    }

    fn set_template(&mut self, key: &TemplateKey, template: Option<Template>) {
        if !self.shares_templates {
            self.templates.set(&key.0, &key.1, template);
        }
        self.evaluate_and_remember(self.groups_by_template.to_vec(key));
    }

    /// Evaluates groups after a change of a template, whose Nodes may have come before it.
    fn evaluate_and_remember(&mut self, groups: Vec<GroupId>) {
        self.evaluate_all(groups.clone());
        for owner in groups {
            self.remember_owner(&owner);
        }
    }

    fn set_scalable(&mut self, id: &GroupId, object: &Arc<ScalableResource>) {
        let group = self.groups.entry(id.clone()).or_default();
        let old = group.object.take();
        group.set_object(Arc::clone(object));
        self.note_pool_shortage(id, old.as_deref(), object);
        self.relate(id, old.as_deref(), Some(object));
        self.update_resources_of_owner(id, old.as_deref(), Some(object));
        self.update_labels_of_owner(old.as_deref(), Some(object));
        self.check_size(id_of(object), old.as_deref(), object);
        // `relate` resamples the groups of a MachineSet; a MachinePool may have other Nodes now.
        if id.kind == ScalableKind::MachinePool || (old.is_none() && id.kind == ScalableKind::MachineDeployment) {
            self.resample(id);
        }
        self.update_rollouts([old.as_deref(), Some(object)].into_iter().flatten().map(id_of).collect());
        self.evaluate(id);
        let left = old.iter().flat_map(|old| &old.node_names).filter(|name| !object.node_names.contains(name));
        self.remember_leaving_pool(id, left);
        if old.is_none_or(|old| is_made_differently(&old, object)) {
            self.remember_owner(id);
        }
    }

    /// Marks an object as undecodable. It isn't a group until it decodes, but its last version keeps its relations:
    /// without its MachineSet, a MachineDeployment's Machines would count as missing replicas, and be scaled down.
    fn set_undecodable(&mut self, id: &GroupId, problem: Problem) {
        let group = self.groups.entry(id.clone()).or_default();
        group.deleted_at = None;
        let excluded = Some(Excluded::by(Exclusion::Undecodable, problem));
        if group.excluded != excluded {
            group.excluded = excluded;
            self.to_log.insert(id.clone());
            self.membership_changed = true;
        }
        self.set_wanted(id, None, None);
    }

    fn remove_scalable(&mut self, id: &GroupId) {
        let Some(group) = self.groups.get_mut(id) else { return };
        let old = group.object.take();
        let gone = Some(Exclusion::Gone.into());
        if group.excluded != gone {
            group.excluded = gone;
            self.to_log.insert(id.clone());
            self.membership_changed = true;
        }
        let keep = group.served.is_some();
        if keep {
            self.deleted_groups.note(id, group);
        }
        self.relate(id, old.as_deref(), None);
        self.update_resources_of_owner(id, old.as_deref(), None);
        self.update_labels_of_owner(old.as_deref(), None);
        self.set_wanted(id, None, None);
        self.counts.remove(id);
        if !keep {
            self.groups.remove(id);
        }
        self.update_rollouts(old.as_deref().map(id_of).into_iter().collect());
    }

    /// Moves the relations of a MachineDeployment, MachineSet or MachinePool from its old to its new version.
    fn relate(&mut self, id: &GroupId, old: Option<&ScalableResource>, new: Option<&ScalableResource>) {
        if let Some(old) = old {
            self.groups_by_cluster.remove(&cluster_key(old), id);
            for provider_id in &old.provider_ids {
                self.holders.remove_pool(provider_id, id);
            }
            for node in &old.node_names {
                self.pools_by_node.remove(node.as_str(), id);
            }
        }
        if let Some(new) = new {
            self.groups_by_cluster.insert(cluster_key(new), id.clone());
            for provider_id in &new.provider_ids {
                self.holders.insert_pool(provider_id, id);
            }
            for node in &new.node_names {
                self.pools_by_node.insert(node.clone(), id.clone());
            }
        }
        self.relate_template(id, old.and_then(template_key), new.and_then(template_key));
        if self.memory.is_some() {
            self.relate_template(id, old.and_then(bootstrap_key), new.and_then(bootstrap_key));
        }
        if old.map(|old| &old.provider_ids) != new.map(|new| &new.provider_ids) {
            self.counts.clear();
        }
        if id.kind != ScalableKind::MachineSet {
            return;
        }
        let (from, to) = (old.map(id_of), new.map(id_of));
        if from == to {
            return;
        }
        // The Machines of this set belong to another group now.
        self.counts.clear();
        for (group, joins) in [(from, false), (to, true)] {
            let Some(group) = group else { continue };
            if group.kind == ScalableKind::MachineDeployment {
                if joins {
                    self.sets_by_deployment.insert(group.key.clone(), id.key.clone());
                } else {
                    self.sets_by_deployment.remove(&group.key, &id.key);
                }
            }
            self.resample(&group);
        }
    }

    fn relate_template(&mut self, id: &GroupId, old: Option<TemplateKey>, new: Option<TemplateKey>) {
        if let Some(old) = old {
            self.groups_by_kind.remove(&old.0, id);
            self.groups_by_template.remove(&old, id);
        }
        if let Some(new) = new {
            self.groups_by_kind.insert(new.0.clone(), id.clone());
            self.groups_by_template.insert(new, id.clone());
        }
    }

    fn set_machine(&mut self, machine: &Arc<Machine>) {
        let old = self.machines.replace(ByKey(Arc::clone(machine))).map(|ByKey(old)| old);
        self.note_shortage(old.as_deref(), machine);
        if machine.node_name.is_some() && machine.provider_id.is_none() && !machine.deleting {
            self.unidentified.insert(machine.meta.key.clone());
        } else {
            self.unidentified.remove(&machine.meta.key);
        }
        if let Some(old) = &old {
            self.unrelate_machine(old, Some(machine));
        }
        self.holders.insert_machine(machine);
        if let Some(node) = &machine.node_name {
            self.machines_by_node.insert(node.clone(), ByKey(Arc::clone(machine)));
        }
        if let Some(owner) = owner_of(machine) {
            let siblings = self.machines_by_owner.entry(owner.clone()).or_default();
            let is_first = siblings.is_empty();
            siblings.replace(ByKey(Arc::clone(machine)));
            if is_first {
                self.pool_machines_changed(owner);
            }
        }
        self.drop_counts_of_machine(old.as_deref(), Some(machine));
        self.machine_changed(machine);
    }

    fn remove_machine(&mut self, key: &ObjectKey) {
        if let Some(ByKey(old)) = self.machines.take(key) {
            self.shortages.remove(key);
            self.unidentified.remove(key);
            self.failed_deletes.remove(key);
            self.unrelate_machine(&old, None);
            self.drop_counts_of_machine(Some(&old), None);
        }
    }

    /// Removes the relations of `old` that `new` doesn't share.
    fn unrelate_machine(&mut self, old: &Arc<Machine>, new: Option<&Machine>) {
        if let Some(provider_id) = &old.provider_id
            && new.is_none_or(|new| new.provider_id.as_ref() != Some(provider_id))
        {
            self.holders.remove_machine(old);
        }
        if let Some(node) = &old.node_name
            && new.is_none_or(|new| new.node_name.as_ref() != Some(node))
        {
            self.machines_by_node.remove(node, &ByKey(Arc::clone(old)));
        }
        if let Some(owner) = owner_of(old)
            && new.is_none_or(|new| new.owner != old.owner)
        {
            if let Some(siblings) = self.machines_by_owner.get_mut(&owner) {
                siblings.remove(&old.meta.key);
                if siblings.is_empty() {
                    self.machines_by_owner.remove(&owner);
                    self.pool_machines_changed(owner);
                }
            }
            self.update_resources_without(old);
            self.update_sample_without(old);
        }
    }

    /// Evaluates a MachinePool after it got its first Machine or lost its last one: labels reach its Nodes by them.
    fn pool_machines_changed(&mut self, (kind, key): (ScalableKind, ObjectKey)) {
        if kind == ScalableKind::MachinePool {
            self.evaluate(&GroupId::new(kind, key));
        }
    }

    /// Moves the relations of a Node from its old to its new version.
    fn relate_node(&mut self, old: Option<&Arc<Node>>, new: Option<&Arc<Node>>) {
        if let Some(old) = old {
            if let Some(id) = &old.provider_id {
                self.nodes_by_provider_id.remove(holder_key(id), &ByKey(Arc::clone(old)));
            }
            if let Some(machine) = &old.machine {
                self.nodes_by_machine.remove(machine, &ByKey(Arc::clone(old)));
            }
        }
        if let Some(new) = new {
            if let Some(id) = &new.provider_id {
                self.nodes_by_provider_id.insert(Tail::of(id), ByKey(Arc::clone(new)));
            }
            if let Some(machine) = &new.machine {
                self.nodes_by_machine.insert(machine.clone(), ByKey(Arc::clone(new)));
            }
        }
    }

    fn drop_deleted(&mut self) {
        for _ in 0..DROPPED_AT_ONCE {
            let Some((since, id)) = self.deleted_groups.take_old() else { return };
            if self.groups.get(&id).is_some_and(|group| group.deleted_at == Some(since)) {
                self.groups.remove(&id);
                self.cheapest_units.take();
            }
        }
    }
}

// The times since when Machines and MachinePools lack capacity, recorded as they change, so that a read compares times
// and parses no message.

impl LiveState {
    /// Records the lack of capacity of a Machine that was added or changed.
    fn note_shortage(&mut self, old: Option<&Machine>, machine: &Machine) {
        let key = &machine.meta.key;
        // A Machine created again under the same name is another one.
        let old = old.filter(|old| old.meta.uid == machine.meta.uid);
        let known = self.shortages.get(key).copied().filter(|_| old.is_some());
        let condition = machine.infrastructure_not_ready();
        match Shortage::by(&self.rules.capacity_words, condition, known, old.is_some(), Timestamp::now()) {
            Some(shortage) => self.shortages.insert(key.clone(), shortage),
            None => self.shortages.remove(key),
        };
    }

    /// Records the lack of capacity of a MachinePool that was added or changed. Its condition counts only while
    /// instances are missing: a provider may leave it until the next change, and an increase has to be tried anew.
    fn note_pool_shortage(&mut self, id: &GroupId, old: Option<&ScalableResource>, pool: &ScalableResource) {
        let Some(group) = self.groups.get_mut(id).filter(|_| id.kind == ScalableKind::MachinePool) else { return };
        let old = old.filter(|old| old.meta.uid == pool.meta.uid);
        let known = group.shortage.filter(|_| old.is_some());
        let listed = i32::try_from(pool.provider_ids.len()).unwrap_or(i32::MAX);
        let is_short = pool.replicas.is_some_and(|replicas| replicas > listed);
        let condition = pool.infrastructure_not_ready.as_ref().filter(|_| is_short);
        group.shortage = Shortage::by(&self.rules.capacity_words, condition, known, old.is_some(), Timestamp::now());
    }
}
