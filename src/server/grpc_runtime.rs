//! The thread that answers gRPC. The Cluster Autoscaler sends its calls one after another and most are answered
//! from memory, so what counts is the latency of one call: on a runtime with one thread of its
//! own no call is handed from one thread to another. Nothing may block here: whatever asks an API server runs on the
//! other runtime and is only waited for.

use std::{
    future::Future,
    io,
    net::{SocketAddr, TcpListener},
    thread,
    time::Duration,
};

use futures::StreamExt;
use thiserror::Error;
use tokio::{
    net::TcpStream,
    runtime::{Builder, Runtime},
    sync::oneshot,
};
use tokio_util::sync::CancellationToken;
use tonic::{
    body::Body,
    service::Routes,
    transport::{Server, server::TcpIncoming},
};
use tower::util::MapResponseLayer;
use tracing::warn;

use super::{Certificates, connection::Tracked, pieces::InPieces, tls};

/// After the first sign that a client may be gone: how often it is asked, and how long it may be silent.
const KEEPALIVE: Duration = Duration::from_secs(30);
const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(10);
/// The Cluster Autoscaler asks for the instances of all groups at once; each call under way holds one stream.
const MAX_STREAMS: u32 = 4096;
/// When no connection can be accepted, for want of file descriptors for example, trying at once again would burn
/// the thread that answers the others.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Why the gRPC thread couldn't be started, or ended with an error.
#[derive(Debug, Error)]
pub enum GrpcThreadError {
    /// No thread or runtime could be made.
    #[error("can't start the gRPC thread")]
    Start(#[source] io::Error),
    /// The server ended by itself.
    #[error("the gRPC server ended by itself")]
    Serve(#[source] tonic::transport::Error),
    /// The thread ended without a result.
    #[error("the gRPC thread panicked: this is a defect, report it with the log before it")]
    Panicked,
}

/// The running thread. Dropping it leaves the thread running until its token is cancelled.
#[derive(Debug)]
pub struct GrpcThread {
    address: SocketAddr,
    /// `None` once its word was taken.
    ended: Option<oneshot::Receiver<Result<(), GrpcThreadError>>>,
    thread: thread::JoinHandle<()>,
}

/// Serves `routes` on a thread of its own, named `grpc`, until `shutdown` is cancelled. Then no connection is
/// accepted any more, calls under way are answered, and after `drain` what is left is cut off (a health watch has
/// no end of its own). If the server ends for another reason, it cancels `shutdown`. `listener` must be non-blocking.
/// Without `certificates` it serves without TLS.
///
/// # Errors
/// When no thread or runtime can be made. Later errors come from [`GrpcThread::ended`].
pub fn serve_on_own_thread(
    listener: TcpListener,
    certificates: Option<Certificates>,
    routes: Routes,
    shutdown: CancellationToken,
    drain: Duration,
) -> Result<GrpcThread, GrpcThreadError> {
    let address = listener.local_addr().map_err(GrpcThreadError::Start)?;
    let runtime = Builder::new_current_thread().enable_all().build().map_err(GrpcThreadError::Start)?;
    let incoming = {
        let _context = runtime.enter();
        TcpIncoming::from(tokio::net::TcpListener::from_std(listener).map_err(GrpcThreadError::Start)?)
            .with_nodelay(Some(true))
            .with_keepalive(Some(KEEPALIVE))
    };
    let (send, ended) = oneshot::channel();
    let thread = thread::Builder::new()
        .name("grpc".to_owned())
        .spawn(move || {
            // However this ends, nobody goes on believing that gRPC is served.
            let _cancels = shutdown.clone().drop_guard();
            let result = run(runtime, incoming, certificates, routes, shutdown, drain);
            // Nobody waits any more if this fails.
            let _ = send.send(result);
        })
        .map_err(GrpcThreadError::Start)?;
    Ok(GrpcThread { address, ended: Some(ended), thread })
}

/// Takes the runtime by value: when it returns, its tasks and connections are gone.
fn run(
    runtime: Runtime,
    incoming: TcpIncoming,
    certificates: Option<Certificates>,
    routes: Routes,
    shutdown: CancellationToken,
    drain: Duration,
) -> Result<(), GrpcThreadError> {
    let incoming = incoming.then(pause_after_error).boxed();
    let server = Server::builder()
        .http2_keepalive_interval(Some(KEEPALIVE))
        .http2_keepalive_timeout(Some(KEEPALIVE_TIMEOUT))
        .max_concurrent_streams(MAX_STREAMS)
        .layer(MapResponseLayer::new(|answer: http::Response<Body>| answer.map(in_pieces)));
    let (routes, stopping) = (routes.prepare(), shutdown.clone().cancelled_owned());
    let result = match certificates {
        None => {
            let incoming = incoming.map(|accepted| accepted.map(Tracked::new));
            let serving = server.serve_with_incoming_shutdown(routes, incoming, stopping);
            runtime.block_on(limited(serving, shutdown, drain))
        }
        Some(certificates) => runtime.block_on(async {
            let connections = tls::accept(incoming, certificates).map(|accepted| accepted.map(Tracked::new));
            limited(server.serve_with_incoming_shutdown(routes, connections, stopping), shutdown, drain).await
        }),
    };
    drop(runtime);
    result.map_err(GrpcThreadError::Serve)
}

fn in_pieces(body: Body) -> Body {
    Body::new(InPieces::new(body))
}

async fn limited<E>(
    serving: impl Future<Output = Result<(), E>>,
    shutdown: CancellationToken,
    drain: Duration,
) -> Result<(), E> {
    tokio::select! {
        result = serving => result,
        () = async {
            shutdown.cancelled().await;
            tokio::time::sleep(drain).await;
        } => {
            warn!("gRPC connections were still open at the end and have been cut off");
            Ok(())
        }
    }
}

async fn pause_after_error(accepted: io::Result<TcpStream>) -> io::Result<TcpStream> {
    if let Err(error) = &accepted {
        warn!(%error, "can't accept a gRPC connection");
        tokio::time::sleep(ACCEPT_PAUSE).await;
    }
    accepted
}

impl GrpcThread {
    /// The address that is listened on: its port is known even where 0 was asked for.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Waits until the server has ended. It may be dropped and awaited again, in a `select!` for example; how the
    /// server ended is told once.
    ///
    /// # Errors
    /// When the server failed or its thread panicked.
    pub async fn ended(&mut self) -> Result<(), GrpcThreadError> {
        let Some(ended) = &mut self.ended else { return Ok(()) };
        let result = ended.await.unwrap_or(Err(GrpcThreadError::Panicked));
        self.ended = None;
        result
    }

    /// Whether the thread itself is gone, with all it held.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.thread.is_finished()
    }
}
