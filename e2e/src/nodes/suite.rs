//! Runs scenarios one after the other on clusters that they share, which are made when the first needs them. Without
//! the variable each is listed as ignored, and fails before it touches Docker if it is run nevertheless.

use std::{
    collections::BTreeSet,
    env, fs,
    path::{Path, PathBuf},
    process::ExitCode,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use anyhow::{Context as _, Result, anyhow, ensure};
use clap::Parser as _;
use libtest_mimic::Trial;
use tokio::{runtime::Runtime, sync::Mutex};

use super::POLL_INTERVAL;
use crate::{
    images::Docker,
    runner::{self, Scenario, Selection, caught, ignored},
    wait::{SOON, every},
};

/// The environment variable that lets these tests run; any value will do.
const VARIABLE: &str = "E2E_DOCKER";

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
    if is_missing {
        return ignored(
            name.to_owned(),
            format!("it needs root, Docker and a network: set {VARIABLE}=1 to let it run"),
        );
    }
    runner::trial(suite, name.to_owned(), move |suite| suite.try_scenario(name, body))
}

impl<S: Shared> Suite<S> {
    fn try_scenario(&self, name: &str, body: S::Body) -> Result<()> {
        let logs = self.logs.join(name.replace("::", "/"));
        let outcome = caught(|| self.runtime.block_on(self.run_scenario(body, &logs)));
        outcome.map_err(|error| anyhow!("{error:#}\nlogs are in {}", logs.display()))
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

/// Programs that builds and clusters run outside of containers.
const PROGRAMS: [&str; 3] = ["buildkitd", "containerd-shim", "kind"];

/// Everything of a run that could outlive it on the machine: containers, networks, volumes, mounts and processes.
#[derive(Debug, PartialEq, Eq)]
struct Leftovers(BTreeSet<String>);

impl Leftovers {
    /// Returns what is there now.
    fn now(docker: Docker) -> Result<Self> {
        let mut all = BTreeSet::new();
        for (what, arguments) in [
            ("container", &["ps", "--all", "--quiet", "--no-trunc"][..]),
            ("network", &["network", "ls", "--quiet", "--no-trunc"]),
            ("volume", &["volume", "ls", "--quiet"]),
        ] {
            all.extend(docker.lines(arguments)?.into_iter().map(|name| format!("{what} {name}")));
        }
        for line in fs::read_to_string("/proc/self/mounts")?.lines() {
            let place = line.split(' ').nth(1).unwrap_or_default();
            all.insert(format!("mount {place}"));
        }
        for entry in fs::read_dir("/proc")? {
            let process = entry?.path();
            if let Some(name) = name_of(&process) {
                all.insert(format!("process {} {name}", process.display()));
            }
        }
        Ok(Self(all))
    }

    /// Fails if there is more now than there was.
    fn assert_none_since(&self, before: &Self) -> Result<()> {
        let new: Vec<_> = self.0.difference(&before.0).collect();
        ensure!(new.is_empty(), "left behind: {new:?}");
        Ok(())
    }
}

/// Returns the name of a process of a container, a build or a cluster, unless it has ended. Other processes on the
/// machine aren't a run's.
fn name_of(process: &Path) -> Option<String> {
    let read = |file: &str| fs::read_to_string(process.join(file)).ok();
    let name = read("comm")?.trim().to_owned();
    let concerns = PROGRAMS.iter().any(|known| name.starts_with(known)) || read("cgroup")?.contains("docker");
    concerns.then_some(name)
}
