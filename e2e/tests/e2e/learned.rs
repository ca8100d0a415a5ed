//! What templates promise after the group's real Nodes, and of taints that Nodes lose.

use anyhow::{Context as _, Result, ensure};
use e2e::{
    objects::Contract,
    pool::Pool,
    proto::{NodeGroupAutoscalingOptions, NodeGroupAutoscalingOptionsRequest},
    provider::ask,
    wait::{SOON, eventually},
    world::World,
};
use serde_json::json;

use crate::templates::{capacity, label, template};

/// The zone of a volume, by the key of its CSI driver.
const VOLUMES: &str = "topology.ebs.csi.aws.com/zone";
const FEATURE: &str = "RestartAllContainersOnContainerExits";

/// Also when they are gone. A resource of which they have none is in the template of a group that hasn't seen it too, or
/// Cluster Autoscaler wouldn't balance the two.
pub(crate) async fn what_all_nodes_of_a_group_have_is_promised_from_zero(world: &World) -> Result<()> {
    let group = Pool::new("workers").sized().running(2).create(world).await?;
    let other = Pool::new("other").sized().create(world).await?;
    for (rack, node) in group.nodes.iter().enumerate() {
        let labels = json!({ "team": "db", VOLUMES: "eu-1a", "rack": format!("{rack}") });
        world.objects.patch("Node", &node.name, json!({ "metadata": { "labels": labels } })).await?;
        let none = json!({ "hugepages-2Mi": "0" });
        let status = json!({ "declaredFeatures": [FEATURE], "capacity": none, "allocatable": none });
        world.objects.patch_status("Node", &node.name, status).await?;
    }
    let provider = world.serve().await?;
    provider.shows(&[&group.id, &other.id]).await?;
    let promises = async || {
        let node = template(&provider, &group.id).await?;
        let found = ["team", VOLUMES, "rack"].map(|key| label(&node, key));
        ensure!(found == ["db", "eu-1a", "(no label)"], "labels are {found:?}");
        for node in [&node, &template(&provider, &other.id).await?] {
            let found = capacity(node);
            ensure!(found.get("hugepages-2Mi").is_some_and(|amount| amount == "0"), "resources are {found:?}");
        }
        let features = node.status.context("no status")?.declared_features;
        ensure!(features == [FEATURE], "features are {features:?}");
        Ok(())
    };
    eventually("what both Nodes have", SOON, promises).await?;

    world.objects.patch(group.kind, &group.name, json!({ "spec": { "replicas": 0 } })).await?;
    for (machine, node) in group.machines.iter().zip(&group.nodes) {
        world.objects.patch("Machine", machine, json!({ "metadata": { "finalizers": null } })).await?;
        world.objects.remove("Machine", machine).await?;
        world.objects.remove("Node", &node.name).await?;
    }
    eventually("a group of none", SOON, async || {
        let instances = provider.instances(&group.id).await?;
        ensure!(instances.is_empty(), "{instances:?}");
        Ok(())
    })
    .await?;
    promises().await
}

/// A new Node has them until its CNI or the like is up: pods wait for a group that promises them, unless Cluster Autoscaler
/// is told.
pub(crate) async fn taints_that_nodes_lose_are_named_with_the_flag_that_they_need(world: &World) -> Result<()> {
    if world.plane.contract == Contract::V1Beta1 {
        // It has no taints.
        return Ok(());
    }
    let group = Pool::new("workers").sized().create(world).await?;
    let taint = json!({ "key": "cni.example.com/starting", "effect": "NoSchedule", "propagation": "OnInitialization" });
    let patch = json!({ "spec": { "template": { "spec": { "taints": [taint] } } } });
    world.objects.patch(group.kind, &group.name, patch).await?;
    let provider = world.serve().await?;
    provider.shows(&[&group.id]).await?;
    let taints = template(&provider, &group.id).await?.spec.context("no spec")?.taints;
    ensure!(taints.iter().any(|taint| taint.key.as_deref() == Some("cni.example.com/starting")), "{taints:?}");
    let notes = world.explain()?["groups"][0]["notes"].to_string();
    ensure!(notes.contains("--startup-taint=cni.example.com/starting"), "{notes}");
    Ok(())
}

/// Cluster Autoscaler would delete all Nodes of such a group when one of them is late.
pub(crate) async fn zero_or_max_node_scaling_is_a_problem_and_is_not_sent(world: &World) -> Result<()> {
    let option = "cluster.x-k8s.io/autoscaling-options-zeroormaxnodescaling";
    let group = Pool::new("workers").running(1).annotate(option, "true").create(world).await?;
    let provider = world.serve().await?;
    provider.shows(&[&group.id]).await?;
    let defaults = Some(NodeGroupAutoscalingOptions::default());
    let request = NodeGroupAutoscalingOptionsRequest { id: group.id.clone(), defaults };
    let answer = provider.client().node_group_get_options(ask(request)).await;
    let sent = answer.ok().and_then(|answer| answer.into_inner().node_group_autoscaling_options);
    ensure!(sent.as_ref().is_none_or(|options| !options.zero_or_max_node_scaling), "{sent:?}");
    let report = world.explain()?;
    let problems = report["groups"][0]["problems"].to_string();
    ensure!(problems.contains("deletes all Nodes of such a group when one of them is late"), "{report:#}");
    Ok(())
}
