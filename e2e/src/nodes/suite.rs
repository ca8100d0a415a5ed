//! Runs scenarios one after the other on one cluster, which is made when the first needs it. Without the variable nothing
//! runs, and each is listed as ignored.

use std::{
    env, fs,
    panic::{AssertUnwindSafe, catch_unwind},
    path::{Path, PathBuf},
    process::ExitCode,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use anyhow::{Context as _, Result, anyhow};
use futures::future::LocalBoxFuture;
use libtest_mimic::{Arguments, Failed, Trial};
use serde_json::json;
use tokio::{runtime::Runtime, sync::Mutex};

use super::{Cluster, LOOK, Leftovers, Release, fake_nodes};
use crate::{
    images::Docker,
    objects::Objects,
    wait::{SOON, every},
};

/// The environment variable that lets these tests run; any value will do.
pub const VARIABLE: &str = "E2E_DOCKER";

/// The body of a scenario.
pub type Play = for<'a> fn(&'a Stage<'a>) -> LocalBoxFuture<'a, Result<()>>;

/// A scenario, with its name.
#[derive(Clone, Copy)]
pub struct Scenario {
    /// The name.
    pub name: &'static str,
    /// The body.
    pub play: Play,
}

/// The surroundings of one scenario.
pub struct Stage<'a> {
    /// The cluster, which no other scenario uses at the same time.
    pub cluster: &'a Cluster,
    /// A namespace of its own, under Pod Security's restricted level, with the Cluster `prod`.
    pub namespace: String,
    /// Access to the objects of that namespace.
    pub objects: Objects,
    /// The directory of its logs.
    pub logs: PathBuf,
}

impl Stage<'_> {
    /// Returns the release of the chart in the scenario's namespace.
    #[must_use]
    pub fn release(&self) -> Release<'_> {
        Release::new(self.cluster, &self.namespace)
    }
}

/// Lists scenarios by the paths of their functions, each an `async fn(&Stage<'_>) -> Result<()>`.
#[macro_export]
macro_rules! on_nodes {
    ($($module:ident::$function:ident),* $(,)?) => {
        [$($crate::nodes::Scenario {
            name: concat!(stringify!($module), "::", stringify!($function)),
            play: |stage| Box::pin($module::$function(stage)),
        }),*]
    };
}

struct Suite {
    runtime: Runtime,
    logs: PathBuf,
    cluster: Mutex<Option<Result<Cluster, String>>>,
    number: AtomicUsize,
}

/// Runs the scenarios that the command line selects, like libtest, and then looks for what is left on the machine.
#[must_use]
pub fn run(scenarios: &[Scenario], logs: &Path) -> ExitCode {
    let mut arguments = Arguments::from_args();
    arguments.test_threads = Some(1);
    let enabled = env::var_os(VARIABLE).is_some() && !arguments.list;
    let before = if enabled { Docker::running().and_then(Leftovers::now).map(Some) } else { Ok(None) };
    let (before, runtime) = match (before, Runtime::new()) {
        (Ok(before), Ok(runtime)) => (before, runtime),
        (Err(error), _) => {
            eprintln!("nodes: {error:#}");
            return ExitCode::FAILURE;
        }
        (_, Err(error)) => {
            eprintln!("nodes: {error}");
            return ExitCode::FAILURE;
        }
    };
    let suite =
        Arc::new(Suite { runtime, logs: logs.to_owned(), cluster: Mutex::new(None), number: AtomicUsize::new(0) });
    let trials = scenarios.iter().map(|&scenario| {
        let suite = Arc::clone(&suite);
        let trial = Trial::test(scenario.name, move || suite.try_scenario(scenario));
        trial.with_ignored_flag(env::var_os(VARIABLE).is_none())
    });
    let conclusion = libtest_mimic::run(&arguments, trials.collect());
    match suite.end(before.as_ref()) {
        Ok(()) => conclusion.exit_code(),
        Err(error) => {
            eprintln!("nodes: {error:#}");
            ExitCode::FAILURE
        }
    }
}

impl Suite {
    fn try_scenario(&self, scenario: Scenario) -> Result<(), Failed> {
        let logs = self.logs.join(scenario.name.replace("::", "/"));
        let played = catch_unwind(AssertUnwindSafe(|| self.runtime.block_on(self.play(scenario, &logs))));
        let played = played.unwrap_or_else(|panic| {
            let text = panic.downcast_ref::<String>().cloned();
            let text = text.or_else(|| panic.downcast_ref::<&str>().map(|&text| text.to_owned()));
            Err(anyhow!(text.unwrap_or_else(|| "a panic".to_owned())))
        });
        played.map_err(|error| format!("{error:#}\nlogs are in {}", logs.display()).into())
    }

    async fn play(&self, scenario: Scenario, logs: &Path) -> Result<()> {
        if logs.exists() {
            fs::remove_dir_all(logs)?;
        }
        fs::create_dir_all(logs)?;
        let mut held = self.cluster.lock().await;
        if held.is_none() {
            *held = Some(Cluster::start(logs).await.map_err(|error| format!("{error:#}")));
        }
        let cluster = held.as_ref().context("no cluster")?.as_ref().map_err(|error| anyhow!(error.clone()))?;
        let namespace = format!("team-{}", self.number.fetch_add(1, Ordering::Relaxed));
        let stage = Stage {
            cluster,
            objects: cluster.objects(&namespace),
            namespace: namespace.clone(),
            logs: logs.to_owned(),
        };
        let restricted = json!({
            "pod-security.kubernetes.io/enforce": "restricted",
            "pod-security.kubernetes.io/warn": "restricted",
        });
        let object = json!({ "kind": "Namespace", "metadata": { "name": namespace, "labels": restricted } });
        stage.objects.create(object).await?;
        let prod = json!({ "kind": "Cluster", "metadata": { "name": "prod" }, "spec": {
            "clusterNetwork": { "serviceDomain": "cluster.local" },
        } });
        stage.objects.create(prod).await?;
        let played = (scenario.play)(&stage).await;
        let kept = cluster.keep_logs(logs);
        // The next scenario starts without this one's Pods and Nodes.
        let cleared = clear(&stage).await;
        played.and(kept).and(cleared)
    }

    /// Removes the cluster, and looks for what is left.
    fn end(&self, before: Option<&Leftovers>) -> Result<()> {
        let cluster = self.cluster.blocking_lock().take();
        if let Some(Ok(cluster)) = cluster {
            cluster.remove()?;
        }
        let Some(before) = before else { return Ok(()) };
        // Processes of a container end a moment after it.
        self.runtime.block_on(every(LOOK, "nothing left behind", SOON, async || {
            Leftovers::now(Docker::running()?)?.assert_none_since(before)
        }))
    }
}

/// Removes the Nodes and Machines of a scenario, and its namespace with all Pods.
async fn clear(stage: &Stage<'_>) -> Result<()> {
    fake_nodes(&stage.objects).await?;
    for machine in stage.objects.list("Machine", "").await? {
        let name = machine.metadata.name.context("a Machine without name")?;
        stage.objects.patch("Machine", &name, json!({ "metadata": { "finalizers": null } })).await?;
    }
    stage.objects.remove("Namespace", &stage.namespace).await?;
    super::cluster::gone(&stage.objects, "Namespace", &stage.namespace).await
}
