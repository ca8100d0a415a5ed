//! `log-level`: shows or changes the log filter of a running server, over its admin listener. It must never connect
//! to a cluster.

use std::{io, time::Duration};

use clap::Args;

use super::{
    UsageError,
    groups::{Client, DEFAULT_SERVER, GroupsError, ServerUrl},
    help, printing,
};
use rules::text::visible;
use service::listen::LogLevel;

const TIMEOUT: Duration = Duration::from_secs(10);

/// The flags of `log-level`, as typed.
#[derive(Args, Clone, Debug)]
pub struct LogLevelArgs {
    /// New level (off, error, warn, info, debug, trace) or directives such as info,kube_client=debug. Default: show it
    #[arg(value_name = "FILTER")]
    pub filter: Option<String>,

    /// URL of the server's --admin-listen
    #[arg(long, short, env = "CAPI_AUTOSCALER_SERVER", value_name = "URL", default_value = DEFAULT_SERVER, help_heading = help::SERVER)]
    pub server: String,
}

#[derive(Clone, Debug)]
pub(super) struct LogLevelConfig {
    server: ServerUrl,
    filter: Option<String>,
}

impl TryFrom<LogLevelArgs> for LogLevelConfig {
    type Error = UsageError;

    fn try_from(args: LogLevelArgs) -> Result<Self, UsageError> {
        Ok(Self { server: ServerUrl::of_flag(&args.server)?, filter: args.filter })
    }
}

impl LogLevelConfig {
    /// Sends the request, and prints the resulting filter.
    ///
    /// # Errors
    /// If the server doesn't answer, or refuses the change.
    pub(super) fn run(self) -> Result<(), GroupsError> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let level = runtime.block_on(Client::new(self.server, TIMEOUT).log_level(self.filter))?;
        printing::print(&mut io::stdout().lock(), &text(&level))?;
        Ok(())
    }
}

fn text(LogLevel { filter, start }: &LogLevel) -> String {
    let (shown, first) = (visible(filter), visible(start));
    if filter == start { format!("{shown}\n") } else { format!("{shown} (until the next start; then {first})\n") }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::as_started("info", "info\n")]
    #[case::changed("debug", "debug (until the next start; then info)\n")]
    #[case::hostile("a\u{1b}[2J", "a\\u{1b}[2J (until the next start; then info)\n")]
    fn the_log_level_is_printed_with_that_of_the_start(#[case] filter: &str, #[case] shown: &str) {
        assert_eq!(text(&LogLevel { filter: filter.to_owned(), start: "info".to_owned() }), shown);
    }
}
