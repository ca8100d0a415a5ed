//! Several Clusters served by one program, each to its own autoscaler.

use std::{fs, future::pending, time::Duration};

use anyhow::{Result, ensure};
use e2e::{
    autoscaling::{self, Binary},
    control_plane::ControlPlane,
    fleet::Authority,
    pool::{Group, Pool},
    provider::{Caller, Provider, assert_refused},
    users::User,
    wait::{SOON, eventually},
    world::World,
};
use sandbox::autoscaler::{Driver, Settings, Version, Workload};
use serde_json::json;
use tokio::task::JoinSet;
use tonic::Code;

use crate::sizes::assert_scale;

/// The label of the Nodes that the pods need, and no running Node has.
const POOL: &str = "e2e.example/pool";

/// A Cluster of the fleet, with its node groups and its workload cluster.
struct Member<'a> {
    world: &'a World,
    workload: &'a ControlPlane,
    /// A group with a Node.
    running: Group,
    /// A group without Nodes, which the pods need.
    empty: Group,
}

impl<'a> Member<'a> {
    async fn create(world: &'a World, workload: &'a ControlPlane, fleet: &str) -> Result<Self> {
        let running = Pool::new("running").running(1).create(world).await?;
        let empty = Pool::new("empty").sized().capacity("labels", &format!("{POOL}={}", world.namespace));
        let empty = empty.create(world).await?;
        let member = Self { world, workload, running, empty };
        member.label(Some(fleet)).await?;
        world.share_kubeconfig(&workload.kubeconfig(&world.user)).await?;
        Ok(member)
    }

    /// Lets the Cluster opt in or out.
    async fn label(&self, value: Option<&str>) -> Result<()> {
        let labels = json!({ "metadata": { "labels": { "fleet": value } } });
        self.world.objects.patch("Cluster", &self.world.cluster, labels).await
    }

    fn caller(&self, authority: &Authority, provider: &Provider) -> Result<Caller> {
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

/// Creates two Clusters: the first one's API server has the Nodes of both, the second one's those of its own.
async fn create_both<'a>(
    world: &'a World,
    neighbour: &'a World,
    workload: &'a ControlPlane,
) -> Result<[Member<'a>; 2]> {
    let fleet = world.namespace.as_str();
    let one = Member::create(world, &world.plane, fleet).await?;
    let other = Member::create(neighbour, workload, fleet).await?;
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
    let (mut neighbour, workload) = (world.neighbour().await?, world.plane.another_workload().await?);
    // One program reads the Secrets of both.
    neighbour.user = world.user.clone();
    let [one, other] = create_both(world, &neighbour, &workload).await?;
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
