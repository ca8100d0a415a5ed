//! What an informer calls: handlers for changes, hooks for failures. An event must never be about two objects, even of
//! one name. Every panic of a hook is contained here, and no hook is called under a lock that it could wait for.

use std::{
    fmt,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Weak},
    time::Duration,
};

use parking_lot::Mutex;

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
    /// The object changed, or was listed again with another resource version.
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

/// The receiver of an informer's changes, called one at a time on a task of its own. A slow handler delays no other,
/// except that lists wait for it for a while; a blocking one occupies a thread of the runtime. If one panics, that is
/// logged, and it receives the next event.
///
/// A handler must not hold a handle of the informer that it is added to: neither would ever be dropped.
pub trait Handler<T>: Send + 'static {
    /// Handles one change.
    fn handle(&mut self, event: Event<T>);

    /// Called once, after all objects of the first complete list have been delivered.
    fn synced(&mut self) {}
}

/// A function is a handler that ignores [`Handler::synced`].
impl<T, F: FnMut(Event<T>) + Send + 'static> Handler<T> for F {
    fn handle(&mut self, event: Event<T>) {
        self(event);
    }
}

/// The operation in which an informer failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// A list, in pages or as a stream.
    List,
    /// A watch.
    Watch,
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::List => "list",
            Self::Watch => "watch",
        })
    }
}

/// A failure of a list or a watch. The informer retries by itself; hooks only report the failure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WatchError {
    /// The resource, as in [`super::Status::resource`].
    pub resource: String,
    /// The namespace; `None` for all namespaces and for cluster-scoped resources.
    pub namespace: Option<String>,
    /// The operation that failed.
    pub phase: Phase,
    /// The HTTP status that the API server sent, if any. 410 is normal: the watch's resource version has expired, and a
    /// new list follows.
    pub code: Option<u16>,
    /// The reason, for people. It never quotes an object's content.
    pub reason: String,
    /// The time until the next attempt.
    pub retry_in: Duration,
}

type Hook = dyn Fn(&WatchError) + Send + Sync;

/// The hooks of one informer.
#[derive(Default)]
pub(super) struct Hooks {
    hooks: Mutex<Vec<Arc<Hook>>>,
}

impl Hooks {
    pub(super) fn add(self: &Arc<Self>, hook: impl Fn(&WatchError) + Send + Sync + 'static) -> ErrorHook {
        let hook: Arc<Hook> = Arc::new(hook);
        self.hooks.lock().push(Arc::clone(&hook));
        ErrorHook { hooks: Arc::downgrade(self), hook }
    }

    pub(super) fn report(&self, error: impl FnOnce() -> WatchError) {
        let hooks = self.hooks.lock().clone();
        if hooks.is_empty() {
            return;
        }
        let error = error();
        for hook in hooks {
            if catch_unwind(AssertUnwindSafe(|| hook(&error))).is_err() {
                tracing::error!(resource = error.resource, "a hook for watch errors panicked");
            }
        }
    }
}

impl fmt::Debug for Hooks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hooks").field("hooks", &self.hooks.lock().len()).finish()
    }
}

/// The registration of a hook, which doesn't keep the informer alive. Dropping it removes the hook.
#[must_use = "dropping it removes the hook"]
pub struct ErrorHook {
    hooks: Weak<Hooks>,
    hook: Arc<Hook>,
}

impl Drop for ErrorHook {
    fn drop(&mut self) {
        if let Some(hooks) = self.hooks.upgrade() {
            hooks.hooks.lock().retain(|hook| !Arc::ptr_eq(hook, &self.hook));
        }
    }
}

impl fmt::Debug for ErrorHook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ErrorHook")
    }
}
