//! The flags of `serve` as they are typed, with their environment variables. The help texts here are where they
//! are documented: `docs/flags.md` is made from them, by a test that also fails when it is out of date.
//!
//! An environment variable that is set but empty counts as unset, as manifests often have it so.

use clap::Args;

use crate::capi::DEFAULT_GROUP;

pub(super) const DEFAULT_LISTEN: &str = "127.0.0.1:8086";
pub(super) const DEFAULT_HTTP_LISTEN: &str = "127.0.0.1:8080";
pub(super) const DEFAULT_ADMIN_LISTEN: &str = "127.0.0.1:8081";
pub(super) const DEFAULT_MAX_STALENESS: &str = "2m";
pub(super) const DEFAULT_MACHINE_POOL_DELETES: &str = "lower";

/// The flags of `serve`, as typed.
#[derive(Args, Clone, Debug)]
pub struct ServeArgs {
    /// Address to serve gRPC on
    #[arg(long, env = "CAPI_AUTOSCALER_LISTEN", value_name = "IP:PORT", default_value = DEFAULT_LISTEN)]
    pub listen: String,

    /// Address to serve probes (/livez, /readyz?verbose) and /metrics on, over HTTP
    #[arg(long, env = "CAPI_AUTOSCALER_HTTP_LISTEN", value_name = "IP:PORT", default_value = DEFAULT_HTTP_LISTEN)]
    pub http_listen: String,

    /// Address to serve /debug/state on, over HTTP, for the subcommand groups; none turns it off. An address that isn't
    /// loopback needs --admin-allow-remote
    #[arg(long, env = "CAPI_AUTOSCALER_ADMIN_LISTEN", value_name = "IP:PORT", default_value = DEFAULT_ADMIN_LISTEN)]
    pub admin_listen: String,

    /// Let --admin-listen be an address that other machines can reach. It has no authentication: it shows names of
    /// clusters, Machines and Nodes, and messages of API servers, but no secrets
    #[arg(long, env = "CAPI_AUTOSCALER_ADMIN_ALLOW_REMOTE", value_parser = parse_bool)]
    pub admin_allow_remote: bool,

    /// Kubeconfig file of the management cluster, or "in-cluster" for the Pod's service account. Default: the Pod's
    /// service account, else KUBECONFIG, else ~/.kube/config
    #[arg(long, env = "CAPI_AUTOSCALER_MANAGEMENT_KUBECONFIG", value_name = "FILE")]
    pub management_kubeconfig: Option<String>,

    /// Kubeconfig file of the workload cluster, or "in-cluster" for the Pod's service account. Default: with --cluster
    /// its Secret, else the management cluster itself
    #[arg(long, env = "CAPI_AUTOSCALER_WORKLOAD_KUBECONFIG", value_name = "FILE")]
    pub workload_kubeconfig: Option<String>,

    /// Which node groups to serve, as the in-tree provider takes it: clusterapi:namespace=NS,clusterName=NAME,label=value
    /// with any of the items left out. Repeatable; a group must match one. Several in one value are separated by spaces
    /// or semicolons
    #[arg(long, env = "CAPI_AUTOSCALER_NODE_GROUP_AUTO_DISCOVERY", value_name = "SPEC")]
    pub node_group_auto_discovery: Vec<String>,

    /// Serve the node groups of this Cluster, and reach the workload cluster by the kubeconfig in its Secret
    /// NAME-kubeconfig, unless --workload-kubeconfig is given
    #[arg(long, env = "CAPI_AUTOSCALER_CLUSTER", value_name = "NAMESPACE/NAME")]
    pub cluster: Option<String>,

    /// Serve the node groups of all Clusters. They must all belong to the one workload cluster
    #[arg(long, env = "CAPI_AUTOSCALER_ALL_CLUSTERS", value_parser = parse_bool)]
    pub all_clusters: bool,

    /// How long a watch may be broken until Refresh fails and scaling stops: a Go duration such as 90s or 2m
    #[arg(long, env = "CAPI_AUTOSCALER_MAX_STALENESS", value_name = "DURATION", default_value = DEFAULT_MAX_STALENESS)]
    pub max_staleness: String,

    /// Post no Kubernetes Events on node groups
    #[arg(long, env = "CAPI_AUTOSCALER_NO_EVENTS", value_parser = parse_bool)]
    pub no_events: bool,

    /// At a group's least size, refuse to delete Machines that never became a Node, instead of replacing one of them from
    /// time to time
    #[arg(long, env = "CAPI_AUTOSCALER_NO_REPLACEMENT", value_parser = parse_bool)]
    pub no_replacement: bool,

    /// API group of Cluster API, which most of its annotations and labels follow
    #[arg(long, env = "CAPI_GROUP", value_name = "GROUP", default_value = DEFAULT_GROUP)]
    pub capi_group: String,

    /// Version of Cluster API's group to read. Default: the one that the API server prefers
    #[arg(long, env = "CAPI_VERSION", value_name = "VERSION")]
    pub capi_version: Option<String>,

    /// Architecture of Nodes to come where nothing else says it: amd64, arm64, ppc64le or s390x. Anything else counts as
    /// amd64, with a warning
    #[arg(long, env = "CAPI_SCALE_ZERO_DEFAULT_ARCH", value_name = "ARCH", default_value = "amd64")]
    pub scale_zero_default_arch: String,

    /// Regular expression over the keys of further labels that Cluster API copies from Machines to Nodes: the same as
    /// its own flag of this name. Repeatable; several in one value are separated by spaces
    #[arg(long, env = "CAPI_AUTOSCALER_ADDITIONAL_SYNC_MACHINE_LABELS", value_name = "REGEX")]
    pub additional_sync_machine_labels: Vec<String>,

    /// What deleting a Node of a MachinePool does whose instances aren't Machines, so that none can be deleted by name:
    /// lower the size, and the infrastructure provider chooses which instance goes; or refuse
    #[arg(long, env = "CAPI_AUTOSCALER_MACHINE_POOL_DELETES", value_name = "lower|refuse", default_value = DEFAULT_MACHINE_POOL_DELETES)]
    pub machine_pool_deletes: String,
}

/// What is true and false in an environment variable; a typing error is neither.
fn parse_bool(text: &str) -> Result<bool, String> {
    match text.to_ascii_lowercase().as_str() {
        "true" | "1" | "yes" | "on" => Ok(true),
        "" | "false" | "0" | "no" | "off" => Ok(false),
        _ => Err("use true or false".to_owned()),
    }
}
