//! Shared informers: live, indexed copies of any kind of Kubernetes object, chosen at run time.
//!
//! A [`Factory`] hands out one [`Informer`] per question (resource, namespaces, selectors, Rust type); all who ask the
//! same question share one list and one watch. An informer keeps a [`Store`], tells [`Handler`]s what changed, and says
//! in its [`Status`] how it fares, so that a broken watch can be told from a quiet one.
//!
//! This room must never know what the objects mean, never write to the API server, and never log what an object holds.
//!
//! ```no_run
//! use capi_autoscaler_provider::informer::{Factory, Projection, Query, Settings};
//! use k8s_openapi::api::core::v1::Node;
//! use kube::core::ApiResource;
//! use std::time::Duration;
//!
//! # async fn doc(client: kube::Client) -> Result<(), Box<dyn std::error::Error>> {
//! let factory = Factory::new(client, tokio::runtime::Handle::current(), Settings::default());
//! let nodes = factory.informer(
//!     Query::all(ApiResource::erase::<Node>(&())),
//!     Projection::<Node>::serde(),
//! );
//! nodes.wait_for_sync(Duration::from_secs(30)).await?;
//! println!("{} nodes", nodes.store().len());
//! # Ok(())
//! # }
//! ```

mod backoff;
mod event;
mod factory;
mod failure;
mod handle;
mod hook;
mod identity;
mod index;
mod intern;
mod lister;
mod object;
mod progress;
mod projection;
mod query;
mod queue;
mod reflector;
mod settings;
mod slot;
mod status;
mod store;
mod stream;
mod wire;

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
mod tests;

pub use self::{
    event::{Event, Handler},
    factory::Factory,
    handle::{Informer, Registration},
    hook::{ErrorHook, Phase, WatchError},
    identity::{Metadata, ObjectKey, ResourceVersion, Uid},
    index::UnknownIndex,
    intern::Interner,
    lister::{Lister, NamespaceLister},
    object::{DecodeError, Object},
    projection::Projection,
    query::{Namespaces, Query},
    settings::Settings,
    slot::HandlerOptions,
    status::{EventCounts, HandlerStatus, ListCounts, NotSynced, Status, Unsynced},
    store::Store,
};
