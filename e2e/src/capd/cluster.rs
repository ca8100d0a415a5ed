//! A Cluster in memory, with a control plane of one machine.

use anyhow::{Context as _, Result};
use k8s_openapi::{ByteString, api::core::v1::Node};
use kube::{Api, Client, api::ListParams, config::Kubeconfig};
use serde_json::{Value, json};

use super::{Environment, MACHINE_VERSION, TEMPLATE_KIND};
use crate::{
    cluster_api::{POLL_INTERVAL, TIMEOUT},
    objects::{self, Objects, infrastructure_reference},
    wait::every,
};

impl Environment {
    /// Creates a Cluster, and waits until its API server answers.
    pub async fn create_cluster(&self, objects: &Objects, name: &str) -> Result<Client> {
        let metadata = json!({ "name": name });
        let node = json!({ "nodeRegistration": { "criSocket": "unix:///var/run/containerd/containerd.sock" } });
        let objects_to_be = [
            json!({
                "kind": "DevCluster",
                // CAPD adds an annotation by a patch that fails without existing annotations.
                "metadata": { "name": name, "annotations": { "kubernetes.io/description": "in memory" } },
                "spec": { "backend": { "inMemory": {} } },
            }),
            json!({
                "kind": TEMPLATE_KIND,
                "metadata": metadata,
                "spec": { "template": { "spec": { "backend": in_memory() } } },
            }),
            json!({
                "kind": "KubeadmConfigTemplate",
                "metadata": metadata,
                "spec": { "template": { "spec": { "joinConfiguration": node } } },
            }),
            json!({
                "kind": "KubeadmControlPlane",
                "metadata": metadata,
                "spec": {
                    "replicas": 1,
                    "version": MACHINE_VERSION,
                    "machineTemplate": { "spec": { "infrastructureRef": infrastructure_reference(TEMPLATE_KIND, name) } },
                    "kubeadmConfigSpec": {
                        "clusterConfiguration": { "apiServer": { "certSANs": ["localhost", "127.0.0.1"] } },
                        "initConfiguration": node,
                        "joinConfiguration": node,
                    },
                },
            }),
            json!({
                "kind": "Cluster",
                "metadata": metadata,
                "spec": {
                    "clusterNetwork": {
                        "services": { "cidrBlocks": ["10.128.0.0/12"] },
                        "pods": { "cidrBlocks": ["192.168.0.0/16"] },
                        "serviceDomain": "cluster.local",
                    },
                    "infrastructureRef": infrastructure_reference("DevCluster", name),
                    "controlPlaneRef": {
                        "apiGroup": "controlplane.cluster.x-k8s.io",
                        "kind": "KubeadmControlPlane",
                        "name": name,
                    },
                },
            }),
        ];
        for object in objects_to_be {
            objects.create(object).await?;
        }
        every(POLL_INTERVAL, "an API server in memory", TIMEOUT, async || {
            let client = client(objects, name).await?;
            // CAPD's API server doesn't answer version requests.
            Api::<Node>::all(client.clone()).list(&ListParams::default()).await?;
            Ok(client)
        })
        .await
    }
}

/// Returns the backend of a machine in memory, with the shortest configurable times.
pub(crate) fn in_memory() -> Value {
    let soon = json!({ "provisioning": { "startupDuration": "1s", "startupJitter": "0" } });
    json!({ "inMemory": { "vm": soon, "node": soon, "apiServer": soon, "etcd": soon } })
}

/// Returns a client with the kubeconfig that Cluster API keeps.
async fn client(objects: &Objects, cluster: &str) -> Result<Client> {
    objects::client(Kubeconfig::from_yaml(&kubeconfig(objects, cluster).await?)?).await
}

/// Returns the kubeconfig that Cluster API keeps.
pub(crate) async fn kubeconfig(objects: &Objects, cluster: &str) -> Result<String> {
    let secret = objects.get("Secret", &format!("{cluster}-kubeconfig")).await?;
    let value: ByteString = serde_json::from_value(secret.data["data"]["value"].clone())?;
    String::from_utf8(value.0).context("the kubeconfig of the Secret")
}
