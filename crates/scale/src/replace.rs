//! Replaces a Machine that never became a Node at the min size: it is deleted by name, and the size stays, so that its
//! MachineSet creates another one. [`rules::replacement`] decides when.

use jiff::Timestamp;
use rules::capi::{Machine, ScalableKind};
use rules::{
    SizeError, instance,
    replacement::{self, Replacement},
};

use super::{
    AtMinSize,
    error::ScaleError,
    events::EventContent,
    refusal,
    removal::{self, Fate},
    request::{Request, Target},
    turn::Turn,
};
use index::Member;

/// Replaces one Machine of a request for which the size can't be lowered, if that is permitted by now.
pub(super) async fn replace(turn: &Turn, request: &Request, below: SizeError) -> Result<(), ScaleError> {
    let (index, id) = (turn.index(), &turn.id);
    let refused = || refusal::size(id, &below);
    if request.has_some_without_machine() || id.kind == ScalableKind::MachinePool {
        return Err(refused());
    }
    let view = turn.view()?;
    let members = index.members(id);
    let is_named =
        |machine: &Machine| !machine.deleting && request.machines.iter().any(|target| target.uid == machine.meta.uid);
    let named: Vec<_> = members.iter().filter(|member| is_named(&member.machine)).collect();
    let known = view.replaced.as_ref();
    let Some(first) = replacement::first(named.iter().map(|member| member.machine.as_ref()), known) else {
        // The named Machines are being deleted and will be replaced.
        return Ok(());
    };
    // Only a MachineHealthCheck may decide that a Machine with a Node is dead.
    let is_allowed = turn.shared.options.at_min_size == AtMinSize::Replace;
    if !is_allowed || named.iter().any(|member| member.has_joined()) {
        return Err(refused());
    }
    let siblings = instance::siblings(members.iter().map(Member::view));
    let replaced = match replacement::decide(known, &first.meta.uid, siblings, Timestamp::now()) {
        Replacement::Delete(replaced) => replaced,
        Replacement::Wait(until) => return Err(refusal::not_replaced_yet(&refused(), until)),
    };
    let (target, next) = (Target::of(first, true), replaced.next());
    let fate = removal::delete_one(turn, &target, false).await;
    removal::record(turn, &target, &fate);
    match fate {
        Fate::Removed | Fate::MaybeRemoved => {
            index.set_replaced(id, replaced);
            report(turn, &members, first);
        }
        Fate::RemovedAndLowered | Fate::RemovedNotLowered(_) | Fate::RemovedByOthers => {}
        Fate::HasJoined => return Err(refused()),
        Fate::Stays(error) => return Err(refusal::failed(id, &error)),
    }
    match named.len() - 1 {
        0 => Ok(()),
        others => Err(refusal::others_wait(&refused(), &target.key.name, others, next)),
    }
}

fn report(turn: &Turn, members: &[Member], machine: &Machine) {
    let member = members.iter().find(|member| member.machine.meta.uid == machine.meta.uid);
    let error = member.and_then(|member| instance::of_machine(member.view()).error);
    let why = error.map_or_else(|| "it was given up".to_owned(), |error| error.message);
    let (group, name) = (&turn.id, &machine.meta.key.name);
    tracing::info!(%group, machine = %name, client = turn.clients(), "Machine is replaced at the minimum size: {why}");
    turn.report(EventContent::replaced(name, &why));
}
