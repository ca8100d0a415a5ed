//! The program as a process: its requests, its Events, and one Cluster by the kubeconfig in its Secret.

use anyhow::{Result, ensure};
use e2e::{
    pool::{Group, Pool},
    provider::{Provider, assert_refused, made_up_node},
    users::User,
    wait::{SOON, eventually},
    world::World,
};
use http::Request;
use kube::api::DynamicObject;
use serde_json::json;
use tonic::Code;

/// Clusters in the middle of an upgrade need this: their preferred version is not the one to use.
pub(crate) async fn the_version_of_the_contract_can_be_fixed(world: &World) -> Result<()> {
    let group = Pool::new("workers").running(1).create(world).await?;
    let workload = format!("--workload-kubeconfig={}", world.kubeconfig()?.display());
    let flags = [world.scope(), workload];
    let flags = flags.each_ref().map(String::as_str);

    let served = [("CAPI_VERSION", world.plane.contract.as_str())];
    let mut provider = world.spawn_bare(&flags, &served)?;
    provider.ready().await?;
    provider.shows(&[&group.id]).await?;

    let mut provider = world.spawn_bare(&flags, &[("CAPI_VERSION", "v1alpha4")])?;
    eventually("a page that names the version", SOON, async || {
        provider.process.still_running()?;
        let (status, body) = provider.http("/readyz?verbose").await?;
        ensure!(status == 503 && body.contains("v1alpha4"), "/readyz answers {status}:\n{body}");
        Ok(())
    })
    .await
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

/// The short form sets the scope and the workload cluster's kubeconfig at once.
pub(crate) async fn one_cluster_is_served_with_the_kubeconfig_from_its_secret(world: &World) -> Result<()> {
    let group = Pool::new("workers").running(1).create(world).await?;
    let foreign = Pool::new("foreign").running(1).create(world).await?;
    let other = json!({ "spec": { "clusterName": "other" } });
    world.objects.patch(foreign.kind, &foreign.name, other).await?;

    // Another user than that of the management cluster, so that the audit log shows who read the Nodes.
    let workload = world.neighbour().await?.user;
    world.share_kubeconfig(&world.plane.kubeconfig(&workload)).await?;
    let mut provider = world.spawn_bare(&[&world.only_cluster()], &[])?;
    provider.ready().await?;
    provider.shows(&[&group.id]).await?;
    let found = provider.group_of(&group.nodes[0]).await?;
    assert_eq!(found.map(|group| group.id), Some(group.id));

    let log = world.plane.audit_log()?;
    let reads_nodes = |user: &User| {
        let name = format!("\"username\":\"{}\"", user.name);
        log.lines().any(|line| line.contains(&name) && line.contains("\"resource\":\"nodes\""))
    };
    ensure!(reads_nodes(&workload), "the Secret's user has not read Nodes");
    ensure!(!reads_nodes(&world.user), "the management cluster's user has read Nodes");
    Ok(())
}

/// Events report all other writes and refusals as well, on each kind of group.
pub(crate) async fn sizes_written_and_refused_are_reported_by_events(world: &World) -> Result<()> {
    let group = Pool::new("workers").running(3).bounds(3, 5).create(world).await?;
    let provider = world.serve().await?;
    provider.shows(&[&group.id]).await?;
    provider.increase(&group.id, 1).await?;
    event_says(world, &group, "ScaledUp", "3→4").await?;
    assert_refused(provider.increase(&group.id, 2).await, Code::FailedPrecondition, &["6", "5"])?;
    event_says(world, &group, "ScaleUpRefused", "6").await?;
    provider.delete(&group.id, &group.nodes[..1]).await?;
    event_says(world, &group, "ScaledDown", "4→3: Machine workers-0").await?;
    assert_refused(provider.delete(&group.id, &group.nodes[1..2]).await, Code::FailedPrecondition, &["2", "3"])?;
    event_says(world, &group, "ScaleDownRefused", "2").await
}

/// Waits for an Event about the group that contains these words.
pub(crate) async fn event_says(world: &World, group: &Group, reason: &str, words: &str) -> Result<()> {
    eventually(&format!("an Event {reason} that says {words:?}"), SOON, async || {
        let events = world.objects.list("Event", "").await?;
        let is_it = |event: &DynamicObject| {
            let regarding = &event.data["regarding"];
            event.data["reason"] == reason
                && regarding["kind"] == group.kind
                && regarding["name"] == *group.name
                && event.data["note"].as_str().is_some_and(|note| note.contains(words))
        };
        ensure!(events.iter().any(is_it), "Events are {events:#?}");
        Ok(())
    })
    .await
}
