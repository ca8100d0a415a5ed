//! Pods that request a zone, and groups of which only some fit.

use anyhow::{Context as _, Result, ensure};
use e2e::{
    autoscaling::Settings,
    controllers::{groups::Group, testbed::Testbed},
    provider::Provider,
    wait::{SOON, eventually},
};
use serde_json::{Value, json};

use crate::pods::{create_pod_on, increases, pods_run, workers};

const ZONE: &str = "topology.kubernetes.io/zone";

/// The group that is spread over zones wastes fewer CPUs, so it would be chosen if its template had a zone. Only the
/// group whose Nodes were all in the zone fits.
pub(crate) async fn a_pod_with_a_zone_takes_the_group_that_is_all_there(testbed: &Testbed) -> Result<()> {
    let spread = workers(testbed, "spread").publishing(testbed.capacity(&testbed.cpu(4, 16))).replicas(2);
    let spread = spread.create(testbed).await?;
    let single = workers(testbed, "single").publishing(testbed.capacity(&testbed.cpu(16, 16))).replicas(1).bounds(0, 1);
    let single = single.create(testbed).await?;
    place(testbed, &spread, &["a", "b"]).await?;
    place(testbed, &single, &["a"]).await?;
    // Cluster Autoscaler would remember a Node that it has seen itself, with its zone.
    let provider = testbed.serve().await?;
    promises(&provider, &spread, None).await?;
    promises(&provider, &single, Some("a")).await?;
    for group in [&spread, &single] {
        testbed.objects.patch(group.kind, &group.name, json!({ "spec": { "replicas": 0 } })).await?;
        testbed.running(group, 0).await?;
    }
    promises(&provider, &single, Some("a")).await?;
    let mut autoscaling = testbed.autoscale_by(provider, Settings::default()).await?;
    create_pod_on(testbed, "web", &testbed.cpu(3, 16), json!({ ZONE: "a" })).await?;
    autoscaling.sizes(&[(&spread.id, 0), (&single.id, 1)]).await?;
    place(testbed, &single, &["a"]).await?;
    pods_run(testbed, &mut autoscaling, 1).await?;
    let Some(calls) = autoscaling.end().await? else { return Ok(()) };
    let increased = increases(&calls)?;
    ensure!(increased.len() == 1 && increased[0].id == single.id, "{increased:?}");
    Ok(())
}

/// Waits for as many Nodes of a group as there are zones, and labels each with one, as a cloud controller does.
async fn place(testbed: &Testbed, group: &Group, zones: &[&str]) -> Result<()> {
    let machines = testbed.running(group, zones.len()).await?;
    for (machine, zone) in machines.iter().zip(zones) {
        let node = machine.node.as_ref().context("a running Machine without a Node")?;
        let labels: Value = json!({ "metadata": { "labels": { ZONE: zone } } });
        testbed.workload.patch("Node", node, labels).await?;
    }
    Ok(())
}

/// Waits until the template of a group has this zone, or none.
async fn promises(provider: &Provider, group: &Group, zone: Option<&str>) -> Result<()> {
    eventually(&format!("the zone of {}", group.id), SOON, async || {
        let labels = provider.template_node(&group.id).await?.metadata.unwrap_or_default().labels;
        let found = labels.get(ZONE).map(String::as_str);
        ensure!(found == zone, "it is {found:?}, expected {zone:?}: {labels:?}");
        Ok(())
    })
    .await
}
