//! Groups whose Nodes have more than Cluster API says of them: labels of their kubelets, features, GPUs, and an id that
//! is written in another way.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use e2e::{
    autoscaling::Settings,
    controllers::{groups::Group, testbed::Testbed},
    wait::{SOON, eventually},
};
use serde_json::json;

use crate::pods::{create_pod, pod_on, pods_run, workers};

/// A feature that kubelets and the scheduler of Kubernetes 1.36 know: a Pod that restarts as a whole needs it.
const FEATURE: &str = "RestartAllContainersOnContainerExits";
const GPU: &str = "nvidia.com/gpu";
const GPU_LABEL: &str = "cluster-api/accelerator";
const LABELS: &str = "capacity.cluster-autoscaler.kubernetes.io/labels";

/// The template has the label and the feature of Nodes that are gone. Without the label no version, and without the
/// feature none from 1.36 on, would grow the group.
pub(crate) async fn a_pod_that_needs_what_nodes_had_grows_a_group_from_zero(testbed: &Testbed) -> Result<()> {
    let group = workers(testbed, "workers").publishing(testbed.capacity("4")).kubelet_label("team", "db");
    let group = group.replicas(1).bounds(0, 1).create(testbed).await?;
    declare(testbed, &group).await?;
    // Cluster Autoscaler would remember a Node that it has seen itself.
    let provider = testbed.serve().await?;
    eventually("the label and the feature of the Node", SOON, async || {
        let node = provider.template_node(&group.id).await?;
        let labels = node.metadata.context("no metadata")?.labels;
        let features = node.status.context("no status")?.declared_features;
        let has_label = labels.get("team").is_some_and(|team| team == "db");
        ensure!(has_label && features == [FEATURE], "{labels:?}, {features:?}");
        Ok(())
    })
    .await?;
    testbed.objects.patch(group.kind, &group.name, json!({ "spec": { "replicas": 0 } })).await?;
    testbed.running(&group, 0).await?;

    let mut autoscaling = testbed.autoscale_by(provider, Settings::default()).await?;
    let mut pod = pod_on(testbed, "web", "3", json!({ "team": "db" }));
    pod["spec"]["containers"][0]["restartPolicy"] = json!("Never");
    let rule = json!({ "action": "RestartAllContainers", "exitCodes": { "operator": "In", "values": [1] } });
    pod["spec"]["containers"][0]["restartPolicyRules"] = json!([rule]);
    testbed.workload.create(pod).await?;
    autoscaling.sizes(&[(&group.id, 1)]).await?;
    declare(testbed, &group).await?;
    pods_run(testbed, &mut autoscaling, 1).await?;
    autoscaling.end().await?;
    Ok(())
}

/// Declares the feature on the only Node of a group, as its kubelet does.
async fn declare(testbed: &Testbed, group: &Group) -> Result<()> {
    let machines = testbed.running(group, 1).await?;
    let node = machines[0].node.as_ref().context("a running Machine without a Node")?;
    testbed.workload.patch_status("Node", node, json!({ "declaredFeatures": [FEATURE] })).await
}

/// Cluster Autoscaler takes the Node for ready, since it has the label and a GPU.
pub(crate) async fn a_group_with_gpus_grows_from_zero_and_shrinks_to_zero(testbed: &Testbed) -> Result<()> {
    let mut capacity = testbed.capacity("4");
    capacity[GPU] = json!("1");
    let group = workers(testbed, "gpu").publishing(capacity).kubelet_label(GPU_LABEL, "t4");
    let group = group.annotate(LABELS, &format!("{GPU_LABEL}=t4")).create(testbed).await?;
    let mut autoscaling = testbed.autoscale(Settings::default()).await?;
    for number in 0..2 {
        let mut pod = pod_on(testbed, &format!("train-{number}"), "3", json!({ GPU_LABEL: "t4" }));
        pod["spec"]["containers"][0]["resources"]["limits"] = json!({ GPU: "1" });
        testbed.workload.create(pod).await?;
    }
    pods_run(testbed, &mut autoscaling, 2).await?;
    testbed.running(&group, 2).await?;
    for number in 0..2 {
        testbed.workload.delete("Pod", &format!("train-{number}")).await?;
    }
    autoscaling.sizes(&[(&group.id, 0)]).await?;
    testbed.running(&group, 0).await?;
    autoscaling.end().await?;
    Ok(())
}

/// By the Machine's id Cluster Autoscaler would take a busy Node for one that never registered, and delete it.
pub(crate) async fn a_node_whose_id_its_machine_writes_in_another_form_stays(testbed: &Testbed) -> Result<()> {
    let group = workers(testbed, "workers").publishing(testbed.capacity("4")).replicas(1).bounds(0, 1);
    let group = group.create(testbed).await?;
    testbed.change_form_of_id(&group).await?;
    create_pod(testbed, "web", "3").await?;

    let settings = Settings { provision: Duration::from_secs(1), ..Settings::default() };
    let mut autoscaling = testbed.autoscale(settings).await?;
    pods_run(testbed, &mut autoscaling, 1).await?;
    // Longer than it waits for a Machine that doesn't register.
    autoscaling.wait_for_loops(8).await?;
    let deletes = autoscaling.calls.of("NodeGroupDeleteNodes");
    ensure!(deletes.is_empty(), "{deletes:?}");

    testbed.workload.delete("Pod", "web").await?;
    autoscaling.sizes(&[(&group.id, 0)]).await?;
    testbed.running(&group, 0).await?;
    autoscaling.end().await?;
    Ok(())
}
