//! The live state of one workload cluster, and its lock. Each change is applied under the lock; while groups are evaluated
//! for it, readers and other writers come in between.
//!
//! - The group of a Machine is never stored: its owner, and that one's owner, lead to it. So it can't be stale, and
//!   objects may arrive in any order.
//! - The same objects in any order give the same state, and nothing is left of objects that are gone. A property test
//!   holds both.
//! - What is kept to be found quickly, such as the lowest prices, is dropped when it may be wrong, and then found anew.
//! - An object that is wrong changes one group; the others go on.
//! - Nothing here waits: no I/O, no await, and a lock is held for one change or one answer.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque},
    sync::{Arc, OnceLock},
    time::Duration,
};

use arcstr::ArcStr;
use jiff::Timestamp;
use parking_lot::{Mutex, RwLock};
use rules::capi::{Cluster, KindRef, Machine, Node, ObjectKey, ScalableKind};
use rules::{GroupId, Rules, Shortage, UnitPrices};
use tokio::{sync::watch, time::Instant};

use super::{
    change::KindState,
    counts::KeptCounts,
    failed_delete::FailedDelete,
    group::Group,
    log::{FirstSync, GroupLines},
    multimap::Multimap,
    observations::{Observations, Resources},
    pinned::Membership,
    relations::{ByKey, Holders, Tail, TemplateKey},
    remembered::Memory,
    remembered_groups::NodeToLookAt,
    templates::SharedTemplates,
};

/// The live state of one workload cluster.
#[derive(Debug)]
pub struct Index {
    pub(super) inner: RwLock<Inner>,
    /// The state of the first sync; `None` before and after it.
    pub(super) first_sync: Mutex<Option<FirstSync>>,
    /// The lines of the log about single groups.
    pub(super) group_lines: Mutex<GroupLines>,
    /// Notified when the result of [`Index::wanted_kinds`] may have changed.
    pub(super) wanted: watch::Sender<()>,
    /// Notified when [`Index::take_written_sizes`] has another group to return.
    pub(super) written_sizes: watch::Sender<()>,
    /// Notified when [`Index::take_nodes_to_look_at`] has another one to return.
    pub(super) nodes_to_look_at: watch::Sender<()>,
}

#[derive(Debug)]
pub(super) struct Inner {
    pub(super) live: LiveState,
    /// The last pinned membership; `None` before the first one.
    pub(super) pinned: Option<Membership>,
}

impl Index {
    /// Creates an empty index with these rules.
    pub fn new(rules: Rules) -> Self {
        Self {
            inner: RwLock::new(Inner { live: LiveState::new(rules), pinned: None }),
            first_sync: Mutex::new(None),
            group_lines: Mutex::default(),
            wanted: watch::Sender::new(()),
            written_sizes: watch::Sender::new(()),
            nodes_to_look_at: watch::Sender::new(()),
        }
    }

    /// Shares the templates with other indexes. Changes of templates then only say that they were stored there.
    pub fn sharing(mut self, templates: Arc<SharedTemplates>) -> Self {
        let live = &mut self.inner.get_mut().live;
        (live.templates, live.shares_templates) = (templates, true);
        self
    }

    /// Remembers Nodes, and uses what is remembered.
    pub fn remembering(mut self, memory: Option<Arc<Memory>>) -> Self {
        self.inner.get_mut().live.memory = memory;
        self
    }

    pub(super) fn keys(&self, of: impl FnOnce(&LiveState) -> HashSet<ObjectKey>) -> HashSet<ObjectKey> {
        of(&self.inner.read().live)
    }
}

/// All known objects with their relations.
#[derive(Debug)]
pub(super) struct LiveState {
    pub(super) rules: Rules,
    /// Every known MachineDeployment, MachineSet and MachinePool, also those that are no node groups.
    pub(super) groups: HashMap<GroupId, Group>,
    pub(super) clusters: HashMap<ObjectKey, Arc<Cluster>>,
    /// The Machines by their own keys, of which a hundred thousand need no copy.
    pub(super) machines: HashSet<ByKey<Machine>>,
    /// The Nodes by name.
    pub(super) nodes: HashMap<ArcStr, Arc<Node>>,
    /// The Nodes that aren't ready, and the times of their creation.
    pub(super) unready_nodes: BTreeMap<ArcStr, Timestamp>,
    pub(super) templates: Arc<SharedTemplates>,
    /// True if the templates are stored by whoever shares them.
    pub(super) shares_templates: bool,
    /// What is remembered of Nodes; `None` if nothing is.
    pub(super) memory: Option<Arc<Memory>>,
    pub(super) kinds: HashMap<KindRef, KindState>,
    /// The Machines whose infrastructure reports a lack of capacity.
    pub(super) shortages: HashMap<ObjectKey, Shortage>,
    /// The Machines with a nodeRef and without a providerID, unless they are being deleted.
    pub(super) unidentified: BTreeSet<ObjectKey>,
    /// The Machines whose deletion failed.
    pub(super) failed_deletes: HashMap<ObjectKey, FailedDelete>,
    /// The Machines of a MachineSet or MachinePool. None has an empty set.
    pub(super) machines_by_owner: HashMap<(ScalableKind, ObjectKey), BTreeSet<ByKey<Machine>>>,
    /// The instances of groups by state.
    pub(super) counts: KeptCounts,
    pub(super) holders: Holders,
    /// The MachineSets of a MachineDeployment.
    pub(super) sets_by_deployment: Multimap<ObjectKey, ObjectKey>,
    pub(super) machines_by_node: Multimap<ArcStr, ByKey<Machine>>,
    pub(super) nodes_by_provider_id: Multimap<Tail, ByKey<Node>>,
    /// The Nodes with a Machine in their annotations.
    pub(super) nodes_by_machine: Multimap<ObjectKey, ByKey<Node>>,
    /// The MachinePools whose nodeRefs contain a Node.
    pub(super) pools_by_node: Multimap<ArcStr, GroupId>,
    pub(super) groups_by_cluster: Multimap<ObjectKey, GroupId>,
    pub(super) groups_by_template: Multimap<TemplateKey, GroupId>,
    /// The resources of observed Nodes.
    pub(super) resources: Resources,
    /// The labels of observed Nodes.
    pub(super) observations: Observations,
    pub(super) groups_by_kind: Multimap<KindRef, GroupId>,
    /// True if a group has named another kind since the last notification.
    pub(super) wanted_changed: bool,
    /// The lowest price of each resource among the served groups, once it was asked for since the last change of a
    /// price.
    pub(super) cheapest_units: OnceLock<Option<Arc<UnitPrices>>>,
    /// The groups that are yet to be evaluated for the change that is being applied.
    pub(super) due: BTreeSet<GroupId>,
    /// The groups that were added or removed, or have other problems, to be logged once the lock is released.
    pub(super) to_log: BTreeSet<GroupId>,
    /// The groups whose size was written, overwritten or held back.
    pub(super) sizes_to_observe: BTreeSet<GroupId>,
    /// The Nodes whose volumes and devices are to be remembered.
    pub(super) nodes_to_look_at: Vec<NodeToLookAt>,
    /// True if a group was added, removed, or changed its bounds since the last pinning.
    pub(super) membership_changed: bool,
    /// The deleted groups that are still served, until the next Refresh.
    pub(super) deleted_groups: DeletedGroups,
    /// The namespaces of the scope that can't be read.
    pub(super) forbidden_namespaces: BTreeSet<String>,
    /// The number of evaluations of the rules.
    #[cfg(test)]
    pub(super) evaluations: usize,
}

impl LiveState {
    pub(super) fn new(rules: Rules) -> Self {
        Self {
            rules,
            groups: HashMap::new(),
            clusters: HashMap::new(),
            machines: HashSet::new(),
            nodes: HashMap::new(),
            unready_nodes: BTreeMap::new(),
            templates: Arc::default(),
            shares_templates: false,
            memory: None,
            kinds: HashMap::new(),
            shortages: HashMap::new(),
            unidentified: BTreeSet::new(),
            failed_deletes: HashMap::new(),
            machines_by_owner: HashMap::new(),
            counts: KeptCounts::default(),
            holders: Holders::default(),
            sets_by_deployment: Multimap::default(),
            machines_by_node: Multimap::default(),
            nodes_by_provider_id: Multimap::default(),
            nodes_by_machine: Multimap::default(),
            pools_by_node: Multimap::default(),
            groups_by_cluster: Multimap::default(),
            groups_by_template: Multimap::default(),
            resources: Resources::default(),
            observations: Observations::default(),
            groups_by_kind: Multimap::default(),
            wanted_changed: false,
            cheapest_units: OnceLock::new(),
            due: BTreeSet::new(),
            to_log: BTreeSet::new(),
            sizes_to_observe: BTreeSet::new(),
            nodes_to_look_at: Vec::new(),
            membership_changed: true,
            deleted_groups: DeletedGroups::default(),
            forbidden_namespaces: BTreeSet::new(),
            #[cfg(test)]
            evaluations: 0,
        }
    }

    #[cfg(test)]
    pub(super) fn leftovers(&self) -> Vec<&'static str> {
        let left = [
            ("unready_nodes", self.unready_nodes.is_empty()),
            ("shortages", self.shortages.is_empty()),
            ("unidentified", self.unidentified.is_empty()),
            ("failed_deletes", self.failed_deletes.is_empty()),
            ("machines_by_owner", self.machines_by_owner.is_empty()),
            ("counts", self.counts.is_empty()),
            ("holders", self.holders.is_empty()),
            ("sets_by_deployment", self.sets_by_deployment.is_empty()),
            ("machines_by_node", self.machines_by_node.is_empty()),
            ("nodes_by_provider_id", self.nodes_by_provider_id.is_empty()),
            ("nodes_by_machine", self.nodes_by_machine.is_empty()),
            ("pools_by_node", self.pools_by_node.is_empty()),
            ("groups_by_cluster", self.groups_by_cluster.is_empty()),
            ("groups_by_template", self.groups_by_template.is_empty()),
            ("resources", self.resources.is_empty()),
            ("observations", self.observations.is_empty()),
            ("groups_by_kind", self.groups_by_kind.is_empty()),
            ("groups", self.groups.is_empty()),
            ("cheapest_units", self.cheapest_units.get().is_none_or(Option::is_none)),
            ("deleted_groups", self.deleted_groups.is_empty()),
        ];
        left.into_iter().filter(|(_, empty)| !empty).map(|(name, _)| name).collect()
    }
}

// Deleted groups, which are served until the next Refresh. A replica of the program that gets no Refresh drops them after
// a time, at later changes.

/// The maximum duration of a loop of Cluster Autoscaler, which restarts itself after ten minutes without one. What was
/// left out or deleted during a loop is answered for as long.
pub const LONGEST_LOOP: Duration = Duration::from_secs(15 * 60);
/// The deleted groups with the times of their deletions, in order. A group may exist again by now.
#[derive(Debug, Default)]
pub(super) struct DeletedGroups(VecDeque<(Instant, GroupId)>);

impl DeletedGroups {
    /// Records the deletion of a group. A repeated report keeps the first time.
    pub(super) fn note(&mut self, id: &GroupId, group: &mut Group) {
        if group.deleted_at.is_none() {
            let now = Instant::now();
            group.deleted_at = Some(now);
            self.0.push_back((now, id.clone()));
        }
    }

    /// Forgets all, after all of them were dropped.
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// Removes and returns the first one that is old enough.
    pub(super) fn take_old(&mut self) -> Option<(Instant, GroupId)> {
        let is_old = self.0.front().is_some_and(|(since, _)| since.elapsed() >= LONGEST_LOOP);
        if is_old { self.0.pop_front() } else { None }
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
