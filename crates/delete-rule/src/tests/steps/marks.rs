//! The mark of one Machine, call by call.

use super::{
    text::Failed,
    world::{Happens, Owner, Shown, World},
    *,
};
use crate::steps::{Mark, NotMarked, SIDE_BY_SIDE, Steps as _};

/// Creates a world whose log has this entry. Its Machine is alive and has a Node.
fn world(text: &str) -> World {
    let mut world = World::of(3, &["a", "b", "c"]);
    world.write(3, log(&[text]));
    world
}

/// Returns the entry in the log.
fn entry(world: &World) -> Entry {
    world.group.log.entries()[0].clone()
}

fn mark(world: &mut World, version: Option<u32>) -> Result<Life, NotMarked<Text>> {
    let mut mark = Mark::new(RULE, entry(world), version);
    world.run(&mut mark);
    mark.end().unwrap().clone()
}

fn shown(end: &Result<Life, NotMarked<Text>>) -> String {
    match end {
        Ok(life) => format!("{life:?}"),
        Err(NotMarked::Failed(Failed(failure))) => format!("failed, {failure:?}"),
        Err(NotMarked::Joined) => "joined".to_owned(),
        Err(NotMarked::DeletedElsewhere) => "going".to_owned(),
    }
}

#[rstest]
#[case::it_is_there("b", Happens::Nothing, &["mark b"], "Alive")]
#[case::it_is_being_deleted("b", Happens::Before(|world| world.machine("b").deleting = true), &["mark b"], "Deleting")]
#[case::it_is_gone("d", Happens::Nothing, &["mark d"], "Gone")]
#[case::another_write_came_between("b", Happens::Fails(Failure::Conflict), &["mark b", "read b"], "failed, Conflict")]
#[case::another_has_its_name("d", Happens::Fails(Failure::Rejected), &["mark d", "read d"], "Gone")]
#[case::it_may_be_marked("b", Happens::Lost, &["mark b"], "failed, Unknown")]
#[case::it_is_refused("b", Happens::Fails(Failure::Final), &["mark b"], "failed, Final")]
fn a_mark_shows_what_it_finds(
    #[case] name: &str,
    #[case] happens: Happens,
    #[case] calls: &[&str],
    #[case] expected: &str,
) {
    let mut world = world(name);
    world.happens("mark", happens);
    let end = mark(&mut world, None);
    assert_eq!((world.calls.as_slice(), shown(&end).as_str()), (&*owned(calls), expected));
}

fn owned(calls: &[&str]) -> Vec<String> {
    calls.iter().map(|call| (*call).to_owned()).collect()
}

/// The watch hasn't shown the Machine, and the right to annotate a group is none to delete others' Machines.
#[rstest]
#[case::it_is_the_groups("b", Owner::Unseen, &["owner b", "mark b"], "Alive")]
#[case::it_is_not_known_as_such("b", Owner::Another, &["owner b"], "failed, Unknown")]
#[case::it_is_gone("d", Owner::Unseen, &["owner d"], "Gone")]
#[case::a_soft_one_is_gone("d~", Owner::Unseen, &["owner d"], "going")]
fn one_whose_group_is_unknown_is_read_first(
    #[case] text: &str,
    #[case] owner: Owner,
    #[case] calls: &[&str],
    #[case] expected: &str,
) {
    let mut world = world(text);
    world.owner = owner;
    let end = mark(&mut world, None);
    assert_eq!((world.calls.as_slice(), shown(&end).as_str()), (&*owned(calls), expected));
}

#[rstest]
#[case::one_that_has_a_node("b", &["read b"], "Alive")]
#[case::one_that_never_joined("b~", &["whole b", "group for b"], "Alive")]
fn somebody_elses_mark_stays(#[case] text: &str, #[case] calls: &[&str], #[case] expected: &str) {
    let mut world = world(text);
    world.marked_by_another = vec!["b"];
    world.machine("b").has_node = !text.contains('~');
    let end = mark(&mut world, Some(0));
    assert_eq!((world.calls.as_slice(), shown(&end).as_str()), (&*owned(calls), expected));
    assert_eq!(world.marks(), [""; 0]);
}

#[rstest]
#[case::in_the_version_in_which_it_had_no_node(Some(0), ("whole", Happens::Nothing), &["mark b"], "Alive")]
#[case::it_has_changed_since(Some(7), ("whole", Happens::Nothing), &["mark b"], "failed, Conflict")]
#[case::it_is_read(None, ("whole", Happens::Nothing), &["whole b", "group for b", "mark b"], "Alive")]
#[case::it_has_joined(None, ("whole", Happens::Before(|world| world.machine("b").has_node = true)), &["whole b"], "joined")]
#[case::it_goes(None, ("whole", Happens::Before(|world| world.machine("b").deleting = true)), &["whole b"], "going")]
#[case::it_was_taken_back(None, ("group", Happens::Before(|world| world.write(3, log(&[])))), &["whole b", "group for b"], "failed, Conflict")]
fn one_that_never_joined_is_marked_in_a_version_without_a_node(
    #[case] version: Option<u32>,
    #[case] (call, happens): (&'static str, Happens),
    #[case] calls: &[&str],
    #[case] expected: &str,
) {
    let mut world = world("b~");
    world.machine("b").has_node = false;
    world.happens(call, happens);
    let end = mark(&mut world, version);
    assert_eq!((world.calls.as_slice(), shown(&end).as_str()), (&*owned(calls), expected));
    assert_eq!(world.marks().len(), usize::from(expected == "Alive"));
}

/// The Machine doesn't refer to its Node yet, so its version shows nothing: the watch of the Nodes is checked before
/// each mark.
#[rstest]
#[case::before_its_mark(Some(0), ("mark", Happens::Nothing), true, &["whole b"])]
#[case::while_the_log_is_read(None, ("group", Happens::Before(|world| world.machine("b").has_node = true)), false, &["whole b", "group for b", "whole b"])]
fn one_whose_node_is_shown_is_not_marked(
    #[case] version: Option<u32>,
    #[case] (call, happens): (&'static str, Happens),
    #[case] has_joined: bool,
    #[case] calls: &[&str],
) {
    let mut world = world("b~");
    world.shown_nodes = Shown::Present;
    world.machine("b").has_node = has_joined;
    world.happens(call, happens);
    let end = mark(&mut world, version);
    assert_eq!((world.calls.as_slice(), shown(&end).as_str()), (&*owned(calls), "joined"));
    assert_eq!(world.marks(), [""; 0]);
}

/// The watch shows a Node that isn't the Machine's any more: the Machine isn't read forever.
#[test]
fn one_that_is_read_without_a_node_twice_is_marked() {
    let mut world = world("b~");
    world.shown_nodes = Shown::All;
    world.machine("b").has_node = false;
    assert_eq!(shown(&mark(&mut world, None)), "Alive");
    assert_eq!(world.calls, ["whole b", "group for b", "whole b", "group for b", "mark b"]);
}

#[test]
fn not_more_marks_are_under_way_than_calls_are_made_at_once() {
    let names: Vec<String> = (0..20).map(|number| format!("m{number}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut world = World::of(30, &names);
    world.write(30, log(&names));
    let carry = || {
        let uids = names.iter().map(|name| (*name).to_owned()).collect();
        Carry::new(RULE, world.group.clone(), uids, Vec::new(), BOUNDS, Marked::default())
    };
    assert_eq!(carry().next(&world).len(), SIDE_BY_SIDE, "a call that waits would rely on what was known before");
    let mut carry = carry();
    world.run(&mut carry);
    assert_eq!((world.marks().len(), world.group.replicas), (20, 10));
}

/// The response to its mark was lost, or another copy has marked it.
#[rstest]
#[case::it_waits(false)]
#[case::it_has_joined_since(true)]
fn one_that_never_joined_and_has_its_mark_counts_as_marked(#[case] has_joined: bool) {
    let mut world = world("b~");
    world.machine("b").has_node = false;
    assert_eq!(shown(&mark(&mut world, None)), "Alive");
    world.machine("b").has_node = has_joined;
    world.calls.clear();
    assert_eq!(shown(&mark(&mut world, None)), "Alive");
    assert_eq!(world.calls, ["whole b"]);
    assert_eq!(world.marks(), ["b: t"]);
}

/// A copy that doesn't know of the mark carries on with the entry, and the Machine goes for its own smaller size.
#[test]
fn one_that_joins_after_its_mark_is_lowered_and_not_taken_back() {
    let mut world = world("b~");
    world.machine("b").has_node = false;
    world.happens("lower", Happens::Fails(Failure::Unknown));
    world.happens("pause", Happens::Fails(Failure::Final));
    let uids = || ["b".to_owned()].into_iter().collect();
    world.run(&mut Carry::new(RULE, world.group.clone(), uids(), Vec::new(), BOUNDS, Marked::default()));
    world.machine("b").has_node = true;
    world.calls.clear();
    world.run(&mut Carry::new(RULE, world.group.clone(), uids(), Vec::new(), BOUNDS, Marked::default()));
    assert_eq!(world.calls, ["whole b", "lower to 2: b~!"]);
    assert_eq!(world.marks(), ["b: t"]);
}
