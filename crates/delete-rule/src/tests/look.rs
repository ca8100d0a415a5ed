//! A pass of the finisher, call by call.

use super::{
    finish::{followed, machine, set},
    *,
};

type Look = crate::Look<Text, Machine>;
type LookCall = crate::LookCall<Text, Machine>;

fn shown(calls: &[LookCall]) -> Vec<String> {
    let shown = |call: &LookCall| match call {
        LookCall::Read(entry) => format!("Read {}", entry.name),
        LookCall::ReadGroup => "ReadGroup".to_owned(),
        LookCall::Delete(entry) => format!("Delete {}", entry.name),
        LookCall::Mark(entry) => format!("Mark {}", entry.name),
        LookCall::Unmark(machine) => format!("Unmark {}", machine.uid()),
        LookCall::List => "List".to_owned(),
    };
    calls.iter().map(shown).collect()
}

/// Begins a pass over a group with this log, which its MachineSet has followed, and these Machines.
fn look(log: &DeletionLog, machines: &[Machine]) -> (Look, Followed<Text>) {
    let followed = followed(Kind::MachineDeployment, &[set(&[], |set| set.log = log.clone())]);
    let steps = RULE.finish(log, machines, &followed, &LeftSince::new(), Duration::ZERO);
    (RULE.look(steps), followed)
}

#[test]
fn what_seems_to_be_so_is_read_before_anything_is_done() {
    let log = log(&["a!", "b!", "c~!"]);
    let mut stale = machine("d");
    stale.mark = Some("ours old".into());
    let (mut look, followed) = look(&log, &[machine("b"), machine("c"), stale]);
    let [a, b, c] = [0, 1, 2].map(|place| log.entries()[place].clone());
    assert_eq!(shown(&look.next(None)), ["Read a"]);
    look.took_life(a, Life::Gone);
    assert_eq!(shown(&look.next(None)), ["Read b"]);
    look.took_life(b.clone(), Life::Alive);
    assert_eq!(shown(&look.next(None)), ["ReadGroup"]);
    look.took_group();
    let now = Some((&log, &followed));
    assert_eq!(shown(&look.next(now)), ["Delete b"]);
    assert!(look.permits(&b, (&log, &followed)));
    assert_eq!(shown(&look.next(now)), ["Unmark d"]);
    assert_eq!(shown(&look.next(now)), ["List"]);
    look.took_list(&["c".to_owned()].into(), 1);
    assert_eq!(shown(&look.next(now)), [""; 0]);
    let left = look.left_of(&log, |_| true).unwrap();
    assert_eq!(left.entries(), [b]);
    assert!(look.over().any(|entry| *entry == c));
}

#[rstest]
#[case::it_is_there(Some(Life::Alive))]
#[case::it_is_being_deleted(Some(Life::Deleting))]
#[case::the_read_fails(None)]
fn an_entry_stays_that_is_not_known_to_be_over(#[case] life: Option<Life>) {
    let log = log(&["a!"]);
    let (mut look, _) = look(&log, &[]);
    assert_eq!(shown(&look.next(None)), ["Read a"]);
    if let Some(life) = life {
        look.took_life(log.entries()[0].clone(), life);
    }
    assert_eq!(shown(&look.next(None)), [""; 0]);
    assert!(look.is_idle() && look.left_of(&log, |_| true).is_none());
}

#[test]
fn nothing_is_done_by_name_when_the_group_cannot_be_read() {
    let log = log(&["a!"]);
    let (mut look, _) = look(&log, &[machine("a")]);
    look.next(None);
    look.took_life(log.entries()[0].clone(), Life::Alive);
    assert_eq!(shown(&look.next(None)), ["ReadGroup"]);
    assert_eq!(shown(&look.next(None)), [""; 0]);
}

#[test]
fn what_was_decided_meanwhile_keeps_machines_and_soft_entries() {
    let before = log(&["a!", "b~!"]);
    let (mut look, followed) = look(&before, &[machine("a"), machine("b")]);
    look.next(None);
    look.took_life(before.entries()[0].clone(), Life::Alive);
    look.next(None);
    look.took_group();
    assert_eq!(shown(&look.next(Some((&before, &followed)))), ["Delete a"]);
    let now = log(&["a!", "b~!", "c"]);
    assert!(!look.permits(&before.entries()[0], (&now, &followed)), "the smaller size for c could be spent on a");
    assert_eq!(shown(&look.next(Some((&before, &followed)))), ["List"]);
    look.took_list(&["b".to_owned()].into(), 1);
    assert_eq!(look.left_of(&now, |log| followed.has_all(log)), None, "the smaller size for c is on its way");
    assert!(look.left_of(&before, |log| followed.has_all(log)).is_some());
}
