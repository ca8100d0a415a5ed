//! Several Clusters served by one program, each to its own autoscaler.

use std::{fs, future::pending, time::Duration};

use anyhow::{Result, ensure};
use e2e::{
    autoscaling::{self, Binary},
    control_plane::ControlPlane,
    fleet::{Authority, Service},
    pool::{Group, Pool},
    provider::{Caller, Provider, assert_refused},
    users::User,
    wait::{SOON, eventually},
    world::World,
};
use sandbox::autoscaler::{Driver, Settings, Version, Workload};
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tonic::Code;

use crate::sizes::assert_scale;

/// The label of the Nodes that the pods need, and no running Node has.
const POOL: &str = "e2e.example/pool";

/// A Cluster of the fleet, with its node groups and its workload cluster.
pub(crate) struct Member<'a> {
    pub(crate) world: &'a World,
    workload: &'a ControlPlane,
    /// A group with Nodes.
    pub(crate) running: Group,
    /// A group without Nodes, which the pods need.
    pub(crate) empty: Group,
}

impl<'a> Member<'a> {
    pub(crate) async fn create(
        world: &'a World,
        workload: &'a ControlPlane,
        fleet: &str,
        running: usize,
    ) -> Result<Self> {
        let running = Pool::new("running").running(running).create(world).await?;
        let empty = Pool::new("empty").sized().capacity("labels", &format!("{POOL}={}", world.namespace));
        let empty = empty.create(world).await?;
        let member = Self { world, workload, running, empty };
        member.label(Some(fleet)).await?;
        world.share_kubeconfig(&workload.kubeconfig(&world.user)).await?;
        Ok(member)
    }

    /// Lets the Cluster opt in or out.
    pub(crate) async fn label(&self, value: Option<&str>) -> Result<()> {
        let labels = json!({ "metadata": { "labels": { "fleet": value } } });
        self.world.objects.patch("Cluster", &self.world.cluster, labels).await
    }

    pub(crate) fn caller(&self, authority: &Authority, provider: &Provider) -> Result<Caller> {
        authority.caller(provider, &self.world.namespace, &self.world.cluster)
    }

    /// Starts an autoscaler that scales for the pods of the Cluster's namespace: a Cluster Autoscaler, if one is named,
    /// for all pods of the workload cluster.
    fn drive(&self, authority: &Authority, port: u16, drivers: &mut JoinSet<()>) -> Result<()> {
        if let Some(binary) = Binary::named()?.pop() {
            let world = self.world;
            let directory = world.plane.directory().join(format!("autoscaler-{}", world.namespace));
            fs::create_dir_all(&directory)?;
            let config = authority.cloud_config(&directory, port, &world.namespace, &world.cluster)?;
            let kubeconfig = self.workload.kubeconfig(&User::administrator());
            // It removes no Node.
            let settings = autoscaling::Settings { unneeded: Duration::from_secs(3600), ..Default::default() };
            let process = binary.start_by(&directory, &kubeconfig, &config, settings)?;
            drivers.spawn(async move {
                let _running = process;
                pending::<()>().await;
            });
            return Ok(());
        }
        let caller = authority.caller_at(port, &self.world.namespace, &self.world.cluster)?;
        let objects = self.workload.objects(&self.world.namespace);
        let workload = Workload::of_namespace(objects.client(), objects.namespace());
        let settings =
            Settings { pause: Duration::from_millis(300), waits_for_more_pods: false, ..Settings::default() };
        let caller = sandbox::autoscaler::Caller::new(caller.channel());
        let rng = fastrand::Rng::with_seed(0);
        drivers.spawn(Driver::new(caller, workload, Version::new(37, 0), settings, rng, |_| {}).run());
        Ok(())
    }

    /// Creates a pod that the scheduler has found no Node for; it takes most of one.
    async fn create_pod(&self, name: &str) -> Result<()> {
        let condition = json!({ "type": "PodScheduled", "status": "False", "reason": "Unschedulable" });
        let pod = json!({
            "kind": "Pod",
            "metadata": { "name": name },
            "spec": {
                "nodeSelector": { POOL: self.world.namespace },
                "containers": [{ "name": "web", "image": "web", "resources": { "requests": { "cpu": "3" } } }],
            },
            "status": { "phase": "Pending", "conditions": [condition] },
        });
        self.workload.objects(&self.world.namespace).create(pod).await.map(drop)
    }

    async fn has_size(&self, size: i32) -> Result<()> {
        assert_scale(self.world, &self.empty, size).await?;
        assert_scale(self.world, &self.running, 1).await
    }

    async fn grows_to(&self, size: i32) -> Result<()> {
        eventually("the size for the pods", SOON, async || self.has_size(size).await).await
    }
}

/// The groups and the Nodes of another Cluster don't exist for a caller.
async fn sees_its_own_alone(caller: &Caller, own: &Member<'_>, other: &Member<'_>) -> Result<()> {
    caller.shows(&[&own.running.id, &own.empty.id]).await?;
    let (node, foreign) = (&own.running.nodes[0], &other.running);
    let group = caller.group_of(node).await?;
    ensure!(group.is_some_and(|group| group.id == own.running.id), "{} isn't known", node.name);
    assert_refused(caller.target_size(&foreign.id).await, Code::NotFound, &[])?;
    assert_refused(caller.instances(&foreign.id).await, Code::NotFound, &[])?;
    assert_refused(caller.increase(&foreign.id, 1).await, Code::NotFound, &[])?;
    assert_refused(caller.delete(&foreign.id, &foreign.nodes).await, Code::NotFound, &[])?;
    let group = caller.group_of(&foreign.nodes[0]).await?;
    ensure!(group.is_none(), "a Node of another Cluster belongs to {group:?}");
    Ok(())
}

/// Returns another Cluster, of which one program reads the Secret as well.
async fn neighbour_of(world: &World) -> Result<World> {
    let mut neighbour = world.neighbour().await?;
    neighbour.user = world.user.clone();
    Ok(neighbour)
}

/// Creates two Clusters: the first one's API server has the Nodes of both, the second one's those of its own.
async fn create_both<'a>(
    (world, running): (&'a World, usize),
    (neighbour, workload): (&'a World, &'a ControlPlane),
) -> Result<[Member<'a>; 2]> {
    let fleet = world.namespace.as_str();
    let one = Member::create(world, &world.plane, fleet, running).await?;
    let other = Member::create(neighbour, workload, fleet, 1).await?;
    let objects = workload.objects(&neighbour.namespace);
    objects.create(json!({ "kind": "Namespace", "metadata": { "name": neighbour.namespace } })).await?;
    for node in &other.running.nodes {
        let (spec, capacity) = (json!({ "providerID": node.provider_id }), json!({ "cpu": "4", "memory": "16Gi" }));
        let conditions = json!([{ "type": "Ready", "status": "True" }]);
        let status = json!({ "capacity": capacity, "allocatable": capacity, "conditions": conditions });
        let node = json!({ "kind": "Node", "metadata": { "name": node.name }, "spec": spec, "status": status });
        objects.create(node).await?;
    }
    Ok([one, other])
}

pub(crate) async fn each_autoscaler_has_its_own_cluster_until_it_opts_out(world: &World) -> Result<()> {
    let (neighbour, workload) = (neighbour_of(world).await?, world.plane.another_workload().await?);
    let [one, other] = create_both((world, 1), (&neighbour, &workload)).await?;
    let fleet = world.namespace.as_str();
    let authority = Authority::new()?;
    let flags = authority.flags(&world.plane.directory().join(fleet), &format!("fleet={fleet}"))?;
    let mut provider = world.spawn_bare(&flags.iter().map(String::as_str).collect::<Vec<_>>(), &[])?;
    provider.ready().await?;
    let (first, second) = (one.caller(&authority, &provider)?, other.caller(&authority, &provider)?);
    sees_its_own_alone(&first, &one, &other).await?;
    sees_its_own_alone(&second, &other, &one).await?;
    // The name of one Cluster in the namespace of the other.
    let stranger = authority.caller(&provider, &neighbour.namespace, &world.cluster)?;
    assert_refused(stranger.refresh().await, Code::PermissionDenied, &[])?;

    let mut drivers = JoinSet::new();
    one.drive(&authority, provider.port(), &mut drivers)?;
    other.drive(&authority, provider.port(), &mut drivers)?;
    one.create_pod("web-0").await?;
    one.grows_to(1).await?;
    other.has_size(0).await?;
    other.create_pod("web-0").await?;
    other.grows_to(1).await?;
    one.has_size(1).await?;

    one.label(None).await?;
    eventually("the opt-out", SOON, async || {
        assert_refused(first.refresh().await, Code::PermissionDenied, &["--fleet-selector"])
    })
    .await?;
    one.create_pod("web-1").await?;
    other.create_pod("web-1").await?;
    other.grows_to(2).await?;
    one.has_size(1).await?;
    assert_refused(first.increase(&one.empty.id, 1).await, Code::PermissionDenied, &[])?;

    one.label(Some(fleet)).await?;
    one.grows_to(2).await
}

/// Returns the number of answers to Refresh that were OK.
async fn refreshes(replica: &Provider) -> Result<u32> {
    let (_, metrics) = replica.http("/metrics").await?;
    let is_count = |line: &&str| {
        let is_of_refresh = line.contains("rpc=\"Refresh\"") && line.contains("code=\"OK\"");
        line.starts_with("capi_autoscaler_provider_grpc_answers_total{") && is_of_refresh
    };
    let count = metrics.lines().find(is_count).and_then(|line| line.rsplit(' ').next()?.parse().ok());
    Ok(count.unwrap_or_default())
}

/// Waits until each of both autoscalers has had Refresh answered, as a replica lists its Clusters.
async fn both_have_refreshed(replica: &Provider, within: Duration) -> Result<()> {
    eventually("Refresh of both", within, async || {
        let (_, state) = replica.admin("/debug/clusters").await?;
        let state: Value = serde_json::from_str(&state)?;
        let clusters = state["clusters"].as_array().map(Vec::as_slice).unwrap_or_default();
        let have = clusters.iter().filter(|cluster| {
            let calls = &cluster["calls"];
            calls["lastRefreshAgo"].is_u64() && calls["lastRefreshRefused"].is_null()
        });
        ensure!(have.count() == 2, "not all have called: {state:#}");
        Ok(())
    })
    .await
}

/// It is killed when both autoscalers wait for its answer: to a deletion that it tries, and to sizes that it has written.
pub(crate) async fn a_replica_that_is_killed_in_mid_loop_loses_and_doubles_nothing(world: &World) -> Result<()> {
    let (neighbour, workload) = (neighbour_of(world).await?, world.plane.another_workload().await?);
    let [one, other] = create_both((world, 2), (&neighbour, &workload)).await?;
    let fleet = world.namespace.as_str();
    let authority = Authority::new()?;
    let flags = authority.flags(&world.plane.directory().join(fleet), &format!("fleet={fleet}"))?;
    let flags: Vec<_> = flags.iter().map(String::as_str).collect();
    let proxy = world.plane.proxy().await?;
    let mut killed = world.spawn_through(&proxy, &flags)?;
    let mut left = world.spawn_bare(&flags, &[])?;
    killed.ready().await?;
    left.ready().await?;
    let service = Service::of(&[&killed, &left]).await?;
    let first = authority.caller_at(service.port(), &world.namespace, &world.cluster)?;
    let mut drivers = JoinSet::new();
    one.drive(&authority, service.port(), &mut drivers)?;
    other.drive(&authority, service.port(), &mut drivers)?;
    both_have_refreshed(&killed, SOON).await?;
    first.shows(&[&one.running.id, &one.empty.id]).await?;

    proxy.hold_writes();
    one.create_pod("web-0").await?;
    other.create_pod("web-0").await?;
    eventually("sizes without an answer", SOON, async || {
        assert_scale(world, &one.empty, 1).await?;
        assert_scale(&neighbour, &other.empty, 1).await
    })
    .await?;
    let (caller, group, node) = (first.clone(), one.running.id.clone(), one.running.nodes[..1].to_vec());
    let deletion = tokio::spawn(async move { caller.delete(&group, &node).await });
    eventually("a deletion under way", SOON, async || {
        let is_tried = |asked: &String| asked.contains("/running/scale") && asked.contains("dryRun=All");
        ensure!(proxy.asked().iter().any(is_tried), "no smaller size was tried");
        Ok(())
    })
    .await?;
    ensure!(refreshes(&left).await? == 0, "the other replica was called as well");
    drop(killed);
    both_have_refreshed(&left, Duration::from_secs(12)).await?;
    ensure!(deletion.await?.is_err(), "a call was answered by a replica that was killed");
    first.delete_with_retries(&one.running.id, &one.running.nodes[..1]).await?;

    let loops = refreshes(&left).await? + 6;
    eventually("more loops", SOON, async || {
        let seen = refreshes(&left).await?;
        ensure!(seen >= loops, "{seen} calls of Refresh");
        Ok(())
    })
    .await?;
    one.grows_to(1).await?;
    other.has_size(1).await?;
    first.delete_with_retries(&one.running.id, &one.running.nodes[..1]).await?;
    one.has_size(1).await?;
    world.objects.assert_deleting(&[&one.running.machines[0]]).await?;
    other.has_size(1).await
}
