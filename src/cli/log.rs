//! Where and how to log: one line per event on standard error, as text or JSON. Nothing that logs may hand a
//! credential to it; the types that hold them print none.

use std::io::{self, IsTerminal};

use clap::{Args, ValueEnum};
use tracing_subscriber::{EnvFilter, util::SubscriberInitExt};

use super::UsageError;

const DEFAULT_LEVEL: &str = "info";

/// How to log.
#[derive(Args, Clone, Debug)]
pub struct LogArgs {
    /// Form of the log on standard error
    #[arg(
        long,
        env = "CAPI_AUTOSCALER_LOG_FORMAT",
        value_name = "FORMAT",
        default_value = "text",
        global = true,
        help_heading = "Logging"
    )]
    pub log_format: LogFormat,

    /// What to log: a level (error, warn, info, debug, trace), or directives such as info,kube_client=debug
    #[arg(long, env = "CAPI_AUTOSCALER_LOG_LEVEL", value_name = "FILTER", default_value = DEFAULT_LEVEL, global = true, help_heading = "Logging")]
    pub log_level: String,
}

/// The form of the log.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub enum LogFormat {
    /// Lines for people, coloured on a terminal.
    Text,
    /// A JSON object per line.
    Json,
}

impl LogArgs {
    /// The filter that the level means.
    pub(super) fn filter(&self) -> Result<EnvFilter, UsageError> {
        let level = if self.log_level.trim().is_empty() { DEFAULT_LEVEL } else { &self.log_level };
        EnvFilter::try_new(level).map_err(|error| UsageError::Value {
            flag: "--log-level",
            variable: "CAPI_AUTOSCALER_LOG_LEVEL",
            value: self.log_level.clone(),
            reason: error.to_string(),
        })
    }

    /// Starts logging for the whole process. A logger that is there already stays.
    pub(super) fn init(&self) -> Result<(), UsageError> {
        let builder = tracing_subscriber::fmt().with_env_filter(self.filter()?).with_writer(io::stderr);
        let started = match self.log_format {
            LogFormat::Text => builder.with_ansi(io::stderr().is_terminal()).finish().try_init(),
            LogFormat::Json => builder.json().flatten_event(true).finish().try_init(),
        };
        // An error means that one was started before, by a test for example.
        drop(started);
        Ok(())
    }
}
