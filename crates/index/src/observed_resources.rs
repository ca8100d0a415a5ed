//! Resources of observed Nodes, recorded for future Nodes. The records are keyed by the templates of the Nodes and by
//! group. A record remains after its Node is deleted, until another Node is observed or the group no longer uses these
//! templates. A Node that is being deleted or not ready must never be observed: it reports fewer resources than it has.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use capi::{KindRef, Machine, ObjectKey, ScalableKind, ScalableResource};
use nodegroup::{GroupId, ObservedResources};

use super::{
    live_state::LiveState,
    observations::{Observation, ObservedNode, Templates, rank},
    relation::{group_of, owner_of},
};

impl LiveState {
    /// Updates the observations after a Machine or its Node was added, changed or deleted.
    pub(super) fn observe_resources(&mut self, machine: &Machine) {
        let Some((ScalableKind::MachineSet, owner)) = owner_of(machine) else { return };
        let owner = GroupId::new(ScalableKind::MachineSet, owner);
        let Some(set) = self.groups.get(&owner).and_then(|group| group.object.as_ref()) else { return };
        let (templates, id) = (Templates::of(set), group_of(set));
        let known = self.resources.get(&templates, &id);
        let changed = match (self.observed_node(&machine.meta.key), known) {
            (Some((_, node)), Some(known)) if known.source == machine.meta.key => {
                !known.live || !known.says_the_same_as(node)
            }
            (Some(observed_node), Some(known)) => !known.live || rank(observed_node) < known.rank(),
            (Some(_), None) => true,
            (None, Some(known)) => known.live && known.source == machine.meta.key,
            (None, None) => false,
        };
        if changed {
            self.observe_again(&templates, &id);
        }
    }

    /// Updates the observations after a Machine has left its owner.
    pub(super) fn machine_left(&mut self, machine: &Machine) {
        let Some((ScalableKind::MachineSet, owner)) = owner_of(machine) else { return };
        let owner = GroupId::new(ScalableKind::MachineSet, owner);
        let Some(set) = self.groups.get(&owner).and_then(|group| group.object.as_ref()) else { return };
        let (templates, id) = (Templates::of(set), group_of(set));
        if self.resources.get(&templates, &id).is_some_and(|known| known.live && known.source == machine.meta.key) {
            self.observe_again(&templates, &id);
        }
    }

    /// Returns the Node of a Machine, if it may be observed.
    fn observed_node(&self, machine: &ObjectKey) -> Option<ObservedNode<'_>> {
        let machine = self.machines.get(machine).filter(|machine| !machine.deleting)?;
        let node = self.node_of(machine).filter(|node| node.resources.is_some())?;
        Some((&machine.meta.key, node))
    }

    /// Updates the observations after a MachinePool or one of its Nodes was added, changed or deleted.
    pub(super) fn observe_pool_resources(&mut self, id: &GroupId) {
        let Some(pool) = self.groups.get(id).and_then(|group| group.object.as_ref()) else { return };
        self.observe_again(&Templates::of(pool), id);
    }

    /// Updates the observations after a MachineDeployment, MachineSet or MachinePool was added, changed or deleted: its
    /// Nodes may now belong to other templates, to another group, or to none.
    pub(super) fn owner_changed(
        &mut self,
        id: &GroupId,
        old: Option<&ScalableResource>,
        new: Option<&ScalableResource>,
    ) {
        let place = |object: &ScalableResource| (Templates::of(object), group_of(object));
        let (from, to) = (old.map(place), new.map(place));
        if from != to {
            for (templates, group) in from.iter().chain(&to) {
                self.observe_again(templates, group);
            }
        } else if id.kind == ScalableKind::MachinePool {
            self.observe_pool_resources(id);
        }
    }

    /// Observes the group's Nodes with these templates again, and evaluates the groups that this affects.
    fn observe_again(&mut self, templates: &Templates, id: &GroupId) {
        let best = self.observed_nodes(templates, id).min_by_key(|observed_node| rank(*observed_node));
        let known = self.resources.get(templates, id);
        let observation = best.and_then(|(source, node)| {
            let resources = node.resources.clone()?;
            let too_early =
                known.is_some_and(|known| resources.extended() < known.resources.extended() && !resources.is_settled());
            let observed = ObservedResources::of(node, id.clone()).filter(|_| !too_early)?;
            Some(Observation { observed: Arc::new(observed), source: source.clone(), resources, live: true })
        });
        let best = best.map(|(_, node)| Arc::clone(node));
        if let (Some(node), Some(observation)) = (&best, &observation)
            && self.resources.see_huge_pages(node, &observation.observed)
        {
            self.evaluate_all(self.groups.keys().cloned().collect());
        }
        let borrowed = self.resources.borrowed(templates).cloned();
        let changed = match observation {
            Some(observation) => self.replace(templates, id, observation),
            None if best.is_some() || self.has_templates(templates, id) => self.keep_last(templates, id),
            None => self.resources.remove(templates, id),
        };
        if changed {
            self.resources_changed(templates, id, borrowed.as_ref());
        }
    }

    fn replace(&mut self, templates: &Templates, id: &GroupId, observation: Observation) -> bool {
        let groups = self.resources.by_templates.entry(templates.clone()).or_default();
        let same = |old: &Observation| old.live && old.observed == observation.observed;
        let changed = !groups.get(id).is_some_and(same);
        groups.insert(id.clone(), observation);
        changed
    }

    /// Keeps the last observation, but as not live: its Node is gone or can't be observed now.
    fn keep_last(&mut self, templates: &Templates, id: &GroupId) -> bool {
        let groups = self.resources.by_templates.get_mut(templates);
        let Some(observation) = groups.and_then(|groups| groups.get_mut(id)) else { return false };
        std::mem::replace(&mut observation.live, false)
    }

    /// Returns true if a group, or a MachineSet of it, has these templates.
    fn has_templates(&self, templates: &Templates, id: &GroupId) -> bool {
        let object = self.groups.get(id).and_then(|group| group.object.as_deref());
        object.is_some_and(|object| Templates::of(object) == *templates) || self.owners(templates, id).next().is_some()
    }

    /// Returns the MachineSets of a group with these templates, or its MachinePool.
    fn owners<'a>(
        &'a self,
        templates: &'a Templates,
        id: &'a GroupId,
    ) -> impl Iterator<Item = &'a Arc<ScalableResource>> {
        let own = (id.kind != ScalableKind::MachineDeployment).then(|| id.clone());
        let sets = (id.kind == ScalableKind::MachineDeployment).then(|| self.sets_by_deployment.get(&id.key));
        let sets = sets.into_iter().flatten().map(|set| GroupId::new(ScalableKind::MachineSet, set.clone()));
        own.into_iter()
            .chain(sets)
            .filter_map(|owner| self.groups.get(&owner)?.object.as_ref())
            .filter(move |owner| Templates::of(owner) == *templates && group_of(owner) == *id)
    }

    fn observed_nodes<'a>(
        &'a self,
        templates: &'a Templates,
        id: &'a GroupId,
    ) -> impl Iterator<Item = ObservedNode<'a>> {
        self.owners(templates, id).flat_map(|owner| {
            let machines = self.machines_by_owner.get(&(owner.kind, owner.meta.key.clone()));
            let machines =
                machines.filter(|_| owner.kind == ScalableKind::MachineSet).into_iter().flat_map(BTreeMap::values);
            let of_machines = machines.filter_map(|machine| self.observed_node(&machine.meta.key));
            let nodes = owner.node_names.iter().filter_map(|name| self.nodes.get(name));
            let of_pool = nodes.filter(|node| node.resources.is_some()).map(|node| (&node.meta.key, node));
            of_machines.chain(of_pool)
        })
    }

    /// Evaluates the group, and all borrowers of these templates if the observation that they borrow is no longer
    /// `borrowed`.
    fn resources_changed(&mut self, templates: &Templates, id: &GroupId, borrowed: Option<&Arc<ObservedResources>>) {
        let is_same = self.resources.borrowed(templates) == borrowed;
        let mut groups = if is_same { BTreeSet::new() } else { self.borrowers(templates) };
        groups.insert(id.clone());
        self.evaluate_all(groups.into_iter().collect());
    }

    /// Returns the groups with these templates that have no observation of their own.
    pub(super) fn borrowers(&self, templates: &Templates) -> BTreeSet<GroupId> {
        let Templates::Of { namespace, infrastructure, .. } = templates else { return BTreeSet::new() };
        let key = (
            KindRef::from(infrastructure),
            ObjectKey { namespace: namespace.clone(), name: infrastructure.name.clone() },
        );
        let others = self.groups_by_template.get(&key).filter(|other| {
            let object = self.groups.get(other).and_then(|group| group.object.as_deref());
            // A MachineSet of a MachineDeployment is never a group.
            let same = object.is_some_and(|object| object.deployment.is_none() && Templates::of(object) == *templates);
            same && self.resources.get(templates, other).is_none()
        });
        others.cloned().collect()
    }
}

#[cfg(test)]
impl LiveState {
    /// Removes the observations whose Nodes are gone.
    pub(super) fn forget_the_gone(&mut self) {
        self.observe_anew();
        let gone: Vec<_> = self
            .resources
            .by_templates
            .iter()
            .flat_map(|(templates, groups)| groups.iter().map(move |(id, observation)| (templates, id, observation)))
            .filter(|(.., observation)| !observation.live)
            .map(|(templates, id, _)| (templates.clone(), id.clone()))
            .collect();
        for (templates, id) in gone {
            let borrowed = self.resources.borrowed(&templates).cloned();
            self.resources.remove(&templates, &id);
            self.observe_again(&templates, &id);
            self.resources_changed(&templates, &id, borrowed.as_ref());
        }
    }
}
