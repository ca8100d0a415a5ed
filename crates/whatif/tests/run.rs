//! Whole runs on the examples, first those that answer the questions of `docs/how-to/what-if.md`. A driver plays
//! Cluster Autoscaler, or the first binary that `CLUSTER_AUTOSCALER` names.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::{
    env,
    fs::{self, Permissions},
    os::unix::fs::PermissionsExt as _,
    path::Path,
    process::{Command, Stdio},
    time::Duration,
};

use rstest::rstest;
use serde_json::{Value, json};
use testkit::{Process, Wait};
use whatif::{Answer, Change, Ended, Group, Options, Player, Report, run};

/// The DaemonSet of the dump. The driver doesn't know DaemonSets, and would move its Pods.
const DAEMON_SET: &str = "daemonset/kube-system/log-agent";

/// The annotations of a group with one Node at most.
const MAX_OF_ONE: &str = r#"{"cluster.x-k8s.io/cluster-api-autoscaler-node-group-max-size":"1"}"#;
/// The annotations of a group whose taint the Jobs don't tolerate.
const OTHER_TAINT: &str = r#"{"capacity.cluster-autoscaler.kubernetes.io/taints":"other=team:NoSchedule"}"#;
/// The annotations of a group whose Nodes cost less than all others.
const CHEAP: &str = r#"{"capacity.capi-autoscaler-provider.io/price-per-hour":"0.10"}"#;

/// Returns who plays Cluster Autoscaler.
fn player() -> Player {
    let named = env::var_os("CLUSTER_AUTOSCALER").unwrap_or_default();
    let binary = env::split_paths(&named).find(|path| !path.as_os_str().is_empty());
    binary.map_or(Player::Driver, Player::Binary)
}

/// Returns the number of Pods that the DaemonSet has on each Node.
fn daemons() -> usize {
    usize::from(player() != Player::Driver)
}

fn example(name: &str) -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/whatif").join(name).display().to_string()
}

fn options(changes: Vec<Change>) -> Options {
    let player = player();
    // A binary has fixed waits: the faster time goes, the longer they look.
    let (without, speed) = match player {
        Player::Driver => (Some(Change::remove(DAEMON_SET).unwrap()), 600),
        Player::Binary(_) => (None, 60),
    };
    Options {
        manifests: vec![example("dump.yaml")],
        changes: without.into_iter().chain(changes).collect(),
        cluster: None,
        prices: None,
        until: Duration::from_secs(12 * 3600),
        speed,
        machine_time: None,
        player,
        scheduler: None,
        // Older versions choose at random by default. The driver always chooses by the least waste.
        flags: vec!["--expander=least-waste".to_owned()],
        logs: None,
    }
}

async fn answer(changes: Vec<Change>) -> Report {
    answer_to(&options(changes)).await
}

async fn answer_to(options: &Options) -> Report {
    let report = run(options, &mut |_| {}).await.unwrap();
    assert_eq!(report.ended, Ended::Quiet, "{report:#?}");
    report
}

/// Adds three Jobs of 6 CPUs and 24 GiB, which tolerate the taint of the group `batch`.
fn jobs() -> Change {
    Change::add(&format!("3x{}", example("job.yaml")))
}

/// Changes the annotations of a group.
fn annotate(group: &str, annotations: &str) -> Change {
    Change::patch(&format!(r#"md/team-a/{group}={{"metadata":{{"annotations":{annotations}}}}}"#)).unwrap()
}

/// Returns the annotations of a group whose Nodes have so many CPUs, and 4 GiB for each.
fn capacity(cpus: u32) -> String {
    let (of, memory) = ("capacity.cluster-autoscaler.kubernetes.io", 4 * cpus);
    format!(r#"{{"{of}/cpu":"{cpus}","{of}/memory":"{memory}Gi"}}"#)
}

/// Changes the size of the Deployment of the dump.
fn scale_web(replicas: usize) -> Change {
    Change::patch(&format!(r#"deployment/shop/web={{"spec":{{"replicas":{replicas}}}}}"#)).unwrap()
}

fn group_of<'a>(report: &'a Report, name: &str) -> &'a Group {
    let id = format!("MachineDeployment/team-a/{name}");
    report.groups.iter().find(|group| group.id == id).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn does_this_job_scale_from_zero_and_in_which_group() {
    let report = answer(vec![jobs()]).await;
    assert_eq!(report.answer(), Answer::Yes, "{report:#?}");
    assert_eq!((report.running, report.finished), (6 + 3 * daemons(), 3));
    let grew = "MachineDeployment/team-a/batch: size 0 → ";
    assert!(report.timeline.iter().any(|entry| entry.what.starts_with(grew)), "{:#?}", report.timeline);
    let batch = group_of(&report, "batch");
    assert_eq!((batch.before, batch.most, batch.after, batch.price_per_hour), (0, 3, 0, Some(0.35)));
    assert_eq!(group_of(&report, "large").most, 0, "it would waste more");
}

/// An expander, what changes of a group, and the most Nodes of `batch` and of `large`. Three Jobs need three Nodes of
/// `batch`, or two of `large`. With 12 CPUs a Node of `batch` still takes one Job, because of the DaemonSet, and wastes
/// more than `large`.
#[rstest]
#[case::price("price", annotate("batch", "{}"), (3, 0))]
#[case::price_of_a_cheaper_group("price", annotate("large", CHEAP), (0, 2))]
#[case::least_waste_beside_a_cheaper_group("least-waste", annotate("large", CHEAP), (3, 0))]
#[case::least_waste_of_a_larger_node("least-waste", annotate("batch", &capacity(12)), (0, 2))]
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs CLUSTER_AUTOSCALER"]
async fn which_group_does_the_expander_choose(
    #[case] expander: &str,
    #[case] change: Change,
    #[case] most: (i64, i64),
) {
    assert_ne!(player(), Player::Driver, "CLUSTER_AUTOSCALER names no binary, and the driver has no choice");
    let flags = vec![format!("--expander={expander}")];
    let report = answer_to(&Options { flags, ..options(vec![change, jobs()]) }).await;
    assert_eq!(report.answer(), Answer::Yes, "{report:#?}");
    let of = |name: &str| group_of(&report, name).most;
    assert_eq!(((of("batch"), of("large")), report.finished), (most, 3), "{report:#?}");
}

/// What changes of the group `batch`, the most Nodes that it has for three Jobs, and whether `large` grows too. A Node
/// of 14 CPUs takes two Jobs, and the DaemonSet.
#[rstest]
#[case::max(annotate("batch", MAX_OF_ONE), 1, true)]
#[case::taint(annotate("batch", OTHER_TAINT), 0, true)]
#[case::instance_type(annotate("batch", &capacity(14)), 2, false)]
#[tokio::test(flavor = "multi_thread")]
async fn what_if_this_groups_max_taint_or_instance_type_changes(
    #[case] change: Change,
    #[case] most: i64,
    #[case] others: bool,
) {
    let report = answer(vec![change, jobs()]).await;
    assert_eq!(report.answer(), Answer::Yes, "{report:#?}");
    let of = |name: &str| group_of(&report, name).most;
    assert_eq!((of("batch"), of("large") > 0, report.finished), (most, others, 3), "{report:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_goes_when_this_deployment_shrinks() {
    let report = answer(vec![scale_web(2)]).await;
    assert_eq!(report.answer(), Answer::Yes, "{report:#?}");
    let general = group_of(&report, "general");
    assert_eq!((general.before, general.after), (3, 1));
    assert_eq!((report.removed.len(), report.running), (2, 2 + daemons()));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_goes_with_this_deployment() {
    let report = answer(vec![Change::remove("deployment/shop/web").unwrap()]).await;
    assert_eq!(report.answer(), Answer::Yes, "{report:#?}");
    let general = group_of(&report, "general");
    assert_eq!((general.before, general.after), (3, 1), "the min size stays");
    assert!(report.removed.iter().all(|removed| removed.group.as_ref() == Some(&general.id)), "{report:#?}");
    assert_eq!((report.removed.len(), report.running), (2, daemons()));
}

#[tokio::test(flavor = "multi_thread")]
async fn which_pods_can_never_run() {
    let report = answer(vec![Change::add(&example("huge.yaml"))]).await;
    assert_eq!(report.answer(), Answer::No);
    let [pending] = report.pending.as_slice() else { panic!("{report:#?}") };
    assert_eq!((pending.of.as_str(), pending.pods.as_slice()), ("Pod shop/huge", &["shop/huge".to_owned()][..]));
    assert!(pending.scheduler.as_deref().unwrap().contains("3 Insufficient cpu"), "{pending:?}");
    let said = pending.autoscaler.as_deref();
    match player() {
        Player::Driver => assert_eq!(said, None, "it makes no Events"),
        Player::Binary(_) => assert!(said.unwrap().contains("Insufficient cpu"), "{pending:?}"),
    }
    assert!(report.groups.iter().all(|group| group.before == group.after), "{report:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn would_another_version_decide_otherwise() {
    let (one, other) = (answer(vec![jobs()]).await, answer(vec![jobs()]).await);
    assert_eq!(one.differences(&other), Vec::<String>::new(), "the version is the same");
    let differences = one.differences(&answer(vec![annotate("batch", MAX_OF_ONE), jobs()]).await);
    let [batch, large] = differences.as_slice() else { panic!("{differences:#?}") };
    assert_eq!(batch, "MachineDeployment/team-a/batch: size 0 (3 at most, 3 gone) and size 0 (1 at most, 1 gone)");
    assert!(large.starts_with("MachineDeployment/team-a/large: size 0 (0 at most, 0 gone) and "), "{large}");
}

#[test]
#[ignore = "needs CLUSTER_AUTOSCALER"]
fn would_another_version_decide_otherwise_is_said_of_two_binaries() {
    let Player::Binary(binary) = player() else { panic!("CLUSTER_AUTOSCALER names no binary") };
    let again = binary.display().to_string();
    let flags = ["--autoscaler", &again, "--remove", "deployment/shop/web", "-ojson", "--", "--expander=least-waste"];
    let (code, text, said) = program(&flags);
    assert_eq!(code, Some(0), "{said}");
    let compared: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(compared["differences"], json!([]), "{text}");
    assert_eq!(compared["reports"].as_array().unwrap().len(), 2, "{text}");
}

/// Returns an object of the dump.
fn dumped(kind: &str, name: &str) -> Value {
    let dump: Value = serde_yaml::from_str(&std::fs::read_to_string(example("dump.yaml")).unwrap()).unwrap();
    let items = dump["items"].as_array().unwrap();
    items.iter().find(|object| object["kind"] == kind && object["metadata"]["name"] == name).unwrap().clone()
}

/// Cluster Autoscaler takes new Nodes for ones of 4 CPUs, as the old ones are, and adds two. They have 8 CPUs, so that one
/// is enough.
#[tokio::test(flavor = "multi_thread")]
async fn a_manifest_after_the_dump_changes_a_group() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("group.json");
    let mut group = dumped("MachineDeployment", "general");
    group["metadata"]["annotations"]["capacity.cluster-autoscaler.kubernetes.io/cpu"] = json!("8");
    group["spec"].as_object_mut().unwrap().remove("replicas");
    std::fs::write(&path, group.to_string()).unwrap();
    let changes = vec![Change::remove("md/team-a/large").unwrap(), scale_web(10)];
    let manifests = vec![example("dump.yaml"), path.display().to_string()];
    let report = answer_to(&Options { manifests, ..options(changes) }).await;
    assert_eq!(report.answer(), Answer::Yes, "{report:#?}");
    let general = group_of(&report, "general");
    assert_eq!((general.before, general.most, general.after), (3, 5, 4), "{report:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_node_group_is_named_with_the_reason() {
    let report = answer(vec![annotate("large", r#"{"cluster.x-k8s.io/paused":"true"}"#)]).await;
    let [excluded] = report.excluded.as_slice() else { panic!("{report:#?}") };
    assert_eq!(excluded.id, "MachineDeployment/team-a/large");
    assert!(excluded.reason.contains("paused"), "{excluded:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_does_not_end_while_pods_may_still_be_too_new() {
    let flags = vec!["--new-pod-scale-up-delay=1h".to_owned()];
    let options = Options { flags, ..options(vec![Change::add(&example("huge.yaml"))]) };
    // To the driver a Node may always go: it is looked at again after 5 minutes, must be unneeded for 10, and goes 10 after
    // the last scale-up. A binary's fixed waits look longer the faster time goes.
    let least = if options.player == Player::Driver { 3600 + 25 * 60 } else { 4000 };
    let report = answer_to(&options).await;
    assert!(report.seconds > least, "{report:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_simulated_is_an_error_that_says_what_to_add() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("dump.yaml");
    let dump: Value = serde_yaml::from_str(&std::fs::read_to_string(example("dump.yaml")).unwrap()).unwrap();
    let kept: Vec<_> = dump["items"].as_array().unwrap().iter().filter(|object| object["kind"] != "Node").collect();
    std::fs::write(&path, serde_json::to_string(&json!({ "items": kept })).unwrap()).unwrap();
    let options = Options { manifests: vec![path.display().to_string()], ..options(Vec::new()) };
    let error = run(&options, &mut |_| {}).await.unwrap_err().to_string();
    assert!(error.contains("lack the Node general-a of Machine team-a/general-7d5-a, and 2 others"), "{error}");
    assert!(error.contains("kubectl get nodes"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_cost_what_the_price_file_says() {
    let folder = tempfile::tempdir().unwrap();
    let prices = folder.path().join("prices.yaml");
    std::fs::write(&prices, "resources: {cpu: 0.1, memory: 0.0125}\n").unwrap();
    let without = annotate("general", r#"{"capacity.capi-autoscaler-provider.io/price-per-hour":null}"#);
    let report = answer_to(&Options { prices: Some(prices), ..options(vec![without]) }).await;
    let price = |name: &str| group_of(&report, name).price_per_hour;
    assert!((price("general").unwrap() - 0.6).abs() < 1e-9, "4 CPUs and 16 GiB: {report:#?}");
    assert_eq!(price("batch"), Some(0.35), "its annotation is stronger");
}

/// Runs the program on the dump. Returns its exit code, what it prints, and what it says meanwhile.
fn program(flags: &[&str]) -> (Option<i32>, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_whatif"));
    command.args(["-f", &example("dump.yaml")]);
    match player() {
        Player::Driver => command.args(["--driver", "--speed=600", "--remove", DAEMON_SET]),
        Player::Binary(binary) => command.arg("--autoscaler").arg(binary),
    };
    let output = command.args(flags).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

#[tokio::test]
async fn a_signal_ends_the_binary_too() {
    let folder = tempfile::tempdir().unwrap();
    let [binary, id] = ["cluster-autoscaler", "id"].map(|name| folder.path().join(name));
    // It ends no loop.
    let script = format!("#!/bin/sh\necho $$ >{0}.new && mv {0}.new {0} && exec sleep 600\n", id.display());
    fs::write(&binary, script).unwrap();
    fs::set_permissions(&binary, Permissions::from_mode(0o755)).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_whatif"));
    command.args(["-f", &example("dump.yaml"), "--autoscaler"]).arg(&binary).stderr(Stdio::piped());
    let mut whatif = Process::start(&mut command);
    let id = Wait::new("start of the binary").value(async || fs::read_to_string(&id).ok()).await;
    whatif.signal("TERM");
    assert_eq!(whatif.child().wait().unwrap().code(), Some(2));
    // Empty also for a process that nobody has waited for.
    let command_line = format!("/proc/{}/cmdline", id.trim());
    let has_ended = || fs::read_to_string(&command_line).unwrap_or_default().is_empty();
    Wait::new("end of the binary").condition(has_ended).await;
}

#[test]
fn a_ci_system_reads_which_pods_have_no_node() {
    let (code, text, said) = program(&["-ojunit", "--add", &example("huge.yaml")]);
    assert_eq!(code, Some(1), "{said}");
    for part in ["tests=\"2\" failures=\"1\"", "name=\"Pod shop/huge\"", "3 Insufficient cpu", "shop/huge</failure>"] {
        assert!(text.contains(part), "{part} isn't in {text}");
    }
}

/// What a Pod that fits no Node has more, and the exit code.
#[rstest]
#[case::of_the_change(json!({}), 1, "<failure")]
#[case::pending_before(json!({"status": {"phase": "Pending"}}), 0, "<skipped message=\"Pending in the manifests")]
#[case::left_out(
    json!({"spec": {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "v"}}]}}),
    2,
    "<skipped message=\"there is no answer for these Pods: use --scheduler"
)]
fn the_exit_code_is_for_pods_that_did_not_wait_before(#[case] more: Value, #[case] code: i32, #[case] part: &str) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("pod.yaml");
    let mut pod: Value = serde_yaml::from_str(&std::fs::read_to_string(example("huge.yaml")).unwrap()).unwrap();
    json_patch::merge(&mut pod, &more);
    std::fs::write(&path, pod.to_string()).unwrap();
    let (found, text, said) = program(&["-ojunit", "-f", &path.display().to_string()]);
    assert_eq!(found, Some(code), "{said}");
    assert!(text.contains(part) && text.contains("shop/huge</"), "{text}");
}
