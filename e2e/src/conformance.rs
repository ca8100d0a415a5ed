//! Runs the sandbox's suite of API behaviours on a dedicated API server, kubectl sessions on it and on a sandbox, and the
//! promises of an informer on another API server: the suite drops what a server remembers.

#[path = "../../crates/sandbox/tests/conformance/cases/mod.rs"]
mod cases;

use std::{
    path::PathBuf,
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
use sandbox::{api::Api, clock::Clock, http::ApiServer};
use serde_json::{Value, json};
use tokio::{runtime::Runtime, sync::OnceCell};

use crate::{
    control_plane::ControlPlane,
    crds::Installed,
    go,
    informer::{Lists, Promise, Setup},
    kubectl::Kubectl,
    objects::Contract,
    runner::{self, Scenario, Shared, trial},
    users::User,
};

/// The number of concurrent cases, which mostly wait.
const AT_ONCE: usize = 8;

/// The body of a kubectl session.
pub type Use = for<'a> fn(&'a Kubectl) -> LocalBoxFuture<'a, Result<()>>;

/// The body of a trial.
type Run = Box<dyn for<'a> FnOnce(&'a Servers) -> LocalBoxFuture<'a, Result<()>> + Send>;

/// Runs the trials that the command line selects, like libtest: each promise with streamed and with paged lists.
pub fn run(sessions: &[Scenario<Use>], promises: &[Scenario<Promise>]) -> ExitCode {
    let trials = |suite: &Arc<Suite>| {
        let trial = |name: String, run: Run| {
            trial(suite, name, move |suite| {
                suite.runtime.block_on(async { run(&*suite.servers.get(Servers::start()).await?).await })
            })
        };
        let mut trials = Vec::new();
        for case in cases::cases() {
            let run: Run = Box::new(move |servers| Box::pin(servers.suite.run(case)));
            trials.push(trial(format!("real::{}", case.name), run));
        }
        for &session in sessions {
            let real: Run = Box::new(move |servers| Box::pin(servers.real.session(session)));
            trials.push(trial(format!("real::{}", session.name), real));
            let sandbox: Run = Box::new(move |servers| Box::pin(servers.sandbox.session(session)));
            trials.push(trial(format!("sandbox::{}", session.name), sandbox));
        }
        for (promise, lists) in promises.iter().flat_map(|&promise| Lists::ALL.map(|lists| (promise, lists))) {
            let name = format!("{}::{}", promise.name, lists.as_str());
            trials.push(runner::trial(suite, name, move |suite| {
                suite.runtime.block_on(suite.try_promise(lists, promise.body))
            }));
        }
        Ok(trials)
    };
    runner::run("conformance", AT_ONCE, Suite::new(), trials, |suite| {
        suite.servers.end();
        suite.informers.end();
    })
}

struct Suite {
    runtime: Runtime,
    servers: Shared<Servers>,
    informers: Shared<ControlPlane>,
}

impl Suite {
    fn new() -> Result<Self> {
        Ok(Self { runtime: Runtime::new()?, servers: Shared::default(), informers: Shared::default() })
    }

    async fn try_promise(&self, lists: Lists, body: Promise) -> Result<()> {
        let start = async {
            let components = Arc::new(go::components()?);
            ControlPlane::start(components, Contract::V1Beta2, Installed::Nothing).await
        };
        let plane = self.informers.get(start).await?;
        body(&Setup::new(&plane, lists).await?).await
    }
}

/// Both servers, and the suites that run on them. Fields are dropped in this order.
struct Servers {
    suite: cases::Suite,
    real: Shell,
    sandbox: Shell,
    _in_memory: ApiServer,
    _plane: ControlPlane,
}

impl Servers {
    async fn start() -> Result<Self> {
        let components = Arc::new(go::components()?);
        let kubectl = components.kubectl.clone();
        let plane = ControlPlane::start(components, Contract::V1Beta2, Installed::Nothing).await?;
        let etcd = etcd(plane.etcd())?;
        let forget = Box::new(move || {
            let etcd = etcd.clone();
            Box::pin(async move { compact(&etcd).await }) as _
        });
        let suite = cases::Suite::new(plane.plain_client().await?, forget);
        let in_memory = ApiServer::start(Api::new(Clock::real())).await?;
        let kubeconfig = serde_yaml::from_str(&in_memory.kubeconfig())?;
        let shell = |name: &str, kubeconfig: Value| Shell {
            kubectl: kubectl.clone(),
            home: plane.directory().join(name),
            kubeconfig,
            prepared: Arc::default(),
            sessions: AtomicUsize::new(0),
        };
        let real = shell("real", plane.kubeconfig(&User::administrator()));
        let sandbox = shell("sandbox", kubeconfig);
        Ok(Self { suite, real, sandbox, _in_memory: in_memory, _plane: plane })
    }
}

/// The environment of sessions on one server.
struct Shell {
    kubectl: PathBuf,
    home: PathBuf,
    kubeconfig: Value,
    prepared: Arc<OnceCell<()>>,
    sessions: AtomicUsize,
}

impl Shell {
    async fn session(&self, session: Scenario<Use>) -> Result<()> {
        let namespace = format!("kubectl-{}", self.sessions.fetch_add(1, Ordering::Relaxed));
        let home = self.home.join(&namespace);
        let kubectl =
            Kubectl::new(self.kubectl.clone(), home, &self.kubeconfig, &namespace, Arc::clone(&self.prepared))?;
        // `kubectl create namespace` would send protobuf, which a sandbox doesn't decode.
        let object = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": namespace } });
        kubectl.run_on("create -f", &object).await?;
        (session.body)(&kubectl).await
    }
}

/// Returns a client for etcd's JSON gateway, which any HTTP client can use.
fn etcd(url: &str) -> Result<Client> {
    let mut config = Config::new(url.parse()?);
    config.read_timeout = Some(Duration::from_secs(20));
    Ok(Client::try_from(config)?)
}

/// Compacts etcd: drops all but the current revision of every object.
async fn compact(etcd: &Client) -> Result<()> {
    let range = json!({ "key": "AA==", "count_only": true });
    let state = post(etcd, "/v3/kv/range", &range).await?;
    let revision = state["header"]["revision"].as_str().context("etcd answered no revision")?.to_owned();
    let answer = post(etcd, "/v3/kv/compaction", &json!({ "revision": revision, "physical": true })).await?;
    ensure!(answer["header"].is_object(), "etcd answered the compaction with {answer}");
    Ok(())
}

async fn post(etcd: &Client, path: &str, body: &Value) -> Result<Value> {
    let request = http::Request::post(path).body(body.to_string().into_bytes())?;
    etcd.request(request).await.with_context(|| format!("etcd, POST {path}"))
}
