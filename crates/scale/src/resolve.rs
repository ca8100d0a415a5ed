//! Resolves the Nodes that a delete names to Machines, replicas and instances of a MachinePool.

use std::collections::{BTreeMap, HashSet};

use capi::{ObjectKey, ScalableKind, Uid};
use delete_rule::naming::{self, InstanceNaming, Naming, NodeSeen, Place};
use nodegroup::{Phase, PlaceholderRef};

use super::{
    answer,
    command::NodeName,
    error::ScaleError,
    options::MachinePoolDeletes,
    rule::{self, Named, RULE, Request},
    work::Work,
};
use index::{NodeQuery, Resolved};
use text::shortened;

/// The maximum length of a Node's id in an answer, in characters.
const LONGEST_ID: usize = 300;

/// The Machines, replicas and instances that the Nodes of a delete stand for.
#[derive(Debug, Default)]
pub(super) struct ResolvedNodes {
    /// The Machines by key, so that one named twice counts once: the uid, and true if it is given up as one that never
    /// joined.
    pub(super) machines: BTreeMap<ObjectKey, (Uid, bool)>,
    /// Replicas without a Machine, which only lower the size.
    pub(super) replicas: HashSet<String>,
    /// Instances of a MachinePool that aren't Machines, which only lower the size.
    pub(super) instances: HashSet<String>,
}

impl ResolvedNodes {
    fn is_empty(&self) -> bool {
        self.machines.is_empty() && self.replicas.is_empty() && self.instances.is_empty()
    }
}

/// Returns the request of a delete, and the number of its placeholders that this process has recently given up.
pub(super) fn request_of(work: &Work, nodes: &[NodeName]) -> Result<(Request, usize), ScaleError> {
    let named = find(work, nodes)?;
    if !named.instances.is_empty() {
        work.report_instances_without_machines();
    }
    let ResolvedNodes { machines, replicas, instances } = named;
    let machine = |(key, (uid, never_joined)): (ObjectKey, _)| Named { name: key.name, uid, never_joined };
    let given_up = replicas.iter().filter(|text| work.shared.accepted_deletions.has(&work.id, text)).count();
    let machines = machines.into_iter().map(machine).collect();
    Ok((Request { machines, replicas: replicas.len(), instances: instances.len() }, given_up))
}

/// Resolves each Node to what it stands for.
pub(super) fn find(work: &Work, nodes: &[NodeName]) -> Result<ResolvedNodes, ScaleError> {
    let (index, accepted_deletions, id) = (work.index(), &work.shared.accepted_deletions, &work.id);
    let mut named = ResolvedNodes::default();
    let mut waiting = None;
    if id.kind == ScalableKind::MachinePool {
        accepted_deletions.forget_returned(index, id);
    }
    for node in nodes {
        let query = NodeQuery { name: &node.name, provider_id: &node.provider_id, annotations: &node.annotations };
        let text = node.text();
        match index.resolve(query) {
            Resolved::Machine(machine, Some(group)) if group == *id => {
                let (key, uid) = (&machine.meta.key, &machine.meta.uid);
                let seen = naming::Named {
                    by_placeholder: PlaceholderRef::parse(text).is_some(),
                    is_deleting: machine.deleting,
                    node: match &machine.node_name {
                        _ if index.shows_node_of(&machine) => NodeSeen::Present,
                        Some(_) => NodeSeen::Reference,
                        None => NodeSeen::None,
                    },
                };
                match seen.decide(|| has_lowered(work, uid), || waits_for_rollout(work, uid)) {
                    Naming::Delete { never_joined } => {
                        named.machines.insert(key.clone(), (uid.clone(), never_joined));
                    }
                    Naming::HasJoined => return Err(answer::has_joined(id, &key.name)),
                    Naming::WaitsForRollout => waiting = Some(key.name.clone()),
                }
            }
            Resolved::Replica(group) if group == *id => {
                named.replicas.insert(text.to_owned());
            }
            Resolved::PoolInstance(group) if group == *id => {
                let seen = naming::Instance {
                    is_accepted: accepted_deletions.has(id, text),
                    place: match index.lists(id, &node.provider_id) {
                        _ if !index.members(id).is_empty() => Place::OfMachines,
                        true => Place::Listed,
                        false => Place::NotListed,
                    },
                    provider_may_choose: work.shared.options.machine_pool_deletes != MachinePoolDeletes::Refuse,
                };
                match seen.decide() {
                    InstanceNaming::Accepted => {}
                    InstanceNaming::Lower => {
                        named.instances.insert(text.to_owned());
                    }
                    InstanceNaming::NotListed => {
                        return Err(answer::not_listed(id, &shortened(text, LONGEST_ID)));
                    }
                    InstanceNaming::AwaitMachine => return Err(answer::is_of_machines(id)),
                    InstanceNaming::Refuse => return Err(answer::provider_would_choose(id)),
                }
            }
            Resolved::Machine(_, Some(other)) | Resolved::Replica(other) | Resolved::PoolInstance(other) => {
                return Err(ScaleError::InvalidArgument(format!(
                    "Node {} belongs to node group {other}, not to {id}; nothing was changed",
                    shortened(text, LONGEST_ID)
                )));
            }
            // It has been deleted since.
            Resolved::Unknown if accepted_deletions.has(id, text) => {}
            Resolved::Machine(_, None) | Resolved::Unknown => {
                return Err(ScaleError::NotFound(format!(
                    "Node {} leads to no Machine of node group {id}: neither its providerID nor its annotations are known; \
                     nothing was changed",
                    shortened(text, LONGEST_ID)
                )));
            }
        }
    }
    match waiting {
        // Cluster Autoscaler names an instance without a Node in every loop. After a success it would skip the rest of
        // each loop, for all groups.
        Some(machine) if named.is_empty() => Err(answer::waits_for_rollout(id, &machine)),
        _ => Ok(named),
    }
}

/// Returns true if the size was lowered for a Machine whose deletion by name waits for the end of a rollout.
fn waits_for_rollout(work: &Work, uid: &Uid) -> bool {
    let Some((version, sets)) = work.index().sets(&work.id) else { return false };
    let active = sets.iter().filter(|set| set.object.replicas.unwrap_or_default() > 0).count();
    let entry = || version.log().ok()?.get(uid).cloned();
    naming::waits_for_rollout(active, entry, || rule::followed(RULE, work.id.kind, &sets))
}

/// Returns true if the size was lowered for a Machine. It goes even if it has joined since.
fn has_lowered(work: &Work, uid: &Uid) -> bool {
    let log = work.view().ok().and_then(|view| view.version.log().ok());
    log.is_some_and(|log| log.get(uid).is_some_and(|entry| entry.phase == Phase::Lowered))
}
