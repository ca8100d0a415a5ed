//! The labels observed on groups' Nodes, recorded for future Nodes, and failure domains that turned out not to be
//! zones. A deleted Node doesn't remove its observations: a group with Nodes in three zones must not look like one in a
//! single zone after two Nodes are deleted. Observations are removed with their MachineSets and groups.

use std::collections::{BTreeMap, BTreeSet};

use capi::{KindRef, Machine, Node, NodeResources, ScalableKind, ScalableResource};
use nodegroup::{GroupId, labels::ZONE, observed::OtherZone};

use super::{
    live_state::LiveState,
    observations::{MachineSpec, Templates},
    relation::{group_of, owner_of},
};

impl LiveState {
    /// Observes the Node of a Machine after either was added or changed.
    pub(super) fn observe_machine(&mut self, machine: &Machine) {
        let Some((kind @ ScalableKind::MachineSet, key)) = owner_of(machine) else { return };
        let owner = self.groups.get(&GroupId::new(kind, key)).and_then(|group| group.object.clone());
        let (Some(owner), Some(node)) = (owner, self.node_of(machine).cloned()) else { return };
        self.observe(&owner, &node);
    }

    /// Observes the Nodes of a MachineSet or MachinePool that was added or changed, since they may have arrived
    /// before it.
    pub(super) fn observe_owner(&mut self, owner: &ScalableResource) {
        let nodes: Vec<_> = match owner.kind {
            ScalableKind::MachineDeployment => Vec::new(),
            ScalableKind::MachineSet => {
                let machines = self.machines_by_owner.get(&(owner.kind, owner.meta.key.clone()));
                machines
                    .into_iter()
                    .flat_map(BTreeMap::values)
                    .filter_map(|machine| self.node_of(machine).cloned())
                    .collect()
            }
            ScalableKind::MachinePool => {
                owner.node_names.iter().filter_map(|name| self.nodes.get(name).cloned()).collect()
            }
        };
        for node in nodes {
            self.observe(owner, &node);
        }
    }

    fn observe(&mut self, owner: &ScalableResource, node: &Node) {
        let (id, name) = (group_of(owner), &node.meta.key.name);
        let is_settled = node.resources.as_ref().is_some_and(NodeResources::is_settled);
        let has_others = node.other_labels.text().is_some_and(|labels| !labels.is_empty());
        if is_settled || has_others || node.template_labels.iter().next().is_some() {
            let labels =
                self.observations.by_group.entry(id.clone()).or_default().entry(MachineSpec::of(owner)).or_default();
            if labels.observe(node) {
                self.labels_changed(&Templates::of(owner), id);
            }
        }
        let kind = owner.infrastructure.as_ref().map(KindRef::from);
        let (Some(kind), Some(domain), Some(zone)) = (kind, &owner.failure_domain, node.template_label(ZONE)) else {
            return;
        };
        if zone.is_empty() || *zone == **domain || self.observations.other_zones.contains_key(&kind) {
            return;
        }
        let other = OtherZone { node: name.clone(), domain: domain.clone(), zone: zone.into() };
        self.observations.other_zones.insert(kind.clone(), other);
        self.evaluate_all(self.groups_by_kind.to_vec(&kind));
    }

    /// Evaluates the group, and the groups that share its observation.
    fn labels_changed(&mut self, templates: &Templates, id: GroupId) {
        let lends = self.resources.borrowed(templates).is_some_and(|resources| resources.group == id);
        let mut groups = if lends { self.borrowers(templates) } else { BTreeSet::new() };
        groups.insert(id);
        self.evaluate_all(groups.into_iter().collect());
    }

    /// Updates the observations after a MachineDeployment, MachineSet or MachinePool was added, changed or deleted.
    pub(super) fn observed_owner_changed(&mut self, old: Option<&ScalableResource>, new: Option<&ScalableResource>) {
        let place = |object: &ScalableResource| (group_of(object), MachineSpec::of(object));
        let (from, to) = (old.map(place), new.map(place));
        let from_is_other = from != to;
        // A group may use what was observed of the newest of its older MachineSets.
        let is_ranked_anew = from_is_other || old.map(|old| old.revision) != new.map(|new| new.revision);
        if let Some((id, spec)) = from.filter(|(id, spec)| is_ranked_anew && self.is_observed(id, spec)) {
            if from_is_other
                && !self.has_spec(&id, &spec)
                && let Some(by_spec) = self.observations.by_group.get_mut(&id)
            {
                by_spec.remove(&spec);
                if by_spec.is_empty() {
                    self.observations.by_group.remove(&id);
                }
            }
            self.labels_changed(&spec.templates, id);
        }
        if let Some((id, spec)) = to.filter(|(id, spec)| is_ranked_anew && self.is_observed(id, spec)) {
            self.labels_changed(&spec.templates, id);
        }
        if let Some(kind) = old.and_then(|old| old.infrastructure.as_ref()).map(KindRef::from)
            && self.groups_by_kind.get(&kind).next().is_none()
        {
            self.observations.other_zones.remove(&kind);
        }
        // The Nodes of a MachineSet whose `MachineSpec` is unchanged are observed on their own events.
        if let Some(new) = new.filter(|new| from_is_other || new.kind == ScalableKind::MachinePool) {
            self.observe_owner(new);
        }
    }

    /// Returns true if a Node of a group with this spec has been observed.
    fn is_observed(&self, id: &GroupId, spec: &MachineSpec) -> bool {
        let has_labels = self.observations.by_group.get(id).is_some_and(|by_spec| by_spec.contains_key(spec));
        has_labels || self.resources.get(&spec.templates, id).is_some()
    }

    /// Returns true if a group, or one of its MachineSets, creates Machines with this spec.
    fn has_spec(&self, id: &GroupId, spec: &MachineSpec) -> bool {
        let object = self.groups.get(id).and_then(|group| group.object.as_deref());
        let is_like = |object: &ScalableResource| group_of(object) == *id && MachineSpec::of(object) == *spec;
        let of_sets = || id.kind == ScalableKind::MachineDeployment && self.sets_of(&id.key).any(|set| is_like(set));
        object.is_some_and(is_like) || of_sets()
    }
}

#[cfg(test)]
impl LiveState {
    /// Rebuilds the observations from the Nodes that still exist.
    pub(super) fn observe_anew(&mut self) {
        self.observations = super::observations::Observations::default();
        let mut owners: Vec<_> = self.groups.values().filter_map(|group| group.object.clone()).collect();
        owners.sort_by_key(|owner| (owner.kind, owner.meta.key.clone()));
        for owner in &owners {
            self.observe_owner(owner);
        }
        self.evaluate_all(self.groups.keys().cloned().collect());
        while self.evaluate_due() {}
    }
}
