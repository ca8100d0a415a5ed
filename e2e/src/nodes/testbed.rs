//! The environment of one scenario with the chart: a namespace in the cluster that all share.

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::{Context as _, Result};
use futures::future::LocalBoxFuture;
use serde_json::json;

use super::{
    Cluster, Purpose, Release,
    suite::{self, Shared},
};
use crate::{
    objects::Objects,
    pool::{Group, MADE_UP, Pool},
    runner::Scenario,
};

/// The body of a scenario.
pub type Body = for<'a> fn(&'a Testbed<'a>) -> LocalBoxFuture<'a, Result<()>>;

/// The environment of one scenario.
pub struct Testbed<'a> {
    /// The cluster, which no other scenario uses at the same time.
    pub cluster: &'a Cluster,
    /// A namespace of its own, under Pod Security's restricted level, with the Cluster `prod`.
    pub namespace: String,
    /// Access to the objects of that namespace.
    pub objects: Objects,
    /// The directory of its logs.
    pub logs: PathBuf,
}

impl Testbed<'_> {
    /// Returns the release of the chart in the scenario's namespace.
    pub fn release(&self) -> Release<'_> {
        Release::new(self.cluster, &self.namespace)
    }
}

/// Runs the scenarios that the command line selects, if the environment lets them.
pub fn run(scenarios: &[Scenario<Body>], logs: &Path) -> ExitCode {
    suite::run::<Cluster>(scenarios, logs)
}

impl Shared for Cluster {
    type Body = Body;

    async fn start(logs: &Path) -> Result<Self> {
        Self::start(Purpose::Chart, logs).await
    }

    async fn run_scenario(&self, number: usize, body: Body, logs: &Path) -> Result<()> {
        let namespace = format!("team-{number}");
        let testbed = Testbed {
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
        testbed.objects.create(object).await?;
        let prod = json!({ "kind": "Cluster", "metadata": { "name": "prod" }, "spec": {
            "clusterNetwork": { "serviceDomain": "cluster.local" },
        } });
        testbed.objects.create(prod).await?;
        let outcome = body(&testbed).await;
        let kept = self.keep_logs(logs);
        // The next scenario starts without this one's Pods and Nodes.
        let cleared = clear(&testbed).await;
        outcome.and(kept).and(cleared)
    }

    async fn remove(self) -> Result<()> {
        Self::remove(self)
    }
}

/// Creates a MachineDeployment of the Cluster `prod` with this many running Machines. No machine is behind them, and the
/// scheduler puts no Pod on their Nodes.
pub async fn create_group(objects: &Objects, name: &str, size: usize) -> Result<Group> {
    let label = format!("node.cluster.x-k8s.io/pool={name}");
    let group = Pool::new(name).sized().capacity("labels", &label).running(size).unschedulable();
    group.create_in(objects, "prod").await
}

/// Removes the Nodes and Machines of a scenario, and its namespace with all Pods.
async fn clear(testbed: &Testbed<'_>) -> Result<()> {
    for node in testbed.objects.list("Node", MADE_UP).await? {
        testbed.objects.remove("Node", &node.metadata.name.context("a Node without name")?).await?;
    }
    for machine in testbed.objects.list("Machine", "").await? {
        let name = machine.metadata.name.context("a Machine without name")?;
        testbed.objects.patch("Machine", &name, json!({ "metadata": { "finalizers": null } })).await?;
    }
    testbed.objects.remove("Namespace", &testbed.namespace).await?;
    super::cluster::gone(&testbed.objects, "Namespace", &testbed.namespace).await
}
