//! The flags of `explain`, whose help texts are their documentation, and their meaning in the types of the modules
//! below. Nothing may be read or opened here.

use std::time::Duration;

use clap::{Args, ValueEnum};
use rules::{Scope, ScopeSpec};

use super::{manifests::ManifestSource, select::Selection};
use crate::cli::{
    Color, IndexArgs, UsageError, help,
    usage::given,
    values::{NAMESPACE, is_namespace, timeout},
};
use app::IndexConfig;

/// The flags of `explain`, as typed.
#[derive(Args, Clone, Debug)]
pub struct ExplainArgs {
    /// Node groups, such as MachineDeployment/team-a/workers, md/team-a/workers or workers. Default: all, and objects
    /// excluded by an error
    #[arg(value_name = "ID")]
    pub ids: Vec<String>,

    /// Explain manifests instead of a cluster: a file, a directory, or - for standard input. Repeatable
    #[arg(long, short = 'f', value_name = "FILE|DIR|-", help_heading = help::SELECTION)]
    pub manifests: Vec<String>,

    /// Only this namespace; also that of manifests without one
    #[arg(long, short, value_name = "NAMESPACE", help_heading = help::SELECTION)]
    pub namespace: Option<String>,

    /// Show objects that are excluded on purpose too
    #[arg(long, short, help_heading = help::SELECTION)]
    pub all: bool,

    /// Output format
    #[arg(long, short, value_name = "FORMAT", default_value = "text", help_heading = help::OUTPUT)]
    pub output: Output,

    /// Colour the output; auto: on a terminal, unless NO_COLOR is set
    #[arg(long, value_name = "WHEN", default_value = "auto", help_heading = help::OUTPUT, hide_short_help = true)]
    pub color: Color,

    /// How long to wait for the clusters
    #[arg(long, value_name = "DURATION", default_value = DEFAULT_TIMEOUT, help_heading = help::OUTPUT, hide_short_help = true)]
    pub timeout: String,

    /// Which clusters, which node groups, and what the operator says about all of them.
    #[command(flatten)]
    pub index: IndexArgs,
}

const DEFAULT_TIMEOUT: &str = "30s";

/// The format of the output.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub enum Output {
    /// For people.
    Text,
    /// Everything, as one JSON object.
    Json,
    /// The same as YAML.
    Yaml,
    /// The Nodes as Cluster Autoscaler gets them, as YAML documents.
    Node,
}

#[derive(Clone, Debug)]
pub(in crate::cli) struct ExplainConfig {
    pub(super) selection: Selection,
    /// The sources that replace the clusters, if there are any.
    pub(super) manifests: Vec<ManifestSource>,
    pub(super) output: Output,
    pub(super) color: Color,
    pub(super) timeout: Duration,
    pub(super) index: IndexConfig,
    pub(super) warnings: Vec<String>,
}

impl TryFrom<ExplainArgs> for ExplainConfig {
    type Error = UsageError;

    fn try_from(args: ExplainArgs) -> Result<Self, UsageError> {
        let wrong = |flag, value: &str, reason: &str| UsageError::Flag {
            flag,
            value: value.to_owned(),
            reason: reason.to_owned(),
        };
        let namespace = given(args.namespace.as_deref()).map(str::to_owned);
        if let Some(name) = namespace.as_deref().filter(|name| !is_namespace(name)) {
            return Err(wrong("--namespace", name, NAMESPACE));
        }
        let manifests: Vec<_> = args.manifests.iter().map(|source| ManifestSource::from(source.as_str())).collect();
        let stdin = manifests.iter().filter(|source| **source == ManifestSource::Stdin).count();
        if stdin > 1 {
            return Err(wrong("--manifests", "-", "standard input can be read only once"));
        }
        let selection = Selection { ids: args.ids, namespace, all: args.all };
        let mut warnings = Vec::new();
        let scope = if manifests.is_empty() { scope(&selection) } else { Scope::All };
        Ok(Self {
            index: args.index.config(Some(scope), &mut warnings)?,
            timeout: timeout(&args.timeout)?,
            selection,
            manifests,
            output: args.output,
            color: args.color,
            warnings,
        })
    }
}

/// Returns the scope if the flags choose none: everything, in the namespaces that are asked for. Other namespaces
/// aren't read, since the permissions may be limited to one.
fn scope(selection: &Selection) -> Scope {
    let spec = |namespace| ScopeSpec { namespace: Some(namespace), ..ScopeSpec::default() };
    selection.only_namespaces().map_or(Scope::All, |names| Scope::Specs(names.into_iter().map(spec).collect()))
}
