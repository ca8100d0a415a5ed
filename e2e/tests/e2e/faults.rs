//! API servers that are down. Each scenario has one of its own, without `MachinePools` installed.

use anyhow::{Result, ensure};
use e2e::{
    fixtures::{self, Moment},
    pool::Pool,
    provider::{Provider, ask, assert_refused},
    wait::{SOON, eventually},
    world::World,
};
use serde_json::json;
use tonic::Code;
use tonic_health::pb::{HealthCheckRequest, health_check_response::ServingStatus, health_client::HealthClient};

use crate::{sizes::assert_scale, templates::infrastructure};

/// The service that Cluster Autoscaler calls.
const SERVICE: &str = "clusterautoscaler.cloudprovider.v1.externalgrpc.CloudProvider";

/// The program starts, is not ready, gives the reason, refuses Refresh, and recovers by itself.
pub(crate) async fn an_api_server_that_is_down_at_start_is_waited_for(world: &World) -> Result<()> {
    let recorded = fixtures::load(world, Moment::Steady).await?;
    let id = recorded.name("MachineDeployment/team-a/stage-md-0-mnr6p");
    world.plane.stop_api_server();

    let mut provider = world.spawn()?;
    let body = eventually("a page that says why", SOON, async || {
        provider.process.still_running()?;
        let (status, body) = provider.http("/readyz?verbose").await?;
        ensure!(status == 503, "/readyz answers {status}:\n{body}");
        // One cause of all kinds, the workload cluster's too, is one line.
        let why = "management/api-server: connection refused by https://127.0.0.1:";
        ensure!(body.matches("refused").count() == 1 && body.contains(why), "/readyz?verbose answers:\n{body}");
        Ok(body)
    })
    .await?;
    assert_eq!(provider.http("/livez").await?.0, 200, "it is alive:\n{body}");
    assert_eq!(health(&provider, SERVICE).await?, ServingStatus::NotServing);
    assert_refused(provider.refresh().await, Code::Unavailable, &["management/api-server", "connection refused by"])?;
    // Calls may come before the first Refresh, and a failed one would stop the caller's loop.
    let node = e2e::provider::made_up_node("in-memory://anything");
    assert_eq!(provider.group_of(&node).await?, None);

    world.plane.start_api_server().await?;
    provider.ready().await?;
    provider.shows(&[&id]).await?;
    assert_eq!(provider.target_size(&id).await?, 3);
    Ok(())
}

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

/// Returns the gRPC health of a service.
async fn health(provider: &Provider, service: &str) -> Result<ServingStatus> {
    let request = HealthCheckRequest { service: service.to_owned() };
    let answer = HealthClient::new(provider.channel()).check(ask(request)).await?;
    Ok(answer.into_inner().status())
}
