//! Tests of the program as its users run it: its exit code and its output.

use std::process::{Command, Output};

/// Runs the program, which ends worlds that go on for too long.
fn simulation(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_simulation")).args(arguments).output().expect("the program")
}

fn text(bytes: &[u8]) -> &str {
    str::from_utf8(bytes).expect("text")
}

#[test]
fn a_world_that_has_no_end_breaks_a_rule() {
    // A world of the usual length takes more than a second.
    let output = simulation(&["--seed", "3", "--patience", "1", "--no-shrinking"]);
    let said = text(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{said}{}", text(&output.stderr));
    assert!(said.contains("Endless at 0 ms: the world was still running after 1 s of processor time"), "{said}");
}

/// Returns the decisions of a world of this seed, without the skipped ones.
fn decisions(seed: &str, left_out: &[&str]) -> Vec<String> {
    let mut arguments = vec!["--json", "--seed", seed, "--seconds", "300", "--quiet", "600"];
    for decision in left_out {
        arguments.extend(["--skip", decision]);
    }
    let output = simulation(&arguments);
    let (said, errors) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{said}{errors}");
    let outcome: serde_json::Value = serde_json::from_str(said).expect("an outcome");
    let struck = outcome["struck"].as_array().expect("decisions");
    struck.iter().filter_map(|decision| decision.as_str()).map(str::to_owned).collect()
}

/// Shrinking relies on this: skipping one act shortens the history and changes no other actor's acts.
#[test]
fn an_act_that_is_left_out_shifts_no_other() {
    let is_act = |decision: &&String| decision.starts_with("workloads ") || decision.starts_with("operator ");
    let all = decisions("3", &[]);
    let acts: Vec<_> = all.iter().filter(is_act).collect();
    let left_out = acts.last().expect("an act").as_str();
    let mut expected = acts.clone();
    expected.pop();
    // An actor that skips an act may have time for another one before the end.
    let (actor, _) = left_out.rsplit_once(' ').expect("a number");
    let rest = decisions("3", &[left_out]);
    let (rest, more) = rest.iter().filter(is_act).partition::<Vec<_>, _>(|decision| acts.contains(decision));
    assert_eq!(rest, expected, "without {left_out} of {all:?}");
    assert!(more.iter().all(|decision| decision.starts_with(actor)), "without {left_out}: {more:?}");
}
