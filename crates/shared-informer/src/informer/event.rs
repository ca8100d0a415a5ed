//! What an informer calls: handlers for changes. An event must never be about two objects, even of one name.

use std::sync::Arc;

use crate::object::{Object, ObjectKey};

/// One change of one object, as a handler receives it.
///
/// A slow handler receives fewer changes, but never wrong ones. Changes of an object that wait for the handler are
/// merged: `Updated::old` is always the state that it received last, and an object that was created and deleted
/// meanwhile is left out.
#[derive(Debug)]
pub enum Event<T> {
    /// The object is new to this handler.
    Added {
        /// The object.
        object: Arc<Object<T>>,
        /// True if the object is part of the informer's first list, or was in its store when the handler was added.
        initial: bool,
    },
    /// The object changed, or was listed again with another resource version. In a replay nothing changed.
    Updated {
        /// The state that this handler received last.
        old: Arc<Object<T>>,
        /// The current state.
        new: Arc<Object<T>>,
    },
    /// The object was deleted.
    Deleted {
        /// Its last known state: the one in the deletion event if that decodes, else the stored one.
        last: Arc<Object<T>>,
        /// True if the object was missing from a list; its last state and the time of its deletion are unknown then.
        found_by_relist: bool,
    },
}

impl<T> Event<T> {
    /// Returns the object after the event: added, new, or last.
    #[must_use]
    pub fn object(&self) -> &Arc<Object<T>> {
        match self {
            Self::Added { object, .. } => object,
            Self::Updated { new, .. } => new,
            Self::Deleted { last, .. } => last,
        }
    }

    /// Returns the key of the object.
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

/// The receiver of an informer's changes, called one at a time on a task of its own. A slow handler delays no other;
/// a blocking one occupies a thread of the runtime. If one panics, that is logged, and it receives the next event.
///
/// A handler must not hold a handle of the informer that it is added to: neither would ever be dropped.
pub trait Handler<T>: Send + 'static {
    /// Handles one change.
    fn handle(&mut self, event: Event<T>);

    /// Called once, after all objects of the first complete list have been delivered.
    fn synced(&mut self) {}

    /// Called after all objects of a replay have been delivered, with its mark
    /// ([`Registration::replay`](super::Registration::replay)).
    fn replayed(&mut self, _mark: u64) {}
}

/// A function is a handler that ignores [`Handler::synced`] and [`Handler::replayed`].
impl<T, F: FnMut(Event<T>) + Send + 'static> Handler<T> for F {
    fn handle(&mut self, event: Event<T>) {
        self(event);
    }
}
