//! The flags of `serve` as they are typed, with their environment variables. The help texts here are where they
//! are documented: `docs/reference/flags.md` is made from them, by a test that also fails when it is out of date.
//!
//! An environment variable that is set but empty counts as unset, since manifests often contain such variables.

use clap::Args;

use super::{FleetArgs, TlsArgs};
use crate::cli::{IndexArgs, help, values::parse_bool};

/// The value that turns a listener off.
pub(super) const NONE: &str = "none";

pub(super) const DEFAULT_LISTEN: &str = "127.0.0.1:8086";
pub(super) const DEFAULT_HTTP_LISTEN: &str = "127.0.0.1:8080";
pub(super) const DEFAULT_ADMIN_LISTEN: &str = "127.0.0.1:8081";
pub(super) const DEFAULT_MAX_STALENESS: &str = "2m";
pub(super) const DEFAULT_SLOW_RPC: &str = "100ms";
pub(super) const DEFAULT_CAPACITY_ERROR_GRACE: &str = "5m";
pub(super) const DEFAULT_MACHINE_POOL_DELETES: &str = "lower";

/// The flags of `serve`, as typed.
#[derive(Args, Clone, Debug)]
#[allow(clippy::struct_excessive_bools, reason = "each is a switch of its own on the command line")]
pub struct ServeArgs {
    /// Which clusters, which node groups, and what the operator says about all of them.
    #[command(flatten)]
    pub index: IndexArgs,

    /// Address of the gRPC server: IP:PORT, or a Unix socket such as unix:///run/capi-autoscaler-provider/grpc.sock
    #[arg(long, env = "CAPI_AUTOSCALER_LISTEN", value_name = "ADDRESS", default_value = DEFAULT_LISTEN, help_heading = help::GRPC)]
    pub listen: String,

    /// Octal mode of the Unix socket; who may write to it can scale and delete Machines. Default: 0600
    #[arg(long, env = "CAPI_AUTOSCALER_LISTEN_SOCKET_MODE", value_name = "MODE", help_heading = help::GRPC, hide_short_help = true)]
    pub listen_socket_mode: Option<String>,

    #[command(flatten)]
    #[allow(missing_docs, reason = "a text here would become that of the flags")]
    pub tls: TlsArgs,

    /// Address of probes (/livez, /readyz?verbose) and /metrics
    #[arg(long, env = "CAPI_AUTOSCALER_HTTP_LISTEN", value_name = "IP:PORT", default_value = DEFAULT_HTTP_LISTEN, help_heading = help::OBSERVE)]
    pub http_listen: String,

    /// Second address for probes, so that scrapers can't delay them; none turns it off
    #[arg(long, env = "CAPI_AUTOSCALER_PROBE_LISTEN", value_name = "IP:PORT", default_value = NONE, help_heading = help::OBSERVE, hide_short_help = true)]
    pub probe_listen: String,

    /// Address of the status page and /debug/state; none turns it off. Other addresses than loopback need
    /// --admin-allow-remote
    #[arg(long, env = "CAPI_AUTOSCALER_ADMIN_LISTEN", value_name = "IP:PORT", default_value = DEFAULT_ADMIN_LISTEN, help_heading = help::OBSERVE)]
    pub admin_listen: String,

    /// Allow a remote --admin-listen. It has no authentication; it shows names and messages, but no secrets
    #[arg(long, env = "CAPI_AUTOSCALER_ADMIN_ALLOW_REMOTE", value_parser = parse_bool, help_heading = help::OBSERVE, hide_short_help = true)]
    pub admin_allow_remote: bool,

    /// Answer on --admin-listen to this host name or IP address too, such as a proxy's. Repeatable, or separated by
    /// spaces
    #[arg(long, env = "CAPI_AUTOSCALER_ADMIN_ALLOWED_HOSTS", value_name = "HOST", help_heading = help::OBSERVE, hide_short_help = true)]
    pub admin_allowed_hosts: Vec<String>,

    /// How long a watch may be broken before Refresh fails and scaling stops
    #[arg(long, env = "CAPI_AUTOSCALER_MAX_STALENESS", value_name = "DURATION", default_value = DEFAULT_MAX_STALENESS, help_heading = help::SCALING)]
    pub max_staleness: String,

    /// Log reads that take longer. Writes are always logged
    #[arg(long, env = "CAPI_AUTOSCALER_SLOW_RPC", value_name = "DURATION", default_value = DEFAULT_SLOW_RPC, help_heading = help::OBSERVE, hide_short_help = true)]
    pub slow_rpc: String,

    /// OTLP collector (gRPC) for traces, such as http://otel-collector:4317. Headers: OTEL_EXPORTER_OTLP_HEADERS
    #[arg(long, env = "OTEL_EXPORTER_OTLP_ENDPOINT", value_name = "URL", help_heading = help::OBSERVE, hide_short_help = true)]
    pub otlp_endpoint: Option<String>,

    /// Export sums only, no metrics per node group
    #[arg(long, env = "CAPI_AUTOSCALER_NO_GROUP_METRICS", value_parser = parse_bool, help_heading = help::OBSERVE, hide_short_help = true)]
    pub no_group_metrics: bool,

    /// Answer reads and refuse writes, saying what would have been written. Keeps Cluster Autoscaler from scaling down
    #[arg(long, env = "CAPI_AUTOSCALER_READ_ONLY", value_parser = parse_bool, help_heading = help::SCALING)]
    pub read_only: bool,

    /// Don't post Kubernetes Events
    #[arg(long, env = "CAPI_AUTOSCALER_NO_EVENTS", value_parser = parse_bool, help_heading = help::SCALING, hide_short_help = true)]
    pub no_events: bool,

    /// At the min size, refuse to delete Machines that never became a Node. By default they are replaced, one at a time
    #[arg(long, env = "CAPI_AUTOSCALER_NO_REPLACEMENT", value_parser = parse_bool, help_heading = help::SCALING, hide_short_help = true)]
    pub no_replacement: bool,

    /// How long a Machine may lack capacity before that is an error: a duration, 0 or never. Exhausted quotas are
    /// errors at once. A group's annotation wins
    #[arg(long, env = "CAPI_AUTOSCALER_CAPACITY_ERROR_GRACE", value_name = "DURATION", default_value = DEFAULT_CAPACITY_ERROR_GRACE, help_heading = help::SCALING)]
    pub capacity_error_grace: String,

    /// Further text that means a temporary lack of capacity, found as whole words in reason or message of
    /// InfrastructureReady, in any case. Repeatable, or separated by semicolons
    #[arg(long, env = "CAPI_AUTOSCALER_CAPACITY_ERROR_WORDS", value_name = "TEXT", help_heading = help::SCALING, hide_short_help = true)]
    pub capacity_error_words: Vec<String>,

    /// What deleting a Node of a MachinePool without Machines does: lower the size, so that the infrastructure provider
    /// chooses the instance, or refuse
    #[arg(long, env = "CAPI_AUTOSCALER_MACHINE_POOL_DELETES", value_name = "WHAT", default_value = DEFAULT_MACHINE_POOL_DELETES, help_heading = help::SCALING, hide_short_help = true)]
    pub machine_pool_deletes: String,

    #[command(flatten)]
    #[allow(missing_docs, reason = "a text here would become that of the flags")]
    pub fleet: FleetArgs,
}
