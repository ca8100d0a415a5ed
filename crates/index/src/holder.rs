//! The relations that lead from a Node to its Machine or MachinePool: the common providerID, and the Node's name.
//! Must never hold a text that the objects don't hold themselves.

use std::sync::Arc;

use arcstr::ArcStr;
use capi::{Machine, ObjectKey};
use nodegroup::{GroupId, provider_id};

use super::keyed_multimap::{Keyed, KeyedMultimap};

/// The holder of a providerID.
#[derive(Clone, Copy, Debug)]
pub(super) enum Holder<'a> {
    /// The Machine with this providerID.
    Machine(&'a Arc<Machine>),
    /// The MachinePool that lists the providerID.
    Pool(&'a GroupId),
}

/// The holders by the tails of their providerIDs; see [`holder_key`]. Machines and MachinePools are apart, so that a
/// Machine takes one pointer.
#[derive(Debug, Default)]
pub(super) struct Holders {
    machines: KeyedMultimap<MachineByProviderId>,
    pools: KeyedMultimap<PoolByProviderId>,
}

impl Holders {
    /// Inserts a Machine, if it has a providerID.
    pub(super) fn insert_machine(&mut self, machine: &Arc<Machine>) {
        if machine.provider_id.is_some() {
            self.machines.insert(MachineByProviderId(Arc::clone(machine)));
        }
    }

    pub(super) fn remove_machine(&mut self, machine: &Arc<Machine>) {
        self.machines.remove(&MachineByProviderId(Arc::clone(machine)));
    }

    pub(super) fn insert_pool(&mut self, provider_id: &ArcStr, pool: &GroupId) {
        self.pools.insert(PoolByProviderId::new(provider_id, pool));
    }

    pub(super) fn remove_pool(&mut self, provider_id: &ArcStr, pool: &GroupId) {
        self.pools.remove(&PoolByProviderId::new(provider_id, pool));
    }

    /// Iterates over the Machines with a tail, in the order of their providerIDs.
    pub(super) fn machines(&self, tail: &str) -> impl Iterator<Item = &Arc<Machine>> {
        self.machines.get(tail).map(|MachineByProviderId(machine)| machine)
    }

    /// Iterates over the holders with a tail: the Machines, then the MachinePools, each in the order of their
    /// providerIDs.
    pub(super) fn with_tail(&self, tail: &str) -> impl Iterator<Item = Holder<'_>> {
        let pools = self.pools.get(tail).map(|PoolByProviderId(pool)| Holder::Pool(&pool.1));
        self.machines(tail).map(Holder::Machine).chain(pools)
    }

    /// Iterates over the holders of a providerID, in the same order.
    pub(super) fn with_id(&self, id: &str) -> impl Iterator<Item = Holder<'_>> {
        let machines = self.machines.get_from(holder_key(id), || (id.into(), None));
        let machines = machines.map(|MachineByProviderId(machine)| machine);
        let machines = machines.take_while(move |machine| machine.provider_id.as_deref() == Some(id));
        let pools = self.pools.get_from(holder_key(id), || (id.into(), None));
        let pools = pools.map(|PoolByProviderId(pool)| pool).take_while(move |pool| pool.0 == *id);
        machines.map(Holder::Machine).chain(pools.map(|pool| Holder::Pool(&pool.1)))
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.machines.is_empty() && self.pools.is_empty()
    }
}

/// A Machine under its providerID.
#[derive(Clone, Debug)]
struct MachineByProviderId(Arc<Machine>);

impl Keyed for MachineByProviderId {
    /// The tail of the providerID; see [`holder_key`].
    type Key = str;
    /// The whole id precedes the Machine, so that those of one id are adjacent. `None` precedes all Machines.
    type Order = (ArcStr, Option<ObjectKey>);

    fn key(&self) -> &str {
        // A Machine without a providerID is never inserted.
        self.0.provider_id.as_deref().map_or("", holder_key)
    }

    fn order(&self) -> Self::Order {
        (self.0.provider_id.clone().unwrap_or_default(), Some(self.0.meta.key.clone()))
    }
}

/// A MachinePool under a providerID that it lists.
#[derive(Clone, Debug)]
struct PoolByProviderId(Box<(ArcStr, GroupId)>);

impl PoolByProviderId {
    fn new(provider_id: &ArcStr, pool: &GroupId) -> Self {
        Self(Box::new((provider_id.clone(), pool.clone())))
    }
}

impl Keyed for PoolByProviderId {
    /// The tail of the providerID; see [`holder_key`].
    type Key = str;
    /// As that of a Machine.
    type Order = (ArcStr, Option<GroupId>);

    fn key(&self) -> &str {
        holder_key(&self.0.0)
    }

    fn order(&self) -> Self::Order {
        (self.0.0.clone(), Some(self.0.1.clone()))
    }
}

/// A Machine under the name of its Node.
#[derive(Clone, Debug)]
pub(super) struct MachineByNode(pub(super) Arc<Machine>);

impl Keyed for MachineByNode {
    type Key = str;
    type Order = ObjectKey;

    fn key(&self) -> &str {
        self.0.node_name.as_deref().unwrap_or_default()
    }

    fn order(&self) -> ObjectKey {
        self.0.meta.key.clone()
    }
}

/// Returns the key of a providerID: its tail, so that one map serves look-ups by whole id and by tail; or the whole id
/// if a look-up by tail is never right.
pub(super) fn holder_key(provider_id: &str) -> &str {
    provider_id::tail(provider_id).unwrap_or(provider_id)
}
