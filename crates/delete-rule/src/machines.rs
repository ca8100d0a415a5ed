//! The Machines of a group, counted at one moment.

use crate::{Named, Set, Types, as_i64};

/// The Machines of a group, as one list from the API server shows them.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct GroupMachines<T: Types> {
    /// The Machines that aren't being deleted.
    pub alive: Set<T>,
    /// The Machines that are being deleted and whose Node still exists.
    pub draining: Set<T>,
    /// The Machines that are being deleted and have no Node any more: Cluster Autoscaler has placeholders for them.
    pub without_node: Vec<Named<T>>,
    /// The number of instances of a MachinePool, which counts instances rather than Machines; `None` for other kinds.
    pub instances: Option<usize>,
}

impl<T: Types> GroupMachines<T> {
    /// Returns true if there is no Machine.
    pub(crate) fn is_empty(&self) -> bool {
        self.alive.is_empty() && self.draining.is_empty() && self.without_node.is_empty()
    }

    /// Returns true if this Machine exists.
    #[must_use]
    pub fn has(&self, uid: &T::Uid) -> bool {
        let is_without_node = || self.without_node.iter().any(|named| named.uid == *uid);
        self.alive.contains(uid) || self.draining.contains(uid) || is_without_node()
    }

    /// Counts the placeholders of a group of this size: the replicas beyond the Machines that stay. `leaves` returns
    /// true for a Machine that doesn't stay.
    pub fn placeholders(&self, size: i64, leaves: impl Fn(&T::Uid) -> bool) -> usize {
        let staying = self
            .instances
            .unwrap_or_else(|| self.alive.iter().chain(&self.draining).filter(|uid| !leaves(uid)).count());
        usize::try_from(size.saturating_sub(as_i64(staying))).unwrap_or_default()
    }
}
