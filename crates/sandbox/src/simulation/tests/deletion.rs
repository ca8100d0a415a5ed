//! A deleted object goes step by step, together with the objects that it owns.

use super::*;

#[tokio::test]
async fn a_machine_is_drained_then_terminated_then_gone_with_its_node() {
    let world = World::with_workers(TIMES, 1).await;
    world.scale(0).await;
    assert_eq!(world.phases(), ["Deleting"]);
    let reason = |world: &World| condition(&world.list("machines")[0], Contract::V1Beta2, "Deleting")["reason"].clone();
    assert_eq!(reason(&world), "DrainingNode");
    assert_eq!(world.nodes()[0]["spec"]["unschedulable"], true);
    world.pass(3).await;
    assert_eq!(reason(&world), "WaitingForInfrastructureDeletion");
    world.pass(6).await;
    assert_eq!(world.nodes().len(), 1);
    world.pass(1).await;
    assert!(world.nodes().is_empty() && world.names("machines").is_empty());
    assert_eq!(world.get("machinedeployments", "workers")["status"]["replicas"], 0);
}

#[tokio::test]
async fn a_machine_without_a_node_needs_no_draining() {
    let world = World::with_workers(TIMES, 0).await;
    world.scale(1).await;
    world.scale(0).await;
    world.pass(7).await;
    assert!(world.names("machines").is_empty());
}

#[tokio::test]
async fn a_finalizer_of_someone_else_holds_a_machine() {
    let world = World::with_workers(TIMES, 1).await;
    let machine = world.names("machines").remove(0);
    let finalizers = json!([keys::MACHINE_FINALIZER, "example.com/mine"]);
    world.patch("machines", &machine, json!({ "metadata": { "finalizers": finalizers } }));
    world.scale(0).await;
    world.pass(100).await;
    assert_eq!(world.get("machines", &machine)["metadata"]["finalizers"], json!(["example.com/mine"]));
    assert_eq!(world.list("machinesets")[0]["status"]["replicas"], 1);
    world.patch("machines", &machine, json!({ "metadata": { "finalizers": null } }));
    world.settle().await;
    assert!(world.names("machines").is_empty());
}

#[tokio::test]
async fn a_pre_drain_hook_holds_a_machine_before_it_is_drained() {
    let world = World::with_workers(TIMES, 1).await;
    let machine = world.names("machines").remove(0);
    let hook = format!("{}/mine", keys::PRE_DRAIN_HOOK);
    world.patch("machines", &machine, json!({ "metadata": { "annotations": { (hook.as_str()): "me" } } }));
    world.scale(0).await;
    world.pass(100).await;
    let reason = condition(&world.get("machines", &machine), Contract::V1Beta2, "Deleting")["reason"].clone();
    assert_eq!(reason, "WaitingForPreDrainHook");
    assert_eq!(world.nodes()[0]["spec"]["unschedulable"], Value::Null);
    world.patch("machines", &machine, json!({ "metadata": { "annotations": { (hook.as_str()): null } } }));
    world.pass(10).await;
    assert!(world.names("machines").is_empty());
}

#[tokio::test]
async fn a_machine_deployment_takes_its_machine_sets_machines_and_nodes_along() {
    let world = World::with_workers(TIMES, 2).await;
    world.delete("machinedeployments", "workers");
    world.settle().await;
    assert_eq!(world.phases(), ["Deleting", "Deleting"]);
    assert_eq!(world.names("machinedeployments").len(), 1, "it waits for its Machines");
    world.pass(100).await;
    assert!(world.nodes().is_empty());
    for plural in ["machinedeployments", "machinesets", "machines"] {
        assert!(world.names(plural).is_empty(), "{plural}");
    }
}
