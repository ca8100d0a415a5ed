//! Runs scenarios one after the other on clusters that they share, which are made when the first needs them. Without
//! the variable each is listed as ignored, and fails before it touches Docker if it is run nevertheless.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::ExitCode,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use anyhow::{Context as _, Result, anyhow};
use clap::Parser as _;
use libtest_mimic::{Failed, Trial};
use tokio::{runtime::Runtime, sync::Mutex};

use super::{Leftovers, POLL_INTERVAL};
use crate::{
    images::Docker,
    runner::{Selection, caught},
    wait::{SOON, every},
};

/// The environment variable that lets these tests run; any value will do.
const VARIABLE: &str = "E2E_DOCKER";

/// A scenario, with its name.
#[derive(Clone, Copy)]
pub struct Scenario<P> {
    /// The name.
    pub name: &'static str,
    /// The body.
    pub body: P,
}

/// Lists scenarios of a type by the paths of their functions.
#[macro_export]
macro_rules! docker_scenarios {
    ($body:ty: $($module:ident::$function:ident),* $(,)?) => {
        [$($crate::nodes::Scenario::<$body> {
            name: concat!(stringify!($module), "::", stringify!($function)),
            body: |shared| Box::pin($module::$function(shared)),
        }),*]
    };
}

/// All that scenarios share.
pub(crate) trait Shared: Send + Sized + 'static {
    /// The body of a scenario.
    type Body: Copy + Send + 'static;

    /// Makes it, with logs in a directory.
    async fn start(logs: &Path) -> Result<Self>;

    /// Runs a scenario, keeps its logs in a directory, and removes its objects.
    async fn run_scenario(&self, number: usize, body: Self::Body, logs: &Path) -> Result<()>;

    /// Removes it from the machine.
    async fn remove(self) -> Result<()>;
}

struct Suite<S> {
    runtime: Runtime,
    logs: PathBuf,
    shared: Mutex<Option<Result<S, String>>>,
    number: AtomicUsize,
}

/// Runs the scenarios that the command line selects, like libtest, and then looks for what is left on the machine.
/// Without the environment variable all are ignored, and those that `--ignored` selects fail.
pub(crate) fn run<S: Shared>(scenarios: &[Scenario<S::Body>], logs: &Path) -> ExitCode {
    let mut selection = Selection::parse();
    selection.arguments.test_threads = Some(1);
    let is_missing = env::var_os(VARIABLE).is_none_or(|value| value.is_empty());
    let enabled = !is_missing && !selection.arguments.list;
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
        Arc::new(Suite::<S> { runtime, logs: logs.to_owned(), shared: Mutex::new(None), number: AtomicUsize::new(0) });
    let trials = scenarios.iter().map(|&scenario| trial(&suite, scenario, is_missing));
    let conclusion = selection.run(trials.collect());
    match suite.end(before.as_ref()) {
        Ok(()) => conclusion.exit_code(),
        Err(error) => {
            eprintln!("nodes: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Returns the trial of a scenario. While the variable is missing, it is ignored, and fails at once if it is run.
fn trial<S: Shared>(suite: &Arc<Suite<S>>, scenario: Scenario<S::Body>, is_missing: bool) -> Trial {
    let Scenario { name, body } = scenario;
    let suite = Arc::clone(suite);
    let run = move || {
        if is_missing {
            return Err(format!("it needs root, Docker and a network: set {VARIABLE}=1 to let it run").into());
        }
        suite.try_scenario(name, body)
    };
    Trial::test(name, run).with_ignored_flag(is_missing)
}

impl<S: Shared> Suite<S> {
    fn try_scenario(&self, name: &str, body: S::Body) -> Result<(), Failed> {
        let logs = self.logs.join(name.replace("::", "/"));
        let outcome = caught(|| self.runtime.block_on(self.run_scenario(body, &logs)));
        outcome.map_err(|error| format!("{error:#}\nlogs are in {}", logs.display()).into())
    }

    async fn run_scenario(&self, body: S::Body, logs: &Path) -> Result<()> {
        if logs.exists() {
            fs::remove_dir_all(logs)?;
        }
        fs::create_dir_all(logs)?;
        let mut held = self.shared.lock().await;
        if held.is_none() {
            *held = Some(S::start(logs).await.map_err(|error| format!("{error:#}")));
        }
        let shared = held.as_ref().context("nothing was made")?.as_ref().map_err(|error| anyhow!(error.clone()))?;
        shared.run_scenario(self.number.fetch_add(1, Ordering::Relaxed), body, logs).await
    }

    /// Removes what scenarios share, and looks for what is left.
    fn end(&self, before: Option<&Leftovers>) -> Result<()> {
        let shared = self.shared.blocking_lock().take();
        if let Some(Ok(shared)) = shared {
            self.runtime.block_on(shared.remove())?;
        }
        let Some(before) = before else { return Ok(()) };
        // Processes of a container end a moment after it.
        self.runtime.block_on(every(POLL_INTERVAL, "nothing left behind", SOON, async || {
            Leftovers::now(Docker::running()?)?.assert_none_since(before)
        }))
    }
}
