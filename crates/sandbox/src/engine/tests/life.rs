//! The lifecycle of a Machine: its phases, conditions, Node, and failures.

use rstest::rstest;

use super::*;

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
fn a_node_leads_back_to_its_machine_and_has_what_its_group_promises() {
    let mut world = World::live(Times::ZERO);
    let mut workers = group("MachineDeployment", "workers", 1);
    workers["metadata"]["annotations"] = json!({
        "capacity.cluster-autoscaler.kubernetes.io/cpu": "8",
        "capacity.cluster-autoscaler.kubernetes.io/memory": "32Gi",
        "capacity.cluster-autoscaler.kubernetes.io/taints": "dedicated=batch:NoSchedule",
    });
    workers["spec"]["template"]["metadata"]["labels"] =
        json!({ "node.cluster.x-k8s.io/pool": "workers", "plain": "label" });
    world.load(workers);
    world.settle();
    let (machine, node) = (&world.list("machines")[0], &world.nodes()[0]);
    assert_eq!(node["spec"]["providerID"], machine["spec"]["providerID"]);
    assert_eq!(node.annotation(keys::NODE_MACHINE), Some(machine.name()));
    assert_eq!(node.annotation(keys::NODE_NAMESPACE), Some(NAMESPACE));
    assert_eq!(node.annotation(keys::NODE_OWNER_KIND), Some("MachineSet"));
    assert_eq!(node.label("node.cluster.x-k8s.io/pool"), Some("workers"));
    assert_eq!(node.label("plain"), None);
    assert_eq!(node["status"]["capacity"]["cpu"], "8");
    assert_eq!(node["status"]["allocatable"]["cpu"], "7600m");
    assert_eq!(node["spec"]["taints"][0]["key"], "dedicated");
    assert!(node::is_ready(node));
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

#[test]
fn a_machine_that_never_joins_stays_provisioned() {
    let mut world = World::live(TIMES);
    world.load(workers_that("never-join", 1));
    world.pass(10_000);
    assert_eq!(world.phases(), ["Provisioned"]);
    assert!(world.list("machines")[0]["status"]["nodeRef"].is_null());
    assert!(world.nodes().is_empty());
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
fn a_slow_machine_takes_longer() {
    let mut world = World::live(TIMES);
    world.load(workers_that("slow", 1));
    world.pass(100);
    assert_eq!(world.phases(), ["Provisioning"]);
    world.pass(10);
    assert_eq!(world.phases(), ["Provisioned"]);
    world.pass(200);
    assert_eq!(world.phases(), ["Running"]);
}

#[test]
fn a_leap_in_time_makes_all_the_steps_that_have_come_due() {
    let mut world = World::live(TIMES);
    world.load(group("MachineDeployment", "workers", 1));
    world.settle();
    world.clock.advance(Duration::from_secs(36));
    world.settle();
    assert_eq!(world.phases(), ["Running"]);
    assert!(node::is_ready(&world.nodes()[0]));
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
fn labels_of_a_template_reach_machines_and_nodes_that_are_there() {
    let mut world = World::with_workers(TIMES, 1);
    let labels = json!({ "node.cluster.x-k8s.io/tier": "gold" });
    world.patch(
        "machinedeployments",
        "workers",
        json!({ "spec": { "template": { "metadata": { "labels": labels } } } }),
    );
    world.settle();
    assert_eq!(world.sets().len(), 1, "no rollout");
    assert_eq!(world.list("machines")[0].label("node.cluster.x-k8s.io/tier"), Some("gold"));
    assert_eq!(world.nodes()[0].label("node.cluster.x-k8s.io/tier"), Some("gold"));
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
