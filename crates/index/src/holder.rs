//! The relations that lead from a Node to its Machine or MachinePool: the common providerID, and the Node's name.
//! Must never hold a text that the objects don't hold themselves.

use std::sync::Arc;

use arcstr::ArcStr;
use capi::{Machine, ObjectKey};
use nodegroup::{GroupId, provider_id};

use super::keyed_multimap::Keyed;

/// The holder of a providerID.
#[derive(Clone, Debug)]
pub(super) enum Holder {
    /// The Machine with this providerID.
    Machine(Arc<Machine>),
    /// The MachinePool that lists the providerID, with the providerID.
    Pool(Box<(ArcStr, GroupId)>),
}

/// The identity of a holder. Its order is that in which the holders of one providerID are visited.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) enum HolderId {
    /// Precedes all others.
    Least,
    Machine(ObjectKey),
    Pool(GroupId),
}

impl Holder {
    pub(super) fn pool(provider_id: &ArcStr, id: &GroupId) -> Self {
        Self::Pool(Box::new((provider_id.clone(), id.clone())))
    }

    /// Returns its providerID; `None` for a Machine without one, which is never inserted.
    pub(super) fn provider_id(&self) -> Option<&ArcStr> {
        match self {
            Self::Machine(machine) => machine.provider_id.as_ref(),
            Self::Pool(pool) => Some(&pool.0),
        }
    }
}

impl Keyed for Holder {
    /// The tail of the providerID; see [`holder_key`].
    type Key = str;
    /// The whole id precedes the holder, so that the holders of one id are adjacent.
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
