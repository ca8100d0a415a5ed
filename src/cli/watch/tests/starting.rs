//! Tests of refusals at the start, each with one clear line.

use super::*;

#[rstest::rstest]
#[case::selector(&["-l", "app in x"], "--selector: \"app in x\" can't be used: \"app in x\" is none of")]
#[case::field_selector(&["--field-selector", "name"], "--field-selector: \"name\" can't be used: \"name\" is none of")]
#[case::namespace(&["-n", "Team_A"], "--namespace: \"Team_A\" can't be used: a namespace has")]
#[case::empty_namespace(&["-n", "team-a,"], "--namespace: \"\" can't be used")]
#[case::resource(&["machines,"], "RESOURCE: \"\" can't be used: name a resource")]
#[case::path(&["machines/one"], "RESOURCE: a name with a slash can't be used")]
#[case::ignored_with_a_slash_at_its_end(&["--ignore", "/status/"], "--ignore: \"/status/\" can't be used: it has an empty segment")]
#[case::ignore(&["--ignore", "status"], "--ignore: \"status\" can't be used: a path is a JSON pointer")]
#[case::cluster(&["--cluster", "prod"], "--cluster: \"prod\" can't be used")]
#[case::version(&["--capi-version", "x"], "--capi-version (or CAPI_VERSION)")]
#[case::secret(&["--workload-nodes", "nodes"], "--workload-nodes: \"nodes\" can't be used: it has to be the name")]
#[case::no_nodes(
    &["--target", "workload", "--cluster", "a/b", "--workload-nodes", "none"],
    "--workload-nodes: \"none\" can't be used: --target workload needs"
)]
#[case::secret_of_no_cluster(
    &["--target", "workload", "--workload-nodes", "{cluster}-nodes"],
    "a Secret belongs to a Cluster: give --cluster"
)]
#[case::nothing_to_do(&["-o", "none"], "-o none shows nothing: give --webhook")]
#[case::rules(&["--notify-rules", "/nonexistent"], "--notify-rules: \"/nonexistent\" can't be used: can't read it: No such file")]
fn a_wrong_call_is_named_with_its_flag(#[case] flags: &[&str], #[case] part: &str) {
    let message = config(flags).unwrap_err().to_string();
    assert!(message.contains(part) && !message.contains('\n'), "{message}");
}

#[rstest::rstest]
#[case(&["--webhook", "https://h/T0P-S3CR3T"], "--webhook: say where the URL is kept")]
#[case(&["--slack-webhook", "https://h/T0P-S3CR3T"], "--slack-webhook: say where the URL is kept")]
#[case(&["--notify-rules", "https://h/T0P-S3CR3T"], "--notify-rules: give the path of a rules file")]
#[case::resource(&["https://h/T0P-S3CR3T"], "RESOURCE: a name with a slash")]
#[case::no_scheme(&["machines,h/T0P-S3CR3T"], "RESOURCE: a name with a slash")]
#[case::namespace(&["-n", "https://h/T0P-S3CR3T"], "--namespace: what was given is a URL")]
#[case::ignore(&["--ignore", "https://h/T0P-S3CR3T"], "--ignore: what was given is a URL")]
#[case::selector(&["-l", "https://h/T0P-S3CR3T"], "--selector: what was given is a URL")]
#[case::cluster(&["--cluster", "https://h/T0P-S3CR3T"], "--cluster: what was given is a URL")]
fn a_url_on_the_command_line_is_refused_and_not_repeated(#[case] flags: &[&str], #[case] part: &str) {
    let error = config(flags).unwrap_err();
    assert!(error.to_string().contains(part), "{error}");
    assert!(!format!("{error} {error:?}").contains("T0P"), "{error}");
}

#[rstest::rstest]
#[case::by_default(&[], "Secret team-a/prod-kubeconfig")]
#[case::named(&["--workload-nodes", "{cluster}-nodes"], "Secret team-a/prod-nodes")]
#[case::none_is_needed(&["--target", "management", "--workload-nodes", "none"], "none")]
#[case::a_kubeconfig(&["--workload-kubeconfig", "in-cluster", "--workload-nodes", "none"], "in-cluster configuration")]
fn the_workload_cluster_is_reached_by_the_secret_that_is_named(#[case] flags: &[&str], #[case] expected: &str) {
    let target = if flags.contains(&"--target") { &[] as &[&str] } else { &["--target", "workload"] };
    let flags = [&["--cluster", "team-a/prod"] as &[&str], target, flags].concat();
    assert_eq!(config(&flags).unwrap().stream.workload.to_string(), expected);
}

#[rstest::rstest]
#[case::one_letter_off("machins", "serves no resource \"machins\": install")]
#[case::another_group("machines.example.io", "serves no resource \"machines.example.io\": install")]
#[case::another_version("machines.v1.cluster.x-k8s.io", "serves no resource")]
#[case::of_no_kind(
    "xyzzy",
    "serves no resource \"xyzzy\": install its CustomResourceDefinition, or wait for it with --allow-missing"
)]
#[tokio::test(flavor = "multi_thread")]
async fn a_kind_that_is_not_served_is_reported(#[case] name: &str, #[case] part: &str) {
    let message = refusal(&Fake::usual().await, &[name]).await;
    assert!(message.contains(part) && !message.contains('\n'), "{message}");
}

#[tokio::test(flavor = "multi_thread")]
async fn without_cluster_api_there_is_nothing_to_watch_by_default() {
    let fake = Fake::start(Vec::new()).await;
    let message = refusal(&fake, &[]).await;
    assert!(message.contains("serves no kind of Cluster API, not even Cluster.cluster.x-k8s.io"), "{message}");
    begin(&fake, &["--allow-missing"], Printed::default()).await.unwrap();
}

#[rstest::rstest]
#[case::list("list", &["machines"], "forbidden to list machines.cluster.x-k8s.io in namespace team-a", "in a Role")]
#[case::watch("watch", &["machines"], "forbidden to watch machines.cluster.x-k8s.io in namespace team-a", "in a Role")]
#[case::everywhere("list", &["ma", "-A"], "forbidden to list machines.cluster.x-k8s.io in all namespaces", "in a ClusterRole")]
#[case::default("list", &[], "forbidden to list machines.cluster.x-k8s.io in namespace team-a", "in a Role")]
#[tokio::test(flavor = "multi_thread")]
async fn a_missing_right_is_named_with_the_rule_that_grants_it(
    #[case] verb: &'static str,
    #[case] flags: &[&str],
    #[case] what: &str,
    #[case] role: &str,
) {
    let fake = Fake::usual().await;
    fake.forbid(verb, "machines");
    let message = refusal(&fake, flags).await;
    let rule = "{apiGroups: [\"cluster.x-k8s.io\"], resources: [\"machines\"], verbs: [\"list\", \"watch\"]}";
    for part in [what, role, rule, "User \"u\" cannot"] {
        assert!(message.contains(part), "{message}");
    }
    assert!(!message.contains('\n'), "{message}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_field_that_the_server_does_not_select_by_is_refused() {
    let message = refusal(&Fake::usual().await, &["machines", "--field-selector", "spec.x=1"]).await;
    let expected = "refuses to list machines.cluster.x-k8s.io in namespace team-a with --field-selector \"spec.x=1\": field \
                    label not supported";
    assert!(message.contains(expected), "{message}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_namespace_that_is_not_there_is_refused_unless_it_may_come() {
    let fake = Fake::usual().await;
    let message = refusal(&fake, &["machines", "-n", "team-a,nowhere"]).await;
    assert!(message.contains("namespace \"nowhere\" isn't there: correct --namespace"), "{message}");
    begin(&fake, &["machines", "-n", "nowhere", "--allow-missing"], Printed::default()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rule_for_a_kind_that_is_not_watched_is_refused() {
    let fake = Fake::usual().await;
    let rules = fake.folder().join("rules.yaml");
    std::fs::write(fake.folder().join("url"), "http://127.0.0.1:1/x").unwrap();
    let url = fake.folder().join("url");
    let text = format!("rules: [{{name: ops, kinds: [Machien], to: {{form: slack, urlFile: {}}}}}]", url.display());
    std::fs::write(&rules, text).unwrap();
    let message = refusal(&fake, &["machines", "--notify-rules", &rules.display().to_string()]).await;
    assert!(message.contains("rule \"ops\": kind \"Machien\" is not among what is watched"), "{message}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_url_that_cannot_be_read_ends_the_start() {
    let message = refusal(&Fake::usual().await, &["machines", "--webhook", "file:/nonexistent"]).await;
    assert!(message.contains("notifications: file /nonexistent: can't read it"), "{message}");
}
