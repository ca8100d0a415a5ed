//! The migration from one authority for server and clients to a separate one for clients. The earlier release is the
//! chart with its former template of certificates.

use std::{collections::BTreeMap, fs, path::Path};

use anyhow::{Context as _, Result, ensure};
use e2e::{
    helm::{CHART, RELEASE},
    installed::Installed,
    provider::Caller,
    wait::{SOON, eventually},
};
use k8s_openapi::ByteString;
use serde_json::json;
use tempfile::TempDir;

use crate::cluster::{Cluster, Started, release};

/// The template of a chart with one authority for server and clients.
const FORMER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/chart/former/certificates-helm.yaml");
const TRUSTED_BY: &str = "capi-autoscaler-provider.io/former-authority-trusted-by";

type Files = BTreeMap<String, ByteString>;

pub(crate) async fn the_former_one_is_trusted_for_one_version(cluster: &Cluster) -> Result<()> {
    let former = former_chart()?;
    let before = release().of_chart(former.path());
    cluster.forget_certificates().await?;
    cluster.helm.apply("upgrade", &before)?;
    let of_server = client(cluster).await?;

    // An upgrade replaces Cluster Autoscaler's certificate; until it restarts it uses the old one.
    cluster.helm.apply("upgrade", &release())?;
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
    cluster.helm.apply("upgrade", &release().set("replicaCount", json!(3)))?;
    ensure!(client(cluster).await? == own, "the client's certificate was made anew");
    ensure!(
        authorities(&Started::of_release(cluster).await?) == ["ca.crt", "former.crt"],
        "trusted for one upgrade only"
    );

    // The next version no longer trusts the former authority.
    let name = format!("{RELEASE}-client");
    cluster.objects.annotate("Secret", &name, json!({ TRUSTED_BY: "0.0.1" })).await?;
    cluster.helm.apply("upgrade", &release())?;
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
    cluster.helm.apply("install", &release())?;
    for _ in 0..2 {
        let started = Started::of_release(cluster).await?;
        ensure!(authorities(&started) == ["ca.crt"], "{:?}", started.prepared.flags());
        cluster.helm.apply("upgrade", &release())?;
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
