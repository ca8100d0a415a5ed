//! Commands call by call, on a fake API server that executes the calls one after the other.

mod marks;
mod replacing;
mod settling;
pub(super) mod text;
mod words;
mod world;

use self::{
    words::answers,
    world::{Callers, Happens, World},
};
use super::*;
use crate::steps::{Carry, Decrease, Deletion, Failure, Marked, NotLowered, Resize};

type NotDone = crate::steps::NotDone<Text>;

fn request(names: &[&str]) -> Request {
    Request { machines: names.iter().map(|name| named(name)).collect(), ..Request::default() }
}

fn deletion(requests: impl IntoIterator<Item = Request>) -> Deletion<Text> {
    Deletion::new(RULE, requests.into_iter().enumerate().map(|(caller, request)| (caller, request, 0)))
}

#[test]
fn a_delete_is_logged_and_marked_and_then_the_size_comes_down() {
    let mut world = World::of(3, &["a", "b", "c"]);
    world.run(&mut deletion([request(&["a"])]));
    assert_eq!(world.calls, ["log a", "mark a", "lower to 2: a!"]);
    assert_eq!(world.answers(), ["0: done"]);
    assert_eq!(world.marks(), ["a: t1"]);
}

#[test]
fn deletes_that_stand_together_are_one_write_each() {
    let mut world = World::of(3, &["a", "b", "c"]);
    world.run(&mut deletion([request(&["a"]), request(&["b"])]));
    assert_eq!(world.calls, ["log a b", "mark a", "mark b", "lower to 1: a! b!"]);
    assert_eq!(world.answers(), ["0: done", "1: done"]);
}

#[test]
fn a_delete_that_joins_is_logged_by_itself_and_lowered_with_the_first() {
    let mut world = World::of(3, &["a", "b", "c"]);
    let mut deletion = deletion([request(&["a"])]);
    world.run_until(&mut deletion, "mark a");
    assert!(deletion.is_open());
    deletion.join([(1, request(&["b"]), 0)]);
    assert!(!deletion.is_open(), "a decision is under way");
    world.run(&mut deletion);
    assert_eq!(world.calls, ["log a", "mark a", "log a b", "mark b", "lower to 1: a! b!"]);
    assert_eq!(world.answers(), ["0: done", "1: done"]);
    assert_eq!(world.marks(), ["a: t1", "b: t2"]);
}

#[test]
fn the_size_waits_for_deletes_that_are_awaited() {
    let mut world = World::of(3, &["a", "b", "c"]);
    let mut deletion = deletion([request(&["a"])]);
    world.run_until(&mut deletion, "mark a");
    deletion.await_joins();
    world.run(&mut deletion);
    assert_eq!(world.calls, ["log a", "mark a"]);
    deletion.join([]);
    world.run(&mut deletion);
    assert_eq!(world.calls[2..], ["lower to 2: a!"]);
}

#[test]
fn a_size_that_is_held_waits_for_deletes_that_may_join() {
    let mut world = World::of(3, &["a", "b", "c"]);
    let mut deletion = deletion([request(&["a"])]);
    deletion.hold();
    world.run(&mut deletion);
    assert_eq!(world.calls, ["log a", "mark a"]);
    assert!(deletion.is_open());
    deletion.join([(1, request(&["b"]), 0)]);
    world.run(&mut deletion);
    assert_eq!(world.calls, ["log a", "mark a", "log a b", "mark b"]);
    deletion.release();
    world.run(&mut deletion);
    assert_eq!(world.calls, ["log a", "mark a", "log a b", "mark b", "lower to 1: a! b!"]);
    assert_eq!(world.answers(), ["0: done", "1: done"]);
}

#[test]
fn a_size_is_not_held_where_none_may_join() {
    let mut world = World::of(3, &["a", "b"]);
    let places = Request { replicas: 1, ..request(&["a"]) };
    let mut deletion = deletion([places]);
    deletion.hold();
    world.run(&mut deletion);
    assert_eq!(world.answers(), ["0: done"]);
}

#[test]
fn a_delete_joins_what_another_copy_has_logged() {
    let mut world = World::of(3, &["a", "b", "c"]);
    world.group.log = log(&["a", "b!"]);
    world.run(&mut deletion([request(&["a"]), request(&["b"])]));
    assert_eq!(world.calls, ["mark a", "lower to 2: a! b!"]);
    assert_eq!(world.answers(), ["1: done", "0: done"], "b is lowered already");
    assert_eq!(world.marks(), ["a: t"], "under the ticket of its entry");
}

#[test]
fn a_mark_that_is_refused_for_good_is_taken_back_with_its_request() {
    let mut world = World::of(4, &["a", "b", "c", "d"]);
    world.happens("mark a", Happens::Fails(Failure::Final));
    world.run(&mut deletion([request(&["a", "b"]), request(&["c"])]));
    let taken_back = ["log c", "version a", "version b", "read group", "unmark a", "unmark b"];
    assert_eq!(world.calls[..4], ["log a b c", "mark a", "mark b", "mark c"]);
    assert_eq!(world.calls[4..10], taken_back, "out of the log first, and then the marks");
    assert_eq!(world.calls[10..], ["lower to 3: c!"]);
    assert_eq!(world.answers(), ["0: failed, Final", "1: done"]);
    assert_eq!(world.marks(), ["c: t1"]);
}

#[rstest]
#[case::its_machine_has_changed(Failure::Rejected, &[])]
#[case::it_is_refused(Failure::Final, &["a"])]
fn a_mark_that_cannot_be_taken_off_is_left_to_the_finisher(#[case] failure: Failure, #[case] stays: &[&str]) {
    let mut world = World::of(4, &["a", "b", "c", "d"]);
    world.happens("mark b", Happens::Fails(Failure::Final));
    world.happens("unmark a", Happens::Fails(failure));
    world.run(&mut deletion([request(&["a", "b"])]));
    assert_eq!(world.answers(), ["0: failed, Final"]);
    assert_eq!(
        (world.marks(), world.stays),
        (vec!["a: t1".to_owned()], stays.iter().map(ToString::to_string).collect())
    );
}

#[test]
fn a_mark_that_fails_for_now_is_set_again_on_the_log_that_is_there_then() {
    let mut world = World::of(3, &["a", "b", "c"]);
    world.happens("mark a", Happens::Fails(Failure::NotNow));
    world.happens("read group", Happens::Before(|world| world.write(3, log(&[]))));
    world.run(&mut deletion([request(&["a"])]));
    assert_eq!(world.calls, ["log a", "mark a", "pause Lower", "read group", "read a"]);
    assert_eq!(world.answers(), ["0: given up a"], "another copy has taken it back");
    assert_eq!(world.marks(), [""; 0]);
}

#[rstest]
#[case::it_was_done(Happens::Lost, &["log a", "pause Log", "read group", "mark a", "lower to 2: a!"], "t1")]
#[case::it_was_not_done(Happens::Fails(Failure::Unknown), &["log a", "pause Log", "read group", "log a", "mark a", "lower to 2: a!"], "t2")]
fn a_lost_answer_of_the_logs_write(#[case] happens: Happens, #[case] calls: &[&str], #[case] ticket: &str) {
    let mut world = World::of(3, &["a", "b", "c"]);
    world.happens("log a", happens);
    world.run(&mut deletion([request(&["a"])]));
    assert_eq!(world.calls, calls);
    assert_eq!(world.answers(), ["0: done"]);
    assert_eq!(world.marks(), [format!("a: {ticket}")], "what may arrive yet isn't written under the same ticket");
}

/// Another copy has taken back a part of the request and lowered the rest, before this one found that its write was
/// applied.
#[test]
fn a_deletion_that_another_copy_took_back_in_part_after_a_lost_answer_is_no_success() {
    let mut world = World::of(4, &["a", "b", "c", "d"]);
    world.happens("log a b", Happens::Lost);
    let take_back = |world: &mut World| {
        let left = world.group.log.clone().without(|entry| entry.name == "a").lowered(|_| true);
        world.write(3, left);
    };
    world.happens("read group", Happens::Before(take_back));
    world.run(&mut deletion([request(&["a", "b"]), request(&["b"])]));
    assert_eq!(world.calls, ["log a b", "pause Log", "read group", "read a"]);
    assert_eq!(world.answers(), ["1: done", "0: given up a, in part, or logged"]);
}

/// The write of the log got no response and may still be applied, so nothing is refused for good.
#[test]
fn nothing_is_refused_for_good_that_may_have_been_logged() {
    let mut world = World::of(2, &["a", "b"]);
    world.happens("log a", Happens::Fails(Failure::Unknown));
    world.happens("read group", Happens::Before(|world| world.write(1, log(&[]))));
    world.run(&mut deletion([request(&["a"])]));
    assert_eq!(world.calls, ["log a", "pause Log", "read group"]);
    assert_eq!(world.answers(), ["0: below min, or logged"], "no other is replaced in its stead");
}

#[test]
fn a_delete_ends_with_its_caller_until_it_is_logged() {
    let mut world = World::of(3, &["a", "b", "c"]);
    world.callers = Callers::HaveLeft;
    world.run(&mut deletion([request(&["a"])]));
    assert_eq!((world.calls.len(), world.answers()), (0, vec!["0: abandoned".to_owned()]));
    let mut deletion = deletion([request(&["a"])]);
    world.callers = Callers::Wait;
    world.run_until(&mut deletion, "mark a");
    world.callers = Callers::HaveLeft;
    world.run(&mut deletion);
    assert_eq!(world.group.replicas, 2, "what is decided goes on");
}

#[test]
fn a_machine_that_the_watch_does_not_know_is_read_before_it_is_logged() {
    let mut world = World::of(3, &["b", "c"]);
    world.knows_lives = false;
    world.run(&mut deletion([request(&["a", "b"])]));
    assert_eq!(world.calls, ["read a", "read b", "log b", "mark b", "lower to 2: b!"]);
    assert_eq!(world.answers(), ["0: done"], "a is gone");
}

#[test]
fn below_the_minimum_a_machine_is_replaced_or_nothing_is_done() {
    let mut world = World::of(2, &["a", "b"]);
    world.run(&mut deletion([request(&["a", "b"]), request(&["b"])]));
    assert_eq!(world.calls, ["log b", "mark b", "lower to 1: b!"]);
    assert_eq!(world.answers(), ["0: not replaced", "1: done"], "each as a whole or not at all");
}

#[test]
fn an_accepted_deletion_that_a_smaller_size_puts_below_the_minimum_is_taken_back() {
    let mut world = World::of(2, &["a", "b"]);
    world.happens("mark a", Happens::Before(|world| world.write(1, world.group.log.clone())));
    world.run(&mut deletion([request(&["a"])]));
    let refused = ["lower to 1: a!", "pause Lower", "read group"];
    assert_eq!(world.calls[..5], [&["log a", "mark a"][..], &refused].concat());
    assert_eq!(world.calls[5..], ["log", "version a", "read group", "unmark a"]);
    assert_eq!(world.answers(), ["0: below min"]);
    assert_eq!((world.group.replicas, world.marks().len()), (1, 0));
}

/// An entry that another copy lowers while it is taken back stays, with its mark.
#[test]
fn an_entry_that_another_copy_lowers_during_its_take_back_stays_with_its_mark() {
    let mut world = World::of(3, &["a", "b", "c"]);
    world.happens("lower to 2", Happens::Fails(Failure::Final));
    world.happens("log", Happens::Nothing);
    world.happens("log", Happens::Before(|world| world.write(2, world.group.log.clone().lowered(|_| true))));
    world.run(&mut deletion([request(&["a"])]));
    let calls = ["log a", "mark a", "lower to 2: a!", "pause Lower", "log", "pause TakeBack", "read group"];
    assert_eq!(world.calls, calls);
    assert_eq!(world.answers(), ["0: done"]);
    assert_eq!(world.marks(), ["a: t1"]);
}

#[test]
fn where_it_cannot_be_taken_back_it_stays_pending() {
    let mut world = World::of(3, &["a", "b", "c"]);
    world.happens("mark a", Happens::Fails(Failure::Final));
    world.happens("log", Happens::Nothing);
    world.happens("log", Happens::Fails(Failure::Final));
    world.run(&mut deletion([request(&["a"])]));
    assert_eq!(world.calls, ["log a", "mark a", "log", "pause TakeBack"]);
    assert_eq!(world.answers(), ["0: failed, Final, and not taken back"]);
}

#[rstest]
#[case::its_place_is_open(&["a", "b", "c"], &["lower to 2: a!"], &[])]
#[case::its_place_is_filled(&["a", "b", "c", "d"], &["log", "read a"], &["a"])]
fn a_machine_that_goes_by_itself_is_counted(#[case] machines: &[&str], #[case] last: &[&str], #[case] filled: &[&str]) {
    let mut world = World::of(3, machines);
    world.happens("mark a", Happens::Before(|world| world.machine("a").deleting = true));
    world.run(&mut deletion([request(&["a"])]));
    assert_eq!(world.calls[..3], ["log a", "mark a", "list"]);
    assert_eq!(world.calls[3..], *last);
    assert_eq!(world.answers(), ["0: done"]);
    assert_eq!(world.filled, filled);
}

#[test]
fn placeholders_are_counted_once_and_lowered_by_the_size_alone() {
    let mut world = World::of(4, &["a", "b"]);
    world.run(&mut deletion([Request { replicas: 2, ..Request::default() }]));
    assert_eq!(world.calls, ["list", "resize to 2, counted"]);
    assert_eq!(world.answers(), ["0: done"]);
}

#[test]
fn placeholders_are_counted_anew_after_a_write_that_failed() {
    let mut world = World::of(3, &["a", "b"]);
    world.happens("resize", Happens::Before(|world| world.grow("c", |world| world.write(3, log(&["a"])))));
    world.run(&mut deletion([Request { replicas: 1, ..Request::default() }]));
    assert_eq!(world.calls, ["list", "resize to 2, counted", "pause Size", "read size", "list"]);
    assert_eq!(world.answers(), ["0: replaced, 0 of 1 left"], "c has come into its place");
    assert_eq!(world.group.replicas, 3);
}

/// A Machine that hangs in deletion without its Node goes by an entry, and the replica by the size.
#[test]
fn placeholders_of_a_machine_and_of_a_replica_come_down_one_after_the_other() {
    let mut world = World::of(4, &["a", "b", "c"]);
    (world.machine("c").deleting, world.machine("c").has_node) = (true, false);
    world.run(&mut deletion([Request { replicas: 2, ..Request::default() }]));
    let calls = ["list", "log c", "mark c", "lower to 3: c!", "list", "resize to 2, counted"];
    assert_eq!(world.calls, calls);
    assert!(world.group.log.entries()[0].counted);
    assert_eq!(world.answers(), ["0: done"]);
}

fn pending(world: &mut World, names: &[&str]) {
    for name in names {
        world.machine(name).has_node = false;
    }
}

#[test]
fn a_smaller_target_size_takes_a_machine_that_has_no_node() {
    let mut world = World::of(3, &["a", "b", "c"]);
    pending(&mut world, &["b", "c"]);
    let mut decrease = Decrease::new(RULE, world.group.clone(), -1, BOUNDS, 0);
    world.run(&mut decrease);
    assert_eq!(world.calls, ["whole b", "log b~", "whole b", "group for b", "mark b", "lower to 2: b~!"]);
    assert!(matches!(decrease.end(), Some(Ok(()))));
}

#[test]
fn a_smaller_target_size_takes_replicas_before_machines() {
    let mut world = World::of(4, &["a", "b", "c"]);
    pending(&mut world, &["b", "c"]);
    let mut decrease = Decrease::new(RULE, world.group.clone(), -2, BOUNDS, 0);
    world.run(&mut decrease);
    assert_eq!(world.calls[..4], ["list", "resize to 3, counted", "whole b", "log b~"]);
    assert_eq!(world.calls[4..], ["whole b", "group for b", "mark b", "lower to 2: b~!"]);
    assert!(matches!(decrease.end(), Some(Ok(()))));
}

#[test]
fn a_machine_that_joins_before_it_is_read_is_not_logged() {
    let mut world = World::of(3, &["a", "b", "c"]);
    pending(&mut world, &["b"]);
    world.happens("whole b", Happens::Before(|world| world.machine("b").has_node = true));
    let mut decrease = Decrease::new(RULE, world.group.clone(), -1, BOUNDS, 0);
    world.run(&mut decrease);
    assert_eq!(world.calls, ["whole b", "list"], "nor is there a replica without a Machine");
    assert!(matches!(decrease.end(), Some(Ok(()))));
    assert_eq!(world.group.replicas, 3);
}

#[test]
fn a_machine_that_joins_before_it_is_marked_is_spared() {
    let mut world = World::of(3, &["a", "b", "c"]);
    pending(&mut world, &["b"]);
    world.happens("log b~", Happens::Before(|world| world.machine("b").has_node = true));
    let mut decrease = Decrease::new(RULE, world.group.clone(), -1, BOUNDS, 0);
    world.run(&mut decrease);
    assert_eq!(world.calls, ["whole b", "log b~", "whole b", "log", "version b", "read group", "unmark b"]);
    assert!(matches!(decrease.end(), Some(Ok(()))), "an error would end the caller's loop");
    assert_eq!(world.group.replicas, 3);
}

#[rstest]
#[case::it_was_done(Happens::Lost, &["log b~", "pause Log", "read group", "whole b", "group for b", "mark b", "lower to 2: b~!"], "t1")]
#[case::it_was_not_done(Happens::Fails(Failure::Unknown), &["log b~", "pause Log", "read group", "whole b", "log b~", "whole b", "group for b", "mark b", "lower to 2: b~!"], "t2")]
fn a_smaller_target_size_whose_log_had_no_answer(
    #[case] happens: Happens,
    #[case] calls: &[&str],
    #[case] ticket: &str,
) {
    let mut world = World::of(3, &["a", "b", "c"]);
    pending(&mut world, &["b"]);
    world.happens("log b~", happens);
    let mut decrease = Decrease::new(RULE, world.group.clone(), -1, BOUNDS, 0);
    world.run(&mut decrease);
    assert_eq!(world.calls[1..], *calls);
    assert_eq!(world.marks(), [format!("b: {ticket}")]);
    assert!(matches!(decrease.end(), Some(Ok(()))));
}

fn increase(world: &World) -> Resize<Text> {
    Resize::increase(RULE, world.group.clone(), 2, BOUNDS, Some(0))
}

#[test]
fn an_increase_is_one_write_and_no_read() {
    let mut world = World::of(3, &["a", "b", "c"]);
    let mut increase = increase(&world);
    world.run(&mut increase);
    assert_eq!(world.calls, ["resize to 5"]);
    assert!(matches!(increase.end(), Some(Ok(true))));
}

#[rstest]
#[case::it_was_done(Happens::Lost, &["resize to 5", "pause Size", "read size"], 5)]
#[case::it_was_not_done(Happens::Fails(Failure::Unknown), &["resize to 5", "pause Size", "read size", "resize to 5"], 5)]
fn an_increase_whose_answer_was_lost(#[case] happens: Happens, #[case] calls: &[&str], #[case] size: i32) {
    let mut world = World::of(3, &["a", "b", "c"]);
    world.happens("resize", happens);
    let mut increase = increase(&world);
    world.run(&mut increase);
    assert_eq!(world.calls, calls);
    assert_eq!(world.group.replicas, size, "never twice");
    assert!(matches!(increase.end(), Some(Ok(true))));
}

#[test]
fn an_increase_that_others_have_written_over_has_no_known_result() {
    let mut world = World::of(3, &["a", "b", "c"]);
    world.happens("resize", Happens::Lost);
    world.happens("read size", Happens::Before(|world| world.write(6, log(&[]))));
    let mut increase = increase(&world);
    world.run(&mut increase);
    assert_eq!(world.calls, ["resize to 5", "pause Size", "read size"]);
    assert!(matches!(increase.end(), Some(Err(NotDone::SizeUnknown { from: 3, to: 5, now: 6, .. }))));
}

fn carry(world: &World, names: &[&str]) -> Carry<Text> {
    let uids = names.iter().map(|name| Uid::from(*name)).collect();
    Carry::new(RULE, world.group.clone(), uids, Vec::new(), BOUNDS, Marked::default())
}

#[test]
fn any_copy_carries_on_with_what_is_wanted() {
    let mut world = World::of(4, &["a", "b", "c", "d"]);
    world.group.log = log(&["a", "b", "c!"]);
    let mut carry = carry(&world, &["a", "c"]);
    world.run(&mut carry);
    assert_eq!(world.calls, ["mark a", "lower to 3: a! b c!"]);
    assert_eq!((carry.lowered(), carry.failures().len()), (1, 0));
}

#[test]
fn a_size_that_is_refused_again_on_the_same_version_is_refused_for_good() {
    let mut world = World::of(3, &["a", "b", "c"]);
    world.group.log = log(&["a"]);
    world.happens("lower", Happens::Fails(Failure::Rejected));
    world.happens("lower", Happens::Fails(Failure::Rejected));
    let mut carry = carry(&world, &["a"]);
    world.run(&mut carry);
    let once = ["mark a", "lower to 2: a!", "pause Lower", "read group", "lower to 2: a!"];
    assert_eq!(world.calls[..5], once);
    assert_eq!(world.calls[5..], ["log", "version a", "read group", "unmark a"]);
    assert!(matches!(carry.failures()["a"], NotLowered::Refused(NotDone::Rejected { size: 2, .. })));
}

#[test]
fn a_size_write_without_an_answer_in_time_is_left_to_a_finisher() {
    let mut world = World::of(3, &["a", "b", "c"]);
    world.group.log = log(&["a"]);
    world.happens("lower", Happens::Lost);
    world.happens("pause", Happens::Fails(Failure::Final));
    let mut carry = carry(&world, &["a"]);
    world.run(&mut carry);
    assert_eq!(world.calls, ["mark a", "lower to 2: a!", "pause Lower"]);
    assert!(matches!(carry.failures()["a"], NotLowered::Pending(_)));
}

#[test]
fn an_answer_names_what_went_all_the_same() {
    let pending = NotDone::InPart(Box::new(NotDone::Abandoned));
    assert_eq!(answers(&[(3, Err(pending))]), ["3: abandoned, in part"]);
}
