//! Fault injection: the faults of a server, the requests that they affect, and how often. Without a fault the server
//! behaves correctly.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use bytes::Bytes;
use parking_lot::Mutex;
use regex::Regex;
use serde_json::Value;
use tokio::sync::watch;

/// A fault of the server, and the requests that it affects.
#[derive(Debug, Clone)]
pub struct Fault {
    method: Option<String>,
    verb: Option<String>,
    writes: bool,
    path: Option<Regex>,
    token: Option<String>,
    skip: usize,
    times: Option<usize>,
    effect: Effect,
}

/// The effect of a fault.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// The request is answered with this and not processed.
    Answer {
        /// The HTTP status.
        status: u16,
        /// The body.
        body: Bytes,
    },
    /// The request waits this long before it is processed, by the clock of the API.
    Delay(Duration),
    /// The request waits until [`FaultHandle::release`].
    Hold,
    /// The connection is cut before the request is processed.
    CutBefore,
    /// The request is processed, and the answer waits until [`FaultHandle::release`].
    HoldAnswer,
    /// The request is answered without end, as fast as the client reads, until the fault is removed.
    Endless {
        /// The beginning of the body.
        opening: Bytes,
        /// The text that follows again and again, with its number in place of each `{number}`.
        part: Arc<str>,
    },
    /// A watch fails: one that is opened, or one in progress.
    Watch(WatchFault),
}

/// The fault of a watch. Each fault affects a watch at most once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WatchFault {
    /// The connection stays open, and nothing is sent until the fault is removed.
    Stall,
    /// The connection is cut.
    Cut,
    /// An ERROR event reports that the revision has expired, and the watch ends.
    Expire,
    /// Every event is sent twice until the fault is removed.
    Duplicate,
}

impl Fault {
    /// Creates a fault for all requests, which stays until it is removed.
    pub fn new(effect: Effect) -> Self {
        Self { method: None, verb: None, writes: false, path: None, token: None, skip: 0, times: None, effect }
    }

    /// Refuses requests with a Status of this code, reason and message.
    pub fn refuse(code: u16, reason: &str, message: &str) -> Self {
        let status = serde_json::json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": message, "reason": reason, "code": code,
        });
        Self::answer(code, &status)
    }

    /// Answers requests with this JSON.
    pub fn answer(status: u16, body: &Value) -> Self {
        Self::new(Effect::Answer { status, body: Bytes::from(body.to_string()) })
    }

    /// Creates a fault of watches.
    pub fn watch(fault: WatchFault) -> Self {
        Self::new(Effect::Watch(fault)).on_verb("watch")
    }

    /// Restricts the fault to one HTTP method.
    pub fn on_method(mut self, method: &str) -> Self {
        self.method = Some(method.to_owned());
        self
    }

    /// Restricts the fault to one verb: `get`, `list`, `watch`, `create`, `update`, `patch`, `delete`.
    pub fn on_verb(mut self, verb: &str) -> Self {
        self.verb = Some(verb.to_owned());
        self
    }

    /// Restricts the fault to requests that change something.
    pub fn on_writes(mut self) -> Self {
        self.writes = true;
        self
    }

    /// Restricts the fault to requests whose path, with `?` and the query if there is one, matches this regular
    /// expression.
    ///
    /// # Errors
    /// Fails if the expression is invalid.
    pub fn on_path(mut self, pattern: &str) -> Result<Self, regex::Error> {
        self.path = Some(Regex::new(pattern)?);
        Ok(self)
    }

    /// Restricts the fault to requests that don't carry this bearer token.
    pub fn without_token(mut self, token: &str) -> Self {
        self.token = Some(token.to_owned());
        self
    }

    /// Lets the first `count` such requests pass.
    pub fn after(mut self, count: usize) -> Self {
        self.skip = count;
        self
    }

    /// Restricts the fault to `count` requests.
    pub fn times(mut self, count: usize) -> Self {
        self.times = Some(count);
        self
    }

    fn is_for(&self, about: &About<'_>) -> bool {
        self.method.as_ref().is_none_or(|method| method == about.method)
            && self.verb.as_ref().is_none_or(|verb| verb == about.verb)
            && (!self.writes || !matches!(about.verb, "get" | "list" | "watch"))
            && self.path.as_ref().is_none_or(|path| path.is_match(about.target))
            && self.token.as_deref().is_none_or(|token| about.token != Some(token))
    }
}

/// The parts of a request that faults match.
#[derive(Debug, Clone, Copy)]
pub(crate) struct About<'a> {
    pub(crate) method: &'a str,
    pub(crate) verb: &'a str,
    /// The path with the query.
    pub(crate) target: &'a str,
    /// The bearer token.
    pub(crate) token: Option<&'a str>,
}

/// The faults of a server. Clones are cheap and share the same faults.
#[derive(Debug, Clone)]
pub struct Faults(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    list: Mutex<List>,
    /// Notifies watches in progress of changes of the list.
    changed: watch::Sender<()>,
}

#[derive(Debug, Default)]
struct List {
    next: u64,
    faults: BTreeMap<u64, Armed>,
}

#[derive(Debug)]
struct Armed {
    fault: Fault,
    seen: usize,
    hits: Arc<watch::Sender<usize>>,
    gate: Arc<watch::Sender<bool>>,
}

impl Armed {
    fn triggers(&mut self) -> bool {
        self.seen += 1;
        let active =
            self.seen > self.fault.skip && self.fault.times.is_none_or(|times| self.seen - self.fault.skip <= times);
        if active {
            self.hits.send_modify(|hits| *hits += 1);
        }
        active
    }
}

#[derive(Debug, Clone)]
pub(crate) struct ActiveEffect {
    pub(crate) effect: Effect,
    pub(crate) gate: watch::Receiver<bool>,
}

impl Faults {
    pub(crate) fn new() -> Self {
        Self(Arc::new(Shared { list: Mutex::default(), changed: watch::Sender::new(()) }))
    }

    /// Adds a fault. It stays until it is removed by its handle or by [`Faults::clear`], even if the handle is dropped.
    /// Several faults that match a request take effect in the order in which they were added.
    pub fn add(&self, fault: Fault) -> FaultHandle {
        let (hits, gate) = (Arc::new(watch::Sender::new(0)), Arc::new(watch::Sender::new(false)));
        let armed = Armed { fault, seen: 0, hits: Arc::clone(&hits), gate: Arc::clone(&gate) };
        let mut list = self.0.list.lock();
        let id = list.next;
        list.next += 1;
        list.faults.insert(id, armed);
        drop(list);
        self.0.changed.send_replace(());
        FaultHandle { faults: self.clone(), id, hits, gate }
    }

    /// Removes all faults; held requests continue.
    pub fn clear(&self) {
        let faults = std::mem::take(&mut self.0.list.lock().faults);
        for armed in faults.into_values() {
            armed.gate.send_replace(true);
        }
        self.0.changed.send_replace(());
    }

    /// Returns the effects on a request, except for those on watches.
    pub(crate) fn effects_on(&self, about: &About<'_>) -> Vec<ActiveEffect> {
        let mut list = self.0.list.lock();
        list.faults
            .values_mut()
            .filter(|armed| !matches!(armed.fault.effect, Effect::Watch(_)) && armed.fault.is_for(about))
            .filter_map(|armed| {
                armed
                    .triggers()
                    .then(|| ActiveEffect { effect: armed.fault.effect.clone(), gate: armed.gate.subscribe() })
            })
            .collect()
    }

    /// Returns the message of the fault that answers such a request with 403. The fault doesn't count this as a hit.
    pub(crate) fn forbids(&self, about: &About<'_>) -> Option<String> {
        let list = self.0.list.lock();
        list.faults.values().filter(|armed| armed.fault.is_for(about)).find_map(|armed| match &armed.fault.effect {
            Effect::Answer { status: 403, body, .. } => {
                let status: Value = serde_json::from_slice(body).unwrap_or_default();
                Some(status["message"].as_str().unwrap_or_default().to_owned())
            }
            _ => None,
        })
    }

    /// Adds the faults that a watch meets to those that it has `met`, and drops those that were removed. Returns the new
    /// ones.
    pub(crate) fn meet(&self, about: &About<'_>, met: &mut BTreeMap<u64, Option<WatchFault>>) -> Vec<WatchFault> {
        let mut list = self.0.list.lock();
        met.retain(|id, _| list.faults.contains_key(id));
        let mut new = Vec::new();
        for (id, armed) in &mut list.faults {
            let Effect::Watch(fault) = armed.fault.effect else { continue };
            if !met.contains_key(id) && armed.fault.is_for(about) {
                let fault = armed.triggers().then_some(fault);
                met.insert(*id, fault);
                new.extend(fault);
            }
        }
        new
    }

    /// Returns a receiver that is notified when faults are added or removed.
    pub(crate) fn subscribe(&self) -> watch::Receiver<()> {
        self.0.changed.subscribe()
    }
}

/// A fault that was added.
#[derive(Debug, Clone)]
pub struct FaultHandle {
    faults: Faults,
    id: u64,
    hits: Arc<watch::Sender<usize>>,
    gate: Arc<watch::Sender<bool>>,
}

impl FaultHandle {
    /// Returns the number of requests that the fault has affected.
    pub fn hits(&self) -> usize {
        *self.hits.borrow()
    }

    /// Waits until the fault has affected at least `count` requests.
    pub async fn wait_for_hits(&self, count: usize) {
        // The sender lives in `self`.
        let _ = self.hits.subscribe().wait_for(|hits| *hits >= count).await;
    }

    /// Releases the held requests, and all later ones.
    pub fn release(&self) {
        self.gate.send_replace(true);
    }

    /// Removes the fault; held requests continue.
    pub fn remove(&self) {
        self.faults.0.list.lock().faults.remove(&self.id);
        self.release();
        self.faults.0.changed.send_replace(());
    }
}
