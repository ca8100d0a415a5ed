//! Which failed calls are made again, and when: those without an answer, 401, 409, 410, 429, 5xx, a test of the object that
//! failed (422), and calls of a kind that isn't discovered yet. Never 403, an object that is missing, nor what admission
//! refuses. Pauses double, or last as long as Retry-After asks. After a 401 the credentials are read anew at once, so that
//! an exchanged token costs one more attempt.

use std::time::Duration;

use prometheus_client::metrics::counter::Counter;
use rules::call_error::CallError;
use tokio::time::Instant;

/// The maximum number of attempts before the caller has to come again.
const MOST: u32 = 6;
/// The pause before the second attempt if the server doesn't set one; each further one is twice as long.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
/// The number of doublings: no pause is longer than the last one of [`MOST`] attempts.
const MOST_DOUBLINGS: u32 = MOST - 2;
/// The longest pause set by the server that is waited for; after a longer one the caller has retried by itself.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// The time after the first attempt beyond which no further one begins: the group's other commands wait meanwhile, and
/// its callers have given up long before.
const LAST_ATTEMPT_AFTER: Duration = Duration::from_secs(20);

/// The attempts at one write of a command.
pub(super) struct Attempts {
    made: u32,
    most: u32,
    started: Instant,
    /// Counts all attempts but the first.
    repeated: Counter,
}

impl Attempts {
    /// Creates attempts that count each retry.
    pub(super) fn counted(repeated: Counter) -> Self {
        Self { made: 1, most: MOST, started: Instant::now(), repeated }
    }

    /// Creates attempts that end with their time alone.
    pub(super) fn persistent(repeated: Counter) -> Self {
        Self { most: u32::MAX, ..Self::counted(repeated) }
    }

    /// Returns the number of attempts, the current one included.
    pub(super) fn made(&self) -> u32 {
        self.made
    }

    /// Returns the time since the first attempt.
    pub(super) fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    /// Waits for the next attempt after a failure. Returns false if a retry makes no sense, or there were enough.
    pub(super) async fn again(&mut self, error: &CallError) -> bool {
        let Some(pause) = next_pause(error, (self.made, self.most), self.elapsed()) else { return false };
        self.made += 1;
        self.repeated.inc();
        tokio::time::sleep(pause).await;
        true
    }
}

/// Returns the pause before another attempt, at this time after the first; `None` if there is none.
fn next_pause(error: &CallError, (made, most): (u32, u32), elapsed: Duration) -> Option<Duration> {
    let pause = pause_after(error, made).filter(|pause| *pause <= LONGEST_PAUSE)?;
    (made < most && elapsed + pause <= LAST_ATTEMPT_AFTER).then_some(pause)
}

/// Returns the pause after the n-th attempt has failed; `None` if a retry would fail again.
fn pause_after(error: &CallError, attempt: u32) -> Option<Duration> {
    let usual = FIRST_PAUSE * 2_u32.saturating_pow((attempt - 1).min(MOST_DOUBLINGS));
    match error {
        // The object has to be read again, which needs no pause at first; repeated conflicts back off.
        CallError::Rejected(_) | CallError::Conflict(_) if attempt == 1 => Some(Duration::ZERO),
        CallError::Rejected(_) | CallError::Conflict(_) => Some(usual / 2),
        CallError::Busy(_, after) | CallError::OutcomeUnknown(_, after) => Some(after.unwrap_or(usual)),
        CallError::Unauthorized(_) | CallError::NotDiscovered => Some(usual),
        CallError::Missing(_)
        | CallError::Forbidden(_)
        | CallError::Refused(_)
        | CallError::NotServed(_)
        | CallError::GivenUp(_)
        | CallError::Abandoned => None,
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn text() -> String {
        String::new()
    }

    #[rstest]
    #[case::lost(CallError::OutcomeUnknown(text(), None), 1, Some(100))]
    #[case::lost_again(CallError::OutcomeUnknown(text(), None), 4, Some(800))]
    #[case::busy(CallError::Busy(text(), None), 2, Some(200))]
    #[case::the_server_has_a_wish(CallError::Busy(text(), Some(Duration::from_secs(1))), 1, Some(1_000))]
    #[case::stale(CallError::Rejected(text()), 1, Some(0))]
    #[case::stale_again(CallError::Conflict(text()), 2, Some(100))]
    #[case::credentials_are_exchanged(CallError::Unauthorized(text()), 2, Some(200))]
    #[case::gone(CallError::Missing(text()), 1, None)]
    #[case::forbidden(CallError::Forbidden(text()), 1, None)]
    #[case::refused(CallError::Refused(text()), 1, None)]
    #[case::not_served(CallError::NotServed(text()), 1, None)]
    #[case::given_up(CallError::GivenUp(text()), 1, None)]
    #[case::abandoned(CallError::Abandoned, 1, None)]
    fn the_pause_before_the_next_attempt(#[case] error: CallError, #[case] attempt: u32, #[case] millis: Option<u64>) {
        assert_eq!(pause_after(&error, attempt), millis.map(Duration::from_millis));
    }

    #[rstest]
    #[case::at_once(1, 0, Some(100))]
    #[case::the_last_one(5, 3_000, Some(1_600))]
    #[case::there_were_enough(6, 3_000, None)]
    #[case::just_in_time(1, 19_900, Some(100))]
    #[case::too_late(1, 19_901, None)]
    #[case::long_ago(1, 600_000, None)]
    fn attempts_have_a_number_and_an_end(#[case] made: u32, #[case] elapsed: u64, #[case] pause: Option<u64>) {
        let error = CallError::OutcomeUnknown(text(), None);
        let next = next_pause(&error, (made, MOST), Duration::from_millis(elapsed));
        assert_eq!(next, pause.map(Duration::from_millis));
    }

    #[tokio::test(start_paused = true)]
    async fn no_attempt_begins_later_than_20_seconds_after_the_first() {
        let first = Instant::now();
        let mut attempts = Attempts::counted(Counter::default());
        let mut begun = vec![0];
        while attempts.again(&CallError::Busy(text(), Some(Duration::from_secs(5)))).await {
            begun.push(first.elapsed().as_secs());
        }
        assert_eq!(begun, [0, 5, 10, 15, 20]);
    }
}
