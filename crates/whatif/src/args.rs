//! The flags, as typed. Their help texts here are their documentation.

use std::path::PathBuf;

use clap::{Parser, ValueEnum};

/// What would an unmodified Cluster Autoscaler do with these manifests? It runs on Kubernetes APIs in memory, with
/// capi-autoscaler-provider and simulated Cluster API controllers. No cluster is needed, and nothing is written to one.
///
/// Exit code 0: all Pods run. 1: Pods stay pending. 2: there is no answer.
#[derive(Clone, Debug, Parser)]
#[command(name = "whatif", version, max_term_width = 110, after_help = EXAMPLES)]
pub struct Args {
    /// Manifests or a dump of both clusters: a YAML or JSON file, a directory, or - for standard input. An object that
    /// stands there twice counts as it stands there last. Repeatable
    #[arg(long = "filename", short = 'f', value_name = "FILE|DIR|-", required = true)]
    pub manifests: Vec<String>,

    /// The binary of Cluster Autoscaler, 1.33 or later, with its provider externalgrpc. Twice: the answers are compared
    #[arg(long, value_name = "BINARY", required_unless_present = "driver")]
    pub autoscaler: Vec<PathBuf>,

    /// The binary of kube-scheduler. Default: a small scheduler, whose limits are printed
    #[arg(long, value_name = "BINARY")]
    pub scheduler: Option<PathBuf>,

    /// Add the objects of a file, such as a Job; 40xjob.yaml adds them 40 times. Repeatable
    #[arg(long, value_name = "[Nx]FILE")]
    pub add: Vec<String>,

    /// Remove an object and everything that it owns. Repeatable
    #[arg(long, value_name = "KIND/[NAMESPACE/]NAME")]
    pub remove: Vec<String>,

    /// Change an object by a JSON merge patch, such as 'deployment/shop/web={"spec":{"replicas":2}}'. Repeatable
    #[arg(long, value_name = "KIND/[NAMESPACE/]NAME=JSON")]
    pub patch: Vec<String>,

    /// The Cluster, if the manifests have several
    #[arg(long, value_name = "NAMESPACE/NAME")]
    pub cluster: Option<String>,

    /// A price file, as serve --prices has it, for what the Nodes cost
    #[arg(long, value_name = "FILE")]
    pub prices: Option<PathBuf>,

    /// End after this time even if something still moves, in simulated time
    #[arg(long, value_name = "DURATION", default_value = "2h")]
    pub until: String,

    /// Simulated time goes this many times as fast: Cluster Autoscaler's waits and the Machines' times are so much shorter
    #[arg(long, value_name = "FACTOR", default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..=600))]
    pub speed: u32,

    /// The time from a new Machine to a Ready Node. Default: what the group's Machines in the dump took, else 3m
    #[arg(long, value_name = "DURATION")]
    pub machine_time: Option<String>,

    /// Output format
    #[arg(long, short, value_name = "FORMAT", default_value = "text")]
    pub output: Output,

    /// Keep the logs of the binaries in this directory
    #[arg(long, value_name = "DIR")]
    pub logs: Option<PathBuf>,

    /// Play Cluster Autoscaler by a model of it, for tests without its binary
    #[arg(long, hide = true, conflicts_with = "autoscaler")]
    pub driver: bool,

    /// Cluster Autoscaler's flags, as you run it
    #[arg(last = true, value_name = "FLAGS OF CLUSTER AUTOSCALER")]
    pub flags: Vec<String>,
}

/// The format of the output.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub enum Output {
    /// A timeline and tables.
    Text,
    /// Everything, as one JSON object.
    Json,
    /// A test for each owner of Pods without a Node, and one for all others, as CI systems read it.
    Junit,
}

const EXAMPLES: &str = "\
Examples:
  # Do these 40 Jobs fit, and which groups grow?
  whatif -f dump.yaml --autoscaler ./cluster-autoscaler --add 40xjob.yaml -- --expander=least-waste
  # What goes when this Deployment shrinks?
  whatif -f dump.yaml --autoscaler ./cluster-autoscaler --patch 'deployment/shop/web={\"spec\":{\"replicas\":2}}'
  # Would another version decide otherwise?
  whatif -f dump.yaml --autoscaler ./cluster-autoscaler-1.33 --autoscaler ./cluster-autoscaler-1.36 --add 40xjob.yaml";
