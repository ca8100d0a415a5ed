//! A deleted object goes step by step, together with the objects that it owns.

use super::*;

#[test]
fn a_machine_is_drained_then_terminated_then_gone_with_its_node() {
    let mut world = World::with_workers(TIMES, 1);
    world.scale(0);
    assert_eq!(world.phases(), ["Deleting"]);
    let reason = |world: &World| condition(&world.list("machines")[0], Contract::V1Beta2, "Deleting")["reason"].clone();
    assert_eq!(reason(&world), "DrainingNode");
    assert_eq!(world.nodes()[0]["spec"]["unschedulable"], true);
    world.pass(3);
    assert_eq!(reason(&world), "WaitingForInfrastructureDeletion");
    world.pass(6);
    assert_eq!(world.nodes().len(), 1);
    world.pass(1);
    assert!(world.nodes().is_empty() && world.names("machines").is_empty());
    assert_eq!(world.get("machinedeployments", "workers")["status"]["replicas"], 0);
}

#[test]
fn a_machine_without_a_node_needs_no_draining() {
    let mut world = World::with_workers(TIMES, 0);
    world.scale(1);
    world.scale(0);
    world.pass(7);
    assert!(world.names("machines").is_empty());
}

#[test]
fn a_finalizer_of_someone_else_holds_a_machine() {
    let mut world = World::with_workers(TIMES, 1);
    let machine = world.names("machines").remove(0);
    let finalizers = json!([keys::MACHINE_FINALIZER, "example.com/mine"]);
    world.patch("machines", &machine, json!({ "metadata": { "finalizers": finalizers } }));
    world.scale(0);
    world.pass(100);
    assert_eq!(world.get("machines", &machine)["metadata"]["finalizers"], json!(["example.com/mine"]));
    assert_eq!(world.list("machinesets")[0]["status"]["replicas"], 1);
    world.patch("machines", &machine, json!({ "metadata": { "finalizers": null } }));
    world.settle();
    assert!(world.names("machines").is_empty());
}

#[test]
fn a_machine_deployment_takes_its_machine_sets_machines_and_nodes_along() {
    let mut world = World::with_workers(TIMES, 2);
    world.delete("machinedeployments", "workers");
    world.settle();
    assert_eq!(world.phases(), ["Deleting", "Deleting"]);
    assert_eq!(world.names("machinedeployments").len(), 1, "it waits for its Machines");
    world.pass(100);
    assert!(world.nodes().is_empty());
    for plural in ["machinedeployments", "machinesets", "machines"] {
        assert!(world.names(plural).is_empty(), "{plural}");
    }
}
