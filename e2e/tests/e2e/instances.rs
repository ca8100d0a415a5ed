//! The instances of a group and their states.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use e2e::{
    fixtures::{self, Moment},
    objects::Contract,
    pool::{Pool, Scalable},
    proto::{Instance, instance_status::InstanceState},
    provider::{Provider, assert_refused, made_up_node},
    wait::{SOON, eventually},
    world::World,
};
use serde_json::json;
use tonic::Code;

use crate::errors::{failed, not_ready};

use InstanceState::{InstanceCreating as Creating, InstanceDeleting as Deleting, InstanceRunning as Running};

/// Recorded from Cluster API's own controllers: one Machine held in deletion, one provisioning, two running.
pub(crate) async fn a_real_scaling_deployment_shows_running_creating_and_deleting(world: &World) -> Result<()> {
    let recorded = fixtures::load(world, Moment::Scaling).await?;
    let provider = world.serve().await?;
    let expected = [
        ("deleting-machine-team-a_stage-md-0-mnr6p-jscrt-78rwg", Deleting),
        ("in-memory://stage-md-0-mnr6p-jscrt-nzbc8", Running),
        ("in-memory://stage-md-0-mnr6p-jscrt-rnxn4", Running),
        ("pending-machine-team-a_stage-md-0-mnr6p-jscrt-pnxnc", Creating),
    ]
    .map(|(id, state)| (recorded.name(id), state));
    let id = recorded.name("MachineDeployment/team-a/stage-md-0-mnr6p");
    provider.shows(&[&id]).await?;
    assert_instances(&provider, &id, expected).await?;
    assert_eq!(provider.target_size(&id).await?, 3);
    Ok(())
}

/// During a rollout there is one Machine more than replicas, under two `MachineSets`.
pub(crate) async fn a_real_rollout_shows_the_machines_of_both_machine_sets(world: &World) -> Result<()> {
    let recorded = fixtures::load(world, Moment::Rollout).await?;
    let provider = world.serve().await?;
    let expected = [
        ("in-memory://stage-md-0-mnr6p-x9wfq-6zjgq", Running),
        ("in-memory://stage-md-0-mnr6p-x9wfq-g6f28", Running),
        ("in-memory://stage-md-0-mnr6p-x9wfq-wdn6x", Running),
        ("pending-machine-team-a_stage-md-0-mnr6p-jscrt-nzbc8", Creating),
    ]
    .map(|(id, state)| (recorded.name(id), state));
    let id = recorded.name("MachineDeployment/team-a/stage-md-0-mnr6p");
    provider.shows(&[&id]).await?;
    assert_instances(&provider, &id, expected).await
}

/// The two versions report a failure in different fields, and a failure message alone is no failure; a Machine with a
/// Node is an instance like any other.
pub(crate) async fn failures_are_reported_with_their_class(world: &World) -> Result<()> {
    let group = Pool::new("workers").running(1).pending(5).create(world).await?;
    let words = json!({ "failureReason": "CreateError", "failureMessage": "it broke" });
    let words = match world.plane.contract {
        Contract::V1Beta1 => words,
        Contract::V1Beta2 | Contract::MachineApi => json!({ "deprecated": { "v1beta1": words } }),
    };
    let failed = failed(world.plane.contract, "it broke");
    let no_quota = not_ready("QuotaExceeded", "it broke");
    let no_host = not_ready("NotReady", "No available host found; it broke");
    let waiting = not_ready("NotReady", "the host is being prepared");
    let statuses = [failed.clone(), failed, words, no_quota, no_host, waiting];
    for (machine, status) in group.machines.iter().zip(statuses) {
        world.objects.patch_status("Machine", machine, status).await?;
    }
    let provider = world.serve().await?;
    provider.shows(&[&group.id]).await?;

    let id = |prefix: &str, machine: usize| format!("{prefix}-machine-{}_{}", world.namespace, group.machines[machine]);
    let instances = provider.instances(&group.id).await?;
    let classes: BTreeMap<_, _> = instances.iter().map(class_by_id).collect();
    let expected = BTreeMap::from([
        (group.nodes[0].provider_id.clone(), None),
        (id("failed", 1), Some(99)),
        (id("pending", 2), None),
        (id("pending", 3), Some(1)),
        (id("pending", 4), Some(1)),
        (id("pending", 5), None),
    ]);
    assert_eq!(classes, expected, "{instances:?}");
    for instance in &instances {
        let message = instance.status.as_ref().and_then(|status| status.error_info.as_ref());
        let message = message.map(|info| info.error_message.as_str());
        ensure!(message.is_none_or(|text| text.contains("it broke")), "{instance:?}");
    }
    Ok(())
}

/// Without placeholders the caller would take the difference for an error and lower the size.
pub(crate) async fn replicas_without_a_machine_have_placeholders(world: &World) -> Result<()> {
    let group = Pool::new("workers").running(1).missing(2).create(world).await?;
    let provider = world.serve().await?;
    provider.shows(&[&group.id]).await?;
    let replica = |number| format!("replica-MachineDeployment-{}_workers-{number}", world.namespace);
    let node = group.nodes[0].provider_id.clone();
    let expected = [(node, Running), (replica(0), Creating), (replica(1), Creating)];
    assert_instances(&provider, &group.id, expected).await
}

/// The Machines of a `MachinePool` are its provider's own matter.
pub(crate) async fn a_machine_pool_shows_its_provider_ids(world: &World) -> Result<()> {
    let pool = Pool::new("spot").of(Scalable::MachinePool).running(2);
    let group = pool.missing(1).create(world).await?;
    let provider = world.serve().await?;
    provider.shows(&[&group.id]).await?;
    let replica = format!("replica-MachinePool-{}_spot-0", world.namespace);
    let expected = [
        (group.nodes[0].provider_id.clone(), Running),
        (group.nodes[1].provider_id.clone(), Running),
        (replica, Creating),
    ];
    assert_instances(&provider, &group.id, expected).await
}

/// A provider of Cluster API and the cloud controller may write an id with another number of slashes. By the Machine's form
/// Cluster Autoscaler would take a running Node for one that never registered.
pub(crate) async fn an_instance_has_its_nodes_form_of_the_id(world: &World) -> Result<()> {
    let group = Pool::new("workers").running(2).create(world).await?;
    let of_machine = group.nodes[0].provider_id.replace(":///", ":////");
    let patch = json!({ "spec": { "providerID": of_machine } });
    world.objects.patch("Machine", &group.machines[0], patch).await?;
    let provider = world.serve().await?;
    provider.shows(&[&group.id]).await?;
    let expected = [0, 1].map(|number| (group.nodes[number].provider_id.clone(), Running));
    assert_instances(&provider, &group.id, expected).await?;

    let mut unregistered = made_up_node(&of_machine);
    unregistered.annotations =
        [("k8s.io/cluster-autoscaler/fake-node-reason".to_owned(), "unregistered".to_owned())].into();
    let refused = provider.delete(&group.id, &[unregistered]).await;
    assert_refused(refused, Code::FailedPrecondition, &[&group.machines[0]])?;
    world.objects.assert_deleting(&[]).await?;
    provider.delete(&group.id, &group.nodes[..1]).await?;
    world.objects.assert_deleting(&[&group.machines[0]]).await
}

/// Waits until a group has exactly these instances, none of them with an error.
async fn assert_instances<const N: usize>(
    provider: &Provider,
    id: &str,
    expected: [(String, InstanceState); N],
) -> Result<()> {
    let expected: BTreeMap<_, _> = expected.into();
    eventually("instances", SOON, async || {
        let instances = provider.instances(id).await?;
        let mut found = BTreeMap::new();
        for instance in instances {
            let status = instance.status.clone().context("an instance without status")?;
            ensure!(status.error_info.is_none(), "{instance:?}");
            found.insert(instance.id, status.instance_state());
        }
        ensure!(found == expected, "instances are {found:?}, expected {expected:?}");
        Ok(())
    })
    .await
}

fn class_by_id(instance: &Instance) -> (String, Option<i32>) {
    let status = instance.status.as_ref();
    let error = status.and_then(|status| status.error_info.as_ref());
    (instance.id.clone(), error.map(|error| error.instance_error_class))
}
