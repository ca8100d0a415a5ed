//! The running program that serves many workload clusters. It differs from [`App`](super::App) by its provider, and by
//! clients that have to show certificates.

use std::{net::SocketAddr, sync::Arc};

use jiff::Timestamp;
use shared_informer::Spawner;
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;
use tracing::info;

use super::{
    Config, DRAIN, FleetConfig, ProgramChecks, StartError, announce, certificates,
    fleet::{FleetGroupMetrics, FleetProvider},
    follow_checks, follow_prices,
    listeners::Listeners,
    priced_rules, report_progress, routes, serve_admin, serve_checks,
    serving::Serving,
    start_traces,
};
use page::FleetPage;
use page::state::FleetStateSource;
use server::{
    Checks, ClientFiles, GrpcAddress, GrpcThreadError, Shutdown, TlsFiles, new_registry, serve_many_on_own_thread,
};

/// The running program of a fleet. Dropping it stops nothing: request the shutdown, and call [`FleetApp::finish`].
pub struct FleetApp {
    provider: FleetProvider,
    serving: Serving,
}

impl FleetApp {
    /// Opens the listeners and starts everything. Background tasks wait for the API servers. This function needs a
    /// running multi-thread Tokio runtime, which runs watches, writes and HTTP.
    ///
    /// # Errors
    /// If clients aren't authenticated by certificates, a listener can't be opened, or the kubeconfig is unusable.
    pub async fn start(config: FleetConfig, shutdown: Shutdown) -> Result<Self, StartError> {
        let common = &config.common;
        announce(common);
        let started_at = Timestamp::now();
        let files = authenticating(common)?;
        let listeners = Listeners::open(common)?;
        let addresses = listeners.addresses()?;
        let (rules, price_file) = priced_rules(common)?;
        let access = common.management.access().await.map_err(StartError::Management)?;
        info!(source = %common.management, "management cluster");
        info!(selector = %config.selector, trust_domain = %config.trust_domain, "serving a fleet of workload clusters");

        let runtime = Handle::current();
        let registry = new_registry();
        let certificates = certificates(Some(files), &registry, shutdown.stopping())?;
        let certificates = certificates.ok_or(StartError::Unauthenticated)?;
        let (traces, sender) = start_traces(common.otlp.as_ref(), &registry, &runtime)?;
        let (options, tasks) = (config.provider(rules), Spawner::from(&runtime));
        let provider = FleetProvider::start(access.clients(), options, traces, &mut registry.write(), &tasks);
        if config.group_metrics {
            registry.write().register_collector(Box::new(FleetGroupMetrics::new(provider.served())));
        }
        let (source, stopping) = (common.management.clone(), shutdown.stopping());
        tokio::spawn(async move { stopping.run_until_cancelled(access.follow(&source)).await });
        let polled = provider.fleet.clone();
        let poll = move || (polled.informers(), polled.pending().is_empty());
        tokio::spawn(report_progress(poll, common.log.clone(), shutdown.stopping()));

        let fleet = provider.fleet.clone();
        let apply = move |prices| fleet.set_prices(&prices);
        let prices = follow_prices(price_file, apply, &registry, shutdown.stopping());
        let (source, read_only) = (provider.fleet.clone(), common.scale.read_only);
        let checks: Arc<dyn Checks> = Arc::new(ProgramChecks { source, read_only, stopping: shutdown.stopping() });
        let (routes, health) = routes(provider.service.clone(), common.reflection).await?;
        let health = follow_checks(health, &checks, &registry, shutdown.stopping());
        let pages_ended = CancellationToken::new();
        let mut pages = serve_checks(listeners.probes, listeners.http, checks, registry, &pages_ended);
        if let (Some(listener), Some(address)) = (listeners.admin, addresses.admin) {
            let served = provider.served();
            let state =
                Arc::new(FleetStateSource::new(provider.fleet.clone(), served, Some(certificates.clone()), started_at));
            let people = Arc::new(FleetPage::new(Arc::clone(&state)));
            pages.push(serve_admin(listener, (state as _, people as _), common, address, &pages_ended));
        }
        addresses.log();
        let grpc = serve_many_on_own_thread(listeners.grpc, certificates, routes, shutdown.stopping(), DRAIN)?;
        info!(address = %grpc.address(), tls = true, "serving gRPC");
        let serving = Serving { shutdown, grpc, addresses, health, prices, traces: sender, pages, pages_ended };
        Ok(Self { provider, serving })
    }

    /// Returns the address of gRPC.
    #[must_use]
    pub fn grpc_address(&self) -> &GrpcAddress {
        self.serving.grpc.address()
    }

    /// Returns the address of probes and metrics.
    #[must_use]
    pub fn http_address(&self) -> SocketAddr {
        self.serving.addresses.http
    }

    /// Returns the address of the status page and the debug state; `None` if there is none.
    #[must_use]
    pub fn admin_address(&self) -> Option<SocketAddr> {
        self.serving.addresses.admin
    }

    /// Waits for a shutdown request; then lets running calls and commands finish, and ends all tasks.
    ///
    /// # Errors
    /// If gRPC ended by itself.
    pub async fn finish(self) -> Result<(), GrpcThreadError> {
        let Self { provider, serving } = self;
        serving.finish(provider.drain(DRAIN), provider.shutdown()).await
    }
}

/// Returns the files of TLS, if each client has to show a certificate.
fn authenticating(config: &Config) -> Result<TlsFiles, StartError> {
    match (&config.listen, &config.tls) {
        (GrpcAddress::Tcp(_), Some(files)) => match &files.clients {
            ClientFiles::Authority { .. } => Ok(files.clone()),
            ClientFiles::Any => Err(StartError::Unauthenticated),
        },
        (GrpcAddress::Tcp(_), None) | (GrpcAddress::Unix(_), _) => Err(StartError::Unauthenticated),
    }
}
