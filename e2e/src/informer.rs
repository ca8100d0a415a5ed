//! The environment of the promises of an informer, and a record of the events that a handler receives.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use futures::future::LocalBoxFuture;
use kube::{
    Api,
    api::{ApiResource, DynamicObject, ListParams},
};
use serde_json::{Value, json};
use shared_informer::{Event, Factory, Handler, Informer, Projection, Query, Registration, Settings};

use crate::{
    control_plane::{ControlPlane, http_get},
    crds::{self, Reach},
    objects::{Contract, INFRASTRUCTURE_GROUP, Objects, Place},
    proxy::Proxy,
    wait::{SOON, eventually},
};

/// The body of the scenario of a promise.
pub type Promise = for<'a> fn(&'a Setup) -> LocalBoxFuture<'a, Result<()>>;

/// The form in which lists are requested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lists {
    /// As streams.
    Streamed,
    /// In pages of two objects.
    Paged,
}

impl Lists {
    /// Both forms.
    pub const ALL: [Self; 2] = [Self::Streamed, Self::Paged];

    /// Returns the form as part of a test's name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Streamed => "streamed",
            Self::Paged => "paged",
        }
    }
}

/// The environment of one scenario: a kind, a namespace, a proxy to the API server that can be cut, and a factory of
/// informers behind that proxy. The scenario's own writes bypass it.
pub struct Setup {
    /// The form in which its informers request lists.
    pub lists: Lists,
    /// The kind that no other scenario uses.
    kind: ApiResource,
    /// The namespace of its objects.
    namespace: String,
    /// The proxy that its informers use.
    pub proxy: Proxy,
    factory: Factory,
    objects: Objects,
}

impl Setup {
    /// Creates a setup on an API server that other scenarios share.
    pub(crate) async fn new(plane: &ControlPlane, lists: Lists) -> Result<Self> {
        static SETUPS: AtomicUsize = AtomicUsize::new(0);
        let proxy = plane.proxy().await?;
        let through = plane.plain_client_through(&proxy).await?;
        let number = SETUPS.fetch_add(1, Ordering::Relaxed);
        let settings = Settings {
            streaming_lists: lists == Lists::Streamed,
            page_size: 2,
            backoff_min: Duration::from_millis(20),
            backoff_max: Duration::from_millis(200),
            ..Settings::default()
        };
        let factory = Factory::new(through, tokio::runtime::Handle::current(), settings);
        let kind = Place::of(&format!("Widget{number}"), Contract::V1Beta2).resource;
        let namespace = format!("informer-{number}");
        let objects = plane.objects(&namespace);
        objects.create(json!({ "kind": "Namespace", "metadata": { "name": namespace } })).await?;
        let setup = Self { lists, kind, namespace, proxy, factory, objects };
        setup.install().await?;
        Ok(setup)
    }

    /// Installs the setup's kind, and waits until it is served.
    pub async fn install(&self) -> Result<()> {
        self.objects.create(self.definition()).await?;
        eventually("the kind served", SOON, async || self.objects.list(&self.kind.kind, "").await.map(drop)).await
    }

    /// Removes the setup's kind with all its objects, and waits until it is served no more.
    pub async fn uninstall(&self) -> Result<()> {
        let (definitions, name) = ("CustomResourceDefinition", self.definition_name());
        self.objects.delete(definitions, &name).await?;
        eventually("the kind gone", SOON, async || {
            ensure!(self.objects.find(definitions, &name).await?.is_none(), "its definition is there");
            let error = self.objects.list(&self.kind.kind, "").await.err().context("it is listed")?;
            match error.downcast_ref() {
                Some(kube::Error::Api(status)) if status.code == 404 => Ok(()),
                _ => Err(error),
            }
        })
        .await
    }

    /// Creates a Widget.
    pub async fn create(&self, name: &str) -> Result<()> {
        let widget = json!({ "kind": self.kind.kind, "metadata": { "name": name }, "spec": { "size": 1 } });
        self.objects.create(widget).await.map(drop)
    }

    /// Sets a Widget's size.
    pub async fn resize(&self, name: &str, size: u32) -> Result<()> {
        self.objects.patch(&self.kind.kind, name, json!({ "spec": { "size": size } })).await
    }

    /// Deletes a Widget.
    pub async fn delete(&self, name: &str) -> Result<()> {
        self.objects.delete(&self.kind.kind, name).await
    }

    /// Expires every version so far of the setup's kind for watches. A real API server drops its watch cache of a kind
    /// when the definition changes, as in an upgrade.
    pub async fn expire(&self) -> Result<()> {
        let before = self.version().await?;
        let mut changed = self.definition();
        changed["spec"]["versions"][0]["additionalPrinterColumns"] =
            json!([{ "name": "Size", "type": "integer", "jsonPath": ".spec.size" }]);
        self.objects.patch("CustomResourceDefinition", &self.definition_name(), changed).await?;
        eventually("the version expired", SOON, async || {
            let asked = format!(
                "/apis/{}/namespaces/{}/{}?watch=true&timeoutSeconds=1&resourceVersion={before}",
                self.kind.api_version, self.namespace, self.kind.plural
            );
            let answer = self.objects.client().request_text(http_get(&asked)?).await;
            let answer = answer.unwrap_or_else(|error| format!("{error:?}"));
            ensure!(answer.contains("410"), "a watch from {before} is answered: {answer}");
            Ok(())
        })
        .await
    }

    async fn version(&self) -> Result<String> {
        let widgets: Api<DynamicObject> = Api::namespaced_with(self.objects.client(), &self.namespace, &self.kind);
        let list = widgets.list(&ListParams::default()).await?;
        list.metadata.resource_version.context("the list has no resourceVersion")
    }

    /// Returns the synced informer of a query, and the recorded events of a handler of it.
    pub async fn follow(&self, query: Query) -> Result<(Informer<Value>, EventLog)> {
        let informer = self.factory.informer(query, Projection::serde());
        let event_log = EventLog::of(&informer);
        informer.wait_for_sync(SOON).await?;
        event_log.registration.synced().await;
        Ok((informer, event_log))
    }

    /// Returns the query for all Widgets of the setup.
    pub fn all(&self) -> Query {
        Query::namespaced(self.kind.clone(), [self.namespace.as_str()])
    }

    /// Returns the number of informers' requests so far whose query contains this part.
    pub fn asked(&self, part: &str) -> usize {
        self.proxy.asked().iter().filter(|target| target.contains(part)).count()
    }

    fn definition_name(&self) -> String {
        format!("{}.{INFRASTRUCTURE_GROUP}", self.kind.plural)
    }

    fn definition(&self) -> Value {
        crds::open(INFRASTRUCTURE_GROUP, &self.kind.kind, &[&self.kind.version], Reach::Namespace)
    }
}

/// The events that a handler has received so far. Dropping it removes the handler.
#[derive(Debug)]
pub struct EventLog {
    recorded: Recorded,
    registration: Registration<Value>,
}

type Recorded = Arc<Mutex<Vec<String>>>;

struct Recorder(Recorded);

impl Handler<Value> for Recorder {
    fn handle(&mut self, event: Event<Value>) {
        let name = event.key().name;
        let size = |event: &Event<Value>| {
            event.object().decoded().map_or_else(|| "?".to_owned(), |object| object["spec"]["size"].to_string())
        };
        let recorded = match &event {
            Event::Added { initial: true, .. } => format!("{name} was there"),
            Event::Added { initial: false, .. } => format!("{name} came"),
            Event::Updated { .. } => format!("{name} has size {}", size(&event)),
            Event::Deleted { found_by_relist: false, .. } => format!("{name} went"),
            Event::Deleted { found_by_relist: true, .. } => format!("{name} was missed"),
        };
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(recorded);
    }

    fn synced(&mut self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push("synced".to_owned());
    }
}

impl EventLog {
    /// Adds a handler and records its events.
    fn of(informer: &Informer<Value>) -> Self {
        let recorded = Recorded::default();
        let registration = informer.add_handler(Recorder(Arc::clone(&recorded)));
        Self { recorded, registration }
    }

    fn recorded(&self) -> Vec<String> {
        self.recorded.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Waits until the recorded events are exactly these; each item is one line.
    pub async fn is(&self, expected: &[&str]) -> Result<()> {
        eventually("the events", SOON, async || {
            let recorded = self.recorded();
            ensure!(recorded == expected, "it was sent {recorded:?}, not {expected:?}");
            Ok(())
        })
        .await
    }

    /// The same as [`Self::is`], for changes of different objects in any order.
    pub async fn is_in_any_order(&self, expected: &[&str]) -> Result<()> {
        let mut expected = expected.to_vec();
        expected.sort_unstable();
        eventually("the events", SOON, async || {
            let mut recorded = self.recorded();
            recorded.sort_unstable();
            ensure!(recorded == expected, "it was sent {recorded:?}, not {expected:?}");
            Ok(())
        })
        .await
    }
}
