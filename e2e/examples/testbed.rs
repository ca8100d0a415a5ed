//! The clusters of the scenarios with controllers, to be inspected or handed over: Cluster API, machines without
//! infrastructure, the program, and the Cluster Autoscaler that `CLUSTER_AUTOSCALER` names; or, without program and
//! autoscaler, machines in memory by the manager that `CAPD_MANAGER` names. It prints the variables by which scenarios
//! find them, and ends with its standard input. Its processes must not outlive it.

use std::{
    env,
    io::{Read as _, stdin},
    path::Path,
    sync::Arc,
};

use anyhow::{Context as _, Result};
use e2e::{
    autoscaling::{Autoscaler, Binary},
    capd,
    controllers::Host,
    existing::{CLUSTER, MANAGEMENT, WORKERS, WORKLOAD},
    go, program,
};

#[tokio::main]
async fn main() -> Result<()> {
    let (program, components) = (program::build()?, Arc::new(go::components()?));
    let directory = tempfile::tempdir()?;
    let files = directory.path().to_owned();
    let host = if let Some(manager) = env::var_os(capd::VARIABLE) {
        Host::in_memory(components, Path::new(&manager), program, files).await?
    } else {
        let binary = Binary::named()?.pop().context("CLUSTER_AUTOSCALER names no binary of Cluster Autoscaler")?;
        Host::start(components, program, files, Autoscaler::Binary(binary)).await?
    };
    let clusters = &host.clusters;
    println!("export {MANAGEMENT}={}", clusters.management.display());
    println!("export {WORKLOAD}={}", clusters.workload.display());
    println!("export {CLUSTER}={}/{}", clusters.namespace, clusters.cluster);
    println!("export {WORKERS}={}", clusters.workers);
    eprintln!("logs are in {}; this ends with its standard input", directory.path().display());
    tokio::task::spawn_blocking(|| stdin().read_to_end(&mut Vec::new())).await??;
    Ok(())
}
