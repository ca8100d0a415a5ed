//! The relations of the live state, followed from an object to others.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use arcstr::ArcStr;

use super::{
    group::Group,
    holder::{ByKey, holder_key},
    live_state::LiveState,
    relation::{group_of, owner_of},
};
use capi::{Machine, Node, ObjectKey, ScalableKind, ScalableResource};
use nodegroup::{GroupId, provider_id};

impl LiveState {
    /// Iterates over the known MachineSets of a MachineDeployment.
    pub(super) fn sets_of<'a>(&'a self, deployment: &'a ObjectKey) -> impl Iterator<Item = &'a Arc<ScalableResource>> {
        self.set_groups_of(deployment).filter_map(|set| set.object.as_ref())
    }

    /// Iterates over the MachineSets of a MachineDeployment with their state.
    pub(super) fn set_groups_of<'a>(&'a self, deployment: &'a ObjectKey) -> impl Iterator<Item = &'a Group> {
        let sets = self.sets_by_deployment.get(deployment);
        sets.filter_map(|set| self.groups.get(&GroupId::new(ScalableKind::MachineSet, set.clone())))
    }

    /// Returns the number of a group's Machines, or of a MachinePool's providerIDs.
    pub(super) fn machine_count(&self, id: &GroupId, group: &Group) -> i32 {
        let count = match (id.kind, &group.object) {
            (ScalableKind::MachinePool, Some(pool)) => pool.provider_ids.len(),
            (ScalableKind::MachinePool, None) => 0,
            (ScalableKind::MachineDeployment | ScalableKind::MachineSet, _) => self.machines_of(id).count(),
        };
        i32::try_from(count).unwrap_or(i32::MAX)
    }

    /// Returns the group of a Machine, by its owner; `None` for Machines without a group, or if the MachineSet isn't
    /// known.
    pub(super) fn group_of(&self, machine: &Machine) -> Option<GroupId> {
        let (kind, key) = owner_of(machine)?;
        match kind {
            ScalableKind::MachinePool => Some(GroupId::new(kind, key)),
            ScalableKind::MachineSet => {
                let set = self.groups.get(&GroupId::new(kind, key))?.object.as_deref()?;
                Some(group_of(set))
            }
            ScalableKind::MachineDeployment => None,
        }
    }

    /// Iterates over the Machines of a group, by MachineSet and name.
    pub(super) fn machines_of<'a>(&'a self, id: &'a GroupId) -> impl Iterator<Item = &'a Arc<Machine>> {
        let machines = self.siblings_of(id).flat_map(BTreeMap::values);
        #[cfg(any(test, all(feature = "test-support", debug_assertions)))]
        let machines = machines.inspect(|_| {
            self.visits.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        });
        machines
    }

    /// Iterates over the Machines of a group, per MachineSet.
    fn siblings_of<'a>(&'a self, id: &'a GroupId) -> impl Iterator<Item = &'a BTreeMap<ArcStr, Arc<Machine>>> {
        let own = match id.kind {
            ScalableKind::MachineDeployment => None,
            ScalableKind::MachineSet | ScalableKind::MachinePool => Some(&id.key),
        };
        let kind = match id.kind {
            ScalableKind::MachinePool => ScalableKind::MachinePool,
            ScalableKind::MachineDeployment | ScalableKind::MachineSet => ScalableKind::MachineSet,
        };
        let sets = (id.kind == ScalableKind::MachineDeployment).then(|| self.sets_by_deployment.get(&id.key));
        own.into_iter()
            .chain(sets.into_iter().flatten())
            .filter_map(move |owner| self.machines_by_owner.get(&(kind, owner.clone())))
    }

    /// Returns the Node in a Machine's nodeRef, unless their providerIDs or the Node's own annotations contradict it:
    /// with several clusters in one index the same name may be another Node.
    pub(super) fn node_of(&self, machine: &Machine) -> Option<&Arc<Node>> {
        let node = self.nodes.get(machine.node_name.as_deref()?)?;
        let is_named = node.machine.as_ref().map(|owner| *owner == machine.meta.key);
        let same = match (&machine.provider_id, &node.provider_id) {
            (Some(own), Some(of_node)) if own == of_node => true,
            // Where both name each other, they may write the providerID in any form.
            (Some(own), Some(of_node)) => is_named.unwrap_or_else(|| provider_id::is_same_in_form(own, of_node)),
            (None, _) | (_, None) => is_named.unwrap_or(true),
        };
        same.then_some(node)
    }

    /// Returns the ids of a MachinePool's instances, in the order of its list: that of the Node where it is there, since
    /// the list may have it in another form.
    pub(super) fn instance_ids_of<'a>(&'a self, pool: &'a ScalableResource) -> Vec<&'a ArcStr> {
        let mut by_form = None;
        let is_listed = |id: &ArcStr| self.holders.with_id(id).next().is_some();
        let named = || {
            let ids = pool.node_names.iter().filter_map(|name| self.nodes.get(name)?.provider_id.as_ref());
            let ids = ids.filter(|id| !is_listed(id)).map(|id| (provider_id::plain(id), id));
            ids.collect::<HashMap<_, _>>()
        };
        let id_of = |listed: &'a ArcStr| {
            let tail = holder_key(listed);
            let mut with_tail = self.nodes_by_provider_id.get(tail).filter_map(|ByKey(node)| node.provider_id.as_ref());
            match (with_tail.next(), with_tail.next()) {
                (Some(of_node), None) if of_node == listed || self.holders.with_tail(tail).nth(1).is_none() => of_node,
                (Some(_) | None, Some(_) | None) => {
                    let by_form = by_form.get_or_insert_with(named);
                    let of_node = if by_form.is_empty() { None } else { by_form.get(&provider_id::plain(listed)) };
                    of_node.copied().unwrap_or(listed)
                }
            }
        };
        pool.provider_ids.iter().map(id_of).collect()
    }

    /// Returns true if the deletion of a Machine failed recently.
    pub(super) fn has_failed_delete(&self, machine: &Machine) -> bool {
        self.failed_deletes.get(&machine.meta.key).is_some_and(|failed| !failed.is_over())
    }
}
