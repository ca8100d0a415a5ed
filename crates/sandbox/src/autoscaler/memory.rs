//! The state of a driver: what lasts from one loop to the next, and what one loop works on.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use anyhow::Result;
use k8s_openapi::api::core::v1::{Node as CoreNode, Pod};
use proto::{Instance as GroupInstance, NodeGroup};
use tokio::time::Instant;

use super::{
    Backoff,
    pods::{Shape, is_leaving, is_ready, is_younger},
};

/// The state that lasts from one loop to the next.
#[derive(Default)]
pub(super) struct Memory {
    /// The Nodes and Pods of the last successful list.
    pub(super) listed: Option<(Vec<CoreNode>, Vec<Pod>)>,
    /// The shape of a ready Node of each group, or of its template until the group has had a ready Node.
    pub(super) shapes: BTreeMap<String, Shape>,
    pub(super) seen_ready: BTreeSet<String>,
    /// The target sizes of the groups, as last answered.
    pub(super) targets: BTreeMap<String, i32>,
    /// The Nodes of each group in this loop, counted by state. A group without Nodes and without expected instances has
    /// no entry.
    pub(super) readiness: BTreeMap<String, Readiness>,
    /// The number of Nodes, and the number of unready ones.
    pub(super) total: (usize, usize),
    /// The instances of each group, as last answered.
    pub(super) instances: BTreeMap<String, Vec<GroupInstance>>,
    pub(super) instances_since: Option<Instant>,
    /// The groups whose instances are fetched again in the next loop.
    pub(super) invalid: BTreeSet<String>,
    /// The instances without a Node, by id.
    pub(super) unregistered: BTreeMap<String, Unregistered>,
    /// The instances that had an error in the last loop.
    pub(super) failed: BTreeSet<String>,
    /// The groups whose size isn't the number of their Nodes: that number, the size, and the time since when.
    pub(super) incorrect: BTreeMap<String, (usize, i32, Instant)>,
    /// The groups that failed to grow.
    pub(super) backed_off: BackedOff,
    /// The increases whose Nodes have yet to join.
    pub(super) requests: BTreeMap<String, Request>,
    /// The time since which a Node has been unneeded, by name.
    pub(super) unneeded: BTreeMap<String, Instant>,
    /// The time until which a Node that couldn't be removed is skipped, by name.
    pub(super) unremovable: BTreeMap<String, Instant>,
    /// The Nodes that are being drained or deleted, by name.
    pub(super) deleting: BTreeMap<String, NodeDeletion>,
    /// The times of the last changes to groups and Nodes.
    pub(super) cooldown: Cooldown,
    /// True once `GPULabel` has succeeded, whose answer is cached for good.
    pub(super) knows_gpu_label: bool,
    pub(super) knows_gpu_types: bool,
}

/// The objects that one loop works on.
pub(super) struct LoopInput {
    pub(super) groups: Vec<NodeGroup>,
    /// The Nodes of each group.
    pub(super) nodes: BTreeMap<String, Vec<CoreNode>>,
    /// The Nodes without a group.
    pub(super) others: Vec<CoreNode>,
    pub(super) pods: Vec<Pod>,
    /// The Nodes that were being deleted when the loop began.
    pub(super) deleting: BTreeMap<String, NodeDeletion>,
}

impl LoopInput {
    pub(super) fn nodes_of(&self, group: &str) -> &[CoreNode] {
        self.nodes.get(group).map(Vec::as_slice).unwrap_or_default()
    }

    pub(super) fn all_nodes(&self) -> impl Iterator<Item = &CoreNode> {
        self.nodes.values().flatten().chain(&self.others)
    }
}

/// An instance that has no Node and should have one.
#[derive(Clone, Debug)]
pub(super) struct Unregistered {
    pub(super) since: Instant,
    /// The group and its provision time, or `None` if the call failed.
    pub(super) of: Option<(String, Duration)>,
}

impl Unregistered {
    pub(super) fn is_late(&self) -> bool {
        self.of.as_ref().is_some_and(|(_, provision)| self.since.elapsed() > *provision)
    }
}

/// An increase whose Nodes have yet to join.
#[derive(Clone, Copy, Debug)]
pub(super) struct Request {
    pub(super) by: i32,
    pub(super) until: Instant,
}

/// The Nodes of a group, and the instances that should become one, counted by state.
#[derive(Clone, Debug, Default)]
pub(super) struct Readiness {
    pub(super) ready: usize,
    /// The number of Nodes that were ready and aren't any more.
    pub(super) unready: usize,
    /// The names of the Nodes that have never been ready and may still take a while.
    pub(super) starting: BTreeSet<String>,
    pub(super) registered: usize,
    pub(super) unregistered: usize,
    /// The number of instances past their provision time. They count as present, so no Node is expected for them.
    pub(super) late: usize,
}

impl Readiness {
    pub(super) fn add(&mut self, node: &CoreNode, startup: Duration) {
        self.registered += 1;
        if is_leaving(node) {
            // A Node that is being deleted counts as gone.
        } else if is_ready(node) {
            self.ready += 1;
        } else if is_younger(&node.metadata, startup) {
            self.starting.extend(node.metadata.name.clone());
        } else {
            self.unready += 1;
        }
    }
}

/// A Node that is being drained or deleted.
#[derive(Clone, Debug)]
pub(super) struct NodeDeletion {
    pub(super) group: String,
    pub(super) drains: bool,
}

/// The outcome of a Node's deletion.
pub(super) struct Ended {
    pub(super) node: String,
    pub(super) group: String,
    pub(super) result: Result<()>,
}

/// The times of the last changes to groups and Nodes.
#[derive(Debug, Default)]
pub(super) struct Cooldown {
    /// The last increase of a group.
    pub(super) increased: Option<Instant>,
    /// The last start of a removal.
    pub(super) deleted: Option<Instant>,
    /// The last failure of a removal.
    pub(super) failed: Option<Instant>,
    /// True for the rest of this loop, since Pods are too new to be considered.
    pub(super) this_loop: bool,
}

impl Cooldown {
    /// Returns the times of the last increase and of the last removal.
    pub(super) fn scaled(&self) -> (Option<Instant>, Option<Instant>) {
        (self.increased, self.deleted)
    }
}

/// A group that failed.
#[derive(Clone, Copy, Debug)]
struct Entry {
    duration: Duration,
    until: Instant,
    failed: Instant,
}

/// The groups that failed recently, by id.
#[derive(Debug, Default)]
pub(super) struct BackedOff(BTreeMap<String, Entry>);

impl BackedOff {
    /// Records a failure. A failure during the backoff keeps its duration; a later one doubles it.
    pub(super) fn fail(&mut self, group: &str, now: Instant, times: Backoff) {
        let duration = match self.0.get(group) {
            Some(known) if known.until < now => (known.duration * 2).min(times.max),
            Some(known) => known.duration,
            None => times.initial,
        };
        self.0.insert(group.to_owned(), Entry { duration, until: now + duration, failed: now });
    }

    /// Returns true if a group is backed off and must not be increased.
    pub(super) fn has(&self, group: &str, now: Instant) -> bool {
        self.0.get(group).is_some_and(|entry| entry.until >= now)
    }

    /// Forgets groups whose last failure is longer ago than the reset time.
    pub(super) fn forget(&mut self, now: Instant, times: Backoff) {
        self.0.retain(|_, entry| entry.failed + times.reset >= now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMES: Backoff = Backoff {
        initial: Duration::from_secs(300),
        max: Duration::from_secs(1800),
        reset: Duration::from_secs(3 * 3600),
    };

    #[test]
    fn failures_double_it_up_to_a_limit_and_times_without_any_end_it() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut groups = BackedOff::default();
        groups.fail("a", at(0), TIMES);
        // A second increase that was under way at the same time fails too.
        groups.fail("a", at(10), TIMES);
        assert!(groups.has("a", at(310)));
        assert!(!groups.has("a", at(311)));
        assert!(!groups.has("b", at(0)));
        let mut now = 311;
        for duration in [600, 1200, 1800, 1800] {
            groups.fail("a", at(now), TIMES);
            assert!(groups.has("a", at(now + duration)));
            now += duration + 1;
            assert!(!groups.has("a", at(now)), "longer than {duration}");
        }
        groups.forget(at(now), TIMES);
        groups.fail("a", at(now), TIMES);
        assert!(groups.has("a", at(now + 1800)));
        now += 3 * 3600 + 1;
        groups.forget(at(now), TIMES);
        groups.fail("a", at(now), TIMES);
        assert!(!groups.has("a", at(now + 301)));
    }
}
