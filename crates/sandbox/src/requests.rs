//! The requests that the server got: a log that tests count.

use std::{collections::VecDeque, sync::Arc};

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::watch;

/// The most requests that the log holds; the oldest go first.
const LONGEST: usize = 200_000;

/// A request that came in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// `GET`, `PATCH` …
    pub method: String,
    /// The path, as it was sent.
    pub path: String,
    /// The query, as it was sent, without its `?`.
    pub query: String,
    /// The client's name for itself.
    pub user_agent: String,
    /// The type of the body.
    pub content_type: String,
    /// The body.
    pub body: Bytes,
    /// The verb of the request in the words of RBAC: `get`, `list`, `watch`, `create` …
    pub verb: &'static str,
    /// The status of the answer; none while there is none, or if the connection was cut.
    pub status: Option<u16>,
}

/// The log of a server's requests. Cheap to clone; clones are the same log.
#[derive(Debug, Clone)]
pub struct Requests(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    log: Mutex<Log>,
    changed: watch::Sender<()>,
}

#[derive(Debug, Default)]
struct Log {
    /// The number of the first request that is still held.
    first: u64,
    list: VecDeque<Request>,
}

impl Requests {
    pub(crate) fn new() -> Self {
        Self(Arc::new(Shared { log: Mutex::default(), changed: watch::Sender::new(()) }))
    }

    /// Notes a request; its number is returned.
    pub(crate) fn note(&self, request: Request) -> u64 {
        let mut log = self.0.log.lock();
        log.list.push_back(request);
        if log.list.len() > LONGEST {
            log.list.pop_front();
            log.first += 1;
        }
        let number = log.first + log.list.len() as u64 - 1;
        drop(log);
        self.0.changed.send_replace(());
        number
    }

    /// Notes the answer to a request.
    pub(crate) fn answered(&self, number: u64, status: u16) {
        let mut log = self.0.log.lock();
        let at = number.checked_sub(log.first).and_then(|at| usize::try_from(at).ok());
        if let Some(request) = at.and_then(|at| log.list.get_mut(at)) {
            request.status = Some(status);
        }
        drop(log);
        self.0.changed.send_replace(());
    }

    /// All requests that are held, in the order in which they came.
    #[must_use]
    pub fn all(&self) -> Vec<Request> {
        self.0.log.lock().list.iter().cloned().collect()
    }

    /// Returns the number of requests for which `is_such` holds.
    pub fn count(&self, is_such: impl Fn(&Request) -> bool) -> usize {
        self.0.log.lock().list.iter().filter(|request| is_such(request)).count()
    }

    /// Forgets all requests.
    pub fn clear(&self) {
        let mut log = self.0.log.lock();
        log.first += log.list.len() as u64;
        log.list.clear();
    }

    /// Waits until at least `number` requests are such.
    pub async fn wait_for(&self, number: usize, is_such: impl Fn(&Request) -> bool) {
        let mut changed = self.0.changed.subscribe();
        while self.count(&is_such) < number {
            // The sender lives in `self`.
            let _ = changed.changed().await;
        }
    }
}
