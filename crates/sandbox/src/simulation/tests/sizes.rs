//! Sizes: scaling up and down, and the order in which Machines are deleted.

use super::*;

#[tokio::test]
async fn a_machine_deployment_scales_up_from_zero() {
    let world = World::with_workers(TIMES, 0).await;
    world.scale(2).await;
    assert_eq!(world.phases(), ["Pending", "Pending"]);
    assert_eq!(world.sets(), [("1".to_owned(), 2)]);
    let set = &world.list("machinesets")[0];
    assert_eq!(set.annotation(keys::DESIRED_REPLICAS), Some("2"));
    world.pass(100).await;
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

#[tokio::test]
async fn names_and_owners_lead_from_a_machine_to_its_machine_deployment() {
    let world = World::with_workers(Times::ZERO, 1).await;
    let (set, machine) = (&world.list("machinesets")[0], &world.list("machines")[0]);
    assert!(set.name().starts_with("workers-") && set.name().len() == "workers-".len() + 5, "{}", set.name());
    assert!(machine.name().starts_with(&format!("{}-", set.name())), "{}", machine.name());
    assert_eq!(machine.controller().unwrap()["uid"], set.uid());
    assert_eq!(machine.label(keys::DEPLOYMENT_NAME), Some("workers"));
    assert_eq!(machine.label(keys::TEMPLATE_HASH), set.label(keys::TEMPLATE_HASH));
}

#[tokio::test]
async fn scaling_down_takes_the_marked_machine() {
    let world = World::with_workers(TIMES, 3).await;
    let machines = world.names("machines");
    world.annotate("machines", &machines[2], keys::DELETE_MACHINE, Some("yes"));
    world.scale(2).await;
    assert!(world.get("machines", &machines[2]).deleting());
    world.pass(100).await;
    assert_eq!(world.names("machines"), machines[..2]);
    assert_eq!(world.nodes().len(), 2);
}

#[tokio::test]
async fn a_machine_that_is_being_deleted_already_is_the_one_that_a_smaller_size_takes() {
    let world = World::with_workers(TIMES, 3).await;
    let machines = world.names("machines");
    world.delete("machines", &machines[0]);
    world.settle().await;
    world.annotate("machines", &machines[2], keys::DELETE_MACHINE, Some("yes"));
    world.scale(2).await;
    world.pass(100).await;
    assert_eq!(world.names("machines"), machines[1..], "the marked one stays");
}

#[tokio::test]
async fn a_machine_that_someone_deletes_is_replaced_once_it_is_gone() {
    let world = World::with_workers(TIMES, 2).await;
    let machines = world.names("machines");
    world.delete("machines", &machines[0]);
    world.settle().await;
    assert_eq!(world.names("machines"), machines);
    assert_eq!(world.list("machinesets")[0]["status"]["replicas"], 2, "it counts until it is gone");
    world.pass(10).await;
    let names = world.names("machines");
    assert!(names.len() == 2 && names.contains(&machines[1]) && !names.contains(&machines[0]), "{names:?}");
}

#[tokio::test]
async fn scaling_down_takes_the_machine_without_a_node_before_others() {
    let world = World::with_workers(TIMES, 2).await;
    let old = world.names("machines");
    world.scale(3).await;
    world.scale(2).await;
    world.pass(100).await;
    assert_eq!(world.names("machines"), old);
}

#[tokio::test]
async fn a_machine_set_stands_by_itself() {
    let world = World::new(TIMES);
    world.load(group("MachineSet", "batch", 2));
    world.pass(100).await;
    assert_eq!(world.phases(), ["Running", "Running"]);
    assert_eq!(world.nodes()[0].annotation(keys::NODE_OWNER_NAME), Some("batch"));
    world.patch("machinesets", "batch", json!({ "spec": { "replicas": 1 } }));
    world.pass(100).await;
    assert_eq!(world.phases(), ["Running"]);
}

#[tokio::test]
async fn the_controllers_look_at_a_change_only_after_their_time() {
    let world = World::with_workers(Times { react: Duration::from_secs(2), ..TIMES }, 1).await;
    world.scale(2).await;
    world.pass(1).await;
    assert_eq!(world.sets(), [("1".to_owned(), 1)]);
    world.pass(1).await;
    assert_eq!(world.sets(), [("1".to_owned(), 2)]);
}

#[tokio::test]
async fn a_paused_machine_deployment_is_not_scaled_until_the_pause_ends() {
    let world = World::with_workers(TIMES, 1).await;
    world.annotate("machinedeployments", "workers", keys::PAUSED, Some(""));
    world.scale(3).await;
    world.pass(10).await;
    assert_eq!(world.sets(), [("1".to_owned(), 1)]);
    world.annotate("machinedeployments", "workers", keys::PAUSED, None);
    world.settle().await;
    assert_eq!(world.sets(), [("1".to_owned(), 3)]);
}

#[tokio::test]
async fn a_paused_cluster_pauses_everything_of_it() {
    let world = World::with_workers(TIMES, 1).await;
    world.scale(2).await;
    world.patch("clusters", "prod", json!({ "spec": { "paused": true } }));
    world.scale(3).await;
    world.pass(100).await;
    assert_eq!(world.phases().iter().filter(|phase| *phase == "Pending").count(), 1);
    assert_eq!(world.names("machines").len(), 2);
    world.patch("clusters", "prod", json!({ "spec": { "paused": false } }));
    world.pass(100).await;
    assert_eq!(world.phases(), ["Running", "Running", "Running"]);
}

#[tokio::test]
async fn with_no_times_all_is_done_at_once_and_the_same_in_every_run() {
    let mut runs = Vec::new();
    for _ in 0..2 {
        let world = World::with_workers(Times::ZERO, 0).await;
        world.scale(5).await;
        assert_eq!(world.running().len(), 5);
        world.scale(2).await;
        assert_eq!(world.nodes().len(), 2);
        runs.push(world.names("machines"));
    }
    assert_eq!(runs[0], runs[1]);
}
