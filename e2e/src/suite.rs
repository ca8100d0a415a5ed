//! Runs the scenarios, each for both versions of the contract or on OpenShift's kinds, and ends their shared servers.

use std::{collections::HashMap, path::PathBuf, process::ExitCode, sync::Arc};

use anyhow::{Context, Result};
use futures::future::LocalBoxFuture;
use libtest_mimic::{Failed, Trial};
use tokio::runtime::Runtime;

use crate::{
    control_plane::ControlPlane,
    crds::Installed,
    go::{self, Components},
    objects::Contract,
    program,
    runner::{self, Shared, caught, failed, failure},
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
    let trials = |suite: &Arc<Suite>| {
        let mut trials = Vec::new();
        for contract in Contract::ALL.into_iter().chain([Contract::MachineApi]) {
            for &scenario in scenarios.iter().filter(|scenario| scenario.contracts.contains(&contract)) {
                let suite = Arc::clone(suite);
                let name = format!("{contract}::{}", scenario.name);
                trials.push(Trial::test(name, move || suite.try_scenario(contract, scenario)));
            }
        }
        Ok(trials)
    };
    runner::run("e2e", AT_ONCE, Suite::new(), trials, |suite| suite.shared.values().for_each(Shared::end))
}

struct Suite {
    runtime: Runtime,
    program: Shared<PathBuf>,
    components: Shared<Components>,
    shared: HashMap<&'static str, Shared<ControlPlane>>,
}

impl Suite {
    fn new() -> Result<Self> {
        let contracts = Contract::ALL.into_iter().chain([Contract::MachineApi]);
        Ok(Self {
            runtime: Runtime::new()?,
            program: Shared::default(),
            components: Shared::default(),
            shared: contracts.map(|contract| (contract.as_str(), Shared::default())).collect(),
        })
    }

    fn try_scenario(&self, contract: Contract, scenario: Scenario) -> Result<(), Failed> {
        let world = self.runtime.block_on(self.world(contract, scenario.own_api_server));
        let world = world.map_err(|error| failed(&error))?;
        let outcome = caught(|| self.runtime.block_on((scenario.run)(&world)));
        outcome.map_err(|error| failure(&error, &world.log_tails()).into())
    }

    async fn world(&self, contract: Contract, own_api_server: bool) -> Result<World> {
        let components = self.components.get(async { go::components() }).await?;
        let program = self.program.get(async { program::build() }).await?;
        let plane = if own_api_server {
            Arc::new(ControlPlane::start(components, contract, Installed::AllButMachinePools).await?)
        } else {
            let shared = self.shared.get(contract.as_str()).context("a contract version that is not listed")?;
            shared.get(ControlPlane::start(components, contract, Installed::All)).await?
        };
        World::new(plane, program.to_path_buf()).await
    }
}
