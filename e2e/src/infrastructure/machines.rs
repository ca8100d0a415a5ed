//! Machines: from the contract's first step to the Node, and their deletion.

use std::{sync::Arc, time::Duration};

use anyhow::{Context, Result};
use kube::api::{DynamicObject, Patch, PatchParams};
use sandbox::{BEHAVIOUR_LABEL, Behaviour};
use serde_json::{Value, json};

use super::{
    AGAIN, Outcome, World, condition, name_of,
    nodes::{self, NewNode},
    owner,
};

const FINALIZER: &str = "loopbackmachine.infrastructure.cluster.x-k8s.io";

/// Advances a machine by one step.
pub(super) async fn machine(world: Arc<World>, machine: Arc<DynamicObject>) -> Outcome {
    if machine.metadata.deletion_timestamp.is_some() {
        return leave(&world, &machine).await;
    }
    // Cluster API creates a machine first and sets its owner later.
    let Some(owner) = owner(&machine, "Machine") else { return Ok(None) };
    set_finalizers(&world, &machine, &[FINALIZER]).await?;
    if !may_begin(&world, &machine, owner).await? {
        return Ok(Some(AGAIN));
    }
    let label = machine.metadata.labels.as_ref().and_then(|labels| labels.get(BEHAVIOUR_LABEL));
    let behaviour = Behaviour::parse(label.map(String::as_str));
    if let Some(left) = step(&world, &machine, "provision", world.settings.times.provision, behaviour)? {
        say(&world, &machine, "Provisioning", "the machine is being made").await?;
        return Ok(Some(left));
    }
    match behaviour {
        Behaviour::Fails => {
            fail(&world, &machine).await?;
            Ok(None)
        }
        Behaviour::NoCapacity => {
            let message = "InsufficientInstanceCapacity: no machine of this size is left in this zone; trying on";
            say(&world, &machine, "ProvisioningFailed", message).await?;
            Ok(None)
        }
        Behaviour::NeverJoins => {
            provisioned(&world, &machine).await?;
            Ok(None)
        }
        Behaviour::Joins | Behaviour::Slow => {
            provisioned(&world, &machine).await?;
            join(&world, &machine, behaviour).await
        }
    }
}

/// Returns true if a machine may be created: by the contract it waits for its Cluster's infrastructure, and for its
/// bootstrap data.
async fn may_begin(world: &World, machine: &DynamicObject, owner: &str) -> Result<bool> {
    let Some(owner) = world.api("Machine", machine).get_opt(owner).await? else { return Ok(false) };
    let spec = &owner.data["spec"];
    let cluster = spec["clusterName"].as_str().context("a Machine without Cluster")?;
    let Some(cluster) = world.api("Cluster", machine).get_opt(cluster).await? else { return Ok(false) };
    let begun = cluster.data["status"]["initialization"]["infrastructureProvisioned"] == true;
    Ok(begun && spec["bootstrap"]["dataSecretName"].is_string())
}

/// Returns the remaining time of a step of this machine, or `None` when it is over.
fn step(
    world: &World,
    machine: &DynamicObject,
    step: &'static str,
    takes: Duration,
    behaviour: Behaviour,
) -> Result<Option<Duration>> {
    let uid = machine.metadata.uid.as_deref().context("a machine without uid")?;
    let factor = if behaviour == Behaviour::Slow { 10 } else { 1 };
    Ok(world.steps.left(uid, step, takes * factor))
}

async fn say(world: &World, machine: &DynamicObject, reason: &str, message: &str) -> Result<()> {
    world.write(machine, json!({}), json!({ "conditions": condition(machine, false, reason, message) })).await
}

async fn fail(world: &World, machine: &DynamicObject) -> Result<()> {
    let message = "the machine could not be made: its image does not exist";
    let status = json!({
        "failureReason": "CreateError",
        "failureMessage": message,
        "conditions": condition(machine, false, "ImageNotFound", message),
    });
    world.write(machine, json!({}), status).await
}

async fn provisioned(world: &World, machine: &DynamicObject) -> Result<()> {
    // It is written once, so that a scenario can write it in another form.
    let has_id = machine.data["spec"]["providerID"].is_string();
    let spec = if has_id { json!({}) } else { json!({ "providerID": provider_id(machine) }) };
    let status = json!({
        "initialization": { "provisioned": true },
        "conditions": condition(machine, true, "Provisioned", ""),
    });
    world.write(machine, spec, status).await
}

fn provider_id(machine: &DynamicObject) -> String {
    let namespace = machine.metadata.namespace.as_deref().unwrap_or_default();
    format!("loopback:///{namespace}/{}", name_of(machine))
}

async fn join(world: &World, machine: &DynamicObject, behaviour: Behaviour) -> Outcome {
    let times = world.settings.times;
    if let Some(left) = step(world, machine, "join", times.join, behaviour)? {
        return Ok(Some(left));
    }
    let node = new_node(machine);
    nodes::register(&world.settings.workload, &node).await?;
    if let Some(left) = step(world, machine, "ready", times.ready, behaviour)? {
        return Ok(Some(left));
    }
    nodes::become_ready(&world.settings.workload, &node.name).await?;
    Ok(None)
}

/// Returns its Node, whose name differs from the Machine's as with many providers.
fn new_node(machine: &DynamicObject) -> NewNode {
    let namespace = machine.metadata.namespace.as_deref().unwrap_or_default();
    NewNode {
        name: format!("{namespace}-{}", name_of(machine)),
        provider_id: provider_id(machine),
        capacity: machine.data["spec"]["capacity"].clone(),
        allocatable_cpu: machine.data["spec"]["allocatableCpu"].clone(),
        labels: machine.data["spec"]["nodeLabels"].clone(),
    }
}

/// Ends a machine. Its Node stays: Cluster API deletes it.
async fn leave(world: &World, machine: &DynamicObject) -> Outcome {
    if let Some(left) = step(world, machine, "terminate", world.settings.times.terminate, Behaviour::Joins)? {
        return Ok(Some(left));
    }
    set_finalizers(world, machine, &[]).await?;
    Ok(None)
}

async fn set_finalizers(world: &World, machine: &DynamicObject, wanted: &[&str]) -> Result<()> {
    let held = machine.metadata.finalizers.as_deref().unwrap_or_default();
    if held == wanted {
        return Ok(());
    }
    let kind = &machine.types.as_ref().context("an object without kind")?.kind;
    let patch: Value = json!({ "metadata": { "finalizers": wanted } });
    world.api(kind, machine).patch(name_of(machine), &PatchParams::default(), &Patch::Merge(patch)).await?;
    Ok(())
}
