//! Waits for an attempt that succeeds, with a deadline, where a test returns its errors.

use std::{
    error::Error,
    fmt,
    time::{Duration, Instant},
};

use anyhow::{Result, anyhow};

/// The interval of checking a condition.
const INTERVAL: Duration = Duration::from_millis(50);

/// The time within which the program sees a change on an API server: far more than it needs, even on a busy machine.
pub const SOON: Duration = Duration::from_secs(30);

/// An error that no retry can fix.
#[derive(Debug)]
pub struct Permanent(pub String);

impl fmt::Display for Permanent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Error for Permanent {}

/// Calls `attempt` until it succeeds or returns a [`Permanent`] error. Fails with the last error after `within`.
///
/// An attempt that hangs is cancelled at the deadline as well.
pub async fn eventually<T>(what: &str, within: Duration, attempt: impl AsyncFnMut() -> Result<T>) -> Result<T> {
    every(INTERVAL, what, within, attempt).await
}

/// The same as `eventually`, with another interval, for expensive attempts.
pub async fn every<T>(
    interval: Duration,
    what: &str,
    within: Duration,
    mut attempt: impl AsyncFnMut() -> Result<T>,
) -> Result<T> {
    let end = Instant::now() + within;
    let mut last = anyhow!("the first attempt did not end");
    loop {
        let left = end.saturating_duration_since(Instant::now());
        match tokio::time::timeout(left, attempt()).await {
            Ok(Ok(value)) => return Ok(value),
            Ok(Err(error)) if error.is::<Permanent>() => return Err(error.context(what.to_owned())),
            Ok(Err(error)) => last = error,
            Err(_) => {}
        }
        if Instant::now() + interval >= end {
            return Err(last.context(format!("{what}: not within {} s", within.as_secs())));
        }
        tokio::time::sleep(interval).await;
    }
}
