//! The scenarios for existing clusters, run in these clusters.

use std::{env, fs::File, process::Command};

use anyhow::{Context as _, Result, ensure};
use e2e::{
    existing::{CLUSTER, MANAGEMENT, WORKERS, WORKLOAD},
    machines::Setup,
};

/// The scenarios for existing clusters, as `controllers/main.rs` lists them, at least. A filter that finds none would
/// pass as well.
const MIN_PASSED: usize = 8;

pub(crate) async fn those_for_existing_clusters_pass(setup: &Setup<'_>) -> Result<()> {
    let clusters = &setup.workload.clusters;
    let log = setup.logs.join("existing.log");
    let file = File::create(&log)?;
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .args(["test", "--locked", "-p", "e2e", "--test", "controllers", "--", "existing::"])
        .env(MANAGEMENT, &clusters.management)
        .env(WORKLOAD, &clusters.workload)
        .env(CLUSTER, format!("{}/{}", clusters.namespace, clusters.cluster))
        .env(WORKERS, &clusters.workers)
        .stdout(file.try_clone()?)
        .stderr(file);
    let status = tokio::task::spawn_blocking(move || command.status()).await??;
    ensure!(status.success(), "{status}:\n{}", e2e::process::tail(&log));
    let text = e2e::process::text(&log);
    let (passed, ignored) = (sum(&text, "passed")?, sum(&text, "ignored")?);
    ensure!(passed >= MIN_PASSED && ignored == 0, "{passed} of {MIN_PASSED} passed, and {ignored} were ignored");
    Ok(())
}

/// Returns the sum of the tests with this outcome in the summaries of a log, such as `test result: ok. 14 passed; ...`.
fn sum(log: &str, outcome: &str) -> Result<usize> {
    let summaries = log.lines().filter(|line| line.starts_with("test result: "));
    let parts = summaries.flat_map(|line| line.split([';', '.'])).map(str::trim);
    let counts: Vec<usize> = parts
        .filter_map(|part| part.strip_suffix(outcome))
        .map(|count| count.trim().parse().with_context(|| format!("`{count}` {outcome}")))
        .collect::<Result<_>>()?;
    ensure!(!counts.is_empty(), "no summary of tests has a number of {outcome}");
    Ok(counts.into_iter().sum())
}
