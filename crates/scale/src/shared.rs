//! The state that all commands share.

use std::sync::Arc;

use shared_informer::Spawner;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{
    accepted_deletions::AcceptedDeletions, api::Api, events::EventRecorder, history::History, lane::Lanes,
    metrics::ScaleMetrics, options::ScaleOptions, refusals::Refusals, repeats::Repeats,
};
use index::Index;

/// The state that the commands of one workload cluster share.
pub(super) struct Shared {
    pub(super) index: Arc<Index>,
    pub(super) api: Api,
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
}
