//! Resolves a Node, as Cluster Autoscaler describes it, to the Machine, placeholder or group that it stands for.
//! Nothing here returns an error: an unknown Node isn't managed here.

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
};

use rules::capi::{Machine, Node, ObjectKey, ScalableKind};
use rules::{GroupId, PlaceholderRef, provider_id, template_node_groups};

use super::{
    pinned::PinnedGroup,
    relations::{ByKey, Holder, holder_key, id_of, owner_of},
    state::{Index, LiveState},
};

/// The maximum number of Machines, and of MachinePools, whose nodeRefs are compared for one name.
const MOST_NAMED: usize = 16;

/// A Node as the caller describes it.
#[derive(Clone, Copy, Debug)]
pub struct NodeQuery<'a> {
    /// Its name; for an instance without a Node the instance id.
    pub name: &'a str,
    /// Its providerID; for an instance without a Node the instance id, for a template Node often empty.
    pub provider_id: &'a str,
    /// Its annotations.
    pub annotations: &'a HashMap<String, String>,
}

/// The Machine or group that a Node stands for.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Resolved {
    /// A Machine, with its group if it has one.
    Machine(Arc<Machine>, Option<GroupId>),
    /// A replica of a group that has no Machine yet.
    Replica(GroupId),
    /// An instance of a MachinePool that isn't known as a Machine.
    PoolInstance(GroupId),
    /// An unknown Node.
    Unknown,
}

impl Resolved {
    /// Returns the group, if there is one.
    pub fn group(self) -> Option<GroupId> {
        match self {
            Self::Machine(_, group) => group,
            Self::Replica(group) | Self::PoolInstance(group) => Some(group),
            Self::Unknown => None,
        }
    }
}

impl Index {
    /// Returns the pinned group of a Node; `None` if it belongs to none.
    pub fn group_of_node(&self, query: NodeQuery<'_>) -> Option<PinnedGroup> {
        let inner = self.inner.read();
        let id = inner.live.find_group_of(query)?;
        inner.pinned.as_ref()?.get(&id).cloned()
    }

    /// Returns the Machine or group that a Node stands for.
    pub fn resolve(&self, query: NodeQuery<'_>) -> Resolved {
        self.inner.read().live.resolve(query)
    }

    /// Returns the groups, also those that aren't served, of the Machine, Node or instance that people mean by a text:
    /// the name of a Machine or a Node, or a providerID or its part after the last `/`.
    pub fn groups_of_name(&self, text: &str) -> BTreeSet<GroupId> {
        self.inner.read().live.groups_of_name(text)
    }

    /// Returns true if a MachinePool lists this providerID, whole, by the part after the last `/`, or in another form.
    pub fn pool_lists(&self, pool: &GroupId, provider_id: &str) -> bool {
        self.inner.read().live.pool_lists(pool, provider_id)
    }
}

impl LiveState {
    /// Returns the group of a Node, pinned or not, including that of a template Node.
    pub(super) fn find_group_of(&self, query: NodeQuery<'_>) -> Option<GroupId> {
        let template = template_node_groups(query.name).into_iter().find(|id| self.groups.contains_key(id));
        template.or_else(|| self.resolve(query).group())
    }

    /// Returns the group of a Node of the workload cluster.
    pub(super) fn group_of_known_node(&self, node: &Node) -> Option<GroupId> {
        let provider_id = node.provider_id.as_deref().unwrap_or_default();
        let query = NodeQuery { name: &node.meta.key.name, provider_id, annotations: &HashMap::new() };
        self.resolve(query).group()
    }

    /// Resolves a Node by placeholder id, then by providerID, then by its annotations, then by the nodeRef that names
    /// it.
    pub(super) fn resolve(&self, query: NodeQuery<'_>) -> Resolved {
        match PlaceholderRef::parse(query.provider_id).or_else(|| PlaceholderRef::parse(query.name)) {
            Some(PlaceholderRef::Machine(key)) => return self.resolved(self.machine(&key)),
            Some(PlaceholderRef::Replica(group)) if self.groups.contains_key(&group) => {
                return Resolved::Replica(group);
            }
            Some(PlaceholderRef::Replica(_)) => return Resolved::Unknown,
            None => {}
        }
        let by_provider_id = self.by_provider_id(query);
        if by_provider_id != Resolved::Unknown {
            return by_provider_id;
        }
        let by_annotations = self.by_annotations(query);
        if by_annotations == Resolved::Unknown { self.by_node_ref(query) } else { by_annotations }
    }

    /// Resolves the name of a Node by the nodeRef of the only Machine or MachinePool that has the Node's providerID in
    /// another form. The name alone may be that of another cluster's Node.
    fn by_node_ref(&self, query: NodeQuery<'_>) -> Resolved {
        let id = query.provider_id;
        let named = self.machines_by_node.get(query.name).map(|ByKey(machine)| machine).take(MOST_NAMED);
        let is_same = |machine: &&Arc<Machine>| {
            machine.provider_id.as_deref().is_some_and(|own| provider_id::is_same_in_form(own, id))
        };
        let mut machines = named.filter(is_same);
        if let Some(machine) = machines.next() {
            return if machines.next().is_none() { self.resolved(Some(machine)) } else { Resolved::Unknown };
        }
        let pools = self.pools_by_node.get(query.name).take(MOST_NAMED);
        let mut pools = pools.filter(|pool| self.lists_in_form(pool, id));
        match (pools.next(), pools.next()) {
            (Some(pool), None) => Resolved::PoolInstance(pool.clone()),
            (Some(_) | None, Some(_) | None) => Resolved::Unknown,
        }
    }

    /// Returns the groups of the Machine, Node or instance that people mean by a text. Only a few are looked up
    /// where many have one name.
    pub(super) fn groups_of_name(&self, text: &str) -> BTreeSet<GroupId> {
        let namespaces: BTreeSet<_> = self.groups.keys().map(|id| &id.key.namespace).collect();
        let named = namespaces
            .into_iter()
            .filter_map(|namespace| self.machine(&ObjectKey { namespace: namespace.clone(), name: text.into() }));
        let joined = self.machines_by_node.get(text).map(|ByKey(machine)| machine).take(MOST_NAMED);
        let pools = self.pools_by_node.get(text).take(MOST_NAMED).cloned();
        let node_id = self.nodes.get(text).and_then(|node| node.provider_id.as_deref());
        let of_node = node_id.into_iter().flat_map(|id| self.holders.with_id(id));
        let by_id = self.holders.with_id(text).chain(of_node).take(MOST_NAMED);
        let by_tail = self.holders.with_tail(text).take(MOST_NAMED);
        let held = by_id.chain(by_tail).filter_map(|holder| match holder {
            Holder::Machine(machine) => self.group_of(machine),
            Holder::Pool(pool) => Some(pool.clone()),
        });
        let of_machines = named.chain(joined).filter_map(|machine| self.group_of(machine));
        of_machines.chain(pools).chain(held).collect()
    }

    fn resolved(&self, machine: Option<&Arc<Machine>>) -> Resolved {
        match machine {
            Some(machine) => Resolved::Machine(Arc::clone(machine), self.group_of(machine)),
            None => Resolved::Unknown,
        }
    }

    /// Resolves a providerID. The whole id takes precedence; the part after the last `/` counts only if exactly one
    /// holder has it.
    pub(super) fn by_provider_id(&self, query: NodeQuery<'_>) -> Resolved {
        let id = query.provider_id;
        if id.is_empty() {
            return Resolved::Unknown;
        }
        let whole = Candidates::of(self.holders.with_id(id), |_| true);
        if !whole.is_empty() {
            return whole.choose(self, query);
        }
        let Some(tail) = provider_id::tail(id) else { return Resolved::Unknown };
        let by_tail = Candidates::of(self.holders.with_tail(tail), Candidates::may_be_unambiguous);
        if by_tail.is_unambiguous(self) { by_tail.choose(self, query) } else { Resolved::Unknown }
    }

    /// Returns true if a MachinePool lists this providerID, or one with the same end, which a provider may write
    /// differently on Nodes.
    pub(super) fn pool_lists(&self, pool: &GroupId, provider_id: &str) -> bool {
        let mut holders = self.holders.with_tail(holder_key(provider_id));
        holders.any(|holder| matches!(holder, Holder::Pool(other) if other == pool))
            || self.lists_in_form(pool, provider_id)
    }

    fn lists_in_form(&self, pool: &GroupId, provider_id: &str) -> bool {
        let object = self.groups.get(pool).and_then(|group| group.object.as_ref());
        object.is_some_and(|pool| pool.provider_ids.iter().any(|id| provider_id::is_same_in_form(id, provider_id)))
    }

    /// Returns the group of a Machine, by its owner; `None` for Machines without a group, or if the MachineSet isn't
    /// known.
    pub(super) fn group_of(&self, machine: &Machine) -> Option<GroupId> {
        let (kind, key) = owner_of(machine)?;
        match kind {
            ScalableKind::MachinePool => Some(GroupId::new(kind, key)),
            ScalableKind::MachineSet => {
                let set = self.groups.get(&GroupId::new(kind, key))?.object.as_deref()?;
                Some(id_of(set))
            }
            ScalableKind::MachineDeployment => None,
        }
    }

    fn by_annotations(&self, query: NodeQuery<'_>) -> Resolved {
        let keys = &self.rules.keys;
        let annotation = |key: &str| query.annotations.get(key).map(String::as_str);
        if let Some((namespace, name)) = keys.machine_of(annotation) {
            return self.resolved(self.machine(&ObjectKey::new(namespace, name)));
        }
        let Some(namespace) = annotation(&keys.cluster_namespace) else { return Resolved::Unknown };
        // The Nodes of a MachinePool without Machines have only the owner's annotations.
        match (annotation(&keys.owner_kind), annotation(&keys.owner_name)) {
            (Some("MachinePool"), Some(name)) => {
                let pool = GroupId::new(ScalableKind::MachinePool, ObjectKey::new(namespace, name));
                if self.groups.contains_key(&pool) { Resolved::PoolInstance(pool) } else { Resolved::Unknown }
            }
            (Some(_) | None, Some(_) | None) => Resolved::Unknown,
        }
    }
}

/// The holders of one providerID, or of one tail: the part after the last `/`.
#[derive(Default)]
struct Candidates<'a> {
    machines: Vec<&'a Arc<Machine>>,
    pools: Vec<&'a GroupId>,
}

impl<'a> Candidates<'a> {
    /// Collects the holders, in order, as long as `more` returns true.
    fn of(holders: impl Iterator<Item = Holder<'a>>, more: impl Fn(&Self) -> bool) -> Self {
        let mut candidates = Self::default();
        for holder in holders {
            match holder {
                Holder::Machine(machine) => candidates.machines.push(machine),
                // A MachinePool that lists several ids with one tail counts once.
                Holder::Pool(pool) if candidates.pools.last() == Some(&pool) => {}
                Holder::Pool(pool) => candidates.pools.push(pool),
            }
            if !more(&candidates) {
                break;
            }
        }
        candidates
    }

    /// Returns true if the holders collected so far may be unambiguous.
    fn may_be_unambiguous(&self) -> bool {
        self.machines.len() <= 1 && self.pools.len() <= 1
    }

    fn is_empty(&self) -> bool {
        self.machines.is_empty() && self.pools.is_empty()
    }

    /// Returns true for one Machine, for one MachinePool, or for one of each if the Machine is the MachinePool's.
    fn is_unambiguous(&self, live: &LiveState) -> bool {
        match (self.machines.as_slice(), self.pools.as_slice()) {
            ([machine], pools) => {
                let group = live.group_of(machine);
                pools.iter().all(|pool| Some(*pool) == group.as_ref())
            }
            ([], [_]) => true,
            _ => false,
        }
    }

    /// Chooses among several Machines with one providerID: the one whose nodeRef is this Node, else the one in the
    /// Node's annotations, else the first if all belong to one group. Otherwise the Node is unknown.
    fn choose(&self, live: &LiveState, query: NodeQuery<'_>) -> Resolved {
        match (self.machines.as_slice(), self.pools.as_slice()) {
            ([machine], _) => live.resolved(Some(machine)),
            ([], [pool]) => Resolved::PoolInstance((*pool).clone()),
            ([], _) => Resolved::Unknown,
            (machines, _) => {
                let named = machines.iter().find(|machine| machine.node_name.as_deref() == Some(query.name));
                if let Some(machine) = named {
                    return live.resolved(Some(machine));
                }
                let annotated = live.by_annotations(query);
                if annotated != Resolved::Unknown {
                    return annotated;
                }
                let mut groups = machines.iter().map(|machine| live.group_of(machine));
                let first = groups.next();
                if groups.all(|group| Some(group) == first) {
                    live.resolved(machines.first().copied())
                } else {
                    Resolved::Unknown
                }
            }
        }
    }
}
