//! The sink of a fleet: the router of all Clusters' objects, and the choice of the Clusters to serve, which follows
//! the same changes in the same order. A Cluster leaves here, at once; it joins by the fleet's task, which starts its
//! parts.
//!
//! A change of an object must cost the same, whatever the number of Clusters.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    sync::Arc,
};

use arcstr::ArcStr;
use parking_lot::Mutex;
use rules::capi::{CLIENT_NOT_BEFORE, Cluster, Meta, NotBefore, ObjectKey, Uid};
use rules::{GroupId, LabelSelector, PriceList};
use shared_informer::{Object, Projection};
use tokio::{sync::watch, time::Instant};

use super::standing::{Left, Standing};
use index::{Change, Index, Routed, RoutedKind, Router, Sink, Tag};
use rules::text::LogLimit;

/// The number of lines in a minute about the annotations of one Cluster.
const LINES: usize = 2;

/// The sink of a fleet.
pub(crate) struct FleetSink {
    selector: Arc<LabelSelector>,
    router: Router,
    clusters: Mutex<Clusters>,
    /// Notified when the Clusters to serve change.
    changed: watch::Sender<()>,
}

struct Clusters {
    /// The Clusters that the selector matches.
    selected: BTreeMap<ObjectKey, Selected>,
    /// The Clusters that have an index.
    served: HashMap<ObjectKey, Served>,
    /// The Clusters that have left and are still read.
    left: HashMap<ObjectKey, LeftCluster>,
    /// The namespaces that can't be read.
    left_out: BTreeSet<String>,
    prices: Arc<PriceList>,
    /// The lines about annotations, which the owner of a Cluster may change at any rate.
    lines: LogLimit<ObjectKey>,
}

impl Clusters {
    fn new(prices: Arc<PriceList>) -> Self {
        Self {
            selected: BTreeMap::new(),
            served: HashMap::new(),
            left: HashMap::new(),
            left_out: BTreeSet::new(),
            prices,
            lines: LogLimit::new(LINES),
        }
    }

    /// Returns the number of earlier warnings about a Cluster that weren't logged, if the next one may be. Logs the
    /// numbers of those about other Clusters whose minute is over.
    fn may_warn(&mut self, cluster: &ObjectKey) -> Option<u64> {
        let now = Instant::now().into_std();
        let allowed = self.lines.allows(cluster.clone(), 1, now);
        for (cluster, more) in self.lines.over(now) {
            tracing::warn!(%cluster, more, "the Cluster's annotation {CLIENT_NOT_BEFORE} was set to no time more often");
        }
        allowed
    }
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

impl FleetSink {
    pub(super) fn new(selector: LabelSelector, prices: Arc<PriceList>) -> Self {
        Self {
            selector: Arc::new(selector),
            router: Router::default(),
            clusters: Mutex::new(Clusters::new(prices)),
            changed: watch::Sender::new(()),
        }
    }

    /// Returns a receiver that is notified when Clusters have to join, or have left.
    pub(super) fn changed(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    /// Returns the Clusters that are selected and not served yet.
    pub(super) fn to_join(&self) -> Vec<(ObjectKey, Uid)> {
        let clusters = self.clusters.lock();
        let awaited = clusters.selected.iter().filter(|(cluster, _)| !clusters.served.contains_key(*cluster));
        awaited.map(|(cluster, selected)| (cluster.clone(), selected.uid.clone())).collect()
    }

    /// Returns true if the selector matches the Cluster.
    pub(super) fn is_selected(&self, cluster: &ObjectKey) -> bool {
        self.clusters.lock().selected.contains_key(cluster)
    }

    /// Routes the changes of a Cluster to its index, which is still to be filled. Returns false if this Cluster isn't selected
    /// any more.
    pub(crate) fn join(
        &self,
        cluster: &ObjectKey,
        uid: &Uid,
        (index, standing): (&Arc<Index>, &Arc<Standing>),
    ) -> bool {
        let mut clusters = self.clusters.lock();
        let Some(selected) = clusters.selected.get(cluster).filter(|selected| selected.uid == *uid) else {
            return false;
        };
        standing.set_client_not_before(selected.client_not_before);
        if !self.router.insert(cluster, Arc::clone(index)) {
            return false;
        }
        index.apply(Change::Prices(Arc::clone(&clusters.prices)));
        index.apply(Change::ForbiddenNamespaces(own(&clusters.left_out, cluster)));
        let served = Served { uid: uid.clone(), index: Arc::clone(index), standing: Arc::clone(standing) };
        clusters.served.insert(cluster.clone(), served);
        clusters.left.remove(cluster);
        true
    }

    /// Fills the indexes of Clusters of a namespace that have joined, as [`Router::fill`] does.
    pub(crate) fn fill<T: Routed>(
        &self,
        kind: &T::Kind,
        clusters: &BTreeSet<ArcStr>,
        keys: &[ObjectKey],
        current: impl Fn(&ObjectKey) -> Option<Arc<Object<T>>>,
    ) {
        self.router.fill(kind, clusters, keys, current);
    }

    /// Returns the Cluster of a MachineDeployment, MachineSet or MachinePool, whether it is served or not.
    pub(crate) fn cluster_of(&self, group: &GroupId) -> Option<ObjectKey> {
        self.router.cluster_of(group)
    }

    /// Returns true if a Cluster's namespace can't be read.
    pub(crate) fn is_left_out(&self, cluster: &ObjectKey) -> bool {
        self.clusters.lock().left_out.contains(&*cluster.namespace)
    }

    /// Applies the operator's prices to all indexes, and to those to come.
    pub(crate) fn set_prices(&self, prices: &Arc<PriceList>) {
        let mut clusters = self.clusters.lock();
        clusters.prices = Arc::clone(prices);
        for served in clusters.served.values() {
            served.index.apply(Change::Prices(Arc::clone(prices)));
        }
    }

    /// Leaves out the groups of these namespaces, and of no others.
    pub(crate) fn leave_out(&self, namespaces: &BTreeSet<String>) {
        let mut clusters = self.clusters.lock();
        let before = std::mem::replace(&mut clusters.left_out, namespaces.clone());
        for (cluster, served) in &clusters.served {
            let now = own(namespaces, cluster);
            if own(&before, cluster) != now {
                served.index.apply(Change::ForbiddenNamespaces(now));
            }
        }
    }

    /// Returns the projection of Clusters.
    pub(crate) fn cluster_projection(&self) -> Projection<Cluster> {
        let selector = Arc::clone(&self.selector);
        Cluster::projection_selecting(move |labels| selector.selects(labels))
    }

    /// Notes a Cluster, and if the selector matches it. `None` stands for one that doesn't decode.
    fn see(&self, cluster: &Meta, content: Option<&Cluster>) {
        let Meta { key, uid, .. } = cluster;
        let mut clusters = self.clusters.lock();
        let known = clusters.selected.get(key).filter(|selected| selected.uid == *uid);
        let (was_selected, known) = (known.is_some(), known.and_then(|selected| selected.client_not_before));
        // One that doesn't decode stays as it was. Another one of its name is never taken for it.
        let is_selected = content.map_or(was_selected, |cluster| cluster.is_selected);
        let client_not_before = content.map_or(known, |cluster| cluster.client_not_before);
        let is_new = is_selected && !was_selected;
        if is_selected {
            clusters.selected.insert(key.clone(), Selected { uid: uid.clone(), client_not_before });
        } else {
            clusters.selected.remove(key);
        }
        let is_unreadable = client_not_before == Some(NotBefore::Unreadable);
        if is_selected
            && is_unreadable
            && client_not_before != known
            && let Some(more) = clusters.may_warn(key)
        {
            tracing::warn!(
                cluster = %key,
                more,
                "the Cluster's annotation {CLIENT_NOT_BEFORE} isn't a time such as 2026-01-02T03:04:05Z: its autoscaler is \
                 denied every call"
            );
        }
        if let Some(served) = clusters.served.get(key).filter(|served| served.uid == *uid) {
            served.standing.set_client_not_before(client_not_before);
        }
        let why = clusters.served.get(key).and_then(|served| match (served.uid == *uid, is_selected) {
            (true, true) => None,
            (true, false) => Some(Left::OptedOut),
            (false, _) => Some(Left::Replaced),
        });
        if let Some(why) = why {
            self.leave(&mut clusters, key, why);
        }
        if let Some(left) = clusters.left.get(key).filter(|_| content.is_some()) {
            left.exclude(uid, client_not_before);
        }
        if is_new || why.is_some() {
            self.changed.send_replace(());
        }
    }

    /// Notes that a Cluster was deleted.
    fn forget(&self, cluster: &ObjectKey) {
        let mut clusters = self.clusters.lock();
        clusters.selected.remove(cluster);
        if self.leave(&mut clusters, cluster, Left::Deleted) {
            self.changed.send_replace(());
        }
    }

    /// Ends a Cluster, whose index keeps its last state. Returns false if it isn't served.
    fn leave(&self, clusters: &mut Clusters, cluster: &ObjectKey, why: Left) -> bool {
        let Some(served) = clusters.served.remove(cluster) else { return false };
        served.standing.leave(why);
        self.router.remove(cluster);
        let Served { uid, standing, .. } = served;
        clusters.left.insert(cluster.clone(), LeftCluster { uid, standing });
        true
    }

    /// Forgets a Cluster that has left and isn't even read any more.
    pub(super) fn drop_left(&self, cluster: &ObjectKey) {
        self.clusters.lock().left.remove(cluster);
    }
}

impl<T: Routed> Sink<T> for FleetSink {
    fn apply(&self, kind: &T::Kind, object: &Meta, tag: Tag<'_>, change: Option<Change>) {
        let content = if let Some(Change::Cluster(cluster)) = &change { Some(Arc::clone(cluster)) } else { None };
        // The router comes first: it has to know a Cluster that joins.
        Sink::<T>::apply(&self.router, kind, object, tag, change);
        if T::routed(kind) == RoutedKind::Cluster {
            self.see(object, content.as_deref());
        }
    }

    fn delete(&self, kind: &T::Kind, key: ObjectKey) {
        Sink::<T>::delete(&self.router, kind, key.clone());
        if T::routed(kind) == RoutedKind::Cluster {
            self.forget(&key);
        }
    }

    fn keys(&self, kind: &T::Kind) -> HashSet<ObjectKey> {
        Sink::<T>::keys(&self.router, kind)
    }
}

/// Returns the namespace of a Cluster if it is among these.
fn own(namespaces: &BTreeSet<String>, cluster: &ObjectKey) -> BTreeSet<String> {
    namespaces.get(&*cluster.namespace).cloned().into_iter().collect()
}
