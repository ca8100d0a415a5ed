//! `groups`: asks a running server for its state and prints the node groups, for people or scripts. It must use the
//! server's admin listener and nothing else: no cluster, no kubeconfig.

mod client;
pub(super) mod output;
#[cfg(test)]
mod tests;

use std::{io, time::Duration};

use clap::{Args, ValueEnum};
use thiserror::Error;

pub use self::{
    client::{Client, ClientError, ServerUrl},
    output::Filter,
};
use super::{
    UsageError, help,
    printing::given,
    printing::{self, PrintError},
    values::timeout,
};
use connect::{ClusterRef, ClusterRefError};

pub(super) const DEFAULT_SERVER: &str = "http://127.0.0.1:8081";

/// The flags of `groups`, as typed.
#[derive(Args, Clone, Debug)]
pub struct GroupsArgs {
    /// Node groups: an id or its end, such as team-a/workers or workers, or else a part of names, such as gpu
    #[arg(value_name = "ID")]
    pub ids: Vec<String>,

    /// URL of the server's --admin-listen
    #[arg(long, short, env = "CAPI_AUTOSCALER_SERVER", value_name = "URL", default_value = DEFAULT_SERVER, help_heading = help::SERVER)]
    pub server: String,

    /// Cluster of a fleet; the subcommand clusters lists them
    #[arg(long, value_name = "NAMESPACE/NAME", help_heading = help::SERVER)]
    pub cluster: Option<String>,

    /// Only this namespace
    #[arg(long, short, value_name = "NAMESPACE", help_heading = help::SELECTION)]
    pub namespace: Option<String>,

    /// Show excluded objects and problems too
    #[arg(long, short, help_heading = help::SELECTION)]
    pub all: bool,

    /// Show instances too
    #[arg(long, help_heading = help::SELECTION)]
    pub instances: bool,

    /// Output format
    #[arg(long, short, value_name = "FORMAT", default_value = "table", help_heading = help::OUTPUT)]
    pub output: Output,

    /// How long to wait for an answer
    #[arg(long, value_name = "DURATION", default_value = "10s", help_heading = help::SERVER, hide_short_help = true)]
    pub timeout: String,
}

/// The format of the output.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub enum Output {
    /// A table for people.
    Table,
    /// A table with more columns.
    Wide,
    /// The schema of `/debug/state`.
    Json,
    /// The same as YAML.
    Yaml,
}

/// The configuration of `groups`.
#[derive(Clone, Debug)]
pub struct GroupsConfig {
    server: ServerUrl,
    cluster: Option<ClusterRef>,
    filter: Filter,
    output: Output,
    timeout: Duration,
}

/// The reason why `groups` failed.
#[derive(Debug, Error)]
pub enum GroupsError {
    /// The request to the server failed.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// A node group that was asked for doesn't exist.
    #[error(
        "no node group has {wanted:?} in its name; {near}groups --all shows all there are, and what is excluded and why"
    )]
    NoSuchGroup {
        /// The id as given.
        wanted: String,
        /// The node groups with similar names, in words for people.
        near: String,
    },
    /// The runtime can't be started.
    #[error("can't run: {0}")]
    Io(#[from] io::Error),
    /// The state can't be printed.
    #[error(transparent)]
    Print(#[from] PrintError),
}

impl TryFrom<GroupsArgs> for GroupsConfig {
    type Error = UsageError;

    fn try_from(args: GroupsArgs) -> Result<Self, UsageError> {
        let server = ServerUrl::of_flag(&args.server)?;
        let cluster = match given(args.cluster.as_deref()) {
            Some(text) => Some(text.parse().map_err(|error: ClusterRefError| UsageError::Flag {
                flag: "--cluster",
                value: text.to_owned(),
                reason: error.to_string(),
            })?),
            None => None,
        };
        Ok(Self {
            server,
            cluster,
            timeout: timeout(&args.timeout)?,
            filter: Filter { ids: args.ids, namespace: args.namespace, all: args.all, instances: args.instances },
            output: args.output,
        })
    }
}

impl GroupsConfig {
    /// Asks and prints.
    ///
    /// # Errors
    /// If the server can't be asked, or a named group doesn't exist.
    pub(super) fn run(self) -> Result<(), GroupsError> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            let client = Client::new(self.server.clone(), self.timeout);
            let state = self.filter.apply(client.state(self.cluster.as_ref(), self.filter.instances).await?)?;
            for warning in output::warnings(&state, self.output, &self.filter) {
                eprintln!("warning: {warning}");
            }
            printing::print(&mut io::stdout().lock(), &output::render(&state, self.output, &self.filter)?)?;
            Ok(())
        })
    }
}
