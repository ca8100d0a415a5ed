//! The clock of the sandbox: real time, or a time that a test drives.

use std::{sync::Arc, time::Duration};

use jiff::{SignedDuration, Timestamp};
use tokio::sync::watch;

/// A clock. Clones are cheap and show the same time.
#[derive(Debug, Clone)]
pub struct Clock(Source);

#[derive(Debug, Clone)]
enum Source {
    Real,
    Driven(Arc<watch::Sender<Timestamp>>),
}

impl Clock {
    /// Creates the clock of the machine.
    pub fn real() -> Self {
        Self(Source::Real)
    }

    /// Creates a clock that stands still at `start` and only moves by [`Clock::advance`].
    pub fn driven(start: Timestamp) -> Self {
        Self(Source::Driven(Arc::new(watch::Sender::new(start))))
    }

    /// Returns the current time.
    pub fn now(&self) -> Timestamp {
        match &self.0 {
            Source::Real => Timestamp::now(),
            Source::Driven(time) => *time.borrow(),
        }
    }

    /// Moves a driven clock forward, and wakes everyone who waits for a time up to then.
    ///
    /// # Panics
    /// Panics if the clock is the real one, or if the time is out of range.
    #[allow(clippy::panic, reason = "a test that mixes up its clocks is to end")]
    pub fn advance(&self, by: Duration) {
        match &self.0 {
            Source::Real => panic!("only a driven clock can be advanced"),
            Source::Driven(time) => time.send_modify(|time| *time = after(*time, by)),
        }
    }

    /// Waits until the clock shows `time` or later.
    pub(crate) async fn wait_until(&self, time: Timestamp) {
        match &self.0 {
            Source::Real => {
                let left = time.duration_since(Timestamp::now());
                // A time in the past needs no wait.
                tokio::time::sleep(Duration::try_from(left).unwrap_or_default()).await;
            }
            Source::Driven(now) => {
                // The sender lives in `self`.
                let _ = now.subscribe().wait_for(|now| *now >= time).await;
            }
        }
    }
}

/// Returns the time that is `by` after `time`.
///
/// # Panics
/// Panics if the time is out of range.
#[allow(clippy::expect_used, reason = "a test that leaves the range of time is to end")]
pub fn after(time: Timestamp, by: Duration) -> Timestamp {
    let by = SignedDuration::try_from(by).expect("the duration is within range");
    time.checked_add(by).expect("the time is within range")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_waiter_on_a_driven_clock_wakes_at_its_time_and_not_before() {
        let clock = Clock::driven(Timestamp::UNIX_EPOCH);
        let waiting = clock.clone();
        let until = after(clock.now(), Duration::from_secs(10));
        let mut waiter = tokio::spawn(async move { waiting.wait_until(until).await });
        clock.advance(Duration::from_secs(9));
        tokio::task::yield_now().await;
        assert!(!waiter.is_finished());
        clock.advance(Duration::from_secs(1));
        (&mut waiter).await.unwrap();
        assert_eq!(clock.now(), until);
    }

    #[tokio::test]
    async fn a_time_that_is_over_is_not_waited_for() {
        Clock::real().wait_until(Timestamp::UNIX_EPOCH).await;
        Clock::driven(Timestamp::UNIX_EPOCH).wait_until(Timestamp::UNIX_EPOCH).await;
    }
}
