//! Runs the sandbox's suite of API behaviours on an API server that nothing else uses.

use std::{process::ExitCode, sync::Arc, time::Duration};

use anyhow::{Context, Result, ensure};
use kube::{Client, Config};
use libtest_mimic::{Arguments, Failed, Trial};
use sandbox::conformance::{Needs, Suite, cases};
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use crate::{control_plane::ControlPlane, crds::Installed, go, objects::Contract};

/// Cases wait more than they work.
const AT_ONCE: usize = 8;

/// Runs what the command line selects, as libtest would.
#[must_use]
pub fn run() -> ExitCode {
    match try_run() {
        Ok(code) => code,
        Err(error) => {
            eprintln!("conformance: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn try_run() -> Result<ExitCode> {
    let mut arguments = Arguments::from_args();
    arguments.test_threads.get_or_insert(AT_ONCE);
    if arguments.list {
        let trials = cases().into_iter().map(|case| Trial::test(case.name, || Ok(()))).collect();
        return Ok(libtest_mimic::run(&arguments, trials).exit_code());
    }
    let runtime = Arc::new(Runtime::new()?);
    let components = Arc::new(go::components()?);
    let plane = runtime.block_on(ControlPlane::start(components, Contract::V1Beta2, Installed::Nothing))?;
    let (client, etcd) = runtime.block_on(async { anyhow::Ok((plane.plain_client().await?, etcd(plane.etcd())?)) })?;
    let forget = Box::new(move || {
        let etcd = etcd.clone();
        Box::pin(async move { compact(&etcd).await }) as _
    });
    let suite = Arc::new(Suite::new(client, forget));
    let trials = cases().into_iter().map(|case| {
        let (runtime, suite) = (Arc::clone(&runtime), Arc::clone(&suite));
        let run = move || runtime.block_on(suite.run(case)).map_err(|error| Failed::from(format!("{error:#}")));
        // No controllers run here.
        Trial::test(case.name, run).with_ignored_flag(case.needs == Needs::GarbageCollector)
    });
    let conclusion = libtest_mimic::run(&arguments, trials.collect());
    drop(plane);
    Ok(conclusion.exit_code())
}

/// etcd has a gateway from JSON to its own protocol, which any client of HTTP can talk to.
fn etcd(url: &str) -> Result<Client> {
    let mut config = Config::new(url.parse()?);
    config.read_timeout = Some(Duration::from_secs(20));
    Ok(Client::try_from(config)?)
}

/// Drops all but the present state of every object.
async fn compact(etcd: &Client) -> Result<()> {
    let range = json!({ "key": "AA==", "count_only": true });
    let state = post(etcd, "/v3/kv/range", &range).await?;
    let revision = state["header"]["revision"].as_str().context("etcd tells no revision")?.to_owned();
    let answer = post(etcd, "/v3/kv/compaction", &json!({ "revision": revision, "physical": true })).await?;
    ensure!(answer["header"].is_object(), "etcd answered the compaction with {answer}");
    Ok(())
}

async fn post(etcd: &Client, path: &str, body: &Value) -> Result<Value> {
    let request = http::Request::post(path).body(body.to_string().into_bytes())?;
    etcd.request(request).await.with_context(|| format!("etcd, POST {path}"))
}
