//! The status of an informer, as people and metrics read it. Must never hold an object's content.

use std::{
    fmt,
    sync::Arc,
    time::{Duration, Instant},
};

/// The status of one informer at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Status {
    /// The resource: `plural.group/version`, or `plural/version` in the core group.
    pub resource: String,
    /// `all namespaces`, or their names, separated by `, `.
    pub namespaces: String,
    /// Selectors, as `labels a=b` and `fields c=d`; empty without any.
    pub selectors: String,
    /// The first list is complete, in every namespace that is waited for.
    pub synced: bool,
    /// The task has ended: the factory was shut down, or the last handle is gone.
    pub stopped: bool,
    /// Why it is broken now, for people: `forbidden: …`, `not found: the API server doesn't serve …`. `None` while it
    /// works.
    pub reason: Option<String>,
    /// The last failure, also when it is over.
    pub last_error: Option<String>,
    /// Since when a list or watch fails. A quiet watch isn't broken, nor is one that the server ended at its time.
    pub broken_since: Option<Instant>,
    /// Objects held, the undecodable ones included.
    pub objects: usize,
    /// Objects of the first lists that are still to come; `None` where a server doesn't say, as for a streamed list.
    pub remaining: Option<u64>,
    /// Objects held that don't decode.
    pub undecodable: usize,
    /// Items received without a name, which are skipped.
    pub nameless: u64,
    /// Changes, by kind of change.
    pub events: EventCounts,
    /// Lists begun, by cause.
    pub lists: ListCounts,
    /// Watches that could not be started, were cut, stalled, or told an error. Ends at the server's time don't count.
    pub watch_errors: u64,
    /// Objects received that did not decode, each time one came.
    pub decode_errors: u64,
    /// Calls of handlers that panicked.
    pub handler_panics: u64,
    /// Its handlers, in the order in which they were added.
    pub handlers: Vec<HandlerStatus>,
    /// When a watch last gave an event or a bookmark.
    pub last_event: Option<Instant>,
    /// When a list was last completed.
    pub last_list: Option<Instant>,
}

/// The state of the list and watch of one namespace, or of all namespaces, at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScopeStatus {
    /// The namespace; `None` for all namespaces and for cluster-scoped resources.
    pub namespace: Option<String>,
    /// Its first list is complete.
    pub listed: bool,
    /// A list is under way, the first one or a later one.
    pub lists: bool,
    /// The failure, while it is broken.
    pub broken: Option<BrokenScope>,
}

/// A list or watch that fails.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BrokenScope {
    /// Since when.
    pub since: Instant,
    /// The reason, for people.
    pub reason: String,
    /// When it was first refused for want of a right (403) since then; `None` while it has not been.
    pub forbidden_since: Option<Instant>,
}

/// The status of one handler at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HandlerStatus {
    /// The name it was added under; `unnamed` without one.
    pub name: Arc<str>,
    /// Objects of which it has yet to be told.
    pub queued: usize,
    /// It has been told of everything of the first complete list.
    pub synced: bool,
    /// Rounds of resync begun.
    pub resyncs: u64,
}

/// Changes told to handlers, and bookmarks received, since the informer began.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct EventCounts {
    /// New objects, those of the first list included.
    pub added: u64,
    /// Changed objects.
    pub updated: u64,
    /// Objects gone.
    pub deleted: u64,
    /// Bookmarks of watches.
    pub bookmarks: u64,
}

/// Lists begun since the informer began, by cause. Retries of a page don't count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ListCounts {
    /// First lists, one per namespace of the query.
    pub first: u64,
    /// The watch's resource version had expired (410 Gone).
    pub gone: u64,
    /// The token for the next page had expired, so the list began anew.
    pub expired_token: u64,
    /// The watch or the list failed in a way that a retry can't mend.
    pub error: u64,
    /// Of all these, lists that were told as a stream and not in pages.
    pub streamed: u64,
}

/// Not every informer had its first complete list in time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotSynced {
    /// The informers that are missing.
    pub missing: Vec<Unsynced>,
    /// The time for which they were waited for.
    pub deadline: Duration,
}

/// One informer without its first complete list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unsynced {
    /// The resource, as in [`Status::resource`].
    pub resource: String,
    /// The namespaces still missing, separated by `, `, or `all namespaces`.
    pub namespaces: String,
    /// Why, for people.
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
