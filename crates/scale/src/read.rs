//! Reads objects for commands and reconciles, in the form that the rule takes.

use std::collections::HashSet;

use capi::{ObjectKey, ScalableKind};
use nodegroup::{
    Ticket,
    writing::{CallError, GroupVersion},
};

use super::{
    api::MachineDetails,
    rule::{Details, GroupMachines, Life, Named},
    work::Work,
};

/// Reads the group's object.
pub(super) async fn group(work: &Work) -> Result<GroupVersion, CallError> {
    let seen = work.api().read_group(&work.id).await?;
    work.store_version(&seen.version);
    Ok(seen.version)
}

/// Reads the life of a Machine.
pub(super) async fn life(work: &Work, named: &Named) -> Result<Life, CallError> {
    let seen = work.api().read_machine(&work.machine_key(&named.name), &named.uid).await?;
    Ok(match seen {
        None => Life::Gone,
        Some(seen) if seen.deleting => Life::Deleting,
        Some(_) => Life::Alive,
    })
}

/// Reads a Machine that is given up as one that never joined: its life and, while it is alive, whether it has a Node.
pub(super) async fn details(work: &Work, named: &Named) -> Result<Details, CallError> {
    let key = work.machine_key(&named.name);
    Ok(match work.api().read_machine_details(&key, &named.uid).await? {
        None => Details { life: Life::Gone, has_joined: false, version: None, ticket: None },
        Some(machine) => {
            let ticket = machine.delete_mark.as_deref().and_then(Ticket::of_mark);
            if machine.deleting {
                Details { life: Life::Deleting, has_joined: false, version: None, ticket }
            } else {
                let has_joined = has_joined(work, &key, &machine);
                Details { life: Life::Alive, has_joined, version: Some(machine.version), ticket }
            }
        }
    })
}

/// Returns true if a Machine has a Node, by the nodeRef that was read or by a Node of the workload cluster.
fn has_joined(work: &Work, key: &ObjectKey, machine: &MachineDetails) -> bool {
    machine.node_name.is_some() || work.index().knows_node_of(key, machine.provider_id.as_ref())
}

/// Lists all Machines of the group, as the API server has them now.
pub(super) async fn list(work: &Work) -> Result<GroupMachines, CallError> {
    let (index, id) = (work.index(), &work.id);
    let machines = work.api().list_machines(id, &index.owners(id)).await?;
    let members = index.members(id);
    let with_node: HashSet<_> =
        members.iter().filter(|member| member.node.is_some()).map(|member| &member.machine.meta.uid).collect();
    let mut listed = GroupMachines::default();
    for machine in machines {
        if !machine.deleting {
            listed.alive.insert(machine.uid);
        } else if with_node.contains(&machine.uid) {
            listed.draining.insert(machine.uid);
        } else {
            listed.without_node.push(Named { name: machine.name, uid: machine.uid, never_joined: false });
        }
    }
    listed.without_node.sort_by(|a, b| a.name.cmp(&b.name));
    if id.kind == ScalableKind::MachinePool {
        let Ok(view) = index.scale_view(id) else {
            return Err(CallError::Unknown(format!("{id} can't be counted: it isn't a group now"), None));
        };
        let known = usize::try_from(view.machines).unwrap_or_default();
        listed.instances = Some(known.max(listed.alive.len() + listed.draining.len()));
    }
    Ok(listed)
}
