//! The objects and their relations, kept up to date with each change. There is one writer at a time, and nothing here
//! may wait. The group of a Machine must never be stored: one look-up finds it through the Machine's owner, so it can't
//! be stale, and the order of arrival doesn't matter.

use arcstr::ArcStr;
use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::{Arc, OnceLock},
};

use capi::{Cluster, KindRef, Machine, Node, ObjectKey, ScalableKind};
use nodegroup::{GroupId, Rules, Shortage, UnitPrices};

use super::{
    KindState,
    count::Counts,
    deleted_groups::DeletedGroups,
    failed_deletes::FailedDelete,
    group::Group,
    holder::{ByKey, Holders, Tail},
    multimap::Multimap,
    observations::{Observations, Resources},
    relation::TemplateKey,
    shared_templates::Templates,
};

/// All known objects with their relations.
#[derive(Debug)]
pub(super) struct LiveState {
    pub(super) rules: Rules,
    pub(super) groups: HashMap<GroupId, Group>,
    pub(super) clusters: HashMap<ObjectKey, Arc<Cluster>>,
    pub(super) machines: HashMap<ObjectKey, Arc<Machine>>,
    /// The Nodes by name.
    pub(super) nodes: HashMap<ArcStr, Arc<Node>>,
    pub(super) templates: Templates,
    pub(super) kinds: HashMap<KindRef, KindState>,
    /// The Machines whose infrastructure reports a lack of capacity.
    pub(super) shortages: HashMap<ObjectKey, Shortage>,
    /// The Machines with a nodeRef and without a providerID, unless they are being deleted.
    pub(super) unidentified: BTreeSet<ObjectKey>,
    /// The Machines whose deletion failed.
    pub(super) failed_deletes: HashMap<ObjectKey, FailedDelete>,
    /// The Machines of a MachineSet or MachinePool, by name. None has an empty map.
    pub(super) machines_by_owner: HashMap<(ScalableKind, ObjectKey), BTreeMap<ArcStr, Arc<Machine>>>,
    pub(super) counts: Counts,
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
    /// The kinds that groups in scope name, with the number of groups per namespace.
    pub(super) wanted: BTreeMap<KindRef, BTreeMap<ArcStr, usize>>,
    /// True if a kind was added or removed in a namespace since the last notification.
    pub(super) wanted_changed: bool,
    /// The lowest price of each resource among the served groups, once it was asked for since the last change of a price.
    pub(super) cheapest_units: OnceLock<Option<Arc<UnitPrices>>>,
    /// The groups that are yet to be evaluated for the change that is being applied.
    pub(super) due: BTreeSet<GroupId>,
    /// The groups that were added or removed, or have other problems, to be logged once the lock is released.
    pub(super) changed: BTreeSet<GroupId>,
    /// The groups whose size was written, overwritten or held back.
    pub(super) observed: BTreeSet<GroupId>,
    /// True if a group was added, removed, or changed its bounds since the last pinning.
    pub(super) membership_changed: bool,
    /// The deleted groups that are still served, until the next Refresh.
    pub(super) deleted_groups: DeletedGroups,
    /// The namespaces of the scope that can't be read.
    pub(super) forbidden_namespaces: BTreeSet<String>,
    /// The number of evaluations of the rules.
    #[cfg(test)]
    pub(super) evaluations: usize,
    /// The number of visits to a Machine for its group.
    #[cfg(any(test, all(feature = "test-support", debug_assertions)))]
    pub(super) visits: std::sync::atomic::AtomicUsize,
}

impl LiveState {
    pub(super) fn new(rules: Rules) -> Self {
        Self {
            rules,
            groups: HashMap::new(),
            clusters: HashMap::new(),
            machines: HashMap::new(),
            nodes: HashMap::new(),
            templates: Templates::default(),
            kinds: HashMap::new(),
            shortages: HashMap::new(),
            unidentified: BTreeSet::new(),
            failed_deletes: HashMap::new(),
            machines_by_owner: HashMap::new(),
            counts: Counts::default(),
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
            wanted: BTreeMap::new(),
            wanted_changed: false,
            cheapest_units: OnceLock::new(),
            due: BTreeSet::new(),
            changed: BTreeSet::new(),
            observed: BTreeSet::new(),
            membership_changed: true,
            deleted_groups: DeletedGroups::default(),
            forbidden_namespaces: BTreeSet::new(),
            #[cfg(test)]
            evaluations: 0,
            #[cfg(any(test, all(feature = "test-support", debug_assertions)))]
            visits: std::sync::atomic::AtomicUsize::new(0),
        }
    }

    /// Returns the relations that aren't empty.
    #[cfg(test)]
    pub(super) fn leftovers(&self) -> Vec<&'static str> {
        let left = [
            ("shortages", self.shortages.is_empty()),
            ("unidentified", self.unidentified.is_empty()),
            ("failed_deletes", self.failed_deletes.is_empty()),
            ("machines_by_owner", self.machines_by_owner.is_empty()),
            ("counts", self.counts.len() == 0),
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
            ("wanted", self.wanted.is_empty()),
            ("groups", self.groups.is_empty()),
            ("cheapest_units", self.cheapest_units.get().is_none_or(Option::is_none)),
            ("deleted_groups", self.deleted_groups.is_empty()),
        ];
        left.into_iter().filter(|(_, empty)| !empty).map(|(name, _)| name).collect()
    }
}
