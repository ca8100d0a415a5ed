//! A Prometheus with the chart's alerts, and the queries of the chart's dashboard.

use std::{fmt::Write as _, fs, path::Path, process::Command, time::Duration};

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use crate::{
    go,
    helm::{CHART, RELEASE},
    ports::free_port,
    process::Process,
    provider::page,
    wait::every,
};

/// The interval of scraping and evaluating.
pub const SCRAPE_INTERVAL: Duration = Duration::from_secs(1);

/// A running Prometheus.
pub struct Prometheus {
    port: u16,
    process: Process,
}

impl Prometheus {
    /// Starts one that scrapes these targets, each a `static_config`, with the alerts of the chart. Its files and log
    /// are in a directory. Returns when all targets are up.
    pub async fn start(directory: &Path, targets: &[Value], within: Duration) -> Result<Self> {
        fs::create_dir_all(directory)?;
        let seconds = format!("{}s", SCRAPE_INTERVAL.as_secs());
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
        let all = targets.len().to_string();
        every(SCRAPE_INTERVAL / 4, "Prometheus", within, async || {
            prometheus.process.still_running()?;
            let up = prometheus.query("sum(up)").await?;
            ensure!(up.first().is_some_and(|up| up["value"][1] == all), "{up:?}");
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
    pub async fn query(&self, query: &str) -> Result<Vec<Value>> {
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
    pub async fn alerts(&self) -> Result<Vec<(String, String)>> {
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

/// Returns the queries of the dashboard, each by the number of its panel and its letter, with values for their
/// variables.
pub fn dashboard_queries(namespace: &str) -> Result<Vec<(String, String)>> {
    let dashboard: Value = serde_json::from_str(&fs::read_to_string(Path::new(CHART).join("files/dashboard.json"))?)?;
    let mut queries = Vec::new();
    for panel in dashboard["panels"].as_array().context("a dashboard without panels")? {
        for target in panel["targets"].as_array().into_iter().flatten() {
            let of = format!("{} {}", panel["id"], target["refId"].as_str().unwrap_or_default());
            let text = target["expr"].as_str().context("a target without a query")?;
            let text = text.replace("$namespace", namespace).replace("$job", RELEASE).replace("$group", ".*");
            queries.push((of, text.replace("$__rate_interval", "30s")));
        }
    }
    ensure!(queries.iter().all(|(_, query)| !query.contains('$')), "{queries:?}");
    Ok(queries)
}

/// Returns true if a query is about a fleet.
#[must_use]
pub fn is_of_fleet(query: &str) -> bool {
    query.contains("capi_autoscaler_provider_fleet_")
}
