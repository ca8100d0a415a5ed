//! Tests of a group that serves MachineSets and Machines, but neither Clusters nor MachineDeployments, like
//! OpenShift's.

use rules::capi::OPENSHIFT_GROUP;
use serde_json::json;

use super::{World, fake::*, scalable};
use service::listen::CheckState;

const PLANE: &str = "MachineSet/team-a/workers";

fn bounds() -> serde_json::Value {
    json!({"metadata": {"annotations": {
        "machine.openshift.io/cluster-api-autoscaler-node-group-min-size": "1",
        "machine.openshift.io/cluster-api-autoscaler-node-group-max-size": "10",
    }}})
}

#[tokio::test(start_paused = true)]
async fn machine_sets_are_served_without_clusters_and_machine_deployments() {
    let api = FakeApi::with_machine_api();
    api.put("machinesets", "workers", &scalable(&bounds()));
    let world = World::of_group(&api, OPENSHIFT_GROUP);
    world.until_ready().await;
    world.until_groups(&[PLANE]).await;
    assert_eq!(world.check("management/machinesets"), Some((CheckState::Ready, String::new())));
    for name in ["management/clusters", "management/machinedeployments", "management/machinepools"] {
        assert_eq!(world.check(name), None, "{name}");
    }
    world.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn machine_deployments_of_such_a_group_come_and_go_with_their_kind() {
    let api = FakeApi::with_machine_api();
    let world = World::of_group(&api, OPENSHIFT_GROUP);
    world.until_ready().await;
    api.install(OPENSHIFT_GROUP, "MachineDeployment", "machinedeployments");
    api.put("machinedeployments", "workers", &scalable(&bounds()));
    world.until_groups(&["MachineDeployment/team-a/workers"]).await;
    api.uninstall(OPENSHIFT_GROUP, "MachineDeployment");
    world.until_groups(&[]).await;
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
