//! The flags of `serve` whose values are parsed here, besides those of TLS and of the socket: their names, variables
//! and defaults.

use crate::cli::printing::Flag;
use app::Config;

/// The value that turns a listener off.
pub(super) const NONE: &str = "none";

pub(super) const DEFAULT_LISTEN: &str = "127.0.0.1:8086";
pub(super) const DEFAULT_HTTP_LISTEN: &str = "127.0.0.1:8080";
pub(super) const DEFAULT_ADMIN_LISTEN: &str = "127.0.0.1:8081";
pub(super) const DEFAULT_MAX_STALENESS: &str = "2m";
pub(super) const DEFAULT_SLOW_RPC: &str = "100ms";
pub(super) const DEFAULT_CAPACITY_ERROR_GRACE: &str = "5m";
pub(super) const DEFAULT_MACHINE_POOL_DELETES: &str = "lower";

pub(super) const LISTEN: Flag =
    Flag { name: Config::LISTEN_FLAG, variable: "CAPI_AUTOSCALER_LISTEN", default: DEFAULT_LISTEN };
pub(super) const HTTP_LISTEN: Flag =
    Flag { name: Config::HTTP_LISTEN_FLAG, variable: "CAPI_AUTOSCALER_HTTP_LISTEN", default: DEFAULT_HTTP_LISTEN };
pub(super) const PROBE_LISTEN: Flag =
    Flag { name: Config::PROBE_LISTEN_FLAG, variable: "CAPI_AUTOSCALER_PROBE_LISTEN", default: NONE };
pub(super) const ADMIN_LISTEN: Flag =
    Flag { name: Config::ADMIN_LISTEN_FLAG, variable: "CAPI_AUTOSCALER_ADMIN_LISTEN", default: DEFAULT_ADMIN_LISTEN };
pub(super) const ADMIN_ALLOWED_HOSTS: Flag =
    Flag { name: "--admin-allowed-hosts", variable: "CAPI_AUTOSCALER_ADMIN_ALLOWED_HOSTS", default: "" };
pub(super) const MAX_STALENESS: Flag =
    Flag { name: "--max-staleness", variable: "CAPI_AUTOSCALER_MAX_STALENESS", default: DEFAULT_MAX_STALENESS };
pub(super) const SLOW_RPC: Flag =
    Flag { name: "--slow-rpc", variable: "CAPI_AUTOSCALER_SLOW_RPC", default: DEFAULT_SLOW_RPC };
pub(super) const OTLP_ENDPOINT: Flag =
    Flag { name: "--otlp-endpoint", variable: "OTEL_EXPORTER_OTLP_ENDPOINT", default: "" };
pub(super) const MACHINE_POOL_DELETES: Flag = Flag {
    name: "--machine-pool-deletes",
    variable: "CAPI_AUTOSCALER_MACHINE_POOL_DELETES",
    default: DEFAULT_MACHINE_POOL_DELETES,
};
pub(super) const CAPACITY_ERROR_GRACE: Flag = Flag {
    name: "--capacity-error-grace",
    variable: "CAPI_AUTOSCALER_CAPACITY_ERROR_GRACE",
    default: DEFAULT_CAPACITY_ERROR_GRACE,
};
pub(super) const CAPACITY_ERROR_WORDS: Flag =
    Flag { name: "--capacity-error-words", variable: "CAPI_AUTOSCALER_CAPACITY_ERROR_WORDS", default: "" };
/// The flags of `serve` alone: a test compares their names with clap's.
#[cfg(test)]
pub(super) const FLAGS: [Flag; 11] = [
    LISTEN,
    HTTP_LISTEN,
    PROBE_LISTEN,
    ADMIN_LISTEN,
    ADMIN_ALLOWED_HOSTS,
    MAX_STALENESS,
    MACHINE_POOL_DELETES,
    CAPACITY_ERROR_GRACE,
    CAPACITY_ERROR_WORDS,
    SLOW_RPC,
    OTLP_ENDPOINT,
];
