//! The chart on a real API server: every object of every topology is accepted, certificates survive an upgrade, and the
//! program runs with the chart's objects.

use anyhow::{Context as _, Result, ensure};
use e2e::{
    control_plane::ControlPlane,
    crds::Installed as Kinds,
    go,
    helm::{Helm, RELEASE, Values},
    installed::{Installed, Prepared},
    objects::{Contract, Objects},
    program::{self, Programs},
    provider::Provider,
    users::{User, base64},
};
use serde_json::{Value, json};
use std::{collections::BTreeMap, sync::Arc};
use tempfile::TempDir;

use crate::{authorities, topologies::EXAMPLES};

/// A server for one test, and helm for it as administrator.
pub(crate) struct Cluster {
    pub(crate) plane: ControlPlane,
    pub(crate) objects: Objects,
    pub(crate) helm: Helm,
}

/// The suffixes of the names of a release's Secrets.
const SECRETS: [&str; 4] = ["ca", "server", "client-ca", "client"];

impl Cluster {
    pub(crate) async fn start() -> Result<Self> {
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
    pub(crate) async fn forget_certificates(&self) -> Result<()> {
        for of in SECRETS {
            self.objects.remove("Secret", &format!("{RELEASE}-{of}")).await?;
        }
        Ok(())
    }
}

/// Returns a release for one Cluster of the management cluster in which it is installed.
pub(crate) fn release() -> Values {
    let values = json!({ "clusterAPIMode": "kubeconfig-incluster", "autoDiscovery": { "clusterName": "prod" } });
    Values::new("team-a", values)
}

/// One test on one API server, since starting it costs more than all the checks.
#[tokio::test(flavor = "multi_thread")]
async fn on_a_real_api_server_the_chart_is_taken_keeps_its_certificates_and_the_program_runs_by_it() -> Result<()> {
    let cluster = Cluster::start().await?;
    every_topology_is_taken(&cluster).context("installing each topology")?;
    certificates_stay_on_upgrade(&cluster).await.context("upgrading")?;
    the_program_serves_with_what_the_chart_made(&cluster).await.context("running")?;
    authorities::the_former_one_is_trusted_for_one_version(&cluster).await.context("one authority for both")
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

async fn certificates_stay_on_upgrade(cluster: &Cluster) -> Result<()> {
    cluster.forget_certificates().await?;
    cluster.helm.apply("install", &release())?;
    let made = cluster.certificates().await?;

    cluster.helm.apply("upgrade", &release().set("replicaCount", json!(3)))?;
    ensure!(cluster.certificates().await? == made, "an upgrade made other certificates");

    // Another DNS name leads to another server certificate by the same authority, and keeps the client's.
    let named = release().set("tls.dnsNames", json!(["provider.example.com"]));
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

async fn the_program_serves_with_what_the_chart_made(cluster: &Cluster) -> Result<()> {
    workload_is_known(cluster).await?;
    let mut started = Started::of_release(cluster).await?;
    started.provider.ready().await.with_context(|| started.programs.last_words())?;
    started.provider.shows(&[]).await.with_context(|| started.programs.last_words())
}

/// The running program of the release in team-a.
pub(crate) struct Started {
    pub(crate) programs: Programs,
    pub(crate) prepared: Prepared,
    pub(crate) provider: Provider,
    _directory: TempDir,
}

impl Started {
    pub(crate) async fn of_release(cluster: &Cluster) -> Result<Self> {
        let installed = Installed::read(&cluster.plane, "team-a").await?;
        let directory = tempfile::tempdir()?;
        let programs = Programs::new(program::build()?, directory.path().to_owned());
        let own = installed.kubeconfig(&cluster.plane).await?;
        let prepared = installed.prepare(directory.path(), &own).await?;
        let provider = prepared.serve(&programs, &[])?;
        Ok(Self { programs, prepared, provider, _directory: directory })
    }
}

async fn workload_is_known(cluster: &Cluster) -> Result<()> {
    // Cluster API keeps the workload cluster's kubeconfig: here it is the same API server.
    let workload = cluster.plane.kubeconfig(&User::administrator()).to_string();
    let secret = json!({
        "kind": "Secret",
        "metadata": { "name": "prod-kubeconfig" },
        "data": { "value": base64(workload.as_bytes()) },
    });
    cluster.objects.create(secret).await.map(drop)
}
