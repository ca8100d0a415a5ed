//! Tests of the demonstration's output. It runs as the example that `cargo test` has built.

use std::{
    env,
    path::Path,
    process::{Command, Output},
};

use capi_autoscaler_provider::cli::Cli;
use clap::{CommandFactory as _, Parser as _};
use regex::Regex;
use testkit::Piped;

fn demonstration(flags: &[&str]) -> Command {
    let program = Path::new(env!("CARGO_BIN_EXE_capi-autoscaler-provider"));
    let example = program.with_file_name("examples").join("sandbox");
    assert!(example.exists(), "no {}: `cargo test` builds it, or `cargo build --example sandbox`", example.display());
    let mut command = Command::new(example);
    command.args(flags);
    command
}

/// Returns the output of the demonstration, which runs to its end.
fn printed(flags: &[&str]) -> String {
    let Output { status, stdout, stderr } = demonstration(flags).arg("--once").output().unwrap();
    assert!(status.success(), "{}", String::from_utf8_lossy(&stderr));
    String::from_utf8(stdout).unwrap()
}

#[test]
fn the_demonstration_shows_all_examples_and_scales_one_up_and_down() {
    let mut text = printed(&[]);
    for (pattern, constant) in [
        (r"127\.0\.0\.1:\d+", "127.0.0.1:PORT"),
        (r"\S*/sandbox-\w+/", "FOLDER/"),
        (r"Ready in \d+ ms", "Ready in N ms"),
        (r"(?m)^ +\d+\.\d\d s  ", "  N.NN s  "),
    ] {
        text = Regex::new(pattern).unwrap().replace_all(&text, constant).into_owned();
    }
    insta::assert_snapshot!(text);
}

#[test]
fn a_fleet_with_clusters_of_each_ailment_is_served_and_nothing_crosses() {
    let text = printed(&["--clusters=6", "--machines=2", "--ill=67"]);
    for expected in [
        "1 of them are dead",
        "1 of them are hostile",
        "1 of them never answer",
        "1 of them are slow",
        "6 autoscalers with a certificate each, in a process of their own, make their loops",
        " 4 served, with 4 groups and 8 Machines; ",
        "team-000/c0 grows to 4 Nodes; nobody else does",
        "team-000/c0 asks for the group of team-000/c3: NOT_FOUND",
        "team-000/c3 opts out: its next Refresh is denied",
        "team-000/c3 opts in again, and is served",
        "No autoscaler has seen anything of another Cluster",
    ] {
        assert!(text.contains(expected), "no {expected} in {text}");
    }
}

/// Returns the commands in a text that begin so, without their beginning and their comments.
fn commands<'a>(text: &'a str, beginning: &str) -> Vec<&'a str> {
    let commands = text.lines().filter_map(|line| line.trim().strip_prefix(beginning));
    commands.map(|line| line.split(" #").next().unwrap_or_default()).collect()
}

#[rstest::rstest]
#[case::with_the_program(&[], "To try next", &["groups --all", "explain --management-kubeconfig", "watch --all-namespaces"])]
#[case::without_it(&["--api-only"], "To start the program", &["serve --management-kubeconfig"])]
#[case::a_fleet_with_the_program(
    &["--clusters=2", "--machines=1"],
    "To try next",
    &["clusters --server http://", "groups --all --cluster=team-000/c0 --server http://", "explain --cluster=team-000/c0",
      "check --cluster=team-000/c0", "watch --cluster=team-000/c0", "serve --management-kubeconfig"],
)]
#[case::a_fleet_without_it(
    &["--clusters=2", "--machines=1", "--api-only"],
    "To start the program",
    &["serve --management-kubeconfig"],
)]
fn the_commands_to_try_next_are_commands_of_the_program(
    #[case] flags: &[&str],
    #[case] heading: &str,
    #[case] expected: &[&str],
) {
    let mut demonstration = Piped::start(&mut demonstration(flags));
    let mut text = demonstration.line();
    assert_eq!(text.starts_with("Status page: http://127.0.0.1:"), heading == "To try next", "{text}");
    while !text.contains(heading) {
        text = demonstration.line();
    }
    let first = demonstration.line();
    let (program, _) = first.trim().split_once(' ').unwrap();
    let version = Command::new(program).arg("--version").output().unwrap();
    assert_eq!(String::from_utf8(version.stdout).unwrap().trim(), Cli::command().render_version().trim());
    // It prints all of them before it looks whether it shall end.
    demonstration.process().signal("TERM");
    let text = format!("{first}\n{}", demonstration.rest());
    assert!(!text.contains("cargo "), "a command needs another build: {text}");
    let commands = commands(&text, &format!("{program} "));
    assert_eq!(commands.len(), expected.len(), "{text}");
    for (command, expected) in commands.iter().zip(expected) {
        assert!(command.starts_with(expected), "{command}");
        Cli::try_parse_from(["x"].into_iter().chain(command.split_whitespace())).unwrap();
    }
    if expected[0].starts_with("clusters") {
        assert!(text.contains("/examples/sandbox --clusters 2 --machines 1 --ill 30 "), "{text}");
    }
}
