//! By what a Node leads to its Machine or MachinePool: the providerID that both have, and the Node's name. Must never hold
//! a text that the objects don't hold themselves.

use std::sync::Arc;

use arcstr::ArcStr;
use capi::{Machine, ObjectKey};
use nodegroup::{GroupId, provider_id};

use super::keyed_multimap::Keyed;

/// Whom a providerID leads to.
#[derive(Clone, Debug)]
pub(super) enum Holder {
    /// The Machine that has it.
    Machine(Arc<Machine>),
    /// The MachinePool that lists it, with it.
    Pool(Box<(ArcStr, GroupId)>),
}

/// Which holder it is, in the order in which the holders of one providerID are looked at.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) enum HolderId {
    /// Before all others.
    Least,
    Machine(ObjectKey),
    Pool(GroupId),
}

impl Holder {
    pub(super) fn pool(provider_id: &ArcStr, id: &GroupId) -> Self {
        Self::Pool(Box::new((provider_id.clone(), id.clone())))
    }

    /// The providerID by which it is filed; `None` for a Machine that has none, which is never filed.
    pub(super) fn provider_id(&self) -> Option<&ArcStr> {
        match self {
            Self::Machine(machine) => machine.provider_id.as_ref(),
            Self::Pool(pool) => Some(&pool.0),
        }
    }
}

impl Keyed for Holder {
    /// See [`holder_key`].
    type Key = str;
    /// The whole id before its holder, so that its holders stand together.
    type Order = (ArcStr, HolderId);

    fn key(&self) -> &str {
        self.provider_id().map_or("", |id| holder_key(id))
    }

    fn order(&self) -> (ArcStr, HolderId) {
        let id = match self {
            Self::Machine(machine) => HolderId::Machine(machine.meta.key.clone()),
            Self::Pool(pool) => HolderId::Pool(pool.1.clone()),
        };
        (self.provider_id().cloned().unwrap_or_default(), id)
    }
}

/// A Machine, filed under the name of its Node.
#[derive(Clone, Debug)]
pub(super) struct OnNode(pub(super) Arc<Machine>);

impl Keyed for OnNode {
    type Key = str;
    type Order = ObjectKey;

    fn key(&self) -> &str {
        self.0.node_name.as_deref().unwrap_or_default()
    }

    fn order(&self) -> ObjectKey {
        self.0.meta.key.clone()
    }
}

/// Returns the key of a providerID: its tail, so that one map serves whole ids and the fallback; the whole id where
/// falling back is never right.
pub(super) fn holder_key(provider_id: &str) -> &str {
    provider_id::tail(provider_id).unwrap_or(provider_id)
}
