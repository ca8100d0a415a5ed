//! Polls for a condition, and fails after a time that no condition should take.

use std::time::{Duration, Instant};

use anyhow::bail;

/// The longest wait for a condition; none takes nearly as long.
const PATIENCE: Duration = Duration::from_secs(120);
/// The interval of polling a condition.
pub(crate) const TICK: Duration = Duration::from_millis(10);

/// Polls until `look` returns a value.
pub(crate) async fn until<T>(what: &str, look: impl AsyncFn() -> anyhow::Result<Option<T>>) -> anyhow::Result<T> {
    let began = Instant::now();
    loop {
        if let Some(found) = look().await? {
            return Ok(found);
        }
        if began.elapsed() > PATIENCE {
            bail!("waited for {} s in vain until {what}", PATIENCE.as_secs());
        }
        tokio::time::sleep(TICK).await;
    }
}
