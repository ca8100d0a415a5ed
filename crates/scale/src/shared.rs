//! The state that all commands and reconciles share.

use std::sync::Arc;

use capi::{Machine, ObjectKey};
use shared_informer::{AsOf, Spawner};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{
    accepted_deletions::AcceptedDeletions, api::Api, events::EventRecorder, history::History, lane::Lanes,
    memory::Memory, metrics::ScaleMetrics, options::ScaleOptions, refusals::Refusals, repeats::Repeats,
};
use index::Index;

/// The watch of Machines.
pub trait WatchedMachines: Send + Sync {
    /// Returns the Machine with this name, as of this resourceVersion or later.
    fn as_of(&self, key: &ObjectKey, version: u64) -> AsOf<Machine>;

    /// Returns true unless Machines of a namespace may exist that the index doesn't have, since there are too many.
    fn has_all_of(&self, _namespace: &str) -> bool {
        true
    }
}

/// The state that the commands and reconciles of one workload cluster share.
pub(super) struct Shared {
    pub(super) index: Arc<Index>,
    pub(super) api: Api,
    pub(super) machines: Arc<dyn WatchedMachines>,
    pub(super) options: ScaleOptions,
    pub(super) metrics: ScaleMetrics,
    pub(super) events: EventRecorder,
    pub(super) history: History,
    pub(super) spawner: Spawner,
    pub(super) tasks: TaskTracker,
    pub(super) ended: CancellationToken,
    pub(super) lanes: Lanes,
    pub(super) accepted_deletions: AcceptedDeletions,
    pub(super) refusals: Refusals,
    pub(super) repeats: Repeats,
    pub(super) memory: Memory,
}
