//! `groups`: asks a running server for its state and prints the node groups, for people or scripts. It must use the
//! server's admin listener and nothing else: no cluster, no kubeconfig.

mod client;
pub(super) mod output;
#[cfg(test)]
mod tests;

use anyhow::Context as _;
use clap::{Args, ValueEnum};

pub(super) use self::client::{Client, ServerUrl};
use self::output::Filter;
use super::{CliError, UsageError, help, printing, usage::given, values::timeout};
use connect::ClusterRefError;

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

impl GroupsArgs {
    /// Asks and prints.
    pub(super) fn run(self) -> Result<(), CliError> {
        let client = Client::new(ServerUrl::of_flag(&self.server)?, timeout(&self.timeout)?);
        let cluster = match given(self.cluster.as_deref()) {
            Some(text) => Some(text.parse().map_err(|error: ClusterRefError| UsageError::Flag {
                flag: "--cluster",
                value: text.to_owned(),
                reason: error.to_string(),
            })?),
            None => None,
        };
        let filter = Filter { ids: self.ids, namespace: self.namespace, all: self.all, instances: self.instances };
        let state = filter.apply(block_on(client.state(cluster.as_ref(), filter.instances))?)?;
        for warning in output::warnings(&state, self.output, &filter) {
            eprintln!("warning: {warning}");
        }
        Ok(printing::print(&output::render(&state, self.output, &filter)?)?)
    }
}

/// Waits for an answer of a server.
pub(super) fn block_on<T>(asking: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    tokio::runtime::Builder::new_current_thread().enable_all().build().context("can't run")?.block_on(asking)
}
