//! Machines that don't become Nodes.

use anyhow::{Result, ensure};
use e2e::{
    controllers::{
        groups::{GRACE, Group, Workers},
        instances::{instances_are, target_size_is},
        machines::{Machine, names},
        testbed::{TIMEOUT, Testbed},
    },
    proto::instance_status::InstanceState::{InstanceCreating, InstanceRunning},
    provider::{Provider, made_up_node},
    wait::eventually,
};
use serde_json::json;

/// A delete of the made-up Node removes the Machine that a scale-up never completed, and no other.
pub(crate) async fn a_machine_that_never_joins_is_creating_until_it_is_deleted(testbed: &Testbed) -> Result<()> {
    let group = Workers::new("workers").that("never-join").replicas(2).create(testbed).await?;
    let provider = testbed.serve().await?;
    provider.shows(&[&group.id]).await?;
    let machines = testbed
        .machines_that(&group, "two provisioned Machines", |machines| {
            machines.len() == 2 && machines.iter().all(|machine| machine.phase == "Provisioned")
        })
        .await?;
    let pending = machines.iter().map(|machine| (placeholder("pending", testbed, machine), (InstanceCreating, None)));
    instances_are(&provider, &group.id, pending).await?;
    takes_back(testbed, &provider, &group, "pending", &machines).await
}

/// Since Cluster API 1.11 no phase marks a failed Machine, and a failure message alone may appear during its creation:
/// the Machine is waited for, and can be deleted.
pub(crate) async fn a_machine_with_the_words_of_a_failure_is_creating_until_it_is_deleted(
    testbed: &Testbed,
) -> Result<()> {
    let group = Workers::new("workers").that("fail").replicas(2).create(testbed).await?;
    let provider = testbed.serve().await?;
    provider.shows(&[&group.id]).await?;
    let machines = testbed.machines_that(&group, "two Machines", |machines| machines.len() == 2).await?;
    for machine in &machines {
        eventually("the words of a failure", TIMEOUT, async || {
            let status = testbed.objects.get("Machine", &machine.name).await?.data["status"].take();
            ensure!(status["deprecated"]["v1beta1"]["failureMessage"].is_string(), "its status is {status}");
            Ok(())
        })
        .await?;
    }
    let pending = machines.iter().map(|machine| (placeholder("pending", testbed, machine), (InstanceCreating, None)));
    instances_are(&provider, &group.id, pending).await?;
    takes_back(testbed, &provider, &group, "pending", &machines).await
}

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

/// On bare metal a host may be about to come while its Machine reports that there is none: the error is reported only
/// after a grace time, whose end needs no further call.
pub(crate) async fn a_lack_of_capacity_is_waited_for_before_it_is_reported(testbed: &Testbed) -> Result<()> {
    let group = Workers::new("workers").that("no-capacity").annotate(GRACE, "1h").replicas(1).create(testbed).await?;
    let provider = testbed.serve().await?;
    provider.shows(&[&group.id]).await?;
    let machines = testbed.machines_that(&group, "a Machine", |machines| machines.len() == 1).await?;
    let pending = placeholder("pending", testbed, &machines[0]);
    lacks_capacity(testbed, &machines[0]).await?;
    instances_are(&provider, &group.id, [(pending.clone(), (InstanceCreating, None))]).await?;
    for (grace, class) in [("3s", Some(1)), ("never", None), ("1s", Some(1))] {
        testbed.objects.annotate(group.kind, &group.name, json!({ GRACE: grace })).await?;
        instances_are(&provider, &group.id, [(pending.clone(), (InstanceCreating, class))]).await?;
    }
    takes_back(testbed, &provider, &group, "pending", &machines).await
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

/// Deletes the first Machine by its placeholder.
async fn takes_back(
    testbed: &Testbed,
    provider: &Provider,
    group: &Group,
    prefix: &str,
    machines: &[Machine],
) -> Result<()> {
    let made_up = made_up_node(&placeholder(prefix, testbed, &machines[0]));
    let found = provider.group_of(&made_up).await?.map(|group| group.id);
    assert_eq!(found.as_deref(), Some(group.id.as_str()), "group of {made_up:?}");
    provider.delete_with_retries(&group.id, &[made_up]).await?;
    let left = testbed.machines_that(group, "one Machine less", |left| left.len() + 1 == machines.len()).await?;
    assert_eq!(names(&left), names(&machines[1..]));
    target_size_is(provider, &group.id, i32::try_from(left.len())?).await
}

fn placeholder(prefix: &str, testbed: &Testbed, machine: &Machine) -> String {
    format!("{prefix}-machine-{}_{}", testbed.namespace, machine.name)
}
