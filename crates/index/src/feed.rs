//! The link from informers to an index, or to another [`Sink`]: each event becomes a [`Change`]. A feed may replace
//! another of the same kind, if the kind is served in another version: objects that only the earlier feed had are
//! removed once the new one is complete.

use std::{collections::HashSet, sync::Arc};

use arcstr::ArcStr;
use parking_lot::Mutex;
use rules::{
    GroupId,
    capi::{Cluster, InfrastructureTemplate, KindRef, Machine, Meta, Node, ObjectKey, ScalableKind, ScalableResource},
    log_limit::LogLimit,
};
use shared_informer::{DecodeError, Event, Handler, Object};
use tokio::time::Instant;

use super::{Change, Index, relations::ByKey};

/// An object type that the index is fed with.
pub trait IndexFeed: Send + Sync + Sized + 'static {
    /// The kind, for a type that represents several.
    type Kind: Clone + Send + Sync + 'static;

    /// Returns the change for an object.
    fn to_change(kind: &Self::Kind, object: &Arc<Self>) -> Change;
    /// Returns the change for an object that doesn't decode. `None` keeps its last state, since an existing Machine
    /// must not count as a missing one, nor a paused Cluster as an unpaused one.
    fn undecodable(_: &Self::Kind, _: ObjectKey, _: ArcStr) -> Option<Change> {
        None
    }

    /// Returns the change for the present state of an object. `None` stands for one that doesn't decode, whose last state
    /// stays.
    fn change(kind: &Self::Kind, object: &Object<Self>) -> Option<Change> {
        match &object.content {
            Ok(content) => Some(Self::to_change(kind, content)),
            Err(error) => Self::undecodable(kind, object.metadata.key.clone(), error.message().clone()),
        }
    }

    /// Returns the change for a deleted object.
    fn deleted(kind: &Self::Kind, key: ObjectKey) -> Change;
    /// Returns the keys of this kind in the index.
    fn keys(index: &Index, kind: &Self::Kind) -> HashSet<ObjectKey>;

    /// Returns the Cluster of an object. Nodes have none: they are of one cluster as a whole. Nor have infrastructure
    /// templates, which groups of several Clusters may share.
    fn tag(_: &Self) -> Tag<'_> {
        Tag::None
    }

    /// Returns the Cluster of an object as it was read. One that doesn't decode may name it nevertheless.
    fn tag_of(object: &Object<Self>) -> Tag<'_> {
        match &object.content {
            Ok(content) => Self::tag(content),
            Err(error) => error.salvaged().map_or(Tag::Unreadable, Tag::Cluster),
        }
    }
}

/// The Cluster of an object, in the object's namespace, by what is read of the object alone. It borrows from the
/// object.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Tag<'a> {
    /// The name of its Cluster.
    Cluster(&'a ArcStr),
    /// The object names no Cluster, but has this owner.
    Owner(ScalableKind, &'a ArcStr),
    /// The object names neither a Cluster nor an owner.
    None,
    /// The object doesn't decode, and its Cluster couldn't be read: it stays where it was.
    Unreadable,
}

impl<'a> Tag<'a> {
    /// Returns the tag of an object that names its Cluster unless the name is empty, and may have an owner.
    fn named(cluster: &'a ArcStr, owner: Option<(ScalableKind, &'a ArcStr)>) -> Self {
        match owner {
            _ if !cluster.is_empty() => Self::Cluster(cluster),
            Some((kind, name)) => Self::Owner(kind, name),
            None => Self::None,
        }
    }

    /// Returns true if the object may belong to this Cluster of its namespace, by itself or by an owner.
    pub fn may_be(self, cluster: &ArcStr) -> bool {
        match self {
            Self::Cluster(name) => name == cluster,
            Self::Owner(..) | Self::Unreadable => true,
            Self::None => false,
        }
    }
}

/// A receiver of the changes of one kind of object, from one [`Feed`](super::Feed) at a time.
pub trait Sink<T: IndexFeed>: Send + Sync + 'static {
    /// Applies a change of an object that exists. `None` stands for one that doesn't decode, whose last state stays.
    fn apply(&self, kind: &T::Kind, object: &Meta, tag: Tag<'_>, change: Option<Change>);
    /// Removes a deleted object.
    fn delete(&self, kind: &T::Kind, key: ObjectKey);
    /// Returns the keys of the objects of this kind.
    fn keys(&self, kind: &T::Kind) -> HashSet<ObjectKey>;
}

/// The index of a single Cluster, or of all: its scope decides which groups it serves, whatever their tags.
impl<T: IndexFeed> Sink<T> for Index {
    fn apply(&self, _: &T::Kind, _: &Meta, _: Tag<'_>, change: Option<Change>) {
        if let Some(change) = change {
            Index::apply(self, change);
        }
    }

    fn delete(&self, kind: &T::Kind, key: ObjectKey) {
        Index::apply(self, T::deleted(kind, key));
    }

    fn keys(&self, kind: &T::Kind) -> HashSet<ObjectKey> {
        T::keys(self, kind)
    }
}

/// The feed of one sink with the objects of one kind. A sink has one feed per kind at a time.
pub struct Feed<T: IndexFeed, S = Index> {
    sink: Arc<S>,
    kind: T::Kind,
    leftovers: Leftovers,
    /// The lines about objects that can't be decoded: an API server could otherwise cause any number of them.
    undecodable: Mutex<LogLimit<()>>,
}

/// The number of lines about undecodable objects in a minute.
const UNDECODABLE: usize = 10;

/// The objects of an earlier feed that this one hasn't received yet; `None` once the feed has ended.
type Leftovers = Arc<Mutex<Option<HashSet<ObjectKey>>>>;

/// The keys of the objects that a feed has put into its sink. They are read from the sink when taken, so that the feed
/// keeps no copy. Taking them ends the feed: events that arrive later or at the same time change nothing.
pub struct FedKeys<T: IndexFeed, S = Index> {
    sink: Arc<S>,
    kind: T::Kind,
    leftovers: Leftovers,
}

impl<T: IndexFeed, S: Sink<T>> FedKeys<T, S> {
    /// Ends the feed, and returns its keys, including leftovers of an earlier feed. Returns nothing if the feed has
    /// already ended.
    pub fn take(&self) -> HashSet<ObjectKey> {
        match self.leftovers.lock().take() {
            Some(_) => self.sink.keys(&self.kind),
            None => HashSet::new(),
        }
    }
}

impl<T: IndexFeed, S: Sink<T>> Feed<T, S> {
    /// Creates a feed that replaces one with these `leftovers`.
    pub fn new(sink: Arc<S>, kind: T::Kind, leftovers: HashSet<ObjectKey>) -> Self {
        let undecodable = Mutex::new(LogLimit::new(UNDECODABLE));
        Self { sink, kind, leftovers: Arc::new(Mutex::new(Some(leftovers))), undecodable }
    }

    /// Returns the keys of the objects from this feed, for a later feed.
    pub fn keys(&self) -> FedKeys<T, S> {
        FedKeys { sink: Arc::clone(&self.sink), kind: self.kind.clone(), leftovers: Arc::clone(&self.leftovers) }
    }

    /// Logs an object that can't be decoded, with the number of those that weren't logged.
    fn warn(&self, key: &ObjectKey, error: &DecodeError) {
        let now = Instant::now().into_std();
        let allowed = self.undecodable.lock().allows((), 1, now);
        if let Some(more) = allowed {
            let kind = std::any::type_name::<T>().rsplit(':').next();
            tracing::warn!(kind, object = %key, more, "object can't be decoded, its last state is kept: {error}");
        }
    }

    /// Applies an object to the sink. `before` is its previous state.
    fn forward(&self, leftovers: &mut HashSet<ObjectKey>, object: &Object<T>, before: Option<&Object<T>>) {
        let key = &object.metadata.key;
        leftovers.remove(key);
        let change = T::change(&self.kind, object);
        if let (None, Err(error)) = (&change, &object.content)
            && before.and_then(|before| before.content.as_ref().err()) != Some(error)
        {
            self.warn(key, error);
        }
        self.sink.apply(&self.kind, &object.metadata, T::tag_of(object), change);
    }
}

impl<T: IndexFeed, S: Sink<T>> Handler<T> for Feed<T, S> {
    fn handle(&mut self, event: Event<T>) {
        // Locked during a change, so that `FedKeys::take` waits for it.
        let mut leftovers = self.leftovers.lock();
        let Some(leftovers) = leftovers.as_mut() else { return };
        match event {
            Event::Added { object, .. } => self.forward(leftovers, &object, None),
            Event::Updated { old, new } => self.forward(leftovers, &new, Some(&old)),
            Event::Deleted { last, .. } => self.sink.delete(&self.kind, last.key()),
        }
    }

    fn synced(&mut self) {
        let mut leftovers = self.leftovers.lock();
        let Some(leftovers) = leftovers.as_mut() else { return };
        for key in std::mem::take(leftovers) {
            self.sink.delete(&self.kind, key);
        }
    }
}

impl IndexFeed for Cluster {
    type Kind = ();

    fn to_change((): &(), object: &Arc<Self>) -> Change {
        Change::Cluster(Arc::clone(object))
    }

    fn deleted((): &(), key: ObjectKey) -> Change {
        Change::ClusterGone(key)
    }

    fn keys(index: &Index, (): &()) -> HashSet<ObjectKey> {
        index.keys(|live| live.clusters.keys().cloned().collect())
    }

    fn tag(object: &Self) -> Tag<'_> {
        Tag::Cluster(&object.meta.key.name)
    }
}

impl IndexFeed for ScalableResource {
    type Kind = ScalableKind;

    fn to_change(_: &ScalableKind, object: &Arc<Self>) -> Change {
        Change::Scalable(Arc::clone(object))
    }

    fn undecodable(kind: &ScalableKind, key: ObjectKey, error: ArcStr) -> Option<Change> {
        Some(Change::ScalableUndecodable(GroupId::new(*kind, key), error))
    }

    fn deleted(kind: &ScalableKind, key: ObjectKey) -> Change {
        Change::ScalableGone(GroupId::new(*kind, key))
    }

    fn keys(index: &Index, kind: &ScalableKind) -> HashSet<ObjectKey> {
        index.keys(|live| {
            let known = live.groups.iter().filter(|(id, group)| id.kind == *kind && group.is_known());
            known.map(|(id, _)| id.key.clone()).collect()
        })
    }

    fn tag(object: &Self) -> Tag<'_> {
        let owner = object.deployment.as_ref().map(|name| (ScalableKind::MachineDeployment, name));
        Tag::named(&object.cluster_name, owner)
    }
}

impl IndexFeed for Machine {
    type Kind = ();

    fn to_change((): &(), object: &Arc<Self>) -> Change {
        Change::Machine(Arc::clone(object))
    }

    fn deleted((): &(), key: ObjectKey) -> Change {
        Change::MachineGone(key)
    }

    fn keys(index: &Index, (): &()) -> HashSet<ObjectKey> {
        index.keys(|live| live.machines.iter().map(|ByKey(machine)| machine.meta.key.clone()).collect())
    }

    fn tag(object: &Self) -> Tag<'_> {
        Tag::named(&object.cluster_name, object.owner.as_ref().map(|(kind, name)| (*kind, name)))
    }
}

impl IndexFeed for Node {
    type Kind = ();

    fn to_change((): &(), object: &Arc<Self>) -> Change {
        Change::Node(Arc::clone(object))
    }

    fn deleted((): &(), key: ObjectKey) -> Change {
        Change::NodeGone(key.name)
    }

    fn keys(index: &Index, (): &()) -> HashSet<ObjectKey> {
        index.keys(|live| live.nodes.values().map(|node| node.meta.key.clone()).collect())
    }
}

impl IndexFeed for InfrastructureTemplate {
    type Kind = KindRef;

    fn to_change(kind: &KindRef, object: &Arc<Self>) -> Change {
        Change::Template(kind.clone(), Arc::clone(object))
    }

    fn undecodable(kind: &KindRef, key: ObjectKey, error: ArcStr) -> Option<Change> {
        Some(Change::TemplateUndecodable(kind.clone(), key, error))
    }

    fn deleted(kind: &KindRef, key: ObjectKey) -> Change {
        Change::TemplateGone(kind.clone(), key)
    }

    fn keys(index: &Index, kind: &KindRef) -> HashSet<ObjectKey> {
        index.keys(|live| live.templates.keys(kind))
    }
}
