//! Tests of the demonstration's output.

#[path = "../../examples/sandbox/callers.rs"]
#[allow(dead_code, reason = "a process of their own isn't started here")]
mod callers;
#[path = "../../examples/sandbox/certificates.rs"]
mod certificates;
#[path = "../../examples/sandbox/demo.rs"]
mod demo;
#[path = "../../examples/sandbox/fleet.rs"]
mod fleet;
#[path = "../../examples/sandbox/options.rs"]
#[allow(dead_code, reason = "that of a process of their own")]
mod options;
#[path = "../../examples/sandbox/scenario.rs"]
mod scenario;
#[path = "../../examples/sandbox/waiting.rs"]
mod waiting;

use std::{
    io::{self, Write},
    path::{Path, PathBuf},
};

use capi_autoscaler_provider::cli::Cli;
use clap::Parser as _;
use fleet::{Callers, Demonstration};
use options::Options;
use regex::Regex;
use server::Shutdown;

fn node_groups() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/node-groups")
}

/// Returns the output of the demonstration, with constants for the parts that vary.
async fn printed(flags: &[&str]) -> String {
    let options = Options::try_parse_from(["sandbox"].iter().chain(flags)).unwrap();
    let mut out = Vec::new();
    demo::run(&options, &node_groups(), &Shutdown::new(), &mut out).await.unwrap();
    let mut text = String::from_utf8(out).unwrap();
    for (pattern, constant) in [
        (r"127\.0\.0\.1:\d+", "127.0.0.1:PORT"),
        (r"\S*/sandbox-\w+/", "FOLDER/"),
        (r"Ready in \d+ ms", "Ready in N ms"),
        (r"(?m)^ +\d+\.\d\d s  ", "  N.NN s  "),
    ] {
        text = Regex::new(pattern).unwrap().replace_all(&text, constant).into_owned();
    }
    text
}

#[tokio::test(flavor = "multi_thread")]
async fn the_demonstration_shows_all_examples_and_scales_one_up_and_down() {
    insta::assert_snapshot!(printed(&["--once"]).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fleet_too_large_for_a_table_is_counted() {
    let text = printed(&["--once", "--groups=40", "--machines=3"]).await;
    // 40 of the fleet and 4 of the examples, with 2 and 1 Nodes, and the Machine of the invalid one.
    assert!(text.contains("\n44 node groups, 124 Machines, 124 Nodes\n"), "{text}");
    assert!(text.ends_with("with its Machine; 0 left\n"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn manifests_that_are_not_there_are_named() {
    let options = Options::try_parse_from(["sandbox", "--once", "--manifests=no/such/folder"]).unwrap();
    let error = demo::run(&options, &node_groups(), &Shutdown::new(), &mut Vec::new()).await.unwrap_err();
    assert!(format!("{error:#}").starts_with("can't read no/such/folder"), "{error:#}");
}

/// Shuts the demonstration down when it has printed a text.
struct EndsAt {
    text: &'static str,
    printed: String,
    shutdown: Shutdown,
}

impl Write for EndsAt {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.printed.push_str(std::str::from_utf8(bytes).unwrap());
        if self.printed.contains(self.text) {
            self.shutdown.request();
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[rstest::rstest]
#[case::with_the_program(&[], "To try next", &["groups --all", "explain --management-kubeconfig", "watch --all-namespaces"])]
#[case::without_it(&["--api-only"], "To start the program", &["serve --management-kubeconfig"])]
#[tokio::test(flavor = "multi_thread")]
async fn the_commands_to_try_next_are_commands_of_the_program(
    #[case] flags: &[&str],
    #[case] heading: &'static str,
    #[case] expected: &[&str],
) {
    let options = Options::try_parse_from(["sandbox"].iter().chain(flags)).unwrap();
    let shutdown = Shutdown::new();
    let mut out = EndsAt { text: heading, printed: String::new(), shutdown: shutdown.clone() };
    demo::run(&options, &node_groups(), &shutdown, &mut out).await.unwrap();
    let commands = out.printed.lines().filter_map(|line| line.trim().strip_prefix("cargo run --release -- "));
    let commands: Vec<_> = commands.map(|line| line.split(" #").next().unwrap_or_default()).collect();
    assert_eq!(commands.len(), expected.len(), "{}", out.printed);
    for (command, expected) in commands.iter().zip(expected) {
        assert!(command.starts_with(expected), "{command}");
        Cli::try_parse_from(["x"].into_iter().chain(command.split_whitespace())).unwrap();
    }
}

/// Runs the demonstration of a fleet.
async fn run_fleet(flags: &[&str], shutdown: &Shutdown, out: &mut (dyn Write + Send)) {
    let options = Options::try_parse_from(["sandbox"].iter().chain(flags)).unwrap();
    let clusters = usize::from(options.clusters.unwrap());
    Demonstration::new(&options, clusters, Callers::Here).run(shutdown, out).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fleet_with_ill_clusters_is_served_and_nothing_crosses() {
    let mut out = Vec::new();
    run_fleet(&["--once", "--clusters=5", "--machines=2", "--ill=40"], &Shutdown::new(), &mut out).await;
    let text = String::from_utf8(out).unwrap();
    for expected in [
        "1 of them are dead",
        "1 of them are hostile",
        " 4 served, with 4 groups and 8 Machines; ",
        "team-000/c0 grows to 4 Nodes; nobody else does",
        "team-000/c0 asks for the group of team-000/c1: NOT_FOUND",
        "team-000/c1 opts out: its next Refresh is denied",
        "team-000/c1 opts in again, and is served",
        "No autoscaler has seen anything of another Cluster",
    ] {
        assert!(text.contains(expected), "no {expected} in {text}");
    }
}

#[rstest::rstest]
#[case::with_the_program(&["--clusters=2", "--machines=1"], "To try next")]
#[case::without_it(&["--clusters=2", "--machines=1", "--api-only"], "To start the program")]
#[tokio::test(flavor = "multi_thread")]
async fn the_command_that_serves_the_fleet_is_one_of_the_program(
    #[case] flags: &[&str],
    #[case] heading: &'static str,
) {
    let shutdown = Shutdown::new();
    let mut out = EndsAt { text: heading, printed: String::new(), shutdown: shutdown.clone() };
    run_fleet(flags, &shutdown, &mut out).await;
    let command = out.printed.lines().find_map(|line| line.trim().strip_prefix("cargo run --release -- "));
    let command = command.unwrap_or_else(|| panic!("{}", out.printed)).split(" #").next().unwrap_or_default();
    assert!(command.starts_with("serve --management-kubeconfig"), "{command}");
    Cli::try_parse_from(["x"].into_iter().chain(command.split_whitespace())).unwrap();
}
