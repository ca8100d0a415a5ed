//! `serve`: connects the modules and runs them until the program is asked to end. [`Server`] is the same program
//! in-process, for tests and examples.

use std::{
    net::{SocketAddr, TcpListener},
    sync::Arc,
    time::Duration,
};

use anyhow::Context as _;
use jiff::Timestamp;
use shared_informer::Settings;
use tokio::{runtime::Handle, task::JoinHandle};
use tokio_util::sync::CancellationToken;
use tonic::service::Routes;
use tracing::{info, warn};

use super::{
    LogControl, ServeConfig, progress,
    serve_config::{ADMIN_LISTEN, HTTP_LISTEN, LISTEN, PROBE_LISTEN},
};
use crate::{
    cluster::{InformerMetrics, Management, ManagementOptions, Workload, WorkloadOptions},
    grpc::{RpcMetrics, Service},
    index::{Change, Freshness as _, GroupMetrics},
    page::StatusPage,
    prices::{self, PriceFile, PriceMetrics},
    scale::{Api, EventRecorder, Scale, ScaleMetrics, ScaleOptions},
    server::{
        AllowedHosts, Certificates, Check, Checks, GrpcAddress, GrpcListener, GrpcThread, Outcome, ReadinessMetrics,
        SharedRegistry, Shutdown, TlsFiles, TlsMetrics, admin_router, bind, cloud_provider, http_router,
        log_level_router, new_registry, probe_router, serve_http, serve_on_own_thread, standard_services,
    },
    state::{StateSource, StatusSources},
    traces::{self, OtlpEndpoint, TraceMetrics, Traces},
};

/// The time that running calls and commands have after the end was requested; the rest of [`crate::server::GRACE`] is
/// left for everything else.
const DRAIN: Duration = Duration::from_secs(8);

/// The time limit for sending the last spans.
const TRACES_AT_THE_END: Duration = Duration::from_millis(500);

/// Serves until the program is asked to end.
pub(super) fn run(config: ServeConfig) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Runtime::new().context("can't start the runtime")?;
    let result = runtime.block_on(async {
        let shutdown = Shutdown::on_signals().context("can't listen for signals")?;
        Server::start(config, shutdown).await?.finish().await
    });
    // Tasks that are still running had their time.
    runtime.shutdown_background();
    result
}

/// The running program.
pub struct Server {
    shutdown: Shutdown,
    management: Management,
    workload: Workload,
    scale: Scale,
    grpc: GrpcThread,
    addresses: Addresses,
    picture: Arc<StateSource>,
    health: JoinHandle<()>,
    prices: Option<JoinHandle<()>>,
    traces: Option<traces::Sender>,
    pages: Vec<JoinHandle<std::io::Result<()>>>,
    pages_ended: CancellationToken,
}

impl Server {
    /// Opens the listeners and starts everything. API servers are waited for in the background. It needs a running
    /// multi-thread Tokio runtime, which runs watches, writes and HTTP.
    ///
    /// # Errors
    /// If a listener can't be opened, or a kubeconfig is unusable.
    pub async fn start(config: ServeConfig, shutdown: Shutdown) -> anyhow::Result<Self> {
        info!(version = env!("CARGO_PKG_VERSION"), "starting");
        for warning in &config.warnings {
            warn!("{warning}");
        }
        let started_at = Timestamp::now();
        let listeners = Listeners::open(&config)?;
        let addresses = listeners.addresses()?;
        let mut rules = config.rules;
        let price_file = config.prices.as_deref().map(PriceFile::open).transpose()?;
        let price_file = price_file.map(|(file, prices)| {
            rules.prices = prices;
            file
        });
        let access = config.management.access().await.context("management cluster")?;
        info!(source = %config.management, "management cluster");
        if !config.workload.needs_request() {
            // A fault that only the operator can fix ends the program now, instead of failing the caller's first
            // loop.
            config.workload.connect(access.clients()).await.context("workload cluster")?;
        }
        info!(source = %config.workload, "workload cluster");

        let runtime = Handle::current();
        let registry = new_registry();
        let certificates = certificates(config.tls, &registry, shutdown.stopping())?;
        let management = ManagementOptions {
            group: rules.keys.group.clone(),
            version: config.capi_version.clone(),
            informers: Settings::default(),
        };
        let read_only = config.scale.read_only;
        let clients = if read_only { access.clients().read_only() } else { access.clients().clone() };
        let management = Management::start(clients, management, &runtime);
        let (source, stopping) = (config.management, shutdown.stopping());
        tokio::spawn(async move { stopping.run_until_cancelled(access.follow(&source)).await });
        let workload = WorkloadOptions {
            rules,
            source: config.workload,
            max_staleness: config.max_staleness,
            informers: Settings::default(),
        };
        let workload = Workload::start(management.clone(), workload, &runtime);
        tokio::spawn(tell_progress(workload.clone(), config.log.clone(), shutdown.stopping()));
        registry.write().register_collector(Box::new(InformerMetrics::new(workload.clone())));
        let metrics = GroupMetrics::new(Arc::clone(workload.index()), config.group_series);
        registry.write().register_collector(Box::new(metrics));
        let (traces, sender) = start_traces(config.otlp.as_ref(), &registry, &runtime)?;
        let (service, scale) = service(
            &management,
            &workload,
            (config.scale, config.events, config.slow_rpc, traces),
            &registry,
            &runtime,
        );

        let stopping = shutdown.stopping();
        let metrics = PriceMetrics::register(&mut registry.write());
        let prices = price_file.map(|file| follow_prices(file, metrics, &workload, stopping.clone()));
        let checks = checks(workload.clone(), read_only, stopping.clone());
        let mut routes = Routes::builder();
        let calls = service.calls().clone();
        routes.add_service(cloud_provider(service));
        let health = standard_services(&mut routes, config.reflection).await.context("gRPC reflection")?;
        let health = tokio::spawn(health.follow(Arc::clone(&checks), stopping.clone()));
        registry.write().register_collector(Box::new(ReadinessMetrics::new(Arc::clone(&checks))));
        let pages_ended = CancellationToken::new();
        let mut pages = Vec::new();
        if let Some(listener) = listeners.probes {
            let probes = probe_router(Arc::clone(&checks));
            pages.push(tokio::spawn(serve_http(listener, probes, pages_ended.clone())));
        }
        pages.push(tokio::spawn(serve_http(listeners.http, http_router(checks, registry), pages_ended.clone())));
        let accounts = StatusSources { history: scale.history().clone(), calls, certificates: certificates.clone() };
        let picture = Arc::new(StateSource::new(workload.clone(), started_at).with_sources(accounts));
        if let (Some(listener), Some(address)) = (listeners.admin, addresses.admin) {
            let hosts = AllowedHosts { listened_on: address.ip(), names: config.admin_allowed_hosts };
            let people = Arc::new(StatusPage::new(Arc::clone(&picture)));
            let mut debug = admin_router(Arc::clone(&picture) as _, people, hosts.clone());
            if let Some(log) = &config.log {
                debug = debug.merge(log_level_router(Arc::new(log.clone()), hosts));
            }
            pages.push(tokio::spawn(serve_http(listener, debug, pages_ended.clone())));
        }
        addresses.log();
        let with_tls = certificates.is_some();
        let grpc = serve_on_own_thread(listeners.grpc, certificates, routes.routes(), stopping, DRAIN)?;
        info!(address = %grpc.address(), tls = with_tls, "serving gRPC");
        Ok(Self {
            shutdown,
            management,
            workload,
            scale,
            grpc,
            addresses,
            picture,
            health,
            prices,
            traces: sender,
            pages,
            pages_ended,
        })
    }

    /// Returns the address of gRPC.
    #[must_use]
    pub fn grpc_address(&self) -> &GrpcAddress {
        self.grpc.address()
    }

    /// Returns the address of probes and metrics.
    #[must_use]
    pub fn http_address(&self) -> SocketAddr {
        self.addresses.http
    }

    /// Returns the address of probes alone; `None` if there is none.
    #[must_use]
    pub fn probe_address(&self) -> Option<SocketAddr> {
        self.addresses.probes
    }

    /// Returns the address of the debug state; `None` if there is none.
    #[must_use]
    pub fn admin_address(&self) -> Option<SocketAddr> {
        self.addresses.admin
    }

    /// Returns the live state, as the admin listener shows it.
    #[must_use]
    pub fn state(&self) -> &StateSource {
        &self.picture
    }

    /// Returns the workload cluster that is served.
    #[must_use]
    pub fn workload(&self) -> &Workload {
        &self.workload
    }

    /// Waits until the program is asked to end; then lets running calls and commands finish, and ends all tasks.
    ///
    /// # Errors
    /// If gRPC ended by itself.
    pub async fn finish(mut self) -> anyhow::Result<()> {
        let mut served = Ok(());
        let shutdown = self.shutdown.clone();
        let outcome = shutdown
            .finish(async {
                // Calls end with their commands; commands whose caller is gone are waited for as well.
                let (grpc, drained) = tokio::join!(self.grpc.ended(), self.scale.drain(DRAIN));
                served = grpc;
                if let Err(running) = drained {
                    warn!(running, "commands were still running at the end and have been cut off");
                }
                // If the task panicked, there is nothing left to end.
                let _ = self.health.await;
                if let Some(prices) = self.prices {
                    let _ = prices.await;
                }
                if let Some(traces) = self.traces {
                    traces.finish(TRACES_AT_THE_END).await;
                }
                self.pages_ended.cancel();
                for pages in self.pages {
                    let _ = pages.await;
                }
                self.workload.shutdown().await;
                self.management.shutdown().await;
            })
            .await;
        match outcome {
            Outcome::Finished => info!("ended"),
            Outcome::OutOfTime => warn!("ended with work unfinished: it took too long"),
            Outcome::Cut => warn!("ended at once, with work unfinished"),
        }
        Ok(served?)
    }
}

/// The listeners, which are opened before anything is started.
struct Listeners {
    grpc: GrpcListener,
    http: TcpListener,
    probes: Option<TcpListener>,
    admin: Option<TcpListener>,
}

/// The addresses of the HTTP listeners.
struct Addresses {
    http: SocketAddr,
    probes: Option<SocketAddr>,
    admin: Option<SocketAddr>,
}

impl Listeners {
    fn open(config: &ServeConfig) -> anyhow::Result<Self> {
        Ok(Self {
            grpc: GrpcListener::open(&config.listen, config.socket_rights, LISTEN.name)?,
            http: bind(config.http_listen, HTTP_LISTEN.name)?,
            probes: config.probe_listen.map(|address| bind(address, PROBE_LISTEN.name)).transpose()?,
            admin: config.admin_listen.map(|address| bind(address, ADMIN_LISTEN.name)).transpose()?,
        })
    }

    fn addresses(&self) -> anyhow::Result<Addresses> {
        let address = |listener: &TcpListener| listener.local_addr().context("a listener has no address");
        Ok(Addresses {
            http: address(&self.http)?,
            probes: self.probes.as_ref().map(address).transpose()?,
            admin: self.admin.as_ref().map(address).transpose()?,
        })
    }
}

impl Addresses {
    fn log(&self) {
        info!(address = %self.http, "serving HTTP");
        if let Some(address) = self.probes {
            info!(%address, "serving probes");
        }
        if let Some(address) = self.admin {
            info!(%address, "serving the status page and the debug state");
        }
    }
}

/// Loads the certificates of the gRPC listener, if it has TLS; without TLS it has no metrics of it either.
fn certificates(
    files: Option<TlsFiles>,
    registry: &SharedRegistry,
    stopping: CancellationToken,
) -> anyhow::Result<Option<Certificates>> {
    let Some(files) = files else { return Ok(None) };
    let metrics = TlsMetrics::register(&mut registry.write());
    Ok(Some(Certificates::follow(files, metrics, stopping).context("TLS")?))
}

/// Reports the progress of the first lists.
async fn tell_progress(workload: Workload, log: Option<LogControl>, stopping: CancellationToken) {
    let look = || (workload.informers(), workload.check().is_ok());
    let bars = log.as_ref().and_then(|log| log.screen().bars());
    stopping.run_until_cancelled(progress::follow(look, bars)).await;
}

/// Starts traces if there is an endpoint, and returns them with the task that sends them.
fn start_traces(
    endpoint: Option<&OtlpEndpoint>,
    registry: &SharedRegistry,
    runtime: &Handle,
) -> anyhow::Result<(Traces, Option<traces::Sender>)> {
    let Some(endpoint) = endpoint else { return Ok((Traces::default(), None)) };
    let metrics = TraceMetrics::register(&mut registry.write());
    let (traces, sender) = Traces::start(endpoint, metrics, runtime)?;
    info!(%endpoint, "sending traces");
    for variable in ["OTEL_EXPORTER_OTLP_PROTOCOL", "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"] {
        if let Some(protocol) = std::env::var(variable).ok().filter(|it| !it.is_empty() && it != "grpc") {
            warn!("{variable} is {protocol:?}, but traces are sent by gRPC: name an endpoint that takes it");
        }
    }
    Ok((traces, Some(sender)))
}

/// Returns the gRPC service of a workload cluster, and the commands behind it, with their metrics.
fn service(
    management: &Management,
    workload: &Workload,
    (options, events, slow_rpc, traces): (ScaleOptions, bool, Duration, Traces),
    registry: &SharedRegistry,
    runtime: &Handle,
) -> (Service, Scale) {
    let mut registry = registry.write();
    let client = management.clients().writes.clone();
    let metrics = ScaleMetrics::register(&mut registry);
    let events = if events {
        // In a Pod, this is the Pod's name.
        let instance = std::env::var("HOSTNAME").unwrap_or_default();
        EventRecorder::start(client.clone(), management.resources(), &instance, metrics.clone(), runtime)
    } else {
        EventRecorder::off()
    };
    let api = Api::new(client, management.resources(), management.context().keys.clone()).traced(traces.clone());
    let machines = Arc::new(workload.clone());
    let scale = Scale::new(Arc::clone(workload.index()), api, machines, options, metrics, events, runtime.clone());
    let metrics = RpcMetrics::register(&mut registry);
    let service = Service::new(Arc::clone(workload.index()), scale.clone(), Arc::new(workload.clone()), metrics);
    (service.with_call_log(slow_rpc, traces), scale)
}

/// Applies the prices of a file to the index of a workload cluster, until the end is requested.
fn follow_prices(
    file: PriceFile,
    metrics: PriceMetrics,
    workload: &Workload,
    stopping: CancellationToken,
) -> JoinHandle<()> {
    let index = Arc::clone(workload.index());
    tokio::spawn(async move {
        let following = file.follow(prices::Settings::default(), metrics, |prices| index.apply(Change::Prices(prices)));
        stopping.run_until_cancelled(following).await;
    })
}

/// Returns the checks of a workload cluster. Once the end was requested, one of them isn't ready.
fn checks(workload: Workload, read_only: bool, stopping: CancellationToken) -> Arc<dyn Checks> {
    Arc::new(move || {
        let mut checks = workload.checks();
        if read_only {
            checks.push(Check::informational("read-only", "nothing is written, by --read-only"));
        }
        if stopping.is_cancelled() {
            checks.push(Check::pending("shutdown", "asked to end"));
        }
        checks
    })
}
