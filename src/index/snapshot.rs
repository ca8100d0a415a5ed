//! A copy of the picture for those who show it whole. The lock is taken anew for each group, and under it only pointers
//! are copied; what they mean is worked out afterwards, so that showing 100,000 Machines holds up neither the writer nor
//! an RPC. Whoever shows numbers alone has no Machine copied.

use std::{
    collections::BTreeSet,
    sync::Arc,
    time::{Duration, Instant},
};

use arcstr::ArcStr;

use capi::{ObjectKey, REPLACED, ScalableKind, ScalableResource};
use nodegroup::{
    Definition, DeleteConditions, ErrorRules, GroupId, Instance, InstanceCounts, SharedLog, instance, topology,
    writing::Ongoing,
};

use super::{
    Index, Inner,
    group::{Group, Served},
    members::Member,
    relation::cluster_key,
    standing::Standing,
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
    /// Its standing.
    pub standing: Standing<Arc<Served>>,
    /// Its object; `None` when it is gone or never decoded.
    pub object: Option<Arc<ScalableResource>>,
    /// True if the last Refresh reported it to Cluster Autoscaler.
    pub pinned: bool,
    /// The size asked for, own writes included.
    pub size: i32,
    /// A size that this process wrote and the watch hasn't shown yet.
    pub written: Option<WrittenSize>,
    /// Its rollout, under way or about to begin.
    pub rollout: Option<Ongoing>,
    /// True if its Cluster's topology sets its size, and so reverts every change of it.
    pub topology_sets_size: bool,
    /// The reason for which no Machine is made for a larger size.
    pub held_back: Option<String>,
    /// Its log of deletions as the annotation has it, own writes included.
    pub deletion_log: Option<SharedLog>,
    /// The operator's rules for deletes of failed Machines.
    errors: ErrorRules,
    /// Its instances by state; none where it isn't live.
    pub counts: InstanceCounts,
    /// Its Machines with their Nodes; `None` where they weren't asked for.
    members: Option<Vec<Member>>,
}

/// The detail in which each group is copied.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Detail {
    /// The number of its instances: [`GroupSnapshot::instances`] gives none.
    Counts,
    /// The instances too.
    Instances,
}

/// A size that was written, or read when a write had failed, and that the watch hasn't shown yet.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct WrittenSize {
    /// The size.
    pub replicas: i32,
    /// The time since it was written or read.
    pub age: Duration,
}

/// An instance and whose it is.
#[derive(Debug)]
pub struct OwnedInstance<'a> {
    /// As Cluster Autoscaler sees it.
    pub instance: Instance,
    /// Its Machine with its Node; `None` for those of a MachinePool and for placeholders.
    pub member: Option<&'a Member>,
}

impl Index {
    /// A copy of the picture, of one group alone when `only` names one: an object that isn't there gives none.
    #[must_use]
    pub fn snapshot(&self, only: Option<&GroupId>, detail: Detail) -> Snapshot {
        let now = Instant::now();
        let inner = self.inner.read();
        let (machines, nodes) = (inner.live.machines.len(), inner.live.nodes.len());
        let ids = match only {
            Some(id) => vec![id.clone()],
            None => inner.live.groups.keys().cloned().collect(),
        };
        drop(inner);
        // An object that has gone since its id was taken gives none.
        let copy = |id: GroupId| {
            let inner = self.inner.read();
            inner.live.groups.get(&id).map(|group| inner.copy(&id, group, detail, now))
        };
        Snapshot { groups: ids.into_iter().filter_map(copy).collect(), machines, nodes }
    }

    /// The Clusters that are known, by name.
    #[must_use]
    pub fn clusters(&self) -> BTreeSet<ObjectKey> {
        self.inner.read().live.clusters.keys().cloned().collect()
    }
}

impl Inner {
    fn copy(&self, id: &GroupId, group: &Group, detail: Detail, now: Instant) -> GroupSnapshot {
        let standing = match (&group.standing, &group.served) {
            (Standing::Live(()), Some(served)) => Standing::Live(Arc::clone(served)),
            (Standing::LeftOut(reason, problems), _) => Standing::LeftOut(*reason, problems.clone()),
            (Standing::Waiting, _) => Standing::Waiting,
            (Standing::Undecodable(problem), _) => Standing::Undecodable(problem.clone()),
            (Standing::Gone, _) | (Standing::Live(()), None) => Standing::Gone,
        };
        let (size, is_live) = (group.size(now), matches!(standing, Standing::Live(_)));
        // The Machines of a MachineSet that is no group are shown by its MachineDeployment.
        let members = || match id.kind {
            ScalableKind::MachineDeployment | ScalableKind::MachineSet if is_live => self.live.copy_members(id),
            ScalableKind::MachineDeployment | ScalableKind::MachineSet | ScalableKind::MachinePool => Vec::new(),
        };
        let members = match detail {
            Detail::Counts => None,
            Detail::Instances => Some(members()),
        };
        let counts =
            if is_live { self.live.counts_of(id, group.object.as_deref(), size) } else { InstanceCounts::default() };
        GroupSnapshot {
            id: id.clone(),
            standing,
            object: group.object.clone(),
            pinned: self.pinned.as_ref().is_some_and(|pinned| pinned.get(id).is_some()),
            size,
            written: group.versions.written(now),
            rollout: group.rollout.clone(),
            topology_sets_size: group.object.as_deref().is_some_and(|object| {
                let cluster = self.live.clusters.get(&cluster_key(object));
                cluster.is_some_and(|cluster| topology::sets_size(object, cluster))
            }),
            held_back: self.live.held_back(id).map(str::to_owned),
            deletion_log: group.versions.current(now).and_then(|version| version.log.clone()),
            errors: self.live.rules.errors,
            counts,
            members,
        }
    }
}

impl GroupSnapshot {
    /// The answers of a group that is live.
    #[must_use]
    pub fn served(&self) -> Option<&Served> {
        match &self.standing {
            Standing::Live(served) => Some(served),
            Standing::LeftOut(..) | Standing::Waiting | Standing::Undecodable(_) | Standing::Gone => None,
        }
    }

    /// A note for people: a state that is no fault of the group, changes from moment to moment and is worth knowing.
    #[must_use]
    pub fn note(&self) -> Option<String> {
        let why = self.held_back.as_ref()?;
        Some(format!("no Machine is made for it for now, and Cluster API goes on by itself once that is over: {why}"))
    }

    /// Its instances in the order of [`Index::instances`], placeholders last. `None` where it was copied without them.
    #[must_use]
    pub fn instances(&self) -> Option<impl Iterator<Item = OwnedInstance<'_>>> {
        let members = self.members.as_deref()?;
        let is_live = matches!(self.standing, Standing::Live(_));
        let size = if is_live { self.size } else { 0 };
        let pool = self.object.as_ref().filter(|_| is_live && self.id.kind == ScalableKind::MachinePool);
        let of_pool = pool.map(|pool| {
            let ids = pool.provider_ids.as_slice();
            let known = ids.iter().map(|id| instance::of_provider_id(id));
            known.chain(instance::placeholders(&self.id, size, ids.len())).collect()
        });
        let instances = of_pool.unwrap_or_else(|| {
            let members: Vec<_> = members.iter().map(Member::view).collect();
            instance::of_group(&self.id, size, &members, || self.delete_conditions())
        });
        let members = members.iter().map(Some).chain(std::iter::repeat(None));
        Some(instances.into_iter().zip(members).map(|(instance, member)| OwnedInstance { instance, member }))
    }

    fn delete_conditions(&self) -> DeleteConditions {
        let served = self.served().map(|served| &served.definition);
        let is_held = |definition: &&Definition| self.rollout.is_some() && !definition.ignores_rollouts;
        let can_scale_down = served.is_some_and(|definition| !is_held(&definition));
        let min = served.map_or(0, |definition| definition.bounds.min);
        let replaced = self.object.as_ref().and_then(|object| object.annotations.get(REPLACED));
        let log = self.deletion_log.as_ref();
        let grace = served.map_or(self.errors.grace, |definition| definition.capacity_error_grace);
        let rules = ErrorRules { grace, ..self.errors };
        DeleteConditions::of(rules, can_scale_down, min, log, replaced.map(ArcStr::as_str))
    }
}
