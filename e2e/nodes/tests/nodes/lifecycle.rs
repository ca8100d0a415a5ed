//! A release from its installation to its end.

use anyhow::{Result, ensure};
use e2e::{
    helm::RELEASE,
    nodes::{Group, Testbed},
    wait::every,
};
use k8s_openapi::api::{
    apps::v1::Deployment,
    core::v1::{ConfigMap, Pod, Service},
    policy::v1::PodDisruptionBudget,
};
use kube::{Api, Resource, api::ListParams};
use serde::de::DeserializeOwned;
use serde_json::json;
use std::fmt::Debug;

use crate::pod::{INTERVAL, VISIBLE_WITHIN, uids};

pub(crate) async fn a_release_is_installed_upgraded_rolled_back_and_uninstalled(testbed: &Testbed<'_>) -> Result<()> {
    let release = testbed.release();
    let group = Group::create(&testbed.objects, "workers", 2).await?;
    let installed = release.apply("install", &release.values()).await?;
    ensure!(installed.len() == 2, "{} Pods", installed.len());
    let outside = release.outside_of_all().await?;
    let caller = release.connection(&outside).await?.caller();
    caller.shows(&[&group.id]).await?;

    let values = release.values().set("extraArgs", json!({ "log-format": "json" }));
    let upgraded = release.apply("upgrade", &values).await?;
    ensure!(uids(&upgraded).is_disjoint(&uids(&installed)), "an old Pod is still there");
    ensure!(flags(&upgraded).contains("--log-format=json"), "the new Pods have the flags {}", flags(&upgraded));
    caller.shows(&[&group.id]).await?;

    release.helm(&["rollback", RELEASE, "1"])?;
    let back = release.settled().await?;
    ensure!(!flags(&back).contains("--log-format=json"), "after the way back the flags are {}", flags(&back));
    // The client's certificate stays valid through upgrade and rollback.
    caller.shows(&[&group.id]).await?;

    release.uninstall().await?;
    let labels = format!("app.kubernetes.io/instance={RELEASE}");
    assert_gone::<Deployment>(testbed, &labels).await?;
    assert_gone::<Service>(testbed, &labels).await?;
    assert_gone::<ConfigMap>(testbed, &labels).await?;
    assert_gone::<PodDisruptionBudget>(testbed, &labels).await?;
    // Uninstalling keeps the certificates, so that the first client can call the next installation.
    release.apply("install", &release.values()).await?;
    every(INTERVAL, "calls with the kept certificate", VISIBLE_WITHIN, async || {
        ensure!(caller.refreshed_ids().await? == [group.id.as_str()], "other groups");
        Ok(())
    })
    .await
}

pub(crate) async fn a_broken_upgrade_leaves_the_old_pods_serving(testbed: &Testbed<'_>) -> Result<()> {
    let release = testbed.release();
    let group = Group::create(&testbed.objects, "workers", 1).await?;
    let installed = release.apply("install", &release.values()).await?;
    let outside = release.outside_of_all().await?;
    let caller = release.connection(&outside).await?.caller();
    caller.shows(&[&group.id]).await?;

    // A flag that the program refuses: its message ends in the status of the container.
    let broken = release.values().set("extraArgs", json!({ "no-such-flag": "1" }));
    testbed.cluster.helm.apply("upgrade", &broken)?;
    every(INTERVAL, "a new Pod that fails", VISIBLE_WITHIN, async || {
        let pods = release.pods().await?;
        let restarted = pods.iter().any(|pod| {
            let statuses = pod.status.as_ref().and_then(|status| status.container_statuses.as_ref());
            statuses.into_iter().flatten().any(|status| status.restart_count > 0)
        });
        ensure!(restarted, "{} Pods, and none has failed", pods.len());
        Ok(())
    })
    .await?;
    let now = uids(&release.pods().await?);
    ensure!(uids(&installed).is_subset(&now), "an old Pod has gone before a new one was ready");
    caller.shows(&[&group.id]).await?;
    release.helm(&["rollback", RELEASE])?;
    let back = release.settled().await?;
    ensure!(uids(&back) == uids(&installed), "the old Pods were replaced");
    Ok(())
}

async fn assert_gone<K>(testbed: &Testbed<'_>, labels: &str) -> Result<()>
where
    K: Resource<Scope = k8s_openapi::NamespaceResourceScope> + Clone + DeserializeOwned + Debug,
    K::DynamicType: Default,
{
    let api: Api<K> = Api::namespaced(testbed.cluster.client(), &testbed.namespace);
    let left = api.list(&ListParams::default().labels(labels)).await?.items;
    let names: Vec<_> = left.iter().map(|object| object.meta().name.clone()).collect();
    ensure!(names.is_empty(), "after uninstalling there are {names:?} of {}", std::any::type_name::<K>());
    Ok(())
}

/// Returns the flags of the first Pod.
fn flags(pods: &[Pod]) -> String {
    let container = pods.first().and_then(|pod| pod.spec.as_ref()).and_then(|spec| spec.containers.first());
    container.and_then(|container| container.args.clone()).unwrap_or_default().join(" ")
}
