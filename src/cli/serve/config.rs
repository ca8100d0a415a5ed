//! The configuration of `serve`, in the types of the modules below. The flags are validated together. No file may be
//! read here, and nothing opened.

use std::{env, net::SocketAddr, time::Duration};

use rules::{CapacityWords, Grace, LabelSelector, Rules, Scope};

use super::{
    args::{
        DEFAULT_ADMIN_LISTEN, DEFAULT_CAPACITY_ERROR_GRACE, DEFAULT_HTTP_LISTEN, DEFAULT_LISTEN,
        DEFAULT_MACHINE_POOL_DELETES, DEFAULT_MAX_STALENESS, DEFAULT_SLOW_RPC, NONE, ServeArgs,
    },
    fleet::Fleet,
    socket, tls,
};
use crate::cli::{
    IndexArgs,
    usage::{UsageError, given, given_or, wrong},
    values::duration,
};
use app::Config;
use index::GroupSeries;
use scale::traces::OtlpEndpoint;
use scale::{AtMinSize, MachinePoolDeletes, ScaleOptions};
use service::listen::{GrpcAddress, HostName};

impl TryFrom<ServeArgs> for Config {
    type Error = UsageError;

    fn try_from(args: ServeArgs) -> Result<Self, UsageError> {
        match Fleet::of(&args.fleet, &args.index)? {
            None => common(&args, None),
            Some(fleet) => fleet.config(common(&args, Some(Fleet::scope()))?),
        }
    }
}

/// One workload cluster, which is all that the other subcommands look at; of a fleet it is the one that `--cluster`
/// names.
#[derive(Clone, Debug)]
pub(in crate::cli) struct OneCluster {
    /// Its configuration.
    pub(in crate::cli) config: Config,
    /// The selector of its fleet.
    pub(in crate::cli) fleet: Option<LabelSelector>,
}

impl TryFrom<ServeArgs> for OneCluster {
    type Error = UsageError;

    fn try_from(args: ServeArgs) -> Result<Self, UsageError> {
        let cluster = given(args.index.cluster.as_deref());
        let others = IndexArgs { cluster: None, ..args.index.clone() };
        if let Some(cluster) = cluster
            && let Some(fleet) = Fleet::of(&args.fleet, &others)?
        {
            let config = common(&args, Some(Fleet::scope()))?;
            fleet.check_namespace_of(cluster)?;
            let mut config = fleet.config(config)?;
            let fleet = config.fleet.take().map(|fleet| fleet.selector);
            return Ok(Self { config, fleet });
        }
        let config = Config::try_from(args)?;
        if let Some(fleet) = &config.fleet {
            let why = "only serve takes it; give --cluster to look at one of its Clusters";
            return Err(wrong("--fleet-selector", &fleet.selector.to_string(), why));
        }
        Ok(Self { config, fleet: None })
    }
}

/// Returns the configuration besides that of a fleet, which has a scope of its own.
fn common(args: &ServeArgs, scope: Option<Scope>) -> Result<Config, UsageError> {
    let (is_fleet, mut warnings) = (scope.is_some(), Vec::new());
    let listen = given_or(&args.listen, DEFAULT_LISTEN);
    let listen: GrpcAddress = listen.parse().map_err(|error| wrong(Config::LISTEN_FLAG, listen, error))?;
    // A fleet chooses the Nodes of each Cluster by itself.
    let is_one = !is_fleet || given(args.index.cluster.as_deref()).is_some();
    let mut index = args.index.clone();
    index.clusters.workload_nodes = index.clusters.workload_nodes.filter(|_| is_one);
    let index = index.config(scope, &mut warnings)?;
    if args.read_only {
        warnings.push("--read-only: nothing is scaled".to_owned());
    }
    let scale = ScaleOptions {
        machine_pool_deletes: machine_pool_deletes(&args.machine_pool_deletes)?,
        at_min_size: if args.no_replacement { AtMinSize::Refuse } else { AtMinSize::Replace },
        read_only: args.read_only,
    };
    let otlp = otlp(args.otlp_endpoint.as_deref())?;
    if otlp.is_some() {
        warnings.extend(other_protocols(|variable| env::var(variable).ok()));
    }
    let mut of_tls = Vec::new();
    let tls = tls::tls(&args.tls, &listen, &mut of_tls)?;
    // They are about a single client, and the requirements of a fleet are stronger.
    if !is_fleet {
        warnings.extend(of_tls);
    }
    Ok(Config {
        tls,
        reflection: args.tls.grpc_reflection.is_on(&listen),
        socket_mode: socket::mode(args, &listen, &mut warnings)?,
        listen,
        http_listen: address(Config::HTTP_LISTEN_FLAG, given_or(&args.http_listen, DEFAULT_HTTP_LISTEN))?,
        probe_listen: probe_listen(args)?,
        admin_listen: admin_listen(args, &mut warnings)?,
        admin_allowed_hosts: hosts(&args.admin_allowed_hosts)?,
        management: index.management,
        workload: index.workload,
        rules: Rules {
            errors: scale.error_rules(capacity_error_grace(&args.capacity_error_grace)?),
            capacity_words: capacity_words(&args.capacity_error_words)?,
            ..index.rules
        },
        fleet: None,
        max_staleness: duration_of("--max-staleness", given_or(&args.max_staleness, DEFAULT_MAX_STALENESS))?,
        slow_rpc: duration_of("--slow-rpc", given_or(&args.slow_rpc, DEFAULT_SLOW_RPC))?,
        otlp,
        group_series: if args.no_group_metrics { GroupSeries::SumsOnly } else { GroupSeries::Each },
        events: !args.no_events && !args.read_only,
        // In a Pod, this is the Pod's name.
        instance: env::var("HOSTNAME").unwrap_or_default(),
        capi_version: index.capi_version,
        prices: index.prices,
        remember: index.remember,
        scale,
        log: None,
        warnings,
    })
}

fn address(flag: &'static str, text: &str) -> Result<SocketAddr, UsageError> {
    text.parse().map_err(|_| {
        wrong(flag, text, "it has to be an IP address and a port, such as 127.0.0.1:8086, 0.0.0.0:8086 or [::]:8086")
    })
}

fn machine_pool_deletes(text: &str) -> Result<MachinePoolDeletes, UsageError> {
    match given_or(text, DEFAULT_MACHINE_POOL_DELETES) {
        "lower" => Ok(MachinePoolDeletes::Lower),
        "refuse" => Ok(MachinePoolDeletes::Refuse),
        other => Err(wrong("--machine-pool-deletes", other, "it has to be lower or refuse")),
    }
}

fn capacity_error_grace(text: &str) -> Result<Grace, UsageError> {
    let text = given_or(text, DEFAULT_CAPACITY_ERROR_GRACE);
    text.parse().map_err(|error| wrong("--capacity-error-grace", text, error))
}

fn capacity_words(values: &[String]) -> Result<CapacityWords, UsageError> {
    let texts = values.iter().flat_map(|value| value.split(';')).filter(|text| !text.trim().is_empty());
    CapacityWords::new(texts).map_err(|error| wrong("--capacity-error-words", &values.join(";"), error))
}

fn probe_listen(args: &ServeArgs) -> Result<Option<SocketAddr>, UsageError> {
    let text = given_or(&args.probe_listen, NONE);
    (text != NONE).then(|| address(Config::PROBE_LISTEN_FLAG, text)).transpose()
}

fn admin_listen(args: &ServeArgs, warnings: &mut Vec<String>) -> Result<Option<SocketAddr>, UsageError> {
    if args.admin_listen.trim() == NONE {
        return Ok(None);
    }
    let listen = address(Config::ADMIN_LISTEN_FLAG, given_or(&args.admin_listen, DEFAULT_ADMIN_LISTEN))?;
    match (tls::is_loopback(listen), args.admin_allow_remote) {
        (true, _) => {}
        (false, true) => warnings.push(format!(
            "the status page and the debug state are served on {listen} without TLS and authentication: whoever reaches it sees the names of \
             clusters, Machines and Nodes"
        )),
        (false, false) => {
            return Err(wrong(
                Config::ADMIN_LISTEN_FLAG,
                &args.admin_listen,
                "it isn't a loopback address; give one (kubectl port-forward reaches it), or --admin-allow-remote to \
                  serve the status page and the debug state without authentication all the same",
            ));
        }
    }
    Ok(Some(listen))
}

fn hosts(values: &[String]) -> Result<Vec<HostName>, UsageError> {
    let names = values.iter().flat_map(|value| value.split_whitespace());
    names.map(|text| text.parse().map_err(|error| wrong("--admin-allowed-hosts", text, error))).collect()
}

fn duration_of(flag: &'static str, text: &str) -> Result<Duration, UsageError> {
    duration(text).map_err(|reason| wrong(flag, text, reason))
}

/// Parses the OTLP endpoint. An error doesn't quote the value, which may hold a password.
fn otlp(text: Option<&str>) -> Result<Option<OtlpEndpoint>, UsageError> {
    let Some(text) = text.map(str::trim).filter(|text| !text.is_empty()) else { return Ok(None) };
    text.parse().map(Some).map_err(|reason| wrong("--otlp-endpoint", "(not shown)", reason))
}

/// Returns warnings of variables that ask for another protocol of OTLP.
fn other_protocols(value: impl Fn(&str) -> Option<String>) -> impl Iterator<Item = String> {
    ["OTEL_EXPORTER_OTLP_PROTOCOL", "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"].into_iter().filter_map(move |variable| {
        let protocol = value(variable).filter(|it| !it.is_empty() && it != "grpc")?;
        Some(format!("{variable} is {protocol:?}, but traces are sent by gRPC: name an endpoint that takes it"))
    })
}

#[cfg(test)]
mod tests {
    use super::other_protocols;

    #[test]
    fn another_protocol_of_traces_is_warned_of() {
        let warnings = |protocol: &str| {
            let value = |name: &str| (name == "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL").then(|| protocol.to_owned());
            other_protocols(value).collect::<Vec<_>>()
        };
        let expected = "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL is \"http/json\", but traces are sent by gRPC: name an \
                        endpoint that takes it";
        assert_eq!(warnings("http/json"), [expected]);
        assert!(warnings("grpc").is_empty() && warnings("").is_empty());
    }
}
