//! The live picture of one workload cluster: which groups there are, which Machine and Node belongs to which,
//! their sizes and templates. One writer applies [`Change`]s; readers answer from memory at a cost that grows
//! with the answer and not with the fleet.
//!
//! It must never wait: no I/O, no await, and every lock is held for one change or one answer.

mod change;
mod counts;
mod evaluate;
mod feed;
mod gone;
mod group;
mod holder;
mod increase;
mod keyed_multimap;
mod keyed_set;
mod live_state;
mod members;
mod multimap;
mod notices;
mod observed;
mod observed_resources;
mod own_size;
mod pinned;
mod prices;
mod relation;
mod resolve;
mod rollouts;
mod samples;
mod shortages;
mod snapshot;
mod standing;
mod stats;
#[cfg(test)]
pub(crate) mod tests;
mod undeletable;
mod unfinished;
mod version;
mod wanted;

use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    sync::Arc,
    time::Instant,
};

use arcstr::ArcStr;
use parking_lot::{Mutex, RwLock};
use tokio::sync::watch;

pub use self::{
    change::{Change, KindState},
    feed::{FedKeys, Feed, IndexFeed},
    group::Served,
    members::Member,
    notices::Notice,
    own_size::Overwritten,
    pinned::PinnedGroup,
    prices::{NoPrice, NodeLabels},
    resolve::{NodeQuery, Resolved},
    snapshot::{Detail, GroupSnapshot, OwnedInstance, Snapshot, WrittenSize},
    standing::{Standing, StandingKind},
    stats::{GroupProblem, GroupRollout, OutsideBounds, Stats},
    version::Era,
};
use self::{group::Group, live_state::LiveState, notices::FirstSync, pinned::Membership, relation::group_of};
use capi::{KindRef, Machine, ObjectKey, REPLACED, ScalableKind, ScalableResource, Uid};
use nodegroup::{
    self, Bounds, GroupId, Instance, Rules, SharedLog, instance,
    writing::{GroupVersion, NotScalable, Ongoing, SetView},
};

/// The live picture of one workload cluster.
#[derive(Debug)]
pub struct Index {
    inner: RwLock<Inner>,
    /// `None` once the first sync is over.
    first_sync: Mutex<Option<FirstSync>>,
    /// Sent when what [`Index::wanted_kinds`] gives has changed.
    wanted: watch::Sender<()>,
    /// Sent when a group comes to be among those that [`Index::take_unfinished`] gives.
    unfinished: watch::Sender<()>,
    /// Sent when a group comes to be among those that [`Index::take_observed`] gives.
    observed: watch::Sender<()>,
}

#[derive(Debug)]
struct Inner {
    live: LiveState,
    /// `None` until something was pinned.
    pinned: Option<Membership>,
}

/// The state of a group that a command needs before it writes.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ScaleView {
    /// Bounds as they stand now, not as pinned.
    pub bounds: Bounds,
    /// The version that a write is decided on, own writes included.
    pub version: GroupVersion,
    /// Machines, those that are being deleted included: a MachineSet counts them as replicas until they are gone.
    pub machines: i32,
    /// Machines that have a Node and aren't being deleted.
    pub machines_with_node: i32,
    /// The annotation that tells of the last replacement of a Machine.
    pub replaced: Option<ArcStr>,
    /// The rollout that forbids deletes; `None` while there is none, and where the group opts out of that.
    pub rollout: Option<Ongoing>,
}

/// The progress of a group's deletions, as the watches have shown it.
#[derive(Clone, Debug)]
pub struct DeletionView {
    /// The group's version, own writes included.
    pub version: GroupVersion,
    /// The min size, which is 0 for what isn't a group any more.
    pub min: i32,
    /// The objects that have the Machines made: the MachineSets of a MachineDeployment, else the group's own object.
    pub sets: Vec<SetView>,
    /// The Machines.
    pub machines: Vec<Arc<Machine>>,
}

impl Index {
    /// An empty picture under these rules.
    #[must_use]
    pub fn new(rules: Rules) -> Self {
        Self {
            inner: RwLock::new(Inner { live: LiveState::new(rules), pinned: None }),
            first_sync: Mutex::new(None),
            wanted: watch::Sender::new(()),
            unfinished: watch::Sender::new(()),
            observed: watch::Sender::new(()),
        }
    }

    /// Applies one change, and writes to the log what it changed for groups.
    pub fn apply(&self, change: Change) {
        self.log(self.apply_quietly(change));
    }

    /// Applies one change; what it changed for groups is returned.
    pub fn apply_quietly(&self, change: Change) -> Vec<Notice> {
        let log = if let Change::Scalable(object) = &change { self.log_of(object) } else { None };
        let mut inner = self.inner.write();
        let live = &mut inner.live;
        live.apply(change, log);
        if std::mem::take(&mut live.wanted_changed) {
            self.wanted.send_replace(());
        }
        if !live.unfinished.is_empty() {
            self.unfinished.send_replace(());
        }
        if !live.observed.is_empty() {
            self.observed.send_replace(());
        }
        live.take_notices()
    }

    /// The log of an object that comes: one that is held where the text is the same, since its status or its copy has
    /// changed then. That of a group in scope is read here, before the lock is taken; a copy is read by whoever finishes
    /// the group's deletions, and what is out of scope by nobody.
    fn log_of(&self, object: &ScalableResource) -> Option<SharedLog> {
        let text = object.deleting_log.as_ref()?;
        let (id, group) = (GroupId::of(object.kind, &object.meta), group_of(object));
        let (held, is_in_scope) = {
            let inner = self.inner.read();
            let live = &inner.live;
            let groups = [&id, &group].into_iter().filter_map(|id| live.groups.get(id));
            let held: Vec<_> = groups.flat_map(|group| group.versions.logs().cloned()).collect();
            (held, live.rules.scope.matches(object))
        };
        let same = held.into_iter().find(|held| held.text() == text);
        let log = same.unwrap_or_else(|| SharedLog::new(text.clone()));
        if is_in_scope && id == group {
            // One that can't be read is refused where it is needed.
            let _ = log.read();
        }
        Some(log)
    }

    /// Wakes its holder when there are groups to look at whose deletions are on their way.
    #[must_use]
    pub fn unfinished(&self) -> watch::Receiver<()> {
        self.unfinished.subscribe()
    }

    /// Wakes its holder when something is noted of the sizes of groups.
    #[must_use]
    pub fn observed(&self) -> watch::Receiver<()> {
        self.observed.subscribe()
    }

    /// The groups whose deletions may have come further: those that have a log of deletions, or a Machine that is marked
    /// for one, and of which something has changed since this was asked last.
    #[must_use]
    pub fn take_unfinished(&self) -> BTreeSet<GroupId> {
        std::mem::take(&mut self.inner.write().live.unfinished)
    }

    /// The infrastructure template kinds that groups in scope name, with the namespaces of these groups.
    #[must_use]
    pub fn wanted_kinds(&self) -> BTreeMap<KindRef, BTreeSet<ArcStr>> {
        self.inner.read().live.wanted_kinds()
    }

    /// Wakes its holder when groups name other kinds of infrastructure templates, or in other namespaces.
    #[must_use]
    pub fn wanted_kinds_changed(&self) -> watch::Receiver<()> {
        self.wanted.subscribe()
    }

    /// Returns what is known of a kind of infrastructure templates as a whole.
    #[must_use]
    pub fn kind_state(&self, kind: &KindRef) -> Option<KindState> {
        self.inner.read().live.kinds.get(kind).cloned()
    }

    /// Returns true if every kind of infrastructure template that groups name is known as far as it can be: its
    /// templates, or why they can't be read.
    #[must_use]
    pub fn has_settled(&self) -> bool {
        let inner = self.inner.read();
        let state = |kind| inner.live.kinds.get(kind);
        inner.live.wanted.keys().all(|kind| match state(kind) {
            Some(KindState::Synced | KindState::Unreadable(_)) => true,
            Some(KindState::Pending) | None => false,
        })
    }

    /// Pins the membership anew: what Refresh does.
    pub fn refresh(&self) {
        let mut inner = self.inner.write();
        if inner.pinned.is_none() || inner.live.membership_changed {
            inner.pinned = Some(Membership::pin(&mut inner.live));
        }
    }

    /// Returns true if a Refresh, or NodeGroups before it, has pinned the membership.
    #[must_use]
    pub fn is_pinned(&self) -> bool {
        self.inner.read().pinned.is_some()
    }

    /// The pinned groups, by id. Before the first Refresh this pins.
    #[must_use]
    pub fn groups(&self) -> Arc<[PinnedGroup]> {
        if let Some(pinned) = &self.inner.read().pinned {
            return Arc::clone(&pinned.groups);
        }
        self.refresh();
        self.inner.read().pinned.as_ref().map(|pinned| Arc::clone(&pinned.groups)).unwrap_or_default()
    }

    /// The pinned group of a Node; `None` when it belongs to none.
    #[must_use]
    pub fn group_of_node(&self, query: NodeQuery<'_>) -> Option<PinnedGroup> {
        let inner = self.inner.read();
        let id = inner.live.group_of_node(query)?;
        inner.pinned.as_ref()?.get(&id).cloned()
    }

    /// Returns what a Node stands for.
    #[must_use]
    pub fn resolve(&self, query: NodeQuery<'_>) -> Resolved {
        self.inner.read().live.resolve(query)
    }

    /// Returns the answers of a group, or its last ones if it isn't a group any more since the last Refresh.
    #[must_use]
    pub fn served(&self, id: &GroupId) -> Option<Arc<Served>> {
        self.inner.read().live.groups.get(id)?.served.clone()
    }

    /// The size asked for, own writes included. `None`: no such group.
    #[must_use]
    pub fn target_size(&self, id: &GroupId) -> Option<i32> {
        let inner = self.inner.read();
        Some(inner.answering(id)?.size(Instant::now()))
    }

    /// The instances of a group: its Machines, or a MachinePool's providerIDs, and a placeholder for each replica
    /// that has none yet. Those that a new increase has brought have ids of their own. `None`: no such group.
    #[must_use]
    pub fn instances(&self, id: &GroupId) -> Option<Vec<Instance>> {
        let inner = self.inner.read();
        let live = &inner.live;
        let group = inner.answering(id)?;
        let now = Instant::now();
        // A group that is gone makes no more Machines.
        let size = if group.object.is_some() { group.size(now) } else { 0 };
        let mut members = Vec::new();
        let mut instances = if id.kind == ScalableKind::MachinePool {
            let ids = group.object.as_ref().map(|pool| pool.provider_ids.as_slice()).unwrap_or_default();
            let known = ids.iter().map(|provider_id| instance::of_provider_id(provider_id));
            known.chain(instance::placeholders(id, size, ids.len())).collect()
        } else {
            members.extend(live.members_of(id));
            instance::of_group(id, size, &members, || group.delete_conditions(live.rules.errors, now))
        };
        if let Some(increase) = group.increase {
            increase.rename(&mut instances, &members);
        }
        Some(instances)
    }

    /// Returns the state of a group that a command needs before it writes.
    ///
    /// # Errors
    /// When it isn't a group now: a command is refused where a read would answer the last values.
    pub fn scale_view(&self, id: &GroupId) -> Result<ScaleView, NotScalable> {
        let inner = self.inner.read();
        let live = &inner.live;
        let group = live.groups.get(id).ok_or(NotScalable::Unknown)?;
        match (&group.standing, &group.served) {
            (Standing::Live(()), Some(served)) => Ok(ScaleView {
                bounds: served.definition.bounds,
                version: group.versions.current(Instant::now()).ok_or(NotScalable::Unknown)?.clone(),
                machines: live.machine_count(id, group),
                machines_with_node: live.joined(id, group.object.as_deref()),
                replaced: group.object.as_ref().and_then(|object| object.annotations.get(REPLACED).cloned()),
                rollout: group.holding_rollout().cloned(),
            }),
            (Standing::LeftOut(reason, _), Some(_)) => Err(NotScalable::LeftOut(reason.to_string())),
            (Standing::Waiting, Some(_)) => {
                Err(NotScalable::LeftOut("its infrastructure template hasn't been read yet".to_owned()))
            }
            (Standing::Undecodable(problem), Some(_)) => Err(NotScalable::LeftOut(problem.to_string())),
            (Standing::Gone, Some(_)) => Err(NotScalable::LeftOut("its object was deleted".to_owned())),
            (_, None) => Err(NotScalable::Unknown),
        }
    }

    /// The uid of a group's object; `None` when it is gone.
    #[must_use]
    pub fn uid(&self, id: &GroupId) -> Option<Uid> {
        Some(self.inner.read().live.groups.get(id)?.object.as_ref()?.meta.uid.clone())
    }

    /// Takes over a version that was written or read, until the watch has caught up with it.
    pub fn set_written(&self, id: &GroupId, version: GroupVersion) {
        // Read before the lock is taken, with which no text is.
        let _ = version.log.as_ref().map(SharedLog::read);
        if let Some(group) = self.inner.write().live.groups.get_mut(id) {
            group.versions.set_written(version, Instant::now());
        }
    }

    /// Returns what is known of a group's present generation. `None`: there is no such object.
    #[must_use]
    pub fn era(&self, id: &GroupId) -> Option<Era> {
        self.inner.read().live.groups.get(id)?.versions.era().cloned()
    }

    /// Returns the progress of a group's deletions. `None` for an object that isn't there, is paused, or isn't in
    /// scope: whatever is on its way there has to wait, or is another program's.
    #[must_use]
    pub fn deletions(&self, id: &GroupId) -> Option<DeletionView> {
        let inner = self.inner.read();
        let live = &inner.live;
        let min = live.groups.get(id)?.min_of_deletions()?;
        let (version, sets) = live.sets(id)?;
        Some(DeletionView { version, min, sets, machines: live.machines_of(id).cloned().collect() })
    }

    /// A group's version, own writes included, and what has its Machines made.
    #[must_use]
    pub fn sets(&self, id: &GroupId) -> Option<(GroupVersion, Vec<SetView>)> {
        self.inner.read().live.sets(id)
    }

    /// The Machines of a group with their Nodes, those that are being deleted included.
    #[must_use]
    pub fn members(&self, id: &GroupId) -> Vec<Member> {
        let inner = self.inner.read();
        inner.live.copy_members(id)
    }

    /// Returns true if a known Node leads to a Machine of this key and providerID, as the API server has them.
    #[must_use]
    pub fn knows_node_of(&self, key: &ObjectKey, provider_id: Option<&ArcStr>) -> bool {
        self.inner.read().live.node_that_leads_to(key, provider_id).is_some()
    }

    /// Returns true if a Machine with that uid is known, be it on its way out.
    #[must_use]
    pub fn has_machine(&self, key: &ObjectKey, uid: &Uid) -> bool {
        self.inner.read().live.machines.get(key).is_some_and(|machine| machine.meta.uid == *uid)
    }

    /// Returns true if a Machine with that uid is of this group. `None` while the Machine, or the MachineSet that owns
    /// it, isn't known.
    #[must_use]
    pub fn is_of(&self, id: &GroupId, key: &ObjectKey, uid: &Uid) -> Option<bool> {
        let inner = self.inner.read();
        let machine = inner.live.machines.get(key).filter(|machine| machine.meta.uid == *uid)?;
        match inner.live.group_of(machine) {
            Some(group) => Some(group == *id),
            None if machine.owner.is_none() => Some(false),
            None => None,
        }
    }

    /// The delete-machine annotation of a Machine with that uid.
    #[must_use]
    pub fn mark_of(&self, key: &ObjectKey, uid: &Uid) -> Option<ArcStr> {
        let inner = self.inner.read();
        inner.live.machines.get(key).filter(|machine| machine.meta.uid == *uid)?.delete_mark.clone()
    }

    /// The MachineSets or the MachinePool that own the Machines of a group, by kind and name.
    #[must_use]
    pub fn owners(&self, id: &GroupId) -> Vec<(ScalableKind, ArcStr)> {
        match id.kind {
            ScalableKind::MachineDeployment => {
                let inner = self.inner.read();
                let sets = inner.live.sets_of(&id.key);
                sets.map(|set| (ScalableKind::MachineSet, set.meta.key.name.clone())).collect()
            }
            ScalableKind::MachineSet | ScalableKind::MachinePool => vec![(id.kind, id.key.name.clone())],
        }
    }

    /// The GPU types that templates promise: the values of their GPU label.
    #[must_use]
    pub fn gpu_types(&self) -> BTreeSet<String> {
        let inner = self.inner.read();
        let served = inner.live.groups.values().filter_map(|group| group.served.as_deref());
        served
            .filter_map(|served| served.definition.template.as_ref()?.labels.get(nodegroup::GPU_LABEL))
            .map(|label| label.value.clone())
            .collect()
    }
}

impl Index {
    /// The keys that `of` finds in the picture.
    fn keys(&self, of: impl FnOnce(&LiveState) -> HashSet<ObjectKey>) -> HashSet<ObjectKey> {
        of(&self.inner.read().live)
    }
}

#[cfg(test)]
impl Index {
    /// Returns how often a Machine was looked at for its group so far.
    pub(crate) fn visits(&self) -> usize {
        self.inner.read().live.visits.load(std::sync::atomic::Ordering::Relaxed)
    }
}

impl Inner {
    /// A group that answers: one that is live, or was at the last Refresh.
    fn answering(&self, id: &GroupId) -> Option<&Group> {
        self.live.groups.get(id).filter(|group| group.served.is_some())
    }
}

impl LiveState {
    fn machine_count(&self, id: &GroupId, group: &Group) -> i32 {
        let count = match (id.kind, &group.object) {
            (ScalableKind::MachinePool, Some(pool)) => pool.provider_ids.len(),
            (ScalableKind::MachinePool, None) => 0,
            (ScalableKind::MachineDeployment | ScalableKind::MachineSet, _) => self.machines_of(id).count(),
        };
        i32::try_from(count).unwrap_or(i32::MAX)
    }
}
