//! The flags of `watch`, as typed. Their help texts here are their documentation.

use change_stream::watch as stream;
use clap::{Args, ValueEnum};

use crate::cli::Color;
use rules::capi::DEFAULT_GROUP;

/// The flags of `watch`, as typed.
#[derive(Args, Clone, Debug)]
#[allow(clippy::struct_excessive_bools, reason = "each is a flag of its own")]
pub struct WatchArgs {
    /// Kinds, by plural, singular, short name or kind, with group and version if needed: machines, md,
    /// Machine.cluster.x-k8s.io. Separated by spaces or commas. Default: Cluster API's kinds; with --target workload,
    /// Nodes
    #[arg(value_name = "RESOURCE")]
    pub resources: Vec<String>,

    /// Namespaces, separated by commas. Default: that of --cluster, else of the kubeconfig's context; with --target
    /// workload, all
    #[arg(short, long, value_name = "NS[,NS]", conflicts_with = "all_namespaces")]
    pub namespace: Vec<String>,

    /// All namespaces
    #[arg(short = 'A', long)]
    pub all_namespaces: bool,

    /// Label selector
    #[arg(short = 'l', long, value_name = "SELECTOR")]
    pub selector: Option<String>,

    /// Field selector, as far as the API server supports it, such as metadata.name=one
    #[arg(long, value_name = "SELECTOR")]
    pub field_selector: Option<String>,

    /// Which cluster to watch
    #[arg(long, value_name = "CLUSTER", default_value = "management")]
    pub target: Target,

    /// Output format; none: notifications only
    #[arg(short, long, value_name = "FORM", default_value = "text")]
    pub output: Output,

    /// Colour the output; auto: on a terminal, unless NO_COLOR is set
    #[arg(long, value_name = "WHEN", default_value = "auto")]
    pub color: Color,

    /// Ignore changes at this JSON pointer, in which * stands for any key or item: /status/conditions/*/message.
    /// Repeatable
    #[arg(long, value_name = "PATH")]
    pub ignore: Vec<String>,

    /// Show existing objects too
    #[arg(long)]
    pub show_initial: bool,

    /// Wait for kinds and namespaces that don't exist yet
    #[arg(long)]
    pub allow_missing: bool,

    /// Post changes as JSON to the URL in a file (file:PATH) or variable (env:NAME)
    #[arg(long, value_name = "SOURCE", help_heading = "Notifications")]
    pub webhook: Option<String>,

    /// Post changes to the Slack webhook whose URL is in a file (file:PATH) or variable (env:NAME)
    #[arg(long, value_name = "SOURCE", help_heading = "Notifications")]
    pub slack_webhook: Option<String>,

    /// YAML file with rules for notifications
    #[arg(long, value_name = "FILE", help_heading = "Notifications")]
    pub notify_rules: Option<String>,

    /// Allow http beyond loopback for --webhook and --slack-webhook
    #[arg(long, help_heading = "Notifications")]
    pub allow_http: bool,

    /// Kubeconfig of the management cluster, or in-cluster. Default: the Pod's service account, else KUBECONFIG, else
    /// ~/.kube/config
    #[arg(long, env = "CAPI_AUTOSCALER_MANAGEMENT_KUBECONFIG", value_name = "FILE", help_heading = "Clusters")]
    pub management_kubeconfig: Option<String>,

    /// Kubeconfig of the workload cluster, or in-cluster. Default: the Secret of --cluster; without --cluster, the
    /// management cluster
    #[arg(long, env = "CAPI_AUTOSCALER_WORKLOAD_KUBECONFIG", value_name = "FILE", help_heading = "Clusters")]
    pub workload_kubeconfig: Option<String>,

    /// Secret with the kubeconfig to read Nodes with, in the Cluster's namespace; {cluster} is the Cluster's name. Or
    /// none. Default: {cluster}-kubeconfig
    #[arg(long, env = "CAPI_AUTOSCALER_WORKLOAD_NODES", value_name = "SECRET", help_heading = "Clusters")]
    pub workload_nodes: Option<String>,

    /// Only Cluster API objects of this Cluster; for other kinds, only its namespace
    #[arg(long, env = "CAPI_AUTOSCALER_CLUSTER", value_name = "NAMESPACE/NAME", help_heading = "Clusters")]
    pub cluster: Option<String>,

    /// API group of Cluster API
    #[arg(long, env = "CAPI_GROUP", value_name = "GROUP", default_value = DEFAULT_GROUP, help_heading = "Clusters")]
    pub capi_group: String,

    /// API version of that group. Default: the one that the API server prefers
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
