//! Runs scenarios with real and with simulated controllers, as far as each supports them.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::ExitCode,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use anyhow::{Context, Result};
use futures::future::LocalBoxFuture;
use libtest_mimic::Trial;
use tokio::{runtime::Runtime, sync::Semaphore};

use super::testbed::Testbed;
use crate::{
    autoscaling::{Autoscaler, Binary, Version, binary::VARIABLE},
    capd,
    cluster_api::Environment,
    existing::{Clusters, MANAGEMENT},
    go::{self, Components},
    program,
    runner::{self, Scenario, Shared, caught, ignored, with_logs},
};

/// The number of concurrent scenarios, more than there are processors since they mostly wait.
const AT_ONCE: usize = 6;

/// The number of concurrent Cluster Autoscalers, each with API servers of its own.
const AUTOSCALERS_AT_ONCE: usize = 2;

/// The version of the driver in all scenarios.
const DRIVEN: Version = Version::new(37, 0);

/// The versions of the driver in some scenarios: they differ in their calls and fields. 1.36 makes the calls of 1.37.
const DRIVEN_IN_SOME: [Version; 3] = [Version::new(33, 6), Version::new(34, 5), Version::new(35, 2)];

/// The body of a scenario.
pub type Body = for<'a> fn(&'a Testbed) -> LocalBoxFuture<'a, Result<()>>;

/// The environments in which a scenario runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Runs {
    /// With real and with simulated controllers.
    Everywhere,
    /// With real controllers only: it needs a feature that the sandbox lacks.
    Real,
    /// With real controllers and an autoscaler: each named Cluster Autoscaler, with controllers of its own, since it sees
    /// all Nodes and Pods, or the driver if none is named.
    Scaled,
    /// The same, and the driver also plays the other versions.
    ScaledAsEach,
    /// With Cluster API's development provider in memory, if its manager is named.
    InMemory,
    /// In existing clusters, if they are named.
    Existing,
}

/// Runs the scenarios that the command line selects, like libtest. Each keeps its logs in a directory of its name under
/// `logs`.
pub fn run(plays: &[(Runs, &[Scenario<Body>])], logs: &Path) -> ExitCode {
    let trials = |suite: &Arc<Suite>| {
        let (named, existing) = (Binary::named()?, Clusters::named()?);
        let each = plays.iter().flat_map(|(runs, scenarios)| scenarios.iter().map(|&scenario| (*runs, scenario)));
        Ok(each.flat_map(|(runs, scenario)| trials(suite, runs, scenario, &named, existing.as_ref())).collect())
    };
    runner::run("controllers", AT_ONCE, Suite::new(logs), trials, Suite::end)
}

/// Returns the trials of a scenario in each of its environments.
fn trials(
    suite: &Arc<Suite>,
    runs: Runs,
    scenario: Scenario<Body>,
    named: &[Binary],
    existing: Option<&Clusters>,
) -> Vec<Trial> {
    let real = || trial(suite, scenario, "real", Backend::Real);
    match runs {
        Runs::Everywhere => vec![real(), trial(suite, scenario, "simulated", Backend::Simulated)],
        Runs::Real => vec![real()],
        Runs::InMemory => vec![in_memory(suite, scenario)],
        Runs::Scaled => scaled(suite, scenario, named),
        Runs::Existing => vec![in_existing(suite, scenario, existing)],
        Runs::ScaledAsEach => {
            let mut trials = scaled(suite, scenario, named);
            let others = if named.is_empty() { DRIVEN_IN_SOME.as_slice() } else { &[] };
            trials.extend(others.iter().map(|&version| {
                let driver = Backend::Scaled(Autoscaler::Driver(version));
                trial(suite, scenario, &format!("driver::{version}"), driver)
            }));
            trials
        }
    }
}

/// Returns the trials with each named Cluster Autoscaler, or with the driver if none is named.
fn scaled(suite: &Arc<Suite>, scenario: Scenario<Body>, named: &[Binary]) -> Vec<Trial> {
    if named.is_empty() {
        let driver = Backend::Scaled(Autoscaler::Driver(DRIVEN));
        let missing = format!("{VARIABLE} names no binary of Cluster Autoscaler");
        let name = format!("cluster-autoscaler::{}", scenario.name);
        return vec![trial(suite, scenario, "driver", driver), ignored(name, missing)];
    }
    let trial = |binary: &Binary| {
        let who = format!("cluster-autoscaler-{}", binary.version);
        trial(suite, scenario, &who, Backend::Scaled(Autoscaler::Binary(binary.clone())))
    };
    named.iter().map(trial).collect()
}

/// Returns the trial with Cluster API's development provider, ignored if none is named.
fn in_memory(suite: &Arc<Suite>, scenario: Scenario<Body>) -> Trial {
    match env::var_os(capd::VARIABLE).filter(|named| !named.is_empty()) {
        Some(manager) => trial(suite, scenario, "capd", Backend::InMemory(manager.into())),
        None => ignored(format!("capd::{}", scenario.name), format!("{} names no manager of CAPD", capd::VARIABLE)),
    }
}

/// Returns the trial in the named clusters, ignored if none are named.
fn in_existing(suite: &Arc<Suite>, scenario: Scenario<Body>, named: Option<&Clusters>) -> Trial {
    let missing = || format!("{MANAGEMENT} and its like name no clusters");
    match named {
        Some(clusters) => trial(suite, scenario, "existing", Backend::Existing(clusters.clone())),
        None => ignored(format!("existing::{}", scenario.name), missing()),
    }
}

fn trial(suite: &Arc<Suite>, scenario: Scenario<Body>, whose: &str, backend: Backend) -> Trial {
    let name = format!("{whose}::{}", scenario.name);
    runner::trial(suite, name.clone(), move |suite| suite.try_scenario(scenario.body, &backend, &name))
}

/// The controllers and clusters around the program in a trial.
enum Backend {
    Real,
    Simulated,
    Scaled(Autoscaler),
    /// With this manager of CAPD.
    InMemory(PathBuf),
    /// In these clusters.
    Existing(Clusters),
}

struct Suite {
    runtime: Runtime,
    logs: PathBuf,
    program: Shared<PathBuf>,
    components: Shared<Components>,
    shared: Shared<Environment>,
    in_memory: Shared<capd::Environment>,
    autoscalers: Semaphore,
    /// One permit for existing clusters: they have one Cluster Autoscaler and few machines.
    existing: Semaphore,
    tenants: AtomicUsize,
}

impl Suite {
    fn new(logs: &Path) -> Result<Self> {
        Ok(Self {
            runtime: Runtime::new()?,
            logs: logs.to_owned(),
            program: Shared::default(),
            components: Shared::default(),
            shared: Shared::default(),
            in_memory: Shared::default(),
            autoscalers: Semaphore::new(AUTOSCALERS_AT_ONCE),
            existing: Semaphore::new(1),
            tenants: AtomicUsize::new(0),
        })
    }

    fn try_scenario(&self, body: Body, backend: &Backend, name: &str) -> Result<()> {
        let _turn = match backend {
            Backend::Scaled(Autoscaler::Binary(_)) => Some(self.runtime.block_on(self.autoscalers.acquire())),
            Backend::Existing(_) => Some(self.runtime.block_on(self.existing.acquire())),
            Backend::Scaled(Autoscaler::Driver(_)) | Backend::InMemory(_) | Backend::Real | Backend::Simulated => None,
        };
        let testbed = self.runtime.block_on(self.testbed(backend, name))?;
        let outcome = caught(|| self.runtime.block_on(body(&testbed)));
        // Logs are kept before objects are removed.
        let kept = testbed.keep_logs().context("keeping its logs");
        let left = self.runtime.block_on(testbed.leave()).context("taking away what it has made");
        // Tasks that a scenario leaves running end on the runtime.
        let _entered = self.runtime.enter();
        outcome.and(kept).and(left).map_err(|error| {
            let failure = with_logs(&error, &testbed.log_tails());
            // Other scenarios may run for minutes before this is shown.
            let _ = fs::write(testbed.directory().join("failure.txt"), failure.to_string());
            failure
        })
    }

    async fn testbed(&self, backend: &Backend, name: &str) -> Result<Testbed> {
        let program = self.program.get(async { program::build() }).await?.to_path_buf();
        let logs = self.logs.join(name.replace("::", "/"));
        if logs.exists() {
            fs::remove_dir_all(&logs).with_context(|| format!("removing {}", logs.display()))?;
        }
        fs::create_dir_all(&logs)?;
        let (alone, autoscaler) = match backend {
            Backend::Simulated => return Testbed::simulated(program, logs).await,
            Backend::Real => (false, None),
            Backend::Scaled(who) => (matches!(who, Autoscaler::Binary(_)), Some(who.clone())),
            Backend::Existing(clusters) => {
                let number = self.tenants.fetch_add(1, Ordering::Relaxed);
                return Testbed::existing(clusters, number, program, logs).await;
            }
            Backend::InMemory(capd) => {
                let built = self.logs.join("managers");
                fs::create_dir_all(&built)?;
                let start = capd::Environment::start(self.components().await?, capd, &built);
                let environment = self.in_memory.get(start).await?;
                return Testbed::in_memory(environment, program, logs).await;
            }
        };
        let components = self.components().await?;
        let environment = if alone {
            Arc::new(Box::pin(Environment::start(components)).await?)
        } else {
            Box::pin(self.shared.get(Environment::start(components))).await?
        };
        let mut testbed = Testbed::real(environment, program, logs).await?;
        testbed.autoscaler = autoscaler;
        Ok(testbed)
    }

    async fn components(&self) -> Result<Arc<Components>> {
        self.components.get(async { go::components() }).await
    }

    /// Ends the shared components.
    fn end(&self) {
        let _entered = self.runtime.enter();
        self.shared.end();
        self.in_memory.end();
    }
}
