//! Scenarios in which all controllers are up to date: sizes, lives of Machines, deletions and rollouts.

use rstest::rstest;

use super::*;

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

#[rstest]
fn a_machine_goes_through_its_phases(#[values(Contract::V1Beta1, Contract::V1Beta2)] contract: Contract) {
    let mut world = World::live_of(contract, TIMES);
    world.load(group("MachineDeployment", "workers", 1));
    world.settle();
    assert_eq!(world.phases(), ["Pending"]);
    world.pass(1);
    assert_eq!(world.phases(), ["Provisioning"]);
    world.pass(9);
    assert_eq!(world.phases(), ["Provisioning"]);
    world.pass(1);
    assert_eq!(world.phases(), ["Provisioned"]);
    let machine = &world.list("machines")[0];
    assert_eq!(machine["spec"]["providerID"], format!("sandbox:///team-a/{}", machine.name()));
    assert_eq!(condition(machine, contract, "InfrastructureReady")["status"], "True");
    assert!(world.nodes().is_empty());

    world.pass(20);
    assert_eq!(world.phases(), ["Running"]);
    let machine = &world.list("machines")[0];
    assert_eq!(condition(machine, contract, "NodeHealthy")["status"], "False");
    assert_eq!(machine["status"]["nodeRef"].get("kind").is_some(), contract == Contract::V1Beta1);
    let nodes = world.nodes();
    assert_eq!(machine["status"]["nodeRef"]["name"], nodes[0].name());
    assert!(!node::is_ready(&nodes[0]));

    world.pass(5);
    assert!(node::is_ready(&world.nodes()[0]));
    let machine = &world.list("machines")[0];
    assert_eq!(condition(machine, contract, "Ready")["status"], "True");
    assert_eq!(machine["status"]["observedGeneration"], machine["metadata"]["generation"]);
}

#[test]
fn the_capacity_of_an_infrastructure_template_reaches_the_nodes() {
    let mut world = World::live(Times::ZERO);
    world
        .management
        .load_values(vec![json!({
            "apiVersion": "infrastructure.cluster.x-k8s.io/v1beta2",
            "kind": "DevMachineTemplate",
            "metadata": { "name": "big", "namespace": NAMESPACE },
            "status": { "capacity": { "cpu": 64, "memory": "256Gi" } },
        })])
        .unwrap();
    let mut workers = group("MachineDeployment", "workers", 1);
    workers["spec"]["template"]["spec"]["infrastructureRef"] =
        json!({ "apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "DevMachineTemplate", "name": "big" });
    world.load(workers);
    world.settle();
    assert_eq!(world.nodes()[0]["status"]["capacity"]["cpu"], "64");
    let machine = &world.list("machines")[0];
    let reference = &machine["spec"]["infrastructureRef"];
    assert_eq!((&reference["kind"], &reference["name"]), (&json!("DevMachine"), &json!(machine.name())));
}

#[rstest]
#[case(Contract::V1Beta1, "/status", "Failed")]
#[case(Contract::V1Beta2, "/status/deprecated/v1beta1", "Provisioning")]
fn a_machine_that_fails_says_so_where_its_contract_does(
    #[case] contract: Contract,
    #[case] place: &str,
    #[case] phase: &str,
) {
    let mut world = World::live_of(contract, TIMES);
    world.load(workers_that("fail", 1));
    world.pass(100);
    let machine = &world.list("machines")[0];
    assert_eq!(machine.text(&format!("{place}/failureReason")), Some("CreateError"));
    assert!(machine.text(&format!("{place}/failureMessage")).is_some());
    assert_eq!(world.phases(), [phase]);
    assert_eq!(machine.text("/spec/providerID"), None);
}

#[rstest]
fn a_machine_without_capacity_says_so_and_stays_provisioning(
    #[values(Contract::V1Beta1, Contract::V1Beta2)] contract: Contract,
) {
    let mut world = World::live_of(contract, TIMES);
    world.load(workers_that("no-capacity", 1));
    world.pass(5);
    let message = |world: &World| {
        let machine = &world.list("machines")[0];
        let condition = condition(machine, contract, "InfrastructureReady");
        assert_eq!(condition["status"], "False");
        condition["message"].as_str().unwrap().to_owned()
    };
    assert!(!message(&world).contains("InsufficientInstanceCapacity"), "not before it was tried");
    world.pass(100);
    assert!(message(&world).contains("InsufficientInstanceCapacity"));
    assert_eq!(world.phases(), ["Provisioning"]);
}

#[test]
fn a_node_that_someone_deletes_does_not_come_back_and_its_machine_says_so() {
    let mut world = World::with_workers(TIMES, 1);
    let name = world.nodes()[0].name().to_owned();
    world.workload.delete(&Resource::core("nodes"), "", &name, &DeleteOptions::default()).unwrap();
    world.pass(100);
    assert!(world.nodes().is_empty());
    let machine = &world.list("machines")[0];
    assert_eq!(condition(machine, Contract::V1Beta2, "NodeHealthy")["status"], "Unknown");
}

#[test]
fn a_machine_pool_removes_nodes_of_any_name() {
    let mut world = World::live(TIMES);
    let ids = ["aws:///a/i-1", "aws:///a/i-2"];
    let node = |number: usize| {
        json!({
            "apiVersion": "v1", "kind": "Node", "metadata": { "name": format!("ip-{number}") },
            "spec": { "providerID": ids[number] },
        })
    };
    world.workload.load_values(vec![node(0), node(1)]).unwrap();
    let mut pool = group("MachinePool", "spot", 2);
    pool["spec"]["providerIDList"] = json!(ids);
    pool["status"]["nodeRefs"] = json!([{ "name": "ip-0" }, { "name": "ip-1" }]);
    world.load(pool);
    world.pass(100);
    assert_eq!(world.nodes().len(), 2);
    world.patch("machinepools", "spot", json!({ "spec": { "replicas": 1 } }));
    world.pass(100);
    let names: Vec<_> = world.nodes().iter().map(|node| node.name().to_owned()).collect();
    assert_eq!(names, ["ip-0"]);
}

#[test]
fn a_machine_pool_keeps_its_ids_and_nodes_by_its_size() {
    let mut world = World::live(TIMES);
    world.load(group("MachinePool", "spot", 2));
    world.pass(11);
    let pool = world.get("machinepools", "spot");
    let ids: Vec<_> = pool["spec"]["providerIDList"].as_array().unwrap().clone();
    assert_eq!(ids.len(), 2);
    assert!(world.nodes().is_empty());
    world.pass(100);
    let pool = world.get("machinepools", "spot");
    assert_eq!(pool["status"]["nodeRefs"].as_array().unwrap().len(), 2);
    assert_eq!((&pool["status"]["readyReplicas"], &pool["status"]["phase"]), (&json!(2), &json!("Running")));
    let node = &world.nodes()[0];
    assert_eq!(node.annotation(keys::NODE_OWNER_KIND), Some("MachinePool"));
    assert_eq!(node.annotation(keys::NODE_OWNER_NAME), Some("spot"));
    assert_eq!(node.annotation(keys::NODE_MACHINE), None);

    world.patch("machinepools", "spot", json!({ "spec": { "replicas": 1 } }));
    world.pass(100);
    let pool = world.get("machinepools", "spot");
    assert_eq!(pool["spec"]["providerIDList"], json!([ids[0]]));
    assert_eq!(world.nodes().len(), 1);
    assert!(world.names("machines").is_empty());

    world.delete("machinepools", "spot");
    world.settle();
    assert!(world.nodes().is_empty() && world.names("machinepools").is_empty());
}

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
