//! An informer at work without a cluster: an API server in this process has Widgets, changes them and fails, and the
//! informer reports each change once.
//!
//! ```console
//! cargo run -p shared-informer --example demo
//! ```

use std::{error::Error, time::Duration};

use kube::{
    Client, Config,
    core::{ApiResource, GroupVersionKind},
};
use sandbox::{
    api::{Api, DeleteOptions, Resource},
    clock::Clock,
    faults::{Fault, WatchFault},
    http::ApiServer,
};
use serde_json::{Value, json};
use shared_informer::{Event, Factory, Projection, Query, Settings};
use tokio::runtime::Handle;

const PATIENCE: Duration = Duration::from_secs(30);

/// A CustomResourceDefinition installs the kind, as in any cluster.
fn definition() -> Value {
    let schema = json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true });
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": { "name": "widgets.example.io" },
        "spec": {
            "group": "example.io", "scope": "Namespaced",
            "versions": [{ "name": "v1", "served": true, "storage": true, "schema": { "openAPIV3Schema": schema } }],
            "names": { "kind": "Widget", "listKind": "WidgetList", "plural": "widgets", "singular": "widget" },
        },
    })
}

fn widget(name: &str, color: &str) -> Value {
    json!({
        "apiVersion": "example.io/v1", "kind": "Widget",
        "metadata": { "namespace": "default", "name": name }, "spec": { "color": color },
    })
}

fn color(object: &Value) -> &str {
    object["spec"]["color"].as_str().unwrap_or("no")
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let api = Api::new(Clock::real());
    let resource = Resource::new("example.io", "v1", "widgets");
    api.load_values(vec![definition(), widget("one", "red"), widget("two", "green")])?;
    let server = ApiServer::start(api.clone()).await?;

    let client = Client::try_from(Config::new(server.url().parse()?))?;
    let factory = Factory::new(client, Handle::current(), Settings::default());
    let kind = ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk("example.io", "v1", "Widget"), "widgets");
    let widgets = factory.informer(Query::all(kind), Projection::<Value>::serde());
    widgets.store().add_index("color", |object| object.decoded().map(|it| color(it).to_owned()).into_iter().collect());
    let reports_failures = widgets.on_error(|error| println!("  ({} failed: {})", error.phase, error.reason));

    let (events, mut reported) = tokio::sync::mpsc::unbounded_channel();
    let registration = widgets.add_handler(move |event: Event<Value>| {
        let what = match &event {
            Event::Added { initial: true, .. } => "is there",
            Event::Added { .. } => "was added",
            Event::Updated { .. } => "was updated",
            Event::Deleted { found_by_relist: true, .. } => "is gone, as a list showed",
            Event::Deleted { .. } => "was deleted",
        };
        // The receiver may be dropped already at the end.
        drop(events.send(format!("{} {what}", event.key())));
    });
    widgets.wait_for_sync(PATIENCE).await?;
    registration.synced().await;
    println!("The first list, streamed:");
    for _ in 0..2 {
        println!("  {}", reported.recv().await.unwrap_or_default());
    }
    println!("  green: {}", widgets.store().by_index("color", "green")?.len());

    println!("A change, and one more Widget:");
    let mut changed = Value::clone(&*api.get(&resource, "default", "one")?);
    changed["spec"]["color"] = json!("green");
    api.update(&resource, changed)?;
    api.create(&resource, widget("three", "blue"))?;
    for _ in 0..2 {
        println!("  {}", reported.recv().await.unwrap_or_default());
    }
    println!("  green: {}", widgets.store().by_index("color", "green")?.len());

    println!("The watch is cut, its version expires, and a Widget goes meanwhile:");
    let refused = server.faults().add(Fault::refuse(503, "ServiceUnavailable", "not now").on_verb("watch"));
    let cut = server.faults().add(Fault::watch(WatchFault::CutAfter(0)));
    refused.wait_for_hits(1).await;
    cut.remove();
    api.delete(&resource, "default", "two", &DeleteOptions::default())?;
    api.forget_history();
    refused.remove();
    println!("  {}", reported.recv().await.unwrap_or_default());
    println!("  {} Widgets, lists: {:?}", widgets.store().len(), widgets.status().lists);

    drop((reports_failures, registration));
    factory.shutdown().await;
    Ok(())
}
