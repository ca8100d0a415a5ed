//! Tests of a followed cluster: upgrades and shutdown.

use std::time::Duration;

use serde_json::json;
use tokio::runtime::Handle;

use super::{WORKERS, World, fake::*, scalable};

const MORE: &str = "MachineDeployment/team-a/more";

#[tokio::test(start_paused = true)]
async fn a_group_in_another_version_is_followed_there_and_what_went_meanwhile_is_gone() {
    let api = FakeApi::with_capi();
    api.serve_group(CAPI, &["v1beta1"]);
    api.put("machinedeployments", "workers", &scalable(&json!({})));
    api.put("machinedeployments", "more", &scalable(&json!({})));
    let world = World::synced(&api).await;
    assert_eq!(world.groups(), [MORE, WORKERS]);
    api.serve_group(CAPI, &["v1beta2"]);
    api.delete("machinedeployments", "more");
    world.until_groups(&[WORKERS]).await;
    world.until_ready().await;
    world.until("the new watch", |_| api.watches("machinedeployments") == 1).await;
    let informers = world.workload.informers();
    let versions = informers.iter().filter(|(cluster, _)| *cluster == "management");
    assert!(
        versions.clone().all(|(_, status)| status.resource.ends_with(".cluster.x-k8s.io/v1beta2")),
        "{informers:?}"
    );
    assert_eq!(versions.count(), 4, "nothing of the old version is left");
    api.put("machinedeployments", "more", &scalable(&json!({})));
    world.until_groups(&[MORE, WORKERS]).await;
    world.shutdown().await;
}

/// Lists in the new version fail, for example since a conversion webhook is down, until the upgrade is rolled back.
/// Objects listed in the first version must not survive just because the second version never had a list.
#[tokio::test(start_paused = true)]
async fn an_upgrade_that_is_taken_back_leaves_nothing_behind() {
    let api = FakeApi::with_capi();
    api.serve_group(CAPI, &["v1beta1"]);
    api.put("machinedeployments", "workers", &scalable(&json!({})));
    api.put("machinedeployments", "more", &scalable(&json!({})));
    let world = World::synced(&api).await;
    assert_eq!(world.groups(), [MORE, WORKERS]);
    api.refuse("machinedeployments", 500, "conversion webhook failed");
    api.serve_group(CAPI, &["v1beta2", "v1beta1"]);
    let name = "management/machinedeployments";
    let webhook = |world: &World| world.problem().contains(&format!("{name}: server error 500: conversion webhook"));
    world.until("the failure", webhook).await;
    assert_eq!(world.groups(), [MORE, WORKERS], "what is known stays known");
    api.delete("machinedeployments", "more");
    api.serve_group(CAPI, &["v1beta1"]);
    api.allow("machinedeployments");
    world.until_groups(&[WORKERS]).await;
    world.shutdown().await;
}

/// Cluster API's kinds move to another version one after the other. A MachinePool that only the old version serves
/// stays a group all the time.
#[tokio::test(start_paused = true)]
async fn a_machine_pool_in_another_version_than_the_other_kinds_is_followed_there() {
    const POOL: &str = "MachinePool/team-a/pool";
    let api = FakeApi::with_capi();
    api.install(CAPI, "MachinePool", "machinepools");
    api.serve_group(CAPI, &["v1beta2", "v1beta1"]);
    api.put("machinepools", "pool", &scalable(&json!({})));
    let world = World::synced(&api).await;
    world.until_groups(&[POOL]).await;
    api.serve_only_in("machinepools", "v1beta1");
    let is_followed = |world: &World| {
        let informers = world.workload.informers();
        informers.iter().any(|(_, status)| status.resource == "machinepools.cluster.x-k8s.io/v1beta1")
    };
    world.until("the other version", is_followed).await;
    world.until_ready().await;
    assert_eq!(world.groups(), [POOL]);
    api.put("machinepools", "more", &scalable(&json!({})));
    world.until_groups(&["MachinePool/team-a/more", POOL]).await;
    world.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn the_end_leaves_no_task() {
    let api = FakeApi::with_capi();
    api.install(CAPI, "MachinePool", "machinepools");
    let infrastructure = json!({"apiGroup": CAPI, "kind": "NoSuchTemplate", "name": "t"});
    let more = json!({"spec": {"template": {"spec": {"infrastructureRef": infrastructure}}}});
    api.put("machinedeployments", "workers", &scalable(&more));
    let tasks = || Handle::current().metrics().num_alive_tasks();
    let before = tasks();
    let world = World::synced(&api).await;
    world.until("a template kind", |world| world.workload.checks().len() == 7).await;
    assert!(tasks() > before);
    let World { fleet, workload } = world;
    fleet.shutdown().await;
    assert_eq!(workload.informers(), []);
    assert_eq!(tasks(), before + 2, "only the two clients' own, which end with them");
    for plural in ["clusters", "machinedeployments", "machinesets", "machines", "machinepools", "nodes"] {
        assert_eq!(api.watches(plural), 0, "{plural}");
    }
}

/// Shutdown doesn't depend on the cluster.
#[tokio::test(start_paused = true)]
async fn the_end_does_not_wait_for_a_cluster_that_is_down() {
    let api = FakeApi::default();
    api.go_down();
    let world = World::new(&api);
    world.until("the cause", |world| world.problem().contains("refused")).await;
    tokio::time::timeout(Duration::from_secs(1), world.shutdown()).await.unwrap();
}
