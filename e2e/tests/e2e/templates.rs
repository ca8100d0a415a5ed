//! Infrastructure templates: those that are read, and those that can't be, which concern their own groups alone.

use std::{collections::BTreeMap, time::Instant};

use anyhow::{Context, Result, ensure};
use e2e::{
    crds::{self, LATE_TEMPLATE_KIND},
    pool::Pool,
    provider::Provider,
    wait::{SOON, eventually},
    world::World,
};
use k8s_pb::api::core::v1::Node;
use prost::Message as _;
use serde_json::{Value, json};
use tonic::Code;

const ARCHITECTURE: &str = "kubernetes.io/arch";

/// The kind isn't installed, isn't allowed, or the object is missing: a group with Machines is served, one without has
/// no template.
pub(crate) async fn a_missing_kind_a_forbidden_kind_and_a_missing_template_hold_up_nothing(
    world: &World,
) -> Result<()> {
    let status = json!({ "capacity": { "cpu": "8", "memory": "32Gi" } });
    infrastructure(world, "ForbiddenMachineTemplate", "there", &status).await?;
    infrastructure(world, "DevMachineTemplate", "there", &status).await?;
    let good = Pool::new("good").template("DevMachineTemplate", "there").create(world).await?;
    let troubles = [
        ("missing-kind", "NowhereMachineTemplate", "there"),
        ("forbidden-kind", "ForbiddenMachineTemplate", "there"),
        ("missing-template", "DevMachineTemplate", "not-there"),
    ];
    let mut served = vec![good.id.clone()];
    for (name, kind, template) in troubles {
        let empty = Pool::new(&format!("{name}-empty")).template(kind, template);
        empty.create(world).await?;
        let running = Pool::new(name).running(1).template(kind, template).create(world).await?;
        served.push(running.id);
        // Its annotations are enough.
        let sized = Pool::new(&format!("{name}-sized")).sized().template(kind, template);
        served.push(sized.create(world).await?.id);
    }
    let provider = world.serve().await?;
    let ids: Vec<&str> = served.iter().map(String::as_str).collect();
    provider.shows(&ids).await?;

    let start = Instant::now();
    for id in &served {
        provider.refresh().await?;
        provider.target_size(id).await?;
        provider.instances(id).await?;
        match provider.template(id).await {
            Ok(answer) => ensure!(!answer.node_bytes.is_empty(), "{id}: an empty template"),
            // A missing template is a valid answer, except for a group that can scale from zero.
            Err(status) => {
                let none = status.code() == Code::Unimplemented;
                ensure!(none && !id.ends_with("-sized"), "{id}: {status}");
            }
        }
    }
    ensure!(start.elapsed().as_secs() < 5, "the calls took {:?}", start.elapsed());
    let found = capacity(&template(&provider, &good.id).await?);
    assert_eq!(found.get("cpu").map(String::as_str), Some("8"));
    for (_, kind, _) in troubles {
        eventually(&format!("{kind} in the log"), SOON, async || {
            let output = provider.process.output();
            ensure!(output.contains(kind), "the log says nothing of it:\n{output}");
            Ok(())
        })
        .await?;
    }
    Ok(())
}

/// An infrastructure provider may be installed after the program was started.
pub(crate) async fn a_kind_installed_later_is_found(world: &World) -> Result<()> {
    let good = Pool::new("good").running(1).create(world).await?;
    let late = Pool::new("late").template(LATE_TEMPLATE_KIND, "big").create(world).await?;
    let provider = world.serve().await?;
    provider.shows(&[&good.id]).await?;

    crds::install_template(&world.objects, LATE_TEMPLATE_KIND).await?;
    let status = json!({ "capacity": { "cpu": "8", "memory": "32Gi" } });
    infrastructure(world, LATE_TEMPLATE_KIND, "big", &status).await?;
    eventually("group of the late kind", 2 * SOON, async || {
        let ids = provider.refreshed_ids().await?;
        ensure!(ids == [good.id.as_str(), late.id.as_str()], "groups are {ids:?}");
        Ok(())
    })
    .await?;
    let found = capacity(&template(&provider, &late.id).await?);
    assert_eq!(found.get("cpu").map(String::as_str), Some("8"));
    Ok(())
}

/// The resource is found by discovery, and integers in a capacity are accepted like strings.
pub(crate) async fn status_capacity_is_found_whatever_its_plural(world: &World) -> Result<()> {
    let status = json!({
        "capacity": { "cpu": 8, "memory": "32Gi", "pods": 58 },
        "nodeInfo": { "architecture": "arm64", "operatingSystem": "linux" },
    });
    infrastructure(world, "OxMachineTemplate", "big", &status).await?;
    let group = Pool::new("workers").template("OxMachineTemplate", "big").create(world).await?;
    let provider = world.serve().await?;
    provider.shows(&[&group.id]).await?;

    let node = template(&provider, &group.id).await?;
    assert_capacity(&node, &[("cpu", "8"), ("memory", "32Gi"), ("pods", "58")]);
    assert_eq!(label(&node, ARCHITECTURE), "arm64");
    Ok(())
}

/// Creates an infrastructure template with a status.
pub(crate) async fn infrastructure(world: &World, kind: &str, name: &str, status: &Value) -> Result<()> {
    let template = json!({
        "kind": kind,
        "metadata": { "name": name },
        "spec": {},
        "status": status,
    });
    world.objects.create(template).await?;
    Ok(())
}

/// Returns the template Node of a group, which must be the same in the old field and in the new.
pub(crate) async fn template(provider: &Provider, id: &str) -> Result<Node> {
    let answer = provider.template(id).await?;
    ensure!(!answer.node_bytes.is_empty(), "an empty template makes the caller panic");
    ensure!(answer.node_bytes == answer.node_info, "the old field and the new differ");
    let node = Node::decode(answer.node_bytes)?;
    // Pods are placed by allocatable, and no reserved resources are known.
    let status = node.status.as_ref().context("no status")?;
    ensure!(status.allocatable == status.capacity, "allocatable is not capacity: {status:?}");
    Ok(node)
}

pub(crate) fn capacity(node: &Node) -> BTreeMap<String, String> {
    let status = node.status.iter();
    status
        .flat_map(|status| &status.capacity)
        .map(|(name, quantity)| (name.clone(), quantity.string.clone().unwrap_or_default()))
        .collect()
}

/// Compares the named resources; there may be more.
pub(crate) fn assert_capacity(node: &Node, expected: &[(&str, &str)]) {
    let mut found = capacity(node);
    found.retain(|name, _| expected.iter().any(|(expected, _)| expected == name));
    let expected: BTreeMap<_, _> = expected.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect();
    assert_eq!(found, expected);
}

pub(crate) fn label(node: &Node, key: &str) -> String {
    let labels = node.metadata.as_ref().map(|metadata| &metadata.labels);
    let value = labels.and_then(|labels| labels.get(key));
    value.map_or_else(|| "(no label)".to_owned(), Clone::clone)
}
