//! Follows one resource throughout its life: during a watch it may not be served yet, disappear and return, or be
//! served in another version.

use std::{sync::Arc, time::Duration};

use kube::Client;
use shared_informer::{Factory, Informer, Namespaces, Projection, Query, Registration};
use tokio::time::{Instant, sleep};

use super::{
    catalog::{Catalog, Resource, ResourceQuery},
    narrowing::Narrowing,
    reporter::{Known, Outlet, Reporter},
    rights,
};
use crate::changes::{Filter, Pattern, Snapshot};
use connect::cause;

/// The polling intervals for resources.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// The interval at which the status of a resource's informer is read.
    pub look: Duration,
    /// The time for which a resource may be broken until discovery is asked again, and the interval of further
    /// requests.
    pub ask: Duration,
}

impl Default for Pace {
    fn default() -> Self {
        Self { look: Duration::from_secs(1), ask: Duration::from_secs(5) }
    }
}

/// The state that all resources share.
pub(super) struct Shared {
    /// The client for short requests.
    pub(super) client: Client,
    pub(super) factory: Factory,
    pub(super) namespaces: Namespaces,
    pub(super) narrowing: Option<Narrowing>,
    pub(super) ignore: Vec<Pattern>,
    pub(super) cluster: &'static str,
    pub(super) outlets: Vec<Outlet>,
    pub(super) pace: Pace,
}

/// A resource that is being watched.
pub(super) struct Following {
    resource: Resource,
    informer: Informer<Snapshot>,
    /// Kept for as long as the resource is reported.
    #[expect(dead_code, reason = "held, never read")]
    registrations: Vec<Registration<Snapshot>>,
}

impl Shared {
    /// Returns the namespaces in which a resource is watched.
    pub(super) fn place(&self, resource: &Resource) -> Namespaces {
        if resource.namespaced { self.namespaces.clone() } else { Namespaces::All }
    }

    /// Starts to watch a resource; `appeared` is true if it was installed during the watch.
    pub(super) fn start(
        &self,
        wanted: &ResourceQuery,
        resource: Resource,
        appeared: bool,
        before: Option<&Following>,
    ) -> Following {
        let query = Query {
            resource: resource.api_resource(),
            namespaces: self.place(&resource),
            labels: wanted.labels.clone(),
            fields: wanted.fields.clone(),
        };
        let filter = Filter::new(resource.kind.clone(), &self.ignore);
        let projection = Projection::decoded("watch", move |_, object| Ok(filter.snapshot(object)));
        let projection = projection.with_bytes(Snapshot::bytes);
        let known = before.map(Following::known).unwrap_or_default();
        // Objects that weren't known before are new.
        let appeared = appeared || before.is_some_and(|before| before.informer.has_synced());
        let informer = self.factory.informer(query, projection);
        let kind = Arc::new(resource.kind.clone());
        let registration = |outlet: &Outlet| {
            informer.add_handler(Reporter {
                cluster: self.cluster,
                kind: Arc::clone(&kind),
                outlet: outlet.clone(),
                appeared,
                known: known.clone(),
            })
        };
        let registrations = self.outlets.iter().map(registration).collect();
        Following { resource, informer, registrations }
    }

    /// Follows a resource for ever.
    pub(super) async fn follow(self: Arc<Self>, mut wanted: ResourceQuery, first: Option<Following>) {
        let mut following = if let Some(following) = first {
            following
        } else {
            let resource = self.wait_for(&mut wanted).await;
            self.start(&wanted, resource, true, None)
        };
        loop {
            following.broken(self.pace).await;
            let gone = format!("{} is not served any more; waiting for it", wanted.by);
            if let Some(resource) = self.look_up(&wanted, &mut Some(gone)).await
                && resource.kind != following.resource.kind
            {
                tracing::warn!(
                    resource = resource.name(),
                    from = following.resource.kind.version,
                    to = resource.kind.version,
                    "is served in another version now"
                );
                following = self.start(&wanted, resource, false, Some(&following));
            }
            sleep(self.pace.ask).await;
        }
    }

    /// Waits until the resource is served, and then narrows `wanted` to the Cluster.
    async fn wait_for(&self, wanted: &mut ResourceQuery) -> Resource {
        let mut said = Some(format!("{} is not served; waiting for it", wanted.by));
        loop {
            if let Some(resource) = self.look_up(wanted, &mut said).await {
                tracing::info!(resource = resource.name(), version = resource.kind.version, "is served now");
                if let Some(narrowing) = &self.narrowing {
                    *wanted = narrowing.of_resource(wanted.clone(), &resource);
                }
                if let Err(refusal) = rights::check(&self.client, &resource, &self.place(&resource), wanted).await {
                    tracing::warn!("{refusal}");
                }
                return resource;
            }
            sleep(self.pace.ask).await;
        }
    }

    /// Finds the resource as the API server serves it now. `missing` is logged once if it isn't served.
    async fn look_up(&self, wanted: &ResourceQuery, missing: &mut Option<String>) -> Option<Resource> {
        match Catalog::discover(&self.client).await {
            Ok(catalog) => {
                let found = catalog.find(&wanted.by).ok().cloned();
                if let (None, Some(missing)) = (&found, missing.take()) {
                    tracing::warn!("{missing}");
                }
                found
            }
            Err(error) => {
                tracing::debug!("can't ask the API server which kinds it serves: {}", cause(&error));
                None
            }
        }
    }
}

impl Following {
    /// Waits until the informer has been broken for some time.
    async fn broken(&self, pace: Pace) {
        let mut broken_since: Option<Instant> = None;
        loop {
            let broken = self.informer.status().broken_since.is_some();
            broken_since = if broken { broken_since.or_else(|| Some(Instant::now())) } else { None };
            if broken_since.is_some_and(|since| since.elapsed() >= pace.ask) {
                return;
            }
            sleep(pace.look).await;
        }
    }

    fn known(&self) -> Known {
        self.informer.store().list().into_iter().map(|object| (object.key(), object)).collect()
    }
}
