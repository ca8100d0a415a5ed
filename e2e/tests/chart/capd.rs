//! The manifests of `e2e/capd` against Cluster API's own schemas. Its Docker provider's kinds come with its image only.

use std::{fs, sync::Arc};

use anyhow::{Context as _, Result, ensure};
use e2e::{
    control_plane::ControlPlane,
    crds::{self, Installed},
    go, helm,
    objects::Contract,
};
use serde_json::json;

/// The CRDs of the kinds in the manifests that a Go module has, below that module's directory.
const SCHEMAS: [&str; 4] = [
    "core/config/crd/bases/cluster.x-k8s.io_clusters.yaml",
    "core/config/crd/bases/cluster.x-k8s.io_machinedeployments.yaml",
    "bootstrap/kubeadm/config/crd/bases/bootstrap.cluster.x-k8s.io_kubeadmconfigtemplates.yaml",
    "controlplane/kubeadm/config/crd/bases/controlplane.cluster.x-k8s.io_kubeadmcontrolplanes.yaml",
];

#[tokio::test(flavor = "multi_thread")]
async fn the_workload_cluster_of_capd_is_accepted_by_cluster_apis_schemas() -> Result<()> {
    let components = Arc::new(go::components()?);
    let module = components.manifests.ancestors().nth(2).context("manifests outside of a module")?.to_owned();
    let plane = ControlPlane::start(components, Contract::V1Beta2, Installed::Nothing).await?;
    let objects = plane.objects("team-a");
    objects.create(json!({ "kind": "Namespace", "metadata": { "name": "team-a" } })).await?;
    crds::install_files(&objects, &SCHEMAS.map(|file| module.join(file))).await?;
    let manifests = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/capd/cluster.yaml"))?;
    let mut accepted = Vec::new();
    for object in helm::objects(&manifests.replace("KUBERNETES_VERSION", "v1.36.1"))? {
        let kind = object["kind"].as_str().context("an object without kind")?.to_owned();
        if kind.starts_with("Dev") {
            continue;
        }
        objects.create(object).await?;
        accepted.push(kind);
    }
    let expected = ["Cluster", "KubeadmControlPlane", "KubeadmConfigTemplate", "MachineDeployment"];
    ensure!(accepted == expected, "the manifests have {accepted:?}, and the schemas are of {expected:?}");
    Ok(())
}
