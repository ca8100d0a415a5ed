//! The chart on a real API server: every object of every topology is accepted, certificates survive an upgrade, the
//! program runs with the chart's objects, and the former authority of server and clients is replaced.

use std::{collections::BTreeMap, fs, path::Path, sync::Arc};

use anyhow::{Context as _, Result, ensure};
use e2e::{
    control_plane::ControlPlane,
    crds::Installed as Kinds,
    go,
    helm::{CHART, Helm, RELEASE, Values},
    installed::{Installed, Prepared},
    objects::{Contract, Objects},
    program::{self, Programs},
    provider::{Caller, Provider},
    users::{self, User},
    wait::{SOON, eventually},
};
use k8s_openapi::ByteString;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{switches::by_secret, topologies::EXAMPLES};

/// The template of a chart with one authority for server and clients.
const FORMER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/chart/former/certificates-helm.yaml");
const TRUSTED_BY: &str = "capi-autoscaler-provider.io/former-authority-trusted-by";

type Files = BTreeMap<String, ByteString>;

/// A server for one test, and helm for it as administrator.
struct Cluster {
    plane: ControlPlane,
    objects: Objects,
    helm: Helm,
}

/// The suffixes of the names of a release's Secrets.
const SECRETS: [&str; 4] = ["ca", "server", "client-ca", "client"];

impl Cluster {
    async fn start() -> Result<Self> {
        let components = Arc::new(go::components()?);
        let plane = ControlPlane::start(components, Contract::V1Beta2, Kinds::All).await?;
        let helm = Helm::on(&plane.kubeconfig(&User::administrator()))?;
        let objects = plane.objects("team-a");
        for namespace in ["team-a", "autoscaling"] {
            objects.create(json!({ "kind": "Namespace", "metadata": { "name": namespace } })).await?;
        }
        Ok(Self { plane, objects, helm })
    }

    /// Returns the data of the release's Secrets, by the suffix of their names.
    async fn certificates(&self) -> Result<BTreeMap<&'static str, Value>> {
        let mut all = BTreeMap::new();
        for of in SECRETS {
            let secret = self.objects.get("Secret", &format!("{RELEASE}-{of}")).await?;
            all.insert(of, secret.data["data"].clone());
        }
        Ok(all)
    }

    /// Deletes the Secrets of earlier releases in the namespace team-a, so that the next one creates them anew.
    async fn forget_certificates(&self) -> Result<()> {
        for of in SECRETS {
            self.objects.remove("Secret", &format!("{RELEASE}-{of}")).await?;
        }
        Ok(())
    }
}

/// The running program of the release in team-a.
struct Started {
    programs: Programs,
    prepared: Prepared,
    provider: Provider,
    _directory: TempDir,
}

impl Started {
    async fn of_release(cluster: &Cluster) -> Result<Self> {
        let installed = Installed::read(&cluster.plane, "team-a").await?;
        let directory = tempfile::tempdir()?;
        let programs = Programs::new(program::build()?, directory.path().to_owned());
        let own = installed.kubeconfig(&cluster.plane).await?;
        let prepared = installed.prepare(directory.path(), &own).await?;
        let provider = prepared.serve(&programs, &[])?;
        Ok(Self { programs, prepared, provider, _directory: directory })
    }
}

/// One test on one API server, since starting it costs more than all the checks.
#[tokio::test(flavor = "multi_thread")]
async fn on_a_real_api_server_the_chart_is_taken_keeps_its_certificates_and_the_program_runs_by_it() -> Result<()> {
    let cluster = Cluster::start().await?;
    every_topology_is_taken(&cluster).context("installing each topology")?;
    the_owner_of_a_namespace_installs(&cluster).await.context("installing without rights outside the namespace")?;
    certificates_stay_on_upgrade(&cluster).await.context("upgrading")?;
    workload_is_known(&cluster).await?;
    the_former_authority_is_trusted_for_one_version(&cluster).await.context("one authority for both")
}

fn every_topology_is_taken(cluster: &Cluster) -> Result<()> {
    for (name, namespace) in EXAMPLES {
        let values = Values::of_topology(name, namespace)?;
        let said = cluster.helm.apply("install", &values).with_context(|| name.to_owned())?;
        ensure!(said.contains("STATUS: deployed"), "{name}: {said}");
        cluster.helm.run(&["uninstall", RELEASE, "--namespace", namespace])?;
    }
    Ok(())
}

/// The chart looks for what every cluster has before it makes certificates. It must not ask for more than they may read.
async fn the_owner_of_a_namespace_installs(cluster: &Cluster) -> Result<()> {
    let owner = User::provider(0);
    // kube-controller-manager, which doesn't run here, keeps it in every namespace.
    let authority = json!({ "kind": "ConfigMap", "metadata": { "name": "kube-root-ca.crt" } });
    let all = json!({ "apiGroups": ["*"], "resources": ["*"], "verbs": ["*"] });
    for object in users::grant(&owner, "Role", "owner", &all).into_iter().chain([authority]) {
        cluster.objects.create(object).await?;
    }
    cluster.forget_certificates().await?;
    let helm = Helm::on(&cluster.plane.kubeconfig(&owner))?;
    helm.apply("install", &by_secret())?;
    helm.run(&["uninstall", RELEASE, "--namespace", "team-a"])?;
    // The other releases see the cluster by another object.
    cluster.objects.delete("ConfigMap", "kube-root-ca.crt").await
}

async fn certificates_stay_on_upgrade(cluster: &Cluster) -> Result<()> {
    cluster.forget_certificates().await?;
    cluster.helm.apply("install", &by_secret())?;
    let made = cluster.certificates().await?;

    cluster.helm.apply("upgrade", &by_secret().set("replicaCount", json!(3)))?;
    ensure!(cluster.certificates().await? == made, "an upgrade made other certificates");

    // Another DNS name leads to another server certificate by the same authority, and keeps the client's.
    let named = by_secret().set("tls.dnsNames", json!(["provider.example.com"]));
    cluster.helm.apply("upgrade", &named)?;
    let renamed = cluster.certificates().await?;
    let kept = ["ca", "client-ca", "client"];
    ensure!(kept.iter().all(|of| renamed[of] == made[of]), "more than the server's was made anew");
    ensure!(renamed["server"]["tls.crt"] != made["server"]["tls.crt"], "the server's certificate lacks its new name");
    ensure!(renamed["server"]["ca.crt"] == made["server"]["ca.crt"], "the server's clients have another authority");

    // Cluster Autoscaler mounts the client's, so they outlive the release.
    cluster.helm.run(&["uninstall", RELEASE, "--namespace", "team-a"])?;
    ensure!(cluster.certificates().await? == renamed, "uninstalling changed certificates");
    cluster.helm.apply("install", &named)?;
    ensure!(cluster.certificates().await? == renamed, "installing again made other certificates");

    // Without their authority, issued certificates are useless; those of the other authority stay.
    let mut before = renamed;
    for (authority, issued) in [("ca", "server"), ("client-ca", "client")] {
        cluster.objects.delete("Secret", &format!("{RELEASE}-{authority}")).await?;
        cluster.helm.apply("upgrade", &named)?;
        let anew = cluster.certificates().await?;
        for of in SECRETS {
            let stayed = anew[of]["tls.crt"] == before[of]["tls.crt"];
            ensure!(stayed != [authority, issued].contains(&of), "without {authority}, {of} stayed: {stayed}");
        }
        for of in ["server", "client"] {
            ensure!(anew[of]["ca.crt"] == anew["ca"]["tls.crt"], "{of}: ca.crt isn't the server's authority");
        }
        ensure!(anew["client-ca"]["ca.crt"] == anew["client-ca"]["tls.crt"], "the server trusts other clients");
        before = anew;
    }
    Ok(())
}

async fn workload_is_known(cluster: &Cluster) -> Result<()> {
    // Cluster API keeps the workload cluster's kubeconfig: here it is the same API server.
    let workload = cluster.plane.kubeconfig(&User::administrator()).to_string();
    cluster.objects.create(users::kubeconfig_secret("prod", &workload)).await.map(drop)
}

/// The migration from one authority for server and clients to a separate one for clients. The earlier release is the chart
/// with its former template of certificates.
async fn the_former_authority_is_trusted_for_one_version(cluster: &Cluster) -> Result<()> {
    let former = former_chart()?;
    let before = by_secret().of_chart(former.path());
    cluster.forget_certificates().await?;
    cluster.helm.apply("upgrade", &before)?;
    let of_server = client(cluster).await?;

    // An upgrade replaces Cluster Autoscaler's certificate; until it restarts it uses the old one.
    cluster.helm.apply("upgrade", &by_secret())?;
    let own = client(cluster).await?;
    ensure!(own["tls.crt"] != of_server["tls.crt"], "the client's certificate is still of the server's authority");
    ensure!(own["ca.crt"] == of_server["ca.crt"], "Cluster Autoscaler would take the server for another one");
    let mut started = Started::of_release(cluster).await?;
    ensure!(authorities(&started) == ["ca.crt", "former.crt"], "{:?}", started.prepared.flags());
    started.provider.ready().await.with_context(|| started.programs.log_tails())?;
    for (which, files) in [("old", &of_server), ("new", &own)] {
        let caller = started.prepared.call_with(&started.provider, files)?;
        caller.shows(&[]).await.with_context(|| format!("with its {which} certificate"))?;
    }
    // Another upgrade by the same version changes none of that.
    cluster.helm.apply("upgrade", &by_secret().set("replicaCount", json!(3)))?;
    ensure!(client(cluster).await? == own, "the client's certificate was made anew");
    ensure!(
        authorities(&Started::of_release(cluster).await?) == ["ca.crt", "former.crt"],
        "trusted for one upgrade only"
    );

    // The next version no longer trusts the former authority.
    let name = format!("{RELEASE}-client");
    cluster.objects.annotate("Secret", &name, json!({ TRUSTED_BY: "0.0.1" })).await?;
    cluster.helm.apply("upgrade", &by_secret())?;
    ensure!(client(cluster).await? == own, "the client's certificate was made anew");
    let mut started = Started::of_release(cluster).await?;
    ensure!(authorities(&started) == ["ca.crt"], "{:?}", started.prepared.flags());
    started.provider.ready().await.with_context(|| started.programs.log_tails())?;
    started.prepared.call_with(&started.provider, &own)?.shows(&[]).await?;
    // The certificate has an accepted name, and is issued by the server's authority.
    let refused: Caller = started.prepared.call_with(&started.provider, &of_server)?;
    let refusal = refused.refresh().await;
    ensure!(refusal.is_err(), "a certificate of the server's authority was let in");
    // The caller gets the alert before the connection is counted.
    eventually("a connection that is refused for its certificate", SOON, async || {
        let (_, metrics) = started.provider.http("/metrics").await?;
        let counted = "capi_autoscaler_provider_tls_refused_connections_total{reason=\"certificate\"} 1";
        ensure!(metrics.lines().any(|line| line == counted), "refused for another reason, {refusal:?}:\n{metrics}");
        Ok(())
    })
    .await?;

    a_new_release_trusts_its_own_alone(cluster).await
}

async fn a_new_release_trusts_its_own_alone(cluster: &Cluster) -> Result<()> {
    cluster.helm.run(&["uninstall", RELEASE, "--namespace", "team-a"])?;
    cluster.forget_certificates().await?;
    cluster.helm.apply("install", &by_secret())?;
    for _ in 0..2 {
        let started = Started::of_release(cluster).await?;
        ensure!(authorities(&started) == ["ca.crt"], "{:?}", started.prepared.flags());
        cluster.helm.apply("upgrade", &by_secret())?;
    }
    Ok(())
}

/// Copies the project's chart with one authority for both.
fn former_chart() -> Result<TempDir> {
    let directory = tempfile::tempdir()?;
    copy(Path::new(CHART), directory.path())?;
    fs::copy(FORMER, directory.path().join("templates/certificates-helm.yaml"))?;
    Ok(directory)
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let (entry, to) = (entry?.path(), to.to_owned());
        let target = to.join(entry.file_name().context("no name")?);
        if entry.is_dir() {
            copy(&entry, &target)?;
        } else {
            fs::copy(&entry, &target)?;
        }
    }
    Ok(())
}

async fn client(cluster: &Cluster) -> Result<Files> {
    Installed::read(&cluster.plane, "team-a").await?.secret(&format!("{RELEASE}-client")).await
}

/// Returns the files of client authorities among the program's flags.
fn authorities(started: &Started) -> Vec<&str> {
    let flags = started.prepared.flags().iter();
    let files = flags.filter_map(|flag| flag.strip_prefix("--tls-client-ca-file="));
    files.filter_map(|file| Path::new(file).file_name()?.to_str()).collect()
}
