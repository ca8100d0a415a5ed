//! Listeners and their services: gRPC on threads of its own, with or without TLS; probes, metrics, the status page and
//! the debug state over HTTP; health; and the shutdown. This module serves answers, and must know nothing of their
//! content.

mod address;
mod admin;
mod bytes;
mod connections;
mod grpc;
mod health;
mod http;
mod metrics;
mod shutdown;
mod tls;

#[cfg(test)]
mod tests;

pub use address::{
    BindError, GrpcAddress, GrpcAddressError, GrpcListenError, GrpcListener, PRIVATE_SOCKET, SocketError, UnixSocket,
    bind,
};
pub use admin::{
    AdminPages, AllowedHosts, CLUSTERS_PATH, DebugError, HostName, HostNameError, LOG_LEVEL_PATH, LogLevel, LogLevels,
    STATE_PATH, STYLE_PATH, StatusAnswer, admin_router, log_level_router,
};
pub use connections::{Client, Connection, KnownConnection};
pub use grpc::{GrpcThread, GrpcThreadError, serve_many_on_own_thread, serve_on_own_thread};
pub use health::{Check, CheckState, Checks, Health, ReflectionError, cloud_provider, standard_services};
pub use http::{http_router, probe_router, serve_http};
pub use metrics::{ReadinessMetrics, SharedRegistry, new_registry};
pub use shutdown::{GRACE, Outcome, Shutdown};
pub use tls::{
    AllowedClients, AllowedName, CertificateFacts, Certificates, ClientFiles, Inspection, NameError, TlsError,
    TlsFiles, TlsMetrics, TlsStanding, inspect,
};
