//! The latest changes of one kind, in order, for watches that follow or resume. It is bounded: who asks for more than
//! it holds is told that it has expired.

use std::{collections::VecDeque, sync::Arc};

use parking_lot::Mutex;
use tokio::sync::watch;

use super::object::Object;

/// The kind of a change to an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChangeKind {
    /// It came to be.
    Added,
    /// It has a new state.
    Modified,
    /// It is gone; the object is its last state under the revision of its removal.
    Deleted,
}

/// One change of one object.
#[derive(Debug)]
pub(crate) struct Change {
    pub(crate) revision: u64,
    pub(crate) kind: ChangeKind,
    pub(crate) object: Arc<Object>,
    /// The state before, for selectors: an object may enter or leave what a watch selects.
    pub(crate) previous: Option<Arc<Object>>,
}

/// The wanted changes are not held any more; the oldest revision that a watch can resume from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Forgotten {
    pub(crate) oldest: u64,
}

/// Changes that were read, and whether there will be more.
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
    /// All changes after this revision are in `changes`.
    since: u64,
    limit: usize,
    ended: bool,
}

impl History {
    /// An empty history of a kind that appears at `revision`, of at most `limit` changes.
    pub(crate) fn new(revision: u64, limit: usize) -> Self {
        // A watch may resume from before the kind existed: nothing happened to it then.
        let log = Log { changes: VecDeque::new(), since: 0, limit, ended: false };
        Self { log: Mutex::new(log), latest: watch::Sender::new(revision) }
    }

    /// The same history, for watches that begin now.
    pub(crate) fn anew(&self) -> Self {
        let log = self.log.lock();
        let changes = log.changes.clone();
        let log = Log { changes, since: log.since, limit: log.limit, ended: false };
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
        }
        drop(log);
        self.latest.send_replace(revision);
    }

    /// The changes after `revision`.
    pub(crate) fn after(&self, revision: u64) -> Result<Changes, Forgotten> {
        let log = self.log.lock();
        if revision < log.since {
            return Err(Forgotten { oldest: log.since });
        }
        let start = log.changes.partition_point(|change| change.revision <= revision);
        Ok(Changes { list: log.changes.range(start..).cloned().collect(), ended: log.ended })
    }

    /// Drops what is older than `revision` and all up to it.
    pub(crate) fn forget(&self, revision: u64) {
        let mut log = self.log.lock();
        log.changes.retain(|change| change.revision > revision);
        log.since = log.since.max(revision);
    }

    /// There will be no more changes: watches end once they have read what there is.
    pub(crate) fn end(&self) {
        self.log.lock().ended = true;
        self.latest.send_modify(|_| {});
    }

    /// Wakes its holder on each change.
    pub(crate) fn subscribe(&self) -> watch::Receiver<u64> {
        self.latest.subscribe()
    }
}
