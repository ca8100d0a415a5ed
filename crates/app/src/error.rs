//! The reasons why the program can't start. Without its source chain, a message names only the failed part.

use std::io;

use thiserror::Error;

use crate::prices::PriceFileError;
use connect::ConnectError;
use scale::traces::TracesError;
use service::listen::{BindError, GrpcListenError, GrpcThreadError, ReflectionError, TlsError};

/// The reason why the program can't start.
#[derive(Debug, Error)]
pub enum StartError {
    /// The listener of gRPC can't be opened.
    #[error(transparent)]
    Grpc(#[from] GrpcListenError),
    /// A listener of HTTP can't be opened.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// The operating system doesn't return a listener's address.
    #[error("a listener has no address")]
    Address(#[source] io::Error),
    /// The price file is unusable.
    #[error(transparent)]
    Prices(#[from] PriceFileError),
    /// The configuration for reaching the management cluster is unusable.
    #[error("management cluster")]
    Management(#[source] ConnectError),
    /// The configuration for reaching the workload cluster is unusable.
    #[error("workload cluster")]
    Workload(#[source] ConnectError),
    /// The files of TLS are unusable.
    #[error("TLS")]
    Tls(#[source] TlsError),
    /// gRPC reflection can't be served.
    #[error("gRPC reflection")]
    Reflection(#[source] ReflectionError),
    /// The collector of traces is unusable.
    #[error(transparent)]
    Traces(#[from] TracesError),
    /// The listener of gRPC doesn't authenticate the clients of a fleet.
    #[error(
        "a fleet is served over TLS to clients with certificates only, since those name their Clusters: give an IP address \
         and a port, and the files of the certificate, its key and the client authority"
    )]
    Unauthenticated,
    /// The thread of gRPC can't be started.
    #[error(transparent)]
    Thread(#[from] GrpcThreadError),
}
