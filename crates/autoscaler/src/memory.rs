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
    backoff::BackedOff,
    pods::{Shape, is_leaving, is_ready, is_younger},
};

/// The state that lasts from one loop to the next.
#[derive(Default)]
pub(crate) struct Memory {
    /// The Nodes and Pods of the last successful list.
    pub(crate) listed: Option<(Vec<CoreNode>, Vec<Pod>)>,
    /// The shape of a ready Node of each group, or of its template until the group has had a ready Node.
    pub(crate) shapes: BTreeMap<String, Shape>,
    pub(crate) seen_ready: BTreeSet<String>,
    /// The target sizes of the groups, as last answered.
    pub(crate) targets: BTreeMap<String, i32>,
    /// The Nodes of each group in this loop, counted by state. A group without Nodes and without expected instances has
    /// no entry.
    pub(crate) readiness: BTreeMap<String, Readiness>,
    /// The number of Nodes, and the number of unready ones.
    pub(crate) total: (usize, usize),
    /// The instances of each group, as last answered.
    pub(crate) instances: BTreeMap<String, Vec<GroupInstance>>,
    pub(crate) instances_since: Option<Instant>,
    /// The groups whose instances are fetched again in the next loop.
    pub(crate) invalid: BTreeSet<String>,
    /// The instances without a Node, by id.
    pub(crate) unregistered: BTreeMap<String, Unregistered>,
    /// The instances that had an error in the last loop.
    pub(crate) failed: BTreeSet<String>,
    /// The groups whose size isn't the number of their Nodes: that number, the size, and the time since when.
    pub(crate) incorrect: BTreeMap<String, (usize, i32, Instant)>,
    /// The groups that failed to grow.
    pub(crate) backed_off: BackedOff,
    /// The increases whose Nodes have yet to join.
    pub(crate) requests: BTreeMap<String, Request>,
    /// The time since which a Node has been unneeded, by name.
    pub(crate) unneeded: BTreeMap<String, Instant>,
    /// The time until which a Node that couldn't be removed is skipped, by name.
    pub(crate) unremovable: BTreeMap<String, Instant>,
    /// The Nodes that are being drained or deleted, by name.
    pub(crate) deleting: BTreeMap<String, NodeDeletion>,
    /// The times of the last changes to groups and Nodes.
    pub(crate) cooldown: Cooldown,
    /// True once `GPULabel` has succeeded, whose answer is cached for good.
    pub(crate) knows_gpu_label: bool,
    pub(crate) knows_gpu_types: bool,
}

/// The objects that one loop works on.
pub(crate) struct LoopInput {
    pub(crate) groups: Vec<NodeGroup>,
    /// The Nodes of each group.
    pub(crate) nodes: BTreeMap<String, Vec<CoreNode>>,
    /// The Nodes without a group.
    pub(crate) others: Vec<CoreNode>,
    pub(crate) pods: Vec<Pod>,
    /// The Nodes that were being deleted when the loop began.
    pub(crate) deleting: BTreeMap<String, NodeDeletion>,
}

impl LoopInput {
    pub(crate) fn nodes_of(&self, group: &str) -> &[CoreNode] {
        self.nodes.get(group).map(Vec::as_slice).unwrap_or_default()
    }

    pub(crate) fn all_nodes(&self) -> impl Iterator<Item = &CoreNode> {
        self.nodes.values().flatten().chain(&self.others)
    }
}

/// An instance that has no Node and should have one.
#[derive(Clone, Debug)]
pub(crate) struct Unregistered {
    pub(crate) since: Instant,
    /// The group and its provision time, or `None` if the call failed.
    pub(crate) of: Option<(String, Duration)>,
}

impl Unregistered {
    pub(crate) fn is_late(&self) -> bool {
        self.of.as_ref().is_some_and(|(_, provision)| self.since.elapsed() > *provision)
    }
}

/// An increase whose Nodes have yet to join.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request {
    pub(crate) by: i32,
    pub(crate) until: Instant,
}

/// The Nodes of a group, and the instances that should become one, counted by state.
#[derive(Clone, Debug, Default)]
pub(crate) struct Readiness {
    pub(crate) ready: usize,
    /// The number of Nodes that were ready and aren't any more.
    pub(crate) unready: usize,
    /// The names of the Nodes that have never been ready and may still take a while.
    pub(crate) starting: BTreeSet<String>,
    pub(crate) registered: usize,
    pub(crate) unregistered: usize,
    /// The number of instances past their provision time. They count as present, so no Node is expected for them.
    pub(crate) late: usize,
}

impl Readiness {
    pub(crate) fn add(&mut self, node: &CoreNode, startup: Duration) {
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
pub(crate) struct NodeDeletion {
    pub(crate) group: String,
    pub(crate) drains: bool,
}

/// The outcome of a Node's deletion.
pub(crate) struct Ended {
    pub(crate) node: String,
    pub(crate) group: String,
    pub(crate) result: Result<()>,
}

/// The times of the last changes to groups and Nodes.
#[derive(Debug, Default)]
pub(crate) struct Cooldown {
    /// The last increase of a group.
    pub(crate) increased: Option<Instant>,
    /// The last start of a removal.
    pub(crate) deleted: Option<Instant>,
    /// The last failure of a removal.
    pub(crate) failed: Option<Instant>,
    /// True for the rest of this loop, since Pods are too new to be considered.
    pub(crate) this_loop: bool,
}

impl Cooldown {
    /// Returns the times of the last increase and of the last removal.
    pub(crate) fn scaled(&self) -> (Option<Instant>, Option<Instant>) {
        (self.increased, self.deleted)
    }
}
