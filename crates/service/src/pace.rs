//! The pace of one caller among many: what comes faster waits, so that others are answered, and then comes after
//! theirs. It refuses nothing.

use std::{sync::Arc, time::Duration};

use parking_lot::Mutex;
use tokio::{
    task::yield_now,
    time::{Instant, sleep},
};

/// The time between two calls at the highest pace: 12,500 a second, half of what a thread answers, and about as fast as
/// a client that makes one call after another.
const EVERY: Duration = Duration::from_micros(80);
/// The time for which calls may come faster.
const BURST: Duration = Duration::from_millis(200);
/// The longest pause, less than the deadlines of Cluster Autoscaler's calls.
const LONGEST: Duration = Duration::from_secs(1);
/// The shortest pause, which is that of timers.
const SHORTEST: Duration = Duration::from_millis(1);

/// The pace of one caller; the default is that of a single one, which nothing limits. It holds the time at which a
/// whole burst is allowed again.
#[derive(Clone, Debug, Default)]
pub(super) struct Pace(Option<Arc<Mutex<Instant>>>);

impl Pace {
    pub(super) fn of_one_of_many() -> Self {
        Self(Some(Arc::new(Mutex::new(Instant::now()))))
    }

    /// Waits until the next call may be answered.
    pub(super) async fn keep(&self) {
        let pause = self.pause(Instant::now());
        if pause >= SHORTEST {
            sleep(pause).await;
            // Many of them are due at once. The thread is done with all others first that are ready.
            yield_now().await;
        }
    }

    fn pause(&self, now: Instant) -> Duration {
        let Some(full_at) = &self.0 else { return Duration::ZERO };
        let mut full_at = full_at.lock();
        // Calls that came in vain, since their deadlines passed meanwhile, delay later ones by little.
        *full_at = ((*full_at).max(now) + EVERY).min(now + BURST + LONGEST);
        full_at.saturating_duration_since(now + BURST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn calls_beyond_the_pace_come_after_those_of_others_that_are_ready() {
        let (pace, order) = (Pace::of_one_of_many(), Arc::new(Mutex::new(Vec::new())));
        while pace.pause(Instant::now()) < SHORTEST {}
        let mut calls = tokio::task::JoinSet::new();
        for _ in 0..3 {
            let (pace, order) = (pace.clone(), Arc::clone(&order));
            calls.spawn(async move {
                pace.keep().await;
                order.lock().push("beyond the pace");
            });
        }
        let others = Arc::clone(&order);
        calls.spawn(async move {
            // They are due in the same millisecond, and one that came last.
            sleep(SHORTEST + EVERY * 3).await;
            others.lock().push("of others");
        });
        calls.join_all().await;
        assert_eq!(*order.lock(), ["of others", "beyond the pace", "beyond the pace", "beyond the pace"]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_caller_without_end_is_answered_at_the_highest_pace() {
        let (pace, begun) = (Pace::of_one_of_many(), Instant::now());
        for _ in 0..2_500 {
            pace.keep().await;
        }
        assert_eq!(begun.elapsed(), Duration::ZERO, "a burst waits for nothing");
        for _ in 0..25_000 {
            pace.keep().await;
        }
        let took = begun.elapsed();
        assert!((Duration::from_millis(1_990)..Duration::from_millis(2_020)).contains(&took), "{took:?}");
        for _ in 0..1_000_000 {
            assert!(pace.pause(Instant::now()) <= LONGEST, "calls that don't wait leave no debt");
        }
        tokio::time::sleep(Duration::from_secs(60)).await;
        let rested = Instant::now();
        for _ in 0..2_500 {
            pace.keep().await;
        }
        assert_eq!(rested.elapsed(), Duration::ZERO);
        for _ in 0..100 {
            pace.keep().await;
        }
        assert!(rested.elapsed() >= SHORTEST, "no more than a burst is saved up");
    }
}
