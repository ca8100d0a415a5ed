//! A copy of the picture for those who show it whole. The lock is taken anew for each group, and under it only pointers
//! are copied; what they mean is worked out afterwards, so that showing 100,000 Machines holds up neither the writer nor
//! an RPC.

use std::{
    collections::BTreeSet,
    sync::Arc,
    time::{Duration, Instant},
};

use arcstr::ArcStr;

use crate::{
    capi::{Machine, Node, ObjectKey, ScalableKind, ScalableResource},
    nodegroup::{GroupId, Instance, LeftOut, Problem, instance, topology},
};

use super::{
    Index, Inner, Ongoing, Served,
    group::{Group, Standing},
    missing_replicas,
    picture::Picture,
    relation::cluster_key,
};

/// The groups, and the objects that are none, in no order. Each is as it was at one moment; what changes while the copy is
/// made is in some of them and not yet in others.
#[derive(Debug, Default)]
pub struct Snapshot {
    /// Every MachineDeployment, MachineSet and MachinePool.
    pub groups: Vec<GroupSnapshot>,
    /// Machines of the whole picture.
    pub machines: usize,
    /// Nodes of the whole picture.
    pub nodes: usize,
}

/// A MachineDeployment, MachineSet or MachinePool at one moment.
#[derive(Debug)]
pub struct GroupSnapshot {
    /// Its id.
    pub id: GroupId,
    /// What it is.
    pub standing: SnapshotStanding,
    /// Its object; `None` when it is gone or never decoded.
    pub object: Option<Arc<ScalableResource>>,
    /// Whether the last Refresh told Cluster Autoscaler of it.
    pub pinned: bool,
    /// The size asked for, own writes included.
    pub size: i32,
    /// A size that this process wrote and the watch hasn't shown yet.
    pub written: Option<WrittenSize>,
    /// That it is rolling out, or about to.
    pub rollout: Option<Ongoing>,
    /// Whether its Cluster's topology sets its size, and so puts every change of it back.
    pub topology_sets_size: bool,
    /// Its log of deletions as the annotation has it, own writes included.
    pub deletion_log: Option<ArcStr>,
    /// Its Machines, each with its Node where it has no providerID of its own.
    machines: Vec<(Arc<Machine>, Option<Arc<Node>>)>,
}

/// What an object is.
#[derive(Clone, Debug)]
pub enum SnapshotStanding {
    /// A group, and what it answers.
    Live(Arc<Served>),
    /// None, by the rules.
    LeftOut(LeftOut, Vec<Problem>),
    /// None until its infrastructure template has been read.
    Waiting,
    /// Its object doesn't decode.
    Undecodable(Problem),
    /// Its object is gone; it answers its last values until the next Refresh.
    Gone,
}

/// A size that was written, or read when a write had failed, and that the watch hasn't shown yet.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct WrittenSize {
    /// The size.
    pub replicas: i32,
    /// How long ago.
    pub age: Duration,
}

/// An instance and whose it is.
#[derive(Debug)]
pub struct OwnedInstance<'a> {
    /// As Cluster Autoscaler sees it.
    pub instance: Instance,
    /// Its Machine; `None` for those of a MachinePool and for replicas that have none yet.
    pub machine: Option<&'a Machine>,
}

impl Index {
    /// A copy of the picture, of one group alone when `only` names one: an object that isn't there gives none.
    #[must_use]
    pub fn snapshot(&self, only: Option<&GroupId>) -> Snapshot {
        let now = Instant::now();
        let inner = self.inner.read();
        let (machines, nodes) = (inner.picture.machines.len(), inner.picture.nodes.len());
        let ids = match only {
            Some(id) => vec![id.clone()],
            None => inner.picture.groups.keys().cloned().collect(),
        };
        drop(inner);
        // What has gone since its id was taken gives none.
        let copy = |id: GroupId| {
            let inner = self.inner.read();
            inner.picture.groups.get(&id).map(|group| inner.copy(&id, group, now))
        };
        Snapshot { groups: ids.into_iter().filter_map(copy).collect(), machines, nodes }
    }

    /// The Clusters that are known, by name.
    #[must_use]
    pub fn clusters(&self) -> BTreeSet<ObjectKey> {
        self.inner.read().picture.clusters.keys().cloned().collect()
    }
}

impl Inner {
    fn copy(&self, id: &GroupId, group: &Group, now: Instant) -> GroupSnapshot {
        let standing = match (&group.standing, &group.served) {
            (Standing::Live, Some(served)) => SnapshotStanding::Live(Arc::clone(served)),
            (Standing::LeftOut(reason, problems), _) => SnapshotStanding::LeftOut(*reason, problems.clone()),
            (Standing::Waiting, _) => SnapshotStanding::Waiting,
            (Standing::Undecodable(problem), _) => SnapshotStanding::Undecodable(problem.clone()),
            (Standing::Gone, _) | (Standing::Live, None) => SnapshotStanding::Gone,
        };
        // The Machines of a MachineSet that is no group are shown by its MachineDeployment.
        let machines = match standing {
            SnapshotStanding::Live(_) => self.picture.copy_machines(id),
            SnapshotStanding::LeftOut(..)
            | SnapshotStanding::Waiting
            | SnapshotStanding::Undecodable(_)
            | SnapshotStanding::Gone => Vec::new(),
        };
        GroupSnapshot {
            id: id.clone(),
            standing,
            object: group.object.clone(),
            pinned: self.pinned.as_ref().is_some_and(|pinned| pinned.get(id).is_some()),
            size: group.size(now),
            written: group.versions.written(now),
            rollout: group.rollout.clone(),
            topology_sets_size: group.object.as_deref().is_some_and(|object| {
                let cluster = self.picture.clusters.get(&cluster_key(object));
                cluster.is_some_and(|cluster| topology::sets_size(object, cluster))
            }),
            deletion_log: group.versions.current(now).and_then(|version| version.log.clone()),
            machines,
        }
    }
}

impl Picture {
    fn copy_machines(&self, id: &GroupId) -> Vec<(Arc<Machine>, Option<Arc<Node>>)> {
        if id.kind == ScalableKind::MachinePool {
            return Vec::new();
        }
        self.machines_of(id)
            .map(|machine| {
                let node = if machine.provider_id.is_some() { None } else { self.node_of(machine) };
                (Arc::clone(machine), node.cloned())
            })
            .collect()
    }
}

impl GroupSnapshot {
    /// Its instances in the order of [`Index::instances`], placeholders last.
    pub fn instances(&self) -> impl Iterator<Item = OwnedInstance<'_>> {
        let pool = match (&self.object, &self.standing) {
            (Some(object), SnapshotStanding::Live(_)) => object.provider_ids.as_slice(),
            (Some(_) | None, _) => &[],
        };
        let of_machines = self.machines.iter().map(|(machine, node)| OwnedInstance {
            instance: instance::of_machine(machine, node.as_ref().and_then(|node| node.provider_id.as_deref())),
            machine: Some(machine.as_ref()),
        });
        let of_pool = pool.iter().map(|id| OwnedInstance { instance: instance::of_provider_id(id), machine: None });
        let known = self.machines.len() + pool.len();
        let missing = match self.standing {
            SnapshotStanding::Live(_) => missing_replicas(self.size, known),
            SnapshotStanding::LeftOut(..)
            | SnapshotStanding::Waiting
            | SnapshotStanding::Undecodable(_)
            | SnapshotStanding::Gone => 0,
        };
        let replicas = (0..missing)
            .map(|index| OwnedInstance { instance: instance::replica_placeholder(&self.id, index), machine: None });
        of_machines.chain(of_pool).chain(replicas)
    }
}
