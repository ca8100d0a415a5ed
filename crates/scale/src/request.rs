//! What a delete names: the Machines, replicas and instances of a MachinePool behind its Nodes.

use std::collections::{BTreeMap, HashMap, HashSet};

use arcstr::ArcStr;
use rules::{
    GroupId, NodeClaim,
    capi::{Machine, ObjectKey, ScalableKind, Uid},
    text::shortened,
};
use shared_informer::ResourceVersion;

use super::{MachinePoolDeletes, error::ScaleError, refusal, turn::Turn};
use index::{NodeQuery, Resolved, ScaleView};

/// The maximum length of a Node's id in an answer, in characters.
pub(super) const LONGEST_ID: usize = 300;

/// A Node as the caller names it.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct NamedNode {
    /// Its name, or the instance id of one that has no Node.
    pub name: String,
    /// Its providerID, or the instance id of one that has no Node.
    pub provider_id: String,
    /// Its annotations.
    pub annotations: HashMap<String, String>,
}

impl NamedNode {
    fn query(&self) -> NodeQuery<'_> {
        NodeQuery { name: &self.name, provider_id: &self.provider_id, annotations: &self.annotations }
    }

    /// Returns the text that identifies it: its providerID, or its name if it has none.
    pub(super) fn text(&self) -> &str {
        if self.provider_id.is_empty() { &self.name } else { &self.provider_id }
    }
}

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
    pub(super) fn has_some_without_machine(&self) -> bool {
        self.replicas + self.instances > 0
    }
}

/// Resolves each Node of a delete to what it stands for.
pub(super) fn request_of(turn: &Turn, nodes: &[NamedNode]) -> Result<Request, ScaleError> {
    let (index, accepted, id) = (turn.index(), &turn.shared.accepted_deletions, &turn.id);
    // One that is named twice counts once.
    let mut machines = BTreeMap::new();
    let (mut replicas, mut instances) = (HashSet::new(), HashSet::new());
    if id.kind == ScalableKind::MachinePool {
        accepted.forget_returned(index, id);
    }
    for node in nodes {
        let text = node.text();
        let claim = NodeClaim::of(text, |key| node.annotations.get(key).map(String::as_str));
        match index.resolve(node.query()) {
            Resolved::Machine(machine, Some(group)) if group == *id => {
                if machine.deleting || accepted.has_deleted(id, &machine.meta.uid) {
                    continue;
                }
                if claim.is_wrong(machine.node_name.is_some(), index.has_live_node(&machine)) {
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
                if claim.is_wrong(false, index.has_live_node_of_instance(id, &node.provider_id)) {
                    return Err(refusal::instance_has_joined(id, &shortened(text, LONGEST_ID)));
                }
                if !index.members(id).is_empty() {
                    return Err(refusal::is_of_machines(id));
                }
                if !index.pool_lists(id, &node.provider_id) {
                    return Err(refusal::not_listed(id, &shortened(text, LONGEST_ID)));
                }
                if turn.shared.options.machine_pool_deletes == MachinePoolDeletes::Refuse {
                    return Err(refusal::provider_would_choose(id));
                }
                instances.insert(text.to_owned());
            }
            Resolved::Machine(_, Some(other)) | Resolved::Replica(other) | Resolved::PoolInstance(other) => {
                return Err(refusal::of_another_group(id, text, &other));
            }
            // It has been deleted since.
            Resolved::Unknown if accepted.has(id, text) => {}
            Resolved::Machine(_, None) | Resolved::Unknown => {
                return Err(refusal::unknown_node(id, text));
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

/// Refuses to remove these Machines and replicas without a Machine while the group is rolling out, unless it permits that
/// and the smaller size would take just these.
pub(super) fn check_rollout(
    id: &GroupId,
    view: &ScaleView,
    machines: &[Target],
    replicas: usize,
) -> Result<(), ScaleError> {
    if let Some(rollout) = &view.rollout {
        return Err(refusal::rolling_out(id, rollout));
    }
    match &view.on_delete_shrinks_first {
        Some(oldest) if replicas > 0 || machines.iter().any(|machine| machine.owner.as_ref() != Some(oldest)) => {
            Err(refusal::not_the_oldest(id, oldest))
        }
        Some(_) | None => Ok(()),
    }
}
