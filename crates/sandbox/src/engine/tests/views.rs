//! Controllers act on their views.

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
fn a_controller_that_misses_the_deletion_of_a_machine_counts_it_as_alive() {
    let mut world = World::with_group(CapiVersion::V1_14, "MachineSet", 2, Fate::plain(TIMES));
    let machines = world.list("machines");
    let resource = Resource::new(keys::GROUP, "v1beta2", "machines");
    // Of the two, the first one goes by its name, but somebody else has deleted the other one.
    world.management.delete(&resource, NAMESPACE, machines[1].name(), &DeleteOptions::default()).unwrap();
    world.resize("machinesets", 1);
    world.see(Controller::MachineSet, Kind::MachineSet);
    world.acts(Controller::MachineSet);
    assert_eq!(world.machines(), (2, 2));
}

#[test]
fn it_sees_one_change_after_the_other() {
    let mut world = World::with_group(CapiVersion::V1_14, "MachineSet", 1, Fate::plain(TIMES));
    world.resize("machinesets", 5);
    world.resize("machinesets", 2);
    assert_eq!(world.controllers.observe(Controller::MachineSet, Kind::MachineSet, 1), 1);
    world.step(Controller::MachineSet);
    assert_eq!(world.controllers.observe(Controller::MachineSet, Kind::MachineSet, 9), 1);
    world.acts(Controller::MachineSet);
    assert_eq!(world.machines(), (5, 0), "what was planned is done");
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
fn between_two_writes_of_a_reconcile_others_act() {
    let mut world = World::with_group(CapiVersion::V1_14, "MachineSet", 2, Fate::plain(TIMES));
    world.resize("machinesets", 0);
    world.see_all(Controller::MachineSet);
    world.step(Controller::MachineSet);
    world.step(Controller::MachineSet);
    assert_eq!(world.machines(), (2, 1));
    world.see_all(Controller::Machine);
    assert!(world.acts(Controller::Machine).iter().any(|act| act == "patches Node"), "the first is cordoned");
    world.acts(Controller::MachineSet);
    assert_eq!(world.machines(), (2, 2));
}

#[test]
fn several_objects_are_reconciled_at_a_time() {
    let mut world = World::new(CapiVersion::V1_14, Fate::plain(TIMES));
    for name in ["workers", "workers-2"] {
        let mut set = group("MachineSet", "workers", 2);
        set["metadata"]["name"] = json!(name);
        world.load(set);
    }
    world.see_all(Controller::MachineSet);
    let picked: Vec<_> =
        [0, 1, 1, 0].map(|pick| world.controllers.step(Controller::MachineSet, pick, Fault::None)).into();
    let names: Vec<_> = picked.into_iter().flatten().map(|step| step.name).collect();
    assert_eq!(names, ["workers", "workers-2", "workers-2", "workers"]);
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
