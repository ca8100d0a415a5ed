//! The objects that are node groups, the instances of a group with their states, and the requests that reads make.

use anyhow::{Result, ensure};
use e2e::{
    controllers::instances::instances_are,
    fixtures,
    pool::{MAX, Pool, Scalable},
    proto::instance_status::InstanceState::{
        InstanceCreating as Creating, InstanceDeleting as Deleting, InstanceRunning as Running,
    },
    provider::{Provider, made_up_node},
    wait::{SOON, eventually},
    world::World,
};
use http::Request;

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
    let recorded = fixtures::load(world, "scaling").await?;
    let provider = world.serve().await?;
    let expected = [
        ("deleting-machine-team-a_stage-md-0-mnr6p-jscrt-78rwg", Deleting),
        ("in-memory://stage-md-0-mnr6p-jscrt-nzbc8", Running),
        ("in-memory://stage-md-0-mnr6p-jscrt-rnxn4", Running),
        ("pending-machine-team-a_stage-md-0-mnr6p-jscrt-pnxnc", Creating),
    ]
    .map(|(id, state)| (recorded.name(id), (state, None)));
    let id = recorded.name("MachineDeployment/team-a/stage-md-0-mnr6p");
    provider.shows(&[&id]).await?;
    instances_are(&provider, &id, expected).await?;
    assert_eq!(provider.target_size(&id).await?, 3);
    Ok(())
}

/// During a rollout there is one Machine more than replicas, under two `MachineSets`.
pub(crate) async fn a_real_rollout_shows_the_machines_of_both_machine_sets(world: &World) -> Result<()> {
    let recorded = fixtures::load(world, "rollout").await?;
    let provider = world.serve().await?;
    let expected = [
        ("in-memory://stage-md-0-mnr6p-x9wfq-6zjgq", Running),
        ("in-memory://stage-md-0-mnr6p-x9wfq-g6f28", Running),
        ("in-memory://stage-md-0-mnr6p-x9wfq-wdn6x", Running),
        ("pending-machine-team-a_stage-md-0-mnr6p-jscrt-nzbc8", Creating),
    ]
    .map(|(id, state)| (recorded.name(id), (state, None)));
    let id = recorded.name("MachineDeployment/team-a/stage-md-0-mnr6p");
    provider.shows(&[&id]).await?;
    instances_are(&provider, &id, expected).await
}

/// All reads of the caller are answered from memory. The API server's audit log has one line per request, in order.
pub(crate) async fn reads_make_no_api_call(world: &World) -> Result<()> {
    let group = Pool::new("workers").running(3).pending(1).sized().create(world).await?;
    let provider = world.serve().await?;
    provider.shows(&[&group.id]).await?;

    let before = requests_until(world, "/e2e-before").await?;
    ensure!(before > 0, "the program's start is not in the audit log");
    for _ in 0..50 {
        read_everything(&provider, &group.id).await?;
    }
    let after = requests_until(world, "/e2e-after").await?;
    // The additional request marked the end of the first part.
    assert_eq!(after, before + 1, "requests of the program");
    Ok(())
}

async fn read_everything(provider: &Provider, id: &str) -> Result<()> {
    provider.refresh().await?;
    provider.groups().await?;
    provider.target_size(id).await?;
    provider.template(id).await?;
    for instance in provider.instances(id).await? {
        provider.group_of(&made_up_node(&instance.id)).await?;
    }
    Ok(())
}

/// Requests a path as the program's user, and counts this user's earlier requests in the audit log. Watches are left
/// out, since the program restarts an ended watch without a call.
async fn requests_until(world: &World, path: &str) -> Result<usize> {
    let client = world.plane.client(&world.user).await?;
    // The path doesn't exist, but the request is still in the audit log.
    let request = Request::get(path).body(Vec::new())?;
    ensure!(client.request_text(request).await.is_err(), "{path} is there");

    let user = format!("\"username\":\"{}\"", world.user.name);
    let path = format!("\"requestURI\":\"{path}\"");
    eventually("the audit log's line", SOON, async || {
        let log = world.plane.audit_log()?;
        let mut count = 0;
        for line in log.lines().filter(|line| line.contains(&user)) {
            if line.contains(&path) {
                return Ok(count);
            }
            if !line.contains("\"verb\":\"watch\"") {
                count += 1;
            }
        }
        anyhow::bail!("no line yet with {path}")
    })
    .await
}
