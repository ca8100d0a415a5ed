//! Informers: list and watch over a kube client, stores, handlers. This module needs tokio and kube, and exists only
//! with the feature `client`. The files beside it decode objects, and must never need either.

mod backoff;
mod bookmark;
mod compare;
mod delivery;
mod event;
mod factory;
mod failure;
mod frames;
mod gauge;
mod handle;
mod hook;
mod index;
mod lister;
mod listing;
mod memory;
mod progress;
mod query;
mod queue;
mod reflector;
mod registry;
mod settings;
mod shared_limit;
mod slot;
mod status;
mod store;
mod stored;
mod stream;
mod tasks;
mod tombstones;
mod wire;

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
mod tests;

#[doc(hidden)]
pub use self::compare::{ReadFrames, read_frames};
pub use self::{
    event::{Event, Handler},
    factory::Factory,
    handle::{Informer, Registration},
    hook::{ErrorHook, Phase, WatchError},
    index::UnknownIndex,
    lister::{AsOf, Lister, NamespaceLister},
    query::{Namespaces, Query},
    settings::{NamespaceLimit, Settings},
    shared_limit::SharedLimit,
    slot::HandlerOptions,
    status::{BrokenScope, EventCounts, HandlerStatus, ListCounts, NotSynced, ScopeStatus, Status, Unsynced},
    store::Store,
    tasks::{Spawner, Task},
};
