//! Follows one resource throughout its life: it may not be served yet when the watch begins.
//!
//! Informer events become changes, which are passed to an outlet. There is one handler per outlet and resource: a slow
//! outlet receives the changes of each object merged, and delays no other.

use std::{future::pending, sync::Arc, time::Duration};

use connect::cause;
use jiff::Timestamp;
use kube::Client;
use shared_informer::{Event, Factory, Handler, Namespaces, Object, Projection, Query, Registration};
use tokio::time::sleep;

use super::{
    Narrowing,
    catalog::{Catalog, Resource, ResourceQuery},
    rights,
};
use crate::{
    changes::{Action, Change, Filter, Identity, Kind, Pattern, Snapshot},
    notify::Notifier,
};

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
    /// The interval at which the API server is asked for a resource that it doesn't serve yet.
    pub(super) ask: Duration,
}

/// The handlers of one resource.
pub(super) type Registrations = Vec<Registration<Snapshot>>;

impl Shared {
    pub(super) fn place(&self, resource: &Resource) -> Namespaces {
        if resource.namespaced { self.namespaces.clone() } else { Namespaces::All }
    }

    /// Starts to watch a resource; `appeared` is true if it was installed during the watch. It is reported for as long
    /// as the registrations are held.
    pub(super) fn start(&self, wanted: &ResourceQuery, resource: &Resource, appeared: bool) -> Registrations {
        let query = Query {
            resource: resource.api_resource(),
            namespaces: self.place(resource),
            labels: wanted.labels.clone(),
            fields: wanted.fields.clone(),
        };
        let filter = Filter::new(resource.kind.clone(), &self.ignore);
        let projection = Projection::decoded("watch", move |_, object| Ok(filter.snapshot(object)));
        let projection = projection.with_bytes(Snapshot::bytes);
        let informer = self.factory.informer(query, projection);
        let kind = Arc::new(resource.kind.clone());
        let registration = |outlet: &Outlet| {
            let (kind, outlet) = (Arc::clone(&kind), outlet.clone());
            informer.add_handler(Reporter { cluster: self.cluster, kind, outlet, appeared })
        };
        self.outlets.iter().map(registration).collect()
    }

    pub(super) async fn follow_once_served(self: Arc<Self>, mut wanted: ResourceQuery) {
        let resource = self.wait_for(&mut wanted).await;
        let _registrations = self.start(&wanted, &resource, true);
        pending::<()>().await;
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
            sleep(self.ask).await;
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

/// The program's own destination of changes.
#[derive(Clone)]
pub struct Output {
    /// Takes a change. It may block while its reader is behind: then the informers merge further changes.
    pub report: Arc<dyn Fn(&Change) + Send + Sync>,
    /// True if objects that exist at the start are reported too.
    pub initial: bool,
}

/// The destination of changes.
#[derive(Clone)]
pub(super) enum Outlet {
    /// The program's own.
    Output(Output),
    /// Webhooks. They never receive the objects that exist at the start.
    Notifier(Arc<Notifier>),
}

/// Passes the changes of one resource to one outlet.
pub(super) struct Reporter {
    pub(super) cluster: &'static str,
    pub(super) kind: Arc<Kind>,
    pub(super) outlet: Outlet,
    /// True if the resource was installed during the watch, so that all of its objects are new.
    pub(super) appeared: bool,
}

impl Reporter {
    fn identity(&self, object: &Object<Snapshot>) -> Identity {
        let (key, metadata) = (object.key(), &object.metadata);
        Identity {
            time: Timestamp::now(),
            cluster: self.cluster,
            kind: Arc::clone(&self.kind),
            namespace: key.namespace.to_string(),
            name: key.name.to_string(),
            uid: metadata.uid.to_string(),
            resource_version: metadata.resource_version.to_string(),
        }
    }

    fn added(&self, object: &Object<Snapshot>, initial: bool) -> Change {
        let identity = self.identity(object);
        match &object.content {
            Ok(new) => Change::added(identity, Arc::clone(new), initial),
            Err(error) => Change::unreadable(identity, Action::Added { initial }, error.to_string()),
        }
    }

    fn modified(&self, old: &Object<Snapshot>, new: &Object<Snapshot>) -> Option<Change> {
        let identity = self.identity(new);
        match (&old.content, &new.content) {
            (Ok(old), Ok(new)) => Change::modified(identity, Arc::clone(old), Arc::clone(new)),
            (Ok(_) | Err(_), Err(error)) => Some(Change::unreadable(identity, Action::Modified, error.to_string())),
            (Err(_), Ok(_)) => {
                Some(Change::unreadable(identity, Action::Modified, "its previous state couldn't be read".into()))
            }
        }
    }

    fn deleted(&self, last: &Object<Snapshot>, found_by_relist: bool) -> Change {
        Change::deleted(self.identity(last), last.decoded().cloned(), found_by_relist)
    }

    fn report(&self, change: &Change) {
        match &self.outlet {
            Outlet::Output(Output { initial: false, .. }) if change.action == (Action::Added { initial: true }) => {}
            Outlet::Output(output) => (output.report)(change),
            Outlet::Notifier(notifier) => notifier.offer(change),
        }
    }
}

impl Handler<Snapshot> for Reporter {
    fn handle(&mut self, event: Event<Snapshot>) {
        match event {
            Event::Added { object, initial } => {
                self.report(&self.added(&object, initial && !self.appeared));
            }
            Event::Updated { old, new } => {
                if let Some(change) = self.modified(&old, &new) {
                    self.report(&change);
                }
            }
            Event::Deleted { last, found_by_relist } => self.report(&self.deleted(&last, found_by_relist)),
        }
    }
}
