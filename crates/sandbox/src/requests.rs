//! The log of the requests that the server received, which tests can count.

use std::{collections::VecDeque, sync::Arc};

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::watch;

/// The maximum number of requests in the log; the oldest are dropped first.
const LONGEST: usize = 200_000;

/// A request that was received.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// The HTTP method: `GET`, `PATCH` …
    pub method: String,
    /// The path, as it was sent.
    pub path: String,
    /// The query, as it was sent, without its `?`.
    pub query: String,
    /// The body.
    pub body: Bytes,
    /// The RBAC verb of the request: `get`, `list`, `watch`, `create` …
    pub verb: &'static str,
    /// The status of the answer; `None` until it is sent, or if the connection was cut.
    pub status: Option<u16>,
}

/// The log of a server's requests. Clones are cheap and share the same log.
#[derive(Debug, Clone)]
pub struct Requests(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    log: Mutex<Log>,
    changed: watch::Sender<()>,
}

#[derive(Debug, Default)]
struct Log {
    /// The number of the first request in the list.
    first: u64,
    list: VecDeque<Request>,
}

impl Requests {
    pub(crate) fn new() -> Self {
        Self(Arc::new(Shared { log: Mutex::default(), changed: watch::Sender::new(()) }))
    }

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

    pub(crate) fn answered(&self, number: u64, status: u16) {
        let mut log = self.0.log.lock();
        let at = number.checked_sub(log.first).and_then(|at| usize::try_from(at).ok());
        if let Some(request) = at.and_then(|at| log.list.get_mut(at)) {
            request.status = Some(status);
        }
        drop(log);
        self.0.changed.send_replace(());
    }

    /// Returns all requests in the log, in the order in which they were received.
    pub fn all(&self) -> Vec<Request> {
        self.0.log.lock().list.iter().cloned().collect()
    }

    /// Returns the number of requests for which `is_such` returns true.
    pub fn count(&self, is_such: impl Fn(&Request) -> bool) -> usize {
        self.0.log.lock().list.iter().filter(|request| is_such(request)).count()
    }

    /// Removes all requests from the log.
    pub fn clear(&self) {
        let mut log = self.0.log.lock();
        log.first += log.list.len() as u64;
        log.list.clear();
    }

    /// Waits until `is_such` returns true for at least `number` requests.
    pub async fn wait_for(&self, number: usize, is_such: impl Fn(&Request) -> bool) {
        let mut changed = self.0.changed.subscribe();
        while self.count(&is_such) < number {
            // The sender lives in `self`.
            let _ = changed.changed().await;
        }
    }
}
