//! The composition root: [`App::start`] joins all modules by a typed [`Config`], and returns the running program. It
//! parses no command line, and knows flags only as names in messages: `serve` runs it until a signal comes, and tests
//! and examples run it in-process. [`Provider`] is its inner part without listeners, for the simulation. Both serve one
//! workload cluster or many.

mod callers;
mod config;
pub mod prices;
mod progress;
mod provider;
mod serving;

use std::{
    io,
    net::{SocketAddr, TcpListener},
    sync::Arc,
    time::Duration,
};

use anyhow::{Context as _, anyhow, bail};
use jiff::Timestamp;
use shared_informer::Spawner;
use tokio::{runtime::Handle, task::JoinHandle, time::MissedTickBehavior};
use tokio_util::sync::CancellationToken;
use tonic::service::Routes;
use tracing::{info, warn};

pub use self::{
    callers::{TrustDomain, TrustDomainError},
    config::{Config, FleetConfig, IndexConfig},
    provider::{Provider, ProviderOptions, service_of_index},
};
use self::{serving::Listeners, serving::Serving};
use crate::prices::{PriceFile, PriceMetrics};
use cluster::Fleet;
use connect::Access;
use page::state::{Program, Source};
use proto::cloud_provider_server::CloudProvider;
use rules::{PriceList, Rules};
use scale::traces::{OtlpEndpoint, TraceMetrics, Traces};
use service::listen::{
    AllowedHosts, Certificates, Check, Checks, ClientFiles, GrpcAddress, GrpcThreadError, Health, ReadinessMetrics,
    SharedRegistry, Shutdown, TlsFiles, TlsMetrics, admin_router, cloud_provider, http_router, log_level_router,
    new_registry, probe_router, serve_http, serve_many_on_own_thread, serve_on_own_thread, standard_services,
};

/// The time limit for running calls and commands after a shutdown request. The rest of [`service::listen::GRACE`] is left for
/// all other tasks.
pub const DRAIN: Duration = Duration::from_secs(8);

const SAMPLES: Duration = Duration::from_secs(60);

/// The running program. Dropping it stops nothing: request the shutdown, and call [`App::finish`].
pub struct App {
    provider: Provider,
    state: Arc<Source>,
    serving: Serving,
}

impl App {
    /// Opens the listeners and starts everything. Background tasks wait for the API servers. This function needs a
    /// running multi-thread Tokio runtime, which runs watches, writes and HTTP.
    ///
    /// # Errors
    /// If a listener can't be opened, a kubeconfig is unusable, or the clients of a fleet aren't authenticated by
    /// certificates.
    pub async fn start(config: Config, shutdown: Shutdown) -> anyhow::Result<Self> {
        announce(&config);
        let started_at = Timestamp::now();
        check_authentication(&config)?;
        let listeners = Listeners::open(&config)?;
        let addresses = listeners.addresses()?;
        let (rules, price_file) = priced_rules(&config)?;
        let access = reach(&config).await?;

        let runtime = Handle::current();
        let registry = new_registry();
        let certificates = certificates(config.tls.clone(), &registry, shutdown.stopping())?;
        let (traces, sender) = start_traces(config.otlp.as_ref(), &registry)?;
        let (options, tasks) = (config.provider(rules), Spawner::from(&runtime));
        let provider = Provider::start(access.clients(), options, traces, &mut registry.write(), &tasks);
        let (source, stopping) = (config.management.clone(), shutdown.stopping());
        tokio::spawn(async move { stopping.run_until_cancelled(access.follow(&source)).await });
        let polled = provider.fleet.clone();
        let poll = move || (polled.informers(), polled.pending().is_empty());
        let stopping = shutdown.stopping();
        tokio::spawn(async move { stopping.run_until_cancelled(progress::follow(poll)).await });

        let fleet = provider.fleet.clone();
        let apply = move |prices| fleet.set_prices(&prices);
        let prices = follow_prices(price_file, apply, &registry, shutdown.stopping());
        let (source, read_only) = (provider.fleet.clone(), config.scale.read_only);
        let checks: Arc<dyn Checks> = Arc::new(ProgramChecks { source, read_only, stopping: shutdown.stopping() });
        let (routes, health) = routes(provider.service.clone(), config.reflection).await?;
        let health = follow_checks(health, &checks, &registry, shutdown.stopping());
        let (fleet, served) = (provider.fleet.clone(), Arc::clone(&provider.callers));
        let program = Program::new(started_at, &config.instance);
        let state = Arc::new(Source::new(fleet, served, certificates.clone(), program));
        let pages_ended = CancellationToken::new();
        let mut pages = serve_checks(listeners.probes, listeners.http, checks, Arc::clone(&registry), &pages_ended);
        if let (Some(listener), Some(address)) = (listeners.admin, addresses.admin) {
            tokio::spawn(sample(Arc::clone(&state), shutdown.stopping()));
            pages.push(serve_admin(listener, Arc::clone(&state), registry, (&config, address), &pages_ended));
        }
        addresses.log();
        let (with_tls, stopping) = (certificates.is_some(), shutdown.stopping());
        let grpc = match (&config.fleet, certificates) {
            (Some(_), Some(it)) => serve_many_on_own_thread(listeners.grpc, it, routes, stopping, DRAIN)?,
            (Some(_), None) => bail!(UNAUTHENTICATED),
            (None, certificates) => serve_on_own_thread(listeners.grpc, certificates, routes, stopping, DRAIN)?,
        };
        info!(address = %grpc.address(), tls = with_tls, "serving gRPC");
        let serving = Serving { shutdown, grpc, addresses, health, prices, traces: sender, pages, pages_ended };
        Ok(Self { provider, state, serving })
    }

    /// Returns the address of gRPC.
    pub fn grpc_address(&self) -> &GrpcAddress {
        self.serving.grpc.address()
    }

    /// Returns the address of probes and metrics.
    pub fn http_address(&self) -> SocketAddr {
        self.serving.addresses.http
    }

    /// Returns the address of the debug state; `None` if there is none.
    pub fn admin_address(&self) -> Option<SocketAddr> {
        self.serving.addresses.admin
    }

    /// Returns the live state, as the admin listener shows it.
    pub fn state(&self) -> &Source {
        &self.state
    }

    /// Returns the workload clusters that are served.
    pub fn fleet(&self) -> &Fleet {
        &self.provider.fleet
    }

    /// Waits for a shutdown request; then lets running calls and commands finish, and ends all tasks.
    ///
    /// # Errors
    /// If gRPC ended by itself.
    pub async fn finish(self) -> Result<(), GrpcThreadError> {
        let Self { provider, serving, .. } = self;
        serving.finish(provider.drain(DRAIN), provider.shutdown()).await
    }
}

fn announce(config: &Config) {
    info!(version = env!("CARGO_PKG_VERSION"), "starting");
    for warning in &config.warnings {
        warn!("{warning}");
    }
}

fn priced_rules(config: &Config) -> anyhow::Result<(Rules, Option<PriceFile>)> {
    let mut rules = config.rules.clone();
    let price_file = config.prices.as_deref().map(PriceFile::open).transpose()?;
    let price_file = price_file.map(|(file, prices)| {
        rules.prices = prices;
        file
    });
    Ok((rules, price_file))
}

const UNAUTHENTICATED: &str = "a fleet is served over TLS to clients with certificates only, since those name their \
                               Clusters: give an IP address and a port, and the files of the certificate, its key and \
                               the client authority";

/// Checks that the clients of a fleet have to show certificates.
fn check_authentication(config: &Config) -> anyhow::Result<()> {
    let clients = config.tls.as_ref().map(|files| &files.clients);
    match (&config.fleet, &config.listen, clients) {
        (None, ..) | (Some(_), GrpcAddress::Tcp(_), Some(ClientFiles::Authority { .. })) => Ok(()),
        (Some(_), GrpcAddress::Tcp(_) | GrpcAddress::Unix(_), _) => Err(anyhow!(UNAUTHENTICATED)),
    }
}

/// Returns the access to the management cluster, once its configuration is known to be usable, and that of a single
/// workload cluster.
async fn reach(config: &Config) -> anyhow::Result<Access> {
    let access = config.management.access().await.context("management cluster")?;
    info!(source = %config.management, "management cluster");
    if let Some(FleetConfig { selector, trust_domain, .. }) = &config.fleet {
        info!(%selector, %trust_domain, "serving a fleet of workload clusters");
        return Ok(access);
    }
    if config.workload.connects_at_once() {
        // An error that only the operator can fix stops the program now, before the first loop of Cluster Autoscaler
        // fails.
        config.workload.connect(&access.clients()).await.context("workload cluster")?;
    }
    info!(source = %config.workload, "workload cluster");
    Ok(access)
}

/// Loads the certificates of the gRPC listener, and registers their metrics; does neither without TLS.
fn certificates(
    files: Option<TlsFiles>,
    registry: &SharedRegistry,
    stopping: CancellationToken,
) -> anyhow::Result<Option<Certificates>> {
    let Some(files) = files else { return Ok(None) };
    let metrics = TlsMetrics::register(&mut registry.write());
    Ok(Some(Certificates::follow(files, metrics, stopping).context("TLS")?))
}

/// Starts traces if there is an endpoint, and returns them with what sends them.
fn start_traces(
    endpoint: Option<&OtlpEndpoint>,
    registry: &SharedRegistry,
) -> anyhow::Result<(Traces, Option<scale::traces::Sender>)> {
    let Some(endpoint) = endpoint else { return Ok((Traces::default(), None)) };
    let metrics = TraceMetrics::register(&mut registry.write());
    let (traces, sender) = Traces::start(endpoint, metrics)?;
    info!(%endpoint, "sending traces");
    Ok((traces, Some(sender)))
}

/// Returns the routes of gRPC: the provider's service, and the standard ones.
async fn routes(service: impl CloudProvider, reflection: bool) -> anyhow::Result<(Routes, Health)> {
    let mut routes = Routes::builder();
    routes.add_service(cloud_provider(service));
    let health = standard_services(&mut routes, reflection).await.context("gRPC reflection")?;
    Ok((routes.routes(), health))
}

/// Applies the prices of a file, if there is one, until a shutdown request. Their metrics are there in any case.
fn follow_prices(
    file: Option<PriceFile>,
    apply: impl Fn(Arc<PriceList>) + Send + Sync + 'static,
    registry: &SharedRegistry,
    stopping: CancellationToken,
) -> Option<JoinHandle<()>> {
    let metrics = PriceMetrics::register(&mut registry.write());
    let file = file?;
    Some(tokio::spawn(async move {
        let following = file.follow(crate::prices::INTERVAL, metrics, apply);
        stopping.run_until_cancelled(following).await;
    }))
}

/// Lets the health that gRPC answers, and the metrics of readiness, follow the checks until a shutdown request.
fn follow_checks(
    health: Health,
    checks: &Arc<dyn Checks>,
    registry: &SharedRegistry,
    stopping: CancellationToken,
) -> JoinHandle<()> {
    registry.write().register_collector(Box::new(ReadinessMetrics::new(Arc::clone(checks))));
    tokio::spawn(health.follow(Arc::clone(checks), stopping))
}

/// Serves probes, on a listener of their own as well, and metrics.
fn serve_checks(
    probes: Option<TcpListener>,
    http: TcpListener,
    checks: Arc<dyn Checks>,
    registry: SharedRegistry,
    ended: &CancellationToken,
) -> Vec<JoinHandle<io::Result<()>>> {
    let mut pages = Vec::new();
    if let Some(listener) = probes {
        let probes = probe_router(Arc::clone(&checks));
        pages.push(tokio::spawn(serve_http(listener, probes, ended.clone())));
    }
    pages.push(tokio::spawn(serve_http(http, http_router(checks, registry), ended.clone())));
    pages
}

/// Serves the status page, the debug state and the metrics, and the control of the log.
fn serve_admin(
    listener: TcpListener,
    state: Arc<Source>,
    registry: SharedRegistry,
    (config, address): (&Config, SocketAddr),
    ended: &CancellationToken,
) -> JoinHandle<io::Result<()>> {
    let hosts = AllowedHosts { listened_on: address.ip(), names: config.admin_allowed_hosts.clone() };
    let mut pages = admin_router(state, registry, hosts.clone());
    if let Some(log) = &config.log {
        pages = pages.merge(log_level_router(Arc::clone(log), hosts));
    }
    tokio::spawn(serve_http(listener, pages, ended.clone()))
}

/// Takes a sample of all sizes every minute until a shutdown request, for the graphs of the status page.
async fn sample(state: Arc<Source>, stopping: CancellationToken) {
    let mut period = tokio::time::interval(SAMPLES);
    period.set_missed_tick_behavior(MissedTickBehavior::Skip);
    while stopping.run_until_cancelled(period.tick()).await.is_some() {
        let state = Arc::clone(&state);
        // Copying thousands of groups takes milliseconds. If the task fails, this sample is missing.
        let _ = tokio::task::spawn_blocking(move || state.sample()).await;
    }
}

/// The readiness checks of the workload clusters. After a shutdown request, one of them is pending.
struct ProgramChecks {
    source: Fleet,
    read_only: bool,
    stopping: CancellationToken,
}

impl ProgramChecks {
    fn shutdown(&self) -> Option<Check> {
        self.stopping.is_cancelled().then(|| Check::pending("shutdown", "asked to end"))
    }
}

impl Checks for ProgramChecks {
    fn checks(&self) -> Vec<Check> {
        let mut checks = self.source.checks();
        if self.read_only {
            checks.push(Check::informational("read-only", "nothing is written, by --read-only"));
        }
        checks.extend(self.shutdown());
        checks
    }

    fn pending(&self) -> Vec<Check> {
        self.source.pending().into_iter().chain(self.shutdown()).collect()
    }

    fn outage(&self) -> Option<Check> {
        self.source.outage()
    }
}
