//! `groups`: asks a running server for its state and prints the node groups, for people or scripts. It must use the
//! server's admin listener and nothing else: no cluster, no kubeconfig.

mod client;
#[cfg(test)]
pub(super) mod tests;

use anyhow::{Context as _, anyhow};
use clap::{Args, ValueEnum};

pub(super) use self::client::{Client, ServerUrl};
use super::{CliError, UsageError, help, printing, usage::given, values::timeout};
use connect::ClusterRefError;
use page::state::{
    CheckState, State,
    tables::{View, table},
};
use rules::text::visible;

pub(super) const DEFAULT_SERVER: &str = "http://127.0.0.1:8081";

/// The similarity, from 0 to 1, above which a name is suggested; clap has the same.
const SIMILAR: f64 = 0.7;
/// The maximum number of names that are suggested.
const MOST_NAMED: usize = 3;

/// The flags of `groups`, as typed.
#[derive(Args, Clone, Debug)]
pub struct GroupsArgs {
    /// Node groups: an id or its end, such as team-a/workers, or else a part of names, such as gpu
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
        for warning in warnings(&state, self.output, &filter) {
            eprintln!("warning: {warning}");
        }
        Ok(printing::print(&render(&state, self.output, &filter)?)?)
    }
}

/// Waits for an answer of a server.
pub(super) fn block_on<T>(asking: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    tokio::runtime::Builder::new_current_thread().enable_all().build().context("can't run")?.block_on(asking)
}

/// The wanted part of the state.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
struct Filter {
    /// Ids, their last parts, or parts of names; an empty list selects all groups.
    ids: Vec<String>,
    /// The only namespace, if one is given.
    namespace: Option<String>,
    /// True if objects that are left out are wanted too.
    all: bool,
    /// True if instances are wanted too.
    instances: bool,
}

impl Filter {
    /// Returns the wanted part of the state.
    ///
    /// # Errors
    /// If an id matches no object, left out or not.
    fn apply(&self, mut state: State) -> anyhow::Result<State> {
        let in_namespace = |namespace: &str| self.namespace.as_deref().is_none_or(|wanted| wanted == namespace);
        state.groups.retain(|group| in_namespace(&group.namespace));
        state.left_out.retain(|object| in_namespace(&object.namespace));
        if !self.ids.is_empty() {
            let known: Vec<_> = state
                .groups
                .iter()
                .map(|it| it.id.clone())
                .chain(state.left_out.iter().map(|it| it.id.clone()))
                .collect();
            let matches: Vec<_> = self.ids.iter().map(|wanted| matching(wanted, &known)).collect::<Result<_, _>>()?;
            let is_wanted = |id: &str| self.ids.iter().zip(&matches).any(|(wanted, is_match)| is_match(wanted, id));
            state.groups.retain(|group| is_wanted(&group.id));
            state.left_out.retain(|object| is_wanted(&object.id));
        }
        // A user who names an object that is left out wants to know why.
        if !self.all && (self.ids.is_empty() || !state.groups.is_empty()) {
            state.left_out.clear();
        }
        Ok(state)
    }
}

type Match = fn(&str, &str) -> bool;

/// Returns how an id is meant: as the end of one of these, or else as a part of names.
fn matching(wanted: &str, known: &[String]) -> anyhow::Result<Match> {
    let matches: [Match; 2] = [is_end, is_part];
    let found = matches.into_iter().find(|is_match| known.iter().any(|id| is_match(wanted, id)));
    found.ok_or_else(|| {
        anyhow!(
            "no node group has {wanted:?} in its name; {}groups --all shows all there are, and what is excluded and why",
            near(wanted, known)
        )
    })
}

/// Returns true if the name contains `wanted`, or the id if that has a slash.
fn is_part(wanted: &str, id: &str) -> bool {
    let of = if wanted.contains('/') { id } else { name(id) };
    !wanted.is_empty() && of.to_lowercase().contains(&wanted.to_lowercase())
}

fn name(id: &str) -> &str {
    id.rsplit('/').next().unwrap_or(id)
}

/// Returns the ids with the most similar names, in words for people.
fn near(wanted: &str, known: &[String]) -> String {
    let similar = |id: &String| strsim::jaro(name(wanted), name(id));
    let mut near: Vec<_> = known.iter().map(|id| (similar(id), id)).filter(|(how, _)| *how > SIMILAR).collect();
    near.sort_by(|(a, _), (b, _)| b.total_cmp(a));
    let near: Vec<_> = near.into_iter().take(MOST_NAMED).map(|(_, id)| visible(id)).collect();
    if near.is_empty() { String::new() } else { format!("similar: {}; ", near.join(", ")) }
}

/// Returns true if `wanted` is the whole id or its last parts.
fn is_end(wanted: &str, id: &str) -> bool {
    id.strip_suffix(wanted).is_some_and(|rest| rest.is_empty() || rest.ends_with('/')) && !wanted.is_empty()
}

/// Returns the state as text, ending with a newline.
fn render(state: &State, output: Output, filter: &Filter) -> anyhow::Result<String> {
    let view = View {
        wide: output == Output::Wide,
        all: filter.all || !state.left_out.is_empty(),
        instances: filter.instances,
    };
    match output {
        Output::Table | Output::Wide => Ok(table(state, view)),
        Output::Json => printing::json(state),
        Output::Yaml => printing::yaml(state),
    }
}

/// Returns the reasons why the output is incomplete, unless it says so itself.
fn warnings(state: &State, output: Output, filter: &Filter) -> Vec<String> {
    let nothing = filter.namespace.as_ref().filter(|_| state.groups.is_empty() && state.left_out.is_empty());
    let nothing = nothing.map(|namespace| {
        let more = if filter.all { "" } else { "; --all adds what is excluded" };
        format!(
            "no node group in namespace {namespace:?}: correct --namespace, or leave it out to see all there are{more}"
        )
    });
    let is_said = matches!(output, Output::Table | Output::Wide);
    let pending = state.head.checks.iter().filter(|check| check.state == CheckState::Pending && !is_said);
    let pending = pending.map(|check| {
        let why = check.reason.as_deref().unwrap_or("no reason given");
        format!("not in sync: {}: {}", visible(&check.name), visible(why))
    });
    nothing.into_iter().chain(pending).collect()
}
