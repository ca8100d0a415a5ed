//! The membership pinned by Refresh. The set of groups changes for the caller only at a Refresh (contract, section
//! 1), so that NodeGroupForNode never returns a group that the last NodeGroups answer lacks.

use arcstr::ArcStr;
use std::{collections::HashMap, sync::Arc};

use nodegroup::{Bounds, GroupId};

use super::live_state::LiveState;

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

impl Membership {
    /// Pins all current groups. Former groups are no longer served.
    pub(super) fn pin(live: &mut LiveState) -> Self {
        live.groups.retain(|_, group| {
            if !group.is_live() {
                group.served = None;
            }
            group.is_known()
        });
        live.cheapest_units.take();
        live.deleted_groups.clear();
        let mut groups: Vec<_> = live
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
        live.membership_changed = false;
        Self { groups: groups.into(), positions }
    }

    /// Returns the pinned group with that id.
    pub(super) fn get(&self, id: &GroupId) -> Option<&PinnedGroup> {
        self.groups.get(*self.positions.get(id)?)
    }
}
