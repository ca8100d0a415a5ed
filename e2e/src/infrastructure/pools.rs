//! MachinePools without Machines: Nodes by number. Which one goes when the pool shrinks is the provider's choice: the last one.

use std::{sync::Arc, time::Duration};

use anyhow::{Context, Result};
use kube::api::DynamicObject;
use serde_json::json;

use super::{
    Outcome, World, condition, name_of,
    nodes::{self, NewNode},
    owner,
};

/// Time between two looks at the size that is wanted: nothing tells a provider when it changes.
const LOOK: Duration = Duration::from_millis(300);

pub(super) async fn pool(world: Arc<World>, pool: Arc<DynamicObject>) -> Outcome {
    let Some(owner) = owner(&pool, "MachinePool") else { return Ok(None) };
    let Some(owner) = world.api("MachinePool", &pool).get_opt(owner).await? else { return Ok(None) };
    let replicas = usize::try_from(owner.data["spec"]["replicas"].as_u64().unwrap_or_default())?;
    let held = pool.data["spec"]["providerIDList"].as_array().map_or(0, Vec::len);
    for number in 0..replicas {
        serve_node(&world, &pool, number).await?;
    }
    for number in replicas..held {
        nodes::remove(&world.settings.workload, &node_name(&pool, number)).await?;
    }
    let ids: Vec<String> = (0..replicas).map(|number| provider_id(&pool, number)).collect();
    let status = json!({
        "ready": true,
        "replicas": replicas,
        "initialization": { "provisioned": true },
        "conditions": condition(&pool, true, "Provisioned", ""),
    });
    world.write(&pool, json!({ "providerIDList": ids }), status).await?;
    Ok(Some(LOOK))
}

async fn serve_node(world: &World, pool: &DynamicObject, number: usize) -> Result<()> {
    let node = NewNode {
        name: node_name(pool, number),
        provider_id: provider_id(pool, number),
        capacity: pool.data["spec"]["capacity"].clone(),
        labels: pool.data["spec"]["nodeLabels"].clone(),
    };
    nodes::register(&world.settings.workload, &node).await.context("a Node of a pool")?;
    nodes::become_ready(&world.settings.workload, &node.name).await
}

fn node_name(pool: &DynamicObject, number: usize) -> String {
    let namespace = pool.metadata.namespace.as_deref().unwrap_or_default();
    format!("{namespace}-{}-{number}", name_of(pool))
}

fn provider_id(pool: &DynamicObject, number: usize) -> String {
    let namespace = pool.metadata.namespace.as_deref().unwrap_or_default();
    format!("loopback:///{namespace}/{}/{number}", name_of(pool))
}
