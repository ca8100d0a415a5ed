//! What the suites have in common: their command line, and what all scenarios of a suite share.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    process::ExitCode,
    sync::Arc,
};

use anyhow::{Result, anyhow};
use clap::Parser;
use libtest_mimic::{Arguments, Conclusion, Failed, Trial};
use tokio::sync::Mutex;

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

/// Returns a trial's failure, with all causes.
pub(crate) fn failed(error: &anyhow::Error) -> Failed {
    format!("{error:#}").into()
}

/// Returns the text of a failed scenario. The error comes last, where a log that is cut off still has it.
pub(crate) fn failure(error: &anyhow::Error, log_tails: &str) -> String {
    format!("{log_tails}\n--- it failed since:\n{error:#}\n")
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
