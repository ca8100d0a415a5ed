//! The zone of a template Node, from the existing Nodes: Cluster Autoscaler places Pods with a zone by it.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, ensure};
use e2e::{
    pool::{Group, Pool},
    provider::Provider,
    wait::{SOON, eventually},
    world::World,
};
use serde_json::json;

const ZONE: &str = "topology.kubernetes.io/zone";
const REGION: &str = "topology.kubernetes.io/region";
const TYPE: &str = "node.kubernetes.io/instance-type";

/// The next Node may be in any of the zones.
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

/// The Nodes differ while the instance type changes, or if the group spans regions.
pub(crate) async fn a_group_whose_nodes_differ_in_type_and_region_promises_neither(world: &World) -> Result<()> {
    let alike = Pool::new("alike").running(2).sized().create(world).await?;
    let mixed = Pool::new("mixed").running(2).sized().create(world).await?;
    for (group, other) in [(&alike, "same"), (&mixed, "another")] {
        for (node, value) in group.nodes.iter().zip(["same", other]) {
            let labels = json!({ "metadata": { "labels": { TYPE: value, REGION: value } } });
            world.objects.patch("Node", &node.name, labels).await?;
        }
    }
    let provider = world.serve().await?;
    provider.shows(&[&alike.id, &mixed.id]).await?;
    for key in [TYPE, REGION] {
        has_label(&provider, &alike, key, Some("same")).await?;
        has_label(&provider, &mixed, key, None).await?;
    }
    let report = world.explain()?;
    let groups = report["groups"].as_array().context("groups")?;
    let mixed = groups.iter().find(|it| it["id"] == mixed.id.as_str()).context("the mixed group")?;
    let notes = mixed["notes"].to_string();
    ensure!([TYPE, REGION].iter().all(|key| notes.contains(&format!("different values of {key}"))), "{report:#}");
    Ok(())
}

/// A zone on Azure, for example, consists of a region and a failure domain.
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

/// Labels the Nodes of a group with zones.
async fn place(world: &World, group: &Group, zones: &[&str]) -> Result<()> {
    for (node, zone) in group.nodes.iter().zip(zones) {
        let labels = json!({ "metadata": { "labels": { ZONE: zone, REGION: "r" } } });
        world.objects.patch("Node", &node.name, labels).await?;
    }
    Ok(())
}

/// Waits until the template of a group has this zone, or none.
async fn promises(provider: &Provider, group: &Group, zone: Option<&str>) -> Result<()> {
    has_label(provider, group, ZONE, zone).await
}

/// Waits until the template of a group has this label, or none of the key.
async fn has_label(provider: &Provider, group: &Group, key: &str, value: Option<&str>) -> Result<()> {
    eventually(&format!("{key} of {}", group.id), SOON, async || {
        let labels: BTreeMap<_, _> = crate::templates::labels(provider, &group.id).await?;
        let found = labels.get(key).map(String::as_str);
        ensure!(found == value, "it is {found:?}, expected {value:?}: {labels:?}");
        Ok(())
    })
    .await
}
