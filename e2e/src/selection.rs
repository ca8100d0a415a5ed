//! The command line of the suites: that of libtest-mimic, which takes one filter, with as many as libtest takes.

use clap::Parser;
use libtest_mimic::{Arguments, Conclusion, Trial};

/// The trials that a command line selects.
#[derive(Debug, Parser)]
#[command(disable_version_flag = true)]
pub struct Selection {
    /// All but the filters after the first.
    #[command(flatten)]
    pub arguments: Arguments,
    /// Further filters: a trial runs if any filter matches its name
    #[arg(value_name = "FILTER")]
    more: Vec<String>,
}

impl Selection {
    /// Reads the command line of this process, and ends the process if it is wrong.
    #[must_use]
    pub fn from_args() -> Self {
        Self::parse()
    }

    /// Runs the selected trials.
    pub fn run(mut self, mut trials: Vec<Trial>) -> Conclusion {
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
