//! Sizes: scaling up and down, and the order in which Machines are deleted.

use super::*;

#[test]
fn a_machine_deployment_scales_up_from_zero() {
    let mut world = World::with_workers(TIMES, 0);
    world.scale(2);
    assert_eq!(world.phases(), ["Pending", "Pending"]);
    assert_eq!(world.sets(), [("1".to_owned(), 2)]);
    let set = &world.list("machinesets")[0];
    assert_eq!(set.annotation(keys::DESIRED_REPLICAS), Some("2"));
    world.pass(100);
    assert_eq!(world.phases(), ["Running", "Running"]);
    let deployment = world.get("machinedeployments", "workers");
    for field in ["replicas", "readyReplicas", "availableReplicas", "upToDateReplicas"] {
        assert_eq!(deployment["status"][field], 2, "{field}");
    }
    assert_eq!(deployment["status"]["phase"], "Running");
    assert_eq!(deployment["status"]["selector"], "cluster.x-k8s.io/deployment-name=workers");
    assert_eq!(deployment["status"]["observedGeneration"], deployment["metadata"]["generation"]);
    assert_eq!(deployment["metadata"]["ownerReferences"][0]["kind"], "Cluster");
}

#[test]
fn names_and_owners_lead_from_a_machine_to_its_machine_deployment() {
    let mut world = World::with_workers(Times::ZERO, 1);
    let (set, machine) = (&world.list("machinesets")[0], &world.list("machines")[0]);
    assert!(set.name().starts_with("workers-") && set.name().len() == "workers-".len() + 5, "{}", set.name());
    assert!(machine.name().starts_with(&format!("{}-", set.name())), "{}", machine.name());
    assert_eq!(machine.controller().unwrap()["uid"], set.uid());
    assert_eq!(machine.label(keys::DEPLOYMENT_NAME), Some("workers"));
    assert_eq!(machine.label(keys::TEMPLATE_HASH), set.label(keys::TEMPLATE_HASH));
}

#[test]
fn scaling_down_takes_the_marked_machine() {
    let mut world = World::with_workers(TIMES, 3);
    let machines = world.names("machines");
    world.annotate("machines", &machines[2], keys::DELETE_MACHINE, Some("yes"));
    world.scale(2);
    assert!(world.get("machines", &machines[2]).deleting());
    world.pass(100);
    assert_eq!(world.names("machines"), machines[..2]);
    assert_eq!(world.nodes().len(), 2);
}

#[test]
fn a_machine_that_is_being_deleted_already_is_the_one_that_a_smaller_size_takes() {
    let mut world = World::with_workers(TIMES, 3);
    let machines = world.names("machines");
    world.delete("machines", &machines[0]);
    world.settle();
    world.annotate("machines", &machines[2], keys::DELETE_MACHINE, Some("yes"));
    world.scale(2);
    world.pass(100);
    assert_eq!(world.names("machines"), machines[1..], "the marked one stays");
}

#[test]
fn a_machine_that_someone_deletes_is_replaced_once_it_is_gone() {
    let mut world = World::with_workers(TIMES, 2);
    let machines = world.names("machines");
    world.delete("machines", &machines[0]);
    world.settle();
    assert_eq!(world.names("machines"), machines);
    assert_eq!(world.list("machinesets")[0]["status"]["replicas"], 2, "it counts until it is gone");
    world.pass(10);
    let names = world.names("machines");
    assert!(names.len() == 2 && names.contains(&machines[1]) && !names.contains(&machines[0]), "{names:?}");
}

#[test]
fn scaling_down_takes_the_machine_without_a_node_before_others() {
    let mut world = World::with_workers(TIMES, 2);
    let old = world.names("machines");
    world.scale(3);
    world.scale(2);
    world.pass(100);
    assert_eq!(world.names("machines"), old);
}

#[test]
fn a_machine_set_stands_by_itself() {
    let mut world = World::live(TIMES);
    world.load(group("MachineSet", "batch", 2));
    world.pass(100);
    assert_eq!(world.phases(), ["Running", "Running"]);
    assert_eq!(world.nodes()[0].annotation(keys::NODE_OWNER_NAME), Some("batch"));
    world.patch("machinesets", "batch", json!({ "spec": { "replicas": 1 } }));
    world.pass(100);
    assert_eq!(world.phases(), ["Running"]);
}

#[test]
fn a_paused_machine_deployment_is_not_scaled_until_the_pause_ends() {
    let mut world = World::with_workers(TIMES, 1);
    world.annotate("machinedeployments", "workers", keys::PAUSED, Some(""));
    world.scale(3);
    world.pass(10);
    assert_eq!(world.sets(), [("1".to_owned(), 1)]);
    world.annotate("machinedeployments", "workers", keys::PAUSED, None);
    world.settle();
    assert_eq!(world.sets(), [("1".to_owned(), 3)]);
}

#[test]
fn a_paused_cluster_pauses_everything_of_it() {
    let mut world = World::with_workers(TIMES, 1);
    world.scale(2);
    world.patch("clusters", "prod", json!({ "spec": { "paused": true } }));
    world.scale(3);
    world.pass(100);
    assert_eq!(world.phases().iter().filter(|phase| *phase == "Pending").count(), 1);
    assert_eq!(world.names("machines").len(), 2);
    world.patch("clusters", "prod", json!({ "spec": { "paused": false } }));
    world.pass(100);
    assert_eq!(world.phases(), ["Running", "Running", "Running"]);
}

#[test]
fn with_no_times_all_is_done_at_once_and_the_same_in_every_run() {
    let mut runs = Vec::new();
    for _ in 0..2 {
        let mut world = World::with_workers(Times::ZERO, 0);
        world.scale(5);
        assert_eq!(world.running().len(), 5);
        world.scale(2);
        assert_eq!(world.nodes().len(), 2);
        runs.push(world.names("machines"));
    }
    assert_eq!(runs[0], runs[1]);
}
