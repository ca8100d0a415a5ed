//! A release of the chart whose Pods run, and the ways to call it: by Services from outside the cluster.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::{
    ByteString,
    api::{
        apps::v1::Deployment,
        core::v1::{ConfigMap, Pod, Secret, Service},
    },
};
use kube::{
    Api,
    api::{ListParams, PostParams},
};
use serde_json::json;

use super::cluster::{Cluster, POLL_INTERVAL, TIMEOUT, is_ready};
use crate::{
    helm::{RELEASE, Values},
    installed::Connector,
    provider::Caller,
    wait::every,
};

/// A release in a namespace.
pub struct Release<'a> {
    cluster: &'a Cluster,
    namespace: String,
}

/// A caller's settings: Cluster Autoscaler's cloud-config and certificate, and a port of a Service on the Node, since
/// outside the cluster the Service's name has no address.
#[derive(Clone)]
pub struct Connection {
    connector: Connector,
    address: String,
}

impl<'a> Release<'a> {
    /// Returns the release in this namespace.
    pub fn new(cluster: &'a Cluster, namespace: &str) -> Self {
        Self { cluster, namespace: namespace.to_owned() }
    }

    /// Returns values for the cluster that manages itself, with the image that was made.
    pub fn values(&self) -> Values {
        let values = json!({ "clusterAPIMode": "incluster-incluster", "autoDiscovery": { "clusterName": "prod" } });
        self.with_image(Values::new(&self.namespace, values))
    }

    /// Sets the image that was built. It is on the Node, and nothing may be pulled.
    pub fn with_image(&self, values: Values) -> Values {
        let (repository, tag) = self.cluster.images.project.name.split_once(':').unwrap_or_default();
        values
            .set("image.repository", json!(repository))
            .set("image.tag", json!(tag))
            .set("image.pullPolicy", json!("Never"))
    }

    /// Installs or upgrades the release by helm's own `verb`, and waits until all its Pods are ready and no other is
    /// left.
    pub async fn apply(&self, verb: &str, values: &Values) -> Result<Vec<Pod>> {
        self.cluster.helm.apply(verb, values)?;
        self.settled().await
    }

    /// Runs helm on the release.
    pub fn helm(&self, arguments: &[&str]) -> Result<String> {
        self.cluster.helm.run(&[arguments, &["--namespace", &self.namespace]].concat())
    }

    /// Returns its Deployment.
    pub async fn deployment(&self) -> Result<Deployment> {
        let api: Api<Deployment> = Api::namespaced(self.cluster.client(), &self.namespace);
        Ok(api.get(RELEASE).await?)
    }

    /// Returns its Pods.
    pub async fn pods(&self) -> Result<Vec<Pod>> {
        let selector = ListParams::default().labels(&format!("app.kubernetes.io/instance={RELEASE}"));
        let api: Api<Pod> = Api::namespaced(self.cluster.client(), &self.namespace);
        Ok(api.list(&selector).await?.items)
    }

    /// Waits until as many Pods as wanted are ready, of the latest template, and no other is left.
    pub async fn settled(&self) -> Result<Vec<Pod>> {
        every(POLL_INTERVAL, "a settled release", TIMEOUT, async || {
            let deployment = self.deployment().await?;
            let wanted = deployment.spec.and_then(|spec| spec.replicas).unwrap_or(1);
            let status = deployment.status.unwrap_or_default();
            let pods = self.pods().await?;
            let unready: Vec<_> =
                pods.iter().filter(|pod| !is_ready(pod)).map(|pod| (&pod.metadata.name, &pod.status)).collect();
            ensure!(status.observed_generation == deployment.metadata.generation, "not seen yet");
            ensure!(status.updated_replicas == Some(wanted), "of the latest template: {:?}", status.updated_replicas);
            ensure!(
                i32::try_from(pods.len())? == wanted && unready.is_empty(),
                "of {} not ready: {unready:?}",
                pods.len()
            );
            Ok(pods)
        })
        .await
    }

    /// Returns the data of a Secret.
    pub async fn secret(&self, name: &str) -> Result<BTreeMap<String, ByteString>> {
        let api: Api<Secret> = Api::namespaced(self.cluster.client(), &self.namespace);
        api.get(name).await?.data.with_context(|| format!("Secret {name} is empty"))
    }

    /// Creates a NodePort Service for the Pods that the chart's own Service selects, and returns its address.
    async fn expose(&self) -> Result<String> {
        let api: Api<Service> = Api::namespaced(self.cluster.client(), &self.namespace);
        let selector = api.get(RELEASE).await?.spec.and_then(|spec| spec.selector);
        let selector = selector.context("the chart's Service has no selector")?;
        let service = serde_json::from_value(json!({
            "metadata": { "name": "outside" },
            "spec": { "type": "NodePort", "selector": selector, "ports": [{ "port": 8086, "targetPort": "grpc" }] },
        }))?;
        let made = api.create(&PostParams::default(), &service).await?;
        let ports = made.spec.and_then(|spec| spec.ports).unwrap_or_default();
        let port = ports.first().and_then(|port| port.node_port).context("a Service without a port on the Node")?;
        Ok(format!("{}:{port}", self.cluster.node_address()?))
    }

    /// Exposes the Pods outside the cluster, once per release, and returns the connection settings of a Cluster Autoscaler
    /// with the release's cloud-config and client certificate.
    pub async fn connection(&self) -> Result<Connection> {
        let maps: Api<ConfigMap> = Api::namespaced(self.cluster.client(), &self.namespace);
        let map = maps.get(&format!("{RELEASE}-cloud-config")).await?;
        let text = map.data.and_then(|data| data.get("cloud-config.yaml").cloned()).context("no cloud-config.yaml")?;
        let files = self.secret(&format!("{RELEASE}-client")).await?;
        let connector = Connector::new(&serde_yaml::from_str(&text)?, &files)?;
        Ok(Connection { connector, address: self.expose().await? })
    }
}

impl Connection {
    /// Returns a caller with a connection of its own.
    pub fn caller(&self) -> Caller {
        Caller::by(self.connector.channel_to(&self.address))
    }

    /// Connects anew, and returns the certificate that the server shows.
    pub async fn certificate(&self) -> Result<Vec<u8>> {
        self.connector.certificate(&self.address).await
    }
}
