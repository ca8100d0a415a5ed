//! The task of one destination: it gathers changes into batches, limits the rate, and retries until a batch is
//! delivered, refused or too old.

use std::{sync::Arc, time::Duration};

use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::CancellationToken;

use super::{
    Rule,
    post::{Outcome, Poster},
    queue::{Batch, Queue},
    rules::Destination,
    url::SecretUrl,
};

/// The longest `Retry-After` that is respected.
const LONGEST_RETRY_AFTER: Duration = Duration::from_secs(300);
/// The pause between attempts while `watch` is ending.
const HURRIED: Duration = Duration::from_millis(250);
/// The longest `Retry-After` that is respected while `watch` is ending: nothing is sent after the end.
const LAST_RETRY_AFTER: Duration = Duration::from_secs(1);

/// The rate and the timeouts of sending.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Pace {
    /// The time for which the first change of a batch waits for more.
    pub gather: Duration,
    /// The shortest time between two messages.
    pub interval: Duration,
    /// The longest time that one request may take.
    pub timeout: Duration,
    /// The pause after the first failure; it doubles with each further failure.
    pub backoff: Duration,
    /// The longest pause.
    pub longest_backoff: Duration,
    /// The time after which a batch that can't be delivered is given up.
    pub give_up: Duration,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            gather: Duration::from_secs(2),
            interval: Duration::from_secs(1),
            timeout: Duration::from_secs(10),
            backoff: Duration::from_secs(1),
            longest_backoff: Duration::from_secs(60),
            give_up: Duration::from_secs(900),
        }
    }
}

impl Pace {
    /// Returns the pace with the overrides of a rule.
    pub(super) fn of(self, rule: &Rule) -> Self {
        Self { gather: rule.gather.unwrap_or(self.gather), interval: rule.interval.unwrap_or(self.interval), ..self }
    }
}

pub(super) struct Delivery {
    pub(super) name: String,
    pub(super) to: Destination,
    pub(super) queue: Arc<Queue>,
    pub(super) poster: Poster,
    pub(super) pace: Pace,
    pub(super) closing: CancellationToken,
}

impl Delivery {
    /// Runs until `closing` is cancelled and the queue is empty.
    pub(super) async fn run(self) {
        let mut earliest = Instant::now();
        loop {
            while self.queue.len() == 0 {
                if self.closing.is_cancelled() {
                    return;
                }
                self.unless_closing(self.queue.filled.notified()).await;
            }
            self.unless_closing(self.gather()).await;
            self.unless_closing(sleep_until(earliest)).await;
            if let Some(batch) = self.queue.take(self.to.kind.limits()) {
                earliest = Instant::now() + self.pace.interval;
                self.deliver(&batch).await;
            }
        }
    }

    /// Waits for more changes, unless there are enough for a batch.
    async fn gather(&self) {
        let end = Instant::now() + self.pace.gather;
        let enough = self.to.kind.limits().changes;
        while self.queue.len() < enough {
            tokio::select! {
                () = sleep_until(end) => return,
                () = self.queue.filled.notified() => {}
            }
        }
    }

    async fn deliver(&self, batch: &Batch) {
        let begun = Instant::now();
        let body = self.to.kind.body(batch);
        let mut pause = self.pace.backoff;
        let mut failures = 0_u32;
        loop {
            let (why, after) = match self.attempt(body.clone()).await {
                Outcome::Delivered => {
                    if failures > 0 {
                        tracing::info!(rule = self.name, failures, "notifications are delivered again");
                    }
                    return self.queue.sent(batch.changes.len());
                }
                Outcome::Refused(why) => return self.give_up(batch, &why),
                Outcome::Later { why, after } => (why, after),
            };
            if begun.elapsed() >= self.pace.give_up {
                return self.give_up(batch, &why);
            }
            // A receiver may request a longer pause than ours, but no shorter one: a receiver that is down may send 0.
            let wait = after.map_or(pause, |after| after.min(LONGEST_RETRY_AFTER).max(pause));
            if failures == 0 {
                tracing::warn!(rule = self.name, ?wait, "a notification can't be delivered and is tried again: {why}");
            } else {
                tracing::debug!(rule = self.name, ?wait, failures, "a notification still can't be delivered: {why}");
            }
            failures += 1;
            self.wait(wait, after).await;
            pause = (pause * 2).min(self.pace.longest_backoff);
        }
    }

    /// Waits before the next attempt. The end of `watch` interrupts the wait and shortens the next ones, because
    /// nothing is sent after it.
    async fn wait(&self, wait: Duration, asked: Option<Duration>) {
        if self.closing.is_cancelled() {
            let hurried = asked.map_or(HURRIED, |asked| asked.clamp(HURRIED, LAST_RETRY_AFTER));
            return sleep(wait.min(hurried)).await;
        }
        self.unless_closing(sleep(wait)).await;
    }

    async fn attempt(&self, body: Vec<u8>) -> Outcome {
        match self.url().await {
            Ok(url) => self.poster.post(&url, body).await,
            Err(why) => Outcome::Later { why, after: None },
        }
    }

    /// Reads the current URL: the file may have been rotated. It may also be on a disk that hangs, which must not
    /// block any other task.
    async fn url(&self) -> Result<SecretUrl, String> {
        let (source, allow_http) = (self.to.url.clone(), self.to.allow_http);
        let reading = tokio::task::spawn_blocking(move || source.read(allow_http));
        match tokio::time::timeout(self.pace.timeout, reading).await {
            Ok(Ok(read)) => read.map_err(|error| error.to_string()),
            Ok(Err(error)) => Err(format!("reading its URL failed: {error}")),
            Err(_) => Err(format!("its URL could not be read in {:?}", self.pace.timeout)),
        }
    }

    fn give_up(&self, batch: &Batch, why: &str) {
        tracing::warn!(rule = self.name, changes = batch.changes.len(), "a notification is given up: {why}");
        self.queue.failed(batch);
    }

    async fn unless_closing(&self, wait: impl Future<Output = ()>) {
        self.closing.run_until_cancelled(wait).await;
    }
}
