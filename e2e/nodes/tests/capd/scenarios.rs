//! The scenarios for existing clusters, run in these clusters.

use std::{env, fs::File, process::Command};

use anyhow::{Result, ensure};
use e2e::{
    existing::{CLUSTER, MANAGEMENT, WORKERS, WORKLOAD},
    machines::Setup,
};

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
    Ok(())
}
