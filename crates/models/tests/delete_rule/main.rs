//! The rule holds within small bounds and breaks without any one of its steps; the limits of every rule are shown too.

mod bounds;
mod dimensions;
mod mutants;
mod simple;

use delete_rule::Forgets;
use models::{
    bounds::Bounds,
    variant::{Counts, Deleting, Existence, Follows, OtherMarks, PlaceTests, Precondition, UnmarkTests, Variant},
    world::Set,
};
use rstest::rstest;

use crate::bounds::{bounds, broken, budget, holds};

const ALL: fn() -> Variant = Variant::default;

#[rstest]
#[case::two_copies_and_crashes(3, 0, "ddcc")]
#[case::repeats(3, 0, "dddc")]
#[case::increase(3, 0, "ddci")]
#[case::foreign_delete(3, 0, "ddcf")]
#[case::foreign_size(3, 0, "ddz")]
#[case::refusal(3, 0, "ddcr")]
#[case::decrease(2, 1, "dcs")]
#[case::two_decreases(2, 2, "dss")]
#[case::errors(3, 0, "ddcee")]
#[case::errors_and_a_foreign_delete(3, 0, "ddfe")]
#[case::errors_and_an_increase(3, 0, "ddie")]
#[case::an_error_and_a_decrease(2, 1, "dsej")]
#[case::a_late_mark(3, 0, "ddcrl")]
#[case::joins(2, 1, "ddcj")]
#[case::joins_and_a_decrease(2, 1, "dscj")]
#[case::a_decrease_and_a_foreign_size(2, 1, "dszj")]
fn holds_within_small_bounds(#[case] nodes: usize, #[case] pending: usize, #[case] letters: &str) {
    let bounds = Bounds { nodes, pending, ..bounds(budget(letters)) };
    holds(ALL(), bounds);
}

#[rstest]
#[case::of_deletes(3, 0, "ddcaa")]
#[case::of_a_decrease(2, 1, "dsja")]
#[case::of_an_increase(2, 0, "dizaa")]
fn holds_when_answers_are_lost(#[case] nodes: usize, #[case] pending: usize, #[case] letters: &str) {
    let bounds = Bounds { nodes, pending, ..bounds(budget(letters)) };
    holds(ALL(), bounds);
}

/// Another copy may take back a part of a request that was logged without a response.
#[test]
fn holds_for_requests_that_name_two_and_are_refused_after_a_lost_answer() {
    let bounds = Bounds { nodes: 2, batch: 2, ..bounds(budget("ddra")) };
    holds(ALL(), bounds);
}

#[rstest]
#[case::and_a_refusal(3, 0, "ddra")]
#[case::and_a_machine_that_gets_its_node(2, 1, "ddrj")]
#[case::and_a_foreign_delete(3, 0, "ddcf")]
fn holds_for_deletes_that_join(#[case] nodes: usize, #[case] pending: usize, #[case] letters: &str) {
    let bounds = Bounds { nodes, pending, joins_batches: true, ..bounds(budget(letters)) };
    holds(ALL(), bounds);
}

#[test]
fn holds_for_requests_that_name_two() {
    let bounds = Bounds { batch: 2, ..bounds(budget("ddc")) };
    holds(ALL(), bounds);
}

#[test]
fn holds_when_the_machine_set_controller_deletes_one_by_one() {
    let bounds = Bounds { deletes_one_by_one: true, ..bounds(budget("dddc")) };
    holds(ALL(), bounds);
}

#[rstest]
#[case::two_copies_and_crashes(3, 0, 0, "ddcc")]
#[case::a_foreign_delete_and_an_increase(3, 0, 0, "dfi")]
#[case::errors_and_a_foreign_size(3, 0, 0, "ddez")]
#[case::joins_and_a_decrease(2, 1, 0, "dscj")]
#[case::placeholders(2, 0, 1, "dpj")]
fn holds_for_a_machine_set_that_is_the_group(
    #[case] nodes: usize,
    #[case] pending: usize,
    #[case] missing: usize,
    #[case] letters: &str,
) {
    let bounds = Bounds { is_bare: true, nodes, pending, missing, ..bounds(budget(letters)) };
    holds(ALL(), bounds);
}

#[test]
fn holds_at_min() {
    let bounds = Bounds { min: 2, ..bounds(budget("ddcz")) };
    holds(ALL(), bounds);
}

#[rstest]
#[case::a_replica_without_a_machine(2, 0, 1, "dpj")]
#[case::a_machine_that_hangs_in_deletion(3, 0, 0, "dpf")]
#[case::a_foreign_size_and_a_lost_answer(2, 0, 2, "ppza")]
#[case::a_pending_machine_and_a_decrease(2, 1, 1, "psj")]
fn holds_for_placeholders(#[case] nodes: usize, #[case] pending: usize, #[case] missing: usize, #[case] letters: &str) {
    let bounds = Bounds { nodes, pending, missing, batch: 2, min: 1, ..bounds(budget(letters)) };
    holds(ALL(), bounds);
}

/// If every reconcile of a MachineSet ends with an error, no entry counts as followed by the generation of the last
/// reconcile without an error, and all do by the generation seen.
#[test]
fn entries_never_leave_by_acted_generations_when_reconciles_end_with_errors() {
    let bounds = Bounds { always_errs: true, ..bounds(budget("ddc")) };
    assert!(broken(ALL(), bounds).is_none(), "it must hold by the generation seen");
    let rule = Variant { follows: Follows::CopiedLogAndActed, ..ALL() };
    let found = broken(rule, bounds).expect("entries stay for ever");
    println!("{found}");
    assert!(found.what.contains("still in the log"), "{}", found.what);
}

#[test]
fn holds_by_acted_generations_while_errors_pass() {
    let rule = Variant { follows: Follows::CopiedLogAndActed, ..ALL() };
    if let Some(broken) = broken(rule, bounds(budget("ddfe"))) {
        panic!("it breaks:\n{broken}");
    }
}

#[rstest]
#[case::marks_again_what_has_an_entry(Variant { other_marks: OtherMarks::TakenOff, ..ALL() }, "ddrl", "was taken")]
#[case::the_version_as_precondition_of_taking_off(Variant { unmark_tests: UnmarkTests::Value, ..ALL() }, "ddrl", "was taken")]
fn breaks_when_a_mark_lands_late_without(#[case] rule: Variant, #[case] letters: &str, #[case] what: &str) {
    let bounds = Bounds { admits_known: false, may_be_named: Some(Set::one(1)), ..bounds(budget(letters)) };
    assert!(broken(ALL(), bounds).is_none(), "it must hold with all steps");
    let found = broken(rule, bounds).expect("the rule needs this step");
    println!("{found}");
    assert!(found.what.contains(what), "{}", found.what);
}

#[rstest]
#[case::a_named_machine("dj")]
#[case::a_smaller_target_size("sj")]
fn breaks_when_a_machine_that_has_joined_is_marked(#[case] letters: &str) {
    let bounds = Bounds { nodes: 2, pending: 1, ..bounds(budget(letters)) };
    let found = broken(Variant { marks_only_unjoined: false, ..ALL() }, bounds).expect("the rule needs this step");
    println!("{found}");
    assert!(found.what.contains("had its Node before it was marked"), "{}", found.what);
}

#[test]
fn breaks_when_a_soft_entry_leaves_before_the_machines_are_down() {
    let bounds = Bounds { nodes: 2, pending: 1, ..bounds(budget("sje")) };
    assert!(broken(ALL(), bounds).is_none(), "it must hold when it waits");
    let found = broken(Variant { soft_waits: false, ..ALL() }, bounds).expect("the rule needs this step");
    println!("{found}");
    assert!(found.what.contains("was taken"), "{}", found.what);
}

#[rstest]
#[case::a_count_after_a_failed_write(Variant { counts: Counts::Once, ..ALL() }, 0, 1, "dpj")]
#[case::a_fresh_list(Variant { counts: Counts::ByCache, ..ALL() }, 0, 1, "pj")]
#[case::the_log(Variant { counts: Counts::WithoutLog, ..ALL() }, 0, 0, "dpf")]
#[case::soft_entries_as_staying(Variant { counts: Counts::SoftAsLeaving, ..ALL() }, 1, 0, "psjf")]
#[case::a_list_after_the_view(Variant { place_tests: PlaceTests::SizeAfterList, ..ALL() }, 0, 1, "dpj")]
fn breaks_for_placeholders_without(
    #[case] rule: Variant,
    #[case] pending: usize,
    #[case] missing: usize,
    #[case] letters: &str,
) {
    let bounds = Bounds { nodes: 2, pending, missing, batch: 2, merges_copies: false, ..bounds(budget(letters)) };
    assert!(broken(ALL(), bounds).is_none(), "it must hold with all steps");
    let found = broken(rule, bounds).expect("the rule needs this step");
    println!("{found}");
}

#[test]
fn breaks_for_placeholders_when_only_the_size_is_tested() {
    let strict = Bounds { admits_known: false, may_be_named: Some(Set::one(0)), ..bounds(budget("dpf")) };
    let bounds = Bounds { nodes: 2, merges_copies: false, ..strict };
    assert!(broken(ALL(), bounds).is_none(), "it must hold with all steps");
    let found = broken(Variant { place_tests: PlaceTests::Size, ..ALL() }, bounds).expect("the rule needs this step");
    println!("{found}");
    assert!(found.what.contains("was taken"), "{}", found.what);
}

#[test]
fn breaks_when_a_lost_answer_is_not_cleared_up() {
    let bounds = Bounds { nodes: 2, missing: 2, ..bounds(budget("pa")) };
    let found = broken(Variant { knows_own_writes: false, ..ALL() }, bounds).expect("the rule needs this step");
    println!("{found}");
    assert!(found.what.contains("more placeholders"), "{}", found.what);
}

/// The count of Machines that go by themselves also catches views that are out of date.
const WITHOUT_COUNTS: fn() -> Variant = || Variant { counts_deleted_elsewhere: false, ..ALL() };

#[rstest]
#[case::values_as_precondition(Variant { precondition: Precondition::Values, ..ALL() }, "ddi", "twice")]
#[case::no_precondition(Variant { precondition: Precondition::Nothing, ..ALL() }, "dd", "")]
#[case::any_cache_shows_that_it_exists(Variant { existence: Existence::AnyCache, ..WITHOUT_COUNTS() }, "dd", "twice")]
#[case::a_cache_shows_as_existing_what_left_the_log(Variant { existence: Existence::CacheOfWhatLeft, ..WITHOUT_COUNTS() }, "dd", "twice")]
#[case::the_log_is_the_read(Variant { existence: Existence::Log, ..WITHOUT_COUNTS() }, "dd", "twice")]
#[case::the_mark_is_the_read(Variant { existence: Existence::Mark, ..ALL() }, "dddc", "wasn't lowered")]
#[case::no_marks(Variant { marks: false, ..ALL() }, "d", "was taken")]
#[case::only_the_author_carries_on(Variant { carries_on: false, ..ALL() }, "dc", "still in the log")]
#[case::follows_before_it_is_observed(Variant { follows: Follows::CopiedLog, ..ALL() }, "dd", "was taken")]
#[case::follows_at_once(Variant { follows: Follows::AtOnce, ..ALL() }, "dd", "was taken")]
#[case::no_finisher(Variant { finishes: false, ..ALL() }, "df", "still there")]
#[case::no_wait_for_others(Variant { waits_for_others: false, ..ALL() }, "ddd", "was taken")]
#[case::forgets_before_it_is_followed(Variant { forgets: Forgets::Gone, ..ALL() }, "ddd", "was taken")]
#[case::forgets_what_is_deleting(Variant { forgets: Forgets::Deleting, ..ALL() }, "ddd", "was taken")]
#[case::forgets_what_the_cache_lacks(Variant { forgets: Forgets::Absent, ..ALL() }, "dif", "still there")]
#[case::leaves_marks(Variant { cleans_marks: false, ..ALL() }, "dr", "still marked")]
fn breaks_without(#[case] rule: Variant, #[case] letters: &str, #[case] what: &str) {
    // The search stays small because the third Machine is never named.
    let may_be_named = Some(Set::one(0) | Set::one(1) | Set::one(3));
    let bounds = Bounds { merges_copies: false, may_be_named, ..bounds(budget(letters)) };
    let found = broken(rule, bounds).expect("the rule needs this step");
    println!("{found}");
    assert!(found.what.contains(what), "it breaks in another way than it should: {}", found.what);
}

#[test]
fn breaks_when_marks_come_before_the_log() {
    let bounds = Bounds { copies: 1, ..bounds(budget("ddc")) };
    let found = broken(Variant { logs_first: false, ..ALL() }, bounds).expect("the rule needs this step");
    println!("{found}");
    assert!(found.what.contains("was taken"), "{}", found.what);
}

/// Somebody else deletes `a`, which is replaced by `d`, and a cache still has `a` when it is named.
#[test]
fn breaks_when_what_goes_by_itself_is_not_counted() {
    let bounds = Bounds { nodes: 2, may_be_named: Some(Set::one(0)), ..bounds(budget("dfj")) };
    assert!(broken(ALL(), bounds).is_none(), "it must hold with all steps");
    let found = broken(Variant { counts_deleted_elsewhere: false, ..ALL() }, bounds).expect("the rule needs this step");
    println!("{found}");
    assert!(found.what.contains("was taken"), "{}", found.what);
}

#[test]
fn breaks_when_the_gain_of_an_entry_outdates_no_cache() {
    let may_be_named = Some(Set::one(0) | Set::one(1));
    let bounds = Bounds { merges_copies: false, may_be_named, ..bounds(budget("ddfz")) };
    let rule = Variant { existence: Existence::CacheBeforeEntries, ..WITHOUT_COUNTS() };
    let found = broken(rule, bounds).expect("the rule needs this step");
    println!("{found}");
    assert!(found.what.contains("was taken"), "{}", found.what);
}

#[test]
fn breaks_when_the_leaving_of_a_soft_entry_outdates_no_cache() {
    let bounds = Bounds { nodes: 1, pending: 2, may_be_named: Some(Set::one(2)), ..bounds(budget("dssf")) };
    let rule = Variant { existence: Existence::CacheBeforeSoftEntriesLeft, ..WITHOUT_COUNTS() };
    let found = broken(rule, bounds).expect("the rule needs this step");
    println!("{found}");
    assert!(found.what.contains("was taken"), "{}", found.what);
}

#[test]
fn breaks_without_tickets() {
    let bounds = Bounds { nodes: 1, pending: 2, may_be_named: Some(Set::one(1)), ..bounds(budget("dssf")) };
    let found = broken(Variant { has_tickets: false, ..ALL() }, bounds).expect("the rule needs this step");
    println!("{found}");
    assert!(found.what.contains("was taken"), "{}", found.what);
}

#[test]
fn breaks_when_equal_sizes_are_taken_for_the_same_size() {
    let bounds = Bounds { lag: 3, merges_copies: false, ..bounds(budget("dij")) };
    assert!(broken(ALL(), bounds).is_none(), "it must hold by the copied log");
    let found = broken(Variant { follows: Follows::EqualSizes, ..ALL() }, bounds).expect("the rule needs this step");
    println!("{found}");
    assert!(found.what.contains("was taken"), "{}", found.what);
}

#[test]
fn breaks_when_every_deleting_machine_lowers_the_size() {
    let bounds = Bounds { nodes: 2, pending: 1, merges_copies: false, ..bounds(budget("ds")) };
    let found =
        broken(Variant { deleting: Deleting::AlwaysLowers, ..ALL() }, bounds).expect("the rule needs this step");
    println!("{found}");
    assert!(found.what.contains("was taken"), "{}", found.what);
}

#[rstest]
#[case::a_named_machine_is_replaced_before_the_machine_set_follows(Bounds { admits_known: false, ..bounds(budget("ddf")) })]
#[case::a_replacement_has_joined(Bounds { admits_known: false, may_be_named: Some(Set::one(0)), ..bounds(budget("dfj")) })]
#[case::a_machine_has_come_into_a_placeholders_place(Bounds { admits_known: false, nodes: 2, missing: 1, ..bounds(budget("pj")) })]
#[case::the_machine_set_controller_forgets_its_own_deletes_after_an_error(Bounds { forgets_own_writes: true, ..bounds(budget("ddej")) })]
#[case::the_machine_set_controller_misses_a_mark(Bounds { sees_marks: false, ..bounds(budget("d")) })]
#[case::another_smaller_size_takes_a_machine_that_is_refused(Bounds { admits_known: false, ..bounds(budget("ddr")) })]
fn no_rule_can_promise_that(#[case] bounds: Bounds) {
    let found = broken(ALL(), Bounds { merges_copies: false, ..bounds }).expect("this can't be promised");
    println!("{found}");
    assert!(found.what.contains("was taken"), "{}", found.what);
}
