//! The relations of the live state, followed from an object to others, and the Machines of a group with their Nodes. Must
//! never treat a Machine as not joined because of a lagging nodeRef, which stays empty for as long as Cluster API can't
//! reach the workload cluster.

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
};

use arcstr::ArcStr;
use rules::capi::{Machine, MachinePhase, Node, ObjectKey, ScalableKind, ScalableResource, Uid};
use rules::{GroupId, MachineView, PoolView, Shortage, provider_id};

use super::{
    group::Group,
    relations::{ByKey, holder_key},
    resolve::{NodeQuery, Resolved},
    state::{Index, LiveState},
};

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

    /// Iterates over the Machines of a group, by MachineSet and name.
    pub(super) fn machines_of<'a>(&'a self, id: &'a GroupId) -> impl Iterator<Item = &'a Arc<Machine>> {
        self.owners_of(id).flat_map(|(kind, owner)| self.owned_by(kind, owner))
    }

    /// Iterates over the Machines of a MachineSet or MachinePool, by name.
    pub(super) fn owned_by<'a>(
        &'a self,
        kind: ScalableKind,
        owner: &'a ObjectKey,
    ) -> impl Iterator<Item = &'a Arc<Machine>> {
        let machines = self.machines_by_owner.get(&(kind, owner.clone()));
        machines.into_iter().flatten().map(|ByKey(machine)| machine)
    }

    /// Iterates over what owns the Machines of a group.
    fn owners_of<'a>(&'a self, id: &'a GroupId) -> impl Iterator<Item = (ScalableKind, &'a ObjectKey)> {
        let own = match id.kind {
            ScalableKind::MachineDeployment => None,
            ScalableKind::MachineSet | ScalableKind::MachinePool => Some(&id.key),
        };
        let kind = match id.kind {
            ScalableKind::MachinePool => ScalableKind::MachinePool,
            ScalableKind::MachineDeployment | ScalableKind::MachineSet => ScalableKind::MachineSet,
        };
        let sets = (id.kind == ScalableKind::MachineDeployment).then(|| self.sets_by_deployment.get(&id.key));
        own.into_iter().chain(sets.into_iter().flatten()).map(move |owner| (kind, owner))
    }

    /// Returns the Machine with a key.
    pub(super) fn machine(&self, key: &ObjectKey) -> Option<&Arc<Machine>> {
        self.machines.get(key).map(|ByKey(machine)| machine)
    }

    /// Returns the Node in a Machine's nodeRef, unless their providerIDs or the Node's own annotations contradict it:
    /// with several clusters in one index the same name may be another Node.
    pub(super) fn node_in_ref_of(&self, machine: &Machine) -> Option<&Arc<Node>> {
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

    /// Returns the ids of a MachinePool's instances, in the order of its list: that of the Node where it is there,
    /// since the list may have it in another form.
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

/// A Machine of a group, with its Node.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Member {
    /// The Machine.
    pub machine: Arc<Machine>,
    /// Its Node in the workload cluster, if known.
    pub node: Option<Arc<Node>>,
    /// The lack of capacity that its infrastructure reports.
    pub shortage: Option<Shortage>,
    /// True if its deletion failed recently.
    pub undeletable: bool,
}

impl Member {
    /// Returns true if it has joined, by its nodeRef or a known Node.
    pub fn has_joined(&self) -> bool {
        self.machine.node_name.is_some() || self.node.is_some()
    }

    /// Returns the member by reference, for the rules of instances.
    pub fn view(&self) -> MachineView<'_> {
        let Self { machine, node, shortage, undeletable } = self;
        MachineView { machine, node: node.as_deref(), shortage: *shortage, undeletable: *undeletable }
    }

    /// Returns the name of its Node, for people.
    pub fn node_name(&self) -> Option<&ArcStr> {
        self.machine.node_name.as_ref().or_else(|| Some(&self.node.as_ref()?.meta.key.name))
    }
}

impl Index {
    /// Returns the Machines of a group with their Nodes, including those that are being deleted.
    pub fn members(&self, id: &GroupId) -> Vec<Member> {
        let inner = self.inner.read();
        inner.live.copy_members(id)
    }

    /// Returns true if a known Node leads to a Machine with this key and providerID, as the API server has them.
    pub fn has_node_that_leads_to(&self, key: &ObjectKey, provider_id: Option<&ArcStr>) -> bool {
        self.inner.read().live.node_that_leads_to(key, provider_id).is_some()
    }

    /// Returns true if the workload cluster has the Node of a Machine.
    pub fn has_live_node(&self, machine: &Machine) -> bool {
        self.inner.read().live.known_node_of(machine).is_some()
    }

    /// Returns true if the workload cluster has the Node of an instance of a MachinePool, with its providerID in
    /// whatever form. One that differs in case is found by the pool's nodeRefs.
    pub fn has_live_node_of_instance(&self, pool: &GroupId, provider_id: &str) -> bool {
        let inner = self.inner.read();
        let live = &inner.live;
        let object = live.groups.get(pool).and_then(|group| group.object.as_ref());
        let named = object.into_iter().flat_map(|pool| &pool.node_names).filter_map(|name| live.nodes.get(name));
        let with_tail = live.nodes_by_provider_id.get(holder_key(provider_id)).map(|ByKey(node)| node);
        let mut ids = with_tail.chain(named).filter_map(|node| node.provider_id.as_deref());
        ids.any(|id| provider_id::is_same_in_form(id, provider_id))
    }

    /// Returns true if a Machine with that uid is gone, or Cluster API shows that it sees it being deleted.
    pub fn shows_deletion_of(&self, key: &ObjectKey, uid: &Uid) -> bool {
        let inner = self.inner.read();
        let machine = inner.live.machine(key).filter(|machine| machine.meta.uid == *uid);
        machine.is_none_or(|machine| machine.phase == MachinePhase::Deleting)
    }

    /// Returns a Machine whose nodeRef names a Node, while neither it nor a known Node has a providerID: its instance
    /// has another id than Cluster Autoscaler's Node.
    pub fn unidentified_machine(&self) -> Option<ObjectKey> {
        let inner = self.inner.read();
        let live = &inner.live;
        let is_identified = |key: &ObjectKey| {
            let node = live.machine(key).and_then(|machine| live.known_node_of(machine));
            node.is_some_and(|node| node.provider_id.is_some())
        };
        live.unidentified.iter().find(|key| !is_identified(key)).cloned()
    }

    /// Returns true if a Machine with that uid has a Node, by its nodeRef or a known Node that leads to it.
    pub fn has_joined(&self, key: &ObjectKey, uid: &Uid) -> bool {
        let inner = self.inner.read();
        let machine = inner.live.machine(key).filter(|machine| machine.meta.uid == *uid);
        machine.is_some_and(|machine| machine.node_name.is_some() || inner.live.known_node_of(machine).is_some())
    }
}

impl LiveState {
    /// Iterates over the Machines of a group with their Nodes, by MachineSet and name.
    pub(super) fn members_of<'a>(&'a self, id: &'a GroupId) -> impl Iterator<Item = MachineView<'a>> {
        self.machines_of(id).map(|machine| self.view_of(machine))
    }

    /// Returns a Machine with the facts that its state depends on.
    pub(super) fn view_of<'a>(&'a self, machine: &'a Machine) -> MachineView<'a> {
        MachineView {
            machine,
            node: self.known_node_of(machine).map(AsRef::as_ref),
            shortage: self.shortages.get(&machine.meta.key).copied(),
            undeletable: self.has_failed_delete(machine),
        }
    }

    /// Returns a MachinePool with the facts that its instances depend on; `None` for other kinds, or if it is gone.
    pub(super) fn pool_view<'a>(&self, id: &GroupId, group: &'a Group) -> Option<PoolView<'a>> {
        let pool = group.object.as_deref().filter(|_| id.kind == ScalableKind::MachinePool)?;
        let machines = self.machines_by_owner.get(&(id.kind, id.key.clone())).map_or(0, BTreeSet::len);
        Some(PoolView { pool, shortage: group.shortage, machines })
    }

    /// Copies the Machines of a group with their Nodes.
    pub(super) fn copy_members(&self, id: &GroupId) -> Vec<Member> {
        let copy = |machine: &Arc<Machine>| Member {
            machine: Arc::clone(machine),
            node: self.known_node_of(machine).cloned(),
            shortage: self.shortages.get(&machine.meta.key).copied(),
            undeletable: self.has_failed_delete(machine),
        };
        self.machines_of(id).map(copy).collect()
    }

    /// Returns the known Node of a Machine: the one in its nodeRef, else one with its providerID, else one with the
    /// Machine in its annotations.
    pub(super) fn known_node_of(&self, machine: &Machine) -> Option<&Arc<Node>> {
        self.node_in_ref_of(machine)
            .or_else(|| self.node_that_leads_to(&machine.meta.key, machine.provider_id.as_ref()))
    }

    /// Returns a Node that leads to the Machine with this key and providerID.
    pub(super) fn node_that_leads_to(&self, key: &ObjectKey, provider_id: Option<&ArcStr>) -> Option<&Arc<Node>> {
        provider_id.and_then(|id| self.node_with_id(key, id)).or_else(|| self.node_that_names(key))
    }

    fn node_with_id(&self, key: &ObjectKey, id: &ArcStr) -> Option<&Arc<Node>> {
        let nodes = || self.nodes_by_provider_id.get(holder_key(id)).map(|ByKey(node)| node);
        let same = nodes().find(|node| node.provider_id.as_ref() == Some(id));
        same.or_else(|| {
            // Machine and Node may write the providerID differently. Its tail identifies the Node if no other Machine
            // has the same tail.
            let tail = provider_id::tail(id)?;
            let is_other = |machine: &Arc<Machine>| machine.meta.key != *key;
            if self.holders.machines(tail).take(2).any(is_other) { None } else { nodes().next() }
        })
    }

    /// Returns a Node with the Machine in its annotations. A Node whose providerID leads to another Machine doesn't
    /// count, since its kubelet may write the annotations.
    fn node_that_names(&self, key: &ObjectKey) -> Option<&Arc<Node>> {
        let no_annotations = HashMap::new();
        let leads_elsewhere = |node: &Node| {
            let provider_id = node.provider_id.as_deref().unwrap_or_default();
            let query = NodeQuery { name: &node.meta.key.name, provider_id, annotations: &no_annotations };
            matches!(self.by_provider_id(query), Resolved::Machine(other, _) if other.meta.key != *key)
        };
        let nodes = self.nodes_by_machine.get(key).map(|ByKey(node)| node);
        nodes.into_iter().find(|node| !leads_elsewhere(node))
    }

    /// Counts the Machines of a group that have joined and aren't being deleted.
    pub(super) fn joined(&self, id: &GroupId, object: Option<&ScalableResource>) -> i32 {
        let count = match (id.kind, object) {
            (ScalableKind::MachinePool, Some(pool)) => pool.node_names.len(),
            (ScalableKind::MachinePool, None) => 0,
            (ScalableKind::MachineDeployment | ScalableKind::MachineSet, _) => {
                let joined = |machine: &&Arc<Machine>| {
                    !machine.deleting && (machine.node_name.is_some() || self.known_node_of(machine).is_some())
                };
                self.machines_of(id).filter(joined).count()
            }
        };
        i32::try_from(count).unwrap_or(i32::MAX)
    }
}
