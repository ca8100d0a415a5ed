//! Kubernetes Events on node groups, for changes and refusals. A separate task posts them from a bounded queue. It must
//! never delay or fail a command: an Event that can't be posted is counted and dropped.
//!
//! kube's own recorder merges Events that differ only in their note, so that `size 2 → 5` would stand for every later
//! size; it also waits for each answer and has no limits.

mod limit;
mod post;
mod reason;
mod series;
#[cfg(test)]
mod tests;

use std::{sync::Arc, time::Duration};

use arc_swap::ArcSwapOption;
use jiff::Timestamp;
use kube::Client;
use parking_lot::Mutex;
use tokio::{
    sync::mpsc::{self, Receiver, Sender},
    task::JoinHandle,
    time::{Instant, sleep_until, timeout},
};
use tokio_util::sync::CancellationToken;

pub use self::reason::EventReason;
pub(super) use self::reason::{EventContent, asked_for_by};
use self::{
    limit::{Bucket, OF_A_CLUSTER},
    post::Poster,
    series::Publisher,
};
use super::metrics::{EventResult, ScaleMetrics};
use connect::discovery::CoreResources;
use rules::GroupId;
use shared_informer::{Spawner, Uid};

/// The maximum number of queued Events.
const QUEUE: usize = 256;
/// The time for which Events may still be posted at the end.
const AT_THE_END: Duration = Duration::from_secs(1);

/// An event on a group: its content and its time.
#[derive(Clone, Debug)]
struct Occurrence {
    group: GroupId,
    uid: Uid,
    content: EventContent,
    at: Timestamp,
}

/// Queues Events and posts them in the background.
#[derive(Clone, Default)]
pub struct EventRecorder {
    /// `None` if Events are turned off.
    running: Option<Arc<Running>>,
    /// The limit of one of many Clusters.
    own: Option<Arc<Mutex<Bucket>>>,
}

struct Running {
    sender: Sender<Occurrence>,
    metrics: ScaleMetrics,
    ended: CancellationToken,
    task: Mutex<Option<JoinHandle<()>>>,
}

impl EventRecorder {
    /// Returns a recorder that posts nothing.
    #[must_use]
    pub fn off() -> Self {
        Self::default()
    }

    /// Starts to post through `client` as this instance of the program. `resources` says how the kinds of groups are
    /// served.
    #[must_use]
    pub fn start(
        client: Client,
        resources: Arc<ArcSwapOption<CoreResources>>,
        instance: &str,
        metrics: ScaleMetrics,
        runtime: impl Into<Spawner>,
    ) -> Self {
        let (sender, receiver) = mpsc::channel(QUEUE);
        let ended = CancellationToken::new();
        let publisher = Publisher::new(Poster::new(client, resources, instance), metrics.clone());
        let task = runtime.into().spawn(publish(publisher, receiver, ended.clone()));
        let running = Running { sender, metrics, ended, task: Mutex::new(Some(task)) };
        Self { running: Some(Arc::new(running)), own: None }
    }

    /// Returns the same recorder for one of many Clusters, whose Events take no place in the queue beyond a limit of
    /// its own.
    #[must_use]
    pub fn of_one_of_many(&self) -> Self {
        Self { running: self.running.clone(), own: Some(Arc::new(Mutex::new(Bucket::new(Instant::now())))) }
    }

    /// Queues an Event on the group whose object has this uid.
    pub(super) fn record(&self, group: &GroupId, uid: &Uid, content: EventContent) {
        let Some(running) = &self.running else { return };
        if self.own.as_ref().is_some_and(|own| !own.lock().take(OF_A_CLUSTER, Instant::now())) {
            return running.metrics.count_events(EventResult::Limited, 1);
        }
        let occurrence = Occurrence { group: group.clone(), uid: uid.clone(), content, at: Timestamp::now() };
        if running.sender.try_send(occurrence).is_err() {
            running.metrics.count_events(EventResult::Dropped, 1);
        }
    }

    /// Posts the queued Events, for a second at most, and ends. Later ones are dropped, whichever clone records them.
    pub async fn end(&self) {
        self.finish(AT_THE_END).await;
    }

    /// Posts the queued Events for at most `limit`, and ends.
    async fn finish(&self, limit: Duration) {
        let Some(running) = &self.running else { return };
        running.ended.cancel();
        let task = running.task.lock().take();
        if let Some(mut task) = task
            && timeout(limit, &mut task).await.is_err()
        {
            task.abort();
        }
    }
}

async fn publish(mut publisher: Publisher, mut receiver: Receiver<Occurrence>, ended: CancellationToken) {
    loop {
        let due = publisher.next_due();
        tokio::select! {
            biased;
            () = ended.cancelled(), if !receiver.is_closed() => receiver.close(),
            occurrence = receiver.recv() => match occurrence {
                Some(occurrence) => publisher.take(occurrence).await,
                None => break,
            },
            () = async { if let Some(due) = due { sleep_until(due).await } }, if due.is_some() => {
                publisher.post_due().await;
            }
        }
    }
    publisher.post_rest().await;
}
