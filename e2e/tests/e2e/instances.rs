//! The objects that are node groups, and the instances of a group with their states.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use e2e::{
    fixtures::{self, Moment},
    pool::{Pool, Scalable},
    proto::instance_status::InstanceState::{
        self, InstanceCreating as Creating, InstanceDeleting as Deleting, InstanceRunning as Running,
    },
    provider::{Provider, assert_refused, made_up_node},
    wait::{SOON, eventually},
    world::World,
};
use serde_json::json;
use tonic::Code;

const MAX: &str = "cluster.x-k8s.io/cluster-api-autoscaler-node-group-max-size";

/// `MachineDeployments`, standalone `MachineSets` and `MachinePools` are groups; a `MachineSet` of a
/// `MachineDeployment` isn't.
pub(crate) async fn every_kind_of_group_is_listed_with_its_bounds(world: &World) -> Result<()> {
    let kinds = [
        Pool::new("workers").running(2).bounds(1, 5),
        Pool::new("batch").of(Scalable::MachineSet).running(1).bounds(0, 3),
        Pool::new("spot").of(Scalable::MachinePool).running(1).bounds(1, 1),
        Pool::new("off").running(1).bounds(0, 0),
        Pool::new("unbounded").running(1).annotate(MAX, "7"),
    ];
    let mut created = Vec::new();
    for pool in kinds {
        created.push(pool.create(world).await?);
    }
    let provider = world.serve().await?;
    provider.refresh().await?;
    let listed = provider.groups().await?;
    let listed: Vec<_> = listed.iter().map(|group| (group.id.as_str(), group.min_size, group.max_size)).collect();
    let [workers, batch, spot, _off, unbounded] = created.as_slice() else { unreachable!("as many groups as pools") };
    assert_eq!(
        listed,
        [
            (unbounded.id.as_str(), 0, 7),
            (workers.id.as_str(), 1, 5),
            (spot.id.as_str(), 1, 1),
            (batch.id.as_str(), 0, 3),
        ]
    );
    Ok(())
}

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
