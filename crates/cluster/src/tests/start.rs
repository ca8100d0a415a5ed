//! Tests of the problems reported while a cluster is incomplete at the start, and of the recovery.

use rstest::rstest;
use rules::Rules;
use rules::capi::{Keys, OPENSHIFT_GROUP};
use serde_json::json;

use super::{WORKERS, World, fake::*, scalable};
use connect::WorkloadSource;
use index::objects;
use service::listen::CheckState;

#[tokio::test(start_paused = true)]
async fn an_api_server_that_is_down_is_reported_and_found_again() {
    let api = FakeApi::with_capi();
    api.put("machinedeployments", "workers", &scalable(&json!({})));
    api.go_down();
    let world = World::new(&api);
    let is_reported = |world: &World, name: &str| match world.check(name) {
        Some((CheckState::Pending, why)) => {
            why.contains("connection refused") && world.problem().contains(&format!("{name}: {why}"))
        }
        Some((CheckState::Ready | CheckState::Informational, _)) | None => false,
    };
    // It is one cause, so it is one line.
    let is_one_line = |world: &World| is_reported(world, "management/api-server") && world.workload.checks().len() == 1;
    world.until("the outage", is_one_line).await;
    assert!(!world.is_ready());
    api.come_up();
    world.until_ready().await;
    assert!(world.is_ready());
    assert_eq!(world.groups(), [WORKERS]);
    world.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_group_that_is_not_installed_is_reported_and_found_when_it_is() {
    let api = FakeApi::default();
    let world = World::new(&api);
    world.until("the cause", |world| world.problem().contains("doesn't serve the API group cluster.x-k8s.io")).await;
    assert!(world.problem().contains("CAPI_GROUP"), "{}", world.problem());
    assert!(!world.is_ready());
    api.install_capi();
    world.until_ready().await;
    world.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_version_that_is_not_served_is_reported_with_those_that_are() {
    let api = FakeApi::with_capi();
    api.serve_group(CAPI, &["v1beta2", "v1beta1"]);
    let world = World::with(&api, Setup { version: Some("v1alpha4"), ..Setup::default() });
    world.until("the cause", |world| world.problem().contains("v1alpha4")).await;
    let problem = world.problem();
    assert!(problem.contains("in the versions v1beta2, v1beta1, not in v1alpha4"), "{problem}");
    assert!(problem.contains("CAPI_VERSION"), "{problem}");
    api.serve_group(CAPI, &["v1beta2", "v1alpha4"]);
    world.until_ready().await;
    assert!(api.was_asked("/apis/cluster.x-k8s.io/v1alpha4/machines"));
    assert!(!api.was_asked("/apis/cluster.x-k8s.io/v1beta2/machines"));
    world.shutdown().await;
}

#[rstest]
#[case("management/machines", "machines")]
#[case("management/machinedeployments", "machinedeployments")]
#[case("workload/nodes", "nodes")]
#[tokio::test(start_paused = true)]
async fn a_core_kind_that_is_forbidden_is_reported_alone(#[case] name: &str, #[case] plural: &str) {
    let api = FakeApi::with_capi();
    api.refuse(plural, 403, "User \"provider\" cannot list it");
    let world = World::new(&api);
    let expected = format!("{name}: forbidden: User \"provider\" cannot list it");
    world.until("the one cause", |world| world.problem() == expected).await;
    api.allow(plural);
    world.until_ready().await;
    world.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn machine_pools_are_not_waited_for_and_come_and_go_with_their_kind() {
    let pool = "MachinePool/team-a/pool";
    let api = FakeApi::with_capi();
    api.put("machinedeployments", "workers", &scalable(&json!({})));
    let world = World::synced(&api).await;
    assert_eq!(world.check("management/machinepools"), None);
    api.install(CAPI, "MachinePool", "machinepools");
    api.put("machinepools", "pool", &scalable(&json!({})));
    world.until_groups(&[WORKERS, pool]).await;
    world.until_ready().await;
    assert_eq!(world.check("management/machinepools"), Some((CheckState::Ready, String::new())));
    api.uninstall(CAPI, "MachinePool");
    world.until_groups(&[WORKERS]).await;
    assert_eq!(world.check("management/machinepools"), None);
    world.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn without_nodes_everything_else_is_served() {
    let api = fleet();
    let world = World::with(&api, Setup { source: WorkloadSource::None, ..Setup::default() });
    world.until_ready().await;
    world.until_groups(&[WORKERS]).await;
    assert_eq!(world.check("workload/nodes"), None);
    assert_eq!(world.workload.index().stats().nodes, 0);
    assert!(!api.was_asked("/api/v1/nodes"));
    world.shutdown().await;
}

/// OpenShift's group serves neither Clusters nor MachineDeployments.
#[tokio::test(start_paused = true)]
async fn machine_sets_are_served_without_clusters_and_machine_deployments_which_come_and_go_with_their_kind() {
    const OF_OPENSHIFT: &str = "MachineSet/team-a/workers";
    let bounds = json!({"metadata": {"annotations": {
        "machine.openshift.io/cluster-api-autoscaler-node-group-min-size": "1",
        "machine.openshift.io/cluster-api-autoscaler-node-group-max-size": "10",
    }}});
    let api = FakeApi::with_machine_api();
    api.put("machinesets", "workers", &scalable(&bounds));
    let rules = Rules { keys: Keys::new(OPENSHIFT_GROUP), ..objects::rules() };
    let world = World::with(&api, Setup { rules, ..Setup::default() });
    world.until_ready().await;
    world.until_groups(&[OF_OPENSHIFT]).await;
    assert_eq!(world.check("management/machinesets"), Some((CheckState::Ready, String::new())));
    for name in ["management/clusters", "management/machinedeployments", "management/machinepools"] {
        assert_eq!(world.check(name), None, "{name}");
    }
    api.install(OPENSHIFT_GROUP, "MachineDeployment", "machinedeployments");
    api.put("machinedeployments", "workers", &scalable(&bounds));
    world.until_groups(&[WORKERS, OF_OPENSHIFT]).await;
    api.uninstall(OPENSHIFT_GROUP, "MachineDeployment");
    world.until_groups(&[OF_OPENSHIFT]).await;
    assert_eq!(world.check("management/machinedeployments"), None);
    world.shutdown().await;
}

/// Cluster API's own CRDs are installed and upgraded together, so a missing one must not drop node groups.
#[tokio::test(start_paused = true)]
async fn cluster_apis_own_group_has_clusters_and_machine_deployments() {
    for (kind, plural) in
        [("Cluster", "clusters"), ("MachineDeployment", "machinedeployments"), ("MachineSet", "machinesets")]
    {
        let api = FakeApi::with_capi();
        api.uninstall(CAPI, kind);
        let world = World::new(&api);
        world.until(kind, |world| world.problem().contains(&format!("no kind {kind}"))).await;
        api.install(CAPI, kind, plural);
        world.until_ready().await;
        world.shutdown().await;
    }
}
