//! Repeated Events: one that equals an earlier one, note included, is counted in its series instead of being posted
//! again. The counts are sent from time to time.

use std::{collections::HashMap, time::Duration};

use shared_informer::Uid;
use tokio::time::Instant;

use super::{
    EventContent, EventResult, Occurrence,
    limit::Limit,
    post::{NotPosted, Posted, Poster},
};
use crate::metrics::ScaleMetrics;

/// The interval at which the count of a series is sent.
const REPORTED_EVERY: Duration = Duration::from_secs(30);
/// The time after which a quiet series is over; the next occurrence is a new Event.
const QUIET_FOR: Duration = Duration::from_secs(6 * 60);
/// The maximum number of series that are remembered.
const MOST_SERIES: usize = 1000;
/// The time for which nothing is posted after the API server has refused the permission.
const FORBIDDEN_FOR: Duration = Duration::from_secs(60);

/// A series of equal Events.
struct Series {
    posted: Posted,
    last: Occurrence,
    count: i32,
    /// The time of the last write to the API server.
    reported: Instant,
    seen: Instant,
    /// The number of occurrences that the API server doesn't count yet.
    unreported: i32,
}

/// Decides which Events are posted.
pub(super) struct Publisher {
    poster: Poster,
    metrics: ScaleMetrics,
    limit: Limit,
    series: HashMap<(Uid, EventContent), Series>,
    /// The time until which nothing is posted, for lack of the permission.
    forbidden_until: Option<Instant>,
    /// True if it has been logged that the permission is missing.
    reported_forbidden: bool,
}

impl Publisher {
    pub(super) fn new(poster: Poster, metrics: ScaleMetrics) -> Self {
        Self {
            poster,
            metrics,
            limit: Limit::new(Instant::now()),
            series: HashMap::new(),
            forbidden_until: None,
            reported_forbidden: false,
        }
    }

    /// Returns the time at which the next count is due.
    pub(super) fn next_due(&self) -> Option<Instant> {
        self.series.values().filter(|series| series.unreported > 0).map(|series| series.reported + REPORTED_EVERY).min()
    }

    /// Posts an Event, or counts it in its series.
    pub(super) async fn take(&mut self, occurrence: Occurrence) {
        let now = Instant::now();
        self.forget(now);
        let key = (occurrence.uid.clone(), occurrence.content.clone());
        if let Some(series) = self.series.get_mut(&key) {
            series.count = series.count.saturating_add(1);
            series.unreported = series.unreported.saturating_add(1);
            series.last = occurrence;
            series.seen = now;
            self.post_due().await;
        } else {
            self.post_new(occurrence, now).await;
        }
    }

    /// Sends the counts that are due.
    pub(super) async fn post_due(&mut self) {
        let now = Instant::now();
        self.post_counts(|series| series.reported + REPORTED_EVERY <= now, now).await;
    }

    /// Sends all counts that haven't been sent.
    pub(super) async fn post_rest(&mut self) {
        self.post_counts(|_| true, Instant::now()).await;
    }

    async fn post_counts(&mut self, is_due: impl Fn(&Series) -> bool, now: Instant) {
        let due = self.series.iter().filter(|(_, series)| series.unreported > 0 && is_due(series));
        let due: Vec<_> = due.map(|(key, _)| key.clone()).collect();
        for key in due {
            let allowed = !self.is_forbidden(now);
            let Some(series) = self.series.get_mut(&key) else { continue };
            series.reported = now;
            if !allowed || !self.limit.take(&series.last.group, now) {
                // The next count includes them.
                continue;
            }
            let unreported = std::mem::take(&mut series.unreported);
            let result = self.poster.count(&series.posted, series.count, series.last.at).await;
            if let Err(NotPosted::Gone) = result {
                let last = series.last.clone();
                self.series.remove(&key);
                self.post_new(last, now).await;
                self.count_results(EventResult::Sent, unreported - 1);
                continue;
            }
            let result = self.judge(result);
            self.count_results(result, unreported);
        }
    }

    async fn post_new(&mut self, occurrence: Occurrence, now: Instant) {
        if self.is_forbidden(now) {
            return self.count_results(EventResult::Failed, 1);
        }
        if !self.limit.take(&occurrence.group, now) {
            return self.count_results(EventResult::Limited, 1);
        }
        match self.poster.create(&occurrence).await {
            Ok(posted) => {
                let key = (occurrence.uid.clone(), occurrence.content.clone());
                let series = Series { posted, last: occurrence, count: 1, reported: now, seen: now, unreported: 0 };
                self.series.insert(key, series);
                let result = self.judge(Ok(()));
                self.count_results(result, 1);
            }
            Err(error) => {
                let result = self.judge(Err(error));
                self.count_results(result, 1);
            }
        }
    }

    /// Classifies the API server's answer. A missing permission is logged once, until it is granted again.
    fn judge(&mut self, result: Result<(), NotPosted>) -> EventResult {
        match result {
            Ok(()) => {
                self.reported_forbidden = false;
                EventResult::Sent
            }
            Err(NotPosted::Forbidden(why)) => {
                self.forbidden_until = Some(Instant::now() + FORBIDDEN_FOR);
                if !std::mem::replace(&mut self.reported_forbidden, true) {
                    tracing::warn!(
                        "no Events are posted: {why}; grant this program's user create and patch on events in \
                         events.k8s.io, or turn them off with --no-events"
                    );
                }
                EventResult::Failed
            }
            Err(NotPosted::Gone) => {
                tracing::debug!("an Event wasn't posted: its namespace is gone");
                EventResult::Failed
            }
            Err(NotPosted::Failed(why)) => {
                tracing::debug!("an Event wasn't posted: {why}");
                EventResult::Failed
            }
        }
    }

    fn is_forbidden(&self, now: Instant) -> bool {
        self.forbidden_until.is_some_and(|until| now < until)
    }

    fn count_results(&self, result: EventResult, count: i32) {
        self.metrics.count_events(result, u64::try_from(count).unwrap_or_default());
    }

    /// Forgets series that are over. If there are too many, it forgets all that are fully counted, and then all others
    /// too.
    fn forget(&mut self, now: Instant) {
        let crowded = self.series.len() >= MOST_SERIES;
        self.series.retain(|_, series| series.unreported > 0 || (!crowded && series.seen + QUIET_FOR > now));
        if self.series.len() >= MOST_SERIES {
            let lost = self.series.drain().map(|(_, series)| series.unreported).sum();
            self.count_results(EventResult::Dropped, lost);
        }
    }
}
