//! The command line: one file per subcommand, and the parts that all share. Texts are parsed here, at the border,
//! into the types of the modules below. A wrong call is reported with the flag, its variable and the remedy, and must
//! end the program with code 2 before anything is started.

mod check;
mod clusters;
mod explain;
mod generate;
pub mod groups;
mod help;
mod index_config;
mod live_index;
mod log;
mod log_level;
mod printing;
mod serve;
mod usage;
mod values;
mod watch;

#[cfg(test)]
mod tests;

use std::{process::ExitCode, sync::Arc};

use clap::{Parser, Subcommand};
use thiserror::Error;

use app::Config;
use rules::text::visible_lines;

pub use check::{CheckArgs, CheckId, CheckOutput, needed_rights};
use clusters::ClustersArgs;
pub use explain::ExplainArgs;
use explain::ExplainConfig;
pub use generate::{CompletionsArgs, ManArgs};
use groups::GroupsArgs;
pub use index_config::{ClusterArgs, IndexArgs};
pub use log::{LogArgs, LogFormat};
use log_level::LogLevelArgs;
pub use printing::Color;
use serve::OneCluster;
pub use serve::{FleetArgs, Reflection, ServeArgs, TlsArgs};
pub use usage::UsageError;
use watch::WatchConfig;
pub use watch::{Output, Target, WatchArgs};

/// The command line.
#[derive(Clone, Debug, Parser)]
#[command(name = "capi-autoscaler-provider", version, about, max_term_width = 110, propagate_version = true)]
pub struct Cli {
    /// Options of the log.
    #[command(flatten)]
    pub log: LogArgs,
    /// The subcommand.
    #[command(subcommand)]
    pub command: Command,
}

/// The subcommand.
#[derive(Clone, Debug, Subcommand)]
pub enum Command {
    /// Serve node groups to Cluster Autoscaler over gRPC
    #[command(after_help = help::SERVE_EXAMPLES)]
    Serve(Box<ServeArgs>),
    /// List the node groups of a running server
    #[command(after_help = help::GROUPS_EXAMPLES)]
    Groups(Box<GroupsArgs>),
    /// List the Clusters of a running server of a fleet
    #[command(after_help = help::CLUSTERS_EXAMPLES)]
    Clusters(ClustersArgs),
    /// Show or change the log level of a running server
    #[command(after_help = help::LOG_LEVEL_EXAMPLES)]
    LogLevel(LogLevelArgs),
    /// Explain what Cluster Autoscaler is told about each node group, and why
    ///
    /// Reads the same clusters as serve, or manifests (--manifests) without a cluster.
    ///
    /// Exit code 0: all is well; paused node groups are no error. 1: a node group has a problem or is excluded by an
    /// error, or a manifest can't be read. 2: a wrong call, an unknown ID, or clusters or files that can't be read.
    #[command(after_help = help::EXPLAIN_EXAMPLES)]
    Explain(Box<ExplainArgs>),
    /// Check whether serve would work with these flags: clusters, permissions, node groups, certificates
    ///
    /// Writes nothing.
    ///
    /// Exit code 0: serve would work. 1: an error, or with --strict a warning. 2: a wrong call.
    #[command(after_help = help::CHECK_EXAMPLES)]
    Check(Box<CheckArgs>),
    /// Watch changes in a cluster
    #[command(after_help = help::WATCH_EXAMPLES)]
    Watch(Box<WatchArgs>),
    /// Print shell completions
    #[command(after_help = help::COMPLETIONS_EXAMPLES)]
    Completions(CompletionsArgs),
    /// Write manual pages
    #[command(after_help = help::MAN_EXAMPLES)]
    Man(ManArgs),
}

/// The reason why the program ended with an error. A text has the whole chain of causes.
#[derive(Debug, Error)]
pub enum CliError {
    /// The command line is wrong.
    #[error(transparent)]
    Usage(#[from] UsageError),
    /// What `explain` was asked for can't be read.
    #[error("{0:#}")]
    NoVerdict(anyhow::Error),
    /// The command failed.
    #[error("{0:#}")]
    Failed(#[from] anyhow::Error),
    /// The server failed, which its log says.
    #[error("{0:#}")]
    ServerFailed(anyhow::Error),
}

impl Cli {
    /// Runs the command until it ends.
    ///
    /// # Errors
    /// If the command line is wrong, or the command failed.
    pub fn run(self) -> Result<(), CliError> {
        match self.command {
            Command::Serve(args) => {
                let config = Config::try_from(*args)?;
                let log = Arc::new(self.log.init()?);
                serve::run(Config { log: Some(log), ..config }).map_err(CliError::ServerFailed)?;
            }
            Command::Groups(args) => args.run()?,
            Command::Clusters(args) => args.run()?,
            Command::LogLevel(args) => args.run()?,
            Command::Explain(args) => ExplainConfig::try_from(*args)?.run()?,
            Command::Check(args) => args.run()?,
            Command::Completions(args) => args.run()?,
            Command::Man(args) => args.run()?,
            Command::Watch(args) => {
                let config = WatchConfig::try_from(*args)?;
                self.log.init()?;
                watch::run(config)?;
            }
        }
        Ok(())
    }
}

impl CliError {
    /// Reports the error, and returns the exit code: 2 for a wrong call, as clap does, and for an `explain` that can't
    /// read its input; else 1.
    pub fn report(&self) -> ExitCode {
        match self {
            Self::ServerFailed(_) => tracing::error!("{self}"),
            Self::Usage(_) | Self::NoVerdict(_) | Self::Failed(_) => {
                eprintln!("error: {}", visible_lines(&self.to_string()));
            }
        }
        match self {
            Self::Usage(_) | Self::NoVerdict(_) => ExitCode::from(2),
            Self::Failed(_) | Self::ServerFailed(_) => ExitCode::FAILURE,
        }
    }
}
