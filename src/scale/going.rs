//! Which Nodes are on their way out that nothing else tells of: a memory of this process alone, in which nothing is that
//! an exact result depends on. Machines have the log of deletions; here is what has gone since, and what never was one.

use std::{collections::HashMap, time::Duration};

use capi::ObjectKey;
use nodegroup::{GroupId, PlaceholderRef};
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::index::{Index, NodeQuery};

/// How long a Node counts as on its way out. An infrastructure provider that has taken another instance in its stead is
/// asked again after that.
const GOING_FOR: Duration = Duration::from_secs(300);

/// What is on its way out.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub(super) enum Leaving {
    /// A Machine without a Node. Its instance has one id after the other, as it is pending, failed or being deleted.
    Machine(ObjectKey),
    /// A Node, or an instance that is no Machine, by its providerID or name.
    Node(String),
    /// A replica without a Machine, by its placeholder.
    Replica(String),
}

impl Leaving {
    /// What a caller names by this text.
    pub(super) fn named(text: &str) -> Self {
        match PlaceholderRef::parse(text) {
            Some(PlaceholderRef::Machine(key)) => Self::Machine(key),
            Some(PlaceholderRef::Replica(_)) => Self::Replica(text.to_owned()),
            None => Self::Node(text.to_owned()),
        }
    }
}

/// What is on its way out of each group, with since when.
#[derive(Debug, Default)]
pub(super) struct Going(Mutex<HashMap<GroupId, HashMap<Leaving, Instant>>>);

impl Going {
    /// Remembers that the deletion of these was accepted, or a smaller target size takes them.
    pub(super) fn accept(&self, id: &GroupId, leaving: impl IntoIterator<Item = Leaving>) {
        let now = Instant::now();
        let mut going = self.0.lock();
        // Nobody may ever ask for them again.
        going.retain(|_, nodes| {
            nodes.retain(|_, since| now.duration_since(*since) < GOING_FOR);
            !nodes.is_empty()
        });
        for one in leaving {
            // One that is named again is on its way since it was named first: whoever asks in every loop would else wait for ever.
            going.entry(id.clone()).or_default().entry(one).or_insert(now);
        }
    }

    /// Whether what this text names is on its way out.
    pub(super) fn has(&self, id: &GroupId, node: &str) -> bool {
        let mut going = self.0.lock();
        let Some(nodes) = going.get_mut(id) else { return false };
        nodes.retain(|_, since| since.elapsed() < GOING_FOR);
        let has = nodes.contains_key(&Leaving::named(node));
        if nodes.is_empty() {
            going.remove(id);
        }
        has
    }

    /// Forgets the placeholders of a group: of a larger size they are others.
    pub(super) fn forget_replicas(&self, id: &GroupId) {
        if let Some(nodes) = self.0.lock().get_mut(id) {
            nodes.retain(|leaving, _| !matches!(leaving, Leaving::Replica(_)));
        }
    }

    /// Forgets the instances of a MachinePool that it doesn't list any more: one that is listed again is another.
    pub(super) fn forget_gone(&self, index: &Index, id: &GroupId) {
        let no_annotations = HashMap::new();
        let is_listed = |leaving: &Leaving| match leaving {
            // Its name is never used again.
            Leaving::Machine(_) | Leaving::Replica(_) => true,
            Leaving::Node(instance) => {
                let query = NodeQuery { name: instance, provider_id: instance, annotations: &no_annotations };
                index.resolve(query).group().as_ref() == Some(id)
            }
        };
        if let Some(nodes) = self.0.lock().get_mut(id) {
            nodes.retain(|instance, _| is_listed(instance));
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_nobody_asks_for_again_is_forgotten_with_the_next_deletion() {
        let group = |name: &str| GroupId::parse(&format!("MachineDeployment/team-a/{name}")).unwrap();
        let going = Going::default();
        for minute in 0..100 {
            going.accept(&group(&format!("g{minute}")), ["a", &format!("b{minute}")].map(Leaving::named));
            tokio::time::advance(Duration::from_secs(60)).await;
        }
        let remembered: usize = going.0.lock().values().map(HashMap::len).sum();
        assert_eq!(remembered, 10, "of the last 5 minutes");
        assert!(going.has(&group("g99"), "a"));
    }
}
