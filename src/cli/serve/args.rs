//! The flags of `serve` as they are typed, with their environment variables. The help texts here are where they
//! are documented: `docs/reference/flags.md` is made from them, by a test that also fails when it is out of date.
//!
//! An environment variable that is set but empty counts as unset, since manifests often contain such variables.

use clap::Args;

use super::{
    FleetArgs, TlsArgs,
    flags::{
        DEFAULT_ADMIN_LISTEN, DEFAULT_CAPACITY_ERROR_GRACE, DEFAULT_HTTP_LISTEN, DEFAULT_LISTEN,
        DEFAULT_MACHINE_POOL_DELETES, DEFAULT_MAX_STALENESS, DEFAULT_SLOW_RPC, NONE,
    },
};
use crate::cli::{IndexArgs, values::parse_bool};

/// The flags of `serve`, as typed.
#[derive(Args, Clone, Debug)]
#[allow(clippy::struct_excessive_bools, reason = "each is a switch of its own on the command line")]
pub struct ServeArgs {
    /// Address to serve gRPC on: an IP address and a port, or a Unix socket, such as
    /// unix:///run/capi-autoscaler-provider/grpc.sock, which Cluster Autoscaler takes as its address too
    #[arg(long, env = "CAPI_AUTOSCALER_LISTEN", value_name = "ADDRESS", default_value = DEFAULT_LISTEN)]
    pub listen: String,

    /// With a Unix socket, its mode in octal digits: who may write it may connect, and scale and delete Machines.
    /// Without the flag it is 0600
    #[arg(long, env = "CAPI_AUTOSCALER_LISTEN_SOCKET_MODE", value_name = "MODE")]
    pub listen_socket_mode: Option<String>,

    #[command(flatten)]
    #[allow(missing_docs, reason = "a text here would become that of the flags")]
    pub tls: TlsArgs,

    /// Address to serve probes (/livez, /readyz?verbose) and /metrics on, over HTTP
    #[arg(long, env = "CAPI_AUTOSCALER_HTTP_LISTEN", value_name = "IP:PORT", default_value = DEFAULT_HTTP_LISTEN)]
    pub http_listen: String,

    /// Address to serve probes alone on, over HTTP, so that nobody who reads metrics can keep them waiting; none turns
    /// it off. Probes are served on --http-listen too
    #[arg(long, env = "CAPI_AUTOSCALER_PROBE_LISTEN", value_name = "IP:PORT", default_value = NONE)]
    pub probe_listen: String,

    /// Address to serve the status page on, and /debug/state for the subcommand groups, over HTTP; none turns them off.
    /// An address that isn't loopback needs --admin-allow-remote
    #[arg(long, env = "CAPI_AUTOSCALER_ADMIN_LISTEN", value_name = "IP:PORT", default_value = DEFAULT_ADMIN_LISTEN)]
    pub admin_listen: String,

    /// Let --admin-listen be an address that other machines can reach. It has no authentication: it shows names of
    /// clusters, Machines and Nodes, and messages of API servers, but no secrets
    #[arg(long, env = "CAPI_AUTOSCALER_ADMIN_ALLOW_REMOTE", value_parser = parse_bool)]
    pub admin_allow_remote: bool,

    /// Answer requests on --admin-listen that name this host too: a DNS name or an IP address, such as that of a proxy
    /// in front of it. Others than loopback's and the address itself are refused. Repeatable; several in one value are
    /// separated by spaces
    #[arg(long, env = "CAPI_AUTOSCALER_ADMIN_ALLOWED_HOSTS", value_name = "HOST")]
    pub admin_allowed_hosts: Vec<String>,

    /// Time for which a watch may be broken until Refresh fails and scaling stops: a Go duration such as 90s or 2m
    #[arg(long, env = "CAPI_AUTOSCALER_MAX_STALENESS", value_name = "DURATION", default_value = DEFAULT_MAX_STALENESS)]
    pub max_staleness: String,

    /// Log reads that take longer than this: a Go duration. Writes are all logged
    #[arg(long, env = "CAPI_AUTOSCALER_SLOW_RPC", value_name = "DURATION", default_value = DEFAULT_SLOW_RPC)]
    pub slow_rpc: String,

    /// URL of an OTLP collector that takes gRPC, such as http://otel-collector:4317, to send traces of writes to, and
    /// of reads that are slow or fail. Set its headers in OTEL_EXPORTER_OTLP_HEADERS
    #[arg(long, env = "OTEL_EXPORTER_OTLP_ENDPOINT", value_name = "URL")]
    pub otlp_endpoint: Option<String>,

    /// Leave out of /metrics what has a series per node group, so that their number doesn't grow with the fleet; sums
    /// over all node groups stay
    #[arg(long, env = "CAPI_AUTOSCALER_NO_GROUP_METRICS", value_parser = parse_bool)]
    pub no_group_metrics: bool,

    /// Answer everything and write nothing, to compare before moving over: sizes and deletions are refused with what
    /// would have been done, and Cluster Autoscaler is kept from scaling down
    #[arg(long, env = "CAPI_AUTOSCALER_READ_ONLY", value_parser = parse_bool)]
    pub read_only: bool,

    /// Post no Kubernetes Events on node groups
    #[arg(long, env = "CAPI_AUTOSCALER_NO_EVENTS", value_parser = parse_bool)]
    pub no_events: bool,

    /// At a group's minimum size, refuse to delete Machines that never became a Node, instead of replacing one of them
    /// from time to time
    #[arg(long, env = "CAPI_AUTOSCALER_NO_REPLACEMENT", value_parser = parse_bool)]
    pub no_replacement: bool,

    /// Time for which a Machine may lack capacity that others may give back until that is an error, by which Cluster
    /// Autoscaler deletes it and backs its group off: a Go duration, 0 or "never". Quotas and what isn't offered at all
    /// are errors at once. An annotation of a group is stronger
    #[arg(long, env = "CAPI_AUTOSCALER_CAPACITY_ERROR_GRACE", value_name = "DURATION", default_value = DEFAULT_CAPACITY_ERROR_GRACE)]
    pub capacity_error_grace: String,

    /// Text by which a provider says that it lacks capacity that others may give back, beside the known ones: found as
    /// whole words, in upper or lower case, in reason and message of the condition InfrastructureReady.
    /// Repeatable; several in one value are separated by semicolons
    #[arg(long, env = "CAPI_AUTOSCALER_CAPACITY_ERROR_WORDS", value_name = "TEXT")]
    pub capacity_error_words: Vec<String>,

    /// Effect of deleting a Node of a MachinePool whose instances aren't Machines, so that none can be deleted by name:
    /// "lower" the size, and the infrastructure provider chooses which instance goes; or "refuse"
    #[arg(long, env = "CAPI_AUTOSCALER_MACHINE_POOL_DELETES", value_name = "WHAT", default_value = DEFAULT_MACHINE_POOL_DELETES)]
    pub machine_pool_deletes: String,

    #[command(flatten)]
    #[allow(missing_docs, reason = "a text here would become that of the flags")]
    pub fleet: FleetArgs,

    /// Which clusters, which node groups, and what the operator says about all of them.
    #[command(flatten)]
    pub index: IndexArgs,
}
