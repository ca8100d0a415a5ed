//! A new template replaces the old one, within bounds.

use super::*;

fn new_version() -> Value {
    json!({ "spec": { "template": { "spec": { "version": "v1.36.0" } } } })
}

fn old_machines(world: &World) -> usize {
    world.list("machines").iter().filter(|machine| machine["spec"]["version"] == "v1.35.0").count()
}

#[test]
fn a_rollout_never_has_more_than_the_surge_nor_fewer_than_the_size() {
    let mut world = World::with_workers(TIMES, 3);
    world.patch("machinedeployments", "workers", new_version());
    world.settle();
    assert_eq!(world.sets(), [("1".to_owned(), 3), ("2".to_owned(), 1)]);
    let deployment = world.get("machinedeployments", "workers");
    assert_eq!(deployment.annotation(keys::REVISION), Some("2"));
    assert_eq!(condition(&deployment, Contract::V1Beta2, "RollingOut")["status"], "True");
    let mut seconds = 0;
    while world.sets() != [("1".to_owned(), 0), ("2".to_owned(), 3)] || world.running().len() != 3 {
        world.pass(1);
        let ready = world.nodes().iter().filter(|node| node["spec"]["unschedulable"].is_null()).count();
        assert!(world.names("machines").len() <= 4 && ready >= 3, "{:?}", world.phases());
        seconds += 1;
        assert!(seconds < 1000, "{:?}", world.sets());
    }
    world.pass(20);
    assert_eq!(old_machines(&world), 0);
    assert_eq!(world.get("machinedeployments", "workers")["status"]["phase"], "Running");
}

#[test]
fn without_a_surge_an_old_machine_goes_first() {
    let mut world = World::with_workers(TIMES, 2);
    let bounds = json!({ "type": "RollingUpdate", "rollingUpdate": { "maxSurge": 0, "maxUnavailable": 1 } });
    world.patch("machinedeployments", "workers", json!({ "spec": { "rollout": { "strategy": bounds } } }));
    world.patch("machinedeployments", "workers", new_version());
    world.settle();
    assert_eq!(world.sets(), [("1".to_owned(), 1), ("2".to_owned(), 0)]);
    world.pass(100);
    world.pass(100);
    assert_eq!(world.sets(), [("1".to_owned(), 0), ("2".to_owned(), 2)]);
}

#[test]
fn a_rollout_that_gets_no_new_node_keeps_the_old_ones() {
    let mut world = World::with_workers(TIMES, 2);
    let mut patch = new_version();
    patch["spec"]["template"]["metadata"]["labels"][BEHAVIOUR_LABEL] = json!("never-join");
    world.patch("machinedeployments", "workers", patch);
    world.pass(1000);
    assert_eq!(world.sets(), [("1".to_owned(), 2), ("2".to_owned(), 1)]);
}

#[test]
fn on_delete_only_what_someone_deletes_is_exchanged_and_old_machines_go_first() {
    let mut world = World::with_workers(TIMES, 2);
    let strategy = json!({ "type": "OnDelete", "rollingUpdate": null });
    world.patch("machinedeployments", "workers", json!({ "spec": { "rollout": { "strategy": strategy } } }));
    world.patch("machinedeployments", "workers", new_version());
    world.pass(100);
    assert_eq!(old_machines(&world), 2);
    let machine = world.names("machines").remove(0);
    world.delete("machines", &machine);
    world.pass(100);
    assert_eq!((old_machines(&world), world.running().len()), (1, 2));
    world.scale(1);
    world.pass(100);
    assert_eq!((old_machines(&world), world.running().len()), (0, 1));
}

#[test]
fn a_machine_deployment_that_is_paused_by_its_spec_scales_but_does_not_roll_out() {
    let mut world = World::with_workers(TIMES, 2);
    world.patch("machinedeployments", "workers", json!({ "spec": { "paused": true } }));
    world.patch("machinedeployments", "workers", new_version());
    world.scale(3);
    assert_eq!(world.sets(), [("1".to_owned(), 3)]);
    world.patch("machinedeployments", "workers", json!({ "spec": { "paused": false } }));
    world.settle();
    assert_eq!(world.sets(), [("1".to_owned(), 3), ("2".to_owned(), 1)]);
}

#[test]
fn only_one_empty_machine_set_is_kept() {
    let mut world = World::with_workers(Times::ZERO, 1);
    for version in ["v1.36.0", "v1.37.0", "v1.38.0"] {
        let patch = json!({ "spec": { "template": { "spec": { "version": version } } } });
        world.patch("machinedeployments", "workers", patch);
        // The oldest is known by its time of creation, in seconds.
        world.pass(1);
    }
    assert_eq!(world.sets(), [("3".to_owned(), 0), ("4".to_owned(), 1)]);
}
