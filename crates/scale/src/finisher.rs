//! The task that lets the finisher reconcile groups, in every copy of the program. Changes from the watches wake it. It
//! keeps no state but the times since when it waits. It must never wait for a caller.

use std::sync::{Arc, Weak};

use tokio::{
    sync::watch,
    time::{Instant, sleep_until},
};
use tokio_util::sync::CancellationToken;

use super::{shared::Shared, turns};
use index::Index;

/// Finishes deletions until `ended`, or until `shared` is dropped.
pub(super) async fn run(
    shared: Weak<Shared>,
    index: Arc<Index>,
    mut changes: watch::Receiver<()>,
    ended: CancellationToken,
) {
    let Some(reconcile_ended) = shared.upgrade().map(|shared| shared.lanes.reconcile_ended()) else { return };
    let reconcile =
        || shared.upgrade().map(|shared| turns::reconcile_due(&shared, index.take_pending_deletes(), Instant::now()));
    while let Some(next) = reconcile() {
        tokio::select! {
            biased;
            () = ended.cancelled() => break,
            woken = changes.changed() => if woken.is_err() {
                break;
            },
            () = reconcile_ended.notified() => {}
            () = sleep_until(next.unwrap_or_else(Instant::now)), if next.is_some() => {}
        }
    }
    if let Some(shared) = shared.upgrade() {
        shared.lanes.stop_reconciles();
    }
}
