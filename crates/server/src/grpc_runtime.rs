//! The thread that answers gRPC. Cluster Autoscaler sends its calls one after another, and most are
//! answered from memory, so the latency of a single call counts: on a single-threaded runtime no call is handed from
//! one thread to another. Nothing may block here: calls to an API server run on the other runtime and are only awaited.

use std::{future::Future, io, sync::Arc, thread, time::Duration};

use futures::{StreamExt, stream};
use thiserror::Error;
use tokio::{
    runtime::{Builder, Runtime},
    sync::oneshot,
};
use tokio_util::sync::CancellationToken;
use tonic::{service::Routes, transport::server::TcpIncoming};
use tracing::warn;

use super::{
    Certificates, GrpcAddress, GrpcListener,
    connection::Client,
    grpc_connections::{GrpcLimits, Listener, Peer, serve_connections},
    open_connections::Source,
    tls::{self, Handshakes},
    unix_socket::SocketFile,
};

/// The idle time after which TCP keepalive probes a client.
const KEEPALIVE: Duration = Duration::from_secs(30);
/// The pause after a failed accept. If file descriptors are exhausted, for example, an immediate retry would keep the
/// thread from answering other connections.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The reason why the gRPC thread couldn't be started, or ended by itself.
#[derive(Debug, Error)]
pub enum GrpcThreadError {
    /// No thread or runtime could be created.
    #[error("can't start the gRPC thread")]
    Start(#[source] io::Error),
    /// The thread ended without a result.
    #[error("the gRPC thread panicked: this is a defect, report it with the log before it")]
    Panicked,
}

/// A handle of the running thread. Dropping it leaves it running until its token is cancelled.
#[derive(Debug)]
pub struct GrpcThread {
    address: GrpcAddress,
    /// `None` once its result was taken.
    ended: Option<oneshot::Receiver<()>>,
    thread: thread::JoinHandle<()>,
}

/// Serves `routes` on a thread of its own, named `grpc`, until `shutdown` is cancelled. Then it accepts no further
/// connection, answers the calls under way, and cuts the rest after `drain` (a health watch never ends by itself). If
/// the server ends for another reason, it cancels `shutdown`. `listener` must be non-blocking. Without `certificates`
/// it serves without TLS, as always on a Unix socket.
///
/// # Errors
/// If the thread or its runtime can't be created. Later errors come from [`GrpcThread::ended`].
pub fn serve_on_own_thread(
    listener: impl Into<GrpcListener>,
    certificates: Option<Certificates>,
    routes: Routes,
    shutdown: CancellationToken,
    drain: Duration,
) -> Result<GrpcThread, GrpcThreadError> {
    serve_within(listener.into(), certificates, routes, GrpcLimits::default(), shutdown, drain)
}

/// Serves like [`serve_on_own_thread`], for the clients of thousands of clusters.
///
/// # Errors
/// As [`serve_on_own_thread`].
pub fn serve_many_on_own_thread(
    listener: impl Into<GrpcListener>,
    certificates: Certificates,
    routes: Routes,
    shutdown: CancellationToken,
    drain: Duration,
) -> Result<GrpcThread, GrpcThreadError> {
    serve_within(listener.into(), Some(certificates), routes, GrpcLimits::of_many_clients(), shutdown, drain)
}

pub(super) fn serve_within(
    listener: GrpcListener,
    certificates: Option<Certificates>,
    routes: Routes,
    limits: GrpcLimits,
    shutdown: CancellationToken,
    drain: Duration,
) -> Result<GrpcThread, GrpcThreadError> {
    let runtime = Builder::new_current_thread().enable_all().build().map_err(GrpcThreadError::Start)?;
    let (address, incoming) = {
        let _context = runtime.enter();
        incoming(listener).map_err(GrpcThreadError::Start)?
    };
    let handshakes = Arc::new(Handshakes::new(limits.handshakes));
    let service =
        Service { certificates, handshakes, routes, listener: Arc::new(Listener::new(limits)), shutdown, drain };
    service.start(address, runtime, incoming)
}

/// The incoming connections, of either kind.
enum Incoming {
    Tcp(TcpIncoming),
    Unix(tokio::net::UnixListener, SocketFile),
}

/// Converts the listener. It needs the context of the runtime that serves the connections.
fn incoming(listener: GrpcListener) -> io::Result<(GrpcAddress, Incoming)> {
    match listener {
        GrpcListener::Tcp(listener) => {
            let address = GrpcAddress::Tcp(listener.local_addr()?);
            let incoming = TcpIncoming::from(tokio::net::TcpListener::from_std(listener)?);
            Ok((address, Incoming::Tcp(incoming.with_nodelay(Some(true)).with_keepalive(Some(KEEPALIVE)))))
        }
        GrpcListener::Unix(socket) => {
            let address = GrpcAddress::Unix(socket.path().to_owned());
            let (listener, file) = socket.into_parts();
            Ok((address, Incoming::Unix(tokio::net::UnixListener::from_std(listener)?, file)))
        }
    }
}

struct Service {
    certificates: Option<Certificates>,
    handshakes: Arc<Handshakes>,
    routes: Routes,
    listener: Arc<Listener>,
    shutdown: CancellationToken,
    drain: Duration,
}

impl Service {
    fn start(self, address: GrpcAddress, runtime: Runtime, incoming: Incoming) -> Result<GrpcThread, GrpcThreadError> {
        let (send, ended) = oneshot::channel();
        let serve = move || {
            // However this thread ends, the program must not go on without gRPC.
            let _cancels = self.shutdown.clone().drop_guard();
            self.run(&runtime, incoming);
            // Tasks and connections are dropped before the end is reported.
            drop(runtime);
            // If this fails, the handle has been dropped.
            let _ = send.send(());
        };
        let thread = thread::Builder::new().name("grpc".to_owned()).spawn(serve).map_err(GrpcThreadError::Start)?;
        Ok(GrpcThread { address, ended: Some(ended), thread })
    }

    fn run(self, runtime: &Runtime, incoming: Incoming) {
        let Self { certificates, handshakes, routes, listener, shutdown, drain } = self;
        let (routes, stopping) = (routes.prepare(), shutdown.clone());
        runtime.block_on(async {
            let incoming = match incoming {
                Incoming::Tcp(incoming) => incoming.then(pause_after_error).boxed(),
                Incoming::Unix(socket, _file) => {
                    let accepted = stream::unfold(socket, async |socket| Some((socket.accept().await, socket)));
                    let incoming = accepted.then(pause_after_error).boxed().map(|accepted| {
                        let (stream, _) = accepted?;
                        let peer = stream.peer_cred()?;
                        let client = Client::of_user(peer.uid(), peer.pid());
                        Ok((stream, Peer { source: Source::User(peer.uid()), client }))
                    });
                    limited(serve_connections(incoming, routes, listener, stopping), shutdown, drain).await;
                    return;
                }
            };
            if let Some(certificates) = certificates {
                let incoming = tls::accept(incoming, certificates, handshakes);
                limited(serve_connections(incoming, routes, listener, stopping), shutdown, drain).await;
            } else {
                let incoming = incoming.map(|accepted| {
                    let stream = accepted?;
                    let address = stream.peer_addr()?;
                    Ok((stream, Peer { source: Source::from(address.ip()), client: Client::at(address) }))
                });
                limited(serve_connections(incoming, routes, listener, stopping), shutdown, drain).await;
            }
        });
    }
}

async fn limited(serving: impl Future<Output = ()>, shutdown: CancellationToken, drain: Duration) {
    tokio::select! {
        () = serving => {}
        () = async {
            shutdown.cancelled().await;
            tokio::time::sleep(drain).await;
        } => warn!("gRPC connections were still open at the end and have been cut off"),
    }
}

async fn pause_after_error<S>(accepted: io::Result<S>) -> io::Result<S> {
    if let Err(error) = &accepted {
        warn!(%error, "can't accept a gRPC connection");
        tokio::time::sleep(ACCEPT_PAUSE).await;
    }
    accepted
}

impl GrpcThread {
    /// Returns the address of the listener, with the actual port where 0 was requested.
    #[must_use]
    pub fn address(&self) -> &GrpcAddress {
        &self.address
    }

    /// Waits until the server has ended. It may be dropped and awaited again, in a `select!` for example. It returns
    /// the result once.
    ///
    /// # Errors
    /// If the thread panicked.
    pub async fn ended(&mut self) -> Result<(), GrpcThreadError> {
        let Some(ended) = &mut self.ended else { return Ok(()) };
        let result = ended.await.map_err(|_| GrpcThreadError::Panicked);
        self.ended = None;
        result
    }

    /// Returns true if the thread has ended and dropped all it held.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.thread.is_finished()
    }
}
