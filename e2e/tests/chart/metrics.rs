//! Tests of the chart's files for Prometheus and Grafana with promtool: rules, their tests, the queries of the
//! dashboard, and the program's metrics. `tests/documents` checks that the names in them exist.

use std::{collections::BTreeSet, fmt::Write as _, fs, path::Path, process::Command};

use e2e::{
    helm::{CHART, Values},
    program::{self, Programs},
    promtool::Promtool,
};
use sandbox::{Sandbox, SandboxOptions, fleet::Fleet, read_manifests};
use serde_json::{Value, json};

use crate::{
    helm,
    switches::{base, of_kind, render},
};

const TESTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/chart/alerts_test.yaml");
const VERSION: &str = env!("CARGO_PKG_VERSION");
const ALERTS: &str = "files/alerts.yaml";

fn file(name: &str) -> String {
    fs::read_to_string(Path::new(CHART).join(name)).unwrap()
}

/// Returns the only object of a kind that the chart renders.
fn object(values: &Values, kind: &str) -> Value {
    let objects = render(values);
    let [object] = of_kind(&objects, kind)[..] else { panic!("not one {kind}") };
    object.clone()
}

fn names_of_alerts(groups: &Value) -> Vec<String> {
    let rules = groups.as_array().unwrap().iter().flat_map(|group| group["rules"].as_array().unwrap());
    rules.map(|rule| rule["alert"].as_str().unwrap().to_owned()).collect()
}

fn alerts() -> Vec<String> {
    let file: Value = serde_yaml::from_str(&file(ALERTS)).unwrap();
    names_of_alerts(&file["groups"])
}

#[test]
fn promtool_finds_no_fault_in_the_alerts_as_written_and_as_rendered() {
    let promtool = Promtool::new().unwrap();
    promtool.check_rules(&file(ALERTS)).unwrap();
    let rule = object(&base().set("metrics.prometheusRule.enabled", json!(true)), "PrometheusRule");
    promtool.check_rules(&json!({ "groups": rule["spec"]["groups"] }).to_string()).unwrap();
    assert_eq!(names_of_alerts(&rule["spec"]["groups"]), alerts());
}

#[test]
fn each_alert_fires_where_it_shall_and_only_there() {
    Promtool::new().unwrap().test_rules(Path::new(TESTS)).unwrap();
}

#[test]
fn each_alert_has_a_test_that_it_fires_and_one_that_it_does_not() {
    let tests: Value = serde_yaml::from_str(&fs::read_to_string(TESTS).unwrap()).unwrap();
    let (mut fires, mut is_quiet) = (BTreeSet::new(), BTreeSet::new());
    for test in tests["tests"].as_array().unwrap() {
        for of_rule in test["alert_rule_test"].as_array().into_iter().flatten() {
            let has_alerts = !of_rule["exp_alerts"].as_array().unwrap().is_empty();
            let name = of_rule["alertname"].as_str().unwrap().to_owned();
            if has_alerts {
                fires.insert(name)
            } else {
                is_quiet.insert(name)
            };
        }
        for of_query in test["promql_expr_test"].as_array().into_iter().flatten() {
            assert!(!of_query["exp_samples"].as_array().unwrap().is_empty(), "{of_query}");
            let (_, rest) = of_query["expr"].as_str().unwrap().split_once("alertname=\"").unwrap();
            fires.insert(rest.split('"').next().unwrap().to_owned());
        }
    }
    let all: BTreeSet<_> = alerts().into_iter().collect();
    assert_eq!((&fires, &is_quiet), (&all, &all));
}

/// Returns the links of the alerts by their names.
fn runbook_links(values: &Values) -> Vec<(String, Value)> {
    let rule = object(&values.clone().set("metrics.prometheusRule.enabled", json!(true)), "PrometheusRule");
    let rules = rule["spec"]["groups"].as_array().unwrap().iter().flat_map(|group| group["rules"].as_array().unwrap());
    rules.map(|rule| (text(&rule["alert"]), rule["annotations"]["runbook_url"].clone())).collect()
}

fn text(value: &Value) -> String {
    value.as_str().unwrap().to_owned()
}

#[test]
fn a_released_chart_links_what_its_tag_has_and_one_of_a_clone_links_no_runbook() {
    assert!(runbook_links(&base()).iter().all(|(_, link)| link.is_null()));
    let own = base().set("metrics.prometheusRule.runbookUrl", json!("https://wiki.example.com/capi"));
    assert_eq!(runbook_links(&own)[0].1, "https://wiki.example.com/capi#capiautoscalerproviderabsent");

    let root = Path::new(CHART).join("../..");
    let script = root.join(".ci/release");
    if !script.exists() {
        return;
    }
    let (directory, digest) = (tempfile::tempdir().unwrap(), format!("sha256:{}", "a".repeat(64)));
    let mut package = Command::new(script);
    package.args(["package", VERSION, "registry.example.com/provider", &digest]).arg(directory.path());
    let made = package.env("GITHUB_REPOSITORY", "some/where").env_remove("GITHUB_SERVER_URL").output().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));

    let helm = helm();
    let (home, tag) = ("https://github.com/some/where", format!("v{VERSION}"));
    for name in ["capi-autoscaler-provider", "capi-autoscaler-cluster"] {
        let archive = directory.path().join(format!("{name}-{VERSION}.tgz"));
        let shown = |what: &str| helm.run(&["show", what, archive.to_str().unwrap()]).unwrap();
        let chart: Value = serde_yaml::from_str(&shown("chart")).unwrap();
        assert_eq!(chart["home"], home);
        assert_eq!(chart["sources"], json!([format!("{home}/tree/{tag}/charts/{name}")]));
        let icon = text(&chart["icon"]);
        let icon = icon.strip_prefix(&format!("{home}/raw/{tag}/")).unwrap();
        assert!(root.join(icon).exists(), "{icon}");
        let readme = shown("readme");
        assert!(readme.contains(&format!("]({home}/blob/{tag}/docs/")) && !readme.contains("](../"), "{readme}");
    }
    let archive = directory.path().join(format!("capi-autoscaler-provider-{VERSION}.tgz"));
    for (name, link) in runbook_links(&base().of_chart(&archive)) {
        assert_eq!(link, format!("{home}/blob/{tag}/docs/how-to/runbook.md#{}", name.to_lowercase()));
    }
}

/// Writes the rules of a release, whose alerts have its name as the label `release`; returns them and the file's name.
fn rules_of(directory: &Path, release: &str, values: &Values) -> (Value, String) {
    let values = values.clone().set("metrics.prometheusRule.enabled", json!(true));
    let values = values.set("metrics.prometheusRule.alertLabels", json!({ "release": release }));
    let groups = object(&values, "PrometheusRule")["spec"]["groups"].clone();
    let name = format!("{release}.json");
    fs::write(directory.join(&name), json!({ "groups": groups }).to_string()).unwrap();
    (groups, name)
}

#[test]
fn rules_of_a_release_are_about_its_own_series() {
    let directory = tempfile::tempdir().unwrap();
    let monitored = base().set("metrics.serviceMonitor.enabled", json!(true));
    let second = monitored.clone().set("fullnameOverride", json!("second"));
    let elsewhere = Values::new("team-b", json!({ "autoDiscovery": { "clusterName": "prod" } }));
    let releases = [
        ("first", monitored, json!({ "namespace": "team-a", "job": "capi-autoscaler-provider-metrics" })),
        ("second", second, json!({ "namespace": "team-a", "job": "second-metrics" })),
        // Without a ServiceMonitor its job isn't known.
        ("elsewhere", elsewhere, json!({ "namespace": "team-b" })),
        (
            "relabelled",
            base().set("metrics.prometheusRule.selector", json!({ "cluster": "a\"$1" })),
            json!({ "cluster": "a\"$1" }),
        ),
    ];
    let mut files = Vec::new();
    for (release, values, labels) in &releases {
        let (groups, name) = rules_of(directory.path(), release, values);
        files.push(name);
        let matchers = labels.as_object().unwrap().iter().map(|(label, value)| format!("{label}={value}"));
        let mut matchers: Vec<_> = matchers.collect();
        matchers.sort_unstable();
        let scope = format!("{{{}", matchers.join(", "));
        for rule in groups[0]["rules"].as_array().unwrap() {
            let query = rule["expr"].as_str().unwrap();
            let metrics = query.match_indices("capi_autoscaler_provider_").map(|(at, _)| &query[at..]);
            for metric in metrics {
                let end = metric.find(|c: char| !c.is_ascii_lowercase() && c != '_').unwrap();
                assert!(metric[end..].starts_with(&scope), "{scope} isn't in {query}");
            }
        }
    }

    // Only the second release of team-a and the one of team-b have Pods; both are out of sync.
    let series = |metric: &str, labels: &str, values: &str| {
        let series = format!("capi_autoscaler_provider_{metric}{{{labels}}}");
        json!({ "series": series, "values": values })
    };
    let pods = [r#"namespace="team-a", job="second-metrics""#, r#"namespace="team-b", job="j""#];
    let input: Vec<_> =
        pods.iter().flat_map(|pod| [series("build_info", pod, "1x30"), series("ready", pod, "0x30")]).collect();
    let firing = |name: &str, severity: &str, labels: &str| {
        json!({
            "labels": format!(
                "ALERTS{{alertname=\"{name}\", alertstate=\"firing\", severity=\"{severity}\", {labels}}}"
            ),
            "value": 1,
        })
    };
    let absent = "CapiAutoscalerProviderAbsent";
    let out_of_sync = "CapiAutoscalerProviderOutOfSync";
    let tests = json!({
        "rule_files": files,
        "evaluation_interval": "1m",
        "tests": [{
            "interval": "1m",
            "input_series": input,
            "promql_expr_test": [{
                "expr": format!("ALERTS{{alertname=~\"{absent}|{out_of_sync}\"}}"),
                "eval_time": "20m",
                "exp_samples": [
                    firing(
                        absent,
                        "critical",
                        r#"release="first", namespace="team-a", job="capi-autoscaler-provider-metrics""#,
                    ),
                    firing(absent, "critical", r#"release="relabelled", cluster="a\"$1""#),
                    firing(out_of_sync, "critical", &format!(r#"release="second", {}"#, pods[0])),
                    firing(out_of_sync, "critical", &format!(r#"release="elsewhere", {}"#, pods[1])),
                ],
            }],
        }],
    });
    let path = directory.path().join("tests.json");
    fs::write(&path, tests.to_string()).unwrap();
    Promtool::new().unwrap().test_rules(&path).unwrap();
}

#[test]
fn without_calls_to_expect_there_is_no_alert_that_nobody_calls() {
    let values = base().set("metrics.prometheusRule.enabled", json!(true)).set("readOnly", json!(true));
    let left = names_of_alerts(&object(&values, "PrometheusRule")["spec"]["groups"]);
    let not_called = |name: &String| name.ends_with("NotCalled");
    assert_eq!(alerts().iter().filter(|name| not_called(name)).count(), 2);
    assert_eq!(left, alerts().into_iter().filter(|name| !not_called(name)).collect::<Vec<_>>());
    // One that isn't there may still be left out.
    object(
        &values.set("metrics.prometheusRule.disabled", json!(["CapiAutoscalerProviderNotCalled"])),
        "PrometheusRule",
    );
}

#[test]
fn the_service_monitor_finds_the_service_of_metrics() {
    let values = base().set("metrics.serviceMonitor", json!({ "enabled": true, "interval": "30s" }));
    let monitor = object(&values, "ServiceMonitor");
    let selected = monitor["spec"]["selector"]["matchLabels"].as_object().unwrap();
    let objects = render(&values);
    let mut services = of_kind(&objects, "Service");
    services.retain(|service| selected.iter().all(|(key, value)| &service["metadata"]["labels"][key] == value));
    let [service] = services[..] else { panic!("it selects {} Services", services.len()) };
    let endpoint = &monitor["spec"]["endpoints"][0];
    assert_eq!(service["spec"]["ports"][0]["name"], endpoint["port"]);
    assert_eq!((&endpoint["path"], &endpoint["interval"]), (&json!("/metrics"), &json!("30s")));
    assert_eq!(monitor["spec"]["namespaceSelector"]["matchNames"][0], service["metadata"]["namespace"]);
}

#[test]
fn the_dashboard_is_rendered_as_it_is_written_and_each_of_its_queries_is_one() {
    let objects = render(&base().set("metrics.dashboard.enabled", json!(true)));
    let config = objects.iter().find(|it| it["metadata"]["name"].as_str().unwrap().ends_with("-dashboard")).unwrap();
    assert_eq!(config["metadata"]["labels"]["grafana_dashboard"], "1");
    let rendered: Value =
        serde_json::from_str(config["data"]["capi-autoscaler-provider.json"].as_str().unwrap()).unwrap();
    let written: Value = serde_json::from_str(&file("files/dashboard.json")).unwrap();
    assert_eq!(rendered, written);

    let mut rules = "groups:\n- name: dashboard\n  rules:\n".to_owned();
    let mut queries = 0;
    for panel in written["panels"].as_array().unwrap() {
        for target in panel["targets"].as_array().into_iter().flatten() {
            // Grafana replaces the variable by a time.
            let query = target["expr"].as_str().unwrap().replace("$__rate_interval", "5m");
            let name = format!("panel_{}:{}", panel["id"], target["refId"].as_str().unwrap().to_lowercase());
            writeln!(rules, "  - {{record: '{name}', expr: {}}}", Value::from(query)).unwrap();
            queries += 1;
        }
    }
    assert!(queries > 30, "{queries}");
    Promtool::new().unwrap().check_rules(&rules).unwrap();
}

/// Returns the metrics of the program on a sandbox with a fleet and the invalid example.
async fn exposition() -> String {
    let manifests = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/node-groups");
    let fleet = Fleet { groups: 5, machines: 3, namespace: "team-a".to_owned(), cluster: "prod".to_owned() };
    let options = SandboxOptions {
        manifests: read_manifests(Path::new(manifests)).unwrap(),
        fleet: Some(fleet),
        ..SandboxOptions::default()
    };
    let sandbox = Sandbox::start(options).await.unwrap();
    let directory = tempfile::tempdir().unwrap();
    let programs = Programs::new(program::build().unwrap(), directory.path().to_owned());
    let mut provider = programs.launch(&sandbox.management_kubeconfig(), &["--cluster=team-a/prod"], &[]).unwrap();
    provider.ready().await.unwrap();
    provider.refresh().await.unwrap();
    let first = provider.refreshed_ids().await.unwrap()[0].clone();
    provider.increase(&first, 1).await.unwrap();
    let (status, text) = provider.http("/metrics").await.unwrap();
    assert_eq!(status, 200);
    drop(provider);
    sandbox.stop().await;
    text
}

#[tokio::test(flavor = "multi_thread")]
async fn promtool_finds_no_fault_in_what_is_exported() {
    let text = exposition().await;
    for part in
        ["_node_group_size{group=", "_node_group_problem{group=", "_writes_total{write=\"size\",result=\"ok\"} 1"]
    {
        assert!(text.contains(part), "{part} isn't in {text}");
    }
    Promtool::new().unwrap().check_metrics(&text).unwrap();
}
