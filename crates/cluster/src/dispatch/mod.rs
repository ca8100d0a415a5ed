//! The way of an object's change to the index of its Cluster. With one index there is no choice: its scope decides which
//! groups it serves. With many, the same changes decide in the same order which Clusters are served: a Cluster leaves
//! here, at once; it joins by the fleet's task.
//!
//! A change costs one lookup, whatever the number of Clusters. No code that handles a change may iterate over all of them.

mod places;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    sync::Arc,
};

use arcstr::ArcStr;
use index::{Change, Index, IndexFeed, Sink, Tag};
use parking_lot::Mutex;
use rules::{
    GroupId, LabelSelector, PriceList,
    capi::{CLIENT_NOT_BEFORE, Cluster, Machine, Meta, NotBefore, ObjectKey, ScalableKind, ScalableResource, Uid},
    log_limit::LogLimit,
};
use shared_informer::{Object, Projection};
use tokio::{sync::watch, time::Instant};

use self::places::{Owned, Places};
use crate::fleet::{Left, Standing};

/// The number of lines in a minute about the annotations of one Cluster.
const LINES: usize = 2;
/// The number of objects that fill an index before events get their turn.
const AT_A_TIME: usize = 1_000;

/// A kind of the management cluster whose objects belong to one Cluster each.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub(crate) enum CoreKind {
    /// The Clusters themselves.
    Cluster,
    /// MachineDeployments, MachineSets or MachinePools.
    Scalable(ScalableKind),
    /// Machines.
    Machine,
}

impl CoreKind {
    /// Returns the change for an object of this kind that is gone.
    fn gone(self, key: ObjectKey) -> Change {
        match self {
            Self::Cluster => Change::ClusterGone(key),
            Self::Scalable(kind) => Change::ScalableGone(GroupId::new(kind, key)),
            Self::Machine => Change::MachineGone(key),
        }
    }
}

/// An object type whose objects belong to one Cluster each.
pub(crate) trait CoreObject: IndexFeed {
    /// Returns the kind.
    fn core_kind(kind: &Self::Kind) -> CoreKind;
}

impl CoreObject for Cluster {
    fn core_kind((): &()) -> CoreKind {
        CoreKind::Cluster
    }
}

impl CoreObject for ScalableResource {
    fn core_kind(kind: &ScalableKind) -> CoreKind {
        CoreKind::Scalable(*kind)
    }
}

impl CoreObject for Machine {
    fn core_kind((): &()) -> CoreKind {
        CoreKind::Machine
    }
}

/// The sink of the core kinds.
pub(super) enum Dispatch {
    /// The only index.
    One(Arc<Index>),
    /// The indexes of the Clusters that a selector matches.
    ByCluster(Arc<ByCluster>),
}

impl Dispatch {
    /// Leaves out the groups of these namespaces, and of no others.
    pub(super) fn set_forbidden_namespaces(&self, namespaces: &BTreeSet<String>) {
        match self {
            Self::One(index) => index.apply(Change::ForbiddenNamespaces(namespaces.clone())),
            Self::ByCluster(clusters) => clusters.set_forbidden_namespaces(namespaces),
        }
    }

    /// Returns the projection of Clusters.
    pub(super) fn cluster_projection(&self) -> Projection<Cluster> {
        match self {
            Self::One(_) => Cluster::projection(),
            Self::ByCluster(clusters) => clusters.cluster_projection(),
        }
    }

    /// Applies the operator's prices to all indexes, and to those to come.
    pub(super) fn set_prices(&self, prices: &Arc<PriceList>) {
        match self {
            Self::One(index) => index.apply(Change::Prices(Arc::clone(prices))),
            Self::ByCluster(clusters) => clusters.set_prices(prices),
        }
    }
}

impl<T: CoreObject> Sink<T> for Dispatch {
    fn apply(&self, kind: &T::Kind, object: &Meta, tag: Tag<'_>, change: Option<Change>) {
        match self {
            Self::One(index) => Sink::<T>::apply(&**index, kind, object, tag, change),
            Self::ByCluster(clusters) => Sink::<T>::apply(&**clusters, kind, object, tag, change),
        }
    }

    fn delete(&self, kind: &T::Kind, key: ObjectKey) {
        match self {
            Self::One(index) => Sink::<T>::delete(&**index, kind, key),
            Self::ByCluster(clusters) => Sink::<T>::delete(&**clusters, kind, key),
        }
    }

    fn keys(&self, kind: &T::Kind) -> HashSet<ObjectKey> {
        match self {
            Self::One(index) => Sink::<T>::keys(&**index, kind),
            Self::ByCluster(clusters) => Sink::<T>::keys(&**clusters, kind),
        }
    }
}

/// The indexes of the Clusters that a selector matches.
///
/// An object that names no Cluster belongs to its owner's. While that is unknown the object is an orphan: it waits for its
/// owner.
pub(crate) struct ByCluster {
    selector: Arc<LabelSelector>,
    /// One lock for all kinds, so that an object and its owner never move at the same time. An index's lock is taken under
    /// it, and that of the shared templates under the index's; never the other way round.
    state: Mutex<State>,
    /// Notified when the Clusters to serve change.
    changed: watch::Sender<()>,
}

struct State {
    /// The Cluster of each object.
    places: Places,
    owned: Owned,
    /// The Clusters that the selector matches.
    selected: BTreeMap<ObjectKey, Selected>,
    /// The Clusters that have an index.
    served: HashMap<ObjectKey, Served>,
    /// The Clusters that have left and are still read.
    left: HashMap<ObjectKey, LeftCluster>,
    /// The namespaces that can't be read.
    forbidden_namespaces: BTreeSet<String>,
    prices: Arc<PriceList>,
    /// The lines about annotations, which the owner of a Cluster may change at any rate.
    lines: LogLimit<ObjectKey>,
    /// The number of lookups of an index.
    #[cfg(test)]
    looks: usize,
}

/// A Cluster that the selector matches.
struct Selected {
    uid: Uid,
    client_not_before: Option<NotBefore>,
}

/// A Cluster that is served.
struct Served {
    uid: Uid,
    index: Arc<Index>,
    standing: Arc<Standing>,
}

/// A Cluster that has left and is still read.
struct LeftCluster {
    uid: Uid,
    standing: Arc<Standing>,
}

impl LeftCluster {
    /// Excludes certificates from what is left to read. Another Cluster of its name excludes some too, since they name
    /// it as well, but admits none again.
    fn exclude(&self, by: &Uid, client_not_before: Option<NotBefore>) {
        if self.uid == *by || client_not_before.is_some() {
            self.standing.set_client_not_before(client_not_before);
        }
    }
}

impl ByCluster {
    pub(super) fn new(selector: LabelSelector, prices: Arc<PriceList>) -> Self {
        let state = State {
            places: Places::default(),
            owned: Owned::default(),
            selected: BTreeMap::new(),
            served: HashMap::new(),
            left: HashMap::new(),
            forbidden_namespaces: BTreeSet::new(),
            prices,
            lines: LogLimit::new(LINES),
            #[cfg(test)]
            looks: 0,
        };
        Self { selector: Arc::new(selector), state: Mutex::new(state), changed: watch::Sender::new(()) }
    }

    /// Returns a receiver that is notified when Clusters have to join, or have left.
    pub(super) fn changed(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    /// Returns the Clusters that are selected and not served yet.
    pub(super) fn to_join(&self) -> Vec<(ObjectKey, Uid)> {
        let state = self.state.lock();
        let awaited = state.selected.iter().filter(|(cluster, _)| !state.served.contains_key(*cluster));
        awaited.map(|(cluster, selected)| (cluster.clone(), selected.uid.clone())).collect()
    }

    /// Returns true if the selector matches the Cluster.
    pub(super) fn is_selected(&self, cluster: &ObjectKey) -> bool {
        self.state.lock().selected.contains_key(cluster)
    }

    /// Passes the changes of a Cluster to this new index from now on. The caller must [fill](Self::fill) it with the objects
    /// that have arrived before. Returns false if this Cluster isn't selected any more.
    pub(crate) fn join(&self, cluster: &ObjectKey, uid: &Uid, index: &Arc<Index>, standing: &Arc<Standing>) -> bool {
        let mut state = self.state.lock();
        let Some(selected) = state.selected.get(cluster).filter(|selected| selected.uid == *uid) else { return false };
        standing.set_client_not_before(selected.client_not_before);
        index.apply(Change::Prices(Arc::clone(&state.prices)));
        index.apply(Change::ForbiddenNamespaces(own(&state.forbidden_namespaces, cluster)));
        let served = Served { uid: uid.clone(), index: Arc::clone(index), standing: Arc::clone(standing) };
        state.served.insert(cluster.clone(), served);
        state.left.remove(cluster);
        true
    }

    /// Fills the indexes of these Clusters of a namespace with the objects under these keys, as `current` returns them.
    ///
    /// Only objects that have arrived before are taken: one whose first event still waits may be deleted before, and then
    /// nobody would ever remove it from an index. Each is taken as it is at its turn, not as it was at the beginning, since
    /// a later state may have been passed on meanwhile. Changes of it that wait come again, and then the last one.
    pub(crate) fn fill<T: CoreObject>(
        &self,
        kind: &T::Kind,
        clusters: &BTreeSet<ArcStr>,
        keys: &[ObjectKey],
        current: impl Fn(&ObjectKey) -> Option<Arc<Object<T>>>,
    ) {
        for keys in keys.chunks(AT_A_TIME) {
            let mut state = self.state.lock();
            for key in keys {
                let Some(cluster) = state.places.get(T::core_kind(kind), key).cloned() else { continue };
                if clusters.contains(&cluster)
                    && let Some(object) = current(key).filter(|object| T::tag_of(object).may_be(&cluster))
                    && let Some(change) = T::change(kind, &object)
                {
                    state.send(&key.namespace, &cluster, change);
                }
            }
        }
    }

    /// Returns the Cluster of a MachineDeployment, MachineSet or MachinePool, whether it is served or not.
    pub(crate) fn cluster_of(&self, group: &GroupId) -> Option<ObjectKey> {
        let name = self.state.lock().cluster_of(group)?;
        Some(ObjectKey { namespace: group.key.namespace.clone(), name })
    }

    /// Returns true if a Cluster's namespace can't be read.
    pub(crate) fn is_namespace_forbidden(&self, cluster: &ObjectKey) -> bool {
        self.state.lock().forbidden_namespaces.contains(&*cluster.namespace)
    }

    fn set_prices(&self, prices: &Arc<PriceList>) {
        let mut state = self.state.lock();
        state.prices = Arc::clone(prices);
        for served in state.served.values() {
            served.index.apply(Change::Prices(Arc::clone(prices)));
        }
    }

    fn set_forbidden_namespaces(&self, namespaces: &BTreeSet<String>) {
        let mut state = self.state.lock();
        let before = std::mem::replace(&mut state.forbidden_namespaces, namespaces.clone());
        for (cluster, served) in &state.served {
            let now = own(namespaces, cluster);
            if own(&before, cluster) != now {
                served.index.apply(Change::ForbiddenNamespaces(now));
            }
        }
    }

    fn cluster_projection(&self) -> Projection<Cluster> {
        let selector = Arc::clone(&self.selector);
        Cluster::projection_selecting(move |labels| selector.selects(labels))
    }

    /// Forgets a Cluster that has left and isn't even read any more.
    pub(super) fn drop_left(&self, cluster: &ObjectKey) {
        self.state.lock().left.remove(cluster);
    }
}

impl<T: CoreObject> Sink<T> for ByCluster {
    fn apply(&self, kind: &T::Kind, object: &Meta, tag: Tag<'_>, change: Option<Change>) {
        let mut state = self.state.lock();
        let kind = T::core_kind(kind);
        if kind == CoreKind::Cluster {
            let content = if let Some(Change::Cluster(cluster)) = &change { Some(Arc::clone(cluster)) } else { None };
            // Another Cluster of this name ends the one before, whose index gets nothing of it.
            let is_replaced = state.end_replaced(object);
            state.place(kind, &object.key, Some(object.key.name.clone()), change);
            if state.select(object, content.as_deref()) || is_replaced {
                self.changed.send_replace(());
            }
        } else {
            state.route(kind, &object.key, tag, change);
        }
    }

    fn delete(&self, kind: &T::Kind, key: ObjectKey) {
        let mut state = self.state.lock();
        let kind = T::core_kind(kind);
        state.delete(kind, &key);
        if kind == CoreKind::Cluster {
            state.selected.remove(&key);
            if state.leave(&key, Left::Deleted) {
                self.changed.send_replace(());
            }
        }
    }

    fn keys(&self, kind: &T::Kind) -> HashSet<ObjectKey> {
        self.state.lock().places.keys(T::core_kind(kind))
    }
}

impl State {
    /// Sends the change of an object that isn't a Cluster to the index of its Cluster, if that is known.
    fn route(&mut self, kind: CoreKind, key: &ObjectKey, tag: Tag<'_>, change: Option<Change>) {
        let owner = match tag {
            Tag::Owner(kind, name) => {
                let key = ObjectKey { namespace: key.namespace.clone(), name: name.clone() };
                Some(GroupId::new(kind, key))
            }
            Tag::Cluster(_) | Tag::None | Tag::Unreadable => None,
        };
        let cluster = match tag {
            Tag::Cluster(name) => Some(name.clone()),
            Tag::Owner(..) => owner.as_ref().and_then(|owner| self.cluster_of(owner)),
            Tag::None => None,
            Tag::Unreadable => self.places.get(kind, key).cloned(),
        };
        let waiting = owner.and_then(|owner| Some((owner, change.clone()?)));
        self.owned.set(kind, key, waiting);
        self.place(kind, key, cluster, change);
    }

    fn delete(&mut self, kind: CoreKind, key: &ObjectKey) {
        self.owned.set(kind, key, None);
        if let Some(cluster) = self.places.remove(kind, key) {
            self.send(&key.namespace, &cluster, kind.gone(key.clone()));
            self.place_owned(kind, key);
        }
    }

    /// Returns the Cluster of a known owner.
    fn cluster_of(&self, owner: &GroupId) -> Option<ArcStr> {
        self.places.get(CoreKind::Scalable(owner.kind), &owner.key).cloned()
    }

    /// Moves an object to the index of this Cluster, and applies its change there.
    fn place(&mut self, kind: CoreKind, key: &ObjectKey, cluster: Option<ArcStr>, change: Option<Change>) {
        let before = self.places.set(kind, key, cluster.clone());
        let moves = before != cluster;
        if let Some(before) = before.filter(|_| moves) {
            self.send(&key.namespace, &before, kind.gone(key.clone()));
        }
        if let (Some(cluster), Some(change)) = (cluster, change) {
            self.send(&key.namespace, &cluster, change);
        }
        if moves {
            self.place_owned(kind, key);
        }
    }

    /// Places the objects that name no Cluster and that this object owns, recursively. An object has at most two levels of
    /// owners above it.
    fn place_owned(&mut self, kind: CoreKind, key: &ObjectKey) {
        let CoreKind::Scalable(kind) = kind else { return };
        let owner = GroupId::new(kind, key.clone());
        let cluster = self.cluster_of(&owner);
        for (kind, key, change) in self.owned.of_owner(&owner) {
            self.place(kind, &key, cluster.clone(), Some(change));
        }
    }

    /// Applies a change to the index of a Cluster, if it is served.
    fn send(&mut self, namespace: &ArcStr, name: &ArcStr, change: Change) {
        #[cfg(test)]
        {
            self.looks += 1;
        }
        let cluster = ObjectKey { namespace: namespace.clone(), name: name.clone() };
        if let Some(served) = self.served.get(&cluster) {
            served.index.apply(change);
        }
    }

    /// Ends the Cluster that is served under the name of another one. Returns false if there is none.
    fn end_replaced(&mut self, cluster: &Meta) -> bool {
        let is_another = self.served.get(&cluster.key).is_some_and(|served| served.uid != cluster.uid);
        is_another && self.leave(&cluster.key, Left::Replaced)
    }

    /// Notes a Cluster, and if the selector matches it. `None` stands for one that doesn't decode. Returns true if it joins
    /// or leaves.
    fn select(&mut self, cluster: &Meta, content: Option<&Cluster>) -> bool {
        let Meta { key, uid, .. } = cluster;
        let known = self.selected.get(key).filter(|selected| selected.uid == *uid);
        let (was_selected, known) = (known.is_some(), known.and_then(|selected| selected.client_not_before));
        // One that doesn't decode stays as it was. Another one of its name is never taken for it.
        let is_selected = content.map_or(was_selected, |cluster| cluster.is_selected);
        let client_not_before = content.map_or(known, |cluster| cluster.client_not_before);
        if is_selected {
            self.selected.insert(key.clone(), Selected { uid: uid.clone(), client_not_before });
        } else {
            self.selected.remove(key);
        }
        if is_selected && client_not_before == Some(NotBefore::Unreadable) && client_not_before != known {
            self.warn_of_annotation(key);
        }
        if let Some(served) = self.served.get(key) {
            served.standing.set_client_not_before(client_not_before);
        }
        let leaves = !is_selected && self.leave(key, Left::OptedOut);
        if let Some(left) = self.left.get(key).filter(|_| content.is_some()) {
            left.exclude(uid, client_not_before);
        }
        leaves || (is_selected && !was_selected)
    }

    /// Ends a Cluster, whose index keeps its last state. Returns false if it isn't served.
    fn leave(&mut self, cluster: &ObjectKey, why: Left) -> bool {
        let Some(Served { uid, standing, .. }) = self.served.remove(cluster) else { return false };
        standing.leave(why);
        self.left.insert(cluster.clone(), LeftCluster { uid, standing });
        true
    }

    /// Warns of a Cluster's annotation that can't be read, unless there were many lines about it. Logs the numbers of lines
    /// about other Clusters that weren't logged.
    fn warn_of_annotation(&mut self, cluster: &ObjectKey) {
        let now = Instant::now().into_std();
        let allowed = self.lines.allows(cluster.clone(), 1, now);
        for (cluster, more) in self.lines.over(now) {
            tracing::warn!(%cluster, more, "the Cluster's annotation {CLIENT_NOT_BEFORE} was set to no time more often");
        }
        if let Some(more) = allowed {
            tracing::warn!(
                %cluster,
                more,
                "the Cluster's annotation {CLIENT_NOT_BEFORE} isn't a time such as 2026-01-02T03:04:05Z: its autoscaler is \
                 denied every call"
            );
        }
    }
}

/// Returns the namespace of a Cluster if it is among these.
fn own(namespaces: &BTreeSet<String>, cluster: &ObjectKey) -> BTreeSet<String> {
    namespaces.get(&*cluster.namespace).cloned().into_iter().collect()
}
