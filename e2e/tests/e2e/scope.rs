//! The groups that the program is responsible for, and the flags that set them.

use std::time::Duration;

use anyhow::{Result, ensure};
use e2e::{
    pool::Pool,
    proto::NodeGroup,
    provider::assert_refused,
    users::User,
    wait::{SOON, eventually},
    world::World,
};
use serde_json::json;
use tonic::Code;

/// The maximum time until a program that refuses to start has ended.
const REFUSAL: Duration = Duration::from_secs(20);

/// All conditions of one spec must hold.
pub(crate) async fn a_label_and_a_cluster_name_limit_the_groups(world: &World) -> Result<()> {
    let mine = Pool::new("mine").running(1).create(world).await?;
    let unlabelled = Pool::new("unlabelled").running(1).create(world).await?;
    let foreign = Pool::new("foreign").running(1).create(world).await?;
    let label = json!({ "metadata": { "labels": { "tier": "batch" } } });
    for group in [&mine, &foreign] {
        world.objects.patch(group.kind, &group.name, label.clone()).await?;
    }
    let other = json!({ "spec": { "clusterName": "other" } });
    world.objects.patch(foreign.kind, &foreign.name, other).await?;

    let mut provider = start(
        world,
        &[&format!(
            "--node-group-auto-discovery=clusterapi:namespace={},,clusterName={},tier=batch",
            world.namespace, world.cluster
        )],
    )?;
    provider.ready().await?;
    provider.shows(&[&mine.id]).await?;
    for group in [&unlabelled, &foreign] {
        assert_eq!(provider.group_of(&group.nodes[0]).await?, None);
    }
    Ok(())
}

/// A group must match one of the specs, whichever namespace it names.
pub(crate) async fn several_specs_add_up_over_namespaces(world: &World) -> Result<()> {
    let second = world.neighbour().await?;
    let third = world.neighbour().await?;
    let mut groups = Vec::new();
    for place in [world, &second, &third] {
        groups.push(Pool::new("workers").running(1).create(place).await?);
    }
    let mut provider = start(world, &[&world.scope(), &second.scope()])?;
    provider.ready().await?;
    provider.shows(&[&groups[0].id, &groups[1].id]).await?;
    let found = provider.group_of(&groups[1].nodes[0]).await?;
    assert_eq!(found.map(|group| group.id).as_ref(), Some(&groups[1].id));
    assert_eq!(provider.group_of(&groups[2].nodes[0]).await?, None);
    Ok(())
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
    let flag = format!("--cluster={}/{}", world.namespace, world.cluster);
    let mut provider = world.spawn_bare(&[&flag], &[])?;
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

/// Cluster API writes the Secret when the control plane is initialized, which may be after the program's start.
pub(crate) async fn a_kubeconfig_secret_that_comes_later_is_waited_for(world: &World) -> Result<()> {
    let group = Pool::new("workers").running(1).create(world).await?;
    let flag = format!("--cluster={}/{}", world.namespace, world.cluster);
    let mut provider = world.spawn_bare(&[&flag], &[])?;
    let secret = format!("{}-kubeconfig", world.cluster);
    eventually("a page that names the Secret", SOON, async || {
        provider.process.still_running()?;
        let (status, body) = provider.http("/readyz?verbose").await?;
        ensure!(status == 503 && body.contains(&secret), "/readyz answers {status}:\n{body}");
        Ok(())
    })
    .await?;
    assert_refused(provider.refresh().await, Code::Unavailable, &["nodes"])?;

    world.share_kubeconfig(&world.plane.kubeconfig(&world.user)).await?;
    provider.ready().await?;
    provider.shows(&[&group.id]).await
}

/// No filter, over all namespaces.
pub(crate) async fn all_clusters_are_served_on_purpose(world: &World) -> Result<()> {
    let second = world.neighbour().await?;
    let mut expected = Vec::new();
    for place in [world, &second] {
        expected.push(Pool::new("workers").running(1).create(place).await?.id);
    }
    let mut provider = start(world, &["--all-clusters"])?;
    provider.ready().await?;
    provider.refresh().await?;
    // Other scenarios have groups on this API server too.
    let mut ours: Vec<NodeGroup> = provider.groups().await?;
    ours.retain(|group| expected.contains(&group.id));
    assert_eq!(ours.len(), 2, "{ours:?}");
    Ok(())
}

/// Acting on other clusters' groups by mistake is worse than not starting.
pub(crate) async fn without_a_scope_it_refuses_to_start(world: &World) -> Result<()> {
    let ways = ["--cluster", "--node-group-auto-discovery", "--all-clusters"];
    assert_refuses(world, &[], &ways).await
}

/// The same as in-tree: exactly one colon and one equals sign per item.
pub(crate) async fn a_wrong_scope_is_refused(world: &World) -> Result<()> {
    let specs = [
        "clusterapi",
        "clusterapi:namespace",
        "clusterapi:namespace=a=b",
        "clusterapi:namespace=a:b",
        "other:namespace=a",
    ];
    for spec in specs {
        let flag = format!("--node-group-auto-discovery={spec}");
        assert_refuses(world, &[&flag], &[spec]).await?;
    }
    assert_refuses(world, &["--cluster=no-namespace"], &["no-namespace"]).await
}

/// Starts the program with a workload kubeconfig and only these flags.
fn start(world: &World, flags: &[&str]) -> Result<e2e::provider::Provider> {
    let workload = format!("--workload-kubeconfig={}", world.kubeconfig()?.display());
    let mut all = vec![workload.as_str()];
    all.extend(flags);
    world.spawn_bare(&all, &[])
}

async fn assert_refuses(world: &World, flags: &[&str], says: &[&str]) -> Result<()> {
    let mut provider = start(world, flags)?;
    let status = provider.process.ended(REFUSAL).await?;
    ensure!(!status.success(), "it ended well with {flags:?}");
    // An end by a signal would have no code: then it crashed.
    ensure!(status.code().is_some(), "it ended with {status} with {flags:?}");
    let output = provider.process.output();
    for word in says {
        ensure!(output.contains(word), "with {flags:?} it does not say {word}:\n{output}");
    }
    Ok(())
}
