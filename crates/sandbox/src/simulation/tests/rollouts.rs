//! A new template replaces the old one, within bounds.

use super::*;

fn new_version() -> Value {
    json!({ "spec": { "template": { "spec": { "version": "v1.36.0" } } } })
}

fn old_machines(world: &World) -> usize {
    world.list("machines").iter().filter(|machine| machine["spec"]["version"] == "v1.35.0").count()
}

#[tokio::test]
async fn a_rollout_never_has_more_than_the_surge_nor_fewer_than_the_size() {
    let world = World::with_workers(TIMES, 3).await;
    world.patch("machinedeployments", "workers", new_version());
    world.settle().await;
    assert_eq!(world.sets(), [("1".to_owned(), 3), ("2".to_owned(), 1)]);
    let deployment = world.get("machinedeployments", "workers");
    assert_eq!(deployment.annotation(keys::REVISION), Some("2"));
    assert_eq!(condition(&deployment, Contract::V1Beta2, "RollingOut")["status"], "True");
    let mut seconds = 0;
    while world.sets() != [("1".to_owned(), 0), ("2".to_owned(), 3)] || world.running().len() != 3 {
        world.pass(1).await;
        let ready = world.nodes().iter().filter(|node| node["spec"]["unschedulable"].is_null()).count();
        assert!(world.names("machines").len() <= 4 && ready >= 3, "{:?}", world.phases());
        seconds += 1;
        assert!(seconds < 1000, "{:?}", world.sets());
    }
    world.pass(20).await;
    assert_eq!(old_machines(&world), 0);
    assert_eq!(world.get("machinedeployments", "workers")["status"]["phase"], "Running");
}

#[tokio::test]
async fn without_a_surge_an_old_machine_goes_first() {
    let world = World::with_workers(TIMES, 2).await;
    let bounds = json!({ "type": "RollingUpdate", "rollingUpdate": { "maxSurge": 0, "maxUnavailable": 1 } });
    world.patch("machinedeployments", "workers", json!({ "spec": { "rollout": { "strategy": bounds } } }));
    world.patch("machinedeployments", "workers", new_version());
    world.settle().await;
    assert_eq!(world.sets(), [("1".to_owned(), 1), ("2".to_owned(), 0)]);
    world.pass(100).await;
    world.pass(100).await;
    assert_eq!(world.sets(), [("1".to_owned(), 0), ("2".to_owned(), 2)]);
}

#[tokio::test]
async fn a_rollout_that_gets_no_new_node_keeps_the_old_ones() {
    let world = World::with_workers(TIMES, 2).await;
    let mut patch = new_version();
    patch["spec"]["template"]["metadata"]["labels"][BEHAVIOUR_LABEL] = json!("never-join");
    world.patch("machinedeployments", "workers", patch);
    world.pass(1000).await;
    assert_eq!(world.sets(), [("1".to_owned(), 2), ("2".to_owned(), 1)]);
}

#[tokio::test]
async fn on_delete_only_what_someone_deletes_is_exchanged_and_old_machines_go_first() {
    let world = World::with_workers(TIMES, 2).await;
    let strategy = json!({ "type": "OnDelete", "rollingUpdate": null });
    world.patch("machinedeployments", "workers", json!({ "spec": { "rollout": { "strategy": strategy } } }));
    world.patch("machinedeployments", "workers", new_version());
    world.pass(100).await;
    assert_eq!(old_machines(&world), 2);
    let machine = world.names("machines").remove(0);
    world.delete("machines", &machine);
    world.pass(100).await;
    assert_eq!((old_machines(&world), world.running().len()), (1, 2));
    world.scale(1).await;
    world.pass(100).await;
    assert_eq!((old_machines(&world), world.running().len()), (0, 1));
}

#[tokio::test]
async fn a_machine_deployment_that_is_paused_by_its_spec_scales_but_does_not_roll_out() {
    let world = World::with_workers(TIMES, 2).await;
    world.patch("machinedeployments", "workers", json!({ "spec": { "paused": true } }));
    world.patch("machinedeployments", "workers", new_version());
    world.scale(3).await;
    assert_eq!(world.sets(), [("1".to_owned(), 3)]);
    world.patch("machinedeployments", "workers", json!({ "spec": { "paused": false } }));
    world.settle().await;
    assert_eq!(world.sets(), [("1".to_owned(), 3), ("2".to_owned(), 1)]);
}

#[tokio::test]
async fn only_one_empty_machine_set_is_kept() {
    let world = World::with_workers(Times::ZERO, 1).await;
    for version in ["v1.36.0", "v1.37.0", "v1.38.0"] {
        let patch = json!({ "spec": { "template": { "spec": { "version": version } } } });
        world.patch("machinedeployments", "workers", patch);
        // The oldest is known by its time of creation, in seconds.
        world.pass(1).await;
    }
    assert_eq!(world.sets(), [("3".to_owned(), 0), ("4".to_owned(), 1)]);
}
