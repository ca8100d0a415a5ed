//! Runs the scenarios, each for both versions of the contract or on OpenShift's kinds, and ends their shared servers.

use std::{collections::HashMap, path::PathBuf, process::ExitCode, sync::Arc};

use anyhow::{Context, Result};
use futures::future::LocalBoxFuture;
use tokio::runtime::Runtime;

use crate::{
    control_plane::ControlPlane,
    crds::Installed,
    go::{self, Components},
    objects::Contract,
    program,
    runner::{self, Scenario, Shared, caught, trial, with_logs},
    world::World,
};

/// The number of concurrent scenarios, more than there are processors since they mostly wait.
const AT_ONCE: usize = 4;

/// The kinds of API servers, by their contract.
const CONTRACTS: [Contract; 3] = [Contract::V1Beta1, Contract::V1Beta2, Contract::MachineApi];

/// The body of a scenario.
pub type Run = for<'a> fn(&'a World) -> LocalBoxFuture<'a, Result<()>>;

/// A scenario that runs once per named API server.
#[derive(Clone, Copy)]
pub struct Play {
    /// The scenario; the version is shown before its name.
    pub scenario: Scenario<Run>,
    /// True if it stops the API server and must not share it.
    pub own_api_server: bool,
    /// The API servers on which it runs, by their contract.
    pub contracts: &'static [Contract],
}

/// Runs the scenarios that the command line selects, like libtest.
pub fn run(plays: &[Play]) -> ExitCode {
    let trials = |suite: &Arc<Suite>| {
        let mut trials = Vec::new();
        for contract in CONTRACTS {
            for &play in plays.iter().filter(|play| play.contracts.contains(&contract)) {
                let name = format!("{contract}::{}", play.scenario.name);
                trials.push(trial(suite, name, move |suite| suite.try_scenario(contract, play)));
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
        Ok(Self {
            runtime: Runtime::new()?,
            program: Shared::default(),
            components: Shared::default(),
            shared: CONTRACTS.map(|contract| (contract.as_str(), Shared::default())).into(),
        })
    }

    fn try_scenario(&self, contract: Contract, play: Play) -> Result<()> {
        let world = self.runtime.block_on(self.world(contract, play.own_api_server))?;
        let outcome = caught(|| self.runtime.block_on((play.scenario.body)(&world)));
        outcome.map_err(|error| with_logs(&error, &world.log_tails()))
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
