//! Reads a group's Machines, for what the watches can't answer.

use std::collections::HashSet;

use jiff::{SignedDuration, Timestamp};
use rules::capi::{ScalableKind, Uid};
use rules::{call_error::CallError, group_version::NotScalable};

use super::{error::ScaleError, refusal, request::Target, turn::Turn};

/// The time for which a Machine that is being deleted counts as one, whether it has a Node or not: another replica of
/// this program may have deleted it, and be about to lower the size for it. No command takes longer.
const MAY_BE_LOWERED_FOR: SignedDuration = SignedDuration::from_secs(60);

/// The Machines of a group, as one list from the API server shows them.
#[derive(Clone, Debug, Default)]
pub(super) struct GroupMachines {
    /// The number of all Machines.
    pub(super) all: usize,
    /// The Machines that count as replicas, so that they have no placeholder: those of the rule of `rules::instance`, and,
    /// which only matters before a write, those whose deletion began moments ago.
    holding: HashSet<Uid>,
    /// The number of instances of a MachinePool, which counts instances rather than Machines; `None` for other kinds.
    instances: Option<usize>,
}

impl GroupMachines {
    /// Returns the number of placeholders of a group of this size: the replicas beyond the Machines that hold a place.
    /// `leaves` returns true for a Machine that is about to be deleted, and for which the size will be lowered.
    pub(super) fn placeholders(&self, size: i32, leaves: impl Fn(&Uid) -> bool) -> usize {
        let holding = self.instances.unwrap_or_else(|| self.holding.iter().filter(|uid| !leaves(uid)).count());
        usize::try_from(size).unwrap_or_default().saturating_sub(holding)
    }

    /// Returns true if it has a Machine.
    pub(super) fn has_any(&self) -> bool {
        self.all > 0
    }
}

/// Lists all Machines of the group, as the API server has them now.
pub(super) async fn machines(turn: &Turn) -> Result<GroupMachines, ScaleError> {
    let mut attempts = turn.attempts();
    let listed = loop {
        match turn.api().list_machines(&turn.id, &turn.index().owners(&turn.id)).await {
            Err(error) if attempts.again(&error).await => {}
            listed => break listed.map_err(|error| refusal::failed(&turn.id, &error))?,
        }
    };
    let (index, id) = (turn.index(), &turn.id);
    let members = index.members(id);
    let with_node: HashSet<_> =
        members.iter().filter(|member| member.node.is_some()).map(|member| &member.machine.meta.uid).collect();
    let (all, now) = (listed.len(), Timestamp::now());
    let holding: HashSet<_> = listed
        .into_iter()
        .filter(|machine| {
            let is_new = || machine.deleting_since().is_none_or(|since| now.duration_since(since) < MAY_BE_LOWERED_FOR);
            !machine.is_deleting() || is_new() || with_node.contains(&machine.uid())
        })
        .map(|machine| machine.uid())
        .collect();
    let instances = match id.kind {
        ScalableKind::MachinePool => {
            let listed = index.pool_instances(id).ok_or_else(|| refusal::not_scalable(id, &NotScalable::Unknown))?;
            Some(listed.max(holding.len()))
        }
        ScalableKind::MachineDeployment | ScalableKind::MachineSet => None,
    };
    Ok(GroupMachines { all, holding, instances })
}

/// Returns those of these Machines that the API server has and that aren't being deleted, in their present version. One
/// that was given up as never joined keeps its version, so that its DELETE fails if it has joined since.
pub(super) async fn still_there(turn: &Turn, targets: &[Target]) -> Result<Vec<Target>, CallError> {
    let mut there = Vec::new();
    for target in targets {
        let machine = turn.api().read_machine(&target.key, &target.uid).await?;
        let alive = machine.filter(|machine| !machine.deleting);
        there.extend(alive.map(|machine| {
            if target.never_joined { target.clone() } else { Target { version: machine.version, ..target.clone() } }
        }));
    }
    Ok(there)
}
