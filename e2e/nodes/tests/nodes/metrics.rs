//! The chart's alerts and dashboard on what a real Prometheus has scraped from Pods.

use std::{collections::BTreeSet, fmt::Write as _, fs, path::Path, process::Command, time::Duration};

use anyhow::{Context as _, Result, ensure};
use e2e::{
    go,
    helm::{CHART, RELEASE},
    nodes::{Group, Stage},
    ports::free_port,
    process::Process,
    provider::page,
    wait::every,
};
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

use crate::{calls::SEEN, lifecycle::name};

/// The interval of scraping and evaluating.
const INTERVAL: Duration = Duration::from_secs(1);

/// The panels of the dashboard that are empty on purpose while nothing is wrong, by their numbers: writes that are refused or
/// tried again, rollouts, watches that break, and objects that can't be decoded.
const QUIET: [&str; 5] = ["16 A", "16 B", "17 A", "34 B", "38 A"];

/// A running Prometheus.
struct Prometheus {
    port: u16,
    process: Process,
}

impl Prometheus {
    /// Starts one that scrapes these Pods as the chart's `ServiceMonitor` would, with the chart's alerts.
    async fn start(stage: &Stage<'_>, pods: &[Pod]) -> Result<Self> {
        let mut targets = Vec::new();
        for pod in pods {
            let pod = name(pod)?;
            stage.objects.patch("Pod", pod, json!({ "metadata": { "labels": { "scraped": pod } } })).await?;
            let service = stage.objects.create(json!({
                "kind": "Service",
                "metadata": { "name": format!("scraped-{pod}") },
                "spec": { "type": "NodePort", "selector": { "scraped": pod }, "ports": [{ "port": 8080, "targetPort": "http" }] },
            }));
            let port = service.await?.data["spec"]["ports"][0]["nodePort"].clone();
            let labels = json!({ "namespace": stage.namespace, "pod": pod, "instance": pod });
            targets.push(json!({ "targets": [format!("{}:{port}", stage.cluster.node_address()?)], "labels": labels }));
        }
        let directory = stage.logs.join("prometheus");
        fs::create_dir_all(&directory)?;
        let seconds = format!("{}s", INTERVAL.as_secs());
        let settings = json!({
            "global": { "scrape_interval": seconds, "scrape_timeout": seconds, "evaluation_interval": seconds },
            "rule_files": [Path::new(CHART).join("files/alerts.yaml").canonicalize()?],
            "scrape_configs": [{ "job_name": RELEASE, "static_configs": targets }],
        });
        fs::write(directory.join("prometheus.yaml"), settings.to_string())?;
        let port = free_port()?;
        let mut command = Command::new(go::prometheus()?);
        command.arg(format!("--config.file={}", directory.join("prometheus.yaml").display()));
        command.arg(format!("--storage.tsdb.path={}", directory.join("data").display()));
        command.arg(format!("--web.listen-address=127.0.0.1:{port}"));
        let process = Process::start("prometheus", command, &directory.join("prometheus.log"))?;
        let mut prometheus = Self { port, process };
        let all = pods.len().to_string();
        every(SEEN.0, "Prometheus", SEEN.1, async || {
            prometheus.process.still_running()?;
            let up = prometheus.query("sum(up)").await?;
            ensure!(up[0]["value"][1] == all, "{up:?}");
            Ok(())
        })
        .await?;
        Ok(prometheus)
    }

    async fn get(&self, path: &str) -> Result<Value> {
        let (status, body) = page(self.port, path).await?;
        ensure!(status == 200, "{path} answers {status}: {body}");
        Ok(serde_json::from_str(&body)?)
    }

    /// Evaluates a query now, and returns its series.
    async fn query(&self, query: &str) -> Result<Vec<Value>> {
        let encoded = query.bytes().fold(String::new(), |mut text, byte| {
            let written = write!(text, "%{byte:02X}");
            debug_assert!(written.is_ok(), "a text takes all");
            text
        });
        let answer = self.get(&format!("/api/v1/query?query={encoded}")).await?;
        ensure!(answer["status"] == "success" && answer["warnings"].is_null(), "{query}: {answer}");
        answer["data"]["result"].as_array().cloned().with_context(|| format!("{query} has no series: {answer}"))
    }

    /// Returns the alerts by name, each with its state, after all have been evaluated at least once.
    async fn alerts(&self) -> Result<Vec<(String, String)>> {
        let answer = self.get("/api/v1/rules?type=alert").await?;
        let rules = answer["data"]["groups"][0]["rules"].as_array().context("no rules")?;
        let alert = |rule: &Value| -> Result<(String, String)> {
            ensure!(rule["health"] == "ok" && rule["lastError"].is_null(), "{rule}");
            let text = |key: &str| rule[key].as_str().map(str::to_owned).with_context(|| format!("no {key} in {rule}"));
            Ok((text("name")?, text("state")?))
        };
        rules.iter().map(alert).collect()
    }
}

pub(crate) async fn prometheus_evaluates_every_alert_and_every_query_of_the_dashboard(stage: &Stage<'_>) -> Result<()> {
    let group = Group::create(&stage.objects, "workers", 3).await?;
    let wrong = Group::create(&stage.objects, "wrong", 0).await?;
    let annotation = json!({ "cluster.x-k8s.io/cluster-api-autoscaler-node-group-max-size": "many" });
    stage.objects.patch("MachineDeployment", &wrong.name, json!({ "metadata": { "annotations": annotation } })).await?;
    let release = stage.release();
    let pods = release.apply("install", &release.values()).await?;
    let prometheus = Prometheus::start(stage, &pods).await?;

    // Calls of every kind, one of them refused, go on until all queries have seen them.
    let connection = release.connection(&release.outside_of_all().await?).await?;
    let caller = connection.caller();
    caller.shows(&[&group.id]).await?;
    let node = group.nodes.first().context("a group without Nodes")?;
    let calls = async || -> Result<()> {
        let caller = connection.caller();
        caller.refresh().await?;
        caller.increase(&group.id, 1).await?;
        caller.decrease(&group.id, -1).await?;
        ensure!(caller.increase(&group.id, 100).await.is_err(), "a group grows beyond its max size");
        Ok(())
    };
    caller.delete(&group.id, std::slice::from_ref(node)).await?;
    let dashboard: Value = serde_json::from_str(&fs::read_to_string(Path::new(CHART).join("files/dashboard.json"))?)?;
    let mut queries = Vec::new();
    for panel in dashboard["panels"].as_array().context("a dashboard without panels")? {
        for target in panel["targets"].as_array().into_iter().flatten() {
            let of = format!("{} {}", panel["id"], target["refId"].as_str().unwrap_or_default());
            let text = target["expr"].as_str().context("a target without a query")?;
            let text = text.replace("$namespace", &stage.namespace).replace("$job", RELEASE).replace("$group", ".*");
            queries.push((of, text.replace("$__rate_interval", "30s")));
        }
    }
    ensure!(queries.len() > 30 && queries.iter().all(|(_, query)| !query.contains('$')), "{queries:?}");
    let results = every(INTERVAL, "series for every query", SEEN.1, async || {
        calls().await?;
        let mut empty = BTreeSet::new();
        let mut results = String::new();
        for (of, query) in &queries {
            let series = prometheus.query(query).await?;
            writeln!(results, "{of}\t{}\t{query}", series.len())?;
            if series.is_empty() {
                empty.insert(of.as_str());
            }
        }
        let unexpected: Vec<_> = empty.iter().filter(|of| !QUIET.contains(of)).collect();
        ensure!(unexpected.is_empty(), "no series for {unexpected:?}");
        Ok(results)
    })
    .await?;
    fs::write(stage.logs.join("queries.txt"), results)?;

    let written = fs::read_to_string(Path::new(CHART).join("files/alerts.yaml"))?;
    let written: Value = serde_yaml::from_str(&written)?;
    let expected = written["groups"][0]["rules"].as_array().context("no alerts")?.len();
    let alerts = prometheus.alerts().await?;
    ensure!(alerts.len() == expected, "{} of {expected} alerts: {alerts:?}", alerts.len());
    let active: Vec<_> =
        alerts.iter().filter(|(_, state)| state != "inactive").map(|(name, _)| name.as_str()).collect();
    ensure!(active == ["CapiAutoscalerProviderGroupInvalid"], "with one wrong group these are active: {active:?}");

    // Without Pods another one is on its way.
    stage.objects.patch("Deployment", RELEASE, json!({ "spec": { "replicas": 0 } })).await?;
    every(SEEN.0, "the alert for absent Pods", SEEN.1, async || {
        let alerts = prometheus.alerts().await?;
        let absent = alerts.iter().find(|(name, _)| name == "CapiAutoscalerProviderAbsent");
        let known = absent.map(|(_, known)| known.as_str());
        ensure!(known == Some("pending"), "it is {known:?}");
        Ok(())
    })
    .await
}
