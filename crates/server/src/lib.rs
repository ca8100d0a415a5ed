//! Listeners and their services: gRPC on threads of its own, with or without TLS; probes, metrics, the status page and
//! the debug state over HTTP; health; and the shutdown. This crate serves answers, and must know nothing of their
//! content.

mod admin;
mod bind;
mod buffered_bytes;
mod calls;
mod check;
mod chunks;
mod connection;
mod grpc_address;
mod grpc_connections;
mod grpc_runtime;
mod grpc_services;
mod handshake_rate;
mod hosts;
mod http;
mod log_level;
mod metrics;
mod open_connections;
mod scrapes;
mod shutdown;
mod status;
mod tls;
mod turns;
mod unix_socket;

#[cfg(test)]
mod tests;

pub use admin::{CLUSTERS_PATH, DebugError, DebugPages, STATE_PATH, admin_router};
pub use bind::{BindError, bind};
pub use check::{Check, CheckState, Checks};
pub use connection::{Client, Connection, KnownConnection};
pub use grpc_address::{GrpcAddress, GrpcAddressError, GrpcListenError, GrpcListener};
pub use grpc_runtime::{GrpcThread, GrpcThreadError, serve_many_on_own_thread, serve_on_own_thread};
pub use grpc_services::{Health, ReflectionError, cloud_provider, standard_services};
pub use hosts::{AllowedHosts, HostName, HostNameError};
pub use http::{http_router, probe_router, serve_http};
pub use log_level::{LOG_LEVEL_PATH, LogLevel, LogLevels, log_level_router};
pub use metrics::{ReadinessMetrics, SharedRegistry, new_registry};
pub use shutdown::{GRACE, Outcome, Shutdown};
pub use status::{STYLE_PATH, StatusAnswer, StatusPages};
pub use tls::{
    AllowedClients, AllowedName, CertificateFacts, Certificates, ClientFiles, Inspection, NameError, TlsError,
    TlsFiles, TlsMetrics, TlsStanding, inspect,
};
pub use unix_socket::{PRIVATE_SOCKET, SocketError, SocketErrorReason, UnixSocket};
