//! From informers to the index: each event becomes a [`Change`]. A feed may follow another of the same kind, when the
//! kind is served in another version: what only the other one had is taken away once the new one is complete.

use arcstr::ArcStr;
use std::{collections::HashSet, sync::Arc};

use capi::{Cluster, InfrastructureTemplate, KindRef, Machine, Node, ObjectKey, ScalableKind, ScalableResource};
use nodegroup::GroupId;
use parking_lot::Mutex;
use shared_informer::{self, Event, Handler};

use super::{Change, Index};

/// An object type that the index is fed with.
pub trait IndexFeed: Send + Sync + Sized + 'static {
    /// Tells apart the kinds that this type serves.
    type Kind: Clone + Send + Sync + 'static;

    /// The change that an object makes.
    fn present(kind: &Self::Kind, object: &Arc<Self>) -> Change;
    /// The change that an object makes which doesn't decode; `None` where what was known of it stays, since a Machine
    /// that is there must not count as one that never came, nor a paused Cluster as one that isn't.
    fn undecodable(kind: &Self::Kind, key: ObjectKey, error: ArcStr) -> Option<Change>;
    /// The change that an object's absence makes.
    fn gone(kind: &Self::Kind, key: ObjectKey) -> Change;
    /// Returns the keys of this kind in the index.
    fn held(index: &Index, kind: &Self::Kind) -> HashSet<ObjectKey>;
}

impl IndexFeed for Cluster {
    type Kind = ();

    fn present((): &(), object: &Arc<Self>) -> Change {
        Change::Cluster(Arc::clone(object))
    }

    fn undecodable((): &(), _: ObjectKey, _: ArcStr) -> Option<Change> {
        None
    }

    fn gone((): &(), key: ObjectKey) -> Change {
        Change::ClusterGone(key)
    }

    fn held(index: &Index, (): &()) -> HashSet<ObjectKey> {
        index.keys(|live| live.clusters.keys().cloned().collect())
    }
}

impl IndexFeed for ScalableResource {
    type Kind = ScalableKind;

    fn present(_: &ScalableKind, object: &Arc<Self>) -> Change {
        Change::Scalable(Arc::clone(object))
    }

    fn undecodable(kind: &ScalableKind, key: ObjectKey, error: ArcStr) -> Option<Change> {
        Some(Change::ScalableUndecodable(GroupId::new(*kind, key), error))
    }

    fn gone(kind: &ScalableKind, key: ObjectKey) -> Change {
        Change::ScalableGone(GroupId::new(*kind, key))
    }

    fn held(index: &Index, kind: &ScalableKind) -> HashSet<ObjectKey> {
        index.keys(|live| {
            let known = live.groups.iter().filter(|(id, group)| id.kind == *kind && group.is_known());
            known.map(|(id, _)| id.key.clone()).collect()
        })
    }
}

impl IndexFeed for Machine {
    type Kind = ();

    fn present((): &(), object: &Arc<Self>) -> Change {
        Change::Machine(Arc::clone(object))
    }

    fn undecodable((): &(), _: ObjectKey, _: ArcStr) -> Option<Change> {
        None
    }

    fn gone((): &(), key: ObjectKey) -> Change {
        Change::MachineGone(key)
    }

    fn held(index: &Index, (): &()) -> HashSet<ObjectKey> {
        index.keys(|live| live.machines.iter().map(|machine| machine.meta.key.clone()).collect())
    }
}

impl IndexFeed for Node {
    type Kind = ();

    fn present((): &(), object: &Arc<Self>) -> Change {
        Change::Node(Arc::clone(object))
    }

    fn undecodable((): &(), _: ObjectKey, _: ArcStr) -> Option<Change> {
        None
    }

    fn gone((): &(), key: ObjectKey) -> Change {
        Change::NodeGone(key.name)
    }

    fn held(index: &Index, (): &()) -> HashSet<ObjectKey> {
        index.keys(|live| live.nodes.iter().map(|node| node.meta.key.clone()).collect())
    }
}

impl IndexFeed for InfrastructureTemplate {
    type Kind = KindRef;

    fn present(kind: &KindRef, object: &Arc<Self>) -> Change {
        Change::Template(kind.clone(), Arc::clone(object))
    }

    fn undecodable(kind: &KindRef, key: ObjectKey, error: ArcStr) -> Option<Change> {
        Some(Change::TemplateUndecodable(kind.clone(), key, error))
    }

    fn gone(kind: &KindRef, key: ObjectKey) -> Change {
        Change::TemplateGone(kind.clone(), key)
    }

    fn held(index: &Index, kind: &KindRef) -> HashSet<ObjectKey> {
        index.keys(|live| {
            let templates = live.templates.keys().filter(|(of, _)| of == kind);
            templates.map(|(_, key)| key.clone()).collect()
        })
    }
}

/// Feeds one index with the objects of one kind. An index has one feed of a kind at a time.
pub struct Feed<T: IndexFeed> {
    index: Arc<Index>,
    kind: T::Kind,
    leftovers: Leftovers,
}

/// Objects that an earlier feed had and this one hasn't shown yet; `None` once the feed has ended.
type Leftovers = Arc<Mutex<Option<HashSet<ObjectKey>>>>;

/// Which objects the index has from a feed: all it has of the kind, so that nothing is kept for it. Whoever takes them
/// ends the feed: it changes nothing any more, not even by an event that arrives at that moment.
pub struct FedKeys<T: IndexFeed> {
    index: Arc<Index>,
    kind: T::Kind,
    leftovers: Leftovers,
}

impl<T: IndexFeed> FedKeys<T> {
    /// Takes them, leftovers of an earlier feed among them, and ends the feed. Nothing when it has ended already.
    #[must_use]
    pub fn take(&self) -> HashSet<ObjectKey> {
        match self.leftovers.lock().take() {
            Some(_) => T::held(&self.index, &self.kind),
            None => HashSet::new(),
        }
    }
}

impl<T: IndexFeed> Feed<T> {
    /// A feed that takes over from one that had `leftovers`.
    #[must_use]
    pub fn new(index: Arc<Index>, kind: T::Kind, leftovers: HashSet<ObjectKey>) -> Self {
        Self { index, kind, leftovers: Arc::new(Mutex::new(Some(leftovers))) }
    }

    /// Which objects the index has from this feed, for a feed to come.
    #[must_use]
    pub fn keys(&self) -> FedKeys<T> {
        FedKeys { index: Arc::clone(&self.index), kind: self.kind.clone(), leftovers: Arc::clone(&self.leftovers) }
    }

    /// Shows an object to the index. `before`: what was told of it last.
    fn show(
        &self,
        leftovers: &mut HashSet<ObjectKey>,
        object: &shared_informer::Object<T>,
        before: Option<&shared_informer::Object<T>>,
    ) {
        let key = &object.metadata.key;
        leftovers.remove(key);
        let error = match &object.content {
            Ok(content) => return self.index.apply(T::present(&self.kind, content)),
            Err(error) => error,
        };
        if let Some(change) = T::undecodable(&self.kind, key.clone(), error.message().clone()) {
            self.index.apply(change);
        } else if before.and_then(|before| before.content.as_ref().err()) != Some(error) {
            let kind = std::any::type_name::<T>().rsplit(':').next();
            tracing::warn!(kind, object = %key, "object can't be read, what was known of it stays: {error}");
        }
    }
}

impl<T: IndexFeed> Handler<T> for Feed<T> {
    fn handle(&mut self, event: Event<T>) {
        // Held while the index changes: who takes the keys then knows that nothing is under way.
        let mut leftovers = self.leftovers.lock();
        let Some(leftovers) = leftovers.as_mut() else { return };
        match event {
            Event::Added { object, .. } => self.show(leftovers, &object, None),
            Event::Updated { old, new } => self.show(leftovers, &new, Some(&old)),
            Event::Deleted { last, .. } => self.index.apply(T::gone(&self.kind, last.key())),
        }
    }

    fn synced(&mut self) {
        let mut leftovers = self.leftovers.lock();
        let Some(leftovers) = leftovers.as_mut() else { return };
        for key in std::mem::take(leftovers) {
            self.index.apply(T::gone(&self.kind, key));
        }
    }
}
