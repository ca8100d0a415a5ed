//! Hooks that are called for each failure. This module must contain every panic of a hook, and call no hook under a
//! lock that the hook could wait for.

use std::{
    fmt,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Weak},
    time::Duration,
};

use parking_lot::Mutex;

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

    /// Calls all hooks, on the informer's own task.
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
