//! The clusters of the scenarios with controllers, to be looked at or handed over: Cluster API, machines without infrastructure, the
//! program, and a Cluster Autoscaler that `CLUSTER_AUTOSCALER` names. It prints the variables by which scenarios find them, and ends with
//! its standard input. It must hold nothing that another run could take for its own.

use std::{
    fs,
    io::{Read as _, stdin},
    sync::Arc,
};

use anyhow::{Context as _, Result};
use e2e::{
    autoscaling::{Autoscaler, Binary, Settings},
    cluster_api::environment::Environment,
    controllers::{groups::Workers, stage::Stage},
    existing::{CLUSTER, MANAGEMENT, WORKERS, WORKLOAD},
    go, program,
    users::User,
};
use serde_json::json;

#[tokio::main]
async fn main() -> Result<()> {
    let binary = Binary::named()?.pop().context("CLUSTER_AUTOSCALER names no binary of Cluster Autoscaler")?;
    let program = program::build()?;
    let directory = tempfile::tempdir()?;
    let environment = Arc::new(Box::pin(Environment::start(Arc::new(go::components()?))).await?);
    let mut stage = Stage::real(Arc::clone(&environment), program, directory.path().to_owned()).await?;
    stage.autoscaler = Some(Autoscaler::Binary(binary));
    let capacity = json!({ "cpu": "4", "memory": "16Gi", "pods": "110" });
    let model = Workers::new("model").bounds(0, 0).publishing(capacity).create(&stage).await?;
    let _autoscaling = stage.autoscale(Settings::default()).await?;

    let administrator = User::administrator();
    let kubeconfigs = [
        (MANAGEMENT, environment.management.kubeconfig(&administrator)),
        (WORKLOAD, environment.workload.kubeconfig(&administrator)),
    ];
    for (name, kubeconfig) in kubeconfigs {
        let path = directory.path().join(name.to_lowercase());
        fs::write(&path, kubeconfig.to_string())?;
        println!("export {name}={}", path.display());
    }
    println!("export {CLUSTER}={}/{}", stage.namespace, stage.cluster);
    println!("export {WORKERS}={}", model.name);
    eprintln!("logs are in {}; this ends with its standard input", directory.path().display());
    tokio::task::spawn_blocking(|| stdin().read_to_end(&mut Vec::new())).await??;
    Ok(())
}
