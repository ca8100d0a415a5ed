//! The membership pinned by Refresh. The set of groups changes for the caller only at a Refresh, so that NodeGroupForNode
//! never returns a group that the last NodeGroups answer lacks.

use std::{collections::HashMap, sync::Arc};

use arcstr::ArcStr;
use rules::{Bounds, GroupId};

use super::{
    apply::evaluate_all_due,
    state::{Index, LiveState},
};

/// A pinned group.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct PinnedGroup {
    /// Its id.
    pub id: GroupId,
    /// Its id as text.
    pub text: ArcStr,
    /// Its bounds at the time of pinning.
    pub bounds: Bounds,
}

/// The groups of one pinning.
#[derive(Debug, Default)]
pub(super) struct Membership {
    /// The groups, ordered by id.
    pub(super) groups: Arc<[PinnedGroup]>,
    positions: HashMap<GroupId, usize>,
}

impl LiveState {
    /// Pins all current groups, and drops the former ones.
    pub(super) fn pin(&mut self) -> Membership {
        self.groups.retain(|_, group| {
            if !group.is_live() {
                group.served = None;
            }
            group.is_known()
        });
        self.cheapest_units.take();
        self.deleted_groups.clear();
        let mut groups: Vec<_> = self
            .groups
            .iter()
            .filter(|(_, group)| group.is_live())
            .filter_map(|(id, group)| {
                let bounds = group.served.as_ref()?.definition.bounds;
                Some(PinnedGroup { id: id.clone(), text: id.to_string().into(), bounds })
            })
            .collect();
        groups.sort_by(|a, b| a.id.cmp(&b.id));
        let positions = groups.iter().enumerate().map(|(position, group)| (group.id.clone(), position)).collect();
        self.membership_changed = false;
        Membership { groups: groups.into(), positions }
    }
}

impl Membership {
    pub(super) fn get(&self, id: &GroupId) -> Option<&PinnedGroup> {
        self.groups.get(*self.positions.get(id)?)
    }
}

impl Index {
    /// Returns true once a Refresh, or a NodeGroups before the first one, has pinned the membership.
    pub fn is_pinned(&self) -> bool {
        self.inner.read().pinned.is_some()
    }

    /// Pins the current membership for the Refresh RPC.
    pub fn refresh(&self) {
        let mut inner = self.inner.write();
        // A change that is being applied is pinned as a whole.
        evaluate_all_due(&mut inner);
        if inner.pinned.is_none() || inner.live.membership_changed {
            inner.pinned = Some(inner.live.pin());
        }
    }

    /// Returns the pinned groups, ordered by id. Pins them if there was no Refresh yet: whoever answers calls has made
    /// sure before that the objects are in sync.
    pub fn groups(&self) -> Arc<[PinnedGroup]> {
        if let Some(pinned) = &self.inner.read().pinned {
            return Arc::clone(&pinned.groups);
        }
        self.refresh();
        self.inner.read().pinned.as_ref().map(|pinned| Arc::clone(&pinned.groups)).unwrap_or_default()
    }
}
