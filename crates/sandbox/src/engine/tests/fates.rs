//! The fates of Machines.

use super::*;
use crate::settings::Behaviour;

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn fate() -> Fate {
    Fate::plain(TIMES)
}

/// Creates a world with a MachineSet that will create one Machine.
fn one(fate: Fate) -> World {
    let world = World::new(CapiVersion::V1_14, fate);
    world.load(group("MachineSet", "workers", 1));
    world
}

/// Returns the phase of the Machine, true if it has a nodeRef, the number of Nodes, and the number of Ready Nodes.
fn state(world: &World) -> (String, bool, usize, usize) {
    let machine = world.list("machines").into_iter().next();
    let machine = machine.as_deref().unwrap_or(&Value::Null);
    let nodes = world.nodes();
    let ready = nodes.iter().filter(|node| crate::controllers::node::is_ready(node)).count();
    let phase = machine["status"]["phase"].as_str().unwrap_or("none").to_owned();
    (phase, machine.text("/status/nodeRef/name").is_some(), nodes.len(), ready)
}

fn is(phase: &str, refers: bool, nodes: usize, ready: usize) -> (String, bool, usize, usize) {
    (phase.to_owned(), refers, nodes, ready)
}

#[test]
fn a_node_joins_before_its_machine_refers_to_it() {
    let mut world = one(Fate { reference: seconds(120), with_kubeadm: true, ..fate() });
    world.pass(40);
    assert_eq!(state(&world), is("Provisioned", false, 1, 1));
    let node = world.nodes().remove(0);
    assert_eq!(node.annotation(keys::NODE_MACHINE), None);
    assert_eq!(node["spec"]["taints"][0]["key"], "node.cluster.x-k8s.io/uninitialized");
    assert_eq!(node["spec"]["providerID"], world.list("machines")[0]["spec"]["providerID"]);
    world.pass(120);
    assert_eq!(state(&world), is("Running", true, 1, 1));
    assert!(world.nodes()[0].annotation(keys::NODE_MACHINE).is_some());
    assert!(world.nodes()[0]["spec"]["taints"].is_null());
}

#[test]
fn a_machine_may_come_late() {
    let mut late = TIMES;
    late.join = seconds(900);
    let mut world = one(Fate { times: late, ..fate() });
    world.pass(800);
    assert_eq!(state(&world), is("Provisioned", false, 0, 0));
    world.pass(120);
    assert_eq!(state(&world), is("Running", true, 1, 1));
}

#[test]
fn a_node_goes_and_registers_again() {
    let mut world = one(Fate { rejoins: Some(Rejoin { after: seconds(60), gap: seconds(30) }), ..fate() });
    world.pass(60);
    let first = world.nodes().remove(0);
    world.pass(40);
    assert_eq!(state(&world), is("Running", true, 0, 0));
    world.pass(40);
    assert_eq!(state(&world), is("Running", true, 1, 1));
    let second = world.nodes().remove(0);
    assert_eq!(second["spec"]["providerID"], first["spec"]["providerID"]);
    assert_ne!(second.uid(), first.uid());
}

#[test]
fn a_node_is_not_ready_for_a_while() {
    let mut world = one(Fate { unready: Some(Unready { after: seconds(30), lasts: seconds(60) }), ..fate() });
    world.pass(50);
    assert_eq!(state(&world), is("Running", true, 1, 1));
    world.pass(30);
    assert_eq!(state(&world), is("Running", true, 1, 0));
    world.pass(60);
    assert_eq!(state(&world), is("Running", true, 1, 1));
}

#[test]
fn a_hook_holds_the_drain_or_the_infrastructure() {
    for (at, reason, is_cordoned) in [
        (HookPoint::PreDrain, "WaitingForPreDrainHook", false),
        (HookPoint::PreTerminate, "WaitingForPreTerminateHook", true),
    ] {
        let mut world = one(Fate { hook: Some(Hook { at, held: seconds(100) }), ..fate() });
        world.pass(60);
        world.resize("machinesets", 0);
        world.pass(90);
        let machine = world.list("machines").remove(0);
        let conditions = machine["status"]["conditions"].as_array().unwrap();
        let deleting = conditions.iter().find(|condition| condition["type"] == "Deleting").unwrap();
        assert_eq!(deleting["reason"], reason);
        assert_eq!(world.nodes()[0]["spec"]["unschedulable"] == true, is_cordoned);
        world.pass(25);
        assert_eq!(state(&world), is("none", false, 0, 0));
    }
}

#[test]
fn a_machine_hangs_after_its_node_is_gone() {
    let mut world = one(Fate { hang: seconds(300), ..fate() });
    world.pass(60);
    world.resize("machinesets", 0);
    world.pass(100);
    assert_eq!(state(&world), is("Deleting", true, 0, 0));
    world.pass(220);
    assert_eq!(state(&world), is("none", false, 0, 0));
}

#[test]
fn a_node_that_no_machine_refers_to_outlasts_its_machine() {
    let mut world = one(Fate { reference: seconds(1_000), lingers: seconds(60), ..fate() });
    world.pass(60);
    world.resize("machinesets", 0);
    world.pass(30);
    assert_eq!(state(&world), is("none", false, 1, 1));
    world.pass(60);
    assert_eq!(state(&world), is("none", false, 0, 0));
}

#[test]
fn an_unhealthy_machine_is_deleted_and_replaced() {
    let health = HealthCheck { unhealthy: seconds(60), startup: seconds(600) };
    let options = Options { health: Some(health), ..Options::default() };
    let unready = Some(Unready { after: seconds(30), lasts: seconds(10_000) });
    let mut world = World::with(options, Fate { unready, ..fate() });
    world.load(group("MachineSet", "workers", 1));
    world.pass(100);
    let first = world.list("machines")[0].name().to_owned();
    assert_eq!(world.machines(), (1, 0));
    world.pass(40);
    assert!(world.list("machines").iter().all(|machine| machine.deleting() || machine.name() != first));
    world.pass(20);
    assert!(world.list("machines").iter().all(|machine| machine.name() != first));
    assert_eq!(world.machines(), (1, 0));
}

#[test]
fn a_machine_that_never_joins_is_deleted_after_the_startup_time() {
    let health = HealthCheck { unhealthy: seconds(60), startup: seconds(600) };
    let mut world = World::with(
        Options { health: Some(health), ..Options::default() },
        Fate { behaviour: Behaviour::NeverJoins, ..fate() },
    );
    world.load(group("MachineSet", "workers", 1));
    world.pass(590);
    assert_eq!(world.machines(), (1, 0));
    world.pass(12);
    assert_eq!(world.machines(), (1, 1));
}
