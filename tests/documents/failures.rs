//! Compares the texts of a lack of capacity: the documented ones are those that the program looks for.

use std::collections::BTreeSet;

use rules::{
    TERMINAL,
    failure::{CAUSES, Form},
};

use super::read;

#[test]
fn every_text_of_a_lack_of_capacity_is_documented_with_its_source_by_whether_it_heals() {
    let document = read("docs/reference/failures.md");
    let (heals, lasts) = document.split_once("**A lasting lack**").unwrap();
    for (section, expected) in [(heals, true), (lasts, false)] {
        let documented: BTreeSet<_> =
            section.lines().filter(|line| line.starts_with("| `")).map(str::to_owned).collect();
        let row = |cause: &rules::failure::Cause| {
            let form = match cause.form {
                Form::Code => "exact",
                Form::Phrase => "any case",
            };
            format!("| `{}` | {} | {form} | `{}` |", cause.text, cause.provider, cause.source)
        };
        let known: BTreeSet<_> = CAUSES.iter().filter(|cause| cause.heals == expected).map(row).collect();
        assert_eq!(documented, known);
    }
}

#[test]
fn every_reason_after_which_a_machine_never_comes_is_documented_with_its_source() {
    let document = read("docs/reference/failures.md");
    let (_, table) = document.split_once("| provider | text | source |\n|---|---|---|\n").unwrap();
    let documented: BTreeSet<_> = table.lines().take_while(|line| !line.is_empty()).map(str::to_owned).collect();
    let row = |it: &rules::Terminal| format!("| {} | `{}` | `{}` |", it.provider, it.text, it.source);
    assert_eq!(documented, TERMINAL.iter().map(row).collect());
}
