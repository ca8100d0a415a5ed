//! The changes that handlers are called with. An event must never say more than what happened to one object.

use std::sync::Arc;

use super::{identity::ObjectKey, object::Object};

/// One change of one object, as a handler sees it.
///
/// A handler that lags sees fewer changes, never wrong ones: changes of one object that wait for it are merged, so that
/// `Updated::old` is always what it was told last, and an object that came and went unseen is never mentioned.
#[derive(Debug)]
pub enum Event<T> {
    /// The object is new to this handler.
    Added {
        /// The object.
        object: Arc<Object<T>>,
        /// It was there already: part of the informer's first list, or of its store when the handler was added.
        initial: bool,
    },
    /// The object changed, or was listed anew with another resource version; or nothing changed, and the handler is told
    /// again because it asked for a resync ([`Event::is_resync`]).
    Updated {
        /// The state that this handler received last.
        old: Arc<Object<T>>,
        /// The current state.
        new: Arc<Object<T>>,
    },
    /// The object is gone.
    Deleted {
        /// Its last known state: as the delete told it when that decodes, else as it was stored.
        last: Arc<Object<T>>,
        /// It was missing from a list; when it went and in what last state is not known.
        found_by_relist: bool,
    },
}

impl<T> Event<T> {
    /// The object after the event: added, new, or last.
    #[must_use]
    pub fn object(&self) -> &Arc<Object<T>> {
        match self {
            Self::Added { object, .. } => object,
            Self::Updated { new, .. } => new,
            Self::Deleted { last, .. } => last,
        }
    }

    /// Returns true if nothing changed: the handler asked for periodic resyncs.
    #[must_use]
    pub fn is_resync(&self) -> bool {
        match self {
            // A store may give the same content in an object of its own each time.
            Self::Updated { old, new } => {
                Arc::ptr_eq(old, new)
                    || (old.metadata == new.metadata
                        && matches!((&old.content, &new.content), (Ok(old), Ok(new)) if Arc::ptr_eq(old, new)))
            }
            Self::Added { .. } | Self::Deleted { .. } => false,
        }
    }

    /// The key of the object.
    #[must_use]
    pub fn key(&self) -> ObjectKey {
        self.object().key()
    }
}

impl<T> Clone for Event<T> {
    fn clone(&self) -> Self {
        match self {
            Self::Added { object, initial } => Self::Added { object: Arc::clone(object), initial: *initial },
            Self::Updated { old, new } => Self::Updated { old: Arc::clone(old), new: Arc::clone(new) },
            Self::Deleted { last, found_by_relist } => {
                Self::Deleted { last: Arc::clone(last), found_by_relist: *found_by_relist }
            }
        }
    }
}

/// Someone who is told of changes, one at a time, by a task of its own. A slow handler delays nobody else; one that
/// blocks holds a thread of the runtime while it does. One that panics is logged and told of the next event.
///
/// A handler must not hold a handle of the informer it listens to: neither would ever be dropped.
pub trait Handler<T>: Send + 'static {
    /// Takes one change.
    fn handle(&mut self, event: Event<T>);

    /// Called once, when everything of the first complete list has been handed over.
    fn synced(&mut self) {}
}

/// A function is a handler that doesn't care about [`Handler::synced`].
impl<T, F: FnMut(Event<T>) + Send + 'static> Handler<T> for F {
    fn handle(&mut self, event: Event<T>) {
        self(event);
    }
}
