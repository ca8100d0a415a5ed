//! The rule holds, and breaks without its steps, in worlds of other kinds: nodeRefs that lag behind.

use models::{model::Bounds, variant::Variant};
use rstest::rstest;

use crate::bounds::{bounds, broken, budget, holds};

/// Marks that ask the watch of the Nodes once more, as the program doesn't yet.
const LOOKS_AGAIN: fn() -> Variant = || Variant { marks_look_again: true, ..Variant::default() };

fn lagging(nodes: usize, pending: usize, letters: &str) -> Bounds {
    Bounds { nodes, pending, lags_node_refs: true, ..bounds(budget(letters)) }
}

#[rstest]
#[case::of_two_named_ones(2, 1, "ddcj")]
#[case::and_a_decrease(1, 2, "dsj")]
#[case::and_a_foreign_delete(1, 1, "ddfj")]
fn holds_when_node_refs_lag_behind(#[case] nodes: usize, #[case] pending: usize, #[case] letters: &str) {
    holds(LOOKS_AGAIN(), lagging(nodes, pending, letters));
}

#[test]
fn breaks_when_a_mark_relies_on_an_earlier_look_at_the_nodes() {
    let found = broken(Variant::default(), lagging(2, 1, "dj")).expect("the rule needs this step");
    println!("{found}");
    assert!(found.what.contains("had its Node before it was marked"), "{}", found.what);
}

#[test]
fn no_rule_can_know_a_node_before_its_watch_does() {
    let bounds = Bounds { admits_known: false, ..lagging(2, 1, "dj") };
    let found = broken(LOOKS_AGAIN(), bounds).expect("this can't be promised");
    println!("{found}");
    assert!(found.what.contains("had its Node before it was marked"), "{}", found.what);
}
