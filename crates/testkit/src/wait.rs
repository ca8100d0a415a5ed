//! Waits for a condition, with a deadline. No test may sleep for a fixed time instead.

use std::time::Duration;

use tokio::time::{sleep, timeout};

/// The default time limit. It is longer than any successful wait takes, even on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(60);
/// The interval of polling.
const INTERVAL: Duration = Duration::from_millis(5);

/// A wait for a condition. It uses tokio's time, which a test may have paused.
#[must_use = "it waits only when it is awaited"]
pub struct Wait<'a> {
    what: &'a str,
    patience: Duration,
    interval: Duration,
    state: Option<&'a dyn Fn() -> String>,
}

impl<'a> Wait<'a> {
    /// Creates a wait for [`PATIENCE`]; `what` completes the message "in vain: …".
    pub fn new(what: &'a str) -> Self {
        Self { what, patience: PATIENCE, interval: INTERVAL, state: None }
    }

    /// Sets the time limit of the wait.
    pub fn within(self, patience: Duration) -> Self {
        Self { patience, ..self }
    }

    /// Sets the interval of polling.
    pub fn every(self, interval: Duration) -> Self {
        Self { interval, ..self }
    }

    /// Adds the state at the deadline to the message of a failure.
    pub fn showing(self, state: &'a dyn Fn() -> String) -> Self {
        Self { state: Some(state), ..self }
    }

    /// Polls until `look` returns a value. A hanging call of `look` is cancelled at the deadline.
    pub async fn value<T>(self, mut look: impl AsyncFnMut() -> Option<T>) -> T {
        let polling = async {
            loop {
                match look().await {
                    Some(found) => return found,
                    None => sleep(self.interval).await,
                }
            }
        };
        let waited = timeout(self.patience, polling).await;
        waited.unwrap_or_else(|_| {
            let state = self.state.map(|state| format!("\n{}", state())).unwrap_or_default();
            panic!("in vain: {}, within {:?}{state}", self.what, self.patience)
        })
    }

    /// Polls until the condition holds.
    pub async fn condition(self, mut is_so: impl FnMut() -> bool) {
        self.value(async || is_so().then_some(())).await;
    }
}

/// Polls until `look` returns a value.
pub async fn until<T>(what: &str, look: impl AsyncFnMut() -> Option<T>) -> T {
    Wait::new(what).value(look).await
}

/// Polls until the condition holds.
pub async fn until_true(what: &str, is_so: impl FnMut() -> bool) {
    Wait::new(what).condition(is_so).await;
}

/// Returns the output of a future, which must complete within [`PATIENCE`].
pub async fn soon<T>(what: &str, wait: impl Future<Output = T>) -> T {
    timeout(PATIENCE, wait).await.unwrap_or_else(|_| panic!("in vain: {what}, within {PATIENCE:?}"))
}

#[cfg(test)]
mod tests {
    use std::{future::pending, time::Duration};

    use tokio::time::Instant;

    use super::{Wait, until, until_true};

    #[tokio::test(start_paused = true)]
    async fn it_polls_until_there_is_a_value() {
        let mut looks = 0;
        let found = until("the third look", async || {
            looks += 1;
            (looks == 3).then_some(looks)
        });
        assert_eq!(found.await, 3);
        let began = Instant::now();
        until_true("a second later", || began.elapsed() >= Duration::from_secs(1)).await;
    }

    #[tokio::test(start_paused = true)]
    #[should_panic(expected = "in vain: rain, within 2s\nthe sky is blue")]
    async fn a_failure_shows_what_was_waited_for_and_the_state() {
        let state = || "the sky is blue".to_owned();
        Wait::new("rain").within(Duration::from_secs(2)).showing(&state).condition(|| false).await;
    }

    #[tokio::test(start_paused = true)]
    #[should_panic(expected = "in vain: an answer")]
    async fn a_look_that_hangs_ends_at_the_deadline() {
        until::<()>("an answer", async || pending().await).await;
    }
}
