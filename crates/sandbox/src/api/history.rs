//! The latest changes of one kind, in order, for watches that follow or resume. The history is bounded: a request for
//! dropped changes is answered as expired.

use std::{collections::VecDeque, sync::Arc};

use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::watch;

use super::{Api, Refusal, Resource, Selection, Target, object::Object};

/// The kind of a change to an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChangeKind {
    /// The object was created or has become selected.
    Added,
    /// The object has a new state.
    Modified,
    /// The object is gone; this is its last state, with the revision of its removal.
    Deleted,
}

/// One change of one object.
#[derive(Debug)]
pub(crate) struct Change {
    pub(crate) revision: u64,
    pub(crate) kind: ChangeKind,
    pub(crate) object: Arc<Object>,
    /// The previous state, for selectors: an object may enter or leave the selection of a watch.
    pub(crate) previous: Option<Arc<Object>>,
}

/// The error that the requested changes were dropped; `oldest` is the earliest revision that a watch can resume from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Forgotten {
    pub(crate) oldest: u64,
}

/// The changes that were read; `ended` is true if there will be no more.
#[derive(Debug)]
pub(crate) struct Changes {
    pub(crate) list: Vec<Arc<Change>>,
    pub(crate) ended: bool,
}

/// The changes of one kind.
#[derive(Debug)]
pub(crate) struct History {
    log: Mutex<Log>,
    latest: watch::Sender<u64>,
}

#[derive(Debug)]
struct Log {
    changes: VecDeque<Arc<Change>>,
    /// The revision after which all changes are in `changes`.
    since: u64,
    /// The revision of the last change that was dropped; `since` may be later.
    dropped: u64,
    limit: usize,
    ended: bool,
}

impl Log {
    fn after(&self, revision: u64) -> Changes {
        let start = self.changes.partition_point(|change| change.revision <= revision);
        Changes { list: self.changes.range(start..).cloned().collect(), ended: self.ended }
    }
}

impl History {
    /// Creates an empty history of at most `limit` changes, for a kind that appears at `revision`.
    pub(crate) fn new(revision: u64, limit: usize) -> Self {
        // A watch may resume from before the kind existed, because the kind had no changes then.
        let log = Log { changes: VecDeque::new(), since: 0, dropped: 0, limit, ended: false };
        Self { log: Mutex::new(log), latest: watch::Sender::new(revision) }
    }

    /// Returns a copy of the history, for watches that begin now.
    pub(crate) fn anew(&self) -> Self {
        let log = self.log.lock();
        let changes = log.changes.clone();
        let log = Log { changes, since: log.since, dropped: log.dropped, limit: log.limit, ended: false };
        Self { log: Mutex::new(log), latest: watch::Sender::new(*self.latest.borrow()) }
    }

    pub(crate) fn push(&self, change: Change) {
        let revision = change.revision;
        let mut log = self.log.lock();
        log.changes.push_back(Arc::new(change));
        if log.changes.len() > log.limit
            && let Some(oldest) = log.changes.pop_front()
        {
            log.since = oldest.revision;
            log.dropped = oldest.revision;
        }
        drop(log);
        self.latest.send_replace(revision);
    }

    /// Returns the changes after `revision`, for those who begin there.
    pub(crate) fn after(&self, revision: u64) -> Result<Changes, Forgotten> {
        let log = self.log.lock();
        if revision < log.since {
            return Err(Forgotten { oldest: log.since });
        }
        Ok(log.after(revision))
    }

    /// Returns the changes after `revision`, for a watch that has got all before. It has expired only if it misses one:
    /// revisions also count the changes of other kinds.
    pub(crate) fn following(&self, revision: u64) -> Result<Changes, Forgotten> {
        let log = self.log.lock();
        if revision < log.dropped {
            return Err(Forgotten { oldest: log.since });
        }
        Ok(log.after(revision))
    }

    /// Drops all changes up to `revision`.
    pub(crate) fn forget(&self, revision: u64) {
        let mut log = self.log.lock();
        let kept = log.changes.partition_point(|change| change.revision <= revision);
        let dropped = log.changes.drain(..kept).next_back().map(|change| change.revision);
        log.dropped = dropped.unwrap_or(log.dropped);
        log.since = log.since.max(revision);
    }

    /// Drops all changes but the last `count`.
    pub(crate) fn keep(&self, count: usize) {
        let mut log = self.log.lock();
        let surplus = log.changes.len().saturating_sub(count);
        let dropped = log.changes.drain(..surplus).next_back().map(|change| change.revision);
        log.dropped = dropped.unwrap_or(log.dropped);
        log.since = log.since.max(log.dropped);
    }

    /// Ends the history: watches end once they have read the remaining changes.
    pub(crate) fn end(&self) {
        self.log.lock().ended = true;
        self.latest.send_modify(|_| {});
    }

    /// Returns the number of receivers.
    pub(crate) fn subscribers(&self) -> usize {
        self.latest.receiver_count()
    }

    /// Returns a receiver that is notified of each change.
    pub(crate) fn subscribe(&self) -> watch::Receiver<u64> {
        self.latest.subscribe()
    }
}

/// A change of an object, as controllers read it.
#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    /// The kind of the change.
    pub kind: ChangeKind,
    /// The object, in the requested version.
    pub object: Arc<Value>,
    /// The revision of the change.
    pub revision: u64,
}

/// Returns a change as a selection sees it; `None` if it doesn't.
pub(crate) fn seen(change: &Change, selection: &Selection) -> Option<(ChangeKind, Arc<Object>)> {
    let inside = selection.namespace.is_empty() || change.object.key().namespace == selection.namespace;
    if !inside {
        return None;
    }
    let before = change.previous.as_ref().is_some_and(|previous| previous.is_in(selection));
    let after = change.kind != ChangeKind::Deleted && change.object.is_in(selection);
    match (before, after) {
        (false, false) => None,
        (false, true) => Some((ChangeKind::Added, Arc::clone(&change.object))),
        (true, true) => Some((ChangeKind::Modified, Arc::clone(&change.object))),
        (true, false) => {
            // An object that left the selection is shown as it was selected, under the revision of the change.
            let last = change.previous.as_ref().map(|previous| Arc::new(previous.at(change.revision)));
            Some((ChangeKind::Deleted, last.unwrap_or_else(|| Arc::clone(&change.object))))
        }
    }
}

/// Returns the refusal of a watch from a revision that the history has dropped.
pub(crate) fn too_old(wanted: u64, forgotten: Forgotten) -> Refusal {
    Refusal::expired(format!("too old resource version: {wanted} ({})", forgotten.oldest))
}

impl Api {
    /// Returns the changes after `revision`, in order, for controllers that follow a kind.
    pub fn changes(&self, resource: &Resource, selection: &Selection, revision: u64) -> Result<Vec<Event>, Refusal> {
        let (target, history) = self.history(resource)?;
        selection.fields.check(&target.spec)?;
        let changes = history.after(revision).map_err(|forgotten| too_old(revision, forgotten))?;
        let api_version = target.api_version();
        Ok(changes
            .list
            .iter()
            .filter_map(|change| {
                let (kind, object) = seen(change, selection)?;
                Some(Event { kind, object: object.under(&api_version), revision: change.revision })
            })
            .collect())
    }

    /// Returns the history of a kind.
    pub(crate) fn history(&self, resource: &Resource) -> Result<(Target, Arc<History>), Refusal> {
        let store = self.shared.store.read();
        let target = self.find(&store, resource)?;
        let table = store.table(target.id).ok_or_else(Refusal::no_such_resource)?;
        Ok((target, Arc::clone(&table.history)))
    }
}
