//! Compares the texts of a lack of capacity: the documented ones are those that the program looks for.

use std::collections::BTreeSet;

use nodegroup::exhausted::{CAUSES, Form};

use super::read;

#[test]
fn every_text_of_a_lack_of_capacity_is_documented_by_whether_it_heals() {
    let document = read("docs/reference/failures.md");
    let (heals, lasts) = document.split_once("**A lasting lack**").unwrap();
    for (section, expected) in [(heals, true), (lasts, false)] {
        let documented: BTreeSet<_> =
            section.lines().filter(|line| line.starts_with("| `")).map(str::to_owned).collect();
        let row = |cause: &nodegroup::exhausted::Cause| {
            let form = match cause.form {
                Form::Code => "whole words, letter for letter",
                Form::Phrase => "whole words in upper or lower case",
            };
            format!("| `{}` | {} | {form} |", cause.text, cause.provider)
        };
        let known: BTreeSet<_> = CAUSES.iter().filter(|cause| cause.heals == expected).map(row).collect();
        assert_eq!(documented, known);
    }
}
