//! Runs the scenarios, each for both versions of the contract or on OpenShift's kinds, and ends their shared servers.

use std::{
    collections::HashMap,
    panic::{AssertUnwindSafe, catch_unwind},
    path::PathBuf,
    process::ExitCode,
    sync::{Arc, OnceLock},
};

use anyhow::{Context, Result, anyhow};
use futures::future::LocalBoxFuture;
use libtest_mimic::{Failed, Trial};
use tokio::{runtime::Runtime, sync::Mutex};

use crate::{
    control_plane::ControlPlane,
    crds::Installed,
    go::{self, Components},
    objects::Contract,
    program,
    selection::Selection,
    world::World,
};

/// The number of concurrent scenarios, more than there are processors since they mostly wait.
const AT_ONCE: usize = 4;

/// The body of a scenario.
pub type Run = for<'a> fn(&'a World) -> LocalBoxFuture<'a, Result<()>>;

/// A test that runs once per named API server.
#[derive(Clone, Copy)]
pub struct Scenario {
    /// The name, shown after the version.
    pub name: &'static str,
    /// True if it stops the API server and must not share it.
    pub own_api_server: bool,
    /// The API servers on which it runs, by their contract.
    pub contracts: &'static [Contract],
    /// The scenario's body.
    pub run: Run,
}

/// Lists scenarios by the paths of their functions, each an `async fn(&World) -> Result<()>`.
#[macro_export]
macro_rules! scenarios {
    ($($module:ident::$function:ident),* $(,)?) => {
        [$((
            concat!(stringify!($module), "::", stringify!($function)),
            (|world| Box::pin($module::$function(world))) as $crate::suite::Run,
        )),*]
    };
}

/// Runs the scenarios that the command line selects, like libtest.
#[must_use]
pub fn run(scenarios: &[Scenario]) -> ExitCode {
    let mut selection = Selection::from_args();
    selection.arguments.test_threads.get_or_insert(AT_ONCE);
    let suite = match Suite::new() {
        Ok(suite) => Arc::new(suite),
        Err(error) => {
            eprintln!("e2e: {error:#}");
            return ExitCode::FAILURE;
        }
    };
    let mut trials = Vec::new();
    for contract in Contract::ALL.into_iter().chain([Contract::MachineApi]) {
        for &scenario in scenarios.iter().filter(|scenario| scenario.contracts.contains(&contract)) {
            let suite = Arc::clone(&suite);
            let name = format!("{contract}::{}", scenario.name);
            trials.push(Trial::test(name, move || suite.try_scenario(contract, scenario)));
        }
    }
    let conclusion = selection.run(trials);
    suite.end();
    conclusion.exit_code()
}

/// The outcome of the first attempt, which all scenarios share. A failure that took minutes is not repeated for each
/// one.
type Once<T> = Option<Result<T, String>>;

struct Suite {
    runtime: Runtime,
    program: OnceLock<Result<PathBuf, String>>,
    components: OnceLock<Result<Arc<Components>, String>>,
    shared: HashMap<&'static str, Mutex<Once<Arc<ControlPlane>>>>,
}

impl Suite {
    fn new() -> Result<Self> {
        Ok(Self {
            runtime: Runtime::new()?,
            program: OnceLock::new(),
            components: OnceLock::new(),
            shared: Contract::ALL
                .into_iter()
                .chain([Contract::MachineApi])
                .map(|contract| (contract.as_str(), Mutex::default()))
                .collect(),
        })
    }

    fn try_scenario(&self, contract: Contract, scenario: Scenario) -> Result<(), Failed> {
        let world =
            self.world(contract, scenario.own_api_server).map_err(|error| Failed::from(format!("{error:#}")))?;
        let run = AssertUnwindSafe(|| self.runtime.block_on((scenario.run)(&world)));
        let outcome = catch_unwind(run).unwrap_or_else(|panic| Err(panic_message(&*panic)));
        outcome.map_err(|error| failure(&error, &world.log_tails()).into())
    }

    fn world(&self, contract: Contract, own_api_server: bool) -> Result<World> {
        let components = self.components.get_or_init(|| go::components().map(Arc::new).map_err(|e| format!("{e:#}")));
        let components = components.clone().map_err(|error| anyhow!(error))?;
        let program = self.program.get_or_init(|| program::build().map_err(|error| format!("{error:#}")));
        let program = program.clone().map_err(|error| anyhow!(error))?;
        self.runtime.block_on(async {
            let plane = if own_api_server {
                let kinds = Installed::AllButMachinePools;
                Arc::new(ControlPlane::start(components, contract, kinds).await?)
            } else {
                self.shared_plane(components, contract).await?
            };
            World::new(plane, program).await
        })
    }

    async fn shared_plane(&self, components: Arc<Components>, contract: Contract) -> Result<Arc<ControlPlane>> {
        let slot = self.shared.get(contract.as_str());
        let mut slot = slot.context("a contract version that is not listed")?.lock().await;
        if slot.is_none() {
            let started = ControlPlane::start(components, contract, Installed::All).await;
            *slot = Some(started.map(Arc::new).map_err(|error| format!("{error:#}")));
        }
        match &*slot {
            Some(Ok(plane)) => Ok(Arc::clone(plane)),
            Some(Err(error)) => Err(anyhow!("{error}")),
            None => Err(anyhow!("no API server was started")),
        }
    }

    /// Ends the shared API servers.
    fn end(&self) {
        for slot in self.shared.values() {
            slot.blocking_lock().take();
        }
    }
}

/// Returns the text of a failed scenario. The error comes last, where a log that is cut off still has it.
pub(crate) fn failure(error: &anyhow::Error, log_tails: &str) -> String {
    format!("{log_tails}\n--- it failed since:\n{error:#}\n")
}

/// Returns the message of a panic as an error.
pub(crate) fn panic_message(panic: &(dyn std::any::Any + Send)) -> anyhow::Error {
    let text = panic.downcast_ref::<String>().map(String::as_str).or_else(|| panic.downcast_ref::<&str>().copied());
    anyhow!("panicked: {}", text.unwrap_or("without a message"))
}
