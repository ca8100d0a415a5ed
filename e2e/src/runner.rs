//! What the suites have in common: lists of scenarios, their command line, and what all scenarios of a suite share.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    process::ExitCode,
    sync::Arc,
};

use anyhow::{Result, anyhow};
use clap::Parser;
use libtest_mimic::{Arguments, Conclusion, Trial};
use tokio::sync::Mutex;

/// A scenario of a suite.
#[derive(Clone, Copy, Debug)]
pub struct Scenario<B> {
    /// The name: the module and the function.
    pub name: &'static str,
    /// The body.
    pub body: B,
}

/// Lists scenarios with bodies of one type by the paths of their functions, each an `async fn(&T) -> Result<()>`.
#[macro_export]
macro_rules! scenarios {
    ($body:ty: $($module:ident::$function:ident),* $(,)?) => {
        [$($crate::runner::Scenario::<$body> {
            name: concat!(stringify!($module), "::", stringify!($function)),
            body: |environment| Box::pin($module::$function(environment)),
        }),*]
    };
}

/// Returns the trial of a scenario on its suite.
pub(crate) fn trial<S: Send + Sync + 'static>(
    suite: &Arc<S>,
    name: String,
    run: impl FnOnce(&S) -> Result<()> + Send + 'static,
) -> Trial {
    let suite = Arc::clone(suite);
    Trial::test(name, move || run(&suite).map_err(|error| format!("{error:#}").into()))
}

/// Returns the trial of a scenario that lacks something here. It is ignored, and fails if it is run nevertheless.
pub(crate) fn ignored(name: String, missing: String) -> Trial {
    Trial::test(name, || Err(missing.into())).with_ignored_flag(true)
}

/// Runs the trials of a suite that the command line selects, like libtest, this many at once unless it says otherwise,
/// and then ends the suite.
pub(crate) fn run<S>(
    name: &str,
    at_once: usize,
    suite: Result<S>,
    trials: impl FnOnce(&Arc<S>) -> Result<Vec<Trial>>,
    end: impl FnOnce(&S),
) -> ExitCode {
    let mut selection = Selection::parse();
    selection.arguments.test_threads.get_or_insert(at_once);
    let prepared = suite.map(Arc::new).and_then(|suite| Ok((trials(&suite)?, suite)));
    let (trials, suite) = match prepared {
        Ok(prepared) => prepared,
        Err(error) => {
            eprintln!("{name}: {error:#}");
            return ExitCode::FAILURE;
        }
    };
    let conclusion = selection.run(trials);
    end(&suite);
    conclusion.exit_code()
}

/// A part that scenarios share. The first that needs it starts it, and its failure counts for all: one that took minutes
/// isn't repeated for each scenario.
pub(crate) struct Shared<T>(Mutex<Option<Result<Arc<T>, String>>>);

impl<T> Default for Shared<T> {
    fn default() -> Self {
        Self(Mutex::new(None))
    }
}

impl<T> Shared<T> {
    /// Returns the part, and starts it if nobody has.
    pub(crate) async fn get(&self, start: impl Future<Output = Result<T>>) -> Result<Arc<T>> {
        let mut slot = self.0.lock().await;
        let started = match slot.take() {
            Some(started) => started,
            None => start.await.map(Arc::new).map_err(|error| format!("{error:#}")),
        };
        slot.insert(started).clone().map_err(|error| anyhow!(error))
    }

    /// Ends it, unless somebody still uses it.
    pub(crate) fn end(&self) {
        self.0.blocking_lock().take();
    }
}

/// Runs a scenario, and returns a panic as an error.
pub(crate) fn caught(scenario: impl FnOnce() -> Result<()>) -> Result<()> {
    catch_unwind(AssertUnwindSafe(scenario)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str).or_else(|| panic.downcast_ref::<&str>().copied());
        Err(anyhow!("panicked: {}", text.unwrap_or("without a message")))
    })
}

/// Returns the error of a failed scenario with its logs. The cause comes last, where a log that is cut off still has it.
pub(crate) fn with_logs(error: &anyhow::Error, log_tails: &str) -> anyhow::Error {
    anyhow!("{log_tails}\n--- it failed since:\n{error:#}\n")
}

/// The command line of libtest-mimic, which takes one filter, with as many as libtest takes.
#[derive(Debug, Parser)]
#[command(disable_version_flag = true)]
pub(crate) struct Selection {
    /// All but the filters after the first.
    #[command(flatten)]
    pub(crate) arguments: Arguments,
    /// Further filters: a trial runs if any filter matches its name
    #[arg(value_name = "FILTER")]
    more: Vec<String>,
}

impl Selection {
    /// Runs the selected trials.
    pub(crate) fn run(mut self, mut trials: Vec<Trial>) -> Conclusion {
        self.select(&mut trials);
        libtest_mimic::run(&self.arguments, trials)
    }

    /// Leaves the trials that one of several filters matches. A single one is left to libtest-mimic.
    fn select(&mut self, trials: &mut Vec<Trial>) {
        if self.more.is_empty() {
            return;
        }
        let exact = self.arguments.exact;
        let filters: Vec<_> = self.arguments.filter.take().into_iter().chain(self.more.drain(..)).collect();
        let is_met = |name: &str, filter: &str| if exact { name == filter } else { name.contains(filter) };
        trials.retain(|trial| filters.iter().any(|filter| is_met(trial.name(), filter)));
    }
}
