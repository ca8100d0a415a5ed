//! What a delete names: the Machines, replicas and instances of a MachinePool behind its Nodes.

use std::collections::{BTreeMap, HashSet};

use arcstr::ArcStr;
use rules::{
    NodeClaim,
    capi::{Machine, ObjectKey, ScalableKind, Uid},
    text::shortened,
};
use shared_informer::ResourceVersion;

use super::{MachinePoolDeletes, error::ScaleError, queue::NodeName, refusal, turn::Turn};
use index::{NodeQuery, Resolved};

/// The maximum length of a Node's id in an answer, in characters.
const LONGEST_ID: usize = 300;

/// A Machine that is to go.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Target {
    pub(super) key: ObjectKey,
    pub(super) uid: Uid,
    /// The version on which its deletion is decided.
    pub(super) version: ResourceVersion,
    /// True if it is given up as one that never joined: it stays if it has a Node by now.
    pub(super) never_joined: bool,
    /// The MachineSet that owns it.
    pub(super) owner: Option<ArcStr>,
}

impl Target {
    pub(super) fn of(machine: &Machine, never_joined: bool) -> Self {
        Self {
            key: machine.meta.key.clone(),
            uid: machine.meta.uid.clone(),
            version: machine.meta.resource_version.clone(),
            never_joined,
            owner: machine.owner.as_ref().map(|(_, owner)| owner.clone()),
        }
    }
}

/// What the Nodes of a delete stand for, without what is on its way out already.
#[derive(Clone, Debug, Default)]
pub(super) struct Request {
    pub(super) machines: Vec<Target>,
    /// The number of replicas without a Machine, which only lower the size.
    pub(super) replicas: usize,
    /// How many of `replicas` this process gave up lately: a recent count may not have them any more.
    pub(super) given_up: usize,
    /// The number of instances of a MachinePool that aren't Machines, which only lower the size.
    pub(super) instances: usize,
}

impl Request {
    /// Returns true if it names replicas or instances that aren't Machines.
    pub(super) fn lowers_by_itself(&self) -> bool {
        self.replicas + self.instances > 0
    }
}

/// Resolves each Node of a delete to what it stands for.
pub(super) fn request_of(turn: &Turn, nodes: &[NodeName]) -> Result<Request, ScaleError> {
    let (index, accepted, id) = (turn.index(), &turn.shared.accepted_deletions, &turn.id);
    // One that is named twice counts once.
    let mut machines = BTreeMap::new();
    let (mut replicas, mut instances) = (HashSet::new(), HashSet::new());
    if id.kind == ScalableKind::MachinePool {
        accepted.forget_returned(index, id);
    }
    for node in nodes {
        let query = NodeQuery { name: &node.name, provider_id: &node.provider_id, annotations: &node.annotations };
        let text = node.text();
        let claim = NodeClaim::of(text, |key| node.annotations.get(key).map(String::as_str));
        match index.resolve(query) {
            Resolved::Machine(machine, Some(group)) if group == *id => {
                if machine.deleting || accepted.has_deleted(id, &machine.meta.uid) {
                    continue;
                }
                if claim.is_wrong(machine.node_name.is_some(), index.shows_node_of(&machine)) {
                    return Err(refusal::has_joined(id, &machine.meta.key.name));
                }
                let never_joined = claim == NodeClaim::NeverJoined;
                machines.insert(machine.meta.key.clone(), Target::of(&machine, never_joined));
            }
            Resolved::Replica(group) if group == *id => {
                replicas.insert(text.to_owned());
            }
            Resolved::PoolInstance(group) if group == *id => {
                if accepted.has(id, text) {
                    continue;
                }
                if claim.is_wrong(false, index.shows_node_of_instance(id, &node.provider_id)) {
                    return Err(refusal::instance_has_joined(id, &shortened(text, LONGEST_ID)));
                }
                if !index.members(id).is_empty() {
                    return Err(refusal::is_of_machines(id));
                }
                if !index.lists(id, &node.provider_id) {
                    return Err(refusal::not_listed(id, &shortened(text, LONGEST_ID)));
                }
                if turn.shared.options.machine_pool_deletes == MachinePoolDeletes::Refuse {
                    return Err(refusal::provider_would_choose(id));
                }
                instances.insert(text.to_owned());
            }
            Resolved::Machine(_, Some(other)) | Resolved::Replica(other) | Resolved::PoolInstance(other) => {
                return Err(ScaleError::InvalidArgument(format!(
                    "Node {} belongs to node group {other}, not to {id}; nothing was changed",
                    shortened(text, LONGEST_ID)
                )));
            }
            // It has been deleted since.
            Resolved::Unknown if accepted.has(id, text) => {}
            Resolved::Machine(_, None) | Resolved::Unknown => {
                return Err(ScaleError::NotFound(format!(
                    "Node {} leads to no Machine of node group {id}: neither its providerID nor its annotations are known; \
                     nothing was changed",
                    shortened(text, LONGEST_ID)
                )));
            }
        }
    }
    let given_up = replicas.iter().filter(|text| accepted.has(id, text)).count();
    Ok(Request {
        machines: machines.into_values().collect(),
        replicas: replicas.len(),
        given_up,
        instances: instances.len(),
    })
}
