//! Whole runs on the examples, with a driver in the place of Cluster Autoscaler's binary.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::{path::Path, process::Command, time::Duration};

use rstest::rstest;
use serde_json::{Value, json};
use whatif::{Answer, Change, Ended, Options, Player, Progress, Report, run};

fn example(name: &str) -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/whatif").join(name).display().to_string()
}

/// Returns the options of a run without the DaemonSet, which the driver doesn't know: it would move its Pods.
fn options(changes: Vec<Change>) -> Options {
    let without = Change::remove("daemonset/kube-system/log-agent").unwrap();
    let changes = [without].into_iter().chain(changes).collect();
    Options {
        manifests: vec![example("dump.yaml")],
        changes,
        cluster: None,
        prices: None,
        until: Duration::from_secs(12 * 3600),
        speed: 600,
        machine_time: None,
        player: Player::Driver,
        scheduler: None,
        flags: Vec::new(),
        logs: None,
    }
}

async fn answer(changes: Vec<Change>) -> Report {
    let mut notes = Vec::new();
    let report = run(&options(changes), &mut |progress: Progress| notes.push(progress)).await.unwrap();
    assert_eq!(report.ended, Ended::Quiet, "{report:#?}");
    report
}

fn sizes(report: &Report) -> Vec<(&str, i64, i64)> {
    let short = |id: &'_ str| id.rsplit('/').next().map(str::to_owned);
    let mut sizes: Vec<_> = report.groups.iter().map(|group| (group.id.as_str(), group.before, group.after)).collect();
    sizes.sort_by_key(|(id, ..)| short(id));
    sizes
}

#[tokio::test(flavor = "multi_thread")]
async fn jobs_scale_a_group_from_zero_and_it_shrinks_when_they_have_ended() {
    let report = answer(vec![Change::add(&format!("3x{}", example("job.yaml")))]).await;
    assert_eq!(report.answer(), Answer::Yes, "{report:#?}");
    assert_eq!((report.running, report.finished), (6, 3));
    let grew = "MachineDeployment/team-a/batch: size 0 → ";
    assert!(report.timeline.iter().any(|entry| entry.what.starts_with(grew)), "{:#?}", report.timeline);
    let batch = report.groups.iter().find(|group| group.id.ends_with("/batch")).unwrap();
    assert_eq!((batch.before, batch.most, batch.after, batch.price_per_hour), (0, 3, 0, Some(0.35)));
}

/// Three Jobs of 6 CPUs, what changes of the group of 8 CPUs, the most Nodes that it has, and whether the group of 16 CPUs
/// grows too.
#[rstest]
#[case::max(r#"{"cluster.x-k8s.io/cluster-api-autoscaler-node-group-max-size":"1"}"#, 1, true)]
#[case::taint(r#"{"capacity.cluster-autoscaler.kubernetes.io/taints":"other=team:NoSchedule"}"#, 0, true)]
#[case::instance_type(
    r#"{"capacity.cluster-autoscaler.kubernetes.io/cpu":"12","capacity.cluster-autoscaler.kubernetes.io/memory":"48Gi"}"#,
    2,
    false
)]
#[tokio::test(flavor = "multi_thread")]
async fn a_changed_group_is_answered_for_as_changed(
    #[case] annotations: &str,
    #[case] most: i64,
    #[case] others: bool,
) {
    let change = format!(r#"md/team-a/batch={{"metadata":{{"annotations":{annotations}}}}}"#);
    let jobs = Change::add(&format!("3x{}", example("job.yaml")));
    let report = answer(vec![Change::patch(&change).unwrap(), jobs]).await;
    assert_eq!(report.answer(), Answer::Yes, "{report:#?}");
    let of = |name: &str| report.groups.iter().find(|group| group.id.ends_with(name)).unwrap().most;
    assert_eq!((of("/batch"), of("/large") > 0, report.finished), (most, others, 3), "{report:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_fits_no_group_stays_pending_and_the_reason_is_told() {
    let report = answer(vec![Change::add(&example("huge.yaml"))]).await;
    assert_eq!(report.answer(), Answer::No);
    let [pending] = report.pending.as_slice() else { panic!("{report:#?}") };
    assert_eq!((pending.of.as_str(), pending.pods.as_slice()), ("Pod shop/huge", &["shop/huge".to_owned()][..]));
    assert!(pending.scheduler.as_deref().unwrap().contains("3 Insufficient cpu"), "{pending:?}");
    assert!(sizes(&report).iter().all(|(_, before, after)| before == after), "{report:#?}");
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
    let more = Change::patch(r#"deployment/shop/web={"spec":{"replicas":10}}"#).unwrap();
    let changes = vec![Change::remove("md/team-a/large").unwrap(), more];
    let manifests = vec![example("dump.yaml"), path.display().to_string()];
    let report = run(&Options { manifests, ..options(changes) }, &mut |_| {}).await.unwrap();
    assert_eq!(report.answer(), Answer::Yes, "{report:#?}");
    let general = report.groups.iter().find(|group| group.id.ends_with("/general")).unwrap();
    assert_eq!((general.before, general.most, general.after), (3, 5, 4), "{report:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_node_group_is_named_with_the_reason() {
    let pause = r#"md/team-a/large={"metadata":{"annotations":{"cluster.x-k8s.io/paused":"true"}}}"#;
    let report = answer(vec![Change::patch(pause).unwrap()]).await;
    let [excluded] = report.excluded.as_slice() else { panic!("{report:#?}") };
    assert_eq!(excluded.id, "MachineDeployment/team-a/large");
    assert!(excluded.reason.contains("paused"), "{excluded:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_does_not_end_while_pods_may_still_be_too_new() {
    let flags = vec!["--new-pod-scale-up-delay=1h".to_owned()];
    let options = Options { flags, ..options(vec![Change::add(&example("huge.yaml"))]) };
    let report = run(&options, &mut |_| {}).await.unwrap();
    assert!(report.ended == Ended::Quiet && report.seconds > 7000, "{report:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_smaller_deployment_lets_nodes_go() {
    let change = Change::patch(r#"deployment/shop/web={"spec":{"replicas":2}}"#).unwrap();
    let report = answer(vec![change]).await;
    assert_eq!(report.answer(), Answer::Yes, "{report:#?}");
    let general = report.groups.iter().find(|group| group.id.ends_with("/general")).unwrap();
    assert_eq!((general.before, general.after), (3, 1));
    assert_eq!(report.removed.len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_simulated_is_an_error_that_says_what_to_add() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("dump.yaml");
    let dump: Value = serde_yaml::from_str(&std::fs::read_to_string(example("dump.yaml")).unwrap()).unwrap();
    let kept: Vec<_> = dump["items"].as_array().unwrap().iter().filter(|object| object["kind"] != "Node").collect();
    std::fs::write(&path, serde_json::to_string(&serde_json::json!({ "items": kept })).unwrap()).unwrap();
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
    let without = r#"md/team-a/general={"metadata":{"annotations":{"capacity.capi-autoscaler-provider.io/price-per-hour":null}}}"#;
    let options = Options { prices: Some(prices), ..options(vec![Change::patch(without).unwrap()]) };
    let report = run(&options, &mut |_| {}).await.unwrap();
    let price = |name: &str| report.groups.iter().find(|group| group.id.ends_with(name)).unwrap().price_per_hour;
    assert!((price("/general").unwrap() - 0.6).abs() < 1e-9, "4 CPUs and 16 GiB: {report:#?}");
    assert_eq!(price("/batch"), Some(0.35), "its annotation is stronger");
}

/// Returns the exit code of a run, its JUnit, and what it says meanwhile.
fn junit(flags: &[&str]) -> (Option<i32>, String, String) {
    let dump = example("dump.yaml");
    let common = ["--driver", "-f", &dump, "--remove", "daemonset/kube-system/log-agent", "--speed=600", "-ojunit"];
    let output = Command::new(env!("CARGO_BIN_EXE_whatif")).args(common).args(flags).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

#[test]
fn a_ci_system_reads_which_pods_have_no_node() {
    let (code, text, said) = junit(&["--add", &example("huge.yaml")]);
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
    let (found, text, said) = junit(&["-f", &path.display().to_string()]);
    assert_eq!(found, Some(code), "{said}");
    assert!(text.contains(part) && text.contains("shop/huge</"), "{text}");
}
