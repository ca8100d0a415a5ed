//! A group of a scenario, and a Deployment in the workload cluster that needs its Nodes.

use anyhow::{Result, ensure};
use e2e::{
    autoscaling::Settings,
    controllers::{
        groups::{Group, Workers},
        machines::Machine,
        running::Autoscaling,
        testbed::{NODE_POOL, Testbed, pod_spec},
    },
    machines::Setup,
};
use serde_json::json;

/// Pods of one Deployment, each of which needs more than half of a Node, and their group.
pub(crate) struct Load<'a> {
    /// The group.
    pub(crate) group: Group,
    testbed: &'a Testbed,
    name: String,
    autoscaling: Autoscaling,
}

/// Runs `event_log` with a group that was scaled from zero, and removes the Deployment.
pub(crate) async fn with_pods(
    setup: &Setup<'_>,
    count: i32,
    event_log: impl for<'a> AsyncFnOnce(&'a mut Load<'_>) -> Result<()>,
) -> Result<()> {
    let testbed = &setup.testbed;
    let group = Workers::new("workers").label(NODE_POOL, testbed.mark()).bounds(0, 4);
    let group = group.publishing(testbed.capacity(&testbed.cpu(1, 1))).create(testbed).await?;
    let autoscaling = testbed.autoscale(Settings::default()).await?;
    let mut load = Load { group, testbed, name: format!("{}-web", testbed.mark()), autoscaling };
    let outcome = async {
        load.create(count).await?;
        event_log(&mut load).await
    };
    let outcome = Box::pin(outcome).await;
    let removed = testbed.workload.remove("Deployment", &load.name).await;
    outcome.and(removed)
}

impl Load<'_> {
    async fn create(&mut self, count: i32) -> Result<()> {
        let labels = json!({ NODE_POOL: self.testbed.mark() });
        let soon =
            |key: &str| json!({ "key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 5 });
        let mut pod = pod_spec(&self.testbed.cpu(3, 4), &labels);
        // The default is five minutes on a Node that has failed.
        pod["tolerations"] = json!([soon("node.kubernetes.io/not-ready"), soon("node.kubernetes.io/unreachable")]);
        let deployment = json!({
            "kind": "Deployment",
            "metadata": { "name": self.name },
            "spec": {
                "replicas": count,
                "selector": { "matchLabels": labels },
                "template": { "metadata": { "labels": labels }, "spec": pod },
            },
        });
        self.testbed.workload.create(deployment).await?;
        self.runs(count).await.map(drop)
    }

    /// Sets the number of Pods, and waits until as many run on as many Machines.
    pub(crate) async fn scale(&mut self, count: i32) -> Result<Vec<Machine>> {
        self.want(count).await?;
        self.runs(count).await
    }

    /// Sets the number of Pods.
    pub(crate) async fn want(&self, count: i32) -> Result<()> {
        self.testbed.workload.patch("Deployment", &self.name, json!({ "spec": { "replicas": count } })).await
    }

    /// Waits until this number of Pods is ready, and the group has as many Machines, which run.
    pub(crate) async fn runs(&mut self, count: i32) -> Result<Vec<Machine>> {
        let (testbed, name) = (self.testbed, &self.name);
        self.autoscaling
            .until("ready Pods", async || {
                let deployment = testbed.workload.get("Deployment", name).await?;
                let status = &deployment.data["status"];
                let ready = status["readyReplicas"].as_i64().unwrap_or_default();
                let all = status["replicas"].as_i64().unwrap_or_default();
                ensure!(ready == i64::from(count) && all == ready, "the Deployment's status is {status}");
                Ok(())
            })
            .await?;
        self.autoscaling.sizes(&[(&self.group.id, count)]).await?;
        testbed.running(&self.group, usize::try_from(count)?).await
    }
}
