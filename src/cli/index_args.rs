//! The flags that determine the index: the clusters, the node groups, and the operator's rules for all of them. Every
//! subcommand that has an index takes these flags, so that all indexes are the same.

use clap::Args;

use super::values::parse_bool;
use rules::capi::DEFAULT_GROUP;

/// The flags that determine an index, as typed.
#[derive(Args, Clone, Debug)]
pub struct IndexArgs {
    /// Kubeconfig of the management cluster, or in-cluster. Default: the Pod's service account, else KUBECONFIG, else
    /// ~/.kube/config
    #[arg(long, env = "CAPI_AUTOSCALER_MANAGEMENT_KUBECONFIG", value_name = "FILE")]
    pub management_kubeconfig: Option<String>,

    /// Kubeconfig of the workload cluster, or in-cluster. Default: the Secret of --cluster; without --cluster, the
    /// management cluster
    #[arg(long, env = "CAPI_AUTOSCALER_WORKLOAD_KUBECONFIG", value_name = "FILE")]
    pub workload_kubeconfig: Option<String>,

    /// Secret with the kubeconfig to read Nodes with, in the Cluster's namespace; {cluster} is the Cluster's name. Or
    /// none. Default: {cluster}-kubeconfig
    #[arg(long, env = "CAPI_AUTOSCALER_WORKLOAD_NODES", value_name = "SECRET")]
    pub workload_nodes: Option<String>,

    /// Scope, as in-tree: clusterapi:namespace=NS,clusterName=NAME,label=value, each item optional. A node group must
    /// match one. Repeatable, or separated by spaces or semicolons
    #[arg(long, env = "CAPI_AUTOSCALER_NODE_GROUP_AUTO_DISCOVERY", value_name = "SPEC")]
    pub node_group_auto_discovery: Vec<String>,

    /// Scope: one Cluster
    #[arg(long, env = "CAPI_AUTOSCALER_CLUSTER", value_name = "NAMESPACE/NAME")]
    pub cluster: Option<String>,

    /// Scope: everything. All node groups must belong to one workload cluster
    #[arg(long, env = "CAPI_AUTOSCALER_ALL_CLUSTERS", value_parser = parse_bool)]
    pub all_clusters: bool,

    /// API group of Cluster API; most annotations and labels follow it
    #[arg(long, env = "CAPI_GROUP", value_name = "GROUP", default_value = DEFAULT_GROUP)]
    pub capi_group: String,

    /// API version of that group. Default: the one that the API server prefers
    #[arg(long, env = "CAPI_VERSION", value_name = "VERSION")]
    pub capi_version: Option<String>,

    /// Architecture of upcoming Nodes if nothing else states it: amd64, arm64, ppc64le or s390x. Anything else means
    /// amd64
    #[arg(long, env = "CAPI_SCALE_ZERO_DEFAULT_ARCH", value_name = "ARCH", default_value = "amd64")]
    pub scale_zero_default_arch: String,

    /// Regular expression for label keys that Cluster API syncs to Nodes, as its own flag of this name. Repeatable, or
    /// separated by spaces
    #[arg(long, env = "CAPI_AUTOSCALER_ADDITIONAL_SYNC_MACHINE_LABELS", value_name = "REGEX")]
    pub additional_sync_machine_labels: Vec<String>,

    /// Resources of a new Node that pods don't get, such as cpu=100m,memory=800Mi. Annotations and real Nodes win
    #[arg(long, env = "CAPI_AUTOSCALER_DEFAULT_NODE_OVERHEAD", value_name = "RESOURCES")]
    pub default_node_overhead: Option<String>,

    /// Learn extended resources and huge pages from real Nodes
    #[arg(
        long, env = "CAPI_AUTOSCALER_LEARN_EXTENDED_RESOURCES", value_name = "BOOL", default_value = "true",
        action = clap::ArgAction::Set, num_args = 0..=1, default_missing_value = "true", value_parser = parse_bool
    )]
    pub learn_extended_resources: bool,

    /// YAML file with prices for the price expander. Reloaded when it changes; annotations win
    #[arg(long, env = "CAPI_AUTOSCALER_PRICES", value_name = "FILE")]
    pub prices: Option<String>,
}
