//! The environment of one scenario with the chart: a namespace in the cluster that all share.

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::{Context as _, Result};
use futures::future::LocalBoxFuture;
use serde_json::json;

use super::{
    Cluster, Purpose, Release, fake_nodes,
    suite::{self, Scenario, Shared, VARIABLE},
};
use crate::objects::Objects;

/// The body of a scenario.
pub type Play = for<'a> fn(&'a Stage<'a>) -> LocalBoxFuture<'a, Result<()>>;

/// The environment of one scenario.
pub struct Stage<'a> {
    /// The cluster, which no other scenario uses at the same time.
    pub cluster: &'a Cluster,
    /// A namespace of its own, under Pod Security's restricted level, with the Cluster `prod`.
    pub namespace: String,
    /// Access to the objects of that namespace.
    pub objects: Objects,
    /// The directory of its logs.
    pub logs: PathBuf,
}

impl Stage<'_> {
    /// Returns the release of the chart in the scenario's namespace.
    #[must_use]
    pub fn release(&self) -> Release<'_> {
        Release::new(self.cluster, &self.namespace)
    }
}

/// Runs the scenarios that the command line selects, if the environment lets them.
#[must_use]
pub fn run(scenarios: &[Scenario<Play>], logs: &Path) -> ExitCode {
    suite::run::<Cluster>(scenarios, logs, &[VARIABLE])
}

impl Shared for Cluster {
    type Play = Play;

    async fn start(logs: &Path) -> Result<Self> {
        Self::start(Purpose::Chart, logs).await
    }

    async fn play(&self, number: usize, play: Play, logs: &Path) -> Result<()> {
        let namespace = format!("team-{number}");
        let stage = Stage {
            cluster: self,
            objects: self.objects(&namespace),
            namespace: namespace.clone(),
            logs: logs.to_owned(),
        };
        let restricted = json!({
            "pod-security.kubernetes.io/enforce": "restricted",
            "pod-security.kubernetes.io/warn": "restricted",
        });
        let object = json!({ "kind": "Namespace", "metadata": { "name": namespace, "labels": restricted } });
        stage.objects.create(object).await?;
        let prod = json!({ "kind": "Cluster", "metadata": { "name": "prod" }, "spec": {
            "clusterNetwork": { "serviceDomain": "cluster.local" },
        } });
        stage.objects.create(prod).await?;
        let played = play(&stage).await;
        let kept = self.keep_logs(logs);
        // The next scenario starts without this one's Pods and Nodes.
        let cleared = clear(&stage).await;
        played.and(kept).and(cleared)
    }

    async fn remove(self) -> Result<()> {
        Self::remove(self)
    }
}

/// Removes the Nodes and Machines of a scenario, and its namespace with all Pods.
async fn clear(stage: &Stage<'_>) -> Result<()> {
    fake_nodes(&stage.objects).await?;
    for machine in stage.objects.list("Machine", "").await? {
        let name = machine.metadata.name.context("a Machine without name")?;
        stage.objects.patch("Machine", &name, json!({ "metadata": { "finalizers": null } })).await?;
    }
    stage.objects.remove("Namespace", &stage.namespace).await?;
    super::cluster::gone(&stage.objects, "Namespace", &stage.namespace).await
}
