//! The project's driver in a Pod, with Cluster Autoscaler's calls: it finds the provider by the name in the chart's cloud-config,
//! authenticates with the mounted certificate, and reads Pods and Nodes by the Pod's own token. Its notes go to standard output.

use std::{env, fs, time::Duration};

use anyhow::{Context as _, Result};
use autoscaler::{Caller, Driver, Settings, Version, Workload};
use kube::{Client, Config};
use serde_json::Value;

#[tokio::main]
async fn main() -> Result<()> {
    let path = env::args().nth(1).context("give the path of the cloud-config")?;
    let text = fs::read_to_string(&path).with_context(|| format!("reading {path}"))?;
    let cloud_config: Value = serde_yaml::from_str(&text)?;
    let channel = e2e::installed::channel(&cloud_config)?;
    let config = Config::incluster()?;
    let namespace = config.default_namespace.clone();
    let workload = Workload::of_namespace(Client::try_from(config)?, &namespace);
    let settings = Settings {
        pause: Duration::from_millis(300),
        unneeded: Duration::from_secs(36_000),
        unready: Duration::from_secs(36_000),
        ..Settings::default()
    };
    let chance = fastrand::Rng::with_seed(0);
    let note = |line: &str| println!("{line}");
    Driver::new(Caller::new(channel), workload, Version::new(37, 0), settings, chance, note).run().await;
    Ok(())
}
