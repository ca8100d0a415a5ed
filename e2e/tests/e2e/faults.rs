//! An API server that goes down, without `MachinePools` installed and for one scenario alone, and a kind that it serves
//! late.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use e2e::{
    crds::{self, LATE_TEMPLATE_KIND},
    pool::Pool,
    wait::{SOON, eventually},
    world::World,
};
use k8s_pb::api::core::v1::Node;
use prost::Message as _;
use serde_json::{Value, json};
use tonic::Code;

use crate::sizes::assert_scale;

/// During the outage reads succeed and writes fail with an answer; afterwards later changes are seen and writes
/// succeed.
pub(crate) async fn an_api_server_that_restarts_is_followed(world: &World) -> Result<()> {
    let group = Pool::new("workers").running(2).create(world).await?;
    let gone = Pool::new("gone").running(1).create(world).await?;
    let status = json!({ "capacity": { "cpu": "8", "memory": "32Gi" } });
    infrastructure(world, "DevMachineTemplate", "big", &status).await?;
    let empty = Pool::new("empty").template("DevMachineTemplate", "big").create(world).await?;
    let provider = world.serve().await?;
    provider.shows(&[&group.id, &gone.id, &empty.id]).await?;

    world.plane.stop_api_server();
    for _ in 0..20 {
        assert_eq!(provider.target_size(&group.id).await?, 2);
        assert_eq!(provider.instances(&group.id).await?.len(), 2);
        // A group that depends on its infrastructure template is served from the index.
        assert_eq!(provider.refreshed_ids().await?, [&*empty.id, &*gone.id, &*group.id]);
        assert!(!provider.template(&empty.id).await?.node_bytes.is_empty());
    }
    let write = provider.increase(&group.id, 1).await;
    let code = write.err().map(|status| status.code());
    let expected = [Code::Unavailable, Code::DeadlineExceeded, Code::Cancelled];
    ensure!(code.is_some_and(|code| expected.contains(&code)), "the write answers {code:?}");

    world.plane.start_api_server().await?;
    world.objects.delete(gone.kind, &gone.name).await?;
    let size = json!({ "spec": { "replicas": 4 } });
    world.objects.patch(group.kind, &group.name, size).await?;
    let new = Pool::new("new").running(1).create(world).await?;
    // A failed watch is retried after a growing pause.
    eventually("what changed after the restart", 3 * SOON, async || {
        let ids = provider.refreshed_ids().await?;
        ensure!(ids == [&*empty.id, &*new.id, &*group.id], "groups are {ids:?}");
        let size = provider.target_size(&group.id).await?;
        ensure!(size == 4, "the size is {size}");
        let found = provider.group_of(&new.nodes[0]).await?;
        ensure!(found.is_some_and(|found| found.id == new.id), "the new Node has no group");
        Ok(())
    })
    .await?;
    provider.increase(&group.id, 1).await?;
    assert_scale(world, &group, 5).await
}

/// An infrastructure provider may be installed after the program was started. Integers in a capacity are accepted like
/// strings.
pub(crate) async fn a_kind_installed_later_is_found_whatever_its_plural(world: &World) -> Result<()> {
    let good = Pool::new("good").running(1).create(world).await?;
    let late = Pool::new("late").template(LATE_TEMPLATE_KIND, "big").create(world).await?;
    let provider = world.serve().await?;
    provider.shows(&[&good.id]).await?;

    crds::install_template(&world.objects, LATE_TEMPLATE_KIND).await?;
    let status = json!({
        "capacity": { "cpu": 8, "memory": "32Gi", "pods": 58 },
        "nodeInfo": { "architecture": "arm64", "operatingSystem": "linux" },
    });
    infrastructure(world, LATE_TEMPLATE_KIND, "big", &status).await?;
    eventually("group of the late kind", 2 * SOON, async || {
        let ids = provider.refreshed_ids().await?;
        ensure!(ids == [good.id.as_str(), late.id.as_str()], "groups are {ids:?}");
        Ok(())
    })
    .await?;

    let answer = provider.template(&late.id).await?;
    ensure!(!answer.node_bytes.is_empty(), "an empty template makes the caller panic");
    ensure!(answer.node_bytes == answer.node_info, "the old field and the new differ");
    let node = Node::decode(answer.node_bytes)?;
    // Pods are placed by allocatable, and no reserved resources are known.
    let status = node.status.context("no status")?;
    ensure!(status.allocatable == status.capacity, "allocatable is not capacity: {status:?}");
    let capacity: BTreeMap<_, _> =
        status.capacity.into_iter().map(|(name, quantity)| (name, quantity.string.unwrap_or_default())).collect();
    for (name, expected) in [("cpu", "8"), ("memory", "32Gi"), ("pods", "58")] {
        ensure!(capacity.get(name).is_some_and(|quantity| quantity == expected), "{name}: {capacity:?}");
    }
    let labels = node.metadata.context("no metadata")?.labels;
    ensure!(labels.get("kubernetes.io/arch").is_some_and(|arch| arch == "arm64"), "{labels:?}");
    Ok(())
}

/// Creates an infrastructure template with a status.
async fn infrastructure(world: &World, kind: &str, name: &str, status: &Value) -> Result<()> {
    let template = json!({
        "kind": kind,
        "metadata": { "name": name },
        "spec": {},
        "status": status,
    });
    world.objects.create(template).await?;
    Ok(())
}
