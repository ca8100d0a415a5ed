//! The sample of a group: one Node of it, by which a value can name a Node that is there. It follows Machines and Nodes as
//! they change, and is never looked for at a read.

use std::sync::Arc;

use capi::{Machine, Node, ObjectKey, ScalableKind};
use nodegroup::GroupId;

use super::{group::Group, holder::OnNode, live_state::LiveState};

impl LiveState {
    pub(super) fn node_changed(&mut self, name: &str) {
        let machines: Vec<_> = self.machines_by_node.get(name).map(|OnNode(machine)| Arc::clone(machine)).collect();
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

    /// A Machine or its Node changed: it may become its group's sample, or stop being it.
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

    /// Looks for the sample of a group anew: the first of its Machines, by name, that has a Node; of a
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

    /// Sets the sample of a group that has an object. A group without one gets its sample with its object.
    fn set_sample(&mut self, id: &GroupId, sample: Option<(ObjectKey, Arc<Node>)>) {
        let Some(group) = self.groups.get_mut(id).filter(|group| group.object.is_some()) else { return };
        let shown = |sample: Option<&(ObjectKey, Arc<Node>)>| {
            sample.map(|(_, node)| (node.meta.key.name.clone(), node.template_labels.clone()))
        };
        let changed = shown(group.sample.as_ref()) != shown(sample.as_ref());
        group.sample = sample;
        if changed {
            self.evaluate(id);
        }
    }

    /// A Machine has left its group.
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
