//! One kind that a sink follows: the shared informer, the sink's registration, and their health. The sink is the
//! index of a single cluster, or one that passes changes to the indexes of many.

use std::{
    collections::{BTreeSet, HashSet},
    sync::Arc,
    time::{Duration, Instant},
};

use arcstr::ArcStr;
use kube::core::ApiResource;
use rules::capi::ObjectKey;
use shared_informer::{
    BrokenScope, Factory, Informer, Namespaces, Projection, Query, Registration, ScopeStatus, Store,
};

use service::listen::Check;

use index::{FedKeys, Feed, Index, IndexFeed, Sink};

/// The health of a followed kind.
#[derive(Clone, Debug)]
pub(super) struct KindHealth {
    /// True if the sink has received the whole first list.
    pub(super) synced: bool,
    /// True if the sink has received everything that the informer holds.
    pub(super) idle: bool,
    /// The state of the kind's list and watch, per namespace or for all.
    pub(super) scopes: Vec<ScopeStatus>,
}

impl KindHealth {
    /// Returns the list or watch that has been broken for longest, except in the namespaces of `left_out`.
    pub(super) fn broken(&self, left_out: &BTreeSet<String>) -> Option<&BrokenScope> {
        let counts = |scope: &&ScopeStatus| scope.namespace.as_ref().is_none_or(|name| !left_out.contains(name));
        let broken = self.scopes.iter().filter(counts).filter_map(|scope| scope.broken.as_ref());
        broken.min_by_key(|broken| broken.since)
    }

    /// Returns the reason for which the index can't rely on this kind, ignoring the namespaces in `left_out`; `None` if
    /// there is no such reason.
    pub(super) fn problem(&self, left_out: &BTreeSet<String>, max_staleness: Duration, now: Instant) -> Option<String> {
        let broken = self.broken(left_out);
        if !self.synced {
            let unfinished = || "the first list isn't complete yet".to_owned();
            return Some(broken.map_or_else(unfinished, |broken| broken.reason.clone()));
        }
        let BrokenScope { since, reason, .. } = broken?;
        let elapsed = now.saturating_duration_since(*since);
        (elapsed > max_staleness).then(|| {
            format!(
                "nothing was heard for {} s, more than --max-staleness allows ({} s): {reason}",
                elapsed.as_secs(),
                max_staleness.as_secs(),
            )
        })
    }

    /// Returns for how long nothing was heard of a kind that isn't a problem yet, and why; `None` if its watch works.
    pub(super) fn outage(&self, left_out: &BTreeSet<String>, max_staleness: Duration, now: Instant) -> Option<String> {
        let BrokenScope { since, reason, .. } = self.broken(left_out)?;
        let elapsed = now.saturating_duration_since(*since).as_secs();
        Some(format!(
            "nothing was heard for {elapsed} s, and Refresh fails beyond {} s: {reason}",
            max_staleness.as_secs()
        ))
    }
}

/// Returns the reason why a kind can't be read now; `None` if it can, or if that is forbidden, which concerns it alone.
pub(super) fn cause<'a>(health: &'a Result<KindHealth, String>, left_out: &BTreeSet<String>) -> Option<&'a str> {
    match health {
        Err(why) => Some(why),
        Ok(health) => {
            let broken = health.broken(left_out).filter(|broken| broken.forbidden_since.is_none())?;
            Some(&broken.reason)
        }
    }
}

/// One cause that stops all kinds of a cluster: most often its API server is down.
#[derive(Debug, Eq, PartialEq)]
pub(super) struct Outage {
    pub(super) cause: String,
    /// The time since when nothing is heard; `None` if the kinds aren't in sync yet.
    since: Option<Instant>,
}

/// What to do about it.
const RUNBOOK: &str = "see docs/how-to/runbook.md#capiautoscalerprovideroutofsync";

impl Outage {
    /// Returns the outage if all of these kinds have the same cause, and there are several.
    pub(super) fn of(kinds: &[(&str, Result<KindHealth, String>)], left_out: &BTreeSet<String>) -> Option<Self> {
        let mut causes = kinds.iter().map(|(_, health)| cause(health, left_out));
        let first = causes.next()??;
        if kinds.len() < 2 || causes.any(|cause| cause != Some(first)) {
            return None;
        }
        let since = |health: &Result<KindHealth, String>| {
            let health = health.as_ref().ok().filter(|health| health.synced)?;
            Some(health.broken(left_out)?.since)
        };
        // While one of them isn't in sync, nothing is served.
        let since: Option<Vec<_>> = kinds.iter().map(|(_, health)| since(health)).collect();
        Some(Self { cause: first.to_owned(), since: since.and_then(|since| since.into_iter().min()) })
    }

    /// Returns the check of all kinds, with what still works.
    pub(super) fn check(&self, name: &str, max_staleness: Duration, now: Instant) -> Check {
        let Self { cause, since } = self;
        let Some(since) = since else {
            return Check::pending(name, format!("{cause}; nothing is served until it can be read; {RUNBOOK}"));
        };
        let (elapsed, max) = (now.saturating_duration_since(*since), max_staleness.as_secs());
        let seconds = elapsed.as_secs();
        if elapsed > max_staleness {
            let why = format!(
                "nothing was heard for {seconds} s, more than --max-staleness allows ({max} s): {cause}; Refresh fails and \
                 nothing scales, other reads are answered from memory; {RUNBOOK}"
            );
            Check::pending(name, why)
        } else {
            let why = format!(
                "nothing was heard for {seconds} s: {cause}; reads are answered from memory, writes fail, and Refresh fails \
                 beyond {max} s; {RUNBOOK}"
            );
            Check::ready_but(name, why)
        }
    }
}

/// A followed kind.
pub(super) struct Followed<T: IndexFeed, S = Index> {
    resource: ApiResource,
    informer: Informer<T>,
    registration: Registration<T>,
    keys: FedKeys<T, S>,
    sink: Arc<S>,
    kind: T::Kind,
}

impl<T: IndexFeed, S: Sink<T>> Followed<T, S> {
    /// Starts to follow a kind. This replaces `previous`: objects of it that don't exist any more are removed from
    /// the sink once the new list is complete.
    pub(super) fn start(
        factory: &Factory,
        resource: ApiResource,
        namespaces: Namespaces,
        projection: Projection<T>,
        (sink, kind): (&Arc<S>, T::Kind),
        previous: Option<Self>,
    ) -> Self {
        let leftovers = previous.map(Self::end).unwrap_or_default();
        let query = Query { resource: resource.clone(), namespaces, labels: None, fields: None };
        let informer = factory.informer(query, projection);
        let feed = Feed::new(Arc::clone(sink), kind.clone(), leftovers);
        let keys = feed.keys();
        let registration = informer.add_named_handler("index", feed);
        Self { resource, informer, registration, keys, sink: Arc::clone(sink), kind }
    }

    pub(super) fn resource(&self) -> &ApiResource {
        &self.resource
    }

    pub(super) async fn synced(&self) {
        self.registration.synced().await;
    }

    pub(super) fn has_synced(&self) -> bool {
        self.registration.has_synced()
    }

    pub(super) fn health(&self) -> KindHealth {
        // The scopes are read first, so that `idle` covers everything that they report.
        let scopes = self.informer.scopes();
        KindHealth { synced: self.registration.has_synced(), idle: self.registration.is_idle(), scopes }
    }

    /// Stops waiting for the first list of these namespaces.
    pub(super) fn stop_waiting_for(&self, namespaces: &BTreeSet<String>) {
        for namespace in namespaces {
            self.informer.stop_waiting_for(namespace);
        }
    }

    /// Returns the kind, the keys of its objects in a namespace, and the objects.
    pub(super) fn objects_in(&self, namespace: &ArcStr) -> (&T::Kind, Vec<ObjectKey>, &Store<T>) {
        let store = self.informer.store();
        let objects = store.in_namespace(namespace);
        (&self.kind, objects.iter().map(|object| object.metadata.key.clone()).collect(), store)
    }

    /// Stops following the kind, and returns the keys of the objects that the sink has from it.
    pub(super) fn end(self) -> HashSet<ObjectKey> {
        self.keys.take()
    }

    /// Stops following a kind that isn't served any more, and removes its objects from the sink.
    pub(super) fn remove(self) {
        let (sink, kind) = (Arc::clone(&self.sink), self.kind.clone());
        for key in self.end() {
            sink.delete(&kind, key);
        }
    }
}
