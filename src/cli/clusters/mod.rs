//! `clusters`: asks the running server of a fleet for its Clusters and prints them, those in need first, for people or
//! scripts. It must use the server's admin listener and nothing else, as `groups` does.

#[cfg(test)]
mod tests;

use clap::Args;

use super::{
    CliError,
    groups::{Client, DEFAULT_SERVER, Output, ServerUrl, block_on},
    help, printing,
    usage::given,
    values::timeout,
};
use page::state::{CheckState, ClusterCondition, FleetCluster, FleetState};
use rules::text::visible;

/// The flags of `clusters`, as typed.
#[derive(Args, Clone, Debug)]
pub struct ClustersArgs {
    /// URL of the server's --admin-listen
    #[arg(long, short, env = "CAPI_AUTOSCALER_SERVER", value_name = "URL", default_value = DEFAULT_SERVER, help_heading = help::SERVER)]
    pub server: String,

    /// Only this namespace
    #[arg(long, short, value_name = "NAMESPACE", help_heading = help::SELECTION)]
    pub namespace: Option<String>,

    /// Output format
    #[arg(long, short, value_name = "FORMAT", default_value = "table", help_heading = help::OUTPUT)]
    pub output: Output,

    /// How long to wait for an answer
    #[arg(long, value_name = "DURATION", default_value = "10s", help_heading = help::SERVER, hide_short_help = true)]
    pub timeout: String,
}

impl ClustersArgs {
    /// Asks and prints.
    pub(super) fn run(self) -> Result<(), CliError> {
        let client = Client::new(ServerUrl::of_flag(&self.server)?, timeout(&self.timeout)?);
        let state = self.chosen(block_on(client.clusters())?);
        for warning in self.warnings(&state) {
            eprintln!("warning: {warning}");
        }
        Ok(printing::print(&self.render(&state)?)?)
    }

    fn namespace(&self) -> Option<&str> {
        given(self.namespace.as_deref())
    }

    /// Returns the state with the Clusters and the denied callers of the namespace alone.
    fn chosen(&self, mut state: FleetState) -> FleetState {
        if let Some(namespace) = self.namespace() {
            let of_namespace = format!("/ns/{namespace}/cluster/");
            state.clusters.retain(|cluster| cluster.namespace == namespace);
            state.denied.retain(|caller| caller.identity.contains(&of_namespace));
        }
        state
    }

    /// Returns the state as text, ending with a newline.
    fn render(&self, state: &FleetState) -> anyhow::Result<String> {
        Ok(match self.output {
            Output::Table => page::state::tables::clusters(state, false),
            Output::Wide => page::state::tables::clusters(state, true),
            Output::Json => printing::json(state)?,
            Output::Yaml => printing::yaml(state)?,
        })
    }

    /// Returns the reasons why the output is incomplete, or may mislead.
    fn warnings(&self, state: &FleetState) -> Vec<String> {
        let nothing = self.namespace().filter(|_| state.clusters.is_empty()).map(|namespace| {
            format!("no Cluster in namespace {namespace:?}: correct --namespace, or leave it out to see all there are")
        });
        let pending = state.head.checks.iter().filter(|check| check.state == CheckState::Pending).map(|check| {
            let why = check.reason.as_deref().unwrap_or("no reason given");
            format!("not in sync: {}: {}", visible(&check.name), visible(why))
        });
        nothing.into_iter().chain(pending).chain(not_called_here(state)).collect()
    }
}

/// Returns the number of the Clusters that have no other problem than that they may call another replica.
fn not_called_here(state: &FleetState) -> Option<String> {
    let first = |(_, conditions): (&FleetCluster, Vec<ClusterCondition>)| conditions.first().copied();
    let conditions = state.in_need_first().into_iter().filter_map(first);
    let count = conditions.filter(|condition| *condition == ClusterCondition::NotCalled).count();
    (count > 0)
        .then(|| format!("Clusters not called here: {count}; they may call another replica: ask each by --server"))
}
