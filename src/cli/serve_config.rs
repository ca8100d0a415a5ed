//! What `serve` shall do, in the types of the rooms below. This is where its flags are judged together: what
//! excludes what, and that a scope was chosen. Nothing is read or opened here.

use std::{fmt, net::SocketAddr, path::PathBuf, time::Duration};

use regex::Regex;
use thiserror::Error;

use super::{
    ServeArgs,
    serve_args::{
        DEFAULT_ADMIN_LISTEN, DEFAULT_HTTP_LISTEN, DEFAULT_LISTEN, DEFAULT_MACHINE_POOL_DELETES, DEFAULT_MAX_STALENESS,
    },
};
use crate::{
    capi::{DEFAULT_GROUP, Keys},
    connect::{ClusterRef, Source, WorkloadSource},
    nodegroup::{Architecture, GoDuration, Rules, Scope, ScopeSpec, TemplateRules},
    scale::{AtMinSize, MachinePoolDeletes, ScaleOptions},
};

/// The value of a kubeconfig flag that means the Pod's service account.
const IN_CLUSTER: &str = "in-cluster";

/// The value of `--admin-listen` that turns it off.
const NONE: &str = "none";

/// What `serve` shall do.
#[derive(Clone, Debug)]
pub struct ServeConfig {
    /// Where to serve gRPC.
    pub listen: SocketAddr,
    /// Where to serve probes and metrics.
    pub http_listen: SocketAddr,
    /// Where to serve the debug state; `None` is nowhere.
    pub admin_listen: Option<SocketAddr>,
    /// How to reach the management cluster.
    pub management: Source,
    /// How to reach the workload cluster.
    pub workload: WorkloadSource,
    /// Which node groups to serve, and what the operator says about all of them.
    pub rules: Rules,
    /// How long a watch may be broken until Refresh fails; more than 0.
    pub max_staleness: Duration,
    /// Whether Kubernetes Events are posted.
    pub events: bool,
    /// Cluster API's version; `None` is the one that the API server prefers.
    pub capi_version: Option<String>,
    /// What an operator may choose about writes.
    pub scale: ScaleOptions,
    /// What is allowed but should be known, to be logged at start.
    pub warnings: Vec<String>,
}

/// A wrong call. Each text names the flag and what to do.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
pub enum UsageError {
    /// A value of a flag without a variable that can't be used.
    #[error("{flag}: {value:?} can't be used: {reason}")]
    Flag {
        /// The flag.
        flag: &'static str,
        /// What was given.
        value: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A value that can't be used.
    #[error("{flag} (or {variable}): {value:?} can't be used: {reason}")]
    Value {
        /// The flag.
        flag: &'static str,
        /// Its environment variable.
        variable: &'static str,
        /// What was given.
        value: String,
        /// What is wrong with it.
        reason: String,
    },
    /// Two flags that exclude each other.
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
    /// A wrong call of `watch`.
    #[error("{0}")]
    Watch(String),
    /// No scope.
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
        let listen = address(&LISTEN, &args.listen)?;
        if !listen.ip().is_loopback() {
            warnings.push(format!(
                "gRPC is served on {listen} without TLS: whoever reaches it can scale and delete Machines; keep it on \
                 loopback beside the Cluster Autoscaler, or shut others out by a NetworkPolicy"
            ));
        }
        let cluster = match given(args.cluster.as_deref()) {
            Some(text) => Some(text.parse::<ClusterRef>().map_err(|error| CLUSTER.wrong(text, &error))?),
            None => None,
        };
        let workload = match (given(args.workload_kubeconfig.as_deref()), &cluster) {
            (Some(text), _) => WorkloadSource::Own(source(text)),
            (None, Some(cluster)) => WorkloadSource::Secret(cluster.clone()),
            (None, None) => WorkloadSource::Management,
        };
        let specs = specs(&args.node_group_auto_discovery)?;
        Ok(Self {
            listen,
            http_listen: address(&HTTP_LISTEN, &args.http_listen)?,
            admin_listen: admin_listen(&args, &mut warnings)?,
            management: given(args.management_kubeconfig.as_deref()).map(source).unwrap_or_default(),
            workload,
            rules: Rules {
                keys: Keys::new(capi_group(&args.capi_group)?),
                scope: scope(cluster.as_ref(), specs, args.all_clusters)?,
                template: TemplateRules {
                    default_arch: architecture(&args.scale_zero_default_arch, &mut warnings),
                    additional_sync_labels: synced_labels(&args.additional_sync_machine_labels)?,
                },
            },
            max_staleness: max_staleness(&args.max_staleness)?,
            events: !args.no_events,
            capi_version: capi_version(args.capi_version.as_deref())?,
            scale: ScaleOptions {
                machine_pool_deletes: machine_pool_deletes(&args.machine_pool_deletes)?,
                at_min_size: if args.no_replacement { AtMinSize::Refuse } else { AtMinSize::Replace },
            },
            warnings,
        })
    }
}

/// A flag, its environment variable, and what an empty value of either means.
pub(super) struct Flag {
    pub(super) name: &'static str,
    pub(super) variable: &'static str,
    pub(super) default: &'static str,
}

pub(super) const LISTEN: Flag = Flag { name: "--listen", variable: "CAPI_AUTOSCALER_LISTEN", default: DEFAULT_LISTEN };
pub(super) const HTTP_LISTEN: Flag =
    Flag { name: "--http-listen", variable: "CAPI_AUTOSCALER_HTTP_LISTEN", default: DEFAULT_HTTP_LISTEN };
pub(super) const ADMIN_LISTEN: Flag =
    Flag { name: "--admin-listen", variable: "CAPI_AUTOSCALER_ADMIN_LISTEN", default: DEFAULT_ADMIN_LISTEN };
pub(super) const CLUSTER: Flag = Flag { name: "--cluster", variable: "CAPI_AUTOSCALER_CLUSTER", default: "" };
pub(super) const DISCOVERY: Flag =
    Flag { name: "--node-group-auto-discovery", variable: "CAPI_AUTOSCALER_NODE_GROUP_AUTO_DISCOVERY", default: "" };
pub(super) const MAX_STALENESS: Flag =
    Flag { name: "--max-staleness", variable: "CAPI_AUTOSCALER_MAX_STALENESS", default: DEFAULT_MAX_STALENESS };
pub(super) const CAPI_GROUP: Flag = Flag { name: "--capi-group", variable: "CAPI_GROUP", default: DEFAULT_GROUP };
pub(super) const CAPI_VERSION: Flag = Flag { name: "--capi-version", variable: "CAPI_VERSION", default: "" };
pub(super) const SYNCED_LABELS: Flag = Flag {
    name: "--additional-sync-machine-labels",
    variable: "CAPI_AUTOSCALER_ADDITIONAL_SYNC_MACHINE_LABELS",
    default: "",
};
pub(super) const MACHINE_POOL_DELETES: Flag = Flag {
    name: "--machine-pool-deletes",
    variable: "CAPI_AUTOSCALER_MACHINE_POOL_DELETES",
    default: DEFAULT_MACHINE_POOL_DELETES,
};
/// All of them, to be compared with the flags there are.
#[cfg(test)]
pub(super) const FLAGS: [Flag; 10] = [
    LISTEN,
    HTTP_LISTEN,
    ADMIN_LISTEN,
    CLUSTER,
    DISCOVERY,
    MAX_STALENESS,
    CAPI_GROUP,
    CAPI_VERSION,
    SYNCED_LABELS,
    MACHINE_POOL_DELETES,
];
const ALL_CLUSTERS: &str = "--all-clusters";

impl Flag {
    fn or_default<'a>(&self, text: &'a str) -> &'a str {
        given(Some(text)).unwrap_or(self.default)
    }

    fn wrong(&self, value: &str, reason: &dyn fmt::Display) -> UsageError {
        UsageError::Value {
            flag: self.name,
            variable: self.variable,
            value: value.to_owned(),
            reason: reason.to_string(),
        }
    }
}

/// A value without the space around it; an empty one counts as none.
pub(super) fn given(text: Option<&str>) -> Option<&str> {
    text.map(str::trim).filter(|text| !text.is_empty())
}

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

fn admin_listen(args: &ServeArgs, warnings: &mut Vec<String>) -> Result<Option<SocketAddr>, UsageError> {
    if args.admin_listen.trim() == NONE {
        return Ok(None);
    }
    let listen = address(&ADMIN_LISTEN, &args.admin_listen)?;
    match (listen.ip().to_canonical().is_loopback(), args.admin_allow_remote) {
        (true, _) => {}
        (false, true) => warnings.push(format!(
            "the debug state is served on {listen} without TLS and authentication: whoever reaches it sees the names of \
             clusters, Machines and Nodes"
        )),
        (false, false) => {
            return Err(ADMIN_LISTEN.wrong(
                &args.admin_listen,
                &"it isn't a loopback address; give one (kubectl port-forward reaches it), or --admin-allow-remote to \
                  serve the debug state without authentication all the same",
            ));
        }
    }
    Ok(Some(listen))
}

pub(super) fn source(text: &str) -> Source {
    if text == IN_CLUSTER { Source::InCluster } else { Source::File(PathBuf::from(text)) }
}

/// Neither labels nor names hold space or semicolons, so both separate.
fn specs(values: &[String]) -> Result<Vec<ScopeSpec>, UsageError> {
    values
        .iter()
        .flat_map(|value| value.split(|c: char| c.is_whitespace() || c == ';'))
        .filter(|text| !text.is_empty())
        .map(|text| text.parse().map_err(|error| DISCOVERY.wrong(text, &error)))
        .collect()
}

fn scope(cluster: Option<&ClusterRef>, specs: Vec<ScopeSpec>, all: bool) -> Result<Scope, UsageError> {
    let conflict = |first, second| Err(UsageError::Conflict { first, second });
    match (cluster, specs.is_empty(), all) {
        (Some(_), _, true) => conflict(CLUSTER.name, ALL_CLUSTERS),
        (Some(_), false, false) => conflict(CLUSTER.name, DISCOVERY.name),
        (None, false, true) => conflict(DISCOVERY.name, ALL_CLUSTERS),
        (Some(cluster), true, false) => Ok(Scope::Specs(vec![ScopeSpec::cluster(cluster.namespace(), cluster.name())])),
        (None, false, false) => Ok(Scope::Specs(specs)),
        (None, true, true) => Ok(Scope::All),
        (None, true, false) => Err(UsageError::NoScope),
    }
}

fn max_staleness(text: &str) -> Result<Duration, UsageError> {
    let text = MAX_STALENESS.or_default(text);
    let span: GoDuration = text.parse().map_err(|error| MAX_STALENESS.wrong(text, &error))?;
    match u64::try_from(span.as_nanos()) {
        Ok(nanos) if nanos > 0 => Ok(Duration::from_nanos(nanos)),
        _ => Err(MAX_STALENESS.wrong(text, &"it has to be longer than 0")),
    }
}

pub(super) fn capi_group(text: &str) -> Result<&str, UsageError> {
    let text = CAPI_GROUP.or_default(text);
    if is_dns(text) && text.contains('.') {
        return Ok(text);
    }
    Err(CAPI_GROUP.wrong(text, &"it has to be an API group, such as cluster.x-k8s.io"))
}

pub(super) fn capi_version(text: Option<&str>) -> Result<Option<String>, UsageError> {
    match given(text) {
        Some(text) if is_dns(text) && text.starts_with('v') && !text.contains('.') => Ok(Some(text.to_owned())),
        Some(text) => Err(CAPI_VERSION.wrong(text, &"it has to be a version without its group, such as v1beta2")),
        None => Ok(None),
    }
}

/// As the in-tree provider: what isn't known is amd64 (contract, section 4).
fn architecture(text: &str, warnings: &mut Vec<String>) -> Architecture {
    let Some(text) = given(Some(text)) else { return Architecture::default() };
    text.parse().unwrap_or_else(|_| {
        warnings.push(format!(
            "--scale-zero-default-arch (or CAPI_SCALE_ZERO_DEFAULT_ARCH): {text:?} is not one of amd64, arm64, ppc64le \
             and s390x: amd64 is taken"
        ));
        Architecture::default()
    })
}

/// Not separated by commas, which regular expressions hold; nor does Cluster API's own flag.
fn synced_labels(values: &[String]) -> Result<Vec<Regex>, UsageError> {
    values
        .iter()
        .flat_map(|value| value.split_whitespace())
        .map(|text| Regex::new(text).map_err(|error| SYNCED_LABELS.wrong(text, &error)))
        .collect()
}

pub(super) fn is_dns(text: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    text.len() <= 253
        && text.split('.').all(|label| {
            !label.is_empty() && label.bytes().all(allowed) && !label.starts_with('-') && !label.ends_with('-')
        })
}
