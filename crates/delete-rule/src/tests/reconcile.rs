//! A pass of the finisher, call by call.

use super::{
    finish::{followed, machine, set},
    *,
};

type Reconcile = crate::Reconcile<Text, Machine>;
type ReconcileCall = crate::ReconcileCall<Text, Machine>;

fn shown(calls: &[ReconcileCall]) -> Vec<String> {
    let shown = |call: &ReconcileCall| match call {
        ReconcileCall::Read(entry) => format!("Read {}", entry.name),
        ReconcileCall::ReadGroup => "ReadGroup".to_owned(),
        ReconcileCall::Delete(entry) => format!("Delete {}", entry.name),
        ReconcileCall::Mark(entry) => format!("Mark {}", entry.name),
        ReconcileCall::Unmark(machine) => format!("Unmark {}", machine.uid()),
        ReconcileCall::List => "List".to_owned(),
    };
    calls.iter().map(shown).collect()
}

/// Begins a pass over a group with this log, which its MachineSet has followed, and these Machines.
fn reconcile(log: &DeletionLog, machines: &[Machine]) -> (Reconcile, Followed<Text>) {
    let followed = followed(Kind::MachineDeployment, &[set(&[], |set| set.log = log.clone())]);
    let steps = RULE.finish(log, machines, &followed, &LeftSince::new(), Duration::ZERO);
    (RULE.reconcile(steps), followed)
}

#[test]
fn reconcile_reads_machines_and_their_group_before_it_deletes_or_unmarks_any() {
    let log = log(&["a!", "b!", "c~!"]);
    let mut stale = machine("d");
    stale.mark = Some("ours old".into());
    let (mut reconcile, followed) = reconcile(&log, &[machine("b"), machine("c"), stale]);
    let [a, b, c] = [0, 1, 2].map(|place| log.entries()[place].clone());
    assert_eq!(shown(&reconcile.next(None)), ["Read a"]);
    reconcile.took_life(a, Life::Gone);
    assert_eq!(shown(&reconcile.next(None)), ["Read b"]);
    reconcile.took_life(b.clone(), Life::Alive);
    assert_eq!(shown(&reconcile.next(None)), ["ReadGroup"]);
    reconcile.took_group();
    let now = Some((&log, &followed));
    assert_eq!(shown(&reconcile.next(now)), ["Delete b"]);
    assert!(reconcile.permits(&b, (&log, &followed)));
    assert_eq!(shown(&reconcile.next(now)), ["Unmark d"]);
    assert_eq!(shown(&reconcile.next(now)), ["List"]);
    reconcile.took_list(&["c".to_owned()].into(), 1);
    assert_eq!(shown(&reconcile.next(now)), [""; 0]);
    let left = reconcile.left_of(&log, |_| true).unwrap();
    assert_eq!(left.entries(), [b]);
    assert!(reconcile.over().any(|entry| *entry == c));
}

#[rstest]
#[case::it_is_there(Some(Life::Alive))]
#[case::it_is_being_deleted(Some(Life::Deleting))]
#[case::the_read_fails(None)]
fn an_entry_stays_that_is_not_known_to_be_over(#[case] life: Option<Life>) {
    let log = log(&["a!"]);
    let (mut reconcile, _) = reconcile(&log, &[]);
    assert_eq!(shown(&reconcile.next(None)), ["Read a"]);
    if let Some(life) = life {
        reconcile.took_life(log.entries()[0].clone(), life);
    }
    assert_eq!(shown(&reconcile.next(None)), [""; 0]);
    assert!(reconcile.is_idle() && reconcile.left_of(&log, |_| true).is_none());
}

#[test]
fn nothing_is_done_by_name_when_the_group_cannot_be_read() {
    let log = log(&["a!"]);
    let (mut reconcile, _) = reconcile(&log, &[machine("a")]);
    reconcile.next(None);
    reconcile.took_life(log.entries()[0].clone(), Life::Alive);
    assert_eq!(shown(&reconcile.next(None)), ["ReadGroup"]);
    assert_eq!(shown(&reconcile.next(None)), [""; 0]);
}

#[test]
fn a_new_wanted_entry_keeps_machines_from_deletion_and_soft_entries_in_the_log() {
    let before = log(&["a!", "b~!"]);
    let (mut reconcile, followed) = reconcile(&before, &[machine("a"), machine("b")]);
    reconcile.next(None);
    reconcile.took_life(before.entries()[0].clone(), Life::Alive);
    reconcile.next(None);
    reconcile.took_group();
    assert_eq!(shown(&reconcile.next(Some((&before, &followed)))), ["Delete a"]);
    let now = log(&["a!", "b~!", "c"]);
    assert!(!reconcile.permits(&before.entries()[0], (&now, &followed)), "the smaller size for c could be spent on a");
    assert_eq!(shown(&reconcile.next(Some((&before, &followed)))), ["List"]);
    reconcile.took_list(&["b".to_owned()].into(), 1);
    assert_eq!(reconcile.left_of(&now, |log| followed.has_all(log)), None, "the smaller size for c is on its way");
    assert!(reconcile.left_of(&before, |log| followed.has_all(log)).is_some());
}
