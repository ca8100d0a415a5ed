//! The live state of one workload cluster: its groups, the Machines and Nodes of each, their sizes and templates. One
//! writer applies [`Change`]s; readers are answered from memory, at a cost that grows with the answer and not with
//! the fleet. The index must never wait: it has no I/O and no await, and every lock is held for one change or one
//! answer. A [`Router`] fills the indexes of many Clusters.

mod answers;
mod apply;
mod change;
mod cheapest_units;
mod commands;
mod counting;
mod counts;
mod deleted_groups;
mod evaluate;
mod failed_deletes;
pub mod families;
mod feed;
mod group;
mod hold;
mod holder;
mod increase;
mod index_feed;
mod keyed_multimap;
mod keyed_set;
mod live_state;
mod lookup;
mod members;
mod metrics;
mod multimap;
mod node_key;
mod notices;
#[cfg(any(test, feature = "test-support"))]
#[doc(hidden)]
pub mod objects;
mod observations;
mod observed;
mod observed_resources;
mod observed_values;
mod own_size;
mod pinned;
mod prices;
mod relation;
mod resolve;
mod rollouts;
mod router;
mod samples;
mod shared_templates;
mod shortages;
mod sink;
mod size_writes;
mod snapshot;
mod stats;
mod tag;
mod tally;
#[cfg(test)]
mod tests;
mod version;
mod wanted;

use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    sync::Arc,
    time::Instant,
};

use arcstr::ArcStr;
use parking_lot::{Mutex, RwLock, RwLockWriteGuard};
use tokio::sync::watch;

pub use self::{
    change::{Change, KindState},
    commands::ScaleView,
    feed::{FedKeys, Feed},
    group::Served,
    hold::Hold,
    index_feed::IndexFeed,
    members::Member,
    metrics::{GroupMetrics, GroupSeries, encode_groups},
    notices::Notice,
    own_size::Overwritten,
    pinned::PinnedGroup,
    prices::{NoPrice, NodeLabels},
    resolve::{NodeQuery, Resolved},
    router::{Routed, RoutedKind, Router},
    shared_templates::{SharedTemplates, Template, TemplateReader},
    sink::Sink,
    snapshot::{Detail, GroupSnapshot, OwnedInstance, Snapshot},
    stats::{GroupProblem, GroupRollout, OutsideBounds, Stats},
    tag::Tag,
    tally::Sizes,
    version::WrittenSize,
};
use self::{
    failed_deletes::FailedDelete,
    live_state::LiveState,
    notices::{FirstSync, GroupLines},
    pinned::Membership,
    shared_templates::Templates,
};
use capi::{KindRef, ObjectKey, Uid};
use nodegroup::{GroupId, Rules, writing::GroupVersion};

/// The live state of one workload cluster.
#[derive(Debug)]
pub struct Index {
    inner: RwLock<Inner>,
    /// The state of the first sync; `None` before and after it.
    first_sync: Mutex<Option<FirstSync>>,
    /// The lines of the log about single groups.
    group_lines: Mutex<GroupLines>,
    /// Notified when the result of [`Index::wanted_kinds`] changes.
    wanted: watch::Sender<()>,
    /// Notified when [`Index::take_observed`] has another group to return.
    observed: watch::Sender<()>,
}

#[derive(Debug)]
struct Inner {
    live: LiveState,
    /// The last pinned membership; `None` before the first one.
    pinned: Option<Membership>,
}

/// Evaluates all groups that are due. Reads that wait get their turn in between.
fn evaluate_due(inner: &mut RwLockWriteGuard<'_, Inner>) {
    while inner.live.evaluate_due() {
        RwLockWriteGuard::bump(inner);
    }
}

impl Index {
    /// Creates an empty index with these rules.
    #[must_use]
    pub fn new(rules: Rules) -> Self {
        Self {
            inner: RwLock::new(Inner { live: LiveState::new(rules), pinned: None }),
            first_sync: Mutex::new(None),
            group_lines: Mutex::default(),
            wanted: watch::Sender::new(()),
            observed: watch::Sender::new(()),
        }
    }

    /// Shares the templates with other indexes. Changes of templates then only say that they were stored there.
    #[must_use]
    pub fn sharing(mut self, templates: &Arc<SharedTemplates>) -> Self {
        self.inner.get_mut().live.templates = Templates::shared(templates);
        self
    }

    /// Returns this index among the readers of shared templates; `None` if it shares none.
    #[must_use]
    pub fn template_reader(&self) -> Option<TemplateReader> {
        self.inner.read().live.templates.reader()
    }

    /// Lets the changes of shared templates not concern this index any more.
    pub fn release_templates(&self) {
        let live = &mut self.inner.write().live;
        live.templates.release_all(live.groups_by_template.keys());
    }

    /// Applies a change, and logs its effects on groups.
    pub fn apply(&self, change: Change) {
        self.log(self.apply_quietly(change));
    }

    /// Applies a change, and returns its effects on groups.
    pub fn apply_quietly(&self, change: Change) -> Vec<Notice> {
        let mut inner = self.inner.write();
        inner.live.apply(change);
        evaluate_due(&mut inner);
        let live = &mut inner.live;
        if std::mem::take(&mut live.wanted_changed) {
            self.wanted.send_replace(());
        }
        if !live.observed.is_empty() {
            self.observed.send_replace(());
        }
        live.take_notices()
    }

    /// Returns a receiver that is notified when [`Index::take_observed`] has groups to return.
    #[must_use]
    pub fn observed(&self) -> watch::Receiver<()> {
        self.observed.subscribe()
    }

    /// Returns the infrastructure template kinds that groups in scope reference, with the namespaces of these groups.
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

    /// Returns true if the first list of every referenced template kind has completed or failed, and all groups are
    /// evaluated.
    #[must_use]
    pub fn has_settled(&self) -> bool {
        let inner = self.inner.read();
        let state = |kind| inner.live.kinds.get(kind);
        let has_settled = |kind| match state(kind) {
            Some(KindState::Synced | KindState::Unreadable(_)) => true,
            Some(KindState::Pending) | None => false,
        };
        inner.live.due.is_empty() && inner.live.wanted.keys().all(has_settled)
    }

    /// Pins the current membership for the Refresh RPC.
    pub fn refresh(&self) {
        let mut inner = self.inner.write();
        // A change that is being applied is pinned as a whole.
        evaluate_due(&mut inner);
        if inner.pinned.is_none() || inner.live.membership_changed {
            inner.pinned = Some(Membership::pin(&mut inner.live));
        }
    }

    /// Stores a version that was written or read, until the watch has caught up with it.
    pub fn set_written(&self, id: &GroupId, version: GroupVersion) {
        let live = &mut self.inner.write().live;
        if let Some(group) = live.groups.get_mut(id) {
            group.versions.set_written(version, Instant::now());
        }
    }

    /// Records that the API server has refused to delete a Machine, or hasn't answered.
    pub fn record_failed_delete(&self, key: &ObjectKey, uid: &Uid) {
        let live = &mut self.inner.write().live;
        if live.machines.get(key).is_some_and(|machine| machine.meta.uid == *uid) {
            let failed = FailedDelete::after(live.failed_deletes.get(key));
            live.failed_deletes.insert(key.clone(), failed);
        }
    }
}

impl Index {
    /// Returns the keys that `of` finds in the index.
    fn keys(&self, of: impl FnOnce(&LiveState) -> HashSet<ObjectKey>) -> HashSet<ObjectKey> {
        of(&self.inner.read().live)
    }
}

/// Other crates get this counter only in debug builds, so that it doesn't slow their benches.
#[cfg(any(test, all(feature = "test-support", debug_assertions)))]
impl Index {
    /// Returns the number of Machines that were iterated over for their group.
    #[doc(hidden)]
    #[must_use]
    pub fn visits(&self) -> usize {
        self.inner.read().live.visits.load(std::sync::atomic::Ordering::Relaxed)
    }
}
