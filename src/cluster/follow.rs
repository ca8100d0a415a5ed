//! One kind of a cluster as an index follows it: the shared informer, this index's registration, and how they fare.

use std::{
    collections::HashSet,
    sync::Arc,
    time::{Duration, Instant},
};

use kube::core::ApiResource;

use crate::{
    capi::ObjectKey,
    index::{Fed, FedKeys, Feed, Index},
    informer::{Factory, HandlerOptions, Informer, Lister, Namespaces, Projection, Query, Registration, Status},
};

/// How a followed kind fares.
#[derive(Clone, Debug)]
pub(super) struct Health {
    /// Whether the index holds the whole first list.
    pub(super) synced: bool,
    /// The informer's own account.
    pub(super) status: Status,
}

impl Health {
    /// Why the index can't rely on this kind; `None` when it can.
    pub(super) fn problem(&self, max_staleness: Duration, now: Instant) -> Option<String> {
        let reason = || self.status.reason.clone();
        if !self.synced {
            return Some(reason().unwrap_or_else(|| "the first list isn't complete yet".to_owned()));
        }
        let broken = now.saturating_duration_since(self.status.broken_since?);
        (broken > max_staleness).then(|| {
            format!(
                "nothing was heard for {} s, more than --max-staleness allows ({} s): {}",
                broken.as_secs(),
                max_staleness.as_secs(),
                reason().unwrap_or_default()
            )
        })
    }
}

/// One kind, followed.
pub(super) struct Followed<T: Fed> {
    resource: ApiResource,
    informer: Informer<T>,
    registration: Registration<T>,
    keys: FedKeys<T>,
}

impl<T: Fed> Followed<T> {
    /// Starts to follow a kind. `previous` is what this takes over from: its objects that aren't there any more are
    /// taken out of the index once the new list is complete.
    pub(super) fn start(
        factory: &Factory,
        resource: ApiResource,
        namespaces: Namespaces,
        projection: Projection<T>,
        (index, kind): (&Arc<Index>, T::Kind),
        previous: Option<Self>,
    ) -> Self {
        let leftovers = previous.map(Self::end).unwrap_or_default();
        let query = Query { resource: resource.clone(), namespaces, labels: None, fields: None };
        let informer = factory.informer(query, projection);
        let feed = Feed::new(Arc::clone(index), kind, leftovers);
        let keys = feed.keys();
        let registration = informer.add_handler_with(HandlerOptions::named("index"), feed);
        Self { resource, informer, registration, keys }
    }

    /// How the kind is served.
    pub(super) fn resource(&self) -> &ApiResource {
        &self.resource
    }

    /// Waits until the index holds the whole first list.
    pub(super) async fn synced(&self) {
        self.registration.synced().await;
    }

    pub(super) fn health(&self) -> Health {
        Health { synced: self.registration.has_synced(), status: self.informer.status() }
    }

    /// What it has heard.
    pub(super) fn lister(&self) -> Lister<T> {
        self.informer.lister()
    }

    /// Ends it; gives the objects that the index has from it.
    pub(super) fn end(self) -> HashSet<ObjectKey> {
        self.keys.take()
    }
}
