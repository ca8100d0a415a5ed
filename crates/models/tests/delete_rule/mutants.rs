//! Each step of the rule has a mutant without it, and each mutant has a test.

use std::collections::BTreeSet;

const POLICY: &str = include_str!("../../../delete-rule/src/policy.rs");
const VARIANT: &str = include_str!("../../src/variant.rs");
const TESTS: [&str; 2] = [include_str!("main.rs"), include_str!("dimensions.rs")];

/// Returns the words that stand between `before` and `after` in lines of a text.
fn words<'a>(text: &'a str, before: &str, after: &str) -> BTreeSet<&'a str> {
    let word = |line: &'a str| Some(line.trim().strip_prefix(before)?.split_once(after)?.0);
    text.lines().filter_map(word).collect()
}

#[test]
fn the_model_varies_each_step_of_the_policy() {
    let steps = words(POLICY, "fn ", "(self)");
    assert!(steps.len() > 20, "{steps:?}");
    assert_eq!(words(VARIANT, "fn ", "(self)"), steps);
}

#[test]
fn each_mutant_has_a_test() {
    let (types, default) = VARIANT.split_once("impl Default for Variant").expect("a default");
    let default = default.split_once("impl ").expect("an end").0;
    let of =
        |field: &str| default.lines().find_map(|line| line.trim().strip_prefix(&format!("{field}: "))).expect("one");
    let mut mutants = BTreeSet::new();
    for field in words(types, "pub ", ": ") {
        match of(field).trim_end_matches(',').split_once("::") {
            None => assert!(mutants.insert(format!("{field}: false"))),
            Some(("Forgets", _)) => {
                mutants.extend(["Gone", "Deleting", "Absent"].map(|one| format!("{field}: Forgets::{one}")));
            }
            Some((kind, usual)) => {
                let body = types.split_once(&format!("pub enum {kind} {{")).expect("an enum").1;
                let body = body.split_once("\n}").expect("its end").0;
                let others = words(body, "", ",").into_iter().filter(|one| *one != usual && !one.starts_with('/'));
                mutants.extend(others.map(|one| format!("{field}: {kind}::{one}")));
            }
        }
    }
    assert!(mutants.len() > 35, "{mutants:?}");
    mutants.retain(|mutant| !TESTS.iter().any(|test| test.contains(mutant.as_str())));
    assert!(mutants.is_empty(), "without a test: {mutants:?}");
}
