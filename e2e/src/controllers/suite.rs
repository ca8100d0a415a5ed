//! Runs scenarios, each with real and with simulated controllers where it can be run with both.

use std::{
    fs,
    panic::{AssertUnwindSafe, catch_unwind},
    path::{Path, PathBuf},
    process::ExitCode,
    sync::{Arc, OnceLock},
};

use anyhow::{Context, Result, anyhow};
use futures::future::LocalBoxFuture;
use libtest_mimic::{Arguments, Failed, Trial};
use tokio::{runtime::Runtime, sync::Mutex};

use super::stage::Stage;
use crate::{
    cluster_api::environment::Environment,
    go::{self, Components},
    program,
    suite::said,
};

/// Scenarios wait more than they work, so more of them run at once than there are processors.
const AT_ONCE: usize = 6;

/// What a scenario does.
pub type Play = for<'a> fn(&'a Stage) -> LocalBoxFuture<'a, Result<()>>;

/// Where a scenario runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Runs {
    /// With real and with simulated controllers.
    Everywhere,
    /// With real controllers only: it needs what the sandbox doesn't have.
    Real,
    /// With real controllers of its own, since it disturbs others.
    RealAlone,
}

/// A scenario.
#[derive(Clone, Copy)]
pub struct Scenario {
    /// Shown after whose controllers it runs with.
    pub name: &'static str,
    /// Where it runs.
    pub runs: Runs,
    /// What it does.
    pub play: Play,
}

/// Lists scenarios that run in the same places by the paths of their functions, each an `async fn(&Stage) -> Result<()>`.
#[macro_export]
macro_rules! plays {
    ($runs:ident: $($module:ident::$function:ident),* $(,)?) => {
        [$($crate::controllers::suite::Scenario {
            name: concat!(stringify!($module), "::", stringify!($function)),
            runs: $crate::controllers::suite::Runs::$runs,
            play: |stage| Box::pin($module::$function(stage)),
        }),*]
    };
}

/// Runs what the command line selects, as libtest would. Each scenario keeps its logs in a directory of its name under `logs`.
#[must_use]
pub fn run(scenarios: &[Scenario], logs: &Path) -> ExitCode {
    let mut arguments = Arguments::from_args();
    arguments.test_threads.get_or_insert(AT_ONCE);
    let suite = match Suite::new(logs) {
        Ok(suite) => Arc::new(suite),
        Err(error) => {
            eprintln!("controllers: {error:#}");
            return ExitCode::FAILURE;
        }
    };
    let mut trials = Vec::new();
    for &scenario in scenarios {
        trials.push(trial(&suite, scenario, "real"));
        if scenario.runs == Runs::Everywhere {
            trials.push(trial(&suite, scenario, "simulated"));
        }
    }
    let conclusion = libtest_mimic::run(&arguments, trials);
    suite.end();
    conclusion.exit_code()
}

fn trial(suite: &Arc<Suite>, scenario: Scenario, controllers: &'static str) -> Trial {
    let suite = Arc::clone(suite);
    let name = format!("{controllers}::{}", scenario.name);
    Trial::test(name.clone(), move || suite.try_scenario(scenario, controllers == "simulated", &name))
}

/// The first attempt's outcome counts for all: what failed once for minutes is not tried again for each scenario.
type Once<T> = OnceLock<Result<T, String>>;

struct Suite {
    runtime: Runtime,
    logs: PathBuf,
    program: Once<PathBuf>,
    components: Once<Arc<Components>>,
    shared: Mutex<Option<Result<Arc<Environment>, String>>>,
}

impl Suite {
    fn new(logs: &Path) -> Result<Self> {
        Ok(Self {
            runtime: Runtime::new()?,
            logs: logs.to_owned(),
            program: OnceLock::new(),
            components: OnceLock::new(),
            shared: Mutex::default(),
        })
    }

    fn try_scenario(&self, scenario: Scenario, simulated: bool, name: &str) -> Result<(), Failed> {
        let stage = self.runtime.block_on(self.stage(scenario.runs, simulated, name));
        let stage = stage.map_err(|error| Failed::from(format!("{error:#}")))?;
        let play = AssertUnwindSafe(|| self.runtime.block_on((scenario.play)(&stage)));
        let outcome = catch_unwind(play).unwrap_or_else(|panic| Err(said(&*panic)));
        let kept = stage.keep_logs().context("keeping its logs");
        // What a scenario leaves running ends on the runtime.
        let _entered = self.runtime.enter();
        outcome.and(kept).map_err(|error| format!("{error:#}\n{}", stage.last_words()).into())
    }

    async fn stage(&self, runs: Runs, simulated: bool, name: &str) -> Result<Stage> {
        let program = self.program.get_or_init(|| program::build().map_err(|error| format!("{error:#}")));
        let program = program.clone().map_err(|error| anyhow!(error))?;
        let logs = self.logs.join(name.replace("::", "/"));
        if logs.exists() {
            fs::remove_dir_all(&logs).with_context(|| format!("removing {}", logs.display()))?;
        }
        fs::create_dir_all(&logs)?;
        if simulated {
            return Stage::simulated(program, logs).await;
        }
        let components = self.components.get_or_init(|| go::components().map(Arc::new).map_err(|e| format!("{e:#}")));
        let components = components.clone().map_err(|error| anyhow!(error))?;
        let environment = match runs {
            Runs::RealAlone => Arc::new(Environment::start(components).await?),
            Runs::Everywhere | Runs::Real => self.shared(components).await?,
        };
        Stage::real(environment, program, logs).await
    }

    async fn shared(&self, components: Arc<Components>) -> Result<Arc<Environment>> {
        let mut slot = self.shared.lock().await;
        if slot.is_none() {
            let started = Environment::start(components).await;
            *slot = Some(started.map(Arc::new).map_err(|error| format!("{error:#}")));
        }
        match &*slot {
            Some(Ok(environment)) => Ok(Arc::clone(environment)),
            Some(Err(error)) => Err(anyhow!("{error}")),
            None => Err(anyhow!("nothing was started")),
        }
    }

    /// Ends what was shared.
    fn end(&self) {
        let _entered = self.runtime.enter();
        self.shared.blocking_lock().take();
    }
}
