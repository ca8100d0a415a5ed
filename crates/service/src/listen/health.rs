//! The standard gRPC services, health and reflection, and the limits of the provider's service. Health has two names.
//! The empty one, which probes use by default, reports that the process lives and isn't shutting down. The name of the
//! provider's service reports that it is in sync, as `/readyz` does.

use std::{sync::Arc, time::Duration};

use proto::{
    FILE_DESCRIPTOR_SET,
    cloud_provider_server::{CloudProvider, CloudProviderServer},
};
use tokio_util::sync::CancellationToken;
use tonic::{server::NamedService, service::RoutesBuilder};
use tonic_health::{ServingStatus, server::HealthReporter};
use tonic_reflection::server::Builder;

pub use tonic_reflection::server::Error as ReflectionError;

use super::{Check, Checks};

/// The maximum size of a request: a DeleteNodes call may name a thousand Nodes with all their labels and annotations,
/// and Cluster Autoscaler's client sets no limit.
pub(crate) const MAX_REQUEST_BYTES: usize = 64 << 20;

/// The name of the provider's service in health and reflection.
const PROVIDER: &str = <CloudProviderServer<()> as NamedService>::NAME;

/// The interval at which readiness is checked for clients that watch health.
const PERIOD: Duration = Duration::from_secs(1);

/// Sets the status that the health service reports.
#[derive(Clone, Debug)]
pub struct Health(HealthReporter);

/// Returns the provider's service with its limits.
pub fn cloud_provider<S: CloudProvider>(service: S) -> CloudProviderServer<S> {
    CloudProviderServer::new(service).max_decoding_message_size(MAX_REQUEST_BYTES)
}

/// Adds health and, if `reflection` is true, reflection (v1 and v1alpha) to the services. The provider is reported as
/// not serving until [`Health::follow`] has seen it ready.
///
/// # Errors
/// If the compiled-in descriptors of the protocol can't be read, which the tests rule out.
pub async fn standard_services(routes: &mut RoutesBuilder, reflection: bool) -> Result<Health, ReflectionError> {
    let builder = || {
        Builder::configure()
            .register_encoded_file_descriptor_set(FILE_DESCRIPTOR_SET)
            .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
    };
    let (reporter, health) = tonic_health::server::health_reporter();
    let health_of = Health(reporter);
    health_of.set_in_sync(false).await;
    routes.add_service(health);
    if reflection {
        routes.add_service(builder().build_v1()?).add_service(builder().build_v1alpha()?);
    }
    Ok(health_of)
}

impl Health {
    /// Reports whether the provider is in sync.
    pub(crate) async fn set_in_sync(&self, in_sync: bool) {
        let status = if in_sync { ServingStatus::Serving } else { ServingStatus::NotServing };
        self.0.set_service_status(PROVIDER, status).await;
    }

    /// Reports that this process is shutting down, so that no service serves any more.
    pub(crate) async fn set_ending(&self) {
        self.set_in_sync(false).await;
        self.0.set_service_status("", ServingStatus::NotServing).await;
    }

    /// Reports the state of the checks, which it reads every second, until `shutdown` is cancelled; then reports the
    /// shutdown.
    pub async fn follow(self, checks: Arc<dyn Checks>, shutdown: CancellationToken) {
        let mut period = tokio::time::interval(PERIOD);
        let (mut known, mut was_out) = (None, false);
        loop {
            tokio::select! {
                () = shutdown.cancelled() => return self.set_ending().await,
                _ = period.tick() => {}
            }
            let pending = checks.pending();
            let in_sync = pending.is_empty();
            if known.replace(in_sync) != Some(in_sync) {
                log_readiness(&pending);
                self.set_in_sync(in_sync).await;
            }
            let outage = checks.outage();
            if let (Some(Check { name, reason: Some(why), .. }), false) = (&outage, was_out) {
                tracing::warn!("{name}: {why}");
            }
            was_out = outage.is_some();
        }
    }
}

/// Logs readiness once per change, so that the log shows since when the program can answer.
fn log_readiness(pending: &[Check]) {
    if pending.is_empty() {
        tracing::info!("ready: all core kinds are in sync");
        return;
    }
    let missing: Vec<_> = pending.iter().map(|check| check.name.as_str()).collect();
    let reason = pending.iter().find_map(|check| check.reason.as_deref());
    tracing::info!(missing = missing.join(", "), reason, "not ready: not all core kinds are in sync");
}
