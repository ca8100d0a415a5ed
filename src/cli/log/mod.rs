//! Logging: one line per event on standard error, as text or JSON. No credential may ever be logged: the types that
//! hold them don't print them, and what libraries log of bodies and headers is filtered out here.

mod control;
mod filter;
mod lines;
#[cfg(test)]
mod tests;

use std::io::{self, IsTerminal};

use clap::{Args, ValueEnum};
use tracing_subscriber::{
    EnvFilter, Layer as _, Registry, filter::FilterExt as _, fmt, layer::SubscriberExt as _, reload,
    util::SubscriberInitExt as _,
};

use self::{
    control::LogControl,
    filter::{may_be_shown, parse},
    lines::{Form, Lines},
};
use super::usage::{UsageError, wrong};

const DEFAULT_LEVEL: &str = "info";

/// Options of the log.
#[derive(Args, Clone, Debug)]
pub struct LogArgs {
    /// Log format; auto: text on a terminal, JSON elsewhere
    #[arg(
        long,
        env = "CAPI_AUTOSCALER_LOG_FORMAT",
        value_name = "FORMAT",
        default_value = "auto",
        hide_possible_values = true,
        global = true,
        help_heading = "Logging",
        hide_short_help = true
    )]
    pub log_format: LogFormat,

    /// Log level (off, error, warn, info, debug, trace) or directives such as info,kube_client=debug
    #[arg(long, env = "CAPI_AUTOSCALER_LOG_LEVEL", value_name = "FILTER", default_value = DEFAULT_LEVEL, global = true, help_heading = "Logging")]
    pub log_level: String,
}

/// The form of the log.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub enum LogFormat {
    /// Text on a terminal, JSON elsewhere.
    Auto,
    /// Lines for people, coloured on a terminal.
    Text,
    /// A JSON object per line.
    Json,
}

impl LogFormat {
    fn is_text(self, terminal: bool) -> bool {
        match self {
            Self::Auto => terminal,
            Self::Text => true,
            Self::Json => false,
        }
    }
}

impl LogArgs {
    /// Returns the filter of the flag, as text and parsed.
    pub(super) fn filter(&self) -> Result<(String, EnvFilter), UsageError> {
        let level = if self.log_level.trim().is_empty() { DEFAULT_LEVEL } else { self.log_level.trim() };
        let filter = parse(level).map_err(|reason| wrong("--log-level", &self.log_level, reason))?;
        Ok((level.to_owned(), filter))
    }

    /// Starts logging for the whole process, and returns its control. An existing logger stays.
    pub(super) fn init(&self) -> Result<LogControl, UsageError> {
        let (level, filter) = self.filter()?;
        let terminal = io::stderr().is_terminal();
        let text = self.log_format.is_text(terminal);
        let (filter, handle) = reload::Layer::<_, Registry>::new(filter);
        let form = if text { Form::Text } else { Form::Json };
        let lines = fmt::layer().with_writer(move || Lines { form, to: io::stderr() });
        let lines = if text { lines.with_ansi(terminal).boxed() } else { lines.json().flatten_event(true).boxed() };
        let started = tracing_subscriber::registry().with(lines.with_filter(filter.and(may_be_shown()))).try_init();
        // An error means that another logger was started before, such as by a test; this filter then has no effect.
        drop(started);
        Ok(LogControl::new(level, move |filter| handle.reload(filter).map_err(|error| error.to_string())))
    }
}
