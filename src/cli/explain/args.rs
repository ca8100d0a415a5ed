//! The flags of `explain`, as typed. Their help texts here are their documentation.

use clap::{Args, ValueEnum};

use crate::cli::{Color, IndexArgs};

/// The flags of `explain`, as typed.
#[derive(Args, Clone, Debug)]
pub struct ExplainArgs {
    /// Node groups to explain: MachineDeployment/team-a/workers, md/team-a/workers, team-a/workers, or workers.
    /// Default: every node group, and what is left out for an error
    #[arg(value_name = "ID")]
    pub ids: Vec<String>,

    /// Explain the manifests in this file, in this directory and all below it, or on standard input (-), and ask no
    /// cluster. Repeatable
    #[arg(long, short = 'f', value_name = "FILE|DIR|-")]
    pub manifests: Vec<String>,

    /// Only node groups of this namespace. It is also that of manifests which name none (else: default)
    #[arg(long, short, value_name = "NAMESPACE")]
    pub namespace: Option<String>,

    /// Also what is left out on purpose: out of scope, paused, not autoscaled, or owned by a MachineDeployment
    #[arg(long, short)]
    pub all: bool,

    /// Say whether this pod would fit an empty Node of each node group: a file, or - for standard input, with a Pod, or
    /// with what makes pods of a template (Deployment, StatefulSet, Job, CronJob …)
    #[arg(long, value_name = "FILE|-")]
    pub pod: Option<String>,

    /// Output format
    #[arg(long, short, value_name = "FORMAT", default_value = "text")]
    pub output: Output,

    /// When to colour the text; auto is on a terminal, unless NO_COLOR is set
    #[arg(long, value_name = "WHEN", default_value = "auto")]
    pub color: Color,

    /// Time to wait for the clusters: a Go duration
    #[arg(long, value_name = "DURATION", default_value = DEFAULT_TIMEOUT)]
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
    /// The same as a List in JSON.
    NodeJson,
}
