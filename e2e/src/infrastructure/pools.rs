//! MachinePools: Nodes by number, or by machines of their own if the pool has them. A shrinking pool deletes a machine
//! of the provider's choice: one whose Machine is marked, or else the last one.

use std::{sync::Arc, time::Duration};

use anyhow::{Context, Result};
use kube::api::{DeleteParams, DynamicObject, ListParams, PostParams};
use serde_json::{Value, json};

use super::{
    Outcome, World, condition, name_of,
    nodes::{self, NewNode},
    owner,
};

/// The interval of polling the wanted size: a provider gets no event when it changes.
const POLL_INTERVAL: Duration = Duration::from_millis(300);

/// The kind of a pool's machines.
const MACHINE: &str = "LoopbackMachine";
/// The label by which Cluster API finds the machines of a pool.
const POOL: &str = "cluster.x-k8s.io/pool-name";
const CLUSTER: &str = "cluster.x-k8s.io/cluster-name";
/// The annotation of a Machine that is deleted before others.
const DELETE: &str = "cluster.x-k8s.io/delete-machine";

pub(super) async fn pool(world: Arc<World>, pool: Arc<DynamicObject>) -> Outcome {
    let Some(owner) = owner(&pool, "MachinePool") else { return Ok(None) };
    let Some(owner) = world.api("MachinePool", &pool).get_opt(owner).await? else { return Ok(None) };
    let replicas = usize::try_from(owner.data["spec"]["replicas"].as_u64().unwrap_or_default())?;
    let of_machines = pool.data["spec"]["machines"] == true;
    let ids = if of_machines {
        machines(&world, &pool, &owner, replicas).await?
    } else {
        numbered(&world, &pool, replicas).await?
    };
    let mut status = json!({
        "ready": true,
        "replicas": ids.len(),
        "initialization": { "provisioned": true },
        "conditions": condition(&pool, true, "Provisioned", ""),
    });
    if of_machines {
        status["infrastructureMachineKind"] = json!(MACHINE);
    }
    world.write(&pool, json!({ "providerIDList": ids }), status).await?;
    Ok(Some(POLL_INTERVAL))
}

/// Creates and deletes Nodes up to the wanted number. Returns their ids.
async fn numbered(world: &World, pool: &DynamicObject, replicas: usize) -> Result<Vec<String>> {
    let held = pool.data["spec"]["providerIDList"].as_array().map_or(0, Vec::len);
    for number in 0..replicas {
        serve_node(world, pool, number).await?;
    }
    for number in replicas..held {
        nodes::remove(&world.settings.workload, &node_name(pool, number)).await?;
    }
    Ok((0..replicas).map(|number| provider_id(pool, number)).collect())
}

async fn serve_node(world: &World, pool: &DynamicObject, number: usize) -> Result<()> {
    let node = NewNode {
        name: node_name(pool, number),
        provider_id: provider_id(pool, number),
        capacity: pool.data["spec"]["capacity"].clone(),
        allocatable_cpu: Value::Null,
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

/// Creates a machine, or deletes the Machine of one, until the wanted number is left. Returns the ids of those that
/// have one. Cluster API creates a Machine for each, and deletes a machine with its Machine.
async fn machines(world: &World, pool: &DynamicObject, owner: &DynamicObject, replicas: usize) -> Result<Vec<String>> {
    let selector = format!("{POOL}={}", name_of(owner));
    let listed = world.api(MACHINE, pool).list(&ListParams::default().labels(&selector)).await?;
    let mut staying = Vec::new();
    for machine in listed.items {
        let api = world.api("Machine", pool);
        let of = api.get_opt(name_of(&machine)).await?;
        let going = [Some(&machine), of.as_ref()].into_iter().flatten().any(is_going);
        if !going {
            let marked =
                of.as_ref().is_some_and(|of| of.metadata.annotations.iter().flatten().any(|(key, _)| key == DELETE));
            staying.push((!marked, machine));
        }
    }
    for _ in staying.len()..replicas {
        let machine = serde_json::from_value(new_machine(pool, owner))?;
        world.api(MACHINE, pool).create(&PostParams::default(), &machine).await.context("a machine of a pool")?;
    }
    // The marked ones come last, and are deleted first.
    staying.sort_by_key(|(unmarked, machine)| (!unmarked, name_of(machine).to_owned()));
    for (_, machine) in staying.split_off(replicas.min(staying.len())) {
        // A machine without a Machine is too young to be deleted: it gets one before the next poll.
        let api = world.api("Machine", pool);
        if api.get_opt(name_of(&machine)).await?.is_some() {
            api.delete(name_of(&machine), &DeleteParams::default()).await?;
        }
    }
    let mut ids: Vec<_> =
        staying.iter().filter_map(|(_, machine)| machine.data["spec"]["providerID"].as_str()).collect();
    ids.sort_unstable();
    Ok(ids.into_iter().map(str::to_owned).collect())
}

fn is_going(object: &DynamicObject) -> bool {
    object.metadata.deletion_timestamp.is_some()
}

fn new_machine(pool: &DynamicObject, owner: &DynamicObject) -> Value {
    let spec = &pool.data["spec"];
    json!({
        "apiVersion": pool.types.as_ref().map(|types| &types.api_version),
        "kind": MACHINE,
        "metadata": {
            "generateName": format!("{}-", name_of(pool)),
            "labels": { POOL: name_of(owner), CLUSTER: owner.data["spec"]["clusterName"] },
        },
        "spec": { "capacity": spec["capacity"], "nodeLabels": spec["nodeLabels"] },
    })
}
