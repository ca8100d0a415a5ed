//! Errors before and after a write, and the behaviour of a controller after its own writes.

use rstest::rstest;

use super::*;

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
#[case::v1_10(CapiVersion::V1_10, true)]
#[case::v1_14(CapiVersion::V1_14, false)]
fn reconciles_that_all_end_with_an_error_do_their_work(#[case] version: CapiVersion, #[case] moves: bool) {
    let mut world = World::with_group(version, "MachineSet", 3, Fate::plain(TIMES));
    let before = world.set().number("/status/observedGeneration");
    world.controllers.set_ailing(true);
    world.resize("machinesets", 1);
    world.pass(30);
    assert_eq!(world.machines(), (1, 0));
    assert_eq!(world.set().number("/status/observedGeneration") > before, moves);
    world.controllers.set_ailing(false);
    world.resize("machinesets", 2);
    world.pass(30);
    assert_eq!(world.set().number("/status/observedGeneration"), world.set().generation());
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

#[test]
fn a_machine_that_is_gone_can_not_be_deleted_and_the_reconcile_fails() {
    let mut world = World::with_group(CapiVersion::V1_14, "MachineSet", 1, Fate::plain(TIMES));
    let name = world.list("machines")[0].name().to_owned();
    world.patch("machines", &name, json!({ "metadata": { "finalizers": null } }));
    let resource = Resource::new(keys::GROUP, "v1beta2", "machines");
    world.management.delete(&resource, NAMESPACE, &name, &DeleteOptions::default()).unwrap();
    world.resize("machinesets", 0);
    world.see(Controller::MachineSet, Kind::MachineSet);
    world.step(Controller::MachineSet);
    assert_eq!(general(&world.step(Controller::MachineSet).unwrap()), "deletes Machine 404");
    world.pass(20);
    assert_eq!(world.machines(), (0, 0));
    assert_eq!(world.set().number("/status/observedGeneration"), world.set().generation());
}
