//! Machines that never became Nodes, at the min size.

use super::{
    world::{Happens, World},
    *,
};
use crate::replacement::Replaced;

/// Creates a group of the min size whose only Machine never joined.
fn world() -> World {
    let mut world = World::of(1, &["a"]);
    world.machine("a").has_node = false;
    world
}

fn delete(world: &mut World, names: &[&str]) -> Vec<String> {
    world.run(&mut deletion([request(names)]));
    world.answers()
}

#[test]
fn one_is_deleted_once_the_group_logs_it() {
    let mut world = world();
    assert_eq!(delete(&mut world, &["a"]), ["0: done"]);
    assert_eq!(world.calls, ["note a as 1", "delete a"]);
    assert_eq!((world.group.replicas, world.ended), (1, vec!["a replaced".to_owned()]));
}

#[test]
fn one_that_the_group_logs_already_is_gone_on_with() {
    let mut world = world();
    world.replaced = Some(Replaced { at: 0, count: 3, uid: "a".into() });
    assert_eq!(delete(&mut world, &["a"]), ["0: done"]);
    assert_eq!(world.calls, ["delete a"]);
}

#[test]
fn the_next_one_waits() {
    let mut world = world();
    world.replaced = Some(Replaced { at: 0, count: 1, uid: "old".into() });
    world.time = 299_000_000_000;
    assert_eq!(delete(&mut world, &["a"]), ["0: not replaced yet"]);
    assert_eq!(world.calls.len(), 0);
}

#[test]
fn of_several_one_is_replaced() {
    let mut world = World::of(1, &["a", "b"]);
    for name in ["a", "b"] {
        world.machine(name).has_node = false;
    }
    assert_eq!(delete(&mut world, &["b", "a"]), ["0: a replaced, 1 others wait"]);
    assert_eq!(world.calls, ["note a as 1", "delete a"]);
}

#[rstest]
#[case::turned_off(|world: &mut World| world.replaces = false, "not replaced")]
#[case::it_has_a_node(|world: &mut World| world.machine("a").has_node = true, "not replaced")]
#[case::nobody_can_read_which_was_the_last(|world: &mut World| world.unread = Some("too long"), "not replaced, too long")]
fn none_is_replaced(#[case] change: impl FnOnce(&mut World), #[case] expected: &str) {
    let mut world = world();
    change(&mut world);
    assert_eq!(delete(&mut world, &["a"]), [format!("0: {expected}")]);
    assert_eq!(world.calls.len(), 0, "nothing is written");
}

/// The write is refused or another copy was faster; or the Machine has changed or is going.
#[rstest]
#[case::another_copy_was_faster(
    "note",
    Happens::Before(|world| world.replaced = Some(Replaced { at: 0, count: 1, uid: "b".into() })),
    &["note a as 1"],
    "failed, Rejected"
)]
#[case::the_write_is_refused("note", Happens::Fails(Failure::Final), &["note a as 1", "pause Replace"], "failed, Final")]
#[case::the_write_had_no_answer(
    "note",
    Happens::Fails(Failure::Unknown),
    &["note a as 1", "pause Replace", "note a as 1", "delete a"],
    "done"
)]
#[case::it_has_changed(
    "delete",
    Happens::Before(|world| world.machine("a").version = 7),
    &["note a as 1", "delete a"],
    "failed, Conflict"
)]
#[case::it_may_not_be_deleted(
    "delete",
    Happens::Fails(Failure::Rejected),
    &["note a as 1", "delete a"],
    "failed, Rejected"
)]
#[case::it_is_tried_again(
    "delete",
    Happens::Fails(Failure::NotNow),
    &["note a as 1", "delete a", "pause Replace", "delete a"],
    "done"
)]
fn a_replacement_that_fails(
    #[case] call: &'static str,
    #[case] happens: Happens,
    #[case] calls: &[&str],
    #[case] expected: &str,
) {
    let mut world = world();
    world.happens(call, happens);
    assert_eq!(delete(&mut world, &["a"]), [format!("0: {expected}")]);
    assert_eq!(world.calls, calls);
}
