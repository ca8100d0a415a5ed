//! An API of Widgets in memory, over HTTP, and a factory of informers for it. This module must never sleep for a fixed
//! time, only wait for events.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use kube::{
    Client, Config,
    core::{ApiResource, GroupVersionKind},
};
use parking_lot::Mutex;
use sandbox::{
    api::{Api, DeleteOptions, Resource, Selection},
    clock::Clock,
    faults::{Fault, FaultHandle, WatchFault},
    http::ApiServer,
    requests::Request,
};
use serde_json::{Value, json};
use shared_informer::{Event, Factory, Handler, Informer, Projection, Query, Registration, Settings};
use testkit::{PATIENCE, soon, until_true as until};

/// The form in which lists are requested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lists {
    Streamed,
    Paged,
}

pub(crate) struct World {
    pub(crate) api: Api,
    pub(crate) server: ApiServer,
    pub(crate) factory: Factory,
}

impl World {
    /// Creates an API that serves Widgets and has none.
    pub(crate) async fn new(lists: Lists) -> Self {
        Self::with(Settings { streaming_lists: lists == Lists::Streamed, ..quick() }).await
    }

    pub(crate) async fn with(settings: Settings) -> Self {
        let api = Api::new(Clock::real());
        let server = ApiServer::start(api.clone()).await.unwrap();
        let mut config = Config::new(server.url().parse().unwrap());
        config.default_retry = false;
        let client = Client::try_from(config).unwrap();
        let factory = Factory::new(client, tokio::runtime::Handle::current(), settings);
        let world = Self { api, server, factory };
        world.install();
        world
    }

    /// Installs the kind Widget.
    pub(crate) fn install(&self) {
        let schema = json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true });
        let version = json!({
            "name": "v1", "served": true, "storage": true, "schema": { "openAPIV3Schema": schema },
        });
        let definition = json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": { "name": "widgets.example.io" },
            "spec": {
                "group": "example.io", "scope": "Namespaced", "versions": [version],
                "names": { "kind": "Widget", "listKind": "WidgetList", "plural": "widgets", "singular": "widget" },
            },
        });
        self.api.load_values(vec![definition]).unwrap();
    }

    /// Removes the kind Widget, with all objects.
    pub(crate) fn uninstall(&self) {
        let definitions = Resource::new("apiextensions.k8s.io", "v1", "customresourcedefinitions");
        self.api.delete(&definitions, "", "widgets.example.io", &DeleteOptions::default()).unwrap();
    }

    pub(crate) fn create(&self, name: &str) {
        self.api.create(&widgets(), widget(name, &json!({}))).unwrap();
    }

    pub(crate) fn create_all(&self, names: &[&str]) {
        for name in names {
            self.create(name);
        }
    }

    /// Sets a Widget's spec.
    pub(crate) fn update(&self, name: &str, spec: &Value) {
        let mut object = Value::clone(&*self.api.get(&widgets(), "default", name).unwrap());
        object["spec"] = spec.clone();
        self.api.update(&widgets(), object).unwrap();
    }

    pub(crate) fn delete(&self, name: &str) {
        self.api.delete(&widgets(), "default", name, &DeleteOptions::default()).unwrap();
    }

    /// Ends the running watch, and refuses others until the returned fault is removed.
    pub(crate) async fn interrupt(&self) -> FaultHandle {
        let refusal = Fault::refuse(503, "ServiceUnavailable", "not now").on_verb("watch");
        let refusal = self.server.faults().add(refusal);
        let cut = self.server.faults().add(Fault::watch(WatchFault::CutAfter(0)));
        soon("a refused watch", refusal.wait_for_hits(1)).await;
        cut.remove();
        refusal
    }

    /// Applies a fault to the running watch, now or with the next events.
    pub(crate) async fn strike(&self, fault: WatchFault) -> FaultHandle {
        let handle = self.server.faults().add(Fault::watch(fault).times(1));
        soon("a fault", handle.wait_for_hits(1)).await;
        handle
    }

    /// Returns a synced informer of all Widgets as JSON, and the events of its handler.
    pub(crate) async fn follow(&self) -> (Informer<Value>, Story) {
        let informer = self.factory.informer(Query::all(kind()), Projection::<Value>::serde());
        let story = Story::of(&informer);
        informer.wait_for_sync(PATIENCE).await.unwrap();
        story.synced().await;
        let opened = |request: &Request| request.verb == "watch" && request.status == Some(200);
        soon("a watch", self.server.requests().wait_for(1, opened)).await;
        (informer, story)
    }

    /// Waits until an informer holds the same as the API.
    pub(crate) async fn agrees_with<T: Send + Sync + 'static>(&self, informer: &Informer<T>) {
        until("an informer that holds what the API holds", || self.held() == held_by(informer)).await;
    }

    fn held(&self) -> Vec<(String, String)> {
        let objects = self.api.list(&widgets(), &Selection::default()).unwrap_or_default();
        let text = |object: &Value, field: &str| object["metadata"][field].as_str().unwrap().to_owned();
        objects.iter().map(|object| (text(object, "name"), text(object, "resourceVersion"))).collect()
    }
}

fn held_by<T: Send + Sync + 'static>(informer: &Informer<T>) -> Vec<(String, String)> {
    let objects = informer.store().list();
    let received = objects.iter().map(|object| &object.metadata);
    received.map(|metadata| (metadata.key.name.to_string(), metadata.resource_version.to_string())).collect()
}

pub(crate) fn quick() -> Settings {
    Settings { backoff_min: Duration::from_millis(5), backoff_max: Duration::from_millis(20), ..Settings::default() }
}

pub(crate) fn kind() -> ApiResource {
    ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk("example.io", "v1", "Widget"), "widgets")
}

pub(crate) fn widgets() -> Resource {
    Resource::new("example.io", "v1", "widgets")
}

pub(crate) fn widget(name: &str, spec: &Value) -> Value {
    json!({
        "apiVersion": "example.io/v1", "kind": "Widget", "metadata": { "name": name, "namespace": "default" },
        "spec": spec,
    })
}

/// The events that a handler receives, as text.
pub(crate) struct Story {
    received: Arc<Mutex<Vec<String>>>,
    registration: Box<dyn HasSynced>,
}

trait HasSynced: Send + Sync {
    fn has_synced(&self) -> bool;
}

impl<T: Send + Sync + 'static> HasSynced for Registration<T> {
    fn has_synced(&self) -> bool {
        Registration::has_synced(self)
    }
}

struct Recorder(Arc<Mutex<Vec<String>>>);

impl<T> Handler<T> for Recorder {
    fn handle(&mut self, event: Event<T>) {
        let name = event.key().name;
        self.0.lock().push(match event {
            Event::Added { initial: true, .. } => format!("{name} was there"),
            Event::Added { initial: false, .. } => format!("{name} came"),
            Event::Updated { .. } => format!("{name} changed"),
            Event::Deleted { found_by_relist: false, .. } => format!("{name} went"),
            Event::Deleted { found_by_relist: true, .. } => format!("{name} was missed"),
        });
    }

    fn synced(&mut self) {
        self.0.lock().push("synced".to_owned());
    }
}

impl Story {
    pub(crate) fn of<T: Send + Sync + 'static>(informer: &Informer<T>) -> Self {
        let received = Arc::new(Mutex::new(Vec::new()));
        let registration = Box::new(informer.add_handler(Recorder(Arc::clone(&received))));
        Self { received, registration }
    }

    pub(crate) async fn synced(&self) {
        until("a handler that has synced", || self.registration.has_synced()).await;
    }

    pub(crate) fn has(&self, received: &str) -> bool {
        self.received.lock().iter().any(|found| found == received)
    }

    /// Returns the events after the first list.
    pub(crate) fn since_synced(&self) -> Vec<String> {
        self.received.lock().iter().skip_while(|received| *received != "synced").skip(1).cloned().collect()
    }

    /// Waits for the last expected event, and then asserts that the events are exactly these.
    pub(crate) async fn is(&self, expected: &[&str]) {
        let began = Instant::now();
        while self.received.lock().last().map(String::as_str) != expected.last().copied() && began.elapsed() < PATIENCE
        {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        assert_eq!(*self.received.lock(), expected);
    }
}
