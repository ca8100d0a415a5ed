//! `log-level`: shows or changes the log filter of a running server, over its admin listener. It must never connect
//! to a cluster.

use std::time::Duration;

use clap::Args;

use super::{
    CliError,
    groups::{Client, DEFAULT_SERVER, ServerUrl, block_on},
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

impl LogLevelArgs {
    /// Sends the request, and prints the resulting filter.
    pub(super) fn run(self) -> Result<(), CliError> {
        let client = Client::new(ServerUrl::of_flag(&self.server)?, TIMEOUT);
        Ok(printing::print(&text(&block_on(client.log_level(self.filter))?))?)
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
