//! A pass of the finisher, carried out call by call.

use super::{
    super::finish::{Machine, machine},
    world::{Happens, World},
    *,
};
use crate::steps::Settle;

/// Creates a group of three Machines. Its log has these entries, and its MachineSet has followed them.
fn world(entries: &[&str]) -> World {
    let mut world = World::of(2, &["a", "b", "c"]);
    world.write(2, log(entries));
    world.followed = log(entries);
    world
}

/// Begins the pass of a copy whose watch shows these Machines.
fn settle(world: &World, machines: &[Machine]) -> Settle<Text, Machine> {
    let set = finish::set(&[], |set| set.log = world.followed.clone());
    let followed = finish::followed(Kind::MachineDeployment, &[set]);
    let steps = RULE.finish(&world.group.log, machines, &followed, &LeftSince::new(), Duration::ZERO);
    Settle::new(RULE, world.group.clone(), steps, 2)
}

#[test]
fn a_lowered_machine_that_the_smaller_size_left_alive_is_deleted_by_name() {
    let mut world = world(&["a!"]);
    let mut steps = settle(&world, &[machine("a")]);
    world.run(&mut steps);
    assert_eq!(world.calls, ["read a", "read group", "delete a"]);
    assert_eq!(world.ended, ["a deleted"]);
    assert!(steps.has_ended() && steps.failure().is_none());
}

#[test]
fn nothing_is_deleted_by_name_when_another_deletion_is_decided_upon_just_before() {
    let mut world = world(&["a!"]);
    let mut steps = settle(&world, &[machine("a")]);
    world.happens("read group", Happens::Before(|world| world.write(2, log(&["a!", "b"]))));
    world.run(&mut steps);
    assert_eq!(world.calls, ["read a", "read group"], "the smaller size for b could be spent on a");
    assert!(steps.has_ended());
}

/// The pass decides only as many deletions as it can run concurrently, so that no decision waits for earlier calls.
#[test]
fn a_delete_by_name_is_decided_upon_when_it_is_made() {
    let names: Vec<_> = (0..20).map(|number| format!("m{number:02}")).collect();
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    let entries: Vec<_> = names.iter().map(|name| format!("{name}!")).collect();
    let entries: Vec<_> = entries.iter().map(String::as_str).collect();
    let mut world = World::of(20, &names);
    world.write(0, log(&entries));
    world.followed = log(&entries);
    let machines: Vec<_> = names.iter().map(|name| machine(name)).collect();
    let mut steps = settle(&world, &machines);
    world.happens(
        "delete m00",
        Happens::Before(|world| world.write(0, world.group.log.clone().with(log(&["x"]).entries().to_vec()))),
    );
    world.run(&mut steps);
    let deleted = world.calls.iter().filter(|call| call.starts_with("delete")).count();
    assert_eq!(deleted, 16, "those that were under way");
}

#[rstest]
#[case::it_is_there("a", &["read a"], &["a!"])]
#[case::it_is_gone("d", &["read d", "log"], &[])]
fn an_entry_leaves_the_log_once_its_machine_is_known_to_be_gone(
    #[case] name: &str,
    #[case] calls: &[&str],
    #[case] left: &[&str],
) {
    let mut world = world(&[&format!("{name}!")]);
    let mut steps = settle(&world, &[]);
    world.run(&mut steps);
    assert_eq!(world.calls, calls);
    assert_eq!(world.group.log, log(left));
    assert_eq!(world.ended.len(), usize::from(left.is_empty()));
    assert!(steps.has_ended() && steps.failure().is_none());
}

#[test]
fn a_finished_entry_is_removed_from_a_log_that_another_copy_changed_meanwhile() {
    let mut world = world(&["d!"]);
    let mut steps = settle(&world, &[]);
    world.happens("log", Happens::Before(|world| world.write(1, log(&["d!", "b"]))));
    world.run(&mut steps);
    assert_eq!(world.calls, ["read d", "log", "pause Log", "read group", "log b"]);
    assert_eq!(world.ended, ["d over"]);
}

/// A failure is reported, and the other steps are taken.
#[test]
fn one_failure_holds_up_nothing_else() {
    let mut world = world(&["d!", "e!"]);
    let mut stale = machine("b");
    stale.mark = Some("ours old".into());
    let mut steps = settle(&world, &[stale]);
    world.happens("read d", Happens::Fails(Failure::NotNow));
    world.run(&mut steps);
    assert_eq!(world.calls, ["read d", "read e", "read group", "unmark b", "log d!"]);
    assert_eq!(world.ended, ["e over"]);
    assert_eq!(steps.failure().map(|failed| failed.0), Some(Failure::NotNow));
}

#[test]
fn the_write_of_the_log_that_goes_on_failing_is_reported() {
    let mut world = world(&["d!"]);
    let mut steps = settle(&world, &[]);
    world.happens("log", Happens::Fails(Failure::NotNow));
    world.happens("pause", Happens::Fails(Failure::Final));
    world.run(&mut steps);
    assert_eq!(world.calls, ["read d", "log", "pause Log"]);
    assert!(steps.has_ended() && steps.failure().is_some() && world.ended.is_empty());
}

#[test]
fn a_machine_with_the_mark_of_an_acceptance_that_is_over_is_marked_again() {
    let mut world = world(&["a!", "b!"]);
    world.followed = log(&[]);
    let mut stale = machine("b");
    stale.mark = Some("ours old".into());
    let mut steps = settle(&world, &[stale]);
    world.run(&mut steps);
    assert_eq!(world.calls, ["read group", "mark b"]);
    assert_eq!(world.marks(), ["b: t"]);
    assert!(steps.has_ended());
}

#[test]
fn a_soft_entry_leaves_once_nothing_is_left_to_go() {
    let mut world = World::of(3, &["a", "b"]);
    world.write(2, log(&["a~!"]));
    world.followed = log(&["a~!"]);
    let mut steps = settle(&world, &[machine("a"), machine("b")]);
    world.run(&mut steps);
    assert_eq!(world.calls, ["read group", "list", "log"]);
    assert!(world.group.log.is_empty() && steps.has_ended());
}
