//! The connections that gRPC is served on, with their limits: the number of connections, their age, concurrent calls,
//! turns, and bytes. It must never fail a call that it has accepted: a connection that has to end sends GOAWAY, answers
//! earlier calls, and then ends.

use std::{
    collections::VecDeque,
    convert::Infallible,
    io,
    pin::pin,
    sync::Arc,
    time::{Duration, Instant},
};

use futures::{Stream, StreamExt as _};
use http::{HeaderMap, Request, Response};
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::conn::auto::Builder,
    service::TowerToHyperService,
};
use nodegroup::text::LogLimit;
use parking_lot::Mutex;
use prost::bytes::Bytes;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    sync::Semaphore,
    task::JoinSet,
    time::{sleep, timeout},
};
use tokio_util::sync::CancellationToken;
use tonic::{Status, body::Body, service::Routes};
use tower::{ServiceExt as _, service_fn};
use tracing::warn;

use super::{
    buffered_bytes::{AllBytes, BufferedBytes, ByteLimits, BytesOfClients, CallBytes, RequestBody, ResponseBody},
    calls::{Calls, UnderWay},
    chunks::Chunked,
    connection::{Client, Connection},
    grpc_services::MAX_REQUEST_BYTES,
    handshake_rate::HandshakeRates,
    open_connections::{Limits, OpenConnection, OpenConnections, Source},
    turns::Turns,
};

/// The interval of keepalive pings to a silent client, and the time that it has to answer one.
const KEEPALIVE: Duration = Duration::from_secs(30);
const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(10);
pub(super) const MAX_HEADER_BYTES: u32 = 8 << 10;
/// The limit of the request bytes of one of many clients, which can't take those of all.
const MAX_REQUEST_BYTES_OF_MANY: usize = 16 << 20;
/// The share of the age by which a connection may end earlier, so that connections don't all end at once.
pub(super) const JITTER: f64 = 0.2;
/// The maximum number of evicted connections that may answer their calls before they are cut.
const LEAVING: usize = 16;
/// The time in which the caller of an ended connection may still be in its loop: Cluster Autoscaler restarts itself
/// after ten minutes without one.
const LONGEST_LOOP: Duration = Duration::from_secs(15 * 60);
/// The maximum number of ended connections of one client that count as open: it has one loop at a time.
const ENDED_OF_ONE: usize = 8;

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
    /// The time in which an evicted connection may answer its calls.
    pub(super) leave: Duration,
    /// The maximum number of concurrent calls on a connection; gRPC clients let further ones wait.
    pub(super) streams: u32,
    /// The limits of bytes.
    pub(super) bytes: ByteLimits,
    /// True if all connections of a client have the bytes of one.
    pub(super) shares_bytes: bool,
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
            leave: Duration::from_secs(30),
            streams: 256,
            bytes: ByteLimits { requests: MAX_REQUEST_BYTES, answers: 4 << 20, total: 96 << 20 },
            shares_bytes: false,
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
        Self { connections, streams: 128, bytes, shares_bytes: true, handshakes, ..limits }
    }
}

/// The limits of a listener, and the state that its connections share.
#[derive(Debug)]
pub(super) struct Listener {
    limits: GrpcLimits,
    open: OpenConnections,
    all_bytes: Arc<AllBytes>,
    bytes_of_clients: BytesOfClients,
    leaving: Semaphore,
    /// The connections that this program has ended lately, the last one last. They still count as open, since their
    /// callers continue their loop on a new connection.
    ended: Mutex<VecDeque<(Instant, Connection)>>,
    /// The lines about clients beyond a limit, by the limit: clients could otherwise cause any number of them.
    logged: Mutex<LogLimit<&'static str>>,
}

/// The peer of a connection.
#[derive(Debug)]
pub(super) struct Peer {
    /// The client that the connection counts for.
    pub(super) source: Source,
    /// The client, by the name that its writes are recorded with.
    pub(super) client: Client,
}

/// Serves `routes` on incoming connections until `shutdown` is cancelled, and then completes the calls under way.
pub(super) async fn serve_connections<S>(
    mut incoming: impl Stream<Item = io::Result<(S, Peer)>> + Unpin,
    routes: Routes,
    listener: Arc<Listener>,
    shutdown: CancellationToken,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let mut connections = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            () = shutdown.cancelled() => break,
            () = listener.all_bytes.exceeded.notified() => {
                listener.cut_largest();
                continue;
            }
            accepted = incoming.next() => accepted,
        };
        match accepted {
            Some(Ok((stream, Peer { source, client }))) => {
                let connection = listener.open(source, &client);
                let (routes, listener, shutdown) = (routes.clone(), Arc::clone(&listener), shutdown.clone());
                // Otherwise each future that it is handed on to would have a place for it.
                let stream = Box::new(stream);
                connections.spawn(async move {
                    listener.serve(stream, client, routes, connection, shutdown).await;
                });
            }
            // The error has been logged, and a pause has passed.
            Some(Err(_)) => {}
            None => break,
        }
        while connections.try_join_next().is_some() {}
    }
    drop(incoming);
    loop {
        tokio::select! {
            () = listener.all_bytes.exceeded.notified() => listener.cut_largest(),
            ended = connections.join_next() => if ended.is_none() {
                break;
            }
        }
    }
}

impl Listener {
    pub(super) fn new(limits: GrpcLimits) -> Self {
        Self {
            limits,
            open: OpenConnections::new(limits.connections),
            all_bytes: Arc::default(),
            bytes_of_clients: BytesOfClients::default(),
            leaving: Semaphore::new(LEAVING),
            ended: Mutex::default(),
            logged: Mutex::new(LogLimit::new(1)),
        }
    }

    fn open(&self, source: Source, client: &Client) -> OpenConnection {
        self.forget_ended(Instant::now());
        let (connection, lost) = self.open.open_of(source, client.identity().into_owned());
        if let Some(client) = lost
            && let Some(more) = self.may_log("connections")
        {
            let Limits { total, per_peer, per_identity, .. } = self.limits.connections;
            warn!(
                %client, total, per_peer, per_identity, more,
                "a client has too many gRPC connections: those that it uses least are closed"
            );
        }
        connection
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
        self.logged.lock().allows(limit, 1, Instant::now())
    }

    async fn serve<S>(
        &self,
        stream: S,
        client: Client,
        routes: Routes,
        connection: OpenConnection,
        shutdown: CancellationToken,
    ) where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let GrpcLimits { connections, silence, overtime, leave, streams, bytes, .. } = self.limits;
        let Limits { age, last_request, .. } = connections;
        let limited = if self.limits.shares_bytes { self.bytes_of_clients.of(&client) } else { Arc::default() };
        let buffered = Arc::new(BufferedBytes::new(bytes, limited, Arc::clone(&self.all_bytes)));
        let cut = connection.set_buffered(Arc::clone(&buffered));
        let (caller, calls, turns) = (Connection::of(client), connection.calls(), Arc::new(Turns::default()));
        let at_its_age = {
            let calls = calls.clone();
            async move {
                sleep(age.mul_f64(1.0 - JITTER * fastrand::f64())).await;
                // One that is never silent ends anyway, and one that calls no more.
                let _ = timeout(overtime, calls.silence(silence)).await;
            }
        };
        let answering = Answering { routes, buffered, caller: caller.clone(), calls, turns: Arc::clone(&turns) };
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
        let mut turns = pin!(turns.begin_each());
        let mut leaving = None;
        let rest = tokio::select! {
            // An error is the client's: it went away, or didn't speak HTTP/2.
            _ = serving.as_mut() => return,
            never = turns.as_mut() => match never {},
            () = cut.cancelled() => return,
            () = connection.excess.cancelled() => {
                leaving = self.leaving.try_acquire().ok().filter(|_| connection.has_called());
                if leaving.is_none() {
                    return;
                }
                leave
            }
            () = at_its_age => last_request,
            // The shutdown limits the time by itself.
            () = shutdown.cancelled() => Duration::MAX,
        };
        if connection.has_called() {
            self.remember(caller, Instant::now());
        }
        serving.as_mut().graceful_shutdown();
        tokio::select! {
            _ = timeout(rest, serving) => {}
            never = turns => match never {},
            () = cut.cancelled() => {}
            () = connection.excess.cancelled(), if leaving.is_none() => {}
        }
        drop(leaving);
    }

    /// Lets an ended connection count as open while its caller may be in its loop. As many are remembered as there may
    /// be open ones: those of one start end together. Few of them are of one client, so that it takes no place from
    /// others.
    fn remember(&self, caller: Connection, now: Instant) {
        self.forget_ended(now);
        let mut ended = self.ended.lock();
        let identity = caller.client().identity();
        let is_its = |index: &usize| ended[*index].1.client().identity() == identity;
        let its: Vec<_> = (0..ended.len()).filter(is_its).collect();
        if let [first, ..] = its[..]
            && its.len() >= ENDED_OF_ONE
        {
            ended.remove(first);
        } else if ended.len() >= self.limits.connections.total {
            ended.pop_front();
        }
        drop(identity);
        ended.push_back((now, caller));
    }

    /// Forgets the ended connections whose callers can't be in their loop any more.
    fn forget_ended(&self, now: Instant) {
        let mut ended = self.ended.lock();
        while ended.front().is_some_and(|(at, _)| now.saturating_duration_since(*at) >= LONGEST_LOOP) {
            ended.pop_front();
        }
    }
}

/// The service that answers the calls of a connection.
#[derive(Clone)]
struct Answering {
    routes: Routes,
    buffered: Arc<BufferedBytes>,
    caller: Connection,
    calls: Calls,
    turns: Arc<Turns>,
}

impl Answering {
    async fn answer<B>(self, request: Request<B>) -> Result<Response<Chunked<ResponseBody<Body>>>, Infallible>
    where
        B: http_body::Body<Data = Bytes> + Send + Unpin + 'static,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let (turns, under_way) = (Arc::clone(&self.turns), self.calls.begin());
        turns.carry_out(self.answer_in_turn(request, under_way)).await
    }

    async fn answer_in_turn<B>(
        self,
        mut request: Request<B>,
        under_way: UnderWay,
    ) -> Result<Response<Chunked<ResponseBody<Body>>>, Infallible>
    where
        B: http_body::Body<Data = Bytes> + Send + Unpin + 'static,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        self.calls.count();
        self.buffered.wait_for_capacity().await;
        let call = CallBytes::new(&self.buffered);
        let deadline = deadline(request.headers());
        request.extensions_mut().insert(self.caller);
        let request = request.map(|body| Body::new(RequestBody::new(body, Arc::clone(&call))));
        let answering = self.routes.oneshot(request);
        let answer = match deadline {
            None => answering.await,
            Some(deadline) => {
                let late = |_| Ok(Status::deadline_exceeded("the deadline of the call has passed").into_http());
                timeout(deadline, answering).await.unwrap_or_else(late)
            }
        }?;
        let answer = call.refusal().map_or(answer, Status::into_http);
        let (head, body) = answer.into_parts();
        Ok(Response::from_parts(head, Chunked::new(ResponseBody::new(body, self.buffered, under_way).await)))
    }
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

#[cfg(test)]
mod tests {
    use http::{HeaderName, HeaderValue};
    use rstest::rstest;

    use super::*;
    use crate::KnownConnection;

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

    /// Returns a connection of a client by this name that ends now.
    fn remembered(listener: &Listener, name: &str, now: Instant) -> KnownConnection {
        let connection = Connection::of(Client { name: name.into(), ..Client::default() });
        let known = connection.known();
        listener.remember(connection, now);
        known
    }

    /// After a start of the program the connections of all Clusters have the same age.
    #[test]
    fn ended_connections_count_as_open_for_as_long_as_a_loop_may_take() {
        let (listener, now) = (Listener::new(GrpcLimits::of_many_clients()), Instant::now());
        let ended: Vec<_> = (0..1_000).map(|number| remembered(&listener, &number.to_string(), now)).collect();
        let open = || ended.iter().filter(|known| known.is_open()).count();
        listener.forget_ended(now + LONGEST_LOOP / 2);
        assert_eq!(open(), 1_000);
        listener.forget_ended(now + LONGEST_LOOP);
        assert_eq!(open(), 0);
    }

    #[test]
    fn no_more_ended_connections_are_remembered_than_there_may_be_open_ones() {
        let (listener, now) = (Listener::new(GrpcLimits::default()), Instant::now());
        let known = remembered(&listener, "first", now);
        for number in 0..listener.limits.connections.total {
            assert!(known.is_open());
            remembered(&listener, &number.to_string(), now);
        }
        assert!(!known.is_open());
    }

    /// One that opens connections without end lets the earlier ones be evicted.
    #[test]
    fn ended_connections_of_one_client_take_no_place_from_those_of_another() {
        let (listener, now) = (Listener::new(GrpcLimits::of_many_clients()), Instant::now());
        let other = remembered(&listener, "other", now);
        let many = (0..10_000).map(|_| remembered(&listener, "many", now)).collect::<Vec<_>>();
        assert!(other.is_open());
        let open: Vec<_> = (0..many.len()).filter(|number| many[*number].is_open()).collect();
        assert_eq!(open, (10_000 - ENDED_OF_ONE..10_000).collect::<Vec<_>>(), "its last ones");
    }
}
