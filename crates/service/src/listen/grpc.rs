//! Serves gRPC on a thread of its own. Cluster Autoscaler sends its calls one after another, and most are answered from
//! memory, so the latency of a single call counts: on a single-threaded runtime no call is handed from one thread to
//! another. Nothing may block here: calls to an API server run on the other runtime and are only awaited.
//!
//! hyper's connections are served here and not by tonic's `Server`, whose connections end in the middle of a loop, and
//! are cut with their calls when they have a time for that. A connection that has reached its age sends GOAWAY, answers
//! earlier calls, and then ends. Only one beyond a limit is cut.

use std::{
    convert::Infallible,
    future::{Future, poll_fn},
    io, mem,
    pin::pin,
    sync::Arc,
    task::Poll,
    thread,
    time::Duration,
};

use futures::{
    FutureExt as _, StreamExt as _, poll,
    stream::{self, BoxStream},
};
use http::{HeaderMap, Request, Response};
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::conn::auto::Builder,
    service::TowerToHyperService,
};
use parking_lot::Mutex;
use prost::bytes::Bytes;
use rules::log_limit::LogLimit;
use thiserror::Error;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, UnixListener},
    runtime,
    sync::{Semaphore, oneshot},
    task::{JoinSet, yield_now},
    time::{Instant, sleep, timeout},
};
use tokio_util::sync::CancellationToken;
use tonic::{Status, body::Body, service::Routes, transport::server::TcpIncoming};
use tower::{ServiceExt as _, service_fn};
use tracing::warn;

use index::LONGEST_LOOP;

use super::{
    Certificates, GrpcAddress, GrpcListener,
    address::SocketFile,
    bytes::{AllBytes, ByteLimits, ConnectionBytes},
    connections::{
        ACCEPT_PAUSE, Client, Connection, Limits, OpenCalls, OpenConnection, OpenConnections, Place, Source, UnderWay,
    },
    health::MAX_REQUEST_BYTES,
    tls::{self, HandshakeRates, Handshakes},
};

/// The idle time after which TCP keepalive probes a client.
const TCP_KEEPALIVE: Duration = Duration::from_secs(30);
/// The interval of keepalive pings to a silent client, and the time that it has to answer one.
const KEEPALIVE: Duration = Duration::from_secs(30);
const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(10);
pub(super) const MAX_HEADER_BYTES: u32 = 8 << 10;
/// The limit of the request bytes of one of many clients, which can't take those of all.
const MAX_REQUEST_BYTES_OF_MANY: usize = 16 << 20;
/// The share of the age by which a connection may end earlier, so that connections don't all end at once.
pub(super) const JITTER: f64 = 0.2;

/// The limits of gRPC.
#[derive(Clone, Copy, Debug)]
pub(super) struct GrpcLimits {
    /// The limits of connections.
    pub(super) connections: Limits,
    /// The time after a call, without another one, at which a connection that has reached its age ends: its caller is
    /// between two loops.
    pub(super) silence: Duration,
    /// The time after its age from which a connection ends even in the middle of a loop.
    pub(super) overtime: Duration,
    /// The maximum number of concurrent calls on a connection; gRPC clients let further ones wait.
    pub(super) streams: u32,
    /// The limits of bytes.
    pub(super) bytes: ByteLimits,
    /// The rates of TLS handshakes.
    pub(super) handshakes: HandshakeRates,
}

impl Default for GrpcLimits {
    /// A Cluster Autoscaler has one connection, and asks for the instances of all groups at once.
    fn default() -> Self {
        Self {
            connections: Limits {
                total: 64,
                per_peer: 16,
                age: Duration::from_secs(30 * 60),
                last_request: Duration::from_secs(5 * 60),
                ..Limits::default()
            },
            silence: Duration::from_secs(1),
            overtime: Duration::from_secs(5 * 60),
            streams: 256,
            bytes: ByteLimits { requests: MAX_REQUEST_BYTES, answers: 4 << 20, total: 96 << 20 },
            handshakes: HandshakeRates::default(),
        }
    }
}

impl GrpcLimits {
    /// Returns the limits for the autoscalers of thousands of clusters, many of which may come from one address.
    pub(super) fn of_many_clients() -> Self {
        let limits = Self::default();
        let connections = Limits { total: 4_096, per_peer: 1_024, per_identity: Some(8), ..limits.connections };
        let bytes = ByteLimits { requests: MAX_REQUEST_BYTES_OF_MANY, ..limits.bytes };
        let handshakes = HandshakeRates::of_many_clients();
        Self { connections, streams: 128, bytes, handshakes, ..limits }
    }
}

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

/// A connection, with TLS or without.
pub(super) trait Io: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Io for S {}

/// The peer of a connection.
#[derive(Debug)]
pub(super) struct Peer {
    /// The client that the connection counts for.
    pub(super) source: Source,
    /// The client, by the name that its writes are recorded with.
    pub(super) client: Client,
}

/// Connections that are ready to be served. An error has been logged, and a pause has passed.
type Incoming = BoxStream<'static, io::Result<(Box<dyn Io>, Peer)>>;

pub(super) fn serve_within(
    listener: GrpcListener,
    certificates: Option<Certificates>,
    routes: Routes,
    limits: GrpcLimits,
    shutdown: CancellationToken,
    drain: Duration,
) -> Result<GrpcThread, GrpcThreadError> {
    let runtime = runtime::Builder::new_current_thread().enable_all().build().map_err(GrpcThreadError::Start)?;
    let (address, incoming, file) = {
        let _context = runtime.enter();
        incoming(listener, certificates, limits.handshakes).map_err(GrpcThreadError::Start)?
    };
    let (send, ended) = oneshot::channel();
    let serve = move || {
        // However this thread ends, the program must not go on without gRPC.
        let _cancels = shutdown.clone().drop_guard();
        let too_late = async {
            shutdown.cancelled().await;
            sleep(drain).await;
        };
        runtime.block_on(async {
            tokio::select! {
                () = serve_connections(incoming, routes.prepare(), Arc::new(Listener::new(limits)), shutdown.clone()) => {}
                () = too_late => warn!("gRPC connections were still open at the end and have been cut off"),
            }
        });
        // Tasks, connections and the socket's file are gone before the end is reported.
        drop((runtime, file));
        // If this fails, the handle has been dropped.
        let _ = send.send(());
    };
    let thread = thread::Builder::new().name("grpc".to_owned()).spawn(serve).map_err(GrpcThreadError::Start)?;
    Ok(GrpcThread { address, ended: Some(ended), thread })
}

/// Converts the listener. It needs the context of the runtime that serves the connections.
fn incoming(
    listener: GrpcListener,
    certificates: Option<Certificates>,
    rates: HandshakeRates,
) -> io::Result<(GrpcAddress, Incoming, Option<SocketFile>)> {
    match listener {
        GrpcListener::Unix(socket) => {
            let address = GrpcAddress::Unix(socket.path().to_owned());
            let (listener, file) = socket.into_parts();
            let listener = UnixListener::from_std(listener)?;
            let accepted = stream::unfold(listener, async |listener| Some((listener.accept().await, listener)));
            let incoming = accepted.then(pause_after_error).map(|accepted| {
                let (stream, _) = accepted?;
                let peer = stream.peer_cred()?;
                let client = Client::of_user(peer.uid(), peer.pid());
                Ok((Box::new(stream) as Box<dyn Io>, Peer { source: Source::User(peer.uid()), client }))
            });
            Ok((address, incoming.boxed(), Some(file)))
        }
        GrpcListener::Tcp(listener) => {
            let address = GrpcAddress::Tcp(listener.local_addr()?);
            let incoming = TcpIncoming::from(TcpListener::from_std(listener)?);
            let incoming = incoming.with_nodelay(Some(true)).with_keepalive(Some(TCP_KEEPALIVE));
            let incoming = incoming.then(pause_after_error).boxed();
            let incoming = match certificates {
                Some(certificates) => tls::accept(incoming, certificates, Arc::new(Handshakes::new(rates))).boxed(),
                None => incoming
                    .map(|accepted| {
                        let stream = accepted?;
                        let address = stream.peer_addr()?;
                        let peer = Peer { source: address.ip().into(), client: Client::at(address) };
                        Ok((Box::new(stream) as Box<dyn Io>, peer))
                    })
                    .boxed(),
            };
            Ok((address, incoming, None))
        }
    }
}

async fn pause_after_error<S>(accepted: io::Result<S>) -> io::Result<S> {
    if let Err(error) = &accepted {
        warn!(%error, "can't accept a gRPC connection");
        sleep(ACCEPT_PAUSE).await;
    }
    accepted
}

/// Serves `routes` on incoming connections until `shutdown` is cancelled, and then completes the calls under way.
pub(super) async fn serve_connections(
    mut incoming: Incoming,
    routes: Routes,
    listener: Arc<Listener>,
    shutdown: CancellationToken,
) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            () = shutdown.cancelled() => break,
            () = listener.bytes.exceeded.notified() => listener.cut_largest(),
            accepted = incoming.next() => match accepted {
                Some(Ok((stream, peer))) => {
                    let (routes, shutdown) = (routes.clone(), shutdown.clone());
                    connections.spawn(Arc::clone(&listener).serve(stream, peer, routes, shutdown));
                }
                Some(Err(_)) => {}
                None => break,
            },
            Some(_) = connections.join_next() => {}
        }
    }
    drop(incoming);
    loop {
        tokio::select! {
            () = listener.bytes.exceeded.notified() => listener.cut_largest(),
            ended = connections.join_next() => if ended.is_none() {
                break;
            }
        }
    }
}

/// The limits of a listener, and the state that its connections share.
#[derive(Debug)]
pub(super) struct Listener {
    limits: GrpcLimits,
    open: OpenConnections,
    bytes: Arc<AllBytes>,
    /// The lines about clients beyond a limit, by the limit: clients could otherwise cause any number of them.
    logged: Mutex<LogLimit<&'static str>>,
}

impl Listener {
    pub(super) fn new(limits: GrpcLimits) -> Self {
        Self {
            limits,
            open: OpenConnections::new(limits.connections),
            bytes: Arc::default(),
            logged: Mutex::new(LogLimit::new(1)),
        }
    }

    fn open(&self, peer: &Peer) -> Place {
        let (place, evicted) = self.open.open(peer.source, Some(peer.client.identity().into_owned()), false);
        if let Some(client) = evicted
            && let Some(more) = self.may_log("connections")
        {
            let Limits { total, per_peer, per_identity, .. } = self.limits.connections;
            warn!(
                %client, total, per_peer, per_identity, more,
                "a client has too many gRPC connections: those that it uses least are closed"
            );
        }
        place
    }

    fn cut_largest(&self) {
        let limit = self.limits.bytes.total;
        for client in self.open.cut_largest(limit) {
            if let Some(more) = self.may_log("bytes") {
                warn!(
                    %client, limit, more,
                    "gRPC requests and unread answers are too large together: the largest connection is cut"
                );
            }
        }
    }

    fn may_log(&self, limit: &'static str) -> Option<u64> {
        self.logged.lock().allows(limit, 1, Instant::now().into_std())
    }

    /// Serves a connection until it ends, at its age, when it is cut, or at the shutdown.
    async fn serve(self: Arc<Self>, stream: Box<dyn Io>, peer: Peer, routes: Routes, shutdown: CancellationToken) {
        let place = self.open(&peer);
        let OpenConnection { calls, bytes, cut } = place.connection.clone();
        let GrpcLimits { connections, silence, overtime, streams, bytes: limits, .. } = self.limits;
        let bytes = ConnectionBytes::new(limits, bytes, &peer.client, &self.bytes);
        let caller = Connection::of(peer.client);
        let at_its_age = async {
            sleep(connections.age.mul_f64(1.0 - JITTER * fastrand::f64())).await;
            // One that is never silent ends anyway, and one that calls no more.
            let _ = timeout(overtime, calls.silence(silence)).await;
        };
        let turn = Arc::new(Semaphore::new(1));
        let answering = Answering { routes, bytes, caller: caller.clone(), calls: calls.clone(), turn };
        let service = service_fn(move |request| answering.clone().answer(request));
        let mut builder = Builder::new(TokioExecutor::new()).http2_only();
        builder
            .http2()
            .timer(TokioTimer::new())
            .keep_alive_interval(KEEPALIVE)
            .keep_alive_timeout(KEEPALIVE_TIMEOUT)
            .max_concurrent_streams(streams)
            .max_header_list_size(MAX_HEADER_BYTES);
        let mut serving = pin!(builder.serve_connection(TokioIo::new(stream), TowerToHyperService::new(service)));
        let rest = tokio::select! {
            // An error is the client's: it went away, or didn't speak HTTP/2.
            _ = serving.as_mut() => return,
            () = cut.cancelled() => return,
            () = at_its_age => {
                // It counts as open while its caller may be in its loop, which goes on over a new connection.
                if place.connection.has_called() {
                    tokio::spawn(sleep(LONGEST_LOOP).map(|()| drop(caller)));
                }
                connections.last_request
            }
            // The shutdown limits the time by itself.
            () = shutdown.cancelled() => Duration::MAX,
        };
        serving.as_mut().graceful_shutdown();
        tokio::select! {
            _ = timeout(rest, serving) => {}
            () = cut.cancelled() => {}
        }
    }
}

/// The service that answers the calls of a connection.
#[derive(Clone)]
struct Answering {
    routes: Routes,
    bytes: Arc<ConnectionBytes>,
    caller: Connection,
    calls: OpenCalls,
    turn: Arc<Semaphore>,
}

impl Answering {
    async fn answer<B>(self, request: Request<B>) -> Result<Response<Body>, Infallible>
    where
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let (calls, turn, under_way) = (self.calls.clone(), Arc::clone(&self.turn), self.calls.begin());
        in_turn(&turn, &calls, self.carry_out(request, under_way)).await
    }

    async fn carry_out<B>(self, mut request: Request<B>, under_way: UnderWay) -> Result<Response<Body>, Infallible>
    where
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        self.bytes.wait_for_capacity().await;
        let deadline = deadline(request.headers());
        request.extensions_mut().insert(self.caller);
        let (head, body) = request.into_parts();
        let (body, _held) = self.bytes.request(body);
        let answering = self.routes.oneshot(Request::from_parts(head, body));
        let answer = match deadline {
            None => answering.await,
            Some(deadline) => {
                let late = |_| Ok(Status::deadline_exceeded("the deadline of the call has passed").into_http());
                timeout(deadline, answering).await.unwrap_or_else(late)
            }
        }?;
        Ok(answer.map(|body| self.bytes.answer(body, under_way)))
    }
}

/// Carries out a call of a connection. One thread answers all calls in the order in which they come: a client that makes
/// hundreds at once must not make every other client wait for all of them. Each step of a call waits for the
/// connection's turn. When it has answered and others of its connection wait, the turn passes to them after all that is
/// ready and has arrived; a call that waits for something leaves its turn to them at once.
async fn in_turn<F: Future>(turn: &Semaphore, calls: &OpenCalls, call: F) -> F::Output {
    let mut call = pin!(call);
    loop {
        // It is never closed.
        let its_turn = turn.acquire().await;
        if let Poll::Ready(answer) = poll!(call.as_mut()) {
            if calls.are_several() {
                yield_now().await;
            }
            return answer;
        }
        drop(its_turn);
        woken().await;
    }
}

/// Waits until the task is woken by what it polled before.
async fn woken() {
    let mut is_woken = false;
    poll_fn(|_| if mem::replace(&mut is_woken, true) { Poll::Ready(()) } else { Poll::Pending }).await;
}

/// Parses the timeout that the client sets: up to 8 digits and a unit.
fn deadline(headers: &HeaderMap) -> Option<Duration> {
    let text = headers.get("grpc-timeout")?.to_str().ok()?;
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    if digits.is_empty() || digits.len() > 8 || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let number = digits.parse().ok()?;
    match unit {
        "H" => Some(Duration::from_secs(number * 60 * 60)),
        "M" => Some(Duration::from_secs(number * 60)),
        "S" => Some(Duration::from_secs(number)),
        "m" => Some(Duration::from_millis(number)),
        "u" => Some(Duration::from_micros(number)),
        "n" => Some(Duration::from_nanos(number)),
        _ => None,
    }
}

impl GrpcThread {
    /// Returns the address of the listener, with the actual port where 0 was requested.
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
    pub fn is_finished(&self) -> bool {
        self.thread.is_finished()
    }
}

#[cfg(test)]
mod tests {
    use futures::future::join_all;
    use http::{HeaderName, HeaderValue};
    use rstest::rstest;
    use tokio::sync::oneshot;

    use super::*;

    #[rstest]
    #[case("5S", Some(Duration::from_secs(5)))]
    #[case("2H", Some(Duration::from_secs(7_200)))]
    #[case("3M", Some(Duration::from_secs(180)))]
    #[case("4999966u", Some(Duration::from_micros(4_999_966)))]
    #[case("99999999n", Some(Duration::from_nanos(99_999_999)))]
    #[case("10m", Some(Duration::from_millis(10)))]
    #[case("999999999S", None)]
    #[case("-1S", None)]
    #[case("+1S", None)]
    #[case("S", None)]
    #[case("5", None)]
    #[case("5s", None)]
    #[case("", None)]
    fn a_deadline_is_read_as_the_protocol_has_it(#[case] text: &'static str, #[case] expected: Option<Duration>) {
        let headers = HeaderMap::from_iter([(HeaderName::from_static("grpc-timeout"), HeaderValue::from_static(text))]);
        assert_eq!(deadline(&headers), expected);
    }

    /// A write waits for an API server, and the reads behind it don't wait for the write. Nor do they for one whose
    /// client is gone.
    #[tokio::test]
    async fn a_call_that_waits_or_is_given_up_holds_up_no_other() {
        let (turn, calls) = (Semaphore::new(1), OpenCalls::default());
        let (answers, waiting): (Vec<_>, Vec<_>) = (0..3).map(|_| oneshot::channel::<()>()).unzip();
        let _several = [calls.begin(), calls.begin()];
        let mut writes = Box::pin(join_all(waiting.into_iter().map(|answer| in_turn(&turn, &calls, answer))));
        assert!(poll!(writes.as_mut()).is_pending());
        assert_eq!(in_turn(&turn, &calls, async { 5 }).await, 5);
        for answer in answers {
            answer.send(()).unwrap();
        }
        assert!(writes.await.iter().all(Result::is_ok));
        let mut given_up = Box::pin(in_turn(&turn, &calls, async {}));
        assert!(poll!(given_up.as_mut()).is_pending(), "it has answered, and leaves others their turn");
        drop(given_up);
        assert_eq!(turn.available_permits(), 1);
    }
}
