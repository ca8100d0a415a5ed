//! The typed configuration of the program. No flag, variable or file may be read here: `cli` makes a [`Config`] of the
//! flags of `serve`, and tests and examples make theirs by hand.

use std::{
    collections::BTreeSet,
    net::{Ipv4Addr, SocketAddr},
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use rules::{LabelSelector, Rules, capi::ObjectKey};

use super::{ProviderOptions, callers::TrustDomain};
use cluster::{FleetOptions, Serve};
use connect::{NodeAccess, Source, WorkloadSource};
use index::GroupSeries;
use scale::ScaleOptions;
use scale::traces::OtlpEndpoint;
use service::listen::{GrpcAddress, HostName, LogLevels, TlsFiles};

/// The configuration of the program.
#[derive(Clone, Debug)]
pub struct Config {
    /// The address of gRPC.
    pub listen: GrpcAddress,
    /// The mode and owner of its file, if it is a Unix socket.
    pub socket_mode: u32,
    /// The files of its TLS; `None` serves without TLS.
    pub tls: Option<TlsFiles>,
    /// True if gRPC reflection is served.
    pub reflection: bool,
    /// The address of probes and metrics.
    pub http_listen: SocketAddr,
    /// The address of probes alone; `None` serves none.
    pub probe_listen: Option<SocketAddr>,
    /// The address of the status page and the debug state; `None` serves none.
    pub admin_listen: Option<SocketAddr>,
    /// The host names that requests to the admin listener may have, besides loopback's and its own address.
    pub admin_allowed_hosts: Vec<HostName>,
    /// The configuration for reaching the management cluster.
    pub management: Source,
    /// The configuration for reaching the workload cluster; a fleet doesn't use it.
    pub workload: WorkloadSource,
    /// The scope of the node groups, and the operator's rules for all of them; a fleet doesn't use the scope.
    pub rules: Rules,
    /// The choice of many workload clusters; `None` serves one.
    pub fleet: Option<FleetConfig>,
    /// The time that a watch may be broken before Refresh fails; more than 0.
    pub max_staleness: Duration,
    /// The duration above which reads are logged.
    pub slow_rpc: Duration,
    /// The collector of traces; `None` sends none.
    pub otlp: Option<OtlpEndpoint>,
    /// The choice between series for each node group and sums only; a fleet has no sums either.
    pub group_series: GroupSeries,
    /// True if Kubernetes Events are posted.
    pub events: bool,
    /// The name of this replica in its Events: in a Pod, the Pod's name.
    pub instance: String,
    /// The version of Cluster API; `None` is the one that the API server prefers.
    pub capi_version: Option<String>,
    /// The price file.
    pub prices: Option<PathBuf>,
    /// The ConfigMaps in which Nodes are remembered; none remembers none. One of several is for its own namespace.
    pub remember: Vec<ObjectKey>,
    /// The operator's options for writes.
    pub scale: ScaleOptions,
    /// The log filter, which the admin listener shows and changes; `None` if this program doesn't own the log.
    pub log: Option<Arc<dyn LogLevels>>,
    /// Settings that are allowed but deserve attention, to be logged at the start.
    pub warnings: Vec<String>,
}

/// The choice of many workload clusters, and of their autoscalers.
#[derive(Clone, Debug)]
pub struct FleetConfig {
    /// The selector of the Clusters to serve, by their labels.
    pub selector: LabelSelector,
    /// The namespaces of the Clusters; `None` stands for all.
    pub namespaces: Option<BTreeSet<String>>,
    /// The trust domain in the identities of the autoscalers.
    pub trust_domain: TrustDomain,
    /// The credentials by which the Nodes of each workload cluster are read.
    pub nodes: NodeAccess,
}

/// The clusters and the rules from which the index is built: the part of the configuration that all subcommands with an
/// index share.
#[derive(Clone, Debug)]
pub struct IndexConfig {
    /// The configuration for reaching the management cluster.
    pub management: Source,
    /// The configuration for reaching the workload cluster.
    pub workload: WorkloadSource,
    /// The scope, and the operator's rules for all node groups; without the prices of the file.
    pub rules: Rules,
    /// The version of Cluster API; `None` is the one that the API server prefers.
    pub capi_version: Option<String>,
    /// The price file.
    pub prices: Option<PathBuf>,
    /// The ConfigMaps in which Nodes are remembered.
    pub remember: Vec<ObjectKey>,
}

impl Config {
    /// The flag behind [`listen`](Self::listen).
    pub const LISTEN_FLAG: &str = "--listen";
    /// The flag behind [`http_listen`](Self::http_listen).
    pub const HTTP_LISTEN_FLAG: &str = "--http-listen";
    /// The flag behind [`probe_listen`](Self::probe_listen).
    pub const PROBE_LISTEN_FLAG: &str = "--probe-listen";
    /// The flag behind [`admin_listen`](Self::admin_listen).
    pub const ADMIN_LISTEN_FLAG: &str = "--admin-listen";

    /// Returns the configuration that `serve` has for this index if all flags have their defaults.
    pub fn new(index: IndexConfig) -> Self {
        let loopback = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        Self {
            listen: GrpcAddress::Tcp(loopback(8086)),
            socket_mode: service::listen::PRIVATE_SOCKET,
            tls: None,
            reflection: true,
            http_listen: loopback(8080),
            probe_listen: None,
            admin_listen: Some(loopback(8081)),
            admin_allowed_hosts: Vec::new(),
            management: index.management,
            workload: index.workload,
            rules: index.rules,
            fleet: None,
            max_staleness: Duration::from_secs(120),
            slow_rpc: Duration::from_millis(100),
            otlp: None,
            group_series: GroupSeries::Each,
            events: true,
            instance: String::new(),
            capi_version: index.capi_version,
            prices: index.prices,
            remember: index.remember,
            scale: ScaleOptions::default(),
            log: None,
            warnings: Vec::new(),
        }
    }

    /// Returns the same configuration, with each listener on a free port of loopback.
    pub fn on_free_ports(self) -> Self {
        let free = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        Self {
            listen: GrpcAddress::Tcp(free),
            http_listen: free,
            probe_listen: self.probe_listen.map(|_| free),
            admin_listen: self.admin_listen.map(|_| free),
            ..self
        }
    }

    /// Returns the part from which the index is built.
    pub fn index(&self) -> IndexConfig {
        IndexConfig {
            management: self.management.clone(),
            workload: self.workload.clone(),
            rules: self.rules.clone(),
            capi_version: self.capi_version.clone(),
            prices: self.prices.clone(),
            remember: self.remember.clone(),
        }
    }

    /// Returns the options of the provider. `rules` must include the prices of the file.
    pub(super) fn provider(&self, rules: Rules) -> ProviderOptions {
        let (serve, trust_domain, reading) = match self.fleet.clone() {
            None => (Serve::One(self.workload.clone()), None, FleetOptions::of_one(rules, self.max_staleness)),
            Some(FleetConfig { selector, namespaces, trust_domain, nodes }) => {
                let reading = FleetOptions::of_many(rules, self.max_staleness);
                (Serve::Selected { selector, namespaces, nodes }, Some(trust_domain), reading)
            }
        };
        ProviderOptions {
            serve,
            reading: FleetOptions {
                capi_version: self.capi_version.clone(),
                remember: self.remember.clone(),
                ..reading
            },
            trust_domain,
            group_series: self.group_series,
            events: self.events.then(|| self.instance.clone()),
            slow_rpc: self.slow_rpc,
            scale: self.scale,
        }
    }
}

impl IndexConfig {
    /// Returns the configuration of an index with these rules: the default kubeconfig, and a management cluster that is
    /// also the workload cluster.
    pub fn new(rules: Rules) -> Self {
        Self {
            management: Source::default(),
            workload: WorkloadSource::Management,
            rules,
            capi_version: None,
            prices: None,
            remember: Vec::new(),
        }
    }
}
