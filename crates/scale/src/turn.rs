//! The state of a group's turn, and the gate of its writes: each is made here, once it has a slot among Clusters and the
//! Cluster may be written.

use std::{
    collections::BTreeSet,
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, Ordering},
    },
};

use arcstr::ArcStr;
use index::{Index, ScaleView};
use parking_lot::Mutex;
use rules::{GroupId, call_error::CallError};
use shared_informer::Spawner;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{
    ScaleOptions,
    accepted::AcceptedDeletions,
    api::Api,
    error::ScaleError,
    events::EventRecorder,
    history::History,
    limited_log::Refusals,
    metrics::{ScaleMetrics, Write},
    queue::{Caller, Lanes},
    refusal,
    repeats::Repeats,
    report::SizeChange,
    retry::Attempts,
};

/// One turn of a group: a command, a batch of deletes, or an observation.
pub(super) struct Turn {
    pub(super) shared: Arc<Shared>,
    pub(super) id: GroupId,
    /// The size written in this turn.
    pub(super) size_change: Mutex<Option<SizeChange>>,
    /// The clients whose commands this turn carries out.
    pub(super) clients: Mutex<BTreeSet<ArcStr>>,
    /// The calls that wait for this turn's commands.
    callers: Mutex<Vec<Weak<()>>>,
    /// True once something was written in this turn.
    pub(super) has_written: AtomicBool,
    /// True once a write of this turn had no answer.
    pub(super) may_have_written: AtomicBool,
}

impl Turn {
    pub(super) fn new(shared: Arc<Shared>, id: GroupId) -> Self {
        Self {
            shared,
            id,
            size_change: Mutex::default(),
            clients: Mutex::default(),
            callers: Mutex::default(),
            has_written: AtomicBool::default(),
            may_have_written: AtomicBool::default(),
        }
    }

    pub(super) fn index(&self) -> &Index {
        &self.shared.index
    }

    pub(super) fn api(&self) -> &Api {
        &self.shared.api
    }

    /// Returns the group as it is now.
    pub(super) fn view(&self) -> Result<ScaleView, ScaleError> {
        self.index().scale_view(&self.id).map_err(|why| refusal::not_scalable(&self.id, &why))
    }

    /// Returns attempts that count each retry.
    pub(super) fn attempts(&self) -> Attempts {
        Attempts::counted(self.shared.metrics.retries())
    }

    /// Returns attempts of what must not be given up early.
    pub(super) fn persistent_attempts(&self) -> Attempts {
        Attempts::persistent(self.shared.metrics.retries())
    }

    /// Makes a call that writes, unless the Cluster may not be written any more. One of many Clusters isn't written either
    /// once nobody waits for this turn: the slot may have been long in coming.
    pub(super) async fn write<T>(
        &self,
        write: Write,
        call: impl Future<Output = Result<T, CallError>> + Send,
    ) -> Result<T, CallError> {
        let checked = async {
            self.api().tenancy().check()?;
            if self.api().tenancy().is_one_of_many() && self.is_abandoned() {
                return Err(CallError::Abandoned);
            }
            call.await
        };
        self.write_unchecked(write, checked).await
    }

    /// Waits for a slot of the Cluster, makes the call, and counts it, without asking if the Cluster may still be written.
    /// Only marks are taken back by this alone, also of a Cluster that isn't served any more.
    pub(super) async fn write_unchecked<T>(
        &self,
        write: Write,
        call: impl Future<Output = Result<T, CallError>> + Send,
    ) -> Result<T, CallError> {
        let _slot = self.api().tenancy().slot().await;
        let started = std::time::Instant::now();
        let result = call.await;
        self.shared.metrics.count_write(write, result.as_ref().err(), started.elapsed());
        if write != Write::DryRun {
            self.has_written.fetch_or(result.is_ok(), Ordering::Relaxed);
            self.may_have_written.fetch_or(matches!(result, Err(CallError::OutcomeUnknown(..))), Ordering::Relaxed);
        }
        result
    }

    /// Returns true if nobody waits for the commands of this turn any more, and nothing was written for them.
    pub(super) fn is_abandoned(&self) -> bool {
        self.has_no_caller()
            && !self.has_written.load(Ordering::Relaxed)
            && !self.may_have_written.load(Ordering::Relaxed)
    }

    /// Returns true if nobody waits for the commands of this turn any more.
    pub(super) fn has_no_caller(&self) -> bool {
        let callers = self.callers.lock();
        !callers.is_empty() && callers.iter().all(|caller| caller.strong_count() == 0)
    }

    /// Records the callers whose commands this turn carries out.
    pub(super) fn note_callers<'a>(&self, callers: impl IntoIterator<Item = &'a Caller>) {
        for caller in callers {
            self.callers.lock().push(caller.waiting.clone());
            self.clients.lock().extend(caller.client.clone());
        }
    }
}

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
