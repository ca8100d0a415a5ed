//! What a process remembers of deletions that it has accepted and that no object shows: of Machines that are gone since, or
//! that the watch doesn't show as deleted yet, and of instances that never were Machines.

use std::{collections::HashMap, mem, time::Duration};

use parking_lot::Mutex;
use rules::{
    GroupId, PlaceholderRef,
    capi::{ObjectKey, Uid},
};
use tokio::time::Instant;

use index::{Index, NodeQuery};

/// The time for which a Node counts as on its way out. After it a repeated delete counts as new, since the
/// infrastructure provider may have removed another instance.
const REMEMBERED_FOR: Duration = Duration::from_secs(300);

/// A Machine, Node or replica on its way out.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub(super) enum DeletionTarget {
    /// A Machine without a Node, by its name: the id of its instance differs while it is pending, failed or being deleted.
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
