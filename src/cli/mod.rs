//! The command line: one file per subcommand, and what all of them share. Texts are parsed here, at the border,
//! into the types of the rooms below; what is wrong is said with the flag, its variable and the remedy, and ends
//! the program with code 2 before anything is started.

pub mod groups;
mod log;
mod serve;
mod serve_args;
mod serve_config;
mod watch;

#[cfg(test)]
mod tests;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use thiserror::Error;

use groups::{GroupsArgs, GroupsConfig, GroupsError};
pub use log::{LogArgs, LogFormat};
pub use serve::Server;
pub use serve_args::ServeArgs;
pub use serve_config::{ServeConfig, UsageError};
pub use watch::{Color, Narrowing, Output, Target, Wanted, WantedBy, Watch, WatchArgs, WatchConfig, Where};

/// The command line.
#[derive(Clone, Debug, Parser)]
#[command(name = "capi-autoscaler-provider", version, about, max_term_width = 110, propagate_version = true)]
pub struct Cli {
    /// How to log.
    #[command(flatten)]
    pub log: LogArgs,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
#[derive(Clone, Debug, Subcommand)]
pub enum Command {
    /// Answer the Cluster Autoscaler over gRPC
    Serve(Box<ServeArgs>),
    /// Print the node groups of a running server as a table
    Groups(Box<GroupsArgs>),
    /// Show what changes in a cluster, object by object
    Watch(Box<WatchArgs>),
}

/// Why the program ended with an error.
#[derive(Debug, Error)]
pub enum CliError {
    /// It was called wrongly.
    #[error(transparent)]
    Usage(#[from] UsageError),
    /// The server couldn't be asked for its node groups, or they couldn't be printed.
    #[error(transparent)]
    Groups(#[from] GroupsError),
    /// Nothing could be watched, or what was seen couldn't be printed.
    #[error("{0:#}")]
    Watch(anyhow::Error),
    /// It couldn't do what it was called for. The text has the whole chain of causes.
    #[error("{0:#}")]
    Failed(#[from] anyhow::Error),
}

impl Cli {
    /// Does what the command line says, until it is done.
    ///
    /// # Errors
    /// When it was called wrongly, or what it does failed.
    pub fn run(self) -> Result<(), CliError> {
        match self.command {
            Command::Serve(args) => {
                let config = ServeConfig::try_from(*args)?;
                self.log.init()?;
                serve::run(config)?;
            }
            Command::Groups(args) => GroupsConfig::try_from(*args)?.run()?,
            Command::Watch(args) => {
                let config = WatchConfig::try_from(*args)?;
                self.log.init()?;
                watch::run(config).map_err(CliError::Watch)?;
            }
        }
        Ok(())
    }
}

impl CliError {
    /// Says what is wrong: in the log, or on standard error where there is no log yet.
    pub fn report(&self) {
        match self {
            Self::Usage(error) => eprintln!("error: {error}"),
            Self::Groups(error) => eprintln!("error: {error}"),
            Self::Watch(error) => eprintln!("error: {error:#}"),
            Self::Failed(_) => tracing::error!("{self}"),
        }
    }

    /// 2 for a wrong call, as clap's own errors, else 1.
    #[must_use]
    pub fn exit_code(&self) -> ExitCode {
        match self {
            Self::Usage(_) => ExitCode::from(2),
            Self::Groups(_) | Self::Watch(_) | Self::Failed(_) => ExitCode::FAILURE,
        }
    }
}
