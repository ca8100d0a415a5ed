//! Pauses between failed attempts, and jitter for all times. Must never let a failing server be queried in a hot
//! loop: every pause has a minimum.

use std::{
    hash::{BuildHasher, RandomState},
    time::Duration,
};

use tokio::time::Instant;

/// Longer than any process runs, and short enough to be added to any time.
const FOREVER: Duration = Duration::from_secs(10 * 365 * 24 * 3600);

/// Exponential pauses with jitter, between `min` and `max`.
#[derive(Debug)]
pub(super) struct Backoff {
    min: Duration,
    max: Duration,
    next: Duration,
}

impl Backoff {
    pub(super) fn new(min: Duration, max: Duration) -> Self {
        let min = min.max(Duration::from_millis(1));
        Self { min, max: max.max(min), next: min }
    }

    /// Returns the pause after one more failure: between half and all of the current step, which then doubles.
    pub(super) fn pause(&mut self) -> Duration {
        let step = self.next;
        self.next = (step * 2).min(self.max);
        shorten(step, 0.5)
    }

    /// Returns the maximum pause that the next failure would cause.
    pub(super) fn step(&self) -> Duration {
        self.next
    }

    /// Lets the next pause be one of the longest.
    pub(super) fn exhaust(&mut self) {
        self.next = self.max;
    }

    pub(super) fn reset(&mut self) {
        self.next = self.min;
    }
}

/// Returns the duration, less a random part of up to `share`.
pub(super) fn shorten(duration: Duration, share: f64) -> Duration {
    // Every `RandomState` has random keys of its own, which is enough for jitter and needs no dependency.
    let chance = f64::from(u32::try_from(RandomState::new().hash_one(0_u8) >> 32).unwrap_or(0)) / f64::from(u32::MAX);
    let shortened = duration.as_secs_f64() * (1.0 - share * chance);
    // The greatest durations round up to more than a `Duration` can hold.
    Duration::try_from_secs_f64(shortened).unwrap_or(duration)
}

/// Returns the time after a duration; far in the future for a duration that an `Instant` can't hold.
pub(super) fn after(now: Instant, duration: Duration) -> Instant {
    now + duration.min(FOREVER)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_limit_and_start_over_after_success() {
        let mut backoff = Backoff::new(Duration::from_millis(500), Duration::from_secs(30));
        for step in [500, 1000, 2000, 4000, 8000, 16000, 30000, 30000] {
            let step = Duration::from_millis(step);
            assert_eq!(backoff.step(), step);
            let pause = backoff.pause();
            assert!(pause <= step && pause >= step / 2, "{pause:?} of {step:?}");
        }
        backoff.reset();
        assert!(backoff.pause() <= Duration::from_millis(500));
        backoff.exhaust();
        assert!(backoff.pause() >= Duration::from_secs(15));
    }

    #[test]
    fn no_duration_is_too_long() {
        assert!(shorten(Duration::MAX, 0.1) >= Duration::MAX.mul_f64(0.89));
        assert_eq!(shorten(Duration::MAX, 0.0), Duration::MAX);
        let now = Instant::now();
        assert_eq!(after(now, Duration::from_secs(7)), now + Duration::from_secs(7));
        assert_eq!(after(now, Duration::MAX), now + FOREVER);
    }

    #[test]
    fn chance_varies() {
        let pauses: std::collections::HashSet<_> = (0..20).map(|_| shorten(Duration::from_secs(10), 0.1)).collect();
        assert!(pauses.len() > 10);
        assert!(pauses.iter().all(|pause| *pause >= Duration::from_secs(9)));
    }
}
