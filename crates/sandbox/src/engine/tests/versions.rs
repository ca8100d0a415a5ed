//! Behaviour that differs between versions of Cluster API.

use rstest::rstest;

use super::*;

const LOG: &str = "example.com/log";

fn smaller(world: &World) {
    let annotations = json!({ LOG: "a" });
    world.patch(
        "machinedeployments",
        "workers",
        json!({ "metadata": { "annotations": annotations }, "spec": { "replicas": 1 } }),
    );
}

fn shown(world: &World) -> (Option<String>, i64) {
    let set = world.set();
    (set.annotation(LOG).map(str::to_owned), set.number("/spec/replicas"))
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
    smaller(&world);
    world.see(Controller::MachineDeployment, Kind::MachineDeployment);
    world.step(Controller::MachineDeployment);
    world.step(Controller::MachineDeployment);
    assert_eq!(shown(&world), (Some("a".to_owned()), if in_two_writes { 2 } else { 1 }));
    world.acts(Controller::MachineDeployment);
    assert_eq!(shown(&world), (Some("a".to_owned()), 1));
}

#[rstest]
#[case::v1_11(CapiVersion::V1_11, 2)]
#[case::v1_14(CapiVersion::V1_14, 1)]
fn up_to_1_11_a_machine_deployment_that_lags_writes_the_old_size_once_more(
    #[case] version: CapiVersion,
    #[case] size: i64,
) {
    let mut world = World::with_group(version, "MachineDeployment", 2, Fate::plain(TIMES));
    smaller(&world);
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
#[case::v1_11(CapiVersion::V1_11, false)]
#[case::v1_14(CapiVersion::V1_14, true)]
fn older_machine_sets_get_annotations_since_1_14(#[case] version: CapiVersion, #[case] gets: bool) {
    let mut fate = Fate::plain(TIMES);
    fate.behaviour = crate::settings::Behaviour::NeverJoins;
    let mut world = World::with_group(version, "MachineDeployment", 2, fate);
    let first = world.set().name().to_owned();
    world.patch(
        "machinedeployments",
        "workers",
        json!({
            "metadata": { "annotations": { LOG: "a" } },
            "spec": { "template": { "spec": { "version": "v1.36.0" } } },
        }),
    );
    world.pass(20);
    let sets = world.list("machinesets");
    assert_eq!(sets.len(), 2);
    for set in sets {
        assert_eq!(set.annotation(LOG).is_some(), gets || set.name() != first, "{}", set.name());
    }
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
