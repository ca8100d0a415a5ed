//! Tests of the Nodes of a fleet's Clusters: the credentials by which they are read, and calls without them; and of the
//! certificates of autoscalers.

use std::time::Duration;

use rstest::rstest;
use rules::capi::NotBefore;
use serde_json::{Value, json};
use tokio::time;

use super::{
    fake::NAMESPACE,
    fleet_world::{OTHER, STAGE, World, labelled, three},
};
use connect::NodeAccess;
use service::listen::{CheckState, Checks as _};

const SECRETS: &str = "/api/v1/namespaces/team-a/secrets";

/// Returns a Machine of `stage` that has a Node, and a providerID only if its Node has one.
fn unidentified() -> Value {
    json!({"spec": {"clusterName": "stage"}, "status": {"nodeRef": {"name": "node-1"}}})
}

#[tokio::test(start_paused = true)]
async fn a_dead_workload_cluster_delays_its_refresh_and_fails_it_only_for_a_machine_that_needs_its_node() {
    let api = three();
    let world = World::new(&api, None);
    world.until_served(&[STAGE, OTHER]).await;
    let expected = "workload/nodes: Secret team-a/stage-kubeconfig";
    world.until("the failure", |world| world.problem(STAGE.0).starts_with(expected)).await;
    time::sleep(Duration::from_secs(31)).await;
    world.until("Refresh without Nodes", |world| world.problem(STAGE.0).is_empty()).await;
    let clusters = world.fleet.checks().into_iter().find(|check| check.name == "fleet/clusters").unwrap();
    assert!(
        clusters.state == CheckState::Informational
            && clusters.reason.as_deref().is_some_and(|why| why.contains("Secret team-a/stage-kubeconfig")),
        "{clusters:?}"
    );
    api.put("machines", "stage-b", &unidentified());
    let expected = "; only its Node has the providerID of Machine stage-b";
    world.until("the failure", |world| world.problem(STAGE.0).ends_with(expected)).await;
    assert_eq!(world.problem(OTHER.0), "");
    api.delete("machines", "stage-b");
    world.until("Refresh again", |world| world.problem(STAGE.0).is_empty()).await;
    world.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn without_credentials_no_secret_is_read_and_no_refresh_waits() {
    let api = three();
    let world = World::reading(&api, None, NodeAccess::None);
    world.until_served(&[STAGE, OTHER]).await;
    api.put("machines", "stage-b", &unidentified());
    world.until("Refresh", |world| world.problem(STAGE.0).is_empty()).await;
    world
        .until("all", |world| {
            world.fleet.checks().iter().all(|check| check.state == CheckState::Ready && check.reason.is_none())
        })
        .await;
    time::sleep(Duration::from_secs(600)).await;
    assert_eq!(world.problem(STAGE.0), "");
    for cluster in ["stage", "other"] {
        assert!(!api.was_asked(&format!("{SECRETS}/{cluster}-kubeconfig")));
    }
    world.shutdown().await;
}

/// The names of the Secrets hold those of the Clusters. Secrets are never listed: the same right would show the keys of
/// authorities.
#[rstest]
#[case::of_cluster_api("{cluster}-kubeconfig", "stage-kubeconfig")]
#[case::of_the_operator("nodes.{cluster}", "nodes.stage")]
#[tokio::test(start_paused = true)]
async fn one_secret_of_a_clusters_namespace_is_read_by_its_name(#[case] name: &str, #[case] expected: &str) {
    let api = three();
    let world = World::reading(&api, Some(&[NAMESPACE]), name.parse().unwrap());
    let (asked, all) = (format!("{SECRETS}/{expected}"), ["/api/v1/secrets", SECRETS]);
    world.until("the Secret", |_| api.was_asked(&asked)).await;
    time::sleep(Duration::from_secs(600)).await;
    let asks = api.asks(&asked);
    assert!((10..=30).contains(&asks), "after pauses that grow to a minute: {asks}");
    assert!(!all.iter().any(|path| api.was_asked(path)));
    world.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn the_certificates_of_a_cluster_follow_its_annotation() {
    let api = three();
    let annotated = |value: &str| {
        let mut cluster = labelled();
        cluster["metadata"]["annotations"] = json!({"capi-autoscaler-provider.io/client-not-before": value});
        cluster
    };
    let time = NotBefore::Time("2026-01-02T03:04:05Z".parse().unwrap());
    api.put("clusters", "stage", &annotated("2026-01-02T03:04:05Z"));
    let world = World::new(&api, None);
    world.until_served(&[STAGE, OTHER]).await;
    let not_before = |world: &World, cluster: &str| world.member(cluster).unwrap().client_not_before();
    assert_eq!((not_before(&world, STAGE.0), not_before(&world, OTHER.0)), (Some(time), None));
    // One that doesn't decode stays what it was.
    let mut odd = annotated("2027-01-02T03:04:05Z");
    odd["spec"] = json!({"paused": "perhaps"});
    api.put("clusters", "stage", &odd);
    api.put("clusters", "other", &annotated("2026-01-02T03:04:05Z"));
    world.until("the other", |world| not_before(world, OTHER.0) == Some(time)).await;
    assert_eq!(not_before(&world, STAGE.0), Some(time));
    api.put("clusters", "stage", &annotated("now"));
    world.until("the denial", |world| not_before(world, STAGE.0) == Some(NotBefore::Unreadable)).await;
    api.put("clusters", "stage", &labelled());
    world.until("the end", |world| not_before(world, STAGE.0).is_none()).await;
    world.shutdown().await;
}
