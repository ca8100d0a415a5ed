//! The project's driver in a Pod. It makes Cluster Autoscaler's calls, takes those of its flags that it models, and
//! ignores others. It finds the provider by the name in the chart's cloud-config, and authenticates with the mounted
//! certificate. It scales the cluster of `--kubeconfig` and writes a status there. Its notes go to standard output.

use std::{collections::BTreeMap, env, fs, path::Path, time::Duration};

use anyhow::{Context as _, Result, bail};
use e2e::{
    autoscaling::record::Recorder,
    existing::write_status,
    objects::{self, Contract, Objects},
};
use kube::config::Kubeconfig;
use sandbox::autoscaler::{Caller, Driver, Settings, Version, Workload};
use serde_json::Value;

#[tokio::main]
async fn main() -> Result<()> {
    let flags = flags(env::args().skip(1))?;
    let path = flags.get("cloud-config").context("give --cloud-config")?;
    let text = fs::read_to_string(path).with_context(|| format!("reading {path}"))?;
    let cloud_config: Value = serde_yaml::from_str(&text)?;
    let channel = e2e::installed::channel(&cloud_config)?;
    let settings = settings(&flags)?;
    let drive = async |caller, workload| {
        let (version, rng) = (Version::new(37, 0), fastrand::Rng::with_seed(0));
        Driver::new(caller, workload, version, settings, rng, |line: &str| println!("{line}")).run().await;
    };
    let kubeconfig = Kubeconfig::read_from(flags.get("kubeconfig").context("give --kubeconfig")?)?;
    let client = objects::client(kubeconfig).await?;
    let recorder = Recorder::start(channel, Path::new("/dev/null").to_owned()).await?;
    let caller = Caller::new(e2e::provider::Caller::to(&recorder.address)?.channel());
    let namespace = flags.get("namespace").context("give --namespace, of the status")?;
    let status = Objects::new(client.clone(), Contract::V1Beta2, namespace);
    tokio::select! {
        () = write_status(status, recorder.calls.clone()) => {}
        () = drive(caller, Workload::new(client)) => {}
    }
    Ok(())
}

/// Returns the flags by name, each given as `--name=value`.
fn flags(arguments: impl Iterator<Item = String>) -> Result<BTreeMap<String, String>> {
    arguments
        .map(|argument| {
            let flag = argument.strip_prefix("--").and_then(|flag| flag.split_once('='));
            let (name, value) = flag.with_context(|| format!("`{argument}` isn't --name=value"))?;
            Ok((name.to_owned(), value.to_owned()))
        })
        .collect()
}

/// Returns Cluster Autoscaler's defaults with the times that are given.
fn settings(flags: &BTreeMap<String, String>) -> Result<Settings> {
    let mut settings = Settings::default();
    for (name, time) in [
        ("scan-interval", &mut settings.pause),
        ("scale-down-unneeded-time", &mut settings.unneeded),
        ("scale-down-unready-time", &mut settings.unready),
        ("max-node-provision-time", &mut settings.provision),
        ("max-node-startup-time", &mut settings.startup),
        ("scale-down-delay-after-add", &mut settings.delay_after_add),
        ("scale-down-delay-after-failure", &mut settings.delay_after_failure),
        ("unremovable-node-recheck-timeout", &mut settings.recheck),
        ("initial-node-group-backoff-duration", &mut settings.backoff.initial),
        ("max-node-group-backoff-duration", &mut settings.backoff.max),
    ] {
        if let Some(value) = flags.get(name) {
            *time = duration(value).with_context(|| format!("--{name}"))?;
        }
    }
    Ok(settings)
}

/// Parses a duration of one unit, as `300ms`, `20s`, `4m` or `10h`.
fn duration(text: &str) -> Result<Duration> {
    let digits = text.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let number: u64 = number.parse().with_context(|| format!("`{text}` begins with no number"))?;
    Ok(match unit {
        "ms" => Duration::from_millis(number),
        "s" => Duration::from_secs(number),
        "m" => Duration::from_secs(number * 60),
        "h" => Duration::from_secs(number * 3600),
        _ => bail!("`{text}` isn't a number with one of ms, s, m and h"),
    })
}
