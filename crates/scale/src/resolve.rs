//! What a delete names: the Machines, replicas and instances of a MachinePool behind its Nodes, and what is remembered of
//! deletions that were accepted and that no object shows: of Machines that are gone since or that the watch doesn't show as
//! deleted yet, and of instances that never were Machines. Each process has its own memory.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    mem,
    time::Duration,
};

use arcstr::ArcStr;
use parking_lot::Mutex;
use rules::{
    GroupId, NodeClaim, PlaceholderRef,
    capi::{Machine, ObjectKey, ScalableKind, Uid},
    text::shortened,
};
use shared_informer::ResourceVersion;
use tokio::time::Instant;

use super::{MachinePoolDeletes, answer, command::NodeName, error::ScaleError, queue::Work};
use index::{Index, NodeQuery, Resolved};

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
    /// The number of further replicas that this process gave up lately: they are missing from a recent count.
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
pub(super) fn request_of(work: &Work, nodes: &[NodeName]) -> Result<Request, ScaleError> {
    let (index, accepted, id) = (work.index(), &work.shared.accepted_deletions, &work.id);
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
                    return Err(answer::has_joined(id, &machine.meta.key.name));
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
                    return Err(answer::instance_has_joined(id, &shortened(text, LONGEST_ID)));
                }
                if !index.members(id).is_empty() {
                    return Err(answer::is_of_machines(id));
                }
                if !index.lists(id, &node.provider_id) {
                    return Err(answer::not_listed(id, &shortened(text, LONGEST_ID)));
                }
                if work.shared.options.machine_pool_deletes == MachinePoolDeletes::Refuse {
                    return Err(answer::provider_would_choose(id));
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

/// The time for which a Node counts as on its way out. After it a repeated delete counts as new, since the
/// infrastructure provider may have removed another instance.
const REMEMBERED_FOR: Duration = Duration::from_secs(300);

/// A Machine, Node or replica on its way out.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub(super) enum DeletionTarget {
    /// A Machine without a Node. Its instance changes its id when it is pending, failed or being deleted.
    Machine(ObjectKey),
    /// A Node, or an instance that isn't a Machine, by its providerID or name.
    Node(String),
    /// A replica without a Machine, by its placeholder.
    Replica(String),
    /// A Machine that this process has deleted or marked.
    Deleted(Uid),
}

impl DeletionTarget {
    /// Parses the text by which a caller names it.
    pub(super) fn named(text: &str) -> Self {
        match PlaceholderRef::parse(text) {
            Some(PlaceholderRef::Machine(key)) => Self::Machine(key),
            Some(PlaceholderRef::Replica(_)) => Self::Replica(text.to_owned()),
            None => Self::Node(text.to_owned()),
        }
    }
}

/// An accepted deletion.
#[derive(Clone, Copy, Debug)]
struct Accepted {
    since: Instant,
    /// True if its instance was seen to be gone.
    is_gone: bool,
}

/// The Machines, Nodes and replicas on their way out of each group.
#[derive(Debug, Default)]
pub(super) struct AcceptedDeletions(Mutex<HashMap<GroupId, HashMap<DeletionTarget, Accepted>>>);

impl AcceptedDeletions {
    /// Records that the deletion of these was accepted, or that a smaller target size removes them.
    pub(super) fn accept(&self, id: &GroupId, targets: impl IntoIterator<Item = DeletionTarget>) {
        let now = Instant::now();
        let mut accepted_deletions = self.0.lock();
        // Entries that nobody asks for again are dropped here.
        accepted_deletions.retain(|_, nodes| {
            nodes.retain(|_, accepted| now.duration_since(accepted.since) < REMEMBERED_FOR);
            !nodes.is_empty()
        });
        for target in targets {
            // One that is named again keeps its first time: a caller that asks in every loop would otherwise wait for
            // ever.
            let accepted = Accepted { since: now, is_gone: false };
            accepted_deletions.entry(id.clone()).or_default().entry(target).or_insert(accepted);
        }
    }

    /// Records that this process has deleted or marked a Machine.
    pub(super) fn deleted(&self, id: &GroupId, machine: &Uid) {
        self.accept(id, [DeletionTarget::Deleted(machine.clone())]);
    }

    /// Forgets a Machine whose mark was taken back.
    pub(super) fn stays(&self, id: &GroupId, machine: &Uid) {
        if let Some(nodes) = self.0.lock().get_mut(id) {
            nodes.remove(&DeletionTarget::Deleted(machine.clone()));
        }
    }

    /// Returns true if this process has deleted or marked a Machine lately.
    pub(super) fn has_deleted(&self, id: &GroupId, machine: &Uid) -> bool {
        self.has_target(id, &DeletionTarget::Deleted(machine.clone()))
    }

    /// Returns true if the instance that this text names is on its way out.
    pub(super) fn has(&self, id: &GroupId, node: &str) -> bool {
        self.has_target(id, &DeletionTarget::named(node))
    }

    fn has_target(&self, id: &GroupId, target: &DeletionTarget) -> bool {
        let mut accepted_deletions = self.0.lock();
        let Some(nodes) = accepted_deletions.get_mut(id) else { return false };
        nodes.retain(|_, accepted| accepted.since.elapsed() < REMEMBERED_FOR);
        let has = nodes.contains_key(target);
        if nodes.is_empty() {
            accepted_deletions.remove(id);
        }
        has
    }

    /// Forgets the placeholders of a group: with a larger size their names stand for other replicas.
    pub(super) fn forget_replicas(&self, id: &GroupId) {
        if let Some(nodes) = self.0.lock().get_mut(id) {
            nodes.retain(|target, _| !matches!(target, DeletionTarget::Replica(_)));
        }
    }

    /// Forgets the instances that a MachinePool has again after they were gone: these are new ones. One that is gone is
    /// remembered, since its Node may still be named.
    pub(super) fn forget_returned(&self, index: &Index, id: &GroupId) {
        let no_annotations = HashMap::new();
        let is_there = |target: &DeletionTarget| match target {
            // Its name is never used again.
            DeletionTarget::Machine(_) | DeletionTarget::Replica(_) | DeletionTarget::Deleted(_) => true,
            DeletionTarget::Node(instance) => {
                let query = NodeQuery { name: instance, provider_id: instance, annotations: &no_annotations };
                index.resolve(query).group().as_ref() == Some(id)
            }
        };
        if let Some(nodes) = self.0.lock().get_mut(id) {
            nodes.retain(|target, accepted| {
                let was_gone = mem::replace(&mut accepted.is_gone, !is_there(target));
                !was_gone || accepted.is_gone
            });
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn accepted_deletions_that_are_not_repeated_are_forgotten_at_a_later_deletion() {
        let group = |name: &str| GroupId::parse(&format!("MachineDeployment/team-a/{name}")).unwrap();
        let accepted_deletions = AcceptedDeletions::default();
        for minute in 0..100 {
            accepted_deletions
                .accept(&group(&format!("g{minute}")), ["a", &format!("b{minute}")].map(DeletionTarget::named));
            tokio::time::advance(Duration::from_secs(60)).await;
        }
        let remembered: usize = accepted_deletions.0.lock().values().map(HashMap::len).sum();
        assert_eq!(remembered, 10, "of the last 5 minutes");
        assert!(accepted_deletions.has(&group("g99"), "a"));
    }
}
