//! Shared informers: live, indexed copies of any kind of Kubernetes object, chosen at run time.
//!
//! A [`Factory`] shares one [`Informer`] per query (resource, namespaces, selectors, Rust type, projection): all
//! users of the same query share one list and one watch. An informer keeps a [`Store`], calls [`Handler`]s for
//! changes, and reports its health in a [`Status`], which distinguishes a broken watch from a quiet one.
//!
//! This crate must never know what the objects mean, never write to the API server, and never log what an object holds.
//!
//! Without the default feature `client` it has no informers: it only decodes objects from JSON, without tokio and
//! without a client.
//!
//! ```
//! use shared_informer::{Event, Factory, Projection, Query, Settings};
//! use k8s_openapi::api::core::v1::Node;
//! use kube::core::ApiResource;
//! use std::time::Duration;
//!
//! # #[tokio::main]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let client = doc::client();
//! let factory = Factory::new(client, tokio::runtime::Handle::current(), Settings::default());
//! let nodes = factory.informer(Query::all(ApiResource::erase::<Node>(&())), Projection::<Node>::serde());
//!
//! let registration = nodes.add_handler(|event: Event<Node>| match event {
//!     Event::Added { object, initial } => println!("{} is there (from the first list: {initial})", object.key()),
//!     Event::Updated { old, new } => println!("{:?} -> {:?}", old.metadata, new.metadata),
//!     Event::Deleted { last, found_by_relist } => println!("{} is gone ({found_by_relist})", last.key()),
//! });
//!
//! nodes.wait_for_sync(Duration::from_secs(30)).await?;
//! assert_eq!(nodes.store().len(), 1);
//! # drop(registration);
//! # Ok(())
//! # }
//! # mod doc {
//! #     use http::{Request, Response};
//! #     use kube::client::Body;
//! #
//! #     /// A client of an API server of one Node, in place of a cluster.
//! #     pub fn client() -> kube::Client {
//! #         let list = r#"{"metadata":{"resourceVersion":"10"},"items":[
//! #             {"metadata":{"name":"one","uid":"u","resourceVersion":"1","labels":{"zone":"a"}},"status":{}}]}"#;
//! #         let server = tower::service_fn(move |request: Request<Body>| async move {
//! #             let query = request.uri().query().unwrap_or_default();
//! #             let (code, body) = match query {
//! #                 query if query.contains("sendInitialEvents") => (422, "{}"),
//! #                 query if query.contains("watch=true") => std::future::pending().await,
//! #                 _ => (200, list),
//! #             };
//! #             Response::builder().status(code).body(Body::from(body.as_bytes().to_vec()))
//! #         });
//! #         kube::Client::new(server, "default")
//! #     }
//! # }
//! ```
//!
//! # From client-go to here
//!
//! | client-go | here |
//! |---|---|
//! | `SharedInformerFactory`, `DynamicSharedInformerFactory` | [`Factory`]: one for typed and for dynamic objects |
//! | `factory.ForResource(gvr)`, `factory.Core().V1().Nodes()` | [`Factory::informer`]; concurrent calls start one watch |
//! | `factory.Start` | not needed: an informer starts when it is first requested |
//! | `factory.WaitForCacheSync`, `cache.WaitForCacheSync` | [`Factory::wait_for_sync`], [`Informer::wait_for_sync`], with a deadline; [`NotSynced`] names the missing ones with the reason |
//! | `factory.Shutdown`, closing a stop channel | [`Factory::shutdown`]; or drop the last [`Informer`] and [`Registration`] |
//! | `WithNamespace` (one) | [`Query::namespaced`]: any number in one informer, a watch for each |
//! | `WithTweakListOptions` | [`Query::labels`], [`Query::fields`] |
//! | `SetTransform` | a [`Projection`], which decodes directly to the stored type |
//! | `unstructured.Unstructured` | `Projection::<serde_json::Value>::serde()`, or `kube::core::DynamicObject`; `Box<RawValue>` keeps the text alone, an eighth of the memory |
//! | `Indexer`, `AddIndexers` (before the start) | [`Store`], [`Store::add_index`] (at any time), [`Store::by_index`], [`Store::index_values`] |
//! | `cache.MetaNamespaceKeyFunc` | [`ObjectKey`] |
//! | `Lister`, `NamespaceLister` | a clone of [`Informer::store`], which doesn't keep the informer alive; [`Store::in_namespace`] |
//! | `AddEventHandler`, `AddEventHandlerWithResyncPeriod` | [`Informer::add_handler`], [`Informer::add_named_handler`] |
//! | `RemoveEventHandler` | drop the [`Registration`] |
//! | `ResourceEventHandlerRegistration.HasSynced` | [`Registration::has_synced`], [`Registration::synced`], [`Handler::synced`] |
//! | `OnAdd(obj, isInInitialList)` | [`Event::Added`] |
//! | `OnUpdate(old, new)` | [`Event::Updated`] |
//! | `OnDelete(obj)`, `DeletedFinalStateUnknown` | [`Event::Deleted`] with `found_by_relist` |
//! | resync period, one for all that share | none: a handler that is added again first receives all objects |
//! | `SetWatchErrorHandler` (one, before the start) | [`Informer::on_error`], any number at any time |
//! | `DeltaFIFO`, `processorListener` | a queue per handler |
//! | unbounded buffers of slow listeners | queued events of one object are merged: a queue never holds more than there are objects; lists wait while more than 1,000 are queued, for 10 seconds in all |
//! | `WatchListClient` | [`Settings::streaming_lists`], with pages if the server has no streamed lists |
//! | a list that fails for one object | the object is stored under its key with its [`DecodeError`]; see [`Store::undecodable`] |
//! | workqueue metrics, reflector metrics | [`Informer::status`], [`Factory::statuses`] |
//!
//! # Guarantees for handlers
//!
//! - A handler receives one change at a time, on a task of its own, and the changes of each object in order. It never
//!   receives a state older than one it has received.
//! - The current objects come first, marked as initial; then one call of [`Handler::synced`]; then the changes.
//! - Changes of an object that wait for the handler are merged: an update goes from the state that the handler
//!   received last to the current one; an object that was created and deleted meanwhile is left out; an object that
//!   was deleted and created again under its name (with another uid) is a delete and an add.
//! - Once a handler's queue is empty, the received events add up to the store's content, whatever failed meanwhile:
//!   expired versions, cut connections, repeated or late events, objects that don't decode.
//!
//! # Late events
//!
//! The store skips an event whose version is smaller than that of the stored object under its key, or not greater than
//! that of the deletion of the same uid. It remembers the last 1,024 deletions since the last list. A list overrules
//! both, so that the store follows a restored backup.
//!
//! Versions are compared only if both are numbers, as Kubernetes guarantees. If a server's versions aren't numbers,
//! its events are applied in order of arrival. A server that numbers the versions of each object separately works
//! too, as long as it sends the deletion of an object before its successor.
//!
//! A late event of an object that was deleted before the last list can't be distinguished from a new object. That
//! object stays in the store until the next event of its key or the next list.
//!
//! ```
//! use shared_informer::{Event, Factory, Projection, Query};
//! use kube::core::{ApiResource, GroupVersionKind};
//! use serde_json::Value;
//! use std::time::Duration;
//!
//! async fn follow(factory: Factory) -> Result<(), Box<dyn std::error::Error>> {
//!     // Any kind, named at run time by discovery, as plain JSON without unused fields.
//!     let kind = GroupVersionKind::gvk("", "v1", "Node");
//!     let nodes = factory.informer(
//!         Query::all(ApiResource::from_gvk_with_plural(&kind, "nodes")).labels("pool=web"),
//!         Projection::new("no-status", |_, mut object: Value| {
//!             object.as_object_mut().map(|fields| fields.remove("status"));
//!             Ok(object)
//!         }),
//!     );
//!     let error_hook = nodes.on_error(|error| eprintln!("{}: {} failed: {}", error.resource, error.phase, error.reason));
//!     let audit = nodes.add_named_handler("audit", |event: Event<Value>| println!("{}", event.key()));
//!
//!     factory.wait_for_sync(Duration::from_secs(30)).await?;
//!     audit.synced().await;
//!     let zone = |object: &Value| object["metadata"]["labels"]["zone"].as_str().map(ToOwned::to_owned);
//!     nodes.store().add_index("zone", move |object| object.decoded().and_then(|it| zone(it)).into_iter().collect());
//!
//!     println!("{} Nodes in zone a", nodes.store().by_index("zone", "a")?.len());
//!     drop(error_hook);
//!     factory.shutdown().await;
//!     Ok(())
//! }
//! ```

#[cfg(feature = "client")]
mod informer;
mod intern;
mod object;
mod projection;

#[cfg(feature = "client")]
pub use self::informer::*;
pub use self::{
    intern::Interner,
    object::{DecodeError, Identity, IdentityText, Metadata, Object, ObjectKey, ResourceVersion, Uid},
    projection::{Document, Identified, Projection},
};
