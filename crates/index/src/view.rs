//! A copy of the index, for displays of all of it. The lock is taken separately for each group, and only pointers are
//! copied under it. The evaluation follows afterwards, so that displaying 100,000 Machines delays neither the writer
//! nor an RPC. For counts alone, no Machine is copied.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Instant,
};

use arcstr::ArcStr;
use jiff::Timestamp;
use rules::capi::{ObjectKey, ScalableKind, ScalableResource};
use rules::{
    DeleteConditions, Excluded, Exclusion, FromZero, GroupId, Instance, InstanceCounts, PoolView, Shortage, instance,
    rollout::Rollout, topology,
};
use serde::{Deserialize, Serialize};

use super::{
    group::{Group, Served},
    hold::{Held, Hold},
    members::Member,
    relations::cluster_key,
    state::{Index, Inner},
    versions::WrittenSize,
};

/// The groups, and the objects that aren't groups, unordered. Each is consistent in itself; a change during the
/// copying may be in some of them and not yet in others.
#[derive(Debug, Default)]
pub struct Snapshot {
    /// Every MachineDeployment, MachineSet and MachinePool.
    pub groups: Vec<GroupSnapshot>,
    /// The number of Machines in the whole index.
    pub machines: usize,
    /// The number of Nodes in the whole index.
    pub nodes: usize,
}

/// A MachineDeployment, MachineSet or MachinePool at one time.
#[derive(Debug)]
pub struct GroupSnapshot {
    /// Its id.
    pub id: GroupId,
    /// The values that it is served with, or the reason why it isn't a group.
    pub standing: Result<Arc<Served>, Excluded>,
    /// Its object; `None` if it was deleted or never decoded.
    pub object: Option<Arc<ScalableResource>>,
    /// True if the last Refresh reported it to Cluster Autoscaler.
    pub pinned: bool,
    /// The desired size, including own writes.
    pub size: i32,
    /// A size that this process wrote and the watch hasn't reported yet.
    pub written: Option<WrittenSize>,
    /// Its rollout, in progress or about to begin.
    pub rollout: Option<Rollout>,
    /// True if its Cluster's topology sets its size, and so reverts every change of it.
    pub topology_sets_size: bool,
    /// The reason that a larger size creates no Machine now.
    pub held_back: Option<String>,
    /// The reason why it is left alone for a while.
    pub held: Option<Hold>,
    /// Its instances by state; all zero if it isn't live.
    pub counts: InstanceCounts,
    /// The parts of its instances; `None` if they weren't requested.
    parts: Option<Parts>,
}

/// What the instances of a group are made of.
#[derive(Debug)]
struct Parts {
    /// The Machines with their Nodes.
    members: Vec<Member>,
    /// The instances of a live MachinePool.
    pool: Option<PoolMembers>,
    conditions: DeleteConditions,
}

/// The instances of a MachinePool, with the facts that its placeholders depend on.
#[derive(Debug)]
struct PoolMembers {
    ids: Vec<ArcStr>,
    machines: usize,
    shortage: Option<Shortage>,
}

/// The detail in which each group is copied.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Detail {
    /// Only the number of its instances: [`GroupSnapshot::instances`] returns `None`.
    Counts,
    /// The instances as well.
    Instances,
}

/// An instance with its Machine and its Node.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct InstanceView {
    /// The instance as Cluster Autoscaler sees it.
    #[serde(flatten)]
    pub instance: Instance,
    /// The name of its Machine, in the group's namespace; `None` for instances of a MachinePool and for placeholders.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine: Option<String>,
    /// The name of its Node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// True if its Machine has a nodeRef and the workload cluster, whose Nodes are in sync, doesn't have the Node.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub node_gone: bool,
    /// The creation of its Machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created_at: Option<Timestamp>,
}

impl InstanceView {
    fn new(instance: Instance, member: Option<&Member>, has_nodes: bool) -> Self {
        Self {
            instance,
            machine: member.map(|member| member.machine.meta.key.name.to_string()),
            node: member.and_then(Member::node_name).map(ToString::to_string),
            node_gone: has_nodes && member.is_some_and(|member| member.has_joined() && member.node.is_none()),
            created_at: member.and_then(|member| member.machine.created.time()),
        }
    }
}

impl Index {
    /// Returns a copy of the index, or of only one group if `only` is set. A missing object isn't in the copy.
    pub fn snapshot(&self, only: Option<&GroupId>, detail: Detail) -> Snapshot {
        let now = Instant::now();
        let inner = self.inner.read();
        let (machines, nodes) = (inner.live.machines.len(), inner.live.nodes.len());
        let ids = match only {
            Some(id) => vec![id.clone()],
            None => inner.live.groups.keys().cloned().collect(),
        };
        drop(inner);
        // An object that was deleted since its id was copied is skipped.
        let copy = |id: GroupId| {
            let inner = self.inner.read();
            inner.live.groups.get(&id).map(|group| inner.copy(&id, group, detail, now))
        };
        Snapshot { groups: ids.into_iter().filter_map(copy).collect(), machines, nodes }
    }

    /// Returns the known Clusters, by name.
    pub fn clusters(&self) -> BTreeSet<ObjectKey> {
        self.inner.read().live.clusters.keys().cloned().collect()
    }
}

impl Inner {
    fn copy(&self, id: &GroupId, group: &Group, detail: Detail, now: Instant) -> GroupSnapshot {
        let standing = match (&group.excluded, &group.served) {
            (Some(excluded), _) => Err(excluded.clone()),
            (None, Some(served)) => Ok(Arc::clone(served)),
            (None, None) => Err(Exclusion::Gone.into()),
        };
        let (size, is_live) = (group.size(now), standing.is_ok());
        // The Machines of a MachineSet that isn't a group belong to its MachineDeployment.
        let members = || match id.kind {
            ScalableKind::MachineDeployment | ScalableKind::MachineSet if is_live => self.live.copy_members(id),
            ScalableKind::MachineDeployment | ScalableKind::MachineSet | ScalableKind::MachinePool => Vec::new(),
        };
        let pool = || {
            let PoolView { pool, shortage, machines } = self.live.pool_view(id, group).filter(|_| is_live)?;
            let ids = self.live.instance_ids_of(pool).into_iter().cloned().collect();
            Some(PoolMembers { ids, machines, shortage })
        };
        let parts = match detail {
            Detail::Counts => None,
            Detail::Instances => {
                let conditions = group.delete_conditions(self.live.rules.errors);
                Some(Parts { members: members(), pool: pool(), conditions })
            }
        };
        let counts = if is_live { self.live.counts_of(id, group, size) } else { InstanceCounts::default() };
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
            held: group.held.as_ref().and_then(Held::why).cloned(),
            counts,
            parts,
        }
    }
}

impl GroupSnapshot {
    /// Returns the answers of a live group.
    pub fn served(&self) -> Option<&Served> {
        self.standing.as_deref().ok()
    }

    /// Returns a note on a temporary state that is no problem of the group, for people.
    pub fn note(&self) -> Option<String> {
        let held_back = self.held_back.as_ref();
        let held_back =
            held_back.map(|why| format!("Cluster API creates no Machine for now, and resumes later: {why}"));
        self.held.as_ref().map(Hold::reason).or(held_back)
    }

    /// Returns its instances in the order of [`Index::instances`], placeholders last; `None` if they weren't copied.
    /// `has_nodes` is true if the Nodes of the workload cluster are in sync.
    pub fn instances(&self, has_nodes: bool) -> Option<impl Iterator<Item = InstanceView>> {
        let Parts { members, pool, conditions } = self.parts.as_ref()?;
        let size = if self.standing.is_ok() { self.size } else { 0 };
        let conditions = || conditions.clone();
        let instances = if let (Some(members), Some(pool)) = (pool, self.object.as_deref()) {
            let PoolMembers { ids, machines, shortage } = members;
            let view = PoolView { pool, shortage: *shortage, machines: *machines };
            instance::of_pool(&self.id, size, ids.iter().map(ArcStr::as_str), view, conditions)
        } else {
            let members: Vec<_> = members.iter().map(Member::view).collect();
            instance::of_group(&self.id, size, &members, conditions)
        };
        let members = members.iter().map(Some).chain(std::iter::repeat(None));
        let view = move |(instance, member)| InstanceView::new(instance, member, has_nodes);
        Some(instances.into_iter().zip(members).map(view))
    }
}

// Statistics of the index, for metrics: the state of the groups, their problems and their rollouts.

/// The word of metrics and JSON for a node group; an object that is none has the reason's word.
pub(super) const SERVED: &str = "served";

/// A group's problem, as values of closed sets.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct GroupProblem {
    /// Its id.
    pub group: String,
    /// Its state, as in [`Stats::groups`].
    pub state: &'static str,
    /// The kind of the problem, or `left_out` for a group that is left out without a problem.
    pub problem: &'static str,
}

/// A group with a rollout, in progress or about to begin.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct GroupRollout {
    /// Its id.
    pub group: String,
    /// The evidence for it, in one word.
    pub cause: &'static str,
    /// The time of its beginning.
    pub since: Timestamp,
    /// True if its Machines are deleted nevertheless.
    pub ignored: bool,
}

/// A group whose size is outside its bounds.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct OutsideBounds {
    /// Its id.
    pub group: String,
    /// The bound: `min` or `max`.
    pub bound: &'static str,
    /// The number of replicas outside the bound.
    pub by: u64,
}

/// Statistics of the index, for metrics.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Stats {
    /// The number of MachineDeployments, MachineSets and MachinePools by state: `served`, or the reason for not being a
    /// group.
    pub groups: BTreeMap<&'static str, u64>,
    /// The problems, each with its group.
    pub problems: Vec<GroupProblem>,
    /// The groups with a rollout.
    pub rollouts: Vec<GroupRollout>,
    /// The groups whose sizes are outside their bounds.
    pub outside_bounds: Vec<OutsideBounds>,
    /// The number of Machines.
    pub machines: u64,
    /// The number of Nodes.
    pub nodes: u64,
    /// The number of groups with a price.
    pub priced: u64,
}

/// The numbers of objects of an index.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Sizes {
    /// The number of node groups.
    pub groups: u64,
    /// The number of node groups with problems, and of objects that are left out because of an error.
    pub in_need: u64,
    /// The number of node groups that scale from zero by a remembered Node.
    pub remembered: u64,
    /// The number of Machines.
    pub machines: u64,
    /// The number of Nodes.
    pub nodes: u64,
}

impl Index {
    /// Returns the numbers of objects, at the cost of one visit to every group.
    pub fn sizes(&self) -> Sizes {
        let live = &self.inner.read().live;
        let (machines, nodes) = (live.machines.len() as u64, live.nodes.len() as u64);
        let mut sizes = Sizes { machines, nodes, ..Sizes::default() };
        for group in live.groups.values() {
            sizes.groups += u64::from(group.is_live());
            sizes.in_need += u64::from(group.is_in_need());
            sizes.remembered += u64::from(group.is_live() && group.scales_from_zero_by() == Some(FromZero::Remembered));
        }
        sizes
    }

    /// Returns statistics for metrics, at the cost of one visit to every group.
    pub fn stats(&self) -> Stats {
        let inner = self.inner.read();
        let live = &inner.live;
        let mut sums = Stats {
            machines: live.machines.len() as u64,
            nodes: live.nodes.len() as u64,
            priced: live.priced().count() as u64,
            ..Stats::default()
        };
        let now = Instant::now();
        for (id, group) in &live.groups {
            sums.outside_bounds.extend(outside_bounds(id, group, now));
            if let (None, Some(rollout)) = (&group.excluded, &group.rollout) {
                sums.rollouts.push(GroupRollout {
                    group: id.to_string(),
                    cause: rollout.cause.as_str(),
                    since: rollout.since,
                    ignored: group.rollout_in_force().is_none(),
                });
            }
            let reason = group.excluded.as_ref().map(|excluded| excluded.reason);
            if reason == Some(Exclusion::Gone) {
                continue;
            }
            let state = reason.map_or(SERVED, Exclusion::as_str);
            *sums.groups.entry(state).or_default() += 1;
            let mut kinds: BTreeSet<_> = group.problems().iter().map(|problem| problem.kind.as_str()).collect();
            let left_out = matches!(reason, Some(Exclusion::InvalidBounds | Exclusion::NoScaleFromZero));
            if left_out && kinds.is_empty() {
                kinds.insert("left_out");
            }
            let problems = kinds.into_iter().map(|problem| GroupProblem { group: id.to_string(), state, problem });
            sums.problems.extend(problems);
        }
        sums
    }
}

/// Returns the distance of a group's size from its bounds, if it is outside.
fn outside_bounds(id: &GroupId, group: &Group, now: Instant) -> Option<OutsideBounds> {
    let bounds = group.served.as_ref().filter(|_| group.is_live())?.definition.bounds;
    let size = group.size(now);
    let (bound, limit) = match (size < bounds.min, size > bounds.max) {
        (true, _) => ("min", bounds.min),
        (false, true) => ("max", bounds.max),
        (false, false) => return None,
    };
    Some(OutsideBounds { group: id.to_string(), bound, by: size.abs_diff(limit).into() })
}
