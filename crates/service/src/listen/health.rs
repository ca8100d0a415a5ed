//! Readiness checks by name, which other modules report; and the standard gRPC services, health and reflection, and the
//! limits of the provider's service. Health has two names.
//! The empty one, which probes use by default, reports that the process lives and isn't shutting down. The name of the
//! provider's service reports that it is in sync, as `/readyz` does.

use std::{sync::Arc, time::Duration};

use proto::{
    FILE_DESCRIPTOR_SET,
    cloud_provider_server::{CloudProvider, CloudProviderServer},
};
use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;
use tonic::{server::NamedService, service::RoutesBuilder};
use tonic_health::{ServingStatus, server::HealthReporter};
use tonic_reflection::server::Builder;

pub use tonic_reflection::server::Error as ReflectionError;

/// A condition of this program's readiness.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Check {
    /// The name of the awaited task, for example `management/machines`: one word, the same for the whole run.
    pub name: String,
    /// Its state.
    pub state: CheckState,
    /// The reason why it isn't ready; of a ready one, the time for which nothing new is heard and the reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// The state of a check.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum CheckState {
    /// Done, and still valid.
    Ready,
    /// Not done, or no longer valid; `Refresh` fails.
    Pending,
    /// Not done, and not waited for, since it concerns single groups only.
    #[serde(rename = "notWaitedFor")]
    Informational,
}

/// A source of checks. It is called on each probe, so it must answer from memory.
pub trait Checks: Send + Sync {
    /// Returns all checks, ready ones included, in the order to show them in.
    fn checks(&self) -> Vec<Check>;

    /// Returns those that something waits for and that aren't done. A source whose other checks look at many parts
    /// leaves these parts out.
    fn pending(&self) -> Vec<Check> {
        self.checks().into_iter().filter(|check| !check.is_ready()).collect()
    }

    /// Returns the check of one cause that stops all reads of clusters for now; `None` if there is none. It is logged when
    /// it begins.
    fn outage(&self) -> Option<Check> {
        None
    }
}

impl Check {
    /// Returns a check that is done.
    pub fn ready(name: impl Into<String>) -> Self {
        Self { name: name.into(), state: CheckState::Ready, reason: None }
    }

    /// Returns a check that is done, of which nothing is heard for now, with the time and the reason.
    pub fn ready_but(name: impl Into<String>, why: impl Into<String>) -> Self {
        Self { reason: Some(why.into()), ..Self::ready(name) }
    }

    /// Returns a check that isn't done, with the reason.
    pub fn pending(name: impl Into<String>, why: impl Into<String>) -> Self {
        Self { state: CheckState::Pending, ..Self::ready_but(name, why) }
    }

    /// Returns a check that isn't done and that nothing waits for, with the reason.
    pub fn informational(name: impl Into<String>, why: impl Into<String>) -> Self {
        Self { state: CheckState::Informational, ..Self::ready_but(name, why) }
    }

    /// Returns true if nothing has to wait for it.
    pub fn is_ready(&self) -> bool {
        match self.state {
            CheckState::Ready | CheckState::Informational => true,
            CheckState::Pending => false,
        }
    }
}

impl<F: Fn() -> Vec<Check> + Send + Sync> Checks for F {
    fn checks(&self) -> Vec<Check> {
        self()
    }
}

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
