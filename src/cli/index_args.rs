//! The flags that determine the index: the clusters, the node groups, and the operator's rules for all of them. Every
//! subcommand that has an index takes these flags, so that all indexes are the same.

use clap::Args;

use super::values::parse_bool;
use rules::capi::DEFAULT_GROUP;

/// The flags that determine an index, as typed.
#[derive(Args, Clone, Debug)]
pub struct IndexArgs {
    /// Kubeconfig file of the management cluster, or "in-cluster" for the Pod's service account. Default: the Pod's
    /// service account, else KUBECONFIG, else ~/.kube/config
    #[arg(long, env = "CAPI_AUTOSCALER_MANAGEMENT_KUBECONFIG", value_name = "FILE")]
    pub management_kubeconfig: Option<String>,

    /// Kubeconfig file of the workload cluster, or "in-cluster" for the Pod's service account. Default: with --cluster
    /// its Secret, else the management cluster itself
    #[arg(long, env = "CAPI_AUTOSCALER_WORKLOAD_KUBECONFIG", value_name = "FILE")]
    pub workload_kubeconfig: Option<String>,

    /// Secret with the kubeconfig for a Cluster's Nodes, in the Cluster's namespace, where {cluster} stands for the
    /// Cluster's name; or none. Default: {cluster}-kubeconfig
    #[arg(long, env = "CAPI_AUTOSCALER_WORKLOAD_NODES", value_name = "SECRET")]
    pub workload_nodes: Option<String>,

    /// Which node groups, as the in-tree provider takes it: clusterapi:namespace=NS,clusterName=NAME,label=value
    /// with any of the items left out. Repeatable; a group must match one. Several in one value are separated by spaces
    /// or semicolons
    #[arg(long, env = "CAPI_AUTOSCALER_NODE_GROUP_AUTO_DISCOVERY", value_name = "SPEC")]
    pub node_group_auto_discovery: Vec<String>,

    /// The node groups of this Cluster
    #[arg(long, env = "CAPI_AUTOSCALER_CLUSTER", value_name = "NAMESPACE/NAME")]
    pub cluster: Option<String>,

    /// The node groups of all Clusters. They must all belong to the one workload cluster
    #[arg(long, env = "CAPI_AUTOSCALER_ALL_CLUSTERS", value_parser = parse_bool)]
    pub all_clusters: bool,

    /// API group of Cluster API, which most of its annotations and labels follow
    #[arg(long, env = "CAPI_GROUP", value_name = "GROUP", default_value = DEFAULT_GROUP)]
    pub capi_group: String,

    /// Version of Cluster API's group to read. Default: the one that the API server prefers
    #[arg(long, env = "CAPI_VERSION", value_name = "VERSION")]
    pub capi_version: Option<String>,

    /// Architecture of Nodes to come where nothing else says it: amd64, arm64, ppc64le or s390x. Anything else counts
    /// as amd64, with a warning
    #[arg(long, env = "CAPI_SCALE_ZERO_DEFAULT_ARCH", value_name = "ARCH", default_value = "amd64")]
    pub scale_zero_default_arch: String,

    /// Regular expression over the keys of further labels that Cluster API copies from Machines to Nodes: the same as
    /// its own flag of this name. Repeatable; several in one value are separated by spaces
    #[arg(long, env = "CAPI_AUTOSCALER_ADDITIONAL_SYNC_MACHINE_LABELS", value_name = "REGEX")]
    pub additional_sync_machine_labels: Vec<String>,

    /// Resources that pods don't get of a new Node, where neither a real Node nor an annotation of its group states
    /// them, such as cpu=100m,memory=800Mi
    #[arg(long, env = "CAPI_AUTOSCALER_DEFAULT_NODE_OVERHEAD", value_name = "RESOURCES")]
    pub default_node_overhead: Option<String>,

    /// Learn extended resources and huge pages from real Nodes, for the Nodes to come of the same templates
    #[arg(
        long, env = "CAPI_AUTOSCALER_LEARN_EXTENDED_RESOURCES", value_name = "BOOL", default_value = "true",
        action = clap::ArgAction::Set, num_args = 0..=1, default_missing_value = "true", value_parser = parse_bool
    )]
    pub learn_extended_resources: bool,

    /// File with prices of Nodes for the price expander, in YAML: by instance type, by labels or by resources.
    /// Annotations of node groups are stronger. A changed file is reloaded
    #[arg(long, env = "CAPI_AUTOSCALER_PRICES", value_name = "FILE")]
    pub prices: Option<String>,
}
