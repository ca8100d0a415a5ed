//! The flags of `explain`, as typed. Their help texts here are their documentation.

use clap::{Args, ValueEnum};

use crate::cli::{Color, IndexArgs, help};

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
