//! The workload cluster: Nodes and Pods, read and written as Cluster Autoscaler does.

use std::time::Duration;

use anyhow::{Context as _, Result};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::{
    Api, Client,
    api::{DeleteParams, ListParams, Patch, PatchParams, Preconditions},
};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::pods::{TO_BE_DELETED, seconds_since_epoch};

/// The time for which a conflicting taint write is retried, and the interval.
const CONFLICTS: (Duration, Duration) = (Duration::from_secs(5), Duration::from_millis(50));

/// A workload cluster, or one namespace's view of it.
#[derive(Clone)]
pub struct Workload {
    client: Client,
    namespace: Option<String>,
}

impl Workload {
    /// Creates a view of all Pods and Nodes.
    #[must_use]
    pub fn new(client: Client) -> Self {
        Self { client, namespace: None }
    }

    /// Creates a view of the Pods of one namespace, and of as few Nodes of other namespaces as a shared cluster allows.
    #[must_use]
    pub fn of_namespace(client: Client, namespace: &str) -> Self {
        Self { client, namespace: Some(namespace.to_owned()) }
    }

    pub(super) fn namespace(&self) -> Option<&str> {
        self.namespace.as_deref()
    }

    pub(super) async fn nodes(&self) -> Result<Vec<Node>> {
        let listed = self.nodes_api().list(&ListParams::default()).await;
        Ok(listed.context("listing Nodes")?.items)
    }

    pub(super) async fn pods(&self) -> Result<Vec<Pod>> {
        let pods = match &self.namespace {
            Some(namespace) => Api::namespaced(self.client.clone(), namespace),
            None => Api::all(self.client.clone()),
        };
        Ok(pods.list(&ListParams::default()).await.context("listing Pods")?.items)
    }

    fn nodes_api(&self) -> Api<Node> {
        Api::all(self.client.clone())
    }

    /// Adds or removes the deletion taint of a Node. Retries conflicts with other writers for a short time.
    pub(super) async fn taint(&self, name: &str, on: bool) -> Result<()> {
        let (patience, pause) = CONFLICTS;
        let end = Instant::now() + patience;
        loop {
            match self.try_taint(name, on).await {
                Err(kube::Error::Api(status)) if status.is_conflict() && Instant::now() < end => sleep(pause).await,
                written => return written.with_context(|| format!("tainting Node {name}")),
            }
        }
    }

    async fn try_taint(&self, name: &str, on: bool) -> Result<(), kube::Error> {
        let node = self.nodes_api().get(name).await?;
        let taints = node.spec.as_ref().and_then(|spec| spec.taints.clone()).unwrap_or_default();
        let has = taints.iter().any(|taint| taint.key == TO_BE_DELETED);
        if has == on {
            return Ok(());
        }
        let others = taints.into_iter().filter(|taint| taint.key != TO_BE_DELETED);
        let mut taints: Vec<Value> = others.map(|taint| json!(taint)).collect();
        if on {
            let since = seconds_since_epoch().to_string();
            taints.push(json!({ "key": TO_BE_DELETED, "value": since, "effect": "NoSchedule" }));
        }
        let version = node.metadata.resource_version;
        let patch = json!({ "metadata": { "resourceVersion": version }, "spec": { "taints": taints } });
        self.nodes_api().patch(name, &PatchParams::default(), &Patch::Merge(patch)).await?;
        Ok(())
    }

    /// Evicts a Pod. One that is already gone counts as evicted.
    pub(super) async fn evict(&self, pod: &Pod) -> Result<()> {
        let name = pod.metadata.name.as_deref().unwrap_or_default();
        let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
        let preconditions = Preconditions { uid: pod.metadata.uid.clone(), resource_version: None };
        let parameters = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
        match Api::<Pod>::namespaced(self.client.clone(), namespace).delete(name, &parameters).await {
            // A conflict means another Pod of the same name: the uid differs.
            Err(kube::Error::Api(status)) if status.is_not_found() || status.is_conflict() => Ok(()),
            deleted => deleted.map(drop).with_context(|| format!("evicting Pod {name}")),
        }
    }
}
