//! The state of a running informer: written by its tasks, read as a [`Status`]. Independent of the object type, so
//! that a factory can hold all of them in one collection. While it holds its lock, it must never call code that may
//! wait for that lock.

use std::{
    collections::BTreeMap,
    num::NonZeroU32,
    sync::{
        Arc, Weak,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use arcstr::ArcStr;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::{
    event::{Event, Hooks},
    failure::Failure,
    query::Query,
    status::{BrokenScope, HandlerStatus, ScopeStatus, Status, Unsynced},
};

/// The minimum time between two log lines about nameless items.
const NAMELESS_LOGGED_EVERY: Duration = Duration::from_secs(60);

/// The time after which a scope that is still broken is logged again. From then on it is logged each time that it has
/// been broken for twice as long, within [`LONGEST_SILENCE`].
const FIRST_SILENCE: Duration = Duration::from_secs(60);
/// The maximum time between two log lines about a scope that is broken.
const LONGEST_SILENCE: Duration = Duration::from_secs(3600);

/// The cause of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ListCause {
    First,
    Gone,
    ExpiredToken,
    Error,
}

/// The record of one informer.
#[derive(Debug)]
pub(super) struct Progress {
    resource: String,
    synced: watch::Sender<bool>,
    stopped: CancellationToken,
    hooks: Arc<Hooks>,
    record: Mutex<Record>,
}

#[derive(Debug, Default)]
struct Record {
    /// The counts, and what was last. [`Progress::status`] adds what follows from the rest.
    status: Status,
    scopes: Vec<ScopeRecord>,
    /// The number of nameless items since the last log line about them.
    unlogged_nameless: u64,
    nameless_logged: Option<tokio::time::Instant>,
    /// The namespaces of objects that were left out, with the number of the last list within which or after which one
    /// came.
    incomplete: BTreeMap<ArcStr, NonZeroU32>,
    handlers: Vec<Weak<Gauge>>,
}

#[derive(Debug)]
struct ScopeRecord {
    status: ScopeStatus,
    /// The namespace's name, for people.
    namespace: String,
    /// The number of objects of the current list that are still to come, if the server reports it.
    remaining: Option<u64>,
    /// Since when it has been broken, and when that is to be logged again.
    logged: Option<(tokio::time::Instant, tokio::time::Instant)>,
}

impl Progress {
    pub(super) fn new(query: &Query, stopped: CancellationToken) -> Self {
        let scopes = query.scopes().into_iter().map(|scope| ScopeRecord {
            namespace: scope.namespace.clone().unwrap_or_else(|| query.namespaces.to_string()),
            status: ScopeStatus { namespace: scope.namespace, listed: false, lists: false, broken: None },
            remaining: None,
            logged: None,
        });
        let scopes: Vec<_> = scopes.collect();
        let labels = query.labels.iter().map(|labels| format!("labels {labels}"));
        let fields = query.fields.iter().map(|fields| format!("fields {fields}"));
        let status = Status {
            resource: query.resource_name(),
            namespaces: query.namespaces.to_string(),
            selectors: labels.chain(fields).collect::<Vec<_>>().join(", "),
            ..Status::default()
        };
        Self {
            resource: status.resource.clone(),
            synced: watch::Sender::new(scopes.is_empty()),
            stopped,
            hooks: Arc::default(),
            record: Mutex::new(Record { status, scopes, ..Record::default() }),
        }
    }

    pub(super) fn resource(&self) -> &str {
        &self.resource
    }

    pub(super) fn hooks(&self) -> &Arc<Hooks> {
        &self.hooks
    }

    pub(super) fn has_synced(&self) -> bool {
        *self.synced.borrow()
    }

    pub(super) async fn wait_for_sync(&self, deadline: Duration) -> Result<(), Unsynced> {
        let mut synced = self.synced.subscribe();
        let wait = async {
            tokio::select! {
                biased;
                done = synced.wait_for(|synced| *synced) => done.is_ok(),
                () = self.stopped.cancelled() => false,
            }
        };
        match tokio::time::timeout(deadline, wait).await {
            Ok(true) => Ok(()),
            Ok(false) | Err(_) => Err(self.unsynced()),
        }
    }

    fn unsynced(&self) -> Unsynced {
        let record = self.record.lock();
        let missing = || record.scopes.iter().filter(|scope| !scope.status.listed);
        let names: Vec<_> = missing().map(|scope| scope.namespace.as_str()).collect();
        let reason = missing().find_map(|scope| scope.status.broken.as_ref().map(|b| b.reason.clone()));
        let unfinished = || format!("the first list is not complete yet, {} objects so far", record.status.objects);
        let stopped = self.stopped.is_cancelled().then(|| "stopped".to_owned());
        Unsynced {
            resource: self.resource.clone(),
            namespaces: names.join(", "),
            reason: stopped.or(reason).unwrap_or_else(unfinished),
        }
    }

    pub(super) fn status(&self) -> Status {
        let record = self.record.lock();
        let broken = record.scopes.iter().filter_map(|scope| scope.status.broken.as_ref());
        let broken = broken.min_by_key(|broken| broken.since);
        Status {
            synced: self.has_synced(),
            stopped: self.stopped.is_cancelled(),
            reason: broken.map(|broken| broken.reason.clone()),
            broken_since: broken.map(|broken| broken.since),
            remaining: record.remaining(),
            handlers: record.handlers.iter().filter_map(Weak::upgrade).map(|gauge| gauge.status()).collect(),
            ..record.status.clone()
        }
    }

    pub(super) fn scopes(&self) -> Vec<ScopeStatus> {
        self.record.lock().scopes.iter().map(|scope| scope.status.clone()).collect()
    }

    pub(super) fn list_started(&self, scope: usize, cause: ListCause) {
        let mut record = self.record.lock();
        if let Some(scope) = record.scopes.get_mut(scope) {
            scope.remaining = None;
            scope.status.lists = true;
        }
        let lists = &mut record.status.lists;
        match cause {
            ListCause::First => lists.first += 1,
            ListCause::Gone => lists.gone += 1,
            ListCause::ExpiredToken => lists.expired_token += 1,
            ListCause::Error => lists.error += 1,
        }
    }

    /// Records the number of a list's objects that are still to come; `None` if the server doesn't report it.
    pub(super) fn set_remaining(&self, scope: usize, objects: Option<u64>) {
        if let Some(scope) = self.record.lock().scopes.get_mut(scope) {
            scope.remaining = objects;
        }
    }

    pub(super) fn list_was_streamed(&self) {
        self.record.lock().status.lists.streamed += 1;
    }

    pub(super) fn list_completed(&self, scope: usize) {
        if let Some(scope) = self.record.lock().scopes.get_mut(scope) {
            scope.status.lists = false;
        }
    }

    pub(super) fn list_ended(&self, scope: usize) {
        let mut record = self.record.lock();
        record.status.last_list = Some(Instant::now());
        if let Some(scope) = record.scopes.get_mut(scope) {
            scope.status.listed = true;
        }
    }

    pub(super) fn all_synced(&self) {
        self.synced.send_replace(true);
    }

    /// Records a failed list page. Returns for how long the scope has been broken if that has to be logged: it worked
    /// before, failed for another reason, or was logged long ago.
    pub(super) fn list_failed(&self, scope: usize, failure: &Failure) -> Option<Duration> {
        self.record.lock().failed(scope, failure)
    }

    /// Records a watch that couldn't begin, was cut, stalled, or received an error. Returns the same as
    /// [`Self::list_failed`].
    pub(super) fn watch_failed(&self, scope: usize, failure: &Failure) -> Option<Duration> {
        let mut record = self.record.lock();
        record.status.watch_errors += 1;
        record.failed(scope, failure)
    }

    /// Records a list page or the beginning of a watch. Returns for how long the scope was broken, if it was.
    pub(super) fn recovered(&self, scope: usize) -> Option<Duration> {
        let mut record = self.record.lock();
        let scope = record.scopes.get_mut(scope)?;
        scope.status.broken = None;
        let (since, _) = scope.logged.take()?;
        Some(since.elapsed())
    }

    pub(super) fn event_received(&self) {
        self.record.lock().status.last_event = Some(Instant::now());
    }

    pub(super) fn bookmark_received(&self) {
        let status = &mut self.record.lock().status;
        status.last_event = Some(Instant::now());
        status.events.bookmarks += 1;
    }

    /// Counts nameless items. Returns the number since the last log line about them if another one is due: a server
    /// could otherwise cause any number of lines.
    pub(super) fn nameless_received(&self, items: u64) -> Option<u64> {
        let mut record = self.record.lock();
        record.status.nameless += items;
        record.unlogged_nameless += items;
        let is_due = record.nameless_logged.is_none_or(|logged| logged.elapsed() >= NAMELESS_LOGGED_EVERY);
        if record.unlogged_nameless == 0 || !is_due {
            return None;
        }
        record.nameless_logged = Some(tokio::time::Instant::now());
        Some(std::mem::take(&mut record.unlogged_nameless))
    }

    /// Counts a state of an object that is left out, within this list or after it. Returns true if nothing of its
    /// namespace was left out before.
    pub(super) fn left_out(&self, namespace: &ArcStr, list: NonZeroU32) -> bool {
        let mut record = self.record.lock();
        record.status.left_out += 1;
        record.incomplete.insert(namespace.clone(), list).is_none()
    }

    /// Records that a list of this number is complete. Returns the namespaces of its scope that had objects left out
    /// before it, and that it left nothing out of.
    pub(super) fn list_left_out(&self, scope: Option<&str>, list: NonZeroU32) -> Vec<ArcStr> {
        let incomplete = &mut self.record.lock().incomplete;
        let mut complete = Vec::new();
        incomplete.retain(|namespace, last| {
            let stays = !covers(scope, namespace) || *last >= list;
            if !stays {
                complete.push(namespace.clone());
            }
            stays
        });
        complete
    }

    pub(super) fn leaves_out(&self, namespace: &str) -> bool {
        self.record.lock().incomplete.contains_key(namespace)
    }

    pub(super) fn leaves_any_out(&self, scope: Option<&str>) -> bool {
        self.record.lock().incomplete.keys().any(|namespace| covers(scope, namespace))
    }

    pub(super) fn undecodable_received(&self) {
        self.record.lock().status.decode_errors += 1;
    }

    pub(super) fn handler_added(&self, gauge: &Arc<Gauge>) {
        let handlers = &mut self.record.lock().handlers;
        handlers.retain(|known| known.strong_count() > 0);
        handlers.push(Arc::downgrade(gauge));
    }

    pub(super) fn handler_panicked(&self) {
        self.record.lock().status.handler_panics += 1;
    }

    pub(super) fn count<T>(&self, event: &Event<T>) {
        let events = &mut self.record.lock().status.events;
        match event {
            Event::Added { .. } => events.added += 1,
            Event::Updated { .. } => events.updated += 1,
            Event::Deleted { .. } => events.deleted += 1,
        }
    }

    pub(super) fn set_counts(&self, objects: usize, undecodable: usize) {
        let status = &mut self.record.lock().status;
        status.objects = objects;
        status.undecodable = undecodable;
    }
}

fn covers(scope: Option<&str>, namespace: &str) -> bool {
    scope.is_none_or(|scope| scope == namespace)
}

impl Record {
    /// Returns the number of objects still to come in the first lists, if every server reports it.
    fn remaining(&self) -> Option<u64> {
        self.scopes.iter().filter(|scope| !scope.status.listed).map(|scope| scope.remaining).sum()
    }

    fn failed(&mut self, scope: usize, failure: &Failure) -> Option<Duration> {
        let reason = failure.to_string();
        self.status.last_error = Some(reason.clone());
        let scope = self.scopes.get_mut(scope)?;
        let before = scope.status.broken.take();
        let new = before.as_ref().is_none_or(|broken| broken.reason != reason);
        let now = Instant::now();
        // Another failure in between doesn't mean that the right was granted.
        let forbidden_since = before.as_ref().and_then(|broken| broken.forbidden_since);
        let forbidden_since = forbidden_since.or_else(|| (failure.code() == Some(403)).then_some(now));
        let since = before.map_or(now, |broken| broken.since);
        scope.status.broken = Some(BrokenScope { since, reason, forbidden_since });
        let now = tokio::time::Instant::now();
        let (since, due) = scope.logged.get_or_insert((now, now));
        let broken = now.saturating_duration_since(*since);
        if !new && now < *due {
            return None;
        }
        *due = now + broken.clamp(FIRST_SILENCE, LONGEST_SILENCE);
        Some(broken)
    }
}

/// The counters of a handler, read for its status.
#[derive(Debug)]
pub(super) struct Gauge {
    pub(super) name: Arc<str>,
    pub(super) queued: AtomicUsize,
    pub(super) synced: watch::Sender<bool>,
}

impl Gauge {
    pub(super) fn new(name: Arc<str>) -> Self {
        Self { name, queued: AtomicUsize::new(0), synced: watch::Sender::new(false) }
    }

    pub(super) fn status(&self) -> HandlerStatus {
        HandlerStatus {
            name: Arc::clone(&self.name),
            queued: self.queued.load(Ordering::Relaxed),
            synced: *self.synced.borrow(),
        }
    }
}
