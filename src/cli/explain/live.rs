//! Reads the clusters for `explain`, until everything is complete.

use std::time::{Duration, Instant};

use super::ExplainError;
use crate::cli::index_config::LiveIndex;
use app::IndexConfig;

/// Reads the clusters, for at most `patience`.
///
/// # Errors
/// If they can't be reached or aren't read in time, with the kinds and the reasons.
pub(super) async fn read(config: IndexConfig, patience: Duration) -> Result<LiveIndex, ExplainError> {
    let connect = |cluster, error: &dyn std::error::Error| ExplainError::Connect { cluster, why: error.to_string() };
    let clients = config.management.connect().await.map_err(|error| connect("management", &error))?;
    if config.workload.connects_at_once() {
        config.workload.connect(&clients).await.map_err(|error| connect("workload", &error))?;
    }
    let index = LiveIndex::start(clients, config, patience);
    if index.wait(Instant::now() + patience, |_| true).await {
        return Ok(index);
    }
    let missing: Vec<_> = index.unready_checks().iter().map(|(name, why)| format!("\n  {name}: {why}")).collect();
    index.end().await;
    Err(ExplainError::NotRead { patience, missing: missing.concat() })
}
