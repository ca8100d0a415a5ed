//! The sample of a group: one of its Nodes, for values that refer to an existing Node. It is updated when Machines
//! and Nodes change, and must never be searched for by a read.

use std::sync::Arc;

use capi::{Machine, Node, ObjectKey, ScalableKind};
use nodegroup::GroupId;

use super::{group::Group, holder::ByKey, live_state::LiveState};

impl LiveState {
    pub(super) fn node_changed(&mut self, name: &str) {
        let machines: Vec<_> = self.machines_by_node.get(name).map(|ByKey(machine)| Arc::clone(machine)).collect();
        for machine in machines {
            self.machine_changed(&machine);
        }
        for pool in self.pools_by_node.to_vec(name) {
            self.resample(&pool);
            self.observe_pool_resources(&pool);
            if let Some(pool) = self.groups.get(&pool).and_then(|group| group.object.clone()) {
                self.observe_owner(&pool);
            }
        }
    }

    /// Updates a group's sample after a change of a Machine or its Node, which may become the sample or stop being
    /// it.
    pub(super) fn machine_changed(&mut self, machine: &Arc<Machine>) {
        self.observe_resources(machine);
        self.observe_machine(machine);
        let key = &machine.meta.key;
        let Some(id) = self.group_of(machine).filter(|id| id.kind != ScalableKind::MachinePool) else { return };
        let Some(group) = self.groups.get(&id) else { return };
        let node = self.node_of(machine).cloned();
        let sample = group.sample.as_ref().map(|(sample, _)| sample);
        match (sample, node) {
            (sample, Some(node)) if sample.is_none_or(|sample| key <= sample) => {
                self.set_sample(&id, Some((key.clone(), node)));
            }
            (Some(sample), None) if sample == key => self.resample(&id),
            (Some(_) | None, Some(_) | None) => {}
        }
    }

    /// Searches for the sample of a group again: the first of its Machines, by name, that has a Node; for a
    /// MachinePool the first of its Nodes.
    pub(super) fn resample(&mut self, id: &GroupId) {
        let Some(object) = self.groups.get(id).and_then(|group| group.object.as_ref()) else { return };
        let sample = if id.kind == ScalableKind::MachinePool {
            let nodes = object.node_names.iter().filter_map(|name| self.nodes.get(name));
            nodes.min_by_key(|node| &node.meta.key).map(|node| (node.meta.key.clone(), Arc::clone(node)))
        } else {
            self.machines_of(id)
                .filter_map(|machine| Some((&machine.meta.key, self.node_of(machine)?)))
                .min_by_key(|(key, _)| *key)
                .map(|(key, node)| (key.clone(), Arc::clone(node)))
        };
        self.set_sample(id, sample);
    }

    /// Sets the sample of a group that has an object. A group without an object gets its sample with the object.
    fn set_sample(&mut self, id: &GroupId, sample: Option<(ObjectKey, Arc<Node>)>) {
        let Some(group) = self.groups.get_mut(id).filter(|group| group.object.is_some()) else { return };
        let shown = |sample: Option<&(ObjectKey, Arc<Node>)>| {
            sample
                .map(|(_, node)| (node.meta.key.name.clone(), node.template_labels.clone(), node.other_labels.clone()))
        };
        let changed = shown(group.sample.as_ref()) != shown(sample.as_ref());
        group.sample = sample;
        if changed {
            self.evaluate(id);
        }
    }

    /// Updates a group's sample after a Machine has left the group.
    pub(super) fn left_sample(&mut self, old: &Machine) {
        if let Some(group) = self.group_of(old)
            && self.groups.get(&group).is_some_and(|group| is_sample(group, &old.meta.key))
        {
            self.resample(&group);
        }
    }
}

fn is_sample(group: &Group, key: &ObjectKey) -> bool {
    group.sample.as_ref().is_some_and(|(sample, _)| sample == key)
}
