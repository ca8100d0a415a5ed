//! Follows the ConfigMaps in which Nodes are remembered, each by its name alone. That one can't be read, or isn't there,
//! concerns nothing else.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use index::{Memory, PlaceView, Reading};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::core::ApiResource;
use rules::capi::{Meta, ObjectKey};
use service::listen::Check;
use shared_informer::{Event, Factory, Handler, Object, Projection, Query};
use tokio::time::sleep;

/// The interval at which the health of the first list is checked.
const LOOK: Duration = Duration::from_secs(1);

const MISSING: &str = "there is no such ConfigMap: create it without data";

/// The data of a ConfigMap.
#[derive(Debug, Eq, PartialEq)]
struct Data {
    meta: Meta,
    data: BTreeMap<String, String>,
}

impl Data {
    fn projection() -> Projection<Self> {
        let read = |meta: &Meta, of: ConfigMap| Ok(Self { meta: meta.clone(), data: of.data.unwrap_or_default() });
        Projection::decoded("core/ConfigMap", read)
            .with_identity_within(|data| &data.meta)
            .with_bytes(|data| data.data.iter().map(|(name, value)| name.len() + value.len()).sum())
    }
}

/// Puts the content of one ConfigMap into the memory.
struct IntoMemory {
    memory: Arc<Memory>,
    config_map: ObjectKey,
    is_there: bool,
}

impl IntoMemory {
    fn put(&mut self, object: &Object<Data>) {
        if object.metadata.key != self.config_map {
            return;
        }
        self.is_there = true;
        match &object.content {
            Ok(found) => {
                let data = found.data.iter().map(|(name, value)| (name.as_str(), value.as_str()));
                self.memory.set_content(&self.config_map, &found.meta.resource_version.to_string(), data);
            }
            Err(error) => self.memory.set_unreadable(&self.config_map, &error.to_string()),
        }
    }
}

impl Handler<Data> for IntoMemory {
    fn handle(&mut self, event: Event<Data>) {
        match event {
            Event::Added { object, .. } | Event::Updated { new: object, .. } => self.put(&object),
            Event::Deleted { last, .. } if last.metadata.key == self.config_map => {
                self.is_there = false;
                self.memory.set_deleted(&self.config_map, MISSING);
            }
            Event::Deleted { .. } => {}
        }
    }

    fn synced(&mut self) {
        if !self.is_there {
            self.memory.set_unreadable(&self.config_map, MISSING);
        }
    }
}

/// Follows a ConfigMap into the memory. Never returns; drop the future to stop.
pub(super) async fn follow(memory: Arc<Memory>, config_map: ObjectKey, factory: Factory) {
    let query = Query::namespaced(ApiResource::erase::<ConfigMap>(&()), [config_map.namespace.as_str()])
        .fields(format!("metadata.name={}", config_map.name));
    let informer = factory.informer(query, Data::projection());
    let handler = IntoMemory { memory: Arc::clone(&memory), config_map: config_map.clone(), is_there: false };
    let registration = informer.add_named_handler("memory", handler);
    while !registration.has_synced() {
        if let Some(broken) = informer.scopes().into_iter().find_map(|scope| scope.broken) {
            memory.set_unreadable(&config_map, &broken.reason);
        }
        tokio::select! {
            () = registration.synced() => {}
            () = sleep(LOOK) => {}
        }
    }
    std::future::pending::<()>().await;
}

pub(super) fn checks(memory: &Memory) -> impl Iterator<Item = Check> {
    memory.view().into_iter().filter_map(|PlaceView { config_map, reading, unwritable, .. }| {
        let why = match reading {
            Reading::Unreadable(why) => why,
            Reading::Pending | Reading::Read => unwritable?,
        };
        let why = format!("what is remembered of Nodes isn't kept beyond a restart: {why}");
        Some(Check::informational(format!("remembered/{config_map}"), why))
    })
}
