//! The rule holds, and breaks without its steps, in other worlds and for other requests: nodeRefs that lag behind,
//! MachinePools, rollouts of groups that have opted to scale down during rollouts, and callers that leave.

use models::{bounds::Bounds, variant::Variant};
use rstest::rstest;

use crate::bounds::{bounds, broken, budget, holds};

fn lagging(nodes: usize, pending: usize, letters: &str) -> Bounds {
    Bounds { nodes, pending, lags_node_refs: true, ..bounds(budget(letters)) }
}

fn pool(nodes: usize, pending: usize, missing: usize, letters: &str) -> Bounds {
    Bounds { nodes, pending, missing, is_pool: true, ..bounds(budget(letters)) }
}

fn rollout(nodes: usize, old: usize, copies_to_old: bool, letters: &str) -> Bounds {
    Bounds { nodes, old, copies_to_old, ..bounds(budget(letters)) }
}

#[rstest]
#[case::of_a_named_one(2, 1, "dcj")]
#[case::and_a_decrease(1, 2, "dsj")]
fn holds_when_node_refs_lag_behind(#[case] nodes: usize, #[case] pending: usize, #[case] letters: &str) {
    holds(Variant::default(), lagging(nodes, pending, letters));
}

#[test]
fn breaks_when_a_mark_relies_on_an_earlier_look_at_the_nodes() {
    let rule = Variant { marks_look_again: false, ..Variant::default() };
    let found = broken(rule, lagging(2, 1, "dj")).expect("the rule needs this step");
    println!("{found}");
    assert!(found.what.contains("had its Node before it was marked"), "{}", found.what);
}

#[test]
fn no_rule_can_know_a_node_before_its_watch_does() {
    let bounds = Bounds { admits_known: false, ..lagging(2, 1, "dj") };
    let found = broken(Variant::default(), bounds).expect("this can't be promised");
    println!("{found}");
    assert!(found.what.contains("had its Node before it was marked"), "{}", found.what);
}

#[rstest]
#[case::whose_provider_strays(3, 0, 0, "ddcy")]
#[case::whose_provider_strays_and_fails(3, 0, 0, "ddey")]
#[case::and_a_machine_that_somebody_deletes(3, 0, 0, "dfjy")]
#[case::and_a_decrease(2, 1, 0, "dsj")]
#[case::and_placeholders(2, 0, 1, "dpj")]
fn holds_for_a_machine_pool(
    #[case] nodes: usize,
    #[case] pending: usize,
    #[case] missing: usize,
    #[case] letters: &str,
) {
    holds(Variant::default(), pool(nodes, pending, missing, letters));
}

#[test]
fn breaks_when_a_machine_is_not_left_to_the_provider_of_its_pool() {
    let rule = Variant { leaves_to_provider: false, ..Variant::default() };
    let found = broken(rule, pool(3, 0, 0, "dj")).expect("the rule needs this step");
    println!("{found}");
    assert!(found.what.contains("was taken"), "{}", found.what);
}

#[test]
fn no_rule_can_wait_for_a_provider_of_any_slowness() {
    let bounds = Bounds { is_slow: true, ..pool(3, 0, 0, "dfj") };
    let found = broken(Variant::default(), bounds).expect("this can't be promised");
    println!("{found}");
    assert!(found.what.contains("was taken"), "{}", found.what);
}

#[rstest]
#[case::of_1_11(2, 1, false, "ddj")]
#[case::of_1_12(2, 1, true, "ddj")]
#[case::of_1_11_and_an_increase(2, 1, false, "dij")]
#[case::of_1_11_whose_new_machine_set_goes_first(1, 1, false, "dij")]
#[case::of_1_12_whose_new_machine_set_goes_first(1, 1, true, "dij")]
#[case::of_1_12_with_two_old_ones(1, 2, true, "dcj")]
#[case::and_a_machine_that_somebody_deletes(1, 2, false, "dfj")]
fn holds_in_a_rollout(#[case] nodes: usize, #[case] old: usize, #[case] copies_to_old: bool, #[case] letters: &str) {
    holds(Variant::default(), rollout(nodes, old, copies_to_old, letters));
}

/// The rule breaks soonest at a size of 0 or at a size that returns to an earlier value: judged by the values alone,
/// the old MachineSet then seems to have its size.
#[rstest]
#[case::of_1_11(2, 1, false, "ddj")]
#[case::of_1_12(2, 1, true, "ddj")]
#[case::of_1_11_and_an_increase(2, 1, false, "dij")]
#[case::of_1_12_and_an_increase(2, 1, true, "dij")]
fn breaks_in_a_rollout_without_a_wait_for_sizes(
    #[case] nodes: usize,
    #[case] old: usize,
    #[case] copies_to_old: bool,
    #[case] letters: &str,
) {
    let rule = Variant { waits_until_alone: false, ..Variant::default() };
    let found = broken(rule, rollout(nodes, old, copies_to_old, letters)).expect("the rule needs this step");
    println!("{found}");
    assert!(found.what.contains("was taken"), "{}", found.what);
}

#[rstest]
#[case::and_a_replica_without_a_machine(2, 1, "mj")]
#[case::and_a_machine_that_hangs_in_deletion(3, 0, "mf")]
#[case::and_another_delete(2, 1, "dm")]
fn holds_for_requests_of_machines_and_placeholders(
    #[case] nodes: usize,
    #[case] missing: usize,
    #[case] letters: &str,
) {
    holds(Variant::default(), Bounds { nodes, missing, ..bounds(budget(letters)) });
}

#[rstest]
#[case::before_the_log_is_written(3, 0, "ddvva")]
#[case::of_a_decrease(2, 1, "dsjv")]
fn holds_when_callers_leave(#[case] nodes: usize, #[case] pending: usize, #[case] letters: &str) {
    holds(Variant::default(), Bounds { nodes, pending, ..bounds(budget(letters)) });
}
