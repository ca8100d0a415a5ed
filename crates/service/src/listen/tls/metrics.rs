//! Metrics of TLS: the expiry of certificates, the result of reloads, and the reasons for refused clients. All labels are
//! closed sets.

use prometheus_client::{
    metrics::{counter::Counter, family::Family, gauge::Gauge},
    registry::{Registry, Unit},
};

use super::{accept::Refused, load::Loaded};

/// One label, as its name and value.
type Label = [(&'static str, &'static str); 1];

/// Metrics of TLS.
#[derive(Clone, Debug, Default)]
pub struct TlsMetrics {
    expiry: Family<Label, Gauge>,
    reloads: Family<Label, Counter>,
    failing: Gauge,
    refused: Family<Label, Counter>,
}

impl TlsMetrics {
    /// Registers the metrics.
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        registry.register_with_unit(
            "tls_certificate_expiry_timestamp",
            "Last moment of the certificate in force, and of the client authority that lasts longest, in Unix time",
            Unit::Seconds,
            metrics.expiry.clone(),
        );
        registry.register("tls_reloads", "Changed TLS files, by whether they could be used", metrics.reloads.clone());
        registry.register(
            "tls_reload_failing",
            "1 while the TLS files can't be used and older ones are in force",
            metrics.failing.clone(),
        );
        registry.register(
            "tls_refused_connections",
            "Connections that ended before their TLS handshake did, by reason",
            metrics.refused.clone(),
        );
        for result in ["ok", "error"] {
            let _ = metrics.reloads.get_or_create(&[("result", result)]);
        }
        for refused in Refused::ALL {
            let _ = metrics.refused.get_or_create(&[("reason", refused.as_str())]);
        }
        metrics
    }

    pub(super) fn loaded(&self, loaded: &Loaded) {
        let set = |certificate, until: Option<jiff::Timestamp>| {
            if let Some(until) = until {
                self.expiry.get_or_create(&[("certificate", certificate)]).set(until.as_second());
            }
        };
        set("server", Some(loaded.server_until));
        set("client_authority", loaded.clients_until);
    }

    pub(super) fn count_reload(&self, ok: bool) {
        self.reloads.get_or_create(&[("result", if ok { "ok" } else { "error" })]).inc();
    }

    pub(super) fn set_failing(&self, failing: bool) {
        self.failing.set(i64::from(failing));
    }

    pub(super) fn count_refused(&self, refused: Refused) {
        self.refused.get_or_create(&[("reason", refused.as_str())]).inc();
    }
}
