//! Groups of a ClusterClass that nothing but a ConfigMap scales from zero.

use anyhow::{Context as _, Result, ensure};
use e2e::{
    autoscaling::Settings,
    controllers::{
        groups::{Group, MAX, MIN},
        testbed::{NODE_POOL, POLL_INTERVAL, REMEMBERED, TIMEOUT, Testbed},
    },
    wait::{SOON, eventually, every},
};
use serde_json::{Value, json};

use crate::{
    pods::{pod_on, pods_run},
    topologies::{create_class, create_cluster, group},
};

const GPU: &str = "nvidia.com/gpu";
/// The variable of the program with the ConfigMap.
const REMEMBER_IN: &str = "CAPI_AUTOSCALER_REMEMBER_IN";

/// A group grows from zero by what is remembered after the program and Cluster Autoscaler have restarted and the topology
/// has renamed its template. A second Cluster of the class has never had a Node, and shares; one of another namespace
/// doesn't.
pub(crate) async fn what_is_remembered_grows_a_group_from_zero_after_restarts(testbed: &Testbed) -> Result<()> {
    testbed.keep_memory().await?;
    let place = format!("{}/{REMEMBERED}", testbed.namespace);
    let environment = [(REMEMBER_IN, &*place)];
    create_gpu_class(testbed).await?;
    let cluster = create_empty_cluster(testbed, "first").await?;
    let groups = [group(testbed, "gpu").await?, group(testbed, "other").await?];
    let [gpu, other] = &groups;
    seen_once(testbed, &cluster, &groups, &environment).await?;
    rename_template(testbed, gpu).await?;

    let provider = testbed.serve_cluster(&cluster, &environment).await?;
    eventually("both groups by what is remembered", SOON, async || {
        let state = provider.admin("/debug/state").await?.1;
        ensure!(state.matches(r#""fromZero":"remembered""#).count() == 2, "{state}");
        Ok(())
    })
    .await?;
    let mut autoscaling = testbed.autoscale_by(provider, Settings::default()).await?;
    let mut pod = pod_on(testbed, "train", "3", json!({ "team": "db" }));
    pod["spec"]["containers"][0]["resources"]["limits"] = json!({ GPU: "1" });
    testbed.workload.create(pod).await?;
    pods_run(testbed, &mut autoscaling, 1).await?;
    autoscaling.sizes(&[(&gpu.id, 1), (&other.id, 0)]).await?;
    autoscaling.end().await?;

    let sister = create_empty_cluster(testbed, "second").await?;
    let provider = testbed.serve_cluster(&sister, &environment).await?;
    let of_sister = provider.refreshed_ids().await?.into_iter().find(|id| id.contains("second") && id.contains("gpu"));
    let of_sister = of_sister.context("no group of the second Cluster")?;
    let node = provider.template_node(&of_sister).await?;
    let labels = node.metadata.context("no metadata")?.labels;
    let capacity = node.status.context("no status")?.capacity;
    ensure!(
        capacity.contains_key(GPU) && labels.get("team").is_some_and(|team| team == "db"),
        "{capacity:?}, {labels:?}"
    );
    // The first Cluster is at its maximum, so its Node has no GPU left.
    let mut autoscaling = testbed.autoscale_by(provider, Settings::default()).await?;
    let mut pod = pod_on(testbed, "train-more", "3", json!({ "team": "db" }));
    pod["spec"]["containers"][0]["resources"]["limits"] = json!({ GPU: "1" });
    testbed.workload.create(pod).await?;
    pods_run(testbed, &mut autoscaling, 2).await?;
    autoscaling.sizes(&[(&of_sister, 1)]).await?;
    autoscaling.end().await?;

    let neighbour = testbed.neighbour().await?;
    testbed.grant_memory(neighbour.user()).await?;
    create_gpu_class(&neighbour).await?;
    let cluster = create_empty_cluster(&neighbour, "third").await?;
    let foreign = group(&neighbour, "gpu").await?;
    let provider = neighbour.serve_cluster(&cluster, &environment).await?;
    eventually("what is remembered, and the group without a template", SOON, async || {
        let metrics = provider.admin("/metrics").await?.1;
        let read = metrics.lines().filter(|line| line.starts_with("capi_autoscaler_provider_remembered_nodes "));
        ensure!(read.clone().any(|line| !line.ends_with(" 0")), "{:?}", read.collect::<Vec<_>>());
        let ids = provider.refreshed_ids().await?;
        let state: Value = serde_json::from_str(&provider.admin("/debug/state").await?.1)?;
        ensure!(ids.is_empty() && state.to_string().contains(&foreign.id), "groups {ids:?}, {state}");
        Ok(())
    })
    .await
}

/// Lets each group have a Node until it is remembered, and return to zero.
async fn seen_once(testbed: &Testbed, cluster: &str, groups: &[Group], environment: &[(&str, &str)]) -> Result<()> {
    let provider = testbed.serve_cluster(cluster, environment).await?;
    let size = async |group: &Group, replicas: usize| {
        let name = group.id.rsplit('/').next().unwrap_or_default();
        testbed.objects.patch(group.kind, name, json!({ "spec": { "replicas": replicas } })).await?;
        testbed.running(group, replicas).await.map(drop)
    };
    for group in groups {
        size(group, 1).await?;
    }
    every(POLL_INTERVAL, "both groups in the ConfigMap", TIMEOUT, async || {
        let data = testbed.objects.get("ConfigMap", REMEMBERED).await?.data["data"].clone();
        let text = data.to_string();
        ensure!(groups.iter().all(|group| text.contains(&group.id)) && text.contains(GPU), "it has {data}");
        Ok(())
    })
    .await?;
    // It restarts too: what it knows of the Nodes is in its memory.
    let mut autoscaling = testbed.autoscale_by(provider, Settings::default()).await?;
    autoscaling.wait_for_loops(1).await?;
    autoscaling.end().await?;
    drop(autoscaling);
    for group in groups {
        size(group, 0).await?;
    }
    Ok(())
}

/// Has the topology change a group's template and change it back, for which it makes a new one each time.
async fn rename_template(testbed: &Testbed, group: &Group) -> Result<()> {
    let name = group.id.rsplit('/').next().unwrap_or_default();
    let used = async || -> Result<Value> {
        let object = testbed.objects.get(group.kind, name).await?;
        Ok(object.data["spec"]["template"]["spec"]["infrastructureRef"]["name"].clone())
    };
    let first = used().await?;
    for changed_to in ["changed", "gpu"] {
        let before = used().await?;
        let mut class = testbed.objects.get("ClusterClass", "class").await?.data["spec"].clone();
        class["workers"]["machineDeployments"][0]["infrastructure"]["templateRef"]["name"] = json!(changed_to);
        testbed.objects.patch("ClusterClass", "class", json!({ "spec": class })).await?;
        every(POLL_INTERVAL, "another template of the topology", TIMEOUT, async || {
            let now = used().await?;
            ensure!(now != before, "it is {now}");
            Ok(())
        })
        .await?;
    }
    let last = used().await?;
    ensure!(last != first, "the template is {first} again");
    Ok(())
}

/// Creates a class with two kinds of workers, whose capacity nothing publishes.
async fn create_gpu_class(testbed: &Testbed) -> Result<()> {
    let template = |cpu: &str, gpu: Option<&str>, team: &str| {
        let mut capacity = testbed.capacity(cpu);
        if let Some(gpu) = gpu {
            capacity[GPU] = json!(gpu);
        }
        json!({
            "publishesCapacity": false,
            "template": { "spec": { "capacity": capacity, "nodeLabels": { "team": team } } },
        })
    };
    let templates = [
        ("gpu", template("4", Some("1"), "db")),
        ("changed", template("16", None, "db")),
        ("other", template("8", None, "web")),
    ];
    create_class(testbed, &templates, &["gpu", "other"]).await
}

/// Creates a Cluster of the class, whose groups have no replicas.
async fn create_empty_cluster(testbed: &Testbed, name: &str) -> Result<String> {
    let name = format!("{}-{name}", testbed.cluster);
    let deployment = |class: &str| {
        json!({
            "class": class,
            "name": class,
            "metadata": { "labels": { "pool": class, NODE_POOL: testbed.mark() }, "annotations": { MIN: "0", MAX: "1" } },
        })
    };
    create_cluster(testbed, &name, json!([deployment("gpu"), deployment("other")])).await?;
    Ok(name)
}
