//! The kinds of infrastructure templates that groups in scope name, counted by namespace, so that the follower of these
//! kinds can limit the cost of each namespace.

use std::collections::{BTreeMap, BTreeSet};

use arcstr::ArcStr;
use capi::KindRef;
use nodegroup::GroupId;

use super::live_state::LiveState;

impl LiveState {
    /// Returns the infrastructure template kinds that groups name, with the namespaces of these groups.
    pub(super) fn wanted_kinds(&self) -> BTreeMap<KindRef, BTreeSet<ArcStr>> {
        let named = self.wanted.iter();
        named.map(|(kind, namespaces)| (kind.clone(), namespaces.keys().cloned().collect())).collect()
    }

    /// Replaces the template kind of a group in the counts.
    pub(super) fn set_wanted(&mut self, id: &GroupId, kind: Option<KindRef>) {
        let Some(group) = self.groups.get_mut(id) else { return };
        let old = std::mem::replace(&mut group.wants, kind.clone());
        if old == kind {
            return;
        }
        let namespace = &id.key.namespace;
        if let Some(kind) = kind {
            let count = self.wanted.entry(kind).or_default().entry(namespace.clone()).or_default();
            *count += 1;
            self.wanted_changed |= *count == 1;
        }
        if let Some(old) = old
            && let Some(namespaces) = self.wanted.get_mut(&old)
            && let Some(count) = namespaces.get_mut(namespace)
        {
            *count -= 1;
            if *count == 0 {
                self.wanted_changed = true;
                namespaces.remove(namespace);
                if namespaces.is_empty() {
                    self.wanted.remove(&old);
                }
            }
        }
    }
}
