//! The chart on a real API server: every object of every topology is accepted, certificates survive an upgrade, and the
//! program runs with the chart's objects.

use anyhow::{Context as _, Result, ensure};
use e2e::{
    helm::{Helm, RELEASE, Values},
    users::{User, base64},
};
use serde_json::json;

use crate::{
    authorities,
    cluster::{Cluster, SECRETS, Started, release},
    topologies::EXAMPLES,
};

/// One test on one API server, since starting it costs more than all the checks.
#[tokio::test(flavor = "multi_thread")]
async fn on_a_real_api_server_the_chart_is_taken_keeps_its_certificates_and_the_program_runs_by_it() -> Result<()> {
    let cluster = Cluster::start().await?;
    every_topology_is_taken(&cluster).context("installing each topology")?;
    the_owner_of_a_namespace_installs(&cluster).await.context("installing without rights outside the namespace")?;
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

/// The chart looks for what every cluster has before it makes certificates. It must not ask for more than they may read.
async fn the_owner_of_a_namespace_installs(cluster: &Cluster) -> Result<()> {
    let (owner, name) = (User::provider(0), "owner");
    for object in [
        // kube-controller-manager, which doesn't run here, keeps it in every namespace.
        json!({ "kind": "ConfigMap", "metadata": { "name": "kube-root-ca.crt" } }),
        json!({
            "kind": "Role",
            "metadata": { "name": name },
            "rules": [{ "apiGroups": ["*"], "resources": ["*"], "verbs": ["*"] }],
        }),
        json!({
            "kind": "RoleBinding",
            "metadata": { "name": name },
            "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name },
            "subjects": [{ "apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": owner.name }],
        }),
    ] {
        cluster.objects.create(object).await?;
    }
    cluster.forget_certificates().await?;
    let helm = Helm::on(&cluster.plane.kubeconfig(&owner))?;
    helm.apply("install", &release())?;
    helm.run(&["uninstall", RELEASE, "--namespace", "team-a"])?;
    // The other releases see the cluster by another object.
    cluster.objects.delete("ConfigMap", "kube-root-ca.crt").await
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
    started.provider.ready().await.with_context(|| started.programs.log_tails())?;
    started.provider.shows(&[]).await.with_context(|| started.programs.log_tails())
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
