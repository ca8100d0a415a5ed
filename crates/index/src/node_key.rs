//! The relations that lead from a Machine to its Node: by the providerID, and by the Node's annotations.

use std::sync::Arc;

use arcstr::ArcStr;
use capi::{Node, ObjectKey};

use super::{holder::holder_key, keyed_multimap::Keyed};

/// A Node under its providerID.
#[derive(Clone, Debug)]
pub(super) struct NodeByProviderId(pub(super) Arc<Node>);

impl Keyed for NodeByProviderId {
    /// The tail of the providerID; see [`holder_key`].
    type Key = str;
    type Order = ArcStr;

    fn key(&self) -> &str {
        self.0.provider_id.as_deref().map_or("", holder_key)
    }

    fn order(&self) -> ArcStr {
        self.0.meta.key.name.clone()
    }
}

/// A Node under the Machine in its annotations.
#[derive(Clone, Debug)]
pub(super) struct NodeByMachine(pub(super) Arc<Node>);

impl Keyed for NodeByMachine {
    type Key = ObjectKey;
    type Order = ArcStr;

    fn key(&self) -> &ObjectKey {
        // A Node without the annotation is never inserted.
        self.0.machine.as_ref().unwrap_or(&self.0.meta.key)
    }

    fn order(&self) -> ArcStr {
        self.0.meta.key.name.clone()
    }
}
