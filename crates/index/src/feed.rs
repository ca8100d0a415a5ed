//! The link from informers to an index, or to another [`Sink`]: each event becomes a [`Change`]. A feed may replace
//! another of the same kind, if the kind is served in another version: objects that only the earlier feed had are
//! removed once the new one is complete.

use std::{collections::HashSet, sync::Arc};

use parking_lot::Mutex;
use rules::capi::ObjectKey;
use shared_informer::{self, DecodeError, Event, Handler};
use tokio::time::Instant;

use super::{Index, index_feed::IndexFeed, sink::Sink};
use rules::text::LogLimit;

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
    #[must_use]
    pub fn take(&self) -> HashSet<ObjectKey> {
        match self.leftovers.lock().take() {
            Some(_) => self.sink.keys(&self.kind),
            None => HashSet::new(),
        }
    }
}

impl<T: IndexFeed, S: Sink<T>> Feed<T, S> {
    /// Creates a feed that replaces one with these `leftovers`.
    #[must_use]
    pub fn new(sink: Arc<S>, kind: T::Kind, leftovers: HashSet<ObjectKey>) -> Self {
        let undecodable = Mutex::new(LogLimit::new(UNDECODABLE));
        Self { sink, kind, leftovers: Arc::new(Mutex::new(Some(leftovers))), undecodable }
    }

    /// Returns the keys of the objects from this feed, for a later feed.
    #[must_use]
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
    fn show(
        &self,
        leftovers: &mut HashSet<ObjectKey>,
        object: &shared_informer::Object<T>,
        before: Option<&shared_informer::Object<T>>,
    ) {
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
            Event::Added { object, .. } => self.show(leftovers, &object, None),
            Event::Updated { old, new } => self.show(leftovers, &new, Some(&old)),
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
