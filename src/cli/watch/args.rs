//! The flags of `watch`, as typed. Their help texts here are their documentation.

use change_stream::watch as stream;
use clap::{Args, ValueEnum};

use crate::cli::Color;
use rules::capi::DEFAULT_GROUP;

/// The flags of `watch`, as typed.
#[derive(Args, Clone, Debug)]
#[allow(clippy::struct_excessive_bools, reason = "each is a flag of its own")]
pub struct WatchArgs {
    /// Kinds to watch, by plural, singular, short name or kind, with its group and version where that is needed:
    /// machines, md, Machine.cluster.x-k8s.io, deployments.v1.apps. Several are separated by space or commas. Default:
    /// Cluster API's Clusters, MachineDeployments, MachineSets, Machines and MachinePools; with --target workload,
    /// Nodes
    #[arg(value_name = "RESOURCE")]
    pub resources: Vec<String>,

    /// Namespaces to watch, separated by commas. Default: that of --cluster, else that of the kubeconfig's context;
    /// with --target workload, all of them
    #[arg(short, long, value_name = "NS[,NS]", conflicts_with = "all_namespaces")]
    pub namespace: Vec<String>,

    /// Watch all namespaces
    #[arg(short = 'A', long)]
    pub all_namespaces: bool,

    /// Watch only objects whose labels match
    #[arg(short = 'l', long, value_name = "SELECTOR")]
    pub selector: Option<String>,

    /// Watch only objects whose fields match, as far as the API server selects by them: metadata.name=one
    #[arg(long, value_name = "SELECTOR")]
    pub field_selector: Option<String>,

    /// The cluster to watch
    #[arg(long, value_name = "CLUSTER", default_value = "management")]
    pub target: Target,

    /// Format of the changes: text for people, json for one JSON object a line, none to send notifications only
    #[arg(short, long, value_name = "FORM", default_value = "text")]
    pub output: Output,

    /// When to colour the text; auto is on a terminal, unless NO_COLOR is set
    #[arg(long, value_name = "WHEN", default_value = "auto")]
    pub color: Color,

    /// Leave out what is at this path, a JSON pointer in which * stands for every key or item:
    /// /status/conditions/*/message. Repeatable; noise such as heartbeats is left out anyway
    #[arg(long, value_name = "PATH")]
    pub ignore: Vec<String>,

    /// Show what is there at the start too
    #[arg(long)]
    pub show_initial: bool,

    /// Wait for resources and namespaces that aren't there yet, instead of ending with an error
    #[arg(long)]
    pub allow_missing: bool,

    /// Post changes as JSON to the URL in a file (file:PATH) or an environment variable (env:NAME)
    #[arg(long, value_name = "SOURCE", help_heading = "Notifications")]
    pub webhook: Option<String>,

    /// Send changes as messages to the Slack webhook whose URL is in a file (file:PATH) or an environment variable
    /// (env:NAME)
    #[arg(long, value_name = "SOURCE", help_heading = "Notifications")]
    pub slack_webhook: Option<String>,

    /// Send changes as the rules in this YAML file say
    #[arg(long, value_name = "FILE", help_heading = "Notifications")]
    pub notify_rules: Option<String>,

    /// Let --webhook and --slack-webhook use http without TLS beyond loopback
    #[arg(long, help_heading = "Notifications")]
    pub allow_http: bool,

    /// Kubeconfig file of the management cluster, or "in-cluster" for the Pod's service account. Default: the Pod's
    /// service account, else KUBECONFIG, else ~/.kube/config
    #[arg(long, env = "CAPI_AUTOSCALER_MANAGEMENT_KUBECONFIG", value_name = "FILE", help_heading = "Clusters")]
    pub management_kubeconfig: Option<String>,

    /// Kubeconfig file of the workload cluster, or "in-cluster" for the Pod's service account. Default: with --cluster
    /// its Secret, else the management cluster itself
    #[arg(long, env = "CAPI_AUTOSCALER_WORKLOAD_KUBECONFIG", value_name = "FILE", help_heading = "Clusters")]
    pub workload_kubeconfig: Option<String>,

    /// Secret with the kubeconfig for a Cluster's Nodes, in the Cluster's namespace, where {cluster} stands for the
    /// Cluster's name; or none. Default: {cluster}-kubeconfig
    #[arg(long, env = "CAPI_AUTOSCALER_WORKLOAD_NODES", value_name = "SECRET", help_heading = "Clusters")]
    pub workload_nodes: Option<String>,

    /// Watch Cluster API's own kinds only of this Cluster, named as a RESOURCE or not (any other RESOURCE is watched in
    /// its namespace, whatever Cluster it is of); --target workload reaches its workload cluster by the kubeconfig in
    /// its Secret, unless --workload-kubeconfig is given
    #[arg(long, env = "CAPI_AUTOSCALER_CLUSTER", value_name = "NAMESPACE/NAME", help_heading = "Clusters")]
    pub cluster: Option<String>,

    /// API group of Cluster API
    #[arg(long, env = "CAPI_GROUP", value_name = "GROUP", default_value = DEFAULT_GROUP, help_heading = "Clusters")]
    pub capi_group: String,

    /// Version of Cluster API's group to watch by default. Default: the one that the API server prefers
    #[arg(long, env = "CAPI_VERSION", value_name = "VERSION", help_heading = "Clusters")]
    pub capi_version: Option<String>,
}

/// Which cluster is watched.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub enum Target {
    /// The management cluster.
    Management,
    /// The workload cluster.
    Workload,
}

/// The form in which changes are shown.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub enum Output {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
    /// Not at all.
    None,
}

impl From<Target> for stream::Target {
    fn from(target: Target) -> Self {
        match target {
            Target::Management => Self::Management,
            Target::Workload => Self::Workload,
        }
    }
}
