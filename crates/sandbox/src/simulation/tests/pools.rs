//! MachinePool: ids and Nodes without Machines.

use super::*;

#[tokio::test]
async fn a_machine_pool_keeps_its_ids_and_nodes_by_its_size() {
    let world = World::new(TIMES);
    world.load(group("MachinePool", "spot", 2));
    world.pass(11).await;
    let pool = world.get("machinepools", "spot");
    let ids: Vec<_> = pool["spec"]["providerIDList"].as_array().unwrap().clone();
    assert_eq!(ids.len(), 2);
    assert!(world.nodes().is_empty());
    world.pass(100).await;
    let pool = world.get("machinepools", "spot");
    assert_eq!(pool["status"]["nodeRefs"].as_array().unwrap().len(), 2);
    assert_eq!((&pool["status"]["readyReplicas"], &pool["status"]["phase"]), (&json!(2), &json!("Running")));
    let node = &world.nodes()[0];
    assert_eq!(node.annotation(keys::NODE_OWNER_KIND), Some("MachinePool"));
    assert_eq!(node.annotation(keys::NODE_OWNER_NAME), Some("spot"));
    assert_eq!(node.annotation(keys::NODE_MACHINE), None);

    world.patch("machinepools", "spot", json!({ "spec": { "replicas": 1 } }));
    world.pass(100).await;
    let pool = world.get("machinepools", "spot");
    assert_eq!(pool["spec"]["providerIDList"], json!([ids[0]]));
    assert_eq!(world.nodes().len(), 1);
    assert!(world.names("machines").is_empty());

    world.delete("machinepools", "spot");
    world.settle().await;
    assert!(world.nodes().is_empty() && world.names("machinepools").is_empty());
}
