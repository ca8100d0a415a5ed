//! Delete: the named Machines are marked so that their MachineSet takes them first, then the size is lowered by as
//! many. All or nothing: a Node that isn't of the group refuses the request before anything is written, and a size
//! write that is known not to have been done takes the marks back.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use futures::{StreamExt, stream};
use jiff::Timestamp;
use tokio::time::Instant;

use super::{Command, ScaleError, api::CallError, size::NotWritten};
use crate::{
    capi::{Machine, ObjectKey},
    index::{Index, NodeQuery, Resolved},
    informer::Uid,
    nodegroup::{GroupId, PlaceholderRef, size},
};

/// How many Machines are marked side by side.
const MARKS_AT_ONCE: usize = 16;

/// A Node as the caller names it.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct NodeName {
    /// Its name, or the instance id of one that has no Node.
    pub name: String,
    /// Its providerID, or the instance id of one that has no Node.
    pub provider_id: String,
    /// Its annotations.
    pub annotations: HashMap<String, String>,
}

/// How long an instance that is still there counts as on its way out. A MachineSet follows within seconds; if it took
/// another Machine in its stead, naming the Machine again has to have an effect again.
const GOING_FOR: Duration = Duration::from_secs(300);

/// What was accepted for deletion, with when, and may still be there: named again, it lowers nothing.
#[derive(Debug, Default)]
pub(super) struct Accepted {
    /// Machines by key and uid.
    machines: HashMap<(ObjectKey, Uid), Instant>,
    /// Instances of a MachinePool that are no Machines, by providerID.
    instances: HashMap<String, Instant>,
}

impl Accepted {
    pub(super) fn is_empty(&self) -> bool {
        self.machines.is_empty() && self.instances.is_empty()
    }

    /// Forgets what is gone or on its way out, which the index tells by itself, and what should have gone long ago.
    fn forget_gone(&mut self, index: &Index, id: &GroupId) {
        self.machines.retain(|(key, uid), since| since.elapsed() < GOING_FOR && index.is_alive(key, uid));
        let no_annotations = HashMap::new();
        self.instances.retain(|provider_id, since| {
            let query = NodeQuery { name: provider_id, provider_id, annotations: &no_annotations };
            since.elapsed() < GOING_FOR && index.resolve(query).group().as_ref() == Some(id)
        });
    }
}

/// What a request names, sorted by what has to be done.
#[derive(Debug, Default)]
struct Named {
    /// Machines to mark; by name, so that one named twice counts once.
    machines: BTreeMap<ObjectKey, Arc<Machine>>,
    /// Replicas without a Machine, which only lower the size.
    replicas: HashSet<String>,
    /// Instances of a MachinePool that are no Machines, which only lower the size.
    instances: HashSet<String>,
}

impl Command {
    pub(super) async fn delete(&self, nodes: Vec<NodeName>, accepted: &mut Accepted) -> Result<(), ScaleError> {
        let view = self.view()?;
        accepted.forget_gone(self.index(), &self.id);
        let named = self.sort(&nodes, accepted)?;
        let count = named.machines.len() + named.replicas.len() + named.instances.len();
        if count == 0 {
            return Ok(());
        }
        self.refuse_while_rolling_out(&view)?;
        let missing = usize::try_from(view.size.saturating_sub(view.machines)).unwrap_or_default();
        if named.replicas.len() > missing {
            return Err(ScaleError::FailedPrecondition(format!(
                "{}: {} replicas without a Machine were named and only {} are left: the others have a Machine by now; \
                 nothing was changed, ask for the group's instances again",
                self.id,
                named.replicas.len(),
                missing
            )));
        }
        let bounds = view.bounds;
        let decide = |current| size::delete(current, count, bounds);
        // Refused before anything is written, not after the marks.
        if let Err(below) = decide(view.size) {
            let machines: Vec<_> = named.machines.into_values().collect();
            return self.replace_one(&machines, count - machines.len(), &view, self.refused(&below)).await;
        }
        if !named.instances.is_empty() {
            tracing::warn!(group = %self.id, "the MachinePool has no Machines for these Nodes: its infrastructure provider chooses which instance goes");
        }
        let machines: Vec<_> = named.machines.into_values().collect();
        self.mark(&machines).await?;
        match self.write(view.size, decide).await {
            Ok(()) => {
                let now = Instant::now();
                let identity = |machine: &Arc<Machine>| (machine.meta.key.clone(), machine.meta.uid.clone());
                accepted.machines.extend(machines.iter().map(|machine| (identity(machine), now)));
                accepted.instances.extend(named.instances.into_iter().map(|instance| (instance, now)));
                Ok(())
            }
            Err(failure) => Err(self.give_up(&machines, failure).await),
        }
    }

    /// Takes the marks back of a size that wasn't written. Where it may have been, they stay: without them the
    /// MachineSet would choose other Machines, which nobody has drained.
    pub(super) async fn give_up(&self, marked: &[Arc<Machine>], failure: NotWritten) -> ScaleError {
        if !failure.maybe_done {
            self.unmark(marked).await;
        }
        failure.error
    }

    /// Finds what each Node stands for.
    fn sort(&self, nodes: &[NodeName], accepted: &Accepted) -> Result<Named, ScaleError> {
        let mut named = Named::default();
        for node in nodes {
            let query = NodeQuery { name: &node.name, provider_id: &node.provider_id, annotations: &node.annotations };
            let text = if node.provider_id.is_empty() { &node.name } else { &node.provider_id };
            match self.index().resolve(query) {
                Resolved::Machine(machine, Some(group)) if group == self.id => {
                    let has_joined =
                        PlaceholderRef::parse(text).is_some() && machine.node_name.is_some() && !machine.deleting;
                    if has_joined {
                        return Err(ScaleError::FailedPrecondition(format!(
                            "{}: instance {text} has joined as Node {} meanwhile; nothing was changed, ask for the \
                             group's instances again",
                            self.id,
                            machine.node_name.as_deref().unwrap_or_default()
                        )));
                    }
                    let identity = (machine.meta.key.clone(), machine.meta.uid.clone());
                    // On its way out already: a success that lowers nothing.
                    if !machine.deleting && !accepted.machines.contains_key(&identity) {
                        named.machines.insert(identity.0, machine);
                    }
                }
                Resolved::Replica(group) if group == self.id => {
                    named.replicas.insert(text.clone());
                }
                Resolved::PoolInstance(group) if group == self.id => {
                    if !accepted.instances.contains_key(text) {
                        named.instances.insert(text.clone());
                    }
                }
                Resolved::Machine(_, Some(other)) | Resolved::Replica(other) | Resolved::PoolInstance(other) => {
                    return Err(ScaleError::InvalidArgument(format!(
                        "Node {text} belongs to node group {other}, not to {}; nothing was changed",
                        self.id
                    )));
                }
                Resolved::Machine(_, None) | Resolved::Unknown => {
                    return Err(ScaleError::NotFound(format!(
                        "Node {text} leads to no Machine of node group {}: neither its providerID nor its annotations \
                         are known; nothing was changed",
                        self.id
                    )));
                }
            }
        }
        Ok(named)
    }

    /// Marks Machines side by side. When one can't be marked, the marks that were set are taken back.
    async fn mark(&self, machines: &[Arc<Machine>]) -> Result<(), ScaleError> {
        let value = format!("capi-autoscaler-provider {}", Timestamp::now());
        let results = self.set_marks(machines, Some(&value)).await;
        let Some(error) = results.iter().find_map(|(_, result)| result.as_ref().err()) else { return Ok(()) };
        let error = self.failed(error);
        // Where the answer was lost the mark may stand: it is taken back as well.
        let maybe_marked: Vec<_> = results
            .into_iter()
            .filter(|(_, result)| matches!(result, Ok(()) | Err(CallError::Unknown(_))))
            .map(|(machine, _)| machine)
            .collect();
        self.unmark(&maybe_marked).await;
        Err(error)
    }

    /// Takes marks back, those excepted that were there before this command. A failure is only logged: the mark
    /// of a Machine that stays is harmless until its MachineSet shrinks, and the next delete of it sets it anyway.
    pub(super) async fn unmark(&self, machines: &[Arc<Machine>]) {
        let ours: Vec<_> = machines.iter().filter(|machine| !machine.marked_for_deletion).cloned().collect();
        for (machine, result) in self.set_marks(&ours, None).await {
            if let Err(error) = result {
                let error = self.failed(&error);
                tracing::warn!(group = %self.id, machine = %machine.meta.key, "can't take the delete-machine annotation back: {error}");
            }
        }
    }

    async fn set_marks(
        &self,
        machines: &[Arc<Machine>],
        value: Option<&str>,
    ) -> Vec<(Arc<Machine>, Result<(), CallError>)> {
        let write = if value.is_some() { "mark" } else { "unmark" };
        stream::iter(machines.to_vec())
            .map(async |machine| {
                let result = self.api().set_mark(&machine, value).await;
                self.inner.metrics.count_write(write, if result.is_ok() { "ok" } else { "error" });
                (machine, result)
            })
            .buffer_unordered(MARKS_AT_ONCE)
            .collect()
            .await
    }

    /// Marks as many Machines without a Node as a smaller size takes away. Those that are being deleted are taken
    /// before marked ones, so they don't count.
    pub(super) async fn mark_without_node(
        &self,
        machines_with_node: i32,
        target: i32,
    ) -> Result<Vec<Arc<Machine>>, ScaleError> {
        let mut machines = self.index().machines_without_node(&self.id);
        let staying = usize::try_from(target.saturating_sub(machines_with_node)).unwrap_or_default();
        machines.truncate(machines.len().saturating_sub(staying));
        self.mark(&machines).await?;
        Ok(machines)
    }
}
