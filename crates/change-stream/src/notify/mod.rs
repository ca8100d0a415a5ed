//! Notifications of `watch`: changes that match a rule are sent to webhooks, in batches, at a limited rate, with
//! retries.
//!
//! Offering a change never blocks. The change goes into a queue of bounded length and size; if the queue is full, the
//! oldest change is dropped and counted. A URL is a secret, since it allows its holder to post: it is read from a file
//! or an environment variable, and must never appear in a log line, an error or a debug text.

mod delivery;
mod queue;
mod rules;
mod sink;

#[cfg(test)]
mod tests;

use std::{fmt, sync::Arc, time::Duration};

use anyhow::anyhow;
use tokio::{runtime::Handle, time::Instant};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::changes::Change;

use self::{
    delivery::{Delivery, Poster},
    queue::Queue,
};
pub use self::{
    delivery::{Pace, UrlSource},
    queue::{Counts, Limits},
    rules::{ActionName, Destination, Rule, parse_rules},
    sink::SinkKind,
};

/// The time that `watch` leaves for sending queued changes when it is asked to end.
pub const DRAIN: Duration = Duration::from_secs(5);

/// Sends changes to their destinations. Dropping it stops all sending.
pub struct Notifier {
    routes: Vec<Route>,
    tasks: TaskTracker,
    /// Cancelled when queued changes must be sent without delay, and no further ones are accepted.
    closing: CancellationToken,
    ended: CancellationToken,
}

struct Route {
    rule: Rule,
    queue: Arc<Queue>,
}

/// The outcome of the changes of one rule.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Summary {
    /// The rule's name.
    pub rule: String,
    /// The number of changes by outcome.
    pub counts: Counts,
}

impl Notifier {
    /// Starts a task per rule on `runtime`. It makes no request until there is something to send.
    ///
    /// # Errors
    /// If a URL can't be read or is invalid, or the system's certificates can't be read.
    pub fn start(rules: Vec<Rule>, limits: Limits, pace: Pace, runtime: &Handle) -> anyhow::Result<Self> {
        let mut needs_tls = false;
        for rule in &rules {
            needs_tls |= rule.to.url.read(rule.to.allow_http)?.is_https();
        }
        let poster = Poster::new(pace.timeout, needs_tls).map_err(|error| {
            anyhow!(
                "can't read the system's root certificates: {error}: install them, or name their file in SSL_CERT_FILE"
            )
        })?;
        let (tasks, closing, ended) = (TaskTracker::new(), CancellationToken::new(), CancellationToken::new());
        let route = |rule: Rule| {
            let queue = Arc::new(Queue::new(limits));
            let delivery = Delivery {
                name: rule.name.clone(),
                to: rule.to.clone(),
                queue: Arc::clone(&queue),
                poster: poster.clone(),
                pace,
                closing: closing.clone(),
            };
            let ended = ended.clone();
            tasks.spawn_on(async move { ended.run_until_cancelled(delivery.run()).await }, runtime);
            Route { rule, queue }
        };
        let routes = rules.into_iter().map(route).collect();
        tasks.close();
        Ok(Self { routes, tasks, closing, ended })
    }

    /// Queues a change for every rule that matches it. Never blocks.
    pub fn offer(&self, change: &Change) {
        if self.closing.is_cancelled() {
            return;
        }
        for route in self.routes.iter().filter(|route| route.rule.matches(change)) {
            if route.queue.push(route.rule.to.kind.render(change)) {
                tracing::warn!(rule = route.rule.name, "notifications are dropped: the queue is full");
            }
        }
    }

    /// Stops accepting changes, sends the queued ones without delay, and waits for that for at most `patience`. All
    /// tasks have ended when it returns.
    pub async fn drain(&self, patience: Duration) -> Vec<Summary> {
        self.closing.cancel();
        let deadline = Instant::now() + patience;
        if tokio::time::timeout_at(deadline, self.tasks.wait()).await.is_err() {
            self.ended.cancel();
            self.tasks.wait().await;
        }
        self.summary()
    }

    /// Returns the outcome of the changes so far.
    pub fn summary(&self) -> Vec<Summary> {
        let summary = |route: &Route| Summary { rule: route.rule.name.clone(), counts: route.queue.counts() };
        self.routes.iter().map(summary).collect()
    }
}

impl Drop for Notifier {
    fn drop(&mut self) {
        self.ended.cancel();
    }
}

impl fmt::Debug for Notifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Notifier").field("summary", &self.summary()).finish_non_exhaustive()
    }
}

impl Summary {
    /// Returns true if a change didn't arrive.
    pub(crate) fn has_losses(&self) -> bool {
        self.counts.dropped > 0 || self.counts.failed > 0 || self.counts.queued > 0
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Counts { offered, sent, messages, dropped, failed, queued } = self.counts;
        write!(
            f,
            "{}: {offered} changes, {sent} sent in {messages} messages, {dropped} dropped from a full queue, {failed} \
             given up, {queued} unsent at the end",
            self.rule
        )
    }
}
