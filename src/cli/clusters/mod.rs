//! `clusters`: asks the running copies of a fleet's server for its Clusters and prints them, those in need first, for
//! people or scripts. It must use the servers' admin listeners and nothing else, as `groups` does.

mod copies;
#[cfg(test)]
mod tests;

use std::{collections::HashSet, io, time::Duration};

use clap::Args;
use futures::future::join_all;

use super::{
    UsageError,
    groups::{Client, ClientError, DEFAULT_SERVER, GroupsError, Output, ServerUrl},
    printing,
    usage::given,
    values::timeout,
};
use state::{ClusterCondition, FleetCluster, FleetState, SyncState};
use text::visible;

/// The flags of `clusters`, as typed.
#[derive(Args, Clone, Debug)]
pub struct ClustersArgs {
    /// URL of a copy's admin listener (its --admin-listen). Repeatable; several in one value are separated by spaces.
    /// Each Cluster is shown with the caller of the copy that it called last
    #[arg(long, short, env = "CAPI_AUTOSCALER_SERVER", value_name = "URL", default_value = DEFAULT_SERVER)]
    pub server: Vec<String>,

    /// Only Clusters of this namespace
    #[arg(long, short, value_name = "NAMESPACE")]
    pub namespace: Option<String>,

    /// Output format
    #[arg(long, short, value_name = "FORMAT", default_value = "table")]
    pub output: Output,

    /// Time to wait for an answer: a Go duration
    #[arg(long, value_name = "DURATION", default_value = "10s")]
    pub timeout: String,
}

/// The configuration of `clusters`.
#[derive(Clone, Debug)]
pub(super) struct ClustersConfig {
    /// At least one.
    servers: Vec<ServerUrl>,
    namespace: Option<String>,
    output: Output,
    timeout: Duration,
}

impl TryFrom<ClustersArgs> for ClustersConfig {
    type Error = UsageError;

    fn try_from(args: ClustersArgs) -> Result<Self, UsageError> {
        let timeout = timeout(&args.timeout)?;
        Ok(Self {
            servers: servers(&args.server)?,
            namespace: given(args.namespace.as_deref()).map(str::to_owned),
            output: args.output,
            timeout,
        })
    }
}

/// Parses URLs separated by space; the default is one.
fn servers(values: &[String]) -> Result<Vec<ServerUrl>, UsageError> {
    let urls: Vec<_> = values.iter().flat_map(|value| value.split_whitespace()).collect();
    let urls = if urls.is_empty() { vec![DEFAULT_SERVER] } else { urls };
    let mut servers = urls.into_iter().map(ServerUrl::of_flag).collect::<Result<Vec<_>, _>>()?;
    // A copy that was named twice would count its callers twice.
    let mut known = HashSet::new();
    servers.retain(|server| known.insert(server.to_string()));
    Ok(servers)
}

impl ClustersConfig {
    /// Asks and prints.
    ///
    /// # Errors
    /// If no server can be asked, or none serves a fleet.
    pub(super) fn run(self) -> Result<(), GroupsError> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (state, unasked) = runtime.block_on(self.ask())?;
        let state = self.chosen(state);
        let missing = unasked.iter().map(|error| format!("a copy is missing: {error}"));
        for warning in missing.chain(self.warnings(&state)) {
            eprintln!("warning: {warning}");
        }
        printing::print(&mut io::stdout().lock(), &self.render(&state)?)?;
        Ok(())
    }

    /// Returns the state of all servers that answer together, and the errors of the others. One that is being replaced
    /// must not hide what its fellows say.
    async fn ask(&self) -> Result<(FleetState, Vec<ClientError>), ClientError> {
        let asked = self.servers.iter().map(|server| async move {
            let client = Client::new(server.clone(), self.timeout);
            client.clusters().await
        });
        let (mut states, mut errors) = (Vec::new(), Vec::new());
        for answer in join_all(asked).await {
            match answer {
                Ok(state) => states.push(state),
                Err(error) => errors.push(error),
            }
        }
        match errors.pop() {
            Some(error) if states.is_empty() => Err(error),
            last => {
                errors.extend(last);
                Ok((copies::merged(states), errors))
            }
        }
    }

    /// Returns the state with the Clusters and the denied callers of the namespace alone.
    fn chosen(&self, mut state: FleetState) -> FleetState {
        if let Some(namespace) = &self.namespace {
            let of_namespace = format!("/ns/{namespace}/cluster/");
            state.clusters.retain(|cluster| cluster.namespace == *namespace);
            state.denied.retain(|caller| caller.identity.contains(&of_namespace));
        }
        state
    }

    /// Returns the state as text, ending with a newline.
    fn render(&self, state: &FleetState) -> Result<String, GroupsError> {
        Ok(match self.output {
            Output::Table => tables::clusters(state, false),
            Output::Wide => tables::clusters(state, true),
            Output::Json => printing::json(state)?,
            Output::Yaml => printing::yaml(state)?,
        })
    }

    /// Returns the reasons why the output is incomplete, or may mislead.
    fn warnings(&self, state: &FleetState) -> Vec<String> {
        let nothing = self.namespace.as_ref().filter(|_| state.clusters.is_empty()).map(|namespace| {
            format!("no Cluster in namespace {namespace:?}: correct --namespace, or leave it out to see all there are")
        });
        let pending = state.checks.iter().filter(|check| check.state == SyncState::Pending).map(|check| {
            let why = check.reason.as_deref().unwrap_or("no reason given");
            format!("not in sync: {}: {}", visible(&check.name), visible(why))
        });
        nothing.into_iter().chain(pending).chain(self.not_called_here(state)).collect()
    }

    /// Returns the number of the Clusters that have no other problem than that they may call a copy that wasn't asked.
    fn not_called_here(&self, state: &FleetState) -> Option<String> {
        let first = |(_, conditions): (&FleetCluster, Vec<ClusterCondition>)| conditions.first().copied();
        let conditions = state.in_need_first().into_iter().filter_map(first);
        let count = conditions.filter(|condition| *condition == ClusterCondition::NotCalled).count();
        (self.servers.len() == 1 && count > 0).then(|| {
            format!("Clusters not called here: {count}; they may call another copy: give --server once for each copy")
        })
    }
}
