//! Metrics of TLS: the expiry of certificates, the result of reloads, and the reasons for refused clients. All labels
//! are closed sets.

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, gauge::Gauge},
    registry::{Registry, Unit},
};

use super::load::Loaded;

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct CertificateLabels {
    certificate: &'static str,
}

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct ResultLabels {
    result: &'static str,
}

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct ReasonLabels {
    reason: &'static str,
}

/// Metrics of TLS.
#[derive(Clone, Debug, Default)]
pub struct TlsMetrics {
    expiry: Family<CertificateLabels, Gauge>,
    reloads: Family<ResultLabels, Counter>,
    failing: Gauge,
    refused: Family<ReasonLabels, Counter>,
}

/// The reason why a client's attempt led to no connection.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Refused {
    /// It presented no certificate.
    NoCertificate,
    /// Its certificate is invalid, by issuer, dates or key usage.
    Certificate,
    /// The certificate's names or key aren't allowed.
    Name,
    /// It took too long.
    TimeOut,
    /// The client used no supported TLS, or disconnected.
    Protocol,
    /// It was evicted, since there were too many handshakes.
    TooMany,
    /// It was one of too many handshakes in a short time.
    Rate,
}

impl Refused {
    const ALL: [Self; 7] =
        [Self::NoCertificate, Self::Certificate, Self::Name, Self::TimeOut, Self::Protocol, Self::TooMany, Self::Rate];

    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::NoCertificate => "no_certificate",
            Self::Certificate => "certificate",
            Self::Name => "name",
            Self::TimeOut => "timeout",
            Self::Protocol => "protocol",
            Self::TooMany => "too_many",
            Self::Rate => "rate",
        }
    }
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
            let _ = metrics.reloads.get_or_create(&ResultLabels { result });
        }
        for refused in Refused::ALL {
            let _ = metrics.refused.get_or_create(&ReasonLabels { reason: refused.as_str() });
        }
        metrics
    }

    pub(super) fn loaded(&self, loaded: &Loaded) {
        let set = |certificate, until: Option<jiff::Timestamp>| {
            if let Some(until) = until {
                self.expiry.get_or_create(&CertificateLabels { certificate }).set(until.as_second());
            }
        };
        set("server", Some(loaded.server_until));
        set("client_authority", loaded.clients_until);
    }

    pub(super) fn count_reload(&self, ok: bool) {
        self.reloads.get_or_create(&ResultLabels { result: if ok { "ok" } else { "error" } }).inc();
    }

    pub(super) fn set_failing(&self, failing: bool) {
        self.failing.set(i64::from(failing));
    }

    pub(super) fn count_refused(&self, refused: Refused) {
        self.refused.get_or_create(&ReasonLabels { reason: refused.as_str() }).inc();
    }
}
