//! Machines that don't become Nodes.

use anyhow::{Result, ensure};
use e2e::{
    controllers::{
        groups::{GRACE, Workers},
        instances::{instances_are, target_size_is},
        machines::{Machine, names},
        testbed::{TIMEOUT, Testbed},
    },
    proto::instance_status::InstanceState::{InstanceCreating, InstanceRunning},
    provider::made_up_node,
    wait::eventually,
};
use serde_json::json;

/// The error class makes Cluster Autoscaler back off the group; once there is capacity the Machine proceeds.
pub(crate) async fn exhausted_capacity_is_reported_by_its_class_until_there_is_some(testbed: &Testbed) -> Result<()> {
    let group = Workers::new("workers").that("no-capacity").annotate(GRACE, "0").replicas(1).create(testbed).await?;
    let provider = testbed.serve().await?;
    provider.shows(&[&group.id]).await?;
    let machines = testbed.machines_that(&group, "a Machine", |machines| machines.len() == 1).await?;
    let exhausted = [(placeholder("pending", testbed, &machines[0]), (InstanceCreating, Some(1)))];
    instances_are(&provider, &group.id, exhausted).await?;

    // Cluster API propagates a changed label to Machines in place, and to their infrastructure.
    let label = json!({ "spec": { "template": { "metadata": { "labels": { sandbox::BEHAVIOUR_LABEL: "joins" } } } } });
    testbed.objects.patch("MachineDeployment", &group.name, label).await?;
    let running = testbed.running(&group, 1).await?;
    ensure!(names(&running) == names(&machines), "another Machine came: {running:?}");
    let id = running[0].provider_id.clone().unwrap_or_default();
    instances_are(&provider, &group.id, [(id, (InstanceRunning, None))]).await
}

/// Waits until Cluster API reports the lack of capacity of a Machine.
pub(crate) async fn lacks_capacity(testbed: &Testbed, machine: &Machine) -> Result<()> {
    eventually("a Machine without capacity", TIMEOUT, async || {
        let status = testbed.objects.get("Machine", &machine.name).await?.data["status"].take();
        let mut conditions = status["conditions"].as_array().into_iter().flatten();
        let ready = conditions.find(|condition| condition["type"] == "InfrastructureReady");
        let message = ready.and_then(|ready| ready["message"].as_str()).unwrap_or_default();
        ensure!(message.contains("InsufficientInstanceCapacity"), "its status is {status}");
        Ok(())
    })
    .await
}

/// At the min size no Machine may be removed, but one that never became a Node is replaced.
pub(crate) async fn a_machine_that_never_joins_is_replaced_at_the_minimum(testbed: &Testbed) -> Result<()> {
    let group = Workers::new("workers").that("never-join").bounds(1, 3).replicas(1).create(testbed).await?;
    let provider = testbed.serve().await?;
    provider.shows(&[&group.id]).await?;
    let first = testbed
        .machines_that(&group, "a provisioned Machine", |machines| {
            machines.len() == 1 && machines[0].phase == "Provisioned"
        })
        .await?;
    let pending = placeholder("pending", testbed, &first[0]);
    instances_are(&provider, &group.id, [(pending.clone(), (InstanceCreating, None))]).await?;
    provider.delete_with_retries(&group.id, &[made_up_node(&pending)]).await?;
    testbed
        .machines_that(&group, "another Machine", |machines| {
            machines.len() == 1 && !machines[0].deleting && machines[0].name != first[0].name
        })
        .await?;
    target_size_is(&provider, &group.id, 1).await
}

fn placeholder(prefix: &str, testbed: &Testbed, machine: &Machine) -> String {
    format!("{prefix}-machine-{}_{}", testbed.namespace, machine.name)
}
