//! The status of an informer, for people and metrics. The status must never hold an object's content.

use std::{
    fmt,
    sync::Arc,
    time::{Duration, Instant},
};

/// The status of one informer at one time.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Status {
    /// The resource: `plural.group/version`, or `plural/version` in the core group.
    pub resource: String,
    /// `all namespaces`, or their names, separated by `, `.
    pub namespaces: String,
    /// Selectors, as `labels a=b` and `fields c=d`; empty if there are none.
    pub selectors: String,
    /// True if the first list is complete in every awaited namespace.
    pub synced: bool,
    /// True if the task has ended, since the factory was shut down or the last handle dropped.
    pub stopped: bool,
    /// The current failure, for people: `forbidden: …`, `not found: the API server doesn't serve …`. `None` while the
    /// informer works.
    pub reason: Option<String>,
    /// The last failure, even after a recovery.
    pub last_error: Option<String>,
    /// The start of the current failure of a list or watch. A watch without events isn't broken, nor is one that the
    /// server ended at its timeout.
    pub broken_since: Option<Instant>,
    /// The number of stored objects, including undecodable ones.
    pub objects: usize,
    /// The number of objects that the first lists haven't delivered yet; `None` if a server doesn't report it, as for a
    /// streamed list.
    pub remaining: Option<u64>,
    /// The number of stored objects that don't decode.
    pub undecodable: usize,
    /// The number of received items that are skipped, since their name is missing or too long.
    pub nameless: u64,
    /// The number of received states of objects that were left out, since their namespace has more than its limit.
    pub left_out: u64,
    /// The number of changes, by kind.
    pub events: EventCounts,
    /// The number of lists begun, by cause.
    pub lists: ListCounts,
    /// The number of watches that couldn't be started, were cut, stalled, or received an error. Watches that end at
    /// their timeout don't count.
    pub watch_errors: u64,
    /// The number of received objects that didn't decode, repetitions included.
    pub decode_errors: u64,
    /// The number of handler calls that panicked.
    pub handler_panics: u64,
    /// Its handlers, in the order in which they were added.
    pub handlers: Vec<HandlerStatus>,
    /// The time of the last event or bookmark of a watch.
    pub last_event: Option<Instant>,
    /// The time of the last complete list.
    pub last_list: Option<Instant>,
}

/// The state of the list and watch of one namespace, or of all namespaces, at one time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScopeStatus {
    /// The namespace; `None` for all namespaces and for cluster-scoped resources.
    pub namespace: Option<String>,
    /// True if its first list is complete.
    pub listed: bool,
    /// True while a list is in progress, the first one or a later one.
    pub lists: bool,
    /// The current failure; `None` while it works.
    pub broken: Option<BrokenScope>,
}

/// A list or watch that fails.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BrokenScope {
    /// The time of the first failure.
    pub since: Instant,
    /// The reason, for people.
    pub reason: String,
    /// The time of the first 403 (forbidden) since then; `None` if there was none.
    pub forbidden_since: Option<Instant>,
}

/// The status of one handler at one time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HandlerStatus {
    /// The name it was added with; `unnamed` without one.
    pub name: Arc<str>,
    /// The number of objects in its queue.
    pub queued: usize,
    /// True if it has received every object of the first complete list.
    pub synced: bool,
}

/// The number of changes sent to handlers, and of bookmarks received, since the informer began.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct EventCounts {
    /// New objects, including those of the first list.
    pub added: u64,
    /// Changed objects.
    pub updated: u64,
    /// Deleted objects.
    pub deleted: u64,
    /// Bookmarks of watches.
    pub bookmarks: u64,
}

/// The number of lists since the informer began, by cause. Retries of a page don't count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ListCounts {
    /// First lists, one per namespace of the query.
    pub first: u64,
    /// Lists after the watch's resource version had expired (410 Gone).
    pub gone: u64,
    /// Lists that began anew after the token for the next page had expired.
    pub expired_token: u64,
    /// Lists after a failure of the watch or the list that a retry can't fix, or to find if the objects of all
    /// namespaces are within their limit again.
    pub error: u64,
    /// The number of these lists that were streamed instead of paged.
    pub streamed: u64,
}

/// The error for informers that didn't have their first complete list in time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotSynced {
    /// The missing informers.
    pub missing: Vec<Unsynced>,
    /// The time for which they were awaited.
    pub deadline: Duration,
}

/// One informer without its first complete list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unsynced {
    /// The resource, as in [`Status::resource`].
    pub resource: String,
    /// The missing namespaces, separated by `, `, or `all namespaces`.
    pub namespaces: String,
    /// The reason, for people.
    pub reason: String,
}

impl fmt::Display for NotSynced {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "not synced after {:?}", self.deadline)?;
        for (position, missing) in self.missing.iter().enumerate() {
            let separator = if position == 0 { ": " } else { "; " };
            write!(f, "{separator}{missing}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Unsynced {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { resource, namespaces, reason } = self;
        write!(f, "{resource} ({namespaces}): {reason}")
    }
}

impl std::error::Error for NotSynced {}
