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

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::none(&[], &["a::one", "a::two", "b::one"], None)]
    #[case::one(&["a::"], &["a::one", "a::two", "b::one"], Some("a::"))]
    #[case::two(&["a::", "b::"], &["a::one", "a::two", "b::one"], None)]
    #[case::two_that_overlap(&["a::o", "one"], &["a::one", "b::one"], None)]
    #[case::with_options_between(&["--skip", "x", "a::two", "--test-threads=1", "b::"], &["a::two", "b::one"], None)]
    #[case::exact(&["--exact", "one", "b::one"], &["b::one"], None)]
    fn any_number_of_filters_selects(#[case] line: &[&str], #[case] left: &[&str], #[case] filter: Option<&str>) {
        let mut selection = Selection::try_parse_from(["suite"].iter().chain(line)).unwrap();
        let mut trials: Vec<_> = ["a::one", "a::two", "b::one"].map(|name| Trial::test(name, || Ok(()))).into();
        selection.select(&mut trials);
        assert_eq!(trials.iter().map(Trial::name).collect::<Vec<_>>(), left);
        assert_eq!(selection.arguments.filter.as_deref(), filter);
    }
}
