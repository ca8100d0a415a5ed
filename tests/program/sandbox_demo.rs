//! Tests of the demonstration's output.

#[path = "../../examples/sandbox/callers.rs"]
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
    env,
    io::{self, Write},
    path::{Path, PathBuf},
    process::Command,
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

/// Returns the commands in a text that begin so, without their beginning and their comments.
fn commands<'a>(text: &'a str, beginning: &str) -> Vec<&'a str> {
    let commands = text.lines().filter_map(|line| line.trim().strip_prefix(beginning));
    commands.map(|line| line.split(" #").next().unwrap_or_default()).collect()
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
    let commands = commands(&out.printed, "cargo run --release -- ");
    assert_eq!(commands.len(), expected.len(), "{}", out.printed);
    for (command, expected) in commands.iter().zip(expected) {
        assert!(command.starts_with(expected), "{command}");
        Cli::try_parse_from(["x"].into_iter().chain(command.split_whitespace())).unwrap();
    }
}

/// Runs the demonstration of a fleet.
async fn run_fleet(flags: &[&str], callers: Callers, shutdown: &Shutdown, out: &mut (dyn Write + Send)) {
    let options = Options::try_parse_from(["sandbox"].iter().chain(flags)).unwrap();
    let clusters = usize::from(options.clusters.unwrap());
    Demonstration::new(&options, clusters, callers).run(shutdown, out).await.unwrap();
}

/// Runs the demonstration of a fleet to its end, and checks that its output has these parts.
async fn assert_printed(flags: &[&str], callers: Callers, parts: &[&str]) {
    let mut out = Vec::new();
    run_fleet(flags, callers, &Shutdown::new(), &mut out).await;
    let text = String::from_utf8(out).unwrap();
    for expected in parts {
        assert!(text.contains(expected), "no {expected} in {text}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fleet_with_clusters_of_each_ailment_is_served_and_nothing_crosses() {
    let parts = [
        "1 of them are dead",
        "1 of them are hostile",
        "1 of them never answer",
        "1 of them are slow",
        " 4 served, with 4 groups and 8 Machines; ",
        "team-000/c0 grows to 4 Nodes; nobody else does",
        "team-000/c0 asks for the group of team-000/c3: NOT_FOUND",
        "team-000/c3 opts out: its next Refresh is denied",
        "team-000/c3 opts in again, and is served",
        "No autoscaler has seen anything of another Cluster",
    ];
    assert_printed(&["--once", "--clusters=6", "--machines=2", "--ill=67"], Callers::Here, &parts).await;
}

/// The variable with the folder of the plan, for the process of the autoscalers.
const FOLDER: &str = "SANDBOX_CALLERS";

/// Returns the command that starts this test program as the process of the autoscalers.
fn callers_process(folder: &Path) -> io::Result<Command> {
    let mut command = Command::new(env::current_exe()?);
    let test = ["sandbox_demo::autoscalers_of_a_process", "--exact", "--ignored", "--nocapture"];
    command.args(test).env(FOLDER, folder);
    Ok(command)
}

/// Plays the autoscalers, as the example does with `--callers`. Lines of the test harness are no reports.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "it is the process that the next test starts"]
async fn autoscalers_of_a_process() {
    if let Some(folder) = env::var_os(FOLDER) {
        callers::process(Path::new(&folder)).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn autoscalers_in_a_process_of_their_own_are_served_and_nothing_crosses() {
    let parts = [
        "3 autoscalers with a certificate each, in a process of their own, make their loops",
        " 3 served, with 3 groups and 6 Machines; ",
        "team-000/c1 opts in again, and is served",
        "No autoscaler has seen anything of another Cluster",
    ];
    let flags = ["--once", "--clusters=3", "--machines=2"];
    assert_printed(&flags, Callers::Process(callers_process), &parts).await;
}

#[rstest::rstest]
#[case::with_the_program(
    &["--clusters=2", "--machines=1"],
    "To try next",
    &["clusters --server http://", "groups --all --cluster=team-000/c0 --server http://", "explain --cluster=team-000/c0",
      "check --cluster=team-000/c0", "watch --cluster=team-000/c0", "serve --management-kubeconfig"],
)]
#[case::without_it(
    &["--clusters=2", "--machines=1", "--api-only"],
    "To start the program",
    &["serve --management-kubeconfig"],
)]
#[tokio::test(flavor = "multi_thread")]
async fn the_commands_to_try_next_with_a_fleet_are_commands_of_the_program(
    #[case] flags: &[&str],
    #[case] heading: &'static str,
    #[case] expected: &[&str],
) {
    let shutdown = Shutdown::new();
    let mut out = EndsAt { text: heading, printed: String::new(), shutdown: shutdown.clone() };
    run_fleet(flags, Callers::Here, &shutdown, &mut out).await;
    let commands = commands(&out.printed, "cargo run --release -- ");
    assert_eq!(commands.len(), expected.len(), "{}", out.printed);
    for (command, expected) in commands.iter().zip(expected) {
        assert!(command.starts_with(expected), "{command}");
        Cli::try_parse_from(["x"].into_iter().chain(command.split_whitespace())).unwrap();
    }
    if heading == "To try next" {
        let page = Regex::new(r"(?m)^  http://127\.0\.0\.1:\d+/ +# the status page").unwrap();
        assert!(page.is_match(&out.printed), "{}", out.printed);
        let anew = self::commands(&out.printed, "cargo run --release --example sandbox -- ");
        let options = Options::try_parse_from(["sandbox"].into_iter().chain(anew[0].split_whitespace())).unwrap();
        assert_eq!((options.clusters, options.machines), (Some(2), Some(1)));
        assert!(options.ill > 0);
    }
}
