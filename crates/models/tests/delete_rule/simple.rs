//! The simple rule, which deletes first and then lowers: what a user would notice of it within small bounds.

use models::{
    bounds::Bounds,
    compare::{Counted, KINDS, count},
    simple::{Simple, Unanswered},
};
use rstest::rstest;

use crate::bounds::{bounds, budget};

const UNNAMED: usize = 0;
const REPLACED: usize = 3;
const TWO_FOR_ONE: usize = 5;
const DESIGNED: Simple = Simple { marks: false, unanswered: Unanswered::Drop, waits: false, counts_writes: false };
const MENDED: Simple = Simple { waits: true, counts_writes: true, ..DESIGNED };
const MOST_STATES: usize = 1_000_000;

/// Returns bounds in which controllers are faster than Machines are deleted.
fn prompt(letters: &str) -> Bounds {
    Bounds { is_prompt: true, ..bounds(budget(letters)) }
}

fn kinds(rule: Simple, bounds: Bounds) -> Vec<&'static str> {
    let Counted { is_complete, ends, kinds, causes, .. } = count(bounds, Some(rule), MOST_STATES);
    println!("{causes}");
    assert!(is_complete && ends > 0);
    KINDS.into_iter().zip(kinds).filter(|(_, count)| *count > 0).map(|(kind, _)| kind).collect()
}

#[rstest]
#[case::two_copies("dd")]
#[case::an_increase("ddi")]
#[case::a_foreign_size("ddz")]
#[case::an_error("dde")]
#[case::joins("ddj")]
fn nothing_is_noticed(#[case] letters: &str) {
    assert!(kinds(MENDED, prompt(letters)).is_empty());
}

#[rstest]
#[case::a_kill("ddc")]
#[case::a_refusal("ddr")]
#[case::a_lost_answer("dda")]
#[case::a_foreign_delete("ddf")]
#[case::all("dcra")]
fn a_named_machine_is_replaced_at_most(#[case] letters: &str) {
    let kinds = kinds(MENDED, prompt(letters));
    assert!(!kinds.is_empty() && kinds.iter().all(|kind| kind.starts_with("replaced")), "{kinds:?}");
}

#[test]
fn one_of_two_copies_at_min_replaces_a_machine() {
    assert_eq!(kinds(MENDED, Bounds { min: 2, ..prompt("dd") }), [KINDS[REPLACED]]);
}

#[test]
fn an_unnamed_node_goes_where_a_named_one_is_gone_before_the_smaller_size_is_seen() {
    let bounds = bounds(budget("dj"));
    assert_eq!(kinds(MENDED, bounds), [KINDS[UNNAMED]]);
}

/// A Machine is named that never joined, and a smaller target size takes it for a placeholder.
#[rstest]
#[case::at_once(DESIGNED, false)]
#[case::after_the_longest_command(MENDED, true)]
fn a_placeholder_is_a_machine_that_hangs_in_deletion(#[case] rule: Simple, #[case] holds: bool) {
    let bounds = Bounds { nodes: 2, pending: 1, ..prompt("ds") };
    assert_eq!(kinds(rule, bounds), if holds { vec![] } else { vec![KINDS[UNNAMED]] });
}

/// Two copies name one Machine. Both count it if that isn't left to the one whose DELETE had an answer.
#[rstest]
#[case::which_is_counted(Simple { unanswered: Unanswered::Count, ..MENDED })]
#[case::whose_mark_is_counted(Simple { marks: true, unanswered: Unanswered::CountMarked, ..MENDED })]
fn two_go_for_one_after_a_delete_without_an_answer(#[case] rule: Simple) {
    let kinds = kinds(rule, prompt("dda"));
    assert!(kinds.contains(&KINDS[TWO_FOR_ONE]) && kinds.contains(&KINDS[UNNAMED]), "{kinds:?}");
}
