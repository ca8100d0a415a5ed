//! Runs the sandbox's suite of API behaviours on an API server that nothing else uses, and sessions of kubectl on it and on a sandbox.

use std::{
    process::ExitCode,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use futures::future::LocalBoxFuture;
use kube::{Client, Config};
use libtest_mimic::{Arguments, Failed, Trial};
use sandbox::conformance::{Needs, Suite, cases};
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use crate::{
    control_plane::ControlPlane,
    crds::Installed,
    go::{self, Components},
    kubectl::Kubectl,
    objects::Contract,
    users::User,
};

/// Cases wait more than they work.
const AT_ONCE: usize = 8;

/// What a session of kubectl does.
pub type Use = for<'a> fn(&'a Kubectl) -> LocalBoxFuture<'a, Result<()>>;

/// A session of kubectl.
#[derive(Clone, Copy, Debug)]
pub struct Session {
    /// Shown after the server.
    pub name: &'static str,
    /// What it does.
    pub run: Use,
}

/// Lists sessions by the paths of their functions, each an `async fn(&Kubectl) -> Result<()>`.
#[macro_export]
macro_rules! sessions {
    ($($module:ident::$function:ident),* $(,)?) => {
        [$($crate::conformance::Session {
            name: concat!(stringify!($module), "::", stringify!($function)),
            run: |kubectl| Box::pin($module::$function(kubectl)),
        }),*]
    };
}

/// Runs what the command line selects, as libtest would.
#[must_use]
pub fn run(sessions: &[Session]) -> ExitCode {
    match try_run(sessions) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("conformance: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn try_run(sessions: &[Session]) -> Result<ExitCode> {
    let mut arguments = Arguments::from_args();
    arguments.test_threads.get_or_insert(AT_ONCE);
    if arguments.list {
        let cases = cases().into_iter().map(|case| case.name);
        let names = cases.chain(sessions.iter().map(|session| session.name));
        let trials = names.map(|name| Trial::test(format!("real::{name}"), || Ok(()))).collect();
        return Ok(libtest_mimic::run(&arguments, trials).exit_code());
    }
    let runtime = Arc::new(Runtime::new()?);
    let components = Arc::new(go::components()?);
    let real = Arc::new(runtime.block_on(Real::start(components))?);
    let mut trials = Vec::new();
    for case in cases() {
        let (runtime, real) = (Arc::clone(&runtime), Arc::clone(&real));
        let run = move || runtime.block_on(real.suite.run(case)).map_err(failed);
        // No controllers run here.
        let ignored = case.needs == Needs::GarbageCollector;
        trials.push(Trial::test(format!("real::{}", case.name), run).with_ignored_flag(ignored));
    }
    for &session in sessions {
        let (runtime, real) = (Arc::clone(&runtime), Arc::clone(&real));
        let run = move || runtime.block_on(real.session(session)).map_err(failed);
        trials.push(Trial::test(format!("real::{}", session.name), run));
    }
    let conclusion = libtest_mimic::run(&arguments, trials);
    drop(real);
    Ok(conclusion.exit_code())
}

fn failed(error: anyhow::Error) -> Failed {
    Failed::from(format!("{error:#}"))
}

/// A real API server with all that runs on it.
struct Real {
    suite: Suite,
    components: Arc<Components>,
    plane: ControlPlane,
    sessions: AtomicUsize,
}

impl Real {
    async fn start(components: Arc<Components>) -> Result<Self> {
        let plane = ControlPlane::start(Arc::clone(&components), Contract::V1Beta2, Installed::Nothing).await?;
        let etcd = etcd(plane.etcd())?;
        let forget = Box::new(move || {
            let etcd = etcd.clone();
            Box::pin(async move { compact(&etcd).await }) as _
        });
        let suite = Suite::new(plane.plain_client().await?, forget);
        Ok(Self { suite, components, plane, sessions: AtomicUsize::new(0) })
    }

    async fn session(&self, session: Session) -> Result<()> {
        let namespace = format!("kubectl-{}", self.sessions.fetch_add(1, Ordering::Relaxed));
        let home = self.plane.directory().join(&namespace);
        let kubeconfig = self.plane.kubeconfig(&User::administrator());
        let kubectl = Kubectl::new(self.components.kubectl.clone(), home, &kubeconfig, &namespace)?;
        kubectl.run(&format!("create namespace {namespace}")).await?;
        (session.run)(&kubectl).await
    }
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
