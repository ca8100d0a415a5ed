//! Relations between objects: what leads from one to another. First those within an object's own fields, then those
//! that the live state keeps: the common providerID, a Node's name, and its annotations. Nothing here may look up
//! another object, or hold a text that the objects don't hold themselves.

use std::{
    borrow::Borrow,
    cmp::Ordering,
    hash::{Hash, Hasher},
    sync::Arc,
};

use arcstr::ArcStr;
use rules::capi::{KindRef, Machine, Node, ObjectKey, ScalableKind, ScalableResource};
use rules::{GroupId, provider_id};

use super::multimap::Multimap;

pub(super) type TemplateKey = (KindRef, ObjectKey);

pub(super) fn owner_of(machine: &Machine) -> Option<(ScalableKind, ObjectKey)> {
    let (kind, name) = machine.owner.as_ref()?;
    Some((*kind, ObjectKey { namespace: machine.meta.key.namespace.clone(), name: name.clone() }))
}

/// Returns the group of an object: the MachineDeployment of a MachineSet that has one, else the object itself.
pub(super) fn id_of(object: &ScalableResource) -> GroupId {
    match &object.deployment {
        None => GroupId::of(object.kind, &object.meta),
        Some(deployment) => GroupId::new(
            ScalableKind::MachineDeployment,
            ObjectKey { namespace: object.meta.key.namespace.clone(), name: deployment.clone() },
        ),
    }
}

/// Returns the Cluster of an object, in the object's namespace.
pub(super) fn cluster_key(object: &ScalableResource) -> ObjectKey {
    ObjectKey { namespace: object.meta.key.namespace.clone(), name: object.cluster_name.clone() }
}

/// Returns the infrastructure template of an object, in the object's namespace.
pub(super) fn template_key(object: &ScalableResource) -> Option<TemplateKey> {
    let reference = object.infrastructure.as_ref()?;
    let key = ObjectKey { namespace: object.meta.key.namespace.clone(), name: reference.name.clone() };
    Some((KindRef::from(reference), key))
}

/// Returns the key of a providerID: its tail, so that one map serves look-ups by whole id and by tail; or the whole id
/// if a look-up by tail is never right.
pub(super) fn holder_key(provider_id: &str) -> &str {
    provider_id::tail(provider_id).unwrap_or(provider_id)
}

/// A providerID that is compared by its [`holder_key`].
#[derive(Clone, Debug)]
pub(super) struct Tail(ArcStr);

impl Tail {
    pub(super) fn of(provider_id: &ArcStr) -> Self {
        Self(provider_id.clone())
    }
}

impl Borrow<str> for Tail {
    fn borrow(&self) -> &str {
        holder_key(&self.0)
    }
}

impl Hash for Tail {
    fn hash<H: Hasher>(&self, state: &mut H) {
        holder_key(&self.0).hash(state);
    }
}

impl Ord for Tail {
    fn cmp(&self, other: &Self) -> Ordering {
        holder_key(&self.0).cmp(holder_key(&other.0))
    }
}

impl PartialOrd for Tail {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Eq for Tail {}

impl PartialEq for Tail {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

/// A Machine or Node that is compared by its key.
#[derive(Debug)]
pub(super) struct ByKey<T>(pub(super) Arc<T>);

pub(super) trait Keyed {
    fn key(&self) -> &ObjectKey;
}

impl Keyed for Machine {
    fn key(&self) -> &ObjectKey {
        &self.meta.key
    }
}

impl Keyed for Node {
    fn key(&self) -> &ObjectKey {
        &self.meta.key
    }
}

impl<T> Clone for ByKey<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T: Keyed> Ord for ByKey<T> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.key().cmp(other.0.key())
    }
}

impl<T: Keyed> PartialOrd for ByKey<T> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<T: Keyed> Eq for ByKey<T> {}

impl<T: Keyed> Hash for ByKey<T> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.key().hash(state);
    }
}

impl<T: Keyed> Borrow<ObjectKey> for ByKey<T> {
    fn borrow(&self) -> &ObjectKey {
        self.0.key()
    }
}

impl<T: Keyed> PartialEq for ByKey<T> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Holder<'a> {
    /// The Machine with this providerID.
    Machine(&'a Arc<Machine>),
    /// The MachinePool that lists the providerID.
    Pool(&'a GroupId),
}

/// The holders by the tails of their providerIDs; see [`holder_key`].
#[derive(Debug, Default)]
pub(super) struct Holders {
    machines: Multimap<Tail, ByKey<Machine>>,
    /// Each MachinePool under each providerID that it lists.
    pools: Multimap<Tail, (ArcStr, GroupId)>,
}

impl Holders {
    /// Inserts a Machine, if it has a providerID.
    pub(super) fn insert_machine(&mut self, machine: &Arc<Machine>) {
        if let Some(id) = &machine.provider_id {
            self.machines.insert(Tail::of(id), ByKey(Arc::clone(machine)));
        }
    }

    pub(super) fn remove_machine(&mut self, machine: &Arc<Machine>) {
        if let Some(id) = &machine.provider_id {
            self.machines.remove(holder_key(id), &ByKey(Arc::clone(machine)));
        }
    }

    pub(super) fn insert_pool(&mut self, provider_id: &ArcStr, pool: &GroupId) {
        self.pools.insert(Tail::of(provider_id), (provider_id.clone(), pool.clone()));
    }

    pub(super) fn remove_pool(&mut self, provider_id: &ArcStr, pool: &GroupId) {
        self.pools.remove(holder_key(provider_id), &(provider_id.clone(), pool.clone()));
    }

    /// Iterates over the Machines with a tail.
    pub(super) fn machines(&self, tail: &str) -> impl Iterator<Item = &Arc<Machine>> {
        self.machines.get(tail).map(|ByKey(machine)| machine)
    }

    /// Iterates over the holders with a tail: the Machines, then the MachinePools in the order of their providerIDs.
    pub(super) fn with_tail(&self, tail: &str) -> impl Iterator<Item = Holder<'_>> {
        let pools = self.pools.get(tail).map(|(_, pool)| Holder::Pool(pool));
        self.machines(tail).map(Holder::Machine).chain(pools)
    }

    /// Iterates over the holders of a providerID: the Machines, then the MachinePools.
    pub(super) fn with_id(&self, id: &str) -> impl Iterator<Item = Holder<'_>> {
        let tail = holder_key(id);
        let machines = self.machines(tail).filter(move |machine| machine.provider_id.as_deref() == Some(id));
        let pools = self.pools.get(tail).filter(move |(listed, _)| *listed == *id);
        machines.map(Holder::Machine).chain(pools.map(|(_, pool)| Holder::Pool(pool)))
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.machines.is_empty() && self.pools.is_empty()
    }
}
