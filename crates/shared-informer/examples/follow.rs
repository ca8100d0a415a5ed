//! Follows any kind of the cluster that the kubeconfig's current context names, and prints each change.
//!
//! ```console
//! cargo run -p shared-informer --example follow -- nodes
//! cargo run -p shared-informer --example follow -- deployments apps v1 Deployment
//! ```

use std::{error::Error, process::exit, time::Duration};

use kube::{
    Client, Config,
    core::{ApiResource, GroupVersionKind},
};
use serde_json::Value;
use shared_informer::{Event, Factory, Projection, Query, Settings};
use tokio::runtime::Handle;

fn kind(arguments: &[String]) -> Option<ApiResource> {
    let (plural, kind) = match arguments {
        [plural] if plural == "nodes" => (plural, GroupVersionKind::gvk("", "v1", "Node")),
        [plural] if plural == "pods" => (plural, GroupVersionKind::gvk("", "v1", "Pod")),
        [plural, group, version, kind] => (plural, GroupVersionKind::gvk(group, version, kind)),
        _ => return None,
    };
    Some(ApiResource::from_gvk_with_plural(&kind, plural))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let Some(kind) = kind(&arguments) else {
        eprintln!("usage: follow nodes | follow pods | follow PLURAL GROUP VERSION KIND");
        exit(2);
    };
    // The informer tries again by itself, and a watch is silent for as long as nothing changes.
    let mut config = Config::infer().await?;
    (config.default_retry, config.read_timeout) = (false, None);

    let factory = Factory::new(Client::try_from(config)?, Handle::current(), Settings::default());
    let informer = factory.informer(Query::all(kind), Projection::<Value>::serde());
    let reports_failures = informer.on_error(|error| eprintln!("{} failed: {}", error.phase, error.reason));
    let registration = informer.add_handler(|event: Event<Value>| match &event {
        Event::Added { object, .. } => println!("+ {}", object.key()),
        Event::Updated { new, .. } => println!("~ {} {:?}", new.key(), new.metadata.resource_version),
        Event::Deleted { last, .. } => println!("- {}", last.key()),
    });
    informer.wait_for_sync(Duration::from_secs(30)).await?;
    println!("in sync, {} objects", informer.store().len());
    tokio::signal::ctrl_c().await?;
    drop((reports_failures, registration));
    factory.shutdown().await;
    Ok(())
}
