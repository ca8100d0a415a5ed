//! Kubernetes Events on node groups: what was done to them, and what was refused. They are posted by a task of their own
//! from a bounded queue. It must never hold up or fail a command: what can't be posted is counted and let go.
//!
//! kube's own recorder takes Events that differ only in their note for one, so that `size 2 → 5` would stand for every
//! later size, waits for each answer, and knows no limits.

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
    time::{sleep_until, timeout},
};
use tokio_util::sync::CancellationToken;

pub use self::reason::EventReason;
pub(super) use self::reason::{EventContent, asked_by};
use self::{post::Poster, series::Publisher};
use super::metrics::{EventResult, ScaleMetrics};
use crate::discovery::CoreResources;
use nodegroup::GroupId;
use shared_informer::{Spawner, Uid};

/// How many Events wait at most.
const QUEUE: usize = 256;

/// Something that happened to a group.
#[derive(Clone, Debug)]
struct Occurrence {
    group: GroupId,
    uid: Uid,
    content: EventContent,
    at: Timestamp,
}

/// Takes Events and posts them in the background.
#[derive(Clone, Default)]
pub struct EventRecorder {
    /// `None`: Events are turned off.
    running: Option<Arc<Running>>,
}

struct Running {
    sender: Sender<Occurrence>,
    metrics: ScaleMetrics,
    ended: CancellationToken,
    task: Mutex<Option<JoinHandle<()>>>,
}

impl EventRecorder {
    /// Posts nothing.
    #[must_use]
    pub fn off() -> Self {
        Self::default()
    }

    /// Posts through `client` as this instance of the program. `resources` says how the kinds of groups are served.
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
        Self { running: Some(Arc::new(Running { sender, metrics, ended, task: Mutex::new(Some(task)) })) }
    }

    /// Tells what happened to the group whose object has this uid.
    pub(super) fn record(&self, group: &GroupId, uid: &Uid, content: EventContent) {
        let Some(running) = &self.running else { return };
        let occurrence = Occurrence { group: group.clone(), uid: uid.clone(), content, at: Timestamp::now() };
        if running.sender.try_send(occurrence).is_err() {
            running.metrics.count_events(EventResult::Dropped, 1);
        }
    }

    /// Posts what waits, for at most `limit`, and ends.
    pub(super) async fn finish(&self, limit: Duration) {
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
