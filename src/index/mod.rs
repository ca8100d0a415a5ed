//! The live state of one workload cluster: its groups, the Machines and Nodes of each, their sizes and templates. One
//! writer applies [`Change`]s; readers are answered from memory, at a cost that grows with the answer and not with
//! the fleet. The index must never wait: it has no I/O and no await, and every lock is held for one change or one
//! answer.

mod change;
mod counts;
mod evaluate;
mod feed;
mod freshness;
mod gone;
mod group;
mod holder;
mod increase;
mod keyed_multimap;
mod keyed_set;
mod live_state;
mod members;
mod metrics;
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
    freshness::Freshness,
    group::Served,
    members::Member,
    metrics::{GroupMetrics, GroupSeries},
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

/// The live state of one workload cluster.
#[derive(Debug)]
pub struct Index {
    inner: RwLock<Inner>,
    /// The state of the first sync; `None` once it is over.
    first_sync: Mutex<Option<FirstSync>>,
    /// Notified when the result of [`Index::wanted_kinds`] changes.
    wanted: watch::Sender<()>,
    /// Notified when a group is added to [`Index::take_unfinished`].
    unfinished: watch::Sender<()>,
    /// Notified when a group is added to [`Index::take_observed`].
    observed: watch::Sender<()>,
}

#[derive(Debug)]
struct Inner {
    live: LiveState,
    /// The last pinned membership; `None` before the first one.
    pinned: Option<Membership>,
}

/// The state of a group that a command needs before it writes.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ScaleView {
    /// The current bounds, not the pinned ones.
    pub bounds: Bounds,
    /// The version that a write is based on, including own writes.
    pub version: GroupVersion,
    /// The number of Machines, including those that are being deleted: a MachineSet counts them as replicas until
    /// they are gone.
    pub machines: i32,
    /// The number of Machines that have a Node and aren't being deleted.
    pub machines_with_node: i32,
    /// The annotation with the last replacement of a Machine.
    pub replaced: Option<ArcStr>,
    /// The rollout that forbids deletes; `None` if there is none, or the group opts out of that.
    pub rollout: Option<Ongoing>,
}

/// The progress of a group's deletions, as far as the watches have reported it.
#[derive(Clone, Debug)]
pub struct DeletionView {
    /// The group's version, including own writes.
    pub version: GroupVersion,
    /// The min size, which is 0 if the object isn't a group any more.
    pub min: i32,
    /// The objects that create the Machines: the MachineSets of a MachineDeployment, else the group's own object.
    pub sets: Vec<SetView>,
    /// The Machines.
    pub machines: Vec<Arc<Machine>>,
}

impl Index {
    /// Creates an empty index with these rules.
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

    /// Applies a change, and logs its effects on groups.
    pub fn apply(&self, change: Change) {
        self.log(self.apply_quietly(change));
    }

    /// Applies a change, and returns its effects on groups.
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

    /// Returns the log of an incoming object. A stored log with the same text is reused, since then only the status
    /// or a copy has changed. The log of a group in scope is parsed here, before the write lock is taken. A copy on a
    /// MachineSet is parsed when the group's deletions are finished, and a log out of scope never.
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
            // An unreadable log is rejected where it is needed.
            let _ = log.read();
        }
        Some(log)
    }

    /// Returns a receiver that is notified of groups in [`Index::take_unfinished`].
    #[must_use]
    pub fn unfinished(&self) -> watch::Receiver<()> {
        self.unfinished.subscribe()
    }

    /// Returns a receiver that is notified of groups in [`Index::take_observed`].
    #[must_use]
    pub fn observed(&self) -> watch::Receiver<()> {
        self.observed.subscribe()
    }

    /// Returns the groups whose deletions may have progressed: those with a log of deletions, or with a Machine
    /// marked for one, that have changed since the last call.
    #[must_use]
    pub fn take_unfinished(&self) -> BTreeSet<GroupId> {
        std::mem::take(&mut self.inner.write().live.unfinished)
    }

    /// Returns the infrastructure template kinds that groups in scope name, with the namespaces of these groups.
    #[must_use]
    pub fn wanted_kinds(&self) -> BTreeMap<KindRef, BTreeSet<ArcStr>> {
        self.inner.read().live.wanted_kinds()
    }

    /// Returns a receiver that is notified when the result of [`Index::wanted_kinds`] changes.
    #[must_use]
    pub fn wanted_kinds_changed(&self) -> watch::Receiver<()> {
        self.wanted.subscribe()
    }

    /// Returns the state of an infrastructure template kind.
    #[must_use]
    pub fn kind_state(&self, kind: &KindRef) -> Option<KindState> {
        self.inner.read().live.kinds.get(kind).cloned()
    }

    /// Returns true if the first list of every named template kind is complete or has failed.
    #[must_use]
    pub fn has_settled(&self) -> bool {
        let inner = self.inner.read();
        let state = |kind| inner.live.kinds.get(kind);
        inner.live.wanted.keys().all(|kind| match state(kind) {
            Some(KindState::Synced | KindState::Unreadable(_)) => true,
            Some(KindState::Pending) | None => false,
        })
    }

    /// Pins the current membership, as Refresh does.
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

    /// Returns the pinned groups, ordered by id. Pins them if there was no Refresh yet.
    #[must_use]
    pub fn groups(&self) -> Arc<[PinnedGroup]> {
        if let Some(pinned) = &self.inner.read().pinned {
            return Arc::clone(&pinned.groups);
        }
        self.refresh();
        self.inner.read().pinned.as_ref().map(|pinned| Arc::clone(&pinned.groups)).unwrap_or_default()
    }

    /// Returns the pinned group of a Node; `None` if it belongs to none.
    #[must_use]
    pub fn group_of_node(&self, query: NodeQuery<'_>) -> Option<PinnedGroup> {
        let inner = self.inner.read();
        let id = inner.live.group_of_node(query)?;
        inner.pinned.as_ref()?.get(&id).cloned()
    }

    /// Returns the Machine or group that a Node stands for.
    #[must_use]
    pub fn resolve(&self, query: NodeQuery<'_>) -> Resolved {
        self.inner.read().live.resolve(query)
    }

    /// Returns the answers of a group, or the last ones if it has stopped being a group since the last Refresh.
    #[must_use]
    pub fn served(&self, id: &GroupId) -> Option<Arc<Served>> {
        self.inner.read().live.groups.get(id)?.served.clone()
    }

    /// Returns the desired size, including own writes; `None` if there is no such group.
    #[must_use]
    pub fn target_size(&self, id: &GroupId) -> Option<i32> {
        let inner = self.inner.read();
        Some(inner.answering(id)?.size(Instant::now()))
    }

    /// Returns the instances of a group: its Machines, or a MachinePool's providerIDs, and a placeholder for each
    /// missing replica. The instances of a recent increase have ids of their own. `None` if there is no such group.
    #[must_use]
    pub fn instances(&self, id: &GroupId) -> Option<Vec<Instance>> {
        let inner = self.inner.read();
        let live = &inner.live;
        let group = inner.answering(id)?;
        let now = Instant::now();
        // A deleted group creates no more Machines.
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
    /// When it isn't a group now: a command is refused, while a read would get the last values.
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

    /// Returns the uid of a group's object; `None` if it was deleted.
    #[must_use]
    pub fn uid(&self, id: &GroupId) -> Option<Uid> {
        Some(self.inner.read().live.groups.get(id)?.object.as_ref()?.meta.uid.clone())
    }

    /// Stores a version that was written or read, until the watch has caught up with it.
    pub fn set_written(&self, id: &GroupId, version: GroupVersion) {
        // Parsed before the lock is taken, under which no text is parsed.
        let _ = version.log.as_ref().map(SharedLog::read);
        if let Some(group) = self.inner.write().live.groups.get_mut(id) {
            group.versions.set_written(version, Instant::now());
        }
    }

    /// Returns the facts about a group's current generation; `None` if there is no such object.
    #[must_use]
    pub fn era(&self, id: &GroupId) -> Option<Era> {
        self.inner.read().live.groups.get(id)?.versions.era().cloned()
    }

    /// Returns the progress of a group's deletions. `None` if the object doesn't exist, is paused, or isn't in scope:
    /// its deletions have to wait, or are another program's.
    #[must_use]
    pub fn deletions(&self, id: &GroupId) -> Option<DeletionView> {
        let inner = self.inner.read();
        let live = &inner.live;
        let min = live.groups.get(id)?.min_of_deletions()?;
        let (version, sets) = live.sets(id)?;
        Some(DeletionView { version, min, sets, machines: live.machines_of(id).cloned().collect() })
    }

    /// Returns a group's version, including own writes, and the objects that create its Machines.
    #[must_use]
    pub fn sets(&self, id: &GroupId) -> Option<(GroupVersion, Vec<SetView>)> {
        self.inner.read().live.sets(id)
    }

    /// Returns the Machines of a group with their Nodes, including those that are being deleted.
    #[must_use]
    pub fn members(&self, id: &GroupId) -> Vec<Member> {
        let inner = self.inner.read();
        inner.live.copy_members(id)
    }

    /// Returns true if a known Node leads to a Machine with this key and providerID, as the API server has them.
    #[must_use]
    pub fn knows_node_of(&self, key: &ObjectKey, provider_id: Option<&ArcStr>) -> bool {
        self.inner.read().live.node_that_leads_to(key, provider_id).is_some()
    }

    /// Returns true if a Machine with that uid is known, even if it is being deleted.
    #[must_use]
    pub fn has_machine(&self, key: &ObjectKey, uid: &Uid) -> bool {
        self.inner.read().live.machines.get(key).is_some_and(|machine| machine.meta.uid == *uid)
    }

    /// Returns true if a Machine with that uid belongs to this group; `None` if the Machine, or the MachineSet that
    /// owns it, isn't known.
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

    /// Returns the delete-machine annotation of a Machine with that uid.
    #[must_use]
    pub fn mark_of(&self, key: &ObjectKey, uid: &Uid) -> Option<ArcStr> {
        let inner = self.inner.read();
        inner.live.machines.get(key).filter(|machine| machine.meta.uid == *uid)?.delete_mark.clone()
    }

    /// Returns the MachineSets or the MachinePool that own the Machines of a group, by kind and name.
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

    /// Returns the GPU types of all templates: the values of their GPU label.
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
    /// Returns the keys that `of` finds in the index.
    fn keys(&self, of: impl FnOnce(&LiveState) -> HashSet<ObjectKey>) -> HashSet<ObjectKey> {
        of(&self.inner.read().live)
    }
}

#[cfg(test)]
impl Index {
    /// Returns the number of visits to a Machine for its group.
    pub(crate) fn visits(&self) -> usize {
        self.inner.read().live.visits.load(std::sync::atomic::Ordering::Relaxed)
    }
}

impl Inner {
    /// Returns a group that answers: a live one, or one that was live at the last Refresh.
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
