//! `log-level`: shows or changes the log filter of a running server, over its admin listener. It must never connect
//! to a cluster.

use std::{io, time::Duration};

use clap::Args;

use super::{
    UsageError,
    groups::{Client, DEFAULT_SERVER, GroupsError, ServerUrl},
    printing,
    values::duration,
};
use server::{LogLevel, LogLevelChange};
use text::visible;

const TIMEOUT: Duration = Duration::from_secs(10);

/// The flags of `log-level`, as typed.
#[derive(Args, Clone, Debug)]
pub struct LogLevelArgs {
    /// New filter of the log: a level (off, error, warn, info, debug, trace), or directives such as
    /// info,kube_client=debug. Without it the server's present filter is shown
    #[arg(value_name = "FILTER")]
    pub filter: Option<String>,

    /// Go back to the filter of the server's start after this time: a Go duration of at most 24h
    #[arg(long = "for", value_name = "DURATION", requires = "filter")]
    pub limit: Option<String>,

    /// Go back to the filter of the server's start now
    #[arg(long, conflicts_with = "filter")]
    pub reset: bool,

    /// URL of the server's admin listener (its --admin-listen)
    #[arg(long, short, env = "CAPI_AUTOSCALER_SERVER", value_name = "URL", default_value = DEFAULT_SERVER)]
    pub server: String,
}

#[derive(Clone, Debug)]
pub(super) struct LogLevelConfig {
    server: ServerUrl,
    change: Change,
}

#[derive(Clone, Debug)]
enum Change {
    None,
    Start,
    Set { filter: String, limit: Option<String> },
}

impl TryFrom<LogLevelArgs> for LogLevelConfig {
    type Error = UsageError;

    fn try_from(args: LogLevelArgs) -> Result<Self, UsageError> {
        if let Some(limit) = &args.limit {
            duration(limit).map_err(|reason| UsageError::Flag { flag: "--for", value: limit.clone(), reason })?;
        }
        let change = match (args.filter, args.reset) {
            (Some(filter), _) => Change::Set { filter, limit: args.limit },
            (None, true) => Change::Start,
            (None, false) => Change::None,
        };
        Ok(Self { server: ServerUrl::of_flag(&args.server)?, change })
    }
}

impl LogLevelConfig {
    /// Sends the request, and prints the resulting filter.
    ///
    /// # Errors
    /// If the server doesn't answer, or refuses the change.
    pub(super) fn run(self) -> Result<(), GroupsError> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let change = match &self.change {
            Change::None => None,
            Change::Start => Some(LogLevelChange::Start),
            Change::Set { filter, limit } => Some(LogLevelChange::Set { filter, limit: limit.as_deref() }),
        };
        let level = runtime.block_on(Client::new(self.server.clone(), TIMEOUT).log_level(change))?;
        printing::print(&mut io::stdout().lock(), &text(&level))?;
        Ok(())
    }
}

fn text(level: &LogLevel) -> String {
    let LogLevel { filter, start, remaining_seconds } = level;
    let (filter, start) = (visible(filter), visible(start));
    match remaining_seconds {
        Some(seconds) => format!("{filter} (for {seconds}s more, then {start})\n"),
        None if filter == start => format!("{filter}\n"),
        None => format!("{filter} (until the next start, or --reset to {start})\n"),
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::as_started("info", None, "info\n")]
    #[case::for_good("debug", None, "debug (until the next start, or --reset to info)\n")]
    #[case::for_a_time("debug", Some(90), "debug (for 90s more, then info)\n")]
    #[case::hostile("a\u{1b}[2J", Some(1), "a\\u{1b}[2J (for 1s more, then info)\n")]
    fn the_log_level_is_printed_with_the_time_for_which_it_lasts(
        #[case] filter: &str,
        #[case] remaining_seconds: Option<u64>,
        #[case] shown: &str,
    ) {
        let level = LogLevel { filter: filter.to_owned(), start: "info".to_owned(), remaining_seconds };
        assert_eq!(text(&level), shown);
    }
}
