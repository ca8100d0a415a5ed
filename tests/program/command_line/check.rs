//! Tests of `check` on the sandbox: its output, its exit codes, and that it names exactly the missing right.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    process::{Command, Output},
    time::{Duration, SystemTime},
};

use capi_autoscaler_provider::cli::CheckId;
use capi_autoscaler_provider::cli::needed_rights::{Needs, Right, Side};
use connect::SecretRef;
use rcgen::{BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};
use rstest::rstest;
use rules::{
    capi::{InfrastructureRef, InfrastructureTemplate, Meta, ObjectKey},
    remembered::{Bootstrap, Key, Templates},
};
use sandbox::{
    Sandbox, SandboxOptions,
    api::{PatchKind, Resource, Selection, Subresource},
    faults::Fault,
    read_manifests,
};
use serde_json::{Value, json};
use tempfile::TempDir;
use testkit::until_true;

const DENIED: &str = "ValidatingAdmissionPolicy 'frozen' denied request";
/// Groups without Machines, so that all runs are the same.
const FILES: [&str; 3] = ["cluster.yaml", "from-zero-by-annotations.yaml", "from-zero-by-status-capacity.yaml"];

async fn world(more: Vec<Value>) -> Sandbox {
    let files = FILES.map(|file| format!("{}/examples/node-groups/{file}", env!("CARGO_MANIFEST_DIR")));
    let manifests = files.iter().flat_map(|file| read_manifests(Path::new(file)).unwrap()).chain(more).collect();
    Sandbox::start(SandboxOptions { manifests, ..SandboxOptions::default() }).await.unwrap()
}

/// Runs `check` with an empty environment.
async fn check(flags: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_capi-autoscaler-provider"));
    command.arg("check").args(flags).env_clear();
    tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap()
}

/// Runs `check` for the Cluster of the examples.
async fn check_prod(sandbox: &Sandbox, flags: &[&str]) -> Output {
    let kubeconfig = sandbox.management_kubeconfig().display().to_string();
    let of_prod = ["--cluster", "team-a/prod", "--management-kubeconfig", &kubeconfig, "--timeout", "1h"];
    check(&[&of_prod[..], flags].concat()).await
}

fn printed(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn said(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

fn report(output: &Output) -> Value {
    serde_json::from_str(&printed(output)).unwrap_or_else(|error| panic!("{error}: {}", said(output)))
}

/// Returns the lines of one check, as `status message`.
fn lines(report: &Value, check: CheckId) -> Vec<String> {
    let of_check = report["checks"].as_array().unwrap().iter().filter(|finding| finding["check"] == check.as_str());
    let text = |finding: &Value, key: &str| finding[key].as_str().unwrap_or_default().to_owned();
    of_check.map(|finding| format!("{} {}", text(finding, "status"), text(finding, "message"))).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_line_reports_each_group_of_checks_and_on_demand_each_check() {
    let sandbox = world(Vec::new()).await;
    let brief = printed(&check_prod(&sandbox, &[]).await);
    let groups: Vec<_> = brief.lines().map(|line| line.split("  ").next().unwrap()).collect();
    assert_eq!(groups, ["ok", "ok", "ok", "ok", "ok", "41 checks: 0 errors, 0 warnings; -v shows all"], "{brief}");
    let output = check_prod(&sandbox, &["-v"]).await;
    assert_eq!(output.status.code(), Some(0), "{}{}", printed(&output), said(&output));
    let kubeconfig = sandbox.management_kubeconfig().display().to_string();
    let text = printed(&output).replace(&kubeconfig, "KUBECONFIG");
    insta::assert_snapshot!("all_is_well", text);
    sandbox.stop().await;
}

/// Returns a group without Nodes and annotations, with an infrastructure template of this instance type.
fn bare_group(name: &str, instance_type: &str) -> [Value; 2] {
    let reference =
        json!({ "apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "AWSMachineTemplate", "name": name });
    let deployment = json!({
        "apiVersion": "cluster.x-k8s.io/v1beta2",
        "kind": "MachineDeployment",
        "metadata": {
            "name": name,
            "namespace": "team-a",
            "annotations": { "cluster.x-k8s.io/cluster-api-autoscaler-node-group-max-size": "5" },
        },
        "spec": {
            "clusterName": "prod",
            "replicas": 0,
            "selector": { "matchLabels": { "pool": name } },
            "template": {
                "metadata": { "labels": { "pool": name } },
                "spec": { "clusterName": "prod", "infrastructureRef": reference },
            },
        },
    });
    let template = json!({
        "apiVersion": "infrastructure.cluster.x-k8s.io/v1beta2",
        "kind": "AWSMachineTemplate",
        "metadata": { "name": name, "namespace": "team-a" },
        "spec": { "template": { "spec": { "instanceType": instance_type } } },
    });
    [deployment, template]
}

#[tokio::test(flavor = "multi_thread")]
async fn groups_that_scale_from_zero_by_remembered_nodes_are_counted_and_the_others_named() {
    let [deployment, template] = bare_group("bare", "m5.large");
    let reference = InfrastructureRef {
        group: "infrastructure.cluster.x-k8s.io".into(),
        kind: "AWSMachineTemplate".into(),
        name: "bare".into(),
    };
    let meta = Meta { key: ObjectKey::new("team-a", "bare"), uid: "".into(), resource_version: "1".into() };
    let spec = InfrastructureTemplate::decode(meta, &template).unwrap().spec;
    let key = Key::new(&Templates::new(&"team-a".into(), (&reference, spec), Bootstrap::None), "amd64").unwrap();
    let amounts = json!({ "cpu": "2", "memory": "8Gi" });
    let entry = json!({
        "node": "bare-1", "group": "MachineDeployment/team-a/bare", "seen": "2026-01-01T00:00:00Z",
        "capacity": amounts, "allocatable": amounts,
    });
    let config_map = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "remembered-nodes", "namespace": "team-a" },
        "data": { key.to_string(): entry.to_string(), "README": "hello" },
    });
    let more = [deployment, template].into_iter().chain(bare_group("unknown", "m5.xlarge")).chain([config_map]);
    let sandbox = world(more.collect()).await;
    let output = check_prod(&sandbox, &["--remember-in=team-a/remembered-nodes", "-o", "json"]).await;
    let report = report(&output);
    let from_zero = lines(&report, CheckId::FromZero);
    let expected = [
        "warn an entry isn't used: \"README\": its key isn't namespace.architecture.digest",
        "ok 1 entries about Nodes; 1 node groups scale from zero by what is remembered",
        "warn it is excluded: cpu and memory of its Nodes aren't known, nor is a Node of such templates remembered",
    ];
    assert_eq!(from_zero, expected);
    let mut named = report["checks"].as_array().unwrap().iter().filter(|finding| finding["check"] == "from-zero");
    assert_eq!(named.next_back().unwrap()["subject"], "MachineDeployment/team-a/unknown");
    sandbox.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_nodes_the_workload_cluster_needs_no_right_and_what_is_lost_is_named() {
    let sandbox = world(Vec::new()).await;
    let output = check_prod(&sandbox, &["--workload-nodes=none", "-o", "json"]).await;
    assert_eq!(output.status.code(), Some(0), "{}{}", printed(&output), said(&output));
    let report = report(&output);
    let lines = lines(&report, CheckId::WorkloadCluster);
    let [line] = lines.as_slice() else { panic!("{lines:?}") };
    assert!(line.starts_with("ok none, by --workload-nodes=none: "), "{line}");
    assert!(line.contains("a Machine has joined by its nodeRef alone"), "{line}");
    assert_eq!(self::lines(&report, CheckId::Reads), ["ok the management cluster is read"]);
    let rights = report["checks"].as_array().unwrap().iter().filter(|finding| finding["check"] == "right");
    let mut cluster = rights.map(|finding| &finding["right"]);
    assert!(cluster.all(|right| right["cluster"] == "management" && right["resource"] != "secrets"), "{report:#}");
    sandbox.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_cluster_of_a_fleet_has_to_match_its_selector_and_its_nodes_are_read_by_the_fleets_secret() {
    let sandbox = world(Vec::new()).await;
    let of_fleet = [
        "--fleet-selector=autoscaler=fleet",
        "--fleet-trust-domain=prod.example",
        "--tls-cert-file=/no/tls.crt",
        "--tls-key-file=/no/tls.key",
        "--tls-client-ca-file=/no/ca.crt",
        "--workload-nodes={cluster}-nodes",
        "-ojson",
    ];
    let first = report(&check_prod(&sandbox, &of_fleet).await);
    let scope = lines(&first, CheckId::Scope);
    let expected =
        "error its labels don't match --fleet-selector autoscaler=fleet: its autoscaler is denied every call";
    assert!(scope.iter().any(|line| line == expected), "{scope:?}");
    let workload = lines(&first, CheckId::WorkloadCluster);
    assert!(workload[0].contains("Secret team-a/prod-nodes: not found"), "{workload:?}");

    let clusters = Resource::new("cluster.x-k8s.io", "v1beta2", "clusters");
    let labels = json!({ "metadata": { "labels": { "autoscaler": "fleet" } } });
    let api = sandbox.management().api();
    api.patch(&clusters, "team-a", "prod", PatchKind::Merge, Subresource::Main, labels).unwrap();
    let scope = lines(&report(&check_prod(&sandbox, &of_fleet).await), CheckId::Scope);
    let expected = "ok its labels match --fleet-selector autoscaler=fleet";
    assert!(scope.iter().any(|line| line == expected), "{scope:?}");
    sandbox.stop().await;
}

/// Returns all rights of the sandbox's Cluster.
fn rights() -> Vec<Right> {
    let template = |resource: &str| ("infrastructure.cluster.x-k8s.io".to_owned(), resource.to_owned());
    let needs = Needs {
        group: "cluster.x-k8s.io".to_owned(),
        namespaces: Some(["team-a".to_owned()].into()),
        not_served: BTreeSet::new(),
        templates: vec![template("awsmachinetemplates")],
        secret: Some(SecretRef::of(&"team-a/prod".parse().unwrap())),
        without_nodes: false,
        writes: true,
        events: true,
        ..Needs::default()
    };
    needs.rights()
}

/// Returns a fault that removes a right and no other.
fn without(right: &Right) -> Fault {
    let name = match (right.verb, &right.name) {
        (_, Some(name)) => format!("/{name}"),
        ("get" | "patch" | "delete", None) => "/[^/?]+".to_owned(),
        _ => String::new(),
    };
    let part = right.subresource.map(|part| format!("/{part}")).unwrap_or_default();
    let path = format!("/{}{name}{part}([?]|$)", right.resource);
    Fault::refuse(403, "Forbidden", "not for you").on_verb(right.verb).on_path(&path).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_right_that_is_missing_is_named_with_what_breaks_and_what_grants_it() {
    let sandbox = world(Vec::new()).await;
    for right in rights() {
        let server = match right.cluster {
            Side::Management => sandbox.management(),
            Side::Workload => sandbox.workload(),
        };
        let fault = server.faults().add(without(&right));
        let report = report(&check_prod(&sandbox, &["-o", "json"]).await);
        fault.remove();
        let findings = report["checks"].as_array().unwrap().iter();
        let denied: Vec<_> = findings
            .filter(|it| it["check"] == "right" && (it["status"] == "error" || it["status"] == "warn"))
            .cloned()
            .collect();
        let [finding] = denied.as_slice() else { panic!("{right}: {denied:#?}") };
        let message = finding["message"].as_str().unwrap();
        assert!(message.starts_with(&format!("{right}: denied (not for you): ")), "{message}");
        assert!(message.ends_with(&right.breaks.to_string()), "{message}");
        assert_eq!(finding["remedy"], format!("grant {}", right.rule()));
        // No MachineSet and no MachinePool is a node group here.
        let later = right.only_for.is_some_and(|kind| kind.as_str() != "MachineDeployment");
        assert_eq!(finding["status"], if later { "warn" } else { "error" }, "{right}");
    }
    sandbox.stop().await;
}

#[rstest]
#[case::by_a_policy(&[], 422, "error its size can't be written: ValidatingAdmissionPolicy 'frozen' denied request")]
#[case::by_a_webhook(&[], 403, "error its size can't be written: ValidatingAdmissionPolicy 'frozen' denied request")]
#[case::without_dry_runs(&[], 400, "skipped MachineDeployment/team-a/prod-gpu: a webhook can't be asked: ")]
#[case::nothing_is_written(&["--read-only"], 403, "skipped nothing is written, by --read-only")]
#[tokio::test(flavor = "multi_thread")]
async fn a_size_is_written_as_a_dry_run(#[case] flags: &[&str], #[case] code: u16, #[case] expected: &str) {
    let sandbox = world(Vec::new()).await;
    let why = if code == 400 { "admission webhook \"w\" does not support dry run" } else { DENIED };
    let frozen = Fault::refuse(code, "Forbidden", why).on_verb("patch").on_path("/scale[?].*dryRun=All").unwrap();
    let fault = sandbox.management().faults().add(frozen);
    let refused = report(&check_prod(&sandbox, &[&["-o", "json"], flags].concat()).await);
    let lines_of = |report: &Value| lines(report, CheckId::SizeWrite);
    let [line] = &lines_of(&refused)[..] else { panic!("{refused:#}") };
    assert!(line.starts_with(expected), "{line}");
    assert_eq!(refused["ok"], !expected.starts_with("error"));
    fault.remove();
    sandbox.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kind_that_may_not_be_read_at_all_is_reported_at_once_and_hides_no_other_check() {
    let sandbox = world(Vec::new()).await;
    let machines = Fault::refuse(403, "Forbidden", "not for you").on_method("GET").on_path("/machines").unwrap();
    sandbox.management().faults().add(machines);
    let output = check_prod(&sandbox, &["-o", "json"]).await;
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    let report = report(&output);
    assert!(lines(&report, CheckId::Reads).iter().any(|line| line.contains("forbidden: not for you")), "{report:#}");
    assert_eq!(lines(&report, CheckId::Scope), ["skipped the management cluster couldn't be read whole"]);
    assert_eq!(lines(&report, CheckId::WorkloadCluster).len(), 1);
    assert!(lines(&report, CheckId::WorkloadCluster)[0].starts_with("ok Kubernetes v1.36"));
    sandbox.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_that_is_not_reached_skips_only_what_depends_on_it() {
    let sandbox = world(Vec::new()).await;
    let folder = tempfile::tempdir().unwrap();
    let nowhere = folder.path().join("nowhere");
    std::fs::write(&nowhere, sandbox::kubeconfig::kubeconfig("http://127.0.0.1:1")).unwrap();
    let workload = sandbox.workload_kubeconfig();
    let flags = ["--all-clusters", "-o", "json", "--management-kubeconfig", nowhere.to_str().unwrap()];
    let output = check(&[&flags[..], &["--workload-kubeconfig", workload.to_str().unwrap()]].concat()).await;
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    assert!(said(&output).starts_with("error: 1 of "), "{}", said(&output));
    let report = report(&output);
    let management = lines(&report, CheckId::ManagementCluster);
    assert!(management[0].starts_with("error it doesn't answer: "), "{management:?}");
    assert_eq!(lines(&report, CheckId::ClusterApi), ["skipped the management cluster isn't reached"]);
    assert!(lines(&report, CheckId::WorkloadCluster)[0].starts_with("ok Kubernetes "));
    let rights = lines(&report, CheckId::Right);
    assert!(rights.contains(&"ok list nodes in the whole cluster".to_owned()), "{rights:?}");
    assert!(rights.contains(&"skipped rights in the management cluster: it isn't reached".to_owned()), "{rights:?}");
    assert_eq!(lines(&report, CheckId::Scope), ["skipped see management-cluster"]);
    sandbox.stop().await;
}

fn deployment(name: &str, annotations: &Value, labels: &Value, infrastructure: &str) -> Value {
    let mut labels = labels.clone();
    labels["cluster.x-k8s.io/cluster-name"] = json!("prod");
    let mut template = json!({"clusterName": "prod", "version": "v1.36.0", "bootstrap": {"dataSecretName": "b"}});
    template["infrastructureRef"] =
        json!({"apiGroup": "infrastructure.cluster.x-k8s.io", "kind": infrastructure, "name": name});
    json!({
        "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "MachineDeployment",
        "metadata": {"name": name, "namespace": "team-a", "labels": labels, "annotations": annotations},
        "spec": {
            "clusterName": "prod", "replicas": 1, "selector": {"matchLabels": {"d": name}},
            "template": {"metadata": {"labels": {"d": name}}, "spec": template},
        },
    })
}

fn size(min: &str, max: &str) -> Value {
    json!({
        "cluster.x-k8s.io/cluster-api-autoscaler-node-group-min-size": min,
        "cluster.x-k8s.io/cluster-api-autoscaler-node-group-max-size": max,
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn problems_of_node_groups_are_warnings_that_fail_the_check_only_with_strict() {
    let mut topology = json!({
        "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster",
        "metadata": {"name": "classy", "namespace": "team-a"}, "spec": {"topology": {"version": "v1.36.0"}},
    });
    topology["spec"]["topology"]["workers"] = json!({"machineDeployments": [{"name": "md-0", "replicas": 2}]});
    let name = json!({"topology.cluster.x-k8s.io/deployment-name": "md-0"});
    let mut in_topology = deployment("classy-md-0", &size("1", "3"), &name, "AWSMachineTemplate");
    in_topology["spec"]["clusterName"] = json!("classy");
    in_topology["spec"]["replicas"] = json!(2);
    let annotations = in_topology["metadata"]["annotations"].as_object_mut().unwrap();
    annotations.remove("cluster.x-k8s.io/cluster-api-autoscaler-node-group-min-size");
    let mut noted = size("1", "3");
    noted["capacity.cluster-autoscaler.kubernetes.io/csi-driver"] = json!("ebs.csi.aws.com=25");
    let world = world(vec![
        topology,
        in_topology,
        deployment("wrong", &size("5", "3"), &json!({}), "AWSMachineTemplate"),
        deployment("bare", &size("0", "3"), &json!({}), "LostMachineTemplate"),
        deployment("noted", &noted, &json!({}), "AWSMachineTemplate"),
    ]);
    let sandbox = world.await;
    let lost = Fault::refuse(404, "NotFound", "nobody is here").on_path("/lostmachinetemplates").unwrap();
    sandbox.management().faults().add(lost);
    let (m, w) = (sandbox.management_kubeconfig(), sandbox.workload_kubeconfig());
    let flags = ["--all-clusters", "--management-kubeconfig", m.to_str().unwrap(), "--timeout", "60s"];
    let flags = [&flags[..], &["--workload-kubeconfig", w.to_str().unwrap(), "-o", "json"]].concat();
    let output = check(&flags).await;
    assert_eq!(output.status.code(), Some(0), "{}{}", printed(&output), said(&output));
    let report = report(&output);
    let groups = lines(&report, CheckId::NodeGroup);
    assert!(groups.iter().any(|line| line.starts_with("warn excluded: its size annotations")), "{groups:#?}");
    assert!(groups.iter().any(|line| line.starts_with("ok note: ") && line.contains("csi-driver")), "{groups:#?}");
    let kinds = lines(&report, CheckId::TemplateKind);
    assert!(kinds.iter().any(|line| line.starts_with("warn can't be read: not found")), "{kinds:#?}");
    let topologies = lines(&report, CheckId::Topology);
    assert_eq!(topologies, ["warn its Cluster's topology sets replicas and puts every size change back"]);
    let is_wanted = |finding: &&Value| finding["check"] == CheckId::Topology.as_str();
    let topology = report["checks"].as_array().unwrap().iter().find(is_wanted).unwrap();
    let remedy = topology["remedy"].as_str().unwrap();
    assert!(remedy.contains("node-group-min-size is set too") && remedy.contains("2 becomes 1"), "{remedy}");
    let strict = check(&[&flags[..], &["--strict"]].concat()).await;
    assert_eq!(strict.status.code(), Some(1), "{}", said(&strict));
    assert!(said(&strict).contains("and --strict takes none"), "{}", said(&strict));
    sandbox.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_note_is_shown_and_counted_where_no_node_group_has_a_problem() {
    let key = "capacity.cluster-autoscaler.kubernetes.io/cpu";
    let template = json!({
        "apiVersion": "infrastructure.cluster.x-k8s.io/v1beta2", "kind": "AWSMachineTemplate",
        "metadata": {"name": "noted", "namespace": "team-a"},
        "status": {"capacity": {"cpu": "4", "memory": "16Gi"}},
    });
    let sandbox = world(vec![template, deployment("noted", &size("1", "3"), &json!({}), "AWSMachineTemplate")]).await;
    let nodes = || sandbox.workload().api().list(&Resource::core("nodes"), &Selection::default()).unwrap();
    until_true("a ready Node", || nodes().iter().any(|node| node["status"]["conditions"][0]["status"] == "True")).await;
    let deployments = Resource::new("cluster.x-k8s.io", "v1beta2", "machinedeployments");
    let says = json!({"metadata": {"annotations": {key: "8"}}});
    let api = sandbox.management().api();
    api.patch(&deployments, "team-a", "noted", PatchKind::Merge, Subresource::Main, says).unwrap();
    let output = check_prod(&sandbox, &["-o", "json"]).await;
    assert_eq!(output.status.code(), Some(0), "{}{}", printed(&output), said(&output));
    let groups = lines(&report(&output), CheckId::NodeGroup);
    let [note, sum] = groups.as_slice() else { panic!("{groups:#?}") };
    assert!(note.starts_with(&format!("ok note: annotation {key} says cpu 8, and Node ")), "{note}");
    assert!(note.contains(" has 4: "), "{note}");
    assert_eq!(sum, "ok no problems, 1 note");
    sandbox.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_scope_without_a_node_group_is_reported_with_what_there_is() {
    let sandbox = world(vec![deployment("plain", &json!({}), &json!({}), "AWSMachineTemplate")]).await;
    let (m, w) = (sandbox.management_kubeconfig(), sandbox.workload_kubeconfig());
    let flags = ["--management-kubeconfig", m.to_str().unwrap(), "--workload-kubeconfig", w.to_str().unwrap()];
    let output = check(&[&flags[..], &["--cluster", "team-a/prdo", "-o", "json"]].concat()).await;
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    let scope = lines(&report(&output), CheckId::Scope);
    assert_eq!(scope[0], "warn Cluster team-a/prdo isn't there");
    assert!(scope[1].starts_with("warn no node group: every object is excluded: "), "{scope:?}");
    assert!(scope[1].contains(" out_of_scope"), "{scope:?}");
    sandbox.stop().await;
}

#[rstest]
#[case::no_scope(&[], "error: no scope is chosen")]
#[case::a_wrong_time(&["--all-clusters", "--timeout", "0s"], "--timeout: \"0s\" can't be used")]
#[case::as_serve_would(&["--all-clusters", "--listen", "0.0.0.0:8086"], "it isn't a loopback address")]
#[tokio::test]
async fn a_wrong_call_ends_with_code_2(#[case] flags: &[&str], #[case] part: &str) {
    let output = check(flags).await;
    assert_eq!(output.status.code(), Some(2), "{}", said(&output));
    assert!(said(&output).contains(part), "{}", said(&output));
}

/// A certificate authority and a server's certificate issued by it, as files.
struct Files {
    folder: TempDir,
    issuer: Issuer<'static, KeyPair>,
}

impl Files {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, "authority");
        let key = KeyPair::generate().unwrap();
        std::fs::write(folder.path().join("ca.crt"), params.self_signed(&key).unwrap().pem()).unwrap();
        Self { folder, issuer: Issuer::new(params, key) }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn issue(&self, names: &[&str], change: impl Fn(&mut CertificateParams)) {
        let names: Vec<_> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(names).unwrap();
        change(&mut params);
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        std::fs::write(self.path("tls.crt"), certificate.pem()).unwrap();
        std::fs::write(self.path("tls.key"), key.serialize_pem()).unwrap();
    }

    /// Returns the findings about the files, without any cluster.
    async fn found(&self, more: &[&str]) -> Vec<String> {
        let flags = [
            "--all-clusters".to_owned(),
            "--management-kubeconfig=/nonexistent/config".to_owned(),
            "--listen=0.0.0.0:8086".to_owned(),
            "--output=json".to_owned(),
            format!("--tls-cert-file={}", self.path("tls.crt").display()),
            format!("--tls-key-file={}", self.path("tls.key").display()),
            format!("--tls-client-ca-file={}", self.path("ca.crt").display()),
        ];
        let flags: Vec<_> = flags.iter().map(String::as_str).chain(more.iter().copied()).collect();
        let report = report(&check(&flags).await);
        let folder = format!("{}/", self.folder.path().display());
        let found = [lines(&report, CheckId::Tls), lines(&report, CheckId::ServerName)].concat();
        found.iter().map(|line| line.replace(&folder, "")).collect()
    }
}

#[rstest]
#[case::good(|_: &mut CertificateParams| (), &[], "ok the server's certificate is valid until ")]
#[case::soon_over(
    |params: &mut CertificateParams| params.not_after = (SystemTime::now() + Duration::from_secs(864_000)).into(),
    &[],
    "warn the server's certificate is valid until "
)]
#[case::over(|params: &mut CertificateParams| params.not_after = rcgen::date_time_ymd(2001, 1, 1), &[], "error ")]
#[case::no_name(
    |params: &mut CertificateParams| params.subject_alt_names.clear(),
    &[],
    "error the server's certificate has no subject alternative name"
)]
#[case::for_clients(
    |params: &mut CertificateParams| params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth],
    &[],
    "error the server's certificate isn't for servers"
)]
#[case::of_the_host_of_address(|_: &mut CertificateParams| (), &["--server-name", "provider.team-a.svc"], "ok it is for provider.team-a.svc")]
#[case::of_its_address(|_: &mut CertificateParams| (), &["--server-name", "127.0.0.1"], "ok it is for 127.0.0.1")]
#[case::of_another_host(
    |_: &mut CertificateParams| (),
    &["--server-name", "provider"],
    "error it isn't for provider, but for provider.team-a.svc, 127.0.0.1"
)]
#[case::for_some_clients(
    |_: &mut CertificateParams| (),
    &["--tls-allowed-client-names=cluster-autoscaler"],
    "ok clients need a certificate of ca.crt for cluster-autoscaler"
)]
#[tokio::test]
async fn certificates_are_looked_at(
    #[case] change: fn(&mut CertificateParams),
    #[case] flags: &[&str],
    #[case] expected: &str,
) {
    let files = Files::new();
    files.issue(&["provider.team-a.svc", "127.0.0.1"], change);
    let found = files.found(flags).await;
    assert!(found.iter().any(|line| line.starts_with(expected)), "{found:#?}");
}

/// `docs/reference/check.md` has a section for each check.
#[test]
fn every_check_is_documented() {
    let document =
        std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/reference/check.md")).unwrap();
    let rows = document.lines().filter_map(|line| line.strip_prefix("| `")?.split_once('`'));
    let documented: BTreeSet<_> = rows.map(|(name, _)| name).collect();
    let checks: BTreeSet<_> = CheckId::ALL.iter().map(|check| check.as_str()).collect();
    assert!(documented.is_superset(&checks), "{:?}", checks.difference(&documented));
    for breaks in capi_autoscaler_provider::cli::needed_rights::Breaks::ALL {
        assert!(documented.contains(breaks.as_str()), "{}", breaks.as_str());
    }
}
