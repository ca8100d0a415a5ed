//! The workload cluster of `capd/cluster.yaml`: a load balancer, a control plane and workers, all of them containers.

use std::{
    fs,
    io::Write as _,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::Node;
use kube::{Api, Client, api::ListParams, config::Kubeconfig};
use serde_json::{Value, json};

use super::Management;
use crate::{
    capd,
    existing::{Clusters, TIMEOUT},
    go, helm,
    images::Docker,
    nodes::POLL_INTERVAL,
    objects::{self, Objects},
    process::output,
    wait::every,
};

/// The Cluster with its control plane and workers.
const MANIFEST: &str = include_str!("../../capd/cluster.yaml");

/// The namespace of the Cluster, of the chart and of the autoscaler.
pub const NAMESPACE: &str = "team-a";

/// The name of the Cluster.
const CLUSTER: &str = "prod";

/// The label by which Docker finds the containers of the Cluster.
const LABEL: &str = "io.x-k8s.kind.cluster=prod";

/// The workload cluster. Dropping it removes its containers.
pub struct Workload {
    /// The kubeconfigs and names by which scenarios find both clusters.
    pub clusters: Clusters,
    /// An administrator's client.
    pub client: Client,
    objects: Objects,
    docker: Docker,
}

impl Workload {
    /// Creates it, and waits until its first Node is ready. If that fails, the logs of its containers are kept.
    pub(super) async fn create(management: &Management, logs: &Path) -> Result<Self> {
        let docker = Docker::running()?;
        let found = docker.lines(&["ps", "--all", "--filter", &format!("label={LABEL}"), "--format", "{{.Names}}"])?;
        ensure!(found.is_empty(), "containers {found:?} are of another Cluster {CLUSTER}: remove them first");
        let objects = management.cluster.objects(NAMESPACE);
        objects.create(json!({ "kind": "Namespace", "metadata": { "name": NAMESPACE } })).await?;
        for object in manifest(management).await? {
            objects.create(object).await?;
        }
        let kubeconfig = management.directory().join("workload.kubeconfig");
        let client = every(POLL_INTERVAL, "the control plane", TIMEOUT, async || {
            let cluster = objects.get("Cluster", CLUSTER).await?;
            let state = &cluster.data["status"]["initialization"];
            ensure!(state["controlPlaneInitialized"] == true, "initialization is {state}");
            let text = capd::kubeconfig(&objects, CLUSTER).await?;
            fs::write(&kubeconfig, &text)?;
            objects::client(Kubeconfig::from_yaml(&text)?).await
        })
        .await;
        let clusters = Clusters {
            management: management.kubeconfig(),
            workload: kubeconfig.clone(),
            namespace: NAMESPACE.to_owned(),
            cluster: CLUSTER.to_owned(),
            workers: "workers".to_owned(),
        };
        let client = match client {
            Ok(client) => client,
            Err(error) => {
                let _ = keep_logs(docker, logs);
                // Its containers would outlive the clusters that know of them.
                remove_containers(docker)?;
                return Err(error);
            }
        };
        let workload = Self { clusters, client, objects, docker };
        let ready = async {
            workload.install_network()?;
            workload.works().await
        };
        let ready = ready.await;
        if ready.is_err() {
            let _ = workload.keep_logs(logs);
        }
        ready?;
        Ok(workload)
    }

    /// Installs the Pod network that the node image brings as a template.
    fn install_network(&self) -> Result<()> {
        let control_plane = self.containers("control-plane")?;
        let [container] = control_plane.as_slice() else {
            anyhow::bail!("the control plane is {control_plane:?}, not one container");
        };
        let template = self.docker.run(&["exec", container, "cat", "/kind/manifests/default-cni.yaml"])?;
        let manifest =
            template.replace("{{ .PodSubnet }}", "192.168.0.0/16").replace("{{.PodSubnet}}", "192.168.0.0/16");
        let mut file = tempfile::NamedTempFile::new()?;
        file.write_all(manifest.as_bytes())?;
        let mut kubectl = Command::new(go::components()?.kubectl);
        kubectl.arg("--kubeconfig").arg(&self.clusters.workload).args(["apply", "--filename"]).arg(file.path());
        output(&mut kubectl)?;
        Ok(())
    }

    /// Waits until the control plane's Node is ready and the capacity of the workers is known.
    async fn works(&self) -> Result<()> {
        every(POLL_INTERVAL, "the control plane's Node and the workers' capacity", TIMEOUT, async || {
            let nodes = Api::<Node>::all(self.client.clone()).list(&ListParams::default()).await?;
            let conditions = nodes.items.iter().filter_map(|node| node.status.as_ref()?.conditions.as_ref());
            let ready = conditions.flatten().filter(|one| one.type_ == "Ready" && one.status == "True").count();
            ensure!(ready == 1, "{ready} of {} Nodes are ready", nodes.items.len());
            let template = self.objects.get(capd::TEMPLATE_KIND, "workers").await?;
            let capacity = &template.data["status"]["capacity"];
            ensure!(capacity["cpu"].is_string() && capacity["memory"].is_string(), "the capacity is {capacity}");
            Ok(())
        })
        .await
    }

    /// Returns the names of the running containers with a role, such as `worker`.
    pub fn containers(&self, role: &str) -> Result<Vec<String>> {
        let role = format!("label=io.x-k8s.kind.role={role}");
        self.docker.lines(&["ps", "--filter", &format!("label={LABEL}"), "--filter", &role, "--format", "{{.Names}}"])
    }

    /// Keeps the logs of its containers in a directory.
    pub(super) fn keep_logs(&self, logs: &Path) -> Result<()> {
        keep_logs(self.docker, logs)
    }

    /// Deletes the Cluster, and waits until its containers are gone.
    pub(super) async fn remove(self) -> Result<()> {
        self.objects.remove("Cluster", CLUSTER).await?;
        every(POLL_INTERVAL, "the Cluster gone", TIMEOUT, async || {
            let found = self.objects.find("Cluster", CLUSTER).await?;
            ensure!(found.is_none(), "it is still there: {:?}", found.map(|found| found.data));
            Ok(())
        })
        .await
    }
}

impl Drop for Workload {
    fn drop(&mut self) {
        // The containers of a Cluster that `remove` has deleted aren't there any more.
        let _ = remove_containers(self.docker);
    }
}

/// Keeps the end of the output and of the journal of each container. The load balancer has no journal, nor does a
/// container that was stopped show its own: the file has Docker's message then.
fn keep_logs(docker: Docker, logs: &Path) -> Result<()> {
    let directory = logs.join("workload");
    fs::create_dir_all(&directory)?;
    for container in docker.lines(&["ps", "--all", "--filter", &format!("label={LABEL}"), "--format", "{{.Names}}"])? {
        let file = |kind: &str| directory.join(format!("{container}-{kind}.log"));
        docker.keep_output(&["logs", "--tail=5000", &container], &file("output"))?;
        // The kubelet's and containerd's, and that of what Cluster API has run at the first start.
        let journal = ["timeout", "60", "journalctl", "--no-pager", "--lines=10000"];
        docker.keep_output(&[&["exec", container.as_str()][..], &journal].concat(), &file("journal"))?;
    }
    Ok(())
}

fn remove_containers(docker: Docker) -> Result<()> {
    for container in docker.lines(&["ps", "--all", "--quiet", "--filter", &format!("label={LABEL}")])? {
        docker.run(&["rm", "--force", "--volumes", &container])?;
    }
    Ok(())
}

/// Returns the objects of the manifest, with the built images.
async fn manifest(management: &Management) -> Result<Vec<Value>> {
    let images = &management.cluster.images;
    let load_balancer = images.load_balancer().await?;
    let mut objects = helm::objects(&MANIFEST.replace("KUBERNETES_VERSION", images.version()?))?;
    for object in &mut objects {
        let kind = object["kind"].as_str().context("an object without kind")?;
        if kind == capd::TEMPLATE_KIND {
            object["spec"]["template"]["spec"]["backend"]["docker"]["customImage"] = json!(images.node);
        } else if kind == "DevCluster" {
            // CAPD's webhook would set it, where one is installed.
            object["spec"]["controlPlaneEndpoint"] = json!({ "port": 6443 });
            if let Some(load_balancer) = load_balancer {
                object["spec"]["backend"]["docker"]["loadBalancer"] =
                    json!({ "imageRepository": load_balancer.repository, "imageTag": load_balancer.tag });
            }
        }
    }
    Ok(objects)
}

/// Returns the path of a file of this crate's directory `capd`.
pub(super) fn file(name: &str) -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/capd")).join(name)
}
