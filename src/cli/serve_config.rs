//! The configuration of `serve`, in the types of the modules below. The flags are validated together. Nothing may be
//! read or opened here.

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use nodegroup::{ErrorRules, GoDuration, Grace, Rules};
use thiserror::Error;

use super::{
    LogControl, ServeArgs,
    picture_config::{Flag, PictureConfig},
    serve_args::{
        DEFAULT_ADMIN_LISTEN, DEFAULT_CAPACITY_ERROR_GRACE, DEFAULT_HTTP_LISTEN, DEFAULT_LISTEN,
        DEFAULT_MACHINE_POOL_DELETES, DEFAULT_MAX_STALENESS, DEFAULT_SLOW_RPC, NONE,
    },
    socket_args, tls_args,
};
use crate::{
    connect::{Source, WorkloadSource},
    index::GroupSeries,
    scale::{AtMinSize, MachinePoolDeletes, ScaleOptions},
    server::{GrpcAddress, HostName, SocketRights, TlsFiles},
    traces::OtlpEndpoint,
};

/// The configuration of `serve`.
#[derive(Clone, Debug)]
pub struct ServeConfig {
    /// The address of gRPC.
    pub listen: GrpcAddress,
    /// The mode and owner of its file, if it is a Unix socket.
    pub socket_rights: SocketRights,
    /// The files of its TLS; `None` is without TLS.
    pub tls: Option<TlsFiles>,
    /// True if gRPC reflection is served.
    pub reflection: bool,
    /// The address of probes and metrics.
    pub http_listen: SocketAddr,
    /// The address of probes alone; `None` is nowhere.
    pub probe_listen: Option<SocketAddr>,
    /// The address of the status page and the debug state; `None` is nowhere.
    pub admin_listen: Option<SocketAddr>,
    /// The host names that requests to the admin listener may have, besides loopback's and its own address.
    pub admin_allowed_hosts: Vec<HostName>,
    /// The configuration for reaching the management cluster.
    pub management: Source,
    /// The configuration for reaching the workload cluster.
    pub workload: WorkloadSource,
    /// The scope of the node groups, and the operator's rules for all of them.
    pub rules: Rules,
    /// The time for which a watch may be broken until Refresh fails; more than 0.
    pub max_staleness: Duration,
    /// The duration above which reads are logged.
    pub slow_rpc: Duration,
    /// The collector of traces; `None` is none.
    pub otlp: Option<OtlpEndpoint>,
    /// The choice between series for each node group and sums only.
    pub group_series: GroupSeries,
    /// True if Kubernetes Events are posted.
    pub events: bool,
    /// The version of Cluster API; `None` is the one that the API server prefers.
    pub capi_version: Option<String>,
    /// The price file.
    pub prices: Option<PathBuf>,
    /// The options that an operator has for writes.
    pub scale: ScaleOptions,
    /// The control of the log at runtime; `None` if this program doesn't own the log.
    pub log: Option<LogControl>,
    /// Settings that are allowed but deserve attention, to be logged at the start.
    pub warnings: Vec<String>,
}

/// A wrong call. Each message names the flag and the remedy.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
pub enum UsageError {
    /// The value of a flag without a variable is invalid.
    #[error("{flag}: {value:?} can't be used: {reason}")]
    Flag {
        /// The flag.
        flag: &'static str,
        /// The value as given.
        value: String,
        /// The reason why it can't be used.
        reason: String,
    },
    /// The value of a flag is invalid.
    #[error("{flag} (or {variable}): {value:?} can't be used: {reason}")]
    Value {
        /// The flag.
        flag: &'static str,
        /// Its environment variable.
        variable: &'static str,
        /// The value as given.
        value: String,
        /// The reason why it can't be used.
        reason: String,
    },
    /// Two flags exclude each other.
    #[error(
        "{first} and {second} exclude each other, each chooses the node groups to serve: give only one (environment \
             variables count too)"
    )]
    Conflict {
        /// One flag.
        first: &'static str,
        /// The other.
        second: &'static str,
    },
    /// A flag is useless without another.
    #[error("{given} needs {other} (or {variable}): {why}")]
    Needs {
        /// The flag that was given.
        given: &'static str,
        /// The one that is missing.
        other: &'static str,
        /// Its environment variable.
        variable: &'static str,
        /// The reason why it is needed.
        why: &'static str,
    },
    /// A wrong call of `watch`.
    #[error("{0}")]
    Watch(String),
    /// No scope is chosen.
    #[error(
        "no scope is chosen, and without one the node groups of all Clusters would be scaled. Choose one:\n  \
         --cluster NAMESPACE/NAME\n      one Cluster; its workload cluster is reached by the Secret NAME-kubeconfig\n  \
         --node-group-auto-discovery clusterapi:namespace=NS,clusterName=NAME,label=value\n      what matches, as the \
         in-tree provider takes it\n  \
         --all-clusters\n      all there are, on purpose"
    )]
    NoScope,
}

impl TryFrom<ServeArgs> for ServeConfig {
    type Error = UsageError;

    fn try_from(args: ServeArgs) -> Result<Self, UsageError> {
        let mut warnings = Vec::new();
        let listen = LISTEN.or_default(&args.listen);
        let listen: GrpcAddress = listen.parse().map_err(|error| LISTEN.wrong(listen, &error))?;
        let picture = PictureConfig::judge(&args.picture, None, &mut warnings)?;
        if args.read_only {
            warnings.push("--read-only: nothing is scaled, and deletions that were begun aren't finished".to_owned());
        }
        Ok(Self {
            tls: tls_args::tls(&args.tls, &listen, &mut warnings)?,
            reflection: args.tls.grpc_reflection.is_on(&listen),
            socket_rights: socket_args::rights(&args, &listen, &mut warnings)?,
            listen,
            http_listen: address(&HTTP_LISTEN, &args.http_listen)?,
            probe_listen: probe_listen(&args)?,
            admin_listen: admin_listen(&args, &mut warnings)?,
            admin_allowed_hosts: hosts(&args.admin_allowed_hosts)?,
            management: picture.management,
            workload: picture.workload,
            rules: Rules {
                errors: ErrorRules {
                    deletes: !args.read_only,
                    replaces_at_min: !args.no_replacement,
                    grace: capacity_error_grace(&args.capacity_error_grace)?,
                },
                ..picture.rules
            },
            max_staleness: duration_of(&MAX_STALENESS, &args.max_staleness)?,
            slow_rpc: duration_of(&SLOW_RPC, &args.slow_rpc)?,
            otlp: otlp(args.otlp_endpoint.as_deref())?,
            group_series: if args.no_group_metrics { GroupSeries::SumsOnly } else { GroupSeries::Each },
            events: !args.no_events && !args.read_only,
            capi_version: picture.capi_version,
            prices: picture.prices,
            scale: ScaleOptions {
                machine_pool_deletes: machine_pool_deletes(&args.machine_pool_deletes)?,
                at_min_size: if args.no_replacement { AtMinSize::Refuse } else { AtMinSize::Replace },
                read_only: args.read_only,
            },
            log: None,
            warnings,
        })
    }
}

pub(super) const LISTEN: Flag = Flag { name: "--listen", variable: "CAPI_AUTOSCALER_LISTEN", default: DEFAULT_LISTEN };
pub(super) const HTTP_LISTEN: Flag =
    Flag { name: "--http-listen", variable: "CAPI_AUTOSCALER_HTTP_LISTEN", default: DEFAULT_HTTP_LISTEN };
pub(super) const PROBE_LISTEN: Flag =
    Flag { name: "--probe-listen", variable: "CAPI_AUTOSCALER_PROBE_LISTEN", default: NONE };
pub(super) const ADMIN_LISTEN: Flag =
    Flag { name: "--admin-listen", variable: "CAPI_AUTOSCALER_ADMIN_LISTEN", default: DEFAULT_ADMIN_LISTEN };
pub(super) const ADMIN_ALLOWED_HOSTS: Flag =
    Flag { name: "--admin-allowed-hosts", variable: "CAPI_AUTOSCALER_ADMIN_ALLOWED_HOSTS", default: "" };
pub(super) const MAX_STALENESS: Flag =
    Flag { name: "--max-staleness", variable: "CAPI_AUTOSCALER_MAX_STALENESS", default: DEFAULT_MAX_STALENESS };
pub(super) const SLOW_RPC: Flag =
    Flag { name: "--slow-rpc", variable: "CAPI_AUTOSCALER_SLOW_RPC", default: DEFAULT_SLOW_RPC };
pub(super) const OTLP_ENDPOINT: Flag =
    Flag { name: "--otlp-endpoint", variable: "OTEL_EXPORTER_OTLP_ENDPOINT", default: "" };
pub(super) const MACHINE_POOL_DELETES: Flag = Flag {
    name: "--machine-pool-deletes",
    variable: "CAPI_AUTOSCALER_MACHINE_POOL_DELETES",
    default: DEFAULT_MACHINE_POOL_DELETES,
};
pub(super) const CAPACITY_ERROR_GRACE: Flag = Flag {
    name: "--capacity-error-grace",
    variable: "CAPI_AUTOSCALER_CAPACITY_ERROR_GRACE",
    default: DEFAULT_CAPACITY_ERROR_GRACE,
};
/// The flags of `serve` alone, for a comparison with the existing flags.
#[cfg(test)]
pub(super) const FLAGS: [Flag; 10] = [
    LISTEN,
    HTTP_LISTEN,
    PROBE_LISTEN,
    ADMIN_LISTEN,
    ADMIN_ALLOWED_HOSTS,
    MAX_STALENESS,
    MACHINE_POOL_DELETES,
    CAPACITY_ERROR_GRACE,
    SLOW_RPC,
    OTLP_ENDPOINT,
];

fn address(flag: &Flag, text: &str) -> Result<SocketAddr, UsageError> {
    let text = flag.or_default(text);
    text.parse().map_err(|_| {
        flag.wrong(text, &"it has to be an IP address and a port, such as 127.0.0.1:8086, 0.0.0.0:8086 or [::]:8086")
    })
}

fn machine_pool_deletes(text: &str) -> Result<MachinePoolDeletes, UsageError> {
    match MACHINE_POOL_DELETES.or_default(text) {
        "lower" => Ok(MachinePoolDeletes::Lower),
        "refuse" => Ok(MachinePoolDeletes::Refuse),
        other => Err(MACHINE_POOL_DELETES.wrong(other, &"it has to be lower or refuse")),
    }
}

fn capacity_error_grace(text: &str) -> Result<Grace, UsageError> {
    let text = CAPACITY_ERROR_GRACE.or_default(text);
    text.parse().map_err(|error| CAPACITY_ERROR_GRACE.wrong(text, &error))
}

fn probe_listen(args: &ServeArgs) -> Result<Option<SocketAddr>, UsageError> {
    let text = PROBE_LISTEN.or_default(&args.probe_listen);
    (text != NONE).then(|| address(&PROBE_LISTEN, text)).transpose()
}

fn admin_listen(args: &ServeArgs, warnings: &mut Vec<String>) -> Result<Option<SocketAddr>, UsageError> {
    if args.admin_listen.trim() == NONE {
        return Ok(None);
    }
    let listen = address(&ADMIN_LISTEN, &args.admin_listen)?;
    match (tls_args::is_loopback(listen), args.admin_allow_remote) {
        (true, _) => {}
        (false, true) => warnings.push(format!(
            "the status page and the debug state are served on {listen} without TLS and authentication: whoever reaches it sees the names of \
             clusters, Machines and Nodes"
        )),
        (false, false) => {
            return Err(ADMIN_LISTEN.wrong(
                &args.admin_listen,
                &"it isn't a loopback address; give one (kubectl port-forward reaches it), or --admin-allow-remote to \
                  serve the status page and the debug state without authentication all the same",
            ));
        }
    }
    Ok(Some(listen))
}

fn hosts(values: &[String]) -> Result<Vec<HostName>, UsageError> {
    let names = values.iter().flat_map(|value| value.split_whitespace());
    names.map(|text| text.parse().map_err(|error| ADMIN_ALLOWED_HOSTS.wrong(text, &error))).collect()
}

fn duration_of(flag: &Flag, text: &str) -> Result<Duration, UsageError> {
    let text = flag.or_default(text);
    let span: GoDuration = text.parse().map_err(|error| flag.wrong(text, &error))?;
    match u64::try_from(span.as_nanos()) {
        Ok(nanos) if nanos > 0 => Ok(Duration::from_nanos(nanos)),
        _ => Err(flag.wrong(text, &"it has to be longer than 0")),
    }
}

/// Parses the OTLP endpoint. An error doesn't quote the value, which may hold a password.
fn otlp(text: Option<&str>) -> Result<Option<OtlpEndpoint>, UsageError> {
    let Some(text) = text.map(str::trim).filter(|text| !text.is_empty()) else { return Ok(None) };
    text.parse().map(Some).map_err(|reason| OTLP_ENDPOINT.wrong("(not shown)", &reason))
}
