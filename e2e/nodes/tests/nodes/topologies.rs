//! Each layout of clusters that the examples have values for. One cluster plays all parts: its kubeconfig in a Secret
//! names the API server by its Service, which Pods find by the cluster's DNS.

use anyhow::{Context as _, Result};
use e2e::{
    helm::{TOPOLOGIES, Values},
    nodes::{Group, Release, Testbed},
};
use serde_json::json;

pub(crate) async fn each_example_runs(testbed: &Testbed<'_>) -> Result<()> {
    let group = Group::create(&testbed.objects, "workers", 1).await?;
    let kubeconfig = testbed.cluster.kubeconfig_for_pods().to_string();
    for name in ["prod-kubeconfig", "management-kubeconfig"] {
        let secret = json!({
            "kind": "Secret",
            "metadata": { "name": name, "labels": { "cluster.x-k8s.io/cluster-name": "prod" } },
            "stringData": { "value": kubeconfig },
        });
        testbed.objects.create(secret).await?;
    }
    let mut folders = Vec::new();
    for entry in std::fs::read_dir(TOPOLOGIES)? {
        let path = entry?.path();
        if path.is_dir() {
            folders.push(path.file_name().context("a folder without name")?.display().to_string());
        }
    }
    folders.sort();
    for folder in folders {
        runs(testbed, &folder, &group).await.with_context(|| folder.clone())?;
    }
    Ok(())
}

async fn runs(testbed: &Testbed<'_>, folder: &str, group: &Group) -> Result<()> {
    let release = Release::new(testbed.cluster, &testbed.namespace);
    let values =
        Values::of_topology(folder, &testbed.namespace)?.set("autoDiscovery.namespace", json!(testbed.namespace));
    release.apply("install", &release.with_image(values)).await?;
    let outside = release
        .outside(&format!("outside-{folder}"), &json!({ "app.kubernetes.io/instance": e2e::helm::RELEASE }))
        .await?;
    release.connection(&outside).await?.caller().shows(&[&group.id]).await?;
    release.uninstall().await
}
