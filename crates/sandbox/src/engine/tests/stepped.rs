//! Scenarios in which the test decides which controller sees a change and which acts next: views, errors of writes, the
//! differences between versions of Cluster API, and the fates of Machines.

use rstest::rstest;

use super::*;

#[test]
fn everything_comes_to_rest_where_everyone_is_up_to_date() {
    for version in CapiVersion::ALL {
        let mut world = World::with_group(version, "MachineDeployment", 3, Fate::plain(TIMES));
        assert_eq!((world.machines(), world.nodes().len()), ((3, 0), 3), "{version:?}");
        assert!(world.list("machines").iter().all(|machine| machine["status"]["phase"] == "Running"));
        assert_eq!(world.list("machinedeployments")[0]["status"]["availableReplicas"], 3);
        world.resize("machinedeployments", 1);
        world.pass(30);
        assert_eq!((world.machines(), world.nodes().len()), ((1, 0), 1), "{version:?}");
        let revision = world.management.revision();
        world.pass(100);
        assert_eq!(world.management.revision(), revision, "{version:?}");
    }
}

#[test]
fn a_controller_acts_on_a_change_only_when_it_sees_it() {
    let mut world = World::with_group(CapiVersion::V1_11, "MachineSet", 1, Fate::plain(TIMES));
    world.resize("machinesets", 2);
    assert_eq!(world.controllers.behind(Controller::MachineSet, Kind::MachineSet), 1);
    assert_eq!(world.step(Controller::MachineSet), None);
    world.see(Controller::MachineSet, Kind::MachineSet);
    assert_eq!(world.controllers.behind(Controller::MachineSet, Kind::MachineSet), 0);
    assert_eq!(world.acts(Controller::MachineSet)[..2], ["has 3 steps to do", "creates Machine"]);
    assert_eq!(world.machines(), (2, 0));
}

#[test]
fn a_step_writes_once() {
    let mut world = World::with_group(CapiVersion::V1_14, "MachineSet", 0, Fate::plain(TIMES));
    world.resize("machinesets", 3);
    world.see_all(Controller::MachineSet);
    assert_eq!(world.step(Controller::MachineSet).unwrap(), "has 4 steps to do");
    for made in 1..=3 {
        let before = world.management.revision();
        world.step(Controller::MachineSet);
        assert_eq!((world.machines().0, world.management.revision()), (made, before + 1));
    }
    assert_eq!(general(&world.step(Controller::MachineSet).unwrap()), "patches status of MachineSet");
    assert_eq!(world.step(Controller::MachineSet), None);
}

#[test]
fn a_restart_forgets_what_was_under_way_and_lists_anew() {
    let mut world = World::with_group(CapiVersion::V1_14, "MachineSet", 0, Fate::plain(TIMES));
    world.resize("machinesets", 3);
    world.see_all(Controller::MachineSet);
    world.step(Controller::MachineSet);
    world.step(Controller::MachineSet);
    world.resize("machinesets", 1);
    world.controllers.restart(Controller::MachineSet);
    assert_eq!(world.controllers.behind(Controller::MachineSet, Kind::MachineSet), 0);
    world.pass(5);
    assert_eq!(world.machines(), (1, 0));
}

#[rstest]
#[case::before(Fault::Before, (2, 0), "fails")]
#[case::after(Fault::After, (2, 1), "done, the answer is lost")]
fn a_write_fails_before_or_after_it_is_done(
    #[case] fault: Fault,
    #[case] machines: (usize, usize),
    #[case] outcome: &str,
) {
    let mut world = World::with_group(CapiVersion::V1_14, "MachineSet", 2, Fate::plain(TIMES));
    world.resize("machinesets", 1);
    world.see_all(Controller::MachineSet);
    world.step(Controller::MachineSet);
    assert_eq!(general(&world.fail(Controller::MachineSet, fault).unwrap()), format!("deletes Machine {outcome}"));
    assert_eq!(world.machines(), machines);
    // A retry leads to the same result either way.
    world.pass(30);
    assert_eq!(world.machines(), (1, 0));
}

#[test]
fn a_lost_answer_to_a_create_leads_to_one_machine_too_many_where_the_view_lags() {
    let mut world = World::with_group(CapiVersion::V1_11, "MachineSet", 0, Fate::plain(TIMES));
    world.resize("machinesets", 1);
    world.see_all(Controller::MachineSet);
    world.step(Controller::MachineSet);
    world.fail(Controller::MachineSet, Fault::After);
    world.acts(Controller::MachineSet);
    world.clock.advance(Duration::from_secs(1));
    world.acts(Controller::MachineSet);
    assert_eq!(world.machines(), (2, 0));
    world.pass(30);
    assert_eq!(world.machines(), (1, 0));
}

#[rstest]
#[case::v1_8(CapiVersion::V1_8, true)]
#[case::v1_10(CapiVersion::V1_10, true)]
#[case::v1_11(CapiVersion::V1_11, false)]
#[case::v1_14(CapiVersion::V1_14, false)]
fn a_failed_delete_leaves_the_others_and_the_observed_generation(#[case] version: CapiVersion, #[case] moves: bool) {
    let mut world = World::with_group(version, "MachineSet", 3, Fate::plain(TIMES));
    let before = world.set().number("/status/observedGeneration");
    world.resize("machinesets", 1);
    world.see_all(Controller::MachineSet);
    world.step(Controller::MachineSet);
    world.fail(Controller::MachineSet, Fault::Before);
    let acts = world.acts(Controller::MachineSet);
    assert_eq!(acts, ["deletes Machine", "patches status of MachineSet"], "it doesn't wait for its cache");
    assert_eq!(world.machines(), (3, 1));
    let set = world.set();
    assert_eq!(set.number("/status/observedGeneration") > before, moves);
    let conditions = set["status"]["conditions"].as_array().unwrap();
    let scaling = conditions.iter().find(|condition| condition["type"] == "ScalingDown").unwrap();
    assert_eq!(scaling.number("/observedGeneration"), set.generation());
}

#[rstest]
#[case::v1_11(CapiVersion::V1_11, 2)]
#[case::v1_14(CapiVersion::V1_14, 0)]
fn a_failed_create_ends_the_others_since_1_14(#[case] version: CapiVersion, #[case] made: usize) {
    let mut world = World::with_group(version, "MachineSet", 0, Fate::plain(TIMES));
    world.resize("machinesets", 3);
    world.see_all(Controller::MachineSet);
    world.step(Controller::MachineSet);
    world.fail(Controller::MachineSet, Fault::Before);
    world.acts(Controller::MachineSet);
    assert_eq!(world.machines(), (made, 0));
}

#[test]
fn up_to_1_11_the_machine_set_waits_until_its_cache_shows_its_own_deletes() {
    let mut world = World::with_group(CapiVersion::V1_11, "MachineSet", 3, Fate::plain(TIMES));
    world.resize("machinesets", 1);
    world.see_all(Controller::MachineSet);
    let acts = world.acts(Controller::MachineSet);
    assert_eq!(acts, ["has 4 steps to do", "deletes Machine", "deletes Machine", "waits for its cache"]);
    world.controllers.observe(Controller::MachineSet, Kind::Machine, 1);
    assert_eq!(world.acts(Controller::MachineSet), ["waits for its cache"], "the second isn't seen");
    world.see(Controller::MachineSet, Kind::Machine);
    let acts = world.acts(Controller::MachineSet);
    assert_eq!(acts[..2], ["its cache is up to date", "patches status of MachineSet"]);
}

#[rstest]
#[case::v1_10(CapiVersion::V1_10, true)]
#[case::v1_11(CapiVersion::V1_11, false)]
fn after_10_seconds_it_gives_up(#[case] version: CapiVersion, #[case] moves: bool) {
    let mut world = World::with_group(version, "MachineSet", 1, Fate::plain(TIMES));
    let before = world.set().number("/status/observedGeneration");
    world.resize("machinesets", 2);
    world.see_all(Controller::MachineSet);
    world.acts(Controller::MachineSet);
    let due = world.controllers.next(Controller::MachineSet).unwrap();
    assert_eq!(due, crate::clock::after(world.clock.now(), Duration::from_secs(10)));
    world.clock.advance(Duration::from_millis(9_999));
    assert_eq!(world.step(Controller::MachineSet), None);
    world.clock.advance(Duration::from_millis(1));
    assert_eq!(world.step(Controller::MachineSet).unwrap(), "has waited too long for its cache");
    assert_eq!(general(&world.step(Controller::MachineSet).unwrap()), "patches status of MachineSet");
    assert_eq!(world.set().number("/status/observedGeneration") > before, moves);
}

#[test]
fn in_1_14_the_next_reconcile_waits_until_the_cache_shows_all_that_was_written() {
    let mut world = World::with_group(CapiVersion::V1_14, "MachineSet", 1, Fate::plain(TIMES));
    world.resize("machinesets", 3);
    world.see_all(Controller::MachineSet);
    world.acts(Controller::MachineSet);
    world.see(Controller::MachineSet, Kind::MachineSet);
    world.clock.advance(Duration::from_secs(100));
    assert_eq!(world.step(Controller::MachineSet), None);
    world.controllers.observe(Controller::MachineSet, Kind::Machine, 1);
    assert_eq!(world.step(Controller::MachineSet), None);
    world.see(Controller::MachineSet, Kind::Machine);
    assert!(world.step(Controller::MachineSet).is_some());
    world.acts(Controller::MachineSet);
    assert_eq!(world.machines(), (3, 0));
}

/// Returns the desired replicas in the annotation of the MachineSet, and its size.
fn shown(world: &World) -> (Option<String>, i64) {
    let set = world.set();
    (set.annotation(keys::DESIRED_REPLICAS).map(str::to_owned), set.number("/spec/replicas"))
}

#[rstest]
#[case::v1_8(CapiVersion::V1_8, false, true)]
#[case::v1_11(CapiVersion::V1_11, false, true)]
#[case::v1_14(CapiVersion::V1_14, false, false)]
#[case::v1_14_paused(CapiVersion::V1_14, true, true)]
fn annotations_reach_the_machine_set_before_the_size_or_with_it(
    #[case] version: CapiVersion,
    #[case] is_paused: bool,
    #[case] in_two_writes: bool,
) {
    let mut world = World::with_group(version, "MachineDeployment", 2, Fate::plain(TIMES));
    world.patch("machinedeployments", "workers", json!({ "spec": { "paused": is_paused } }));
    world.pass(2);
    world.resize("machinedeployments", 1);
    world.see(Controller::MachineDeployment, Kind::MachineDeployment);
    world.step(Controller::MachineDeployment);
    world.step(Controller::MachineDeployment);
    assert_eq!(shown(&world), (Some("1".to_owned()), if in_two_writes { 2 } else { 1 }));
    world.acts(Controller::MachineDeployment);
    assert_eq!(shown(&world), (Some("1".to_owned()), 1));
}

#[rstest]
#[case::v1_11(CapiVersion::V1_11, 2)]
#[case::v1_14(CapiVersion::V1_14, 1)]
fn up_to_1_11_a_machine_deployment_that_lags_writes_the_old_size_once_more(
    #[case] version: CapiVersion,
    #[case] size: i64,
) {
    let mut world = World::with_group(version, "MachineDeployment", 2, Fate::plain(TIMES));
    world.resize("machinedeployments", 1);
    world.see(Controller::MachineDeployment, Kind::MachineDeployment);
    world.acts(Controller::MachineDeployment);
    assert_eq!(shown(&world).1, 1);
    // The change of its own status triggers another reconcile, although it doesn't see its MachineSet's new state.
    world.see(Controller::MachineDeployment, Kind::MachineDeployment);
    world.clock.advance(Duration::from_secs(1));
    world.step(Controller::MachineDeployment);
    world.step(Controller::MachineDeployment);
    assert_eq!(shown(&world).1, size);
    world.pass(30);
    assert_eq!((shown(&world).1, world.machines()), (1, (1, 0)));
}

#[rstest]
#[case::v1_8(CapiVersion::V1_8, None, false)]
#[case::v1_8_oldest(CapiVersion::V1_8, Some("Oldest"), true)]
#[case::v1_10(CapiVersion::V1_10, None, true)]
#[case::v1_14(CapiVersion::V1_14, None, true)]
fn in_1_8_an_unhealthy_machine_may_go_before_a_marked_one(
    #[case] version: CapiVersion,
    #[case] order: Option<&str>,
    #[case] marked_goes: bool,
) {
    let mut world = World::with_group(version, "MachineSet", 2, Fate::plain(TIMES));
    let machines = world.list("machines");
    let mut unready = Value::clone(&world.nodes()[0]);
    crate::controllers::node::set_ready(&mut unready, false, world.clock.now());
    world.management.update_status(&Resource::core("nodes"), unready).unwrap();
    world.patch("machines", machines[1].name(), json!({ "metadata": { "annotations": { keys::DELETE_MACHINE: "" } } }));
    // The kubelet gets no step to make it Ready again.
    world.clock.advance(Duration::from_secs(2));
    world.only(Controller::Machine);
    assert!(conditions::is_false(&world.list("machines")[0], Contract::V1Beta2, "NodeHealthy"));
    let deletion = order.map(|order| json!({ "order": order }));
    world.patch("machinesets", "workers", json!({ "spec": { "replicas": 1, "deletion": deletion } }));
    world.only(Controller::MachineSet);
    assert_eq!(world.list("machines")[1].deleting(), marked_goes);
    assert_eq!(world.machines(), (2, 1));
}

#[rstest]
#[case::v1_11(CapiVersion::V1_11, true)]
#[case::v1_14(CapiVersion::V1_14, false)]
fn since_1_14_an_object_is_reconciled_once_a_second(#[case] version: CapiVersion, #[case] at_once: bool) {
    let mut world = World::with_group(version, "MachineSet", 1, Fate::plain(TIMES));
    world.resize("machinesets", 2);
    assert!(world.controllers.settle(100));
    world.resize("machinesets", 3);
    assert!(world.controllers.settle(100));
    assert_eq!(world.machines().0, if at_once { 3 } else { 2 });
    world.pass(1);
    assert_eq!(world.machines().0, 3);
}

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
