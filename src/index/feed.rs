//! From informers to the index: each event becomes a [`Change`]. A feed may follow another of the same kind, when the
//! kind is served in another version: what only the other one had is taken away once the new one is complete.

use std::{collections::HashSet, sync::Arc};

use parking_lot::Mutex;

use super::{Change, Index};
use crate::{
    capi::{Cluster, InfrastructureTemplate, KindRef, Machine, Node, ObjectKey, ScalableKind, ScalableResource},
    informer::{self, Event, Handler},
    nodegroup::GroupId,
};

/// An object type that the index is fed with.
pub trait Fed: Send + Sync + Sized + 'static {
    /// What tells apart the kinds that this type serves.
    type Kind: Clone + Send + Sync + 'static;

    /// The change that an object makes.
    fn present(kind: &Self::Kind, object: &Arc<Self>) -> Change;
    /// The change that an object makes which doesn't decode; `None` where what was known of it stays, since a Machine
    /// that is there must not count as one that never came, nor a paused Cluster as one that isn't.
    fn undecodable(kind: &Self::Kind, key: ObjectKey, error: Arc<str>) -> Option<Change>;
    /// The change that an object's absence makes.
    fn gone(kind: &Self::Kind, key: ObjectKey) -> Change;
}

impl Fed for Cluster {
    type Kind = ();

    fn present((): &(), object: &Arc<Self>) -> Change {
        Change::Cluster(Arc::clone(object))
    }

    fn undecodable((): &(), _: ObjectKey, _: Arc<str>) -> Option<Change> {
        None
    }

    fn gone((): &(), key: ObjectKey) -> Change {
        Change::ClusterGone(key)
    }
}

impl Fed for ScalableResource {
    type Kind = ScalableKind;

    fn present(_: &ScalableKind, object: &Arc<Self>) -> Change {
        Change::Scalable(Arc::clone(object))
    }

    fn undecodable(kind: &ScalableKind, key: ObjectKey, error: Arc<str>) -> Option<Change> {
        Some(Change::ScalableUndecodable(GroupId::new(*kind, key), error))
    }

    fn gone(kind: &ScalableKind, key: ObjectKey) -> Change {
        Change::ScalableGone(GroupId::new(*kind, key))
    }
}

impl Fed for Machine {
    type Kind = ();

    fn present((): &(), object: &Arc<Self>) -> Change {
        Change::Machine(Arc::clone(object))
    }

    fn undecodable((): &(), _: ObjectKey, _: Arc<str>) -> Option<Change> {
        None
    }

    fn gone((): &(), key: ObjectKey) -> Change {
        Change::MachineGone(key)
    }
}

impl Fed for Node {
    type Kind = ();

    fn present((): &(), object: &Arc<Self>) -> Change {
        Change::Node(Arc::clone(object))
    }

    fn undecodable((): &(), _: ObjectKey, _: Arc<str>) -> Option<Change> {
        None
    }

    fn gone((): &(), key: ObjectKey) -> Change {
        Change::NodeGone(key.name)
    }
}

impl Fed for InfrastructureTemplate {
    type Kind = KindRef;

    fn present(kind: &KindRef, object: &Arc<Self>) -> Change {
        Change::Template(kind.clone(), Arc::clone(object))
    }

    fn undecodable(kind: &KindRef, key: ObjectKey, error: Arc<str>) -> Option<Change> {
        Some(Change::TemplateUndecodable(kind.clone(), key, error))
    }

    fn gone(kind: &KindRef, key: ObjectKey) -> Change {
        Change::TemplateGone(kind.clone(), key)
    }
}

/// Feeds one index with the objects of one kind.
pub struct Feed<T: Fed> {
    index: Arc<Index>,
    kind: T::Kind,
    keys: FedKeys,
}

/// Which objects the index has from a feed. Whoever takes them ends the feed: it changes nothing any more, not even by
/// an event that it is told at that moment.
#[derive(Clone, Debug)]
pub struct FedKeys(Arc<Mutex<Option<Keys>>>);

#[derive(Debug, Default)]
struct Keys {
    /// What the feed has shown.
    own: HashSet<ObjectKey>,
    /// What an earlier feed had and this one hasn't shown yet.
    leftovers: HashSet<ObjectKey>,
}

impl FedKeys {
    /// Takes them, leftovers of an earlier feed among them, and ends the feed.
    #[must_use]
    pub fn take(&self) -> HashSet<ObjectKey> {
        let mut keys = self.0.lock().take().unwrap_or_default();
        keys.own.extend(keys.leftovers);
        keys.own
    }
}

impl<T: Fed> Feed<T> {
    /// A feed that takes over from one that had `leftovers`.
    #[must_use]
    pub fn new(index: Arc<Index>, kind: T::Kind, leftovers: HashSet<ObjectKey>) -> Self {
        let keys = Keys { own: HashSet::new(), leftovers };
        Self { index, kind, keys: FedKeys(Arc::new(Mutex::new(Some(keys)))) }
    }

    /// Which objects the index has from this feed, for a feed to come.
    #[must_use]
    pub fn keys(&self) -> FedKeys {
        self.keys.clone()
    }

    /// Shows an object to the index. `before`: what was told of it last.
    fn show(&self, keys: &mut Keys, object: &informer::Object<T>, before: Option<&informer::Object<T>>) {
        let key = key_of(&object.metadata);
        keys.leftovers.remove(&key);
        keys.own.insert(key.clone());
        let error = match &object.content {
            Ok(content) => return self.index.apply(T::present(&self.kind, content)),
            Err(error) => error,
        };
        if let Some(change) = T::undecodable(&self.kind, key.clone(), error.message().into()) {
            self.index.apply(change);
        } else if before.and_then(|before| before.content.as_ref().err()) != Some(error) {
            let kind = std::any::type_name::<T>().rsplit(':').next();
            tracing::warn!(kind, object = %key, "object can't be read, what was known of it stays: {error}");
        }
    }
}

impl<T: Fed> Handler<T> for Feed<T> {
    fn handle(&mut self, event: Event<T>) {
        // Held while the index changes: who takes the keys then knows that nothing is under way.
        let mut keys = self.keys.0.lock();
        let Some(keys) = keys.as_mut() else { return };
        match event {
            Event::Added { object, .. } => self.show(keys, &object, None),
            Event::Updated { old, new } => self.show(keys, &new, Some(&old)),
            Event::Deleted { last, .. } => {
                let key = key_of(&last.metadata);
                keys.own.remove(&key);
                self.index.apply(T::gone(&self.kind, key));
            }
        }
    }

    fn synced(&mut self) {
        let mut keys = self.keys.0.lock();
        let Some(keys) = keys.as_mut() else { return };
        for key in std::mem::take(&mut keys.leftovers) {
            self.index.apply(T::gone(&self.kind, key));
        }
    }
}

fn key_of(metadata: &informer::Metadata) -> ObjectKey {
    ObjectKey { namespace: Arc::clone(&metadata.namespace), name: Arc::clone(&metadata.name) }
}
