//! Both charts of a fleet on a real API server: the program serves each Cluster with the release's own ServiceAccount,
//! to the Cluster Autoscaler of its chart, and reads the kubeconfigs of those Clusters alone that consent. The Jobs of
//! the chart for a Cluster opt it in and out.

use std::{path::PathBuf, sync::Arc};

use anyhow::{Context as _, Result, ensure};
use e2e::{
    control_plane::ControlPlane,
    crds::Installed as Kinds,
    fleet::Authority,
    go,
    helm::{Helm, Values},
    installed::Installed,
    objects::{self, Contract},
    pool::{Group, Pool},
    program::{self, Programs},
    provider::Caller,
    users::{self, User},
    wait::{SOON, eventually},
    world::World,
};
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use rcgen::SanType;
use serde_json::{Value, json};
use tonic::Code;

use crate::labels::Labelled;

/// The namespace of the fleet's release.
pub(crate) const FLEET: &str = "capi-autoscaler-system";
/// The release of the chart for a Cluster, in each Cluster's namespace.
pub(crate) const OF_CLUSTER: &str = "stage-autoscaler";
const HOST: &str = "capi-autoscaler-provider.capi-autoscaler-system.svc";

/// The label of all objects of the fleet's release.
const OF_FLEET: &str = "app.kubernetes.io/name=capi-autoscaler-provider";

/// A real API server with a Cluster, and all that the fleet's release needs there.
pub(crate) struct Testbed {
    pub(crate) plane: Arc<ControlPlane>,
    pub(crate) program: PathBuf,
    pub(crate) world: World,
    pub(crate) administrator: Value,
    pub(crate) helm: Arc<Helm>,
    pub(crate) authority: Authority,
}

impl Testbed {
    pub(crate) async fn start() -> Result<Self> {
        let (components, program) = (Arc::new(go::components()?), program::build()?);
        let plane = Arc::new(ControlPlane::start(components, Contract::V1Beta2, Kinds::All).await?);
        let world = World::new(Arc::clone(&plane), program.clone()).await?;
        let system = plane.objects(FLEET);
        system.create(json!({ "kind": "Namespace", "metadata": { "name": FLEET } })).await?;
        let administrator = plane.kubeconfig(&User::administrator());
        let (helm, authority) = (Arc::new(Helm::on(&administrator)?), Authority::new()?);
        system.create(authority.secret("fleet-server", SanType::DnsName(HOST.try_into()?))?).await?;
        Ok(Self { plane, program, world, administrator, helm, authority })
    }
}

/// Returns the release of the fleet, with a Role in each of these namespaces, or else with a ClusterRole.
pub(crate) fn fleet(namespaces: &[&str]) -> Values {
    Values::new(
        FLEET,
        json!({
            "fleet": { "selector": "autoscaler=fleet", "trustDomain": "fleet.example", "namespaces": namespaces },
            "rbac": { "clusterScoped": namespaces.is_empty() },
            "tls": { "certificates": "existing", "serverSecret": "fleet-server" },
        }),
    )
}

/// Returns the release of the chart for a Cluster.
pub(crate) fn of_cluster(world: &World, consents: bool) -> Values {
    let values = json!({
        "cluster": { "name": world.cluster },
        "fleet": { "namespace": FLEET, "trustDomain": "fleet.example" },
        "consent": { "create": consents },
        "certificate": { "create": false, "secretName": format!("{OF_CLUSTER}-client") },
    });
    Values::of_cluster(OF_CLUSTER, &world.namespace, values)
}

/// Creates a Cluster with the fleet's label, a group, its kubeconfig and the certificate of its Cluster Autoscaler.
pub(crate) async fn cluster(world: &World, authority: &Authority, kubeconfig: &Value) -> Result<Group> {
    world.create_cluster().await?;
    let labels = json!({ "metadata": { "labels": { "autoscaler": "fleet" } } });
    world.objects.patch("Cluster", &world.cluster, labels).await?;
    world.objects.create(users::kubeconfig_secret(&world.cluster, &kubeconfig.to_string())).await?;
    let uri = format!("spiffe://fleet.example/ns/{}/cluster/{}", world.namespace, world.cluster);
    let client = authority.secret(&format!("{OF_CLUSTER}-client"), SanType::URI(uri.as_str().try_into()?))?;
    world.objects.create(client).await?;
    Pool::new("workers").running(1).create(world).await
}

/// Waits until a Refresh is refused with this text.
pub(crate) async fn is_refused(caller: &Caller, code: Code, says: &str) -> Result<()> {
    eventually("a refused Refresh", SOON, async || {
        let status = caller.refresh().await.err().context("it isn't refused")?;
        ensure!(status.code() == code && status.message().contains(says), "{status}");
        Ok(())
    })
    .await
}

/// Ensures that an account may get none of these Secrets.
pub(crate) async fn are_refused(account: Value, secrets: &[(&str, String)]) -> Result<()> {
    let account = objects::client(serde_json::from_value(account)?).await?;
    for (namespace, secret) in secrets {
        let secrets: Api<Secret> = Api::namespaced(account.clone(), namespace);
        let refused = secrets.get(secret).await.err().with_context(|| format!("it gets {namespace}/{secret}"))?;
        ensure!(matches!(&refused, kube::Error::Api(status) if status.code == 403), "{namespace}/{secret}: {refused}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fleet_serves_the_clusters_of_its_charts_and_reads_the_kubeconfigs_of_those_that_consent() -> Result<()> {
    let Testbed { plane, program, world, administrator, helm, authority } = Testbed::start().await?;
    let other = world.neighbour().await?;
    let group = cluster(&world, &authority, &administrator).await?;
    let others = cluster(&other, &authority, &administrator).await?;
    helm.apply("install", &fleet(&[&world.namespace, &other.namespace]))?;
    helm.apply("install", &of_cluster(&world, true))?;
    helm.apply("install", &of_cluster(&other, false))?;
    let roles = plane.objects(&world.namespace).list("Role", OF_FLEET).await?;
    ensure!(!roles.is_empty(), "no Role of the fleet");

    let directory = tempfile::tempdir()?;
    let programs = Programs::new(program, directory.path().to_owned());
    let installed = Installed::read(&plane, FLEET).await?;
    let own = installed.kubeconfig(&plane).await?;
    let prepared = installed.prepare_for(directory.path(), &own, (&world.namespace, OF_CLUSTER)).await?;
    let mut provider = prepared.serve(&programs, &[])?;
    provider.ready().await.with_context(|| programs.log_tails())?;
    provider.shows(&[&group.id]).await.with_context(|| programs.log_tails())?;

    // The other Cluster is served too, and nobody may read its kubeconfig.
    let files = installed.secret_in(&other.namespace, &format!("{OF_CLUSTER}-client")).await?;
    let caller = prepared.call_with(&provider, &files)?;
    is_refused(&caller, Code::Unavailable, "kubeconfig").await.with_context(|| programs.log_tails())?;
    are_refused(
        own,
        &[
            (&other.namespace, format!("{}-kubeconfig", other.cluster)),
            (&other.namespace, format!("{OF_CLUSTER}-client")),
            (&world.namespace, format!("{OF_CLUSTER}-client")),
        ],
    )
    .await?;
    helm.apply("upgrade", &of_cluster(&other, true))?;
    caller.shows(&[&others.id]).await.with_context(|| programs.log_tails())?;

    // Without the label its certificate is worth nothing.
    let opted_out = json!({ "metadata": { "labels": { "autoscaler": null } } });
    other.objects.patch("Cluster", &other.cluster, opted_out).await?;
    is_refused(&caller, Code::PermissionDenied, "isn't served any more").await.with_context(|| programs.log_tails())?;
    provider.shows(&[&group.id]).await.with_context(|| programs.log_tails())?;

    // The chart's own Jobs opt it in and out.
    let labelled = Labelled { helm: Arc::clone(&helm), plane: &plane, world: &other, release: OF_CLUSTER };
    let label = json!({ "enabled": true, "labels": { "autoscaler": "fleet" } });
    let values = of_cluster(&other, true).set("label", label);
    labelled.upgrade(values, async || caller.shows(&[&others.id]).await).await.with_context(|| programs.log_tails())?;
    let opted_out = async || is_refused(&caller, Code::PermissionDenied, "isn't served any more").await;
    labelled.uninstall(opted_out).await.with_context(|| programs.log_tails())?;
    provider.shows(&[&group.id]).await.with_context(|| programs.log_tails())?;

    // With a ClusterRole it serves Clusters of any namespace, and reads no more Secrets.
    let late = world.neighbour().await?;
    let lates = cluster(&late, &authority, &administrator).await?;
    helm.apply("install", &of_cluster(&late, true))?;
    helm.apply("upgrade", &fleet(&[]))?;
    for namespace in [&world.namespace, &other.namespace] {
        let roles = plane.objects(namespace).list("Role", OF_FLEET).await?;
        ensure!(roles.is_empty(), "{namespace}: Roles stay beside the ClusterRole: {roles:?}");
    }
    drop(provider);
    let installed = Installed::read(&plane, FLEET).await?;
    let own = installed.kubeconfig(&plane).await?;
    let directory = tempfile::tempdir()?;
    let prepared = installed.prepare_for(directory.path(), &own, (&late.namespace, OF_CLUSTER)).await?;
    let mut provider = prepared.serve(&programs, &[])?;
    provider.ready().await.with_context(|| programs.log_tails())?;
    provider.shows(&[&lates.id]).await.with_context(|| programs.log_tails())?;
    are_refused(
        own,
        &[
            (&other.namespace, format!("{}-kubeconfig", other.cluster)),
            (&late.namespace, format!("{OF_CLUSTER}-client")),
            (FLEET, "fleet-server".to_owned()),
        ],
    )
    .await
}
