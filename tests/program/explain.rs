//! Tests of `explain` as a shell runs it: its output about manifests and clusters, its exit codes, and that the
//! documentation shows its output.

use std::{
    fs,
    io::Write as _,
    path::Path,
    process::{Command, Output, Stdio},
};

use rstest::rstest;
use sandbox::{Sandbox, SandboxOptions, faults::Fault, read_manifests};
use serde_json::Value;

/// Returns the command without the environment of the test run, which must not choose a cluster.
fn command(flags: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_capi-autoscaler-provider"));
    command.arg("explain").args(flags).env_clear().current_dir(env!("CARGO_MANIFEST_DIR"));
    command
}

fn explain(flags: &[&str]) -> Output {
    command(flags).output().unwrap()
}

fn printed(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn said(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

#[rstest]
#[case::all_is_well(&["-f", "examples/explain", "system"], 0, "")]
#[case::invalid(&["-f", "examples/explain"], 1, "error: 2 node groups are invalid")]
#[case::unknown(&["-f", "examples/explain", "work"], 2, "error: no node group is \"work\": there is MachineDeployment/team-a/")]
#[case::no_such_file(&["-f", "examples/nothing"], 2, "error: can't read the manifests examples/nothing")]
#[case::a_wrong_flag(&["--colour"], 2, "unexpected argument")]
#[case::no_cluster(&["--management-kubeconfig", "/nonexistent/config"], 2, "management cluster: kubeconfig file")]
#[case::no_server(&["--management-kubeconfig", "KUBECONFIG", "--timeout", "300ms"], 2, "management/api-server: connection refused by http://127.0.0.1:1; ")]
fn the_exit_code_shows_a_check_what_is_wrong(#[case] flags: &[&str], #[case] code: i32, #[case] part: &str) {
    let directory = tempfile::tempdir().unwrap();
    let kubeconfig = directory.path().join("config");
    // A loopback port without a listener.
    fs::write(&kubeconfig, sandbox::kubeconfig::kubeconfig("http://127.0.0.1:1")).unwrap();
    let flags: Vec<_> =
        flags.iter().map(|flag| if *flag == "KUBECONFIG" { kubeconfig.to_str().unwrap() } else { flag }).collect();
    let output = explain(&flags);
    assert_eq!(output.status.code(), Some(code), "{}", said(&output));
    assert!(said(&output).contains(part), "{}", said(&output));
}

/// The names of files must not send control sequences to the terminal of the user who checks them.
#[cfg(unix)]
#[test]
fn an_error_steers_no_terminal() {
    let directory = tempfile::tempdir().unwrap();
    let name = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    std::os::unix::fs::symlink("nowhere", name("\u{1b}[2J.yaml")).unwrap();
    let output = explain(&["-f", &name("")]);
    assert_eq!(output.status.code(), Some(2), "{}", said(&output));
    assert!(said(&output).contains("\\u{1b}") && !said(&output).contains('\u{1b}'), "{:?}", said(&output));
}

#[test]
fn standard_input_is_read_as_a_file_is() {
    let mut child = command(&["-f", "-", "system"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(&fs::read("examples/explain/dump.yaml").unwrap()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(printed(&output), printed(&explain(&["-f", "examples/explain/dump.yaml", "system"])));
    assert_eq!(output.status.code(), Some(0));
}

/// The commands of docs/reference/explain.md, each with what is printed below it. `UPDATE_DOCS=1 cargo test --test
/// program explain::` writes them anew.
#[test]
fn the_documentation_shows_what_is_printed() {
    const PROMPT: &str = "$ capi-autoscaler-provider explain ";
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/reference/explain.md");
    let text = fs::read_to_string(&path).unwrap();
    let mut shown = 0;
    let blocks: Vec<_> = text
        .split("```")
        .map(|block| {
            let Some(command) = block.strip_prefix("console\n").and_then(|block| block.strip_prefix(PROMPT)) else {
                return block.to_owned();
            };
            shown += 1;
            let command = command.lines().next().unwrap();
            let flags: Vec<_> = command.split(' ').collect();
            format!("console\n{PROMPT}{command}\n{}", printed(&explain(&flags)))
        })
        .collect();
    let printed = blocks.join("```");
    if std::env::var_os("UPDATE_DOCS").is_some() {
        fs::write(&path, &printed).unwrap();
    } else {
        assert_eq!(text, printed, "write it anew: UPDATE_DOCS=1 cargo test --test program explain::");
    }
    assert!(shown > 1);
}

/// The groups of the examples without Machines, whose output would vary.
const FILES: [&str; 4] =
    ["cluster.yaml", "from-zero-by-annotations.yaml", "from-zero-by-status-capacity.yaml", "paused.yaml"];

#[tokio::test(flavor = "multi_thread")]
async fn of_clusters_the_same_is_reported_as_of_their_manifests() {
    let files = FILES.map(|file| format!("{}/examples/node-groups/{file}", env!("CARGO_MANIFEST_DIR")));
    let manifests = files.iter().flat_map(|file| read_manifests(Path::new(file)).unwrap()).collect();
    let sandbox = Sandbox::start(SandboxOptions { manifests, ..SandboxOptions::default() }).await.unwrap();
    let kubeconfig = sandbox.management_kubeconfig().display().to_string();
    let of_clusters = ["--cluster", "team-a/prod", "--management-kubeconfig", &kubeconfig, "--timeout", "60s"];
    let of_files: Vec<_> = files.iter().flat_map(|file| ["-f", file]).chain(["--cluster", "team-a/prod"]).collect();
    for more in [&["--all", "-o", "json"][..], &["-o", "node"], &["md/team-a/prod-gpu"]] {
        let flags = [&of_clusters[..], more].concat();
        let live = tokio::task::spawn_blocking({
            let flags: Vec<_> = flags.iter().map(|flag| (*flag).to_owned()).collect();
            move || explain(&flags.iter().map(String::as_str).collect::<Vec<_>>())
        });
        let live = live.await.unwrap();
        let expected = explain(&[&of_files[..], more].concat());
        assert_eq!(comparable(&printed(&live)), comparable(&printed(&expected)), "{}", said(&live));
        assert_eq!(live.status.code(), Some(0), "{}", said(&live));
    }
    sandbox.stop().await;
}

/// Waiting is in vain, so nothing waits for --timeout.
#[rstest]
#[case::a_cluster(
    "team-a/prdo",
    "error: Cluster team-a/prdo isn't there: correct --cluster or ",
    "there is team-a/prod\n"
)]
#[case::a_namespace("team-b/prod", "error: Cluster team-b/prod isn't there: ", "there is none in namespace team-b\n")]
#[case::its_secret("team-a/prod", "error: Secret team-a/prod-kubeconfig: not found: ", "explains without Nodes\n")]
#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_or_a_secret_that_is_not_there_is_said_at_once(
    #[case] cluster: &str,
    #[case] begin: &str,
    #[case] end: &str,
) {
    let file = format!("{}/examples/node-groups/cluster.yaml", env!("CARGO_MANIFEST_DIR"));
    let manifests = read_manifests(Path::new(&file)).unwrap();
    let sandbox = Sandbox::start(SandboxOptions { manifests, ..SandboxOptions::default() }).await.unwrap();
    sandbox.management().faults().add(Fault::refuse(404, "NotFound", "no such Secret").on_path("/secrets/").unwrap());
    let kubeconfig = sandbox.management_kubeconfig().display().to_string();
    let mut command = command(&["--cluster", cluster, "--kubeconfig", &kubeconfig, "--timeout", "1h"]);
    let output = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
    assert_eq!(output.status.code(), Some(2), "{}", said(&output));
    assert!(said(&output).starts_with(begin) && said(&output).ends_with(end), "{}", said(&output));
    sandbox.stop().await;
}

/// Removes the expected differences: manifests may contain documents that are no objects, and the cluster's controllers
/// create MachineSets.
fn comparable(printed: &str) -> String {
    let Ok(mut report) = serde_json::from_str::<Value>(printed) else { return printed.to_owned() };
    report.as_object_mut().unwrap().remove("skipped");
    let left_out = report["leftOut"].as_array_mut().unwrap();
    left_out.retain(|object| object["reason"] != "owned_by_machine_deployment");
    assert!(!left_out.is_empty());
    report.to_string()
}
