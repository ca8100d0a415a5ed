//! The zone of the Node that would join, by the Nodes that there are: Cluster Autoscaler places pods with a zone by it.

use std::collections::BTreeMap;

use anyhow::{Result, ensure};
use e2e::{
    pool::{Group, Pool},
    provider::Provider,
    wait::{SOON, eventually},
    world::World,
};
use serde_json::json;

const ZONE: &str = "topology.kubernetes.io/zone";
const REGION: &str = "topology.kubernetes.io/region";

/// The next Node may be in any of them.
pub(crate) async fn a_group_whose_nodes_are_in_several_zones_promises_none(world: &World) -> Result<()> {
    let near = Pool::new("near").running(2).sized().create(world).await?;
    let wide = Pool::new("wide").running(3).sized().create(world).await?;
    let stated = Pool::new("stated").running(2).sized().capacity("labels", &format!("{ZONE}=z"));
    let stated = stated.create(world).await?;
    place(world, &near, &["a", "a"]).await?;
    place(world, &wide, &["a", "b", "c"]).await?;
    place(world, &stated, &["a", "b"]).await?;
    let provider = world.serve().await?;
    provider.shows(&[&near.id, &wide.id, &stated.id]).await?;
    promises(&provider, &near, Some("a")).await?;
    promises(&provider, &wide, None).await?;
    promises(&provider, &stated, Some("z")).await?;

    // Observed zones outlive their Nodes.
    for machine in &wide.machines[1..] {
        world.objects.remove("Machine", machine).await?;
    }
    place(world, &near, &["a", "b"]).await?;
    promises(&provider, &near, None).await?;
    promises(&provider, &wide, None).await
}

/// As with Azure, where a zone is a region and a failure domain.
pub(crate) async fn failure_domains_that_are_no_zones_are_withdrawn(world: &World) -> Result<()> {
    let here = Pool::new("here").running(1).sized().failure_domain("1").create(world).await?;
    let there = Pool::new("there").sized().failure_domain("2").create(world).await?;
    let off = Pool::new("off").sized().failure_domain("2");
    let off = off.annotate("capacity.capi-autoscaler-provider.io/zone-from-failure-domain", "false");
    let off = off.create(world).await?;
    let provider = world.serve().await?;
    provider.shows(&[&here.id, &there.id, &off.id]).await?;
    promises(&provider, &there, Some("2")).await?;
    promises(&provider, &off, None).await?;
    place(world, &here, &["region-1"]).await?;
    promises(&provider, &here, Some("region-1")).await?;
    promises(&provider, &there, None).await
}

/// Puts the Nodes of a group into zones.
async fn place(world: &World, group: &Group, zones: &[&str]) -> Result<()> {
    for (node, zone) in group.nodes.iter().zip(zones) {
        let labels = json!({ "metadata": { "labels": { ZONE: zone, REGION: "r" } } });
        world.objects.patch("Node", &node.name, labels).await?;
    }
    Ok(())
}

/// Waits until the template of a group has this zone, or none.
async fn promises(provider: &Provider, group: &Group, zone: Option<&str>) -> Result<()> {
    eventually(&format!("the zone of {}", group.id), SOON, async || {
        let labels: BTreeMap<_, _> = crate::templates::labels(provider, &group.id).await?;
        let found = labels.get(ZONE).map(String::as_str);
        ensure!(found == zone, "it is {found:?}, expected {zone:?}: {labels:?}");
        Ok(())
    })
    .await
}
