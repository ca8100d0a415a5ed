//! Clients that open too much, read nothing or send nothing, and their effect on a Cluster Autoscaler beside them.

use std::{
    collections::HashSet,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
        mpsc,
    },
    time::Duration,
};

use axum::{Extension, Router, body::Bytes, routing::post};
use futures::future::join_all;
use http::Request;
use parking_lot::Mutex;
use rstest::rstest;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    sync::{Notify, watch},
    time::timeout,
};
use tokio_util::sync::CancellationToken;
use tonic::service::Routes;

use super::{LIMIT, listener, tcp};
use crate::listen::{
    Connection, GrpcThread, KnownConnection, bytes::ByteLimits, connections::Limits, grpc::GrpcLimits,
    grpc::serve_within,
};

pub(super) const MIB: usize = 1 << 20;

/// The state that the handlers here share, with a record of their calls.
#[derive(Clone)]
pub(super) struct Served {
    pub(super) calls: Arc<AtomicUsize>,
    /// Lets `/waits` end.
    pub(super) go_on: watch::Sender<bool>,
    pub(super) waiting: Arc<Notify>,
    /// Lets `/blocks` give the thread free.
    pub(super) unblock: mpsc::Sender<()>,
    pub(super) callers: Arc<Mutex<Vec<KnownConnection>>>,
    /// The clients of the calls of `/small`, in their order.
    pub(super) order: Arc<Mutex<Vec<String>>>,
}

pub(super) struct Running {
    pub(super) grpc: GrpcThread,
    pub(super) served: Served,
    pub(super) shutdown: CancellationToken,
}

pub(super) fn serve(limits: GrpcLimits) -> Running {
    serve_with_drain(limits, Duration::ZERO)
}

pub(super) fn serve_with_drain(limits: GrpcLimits, drain: Duration) -> Running {
    let (unblock, blocked) = mpsc::channel();
    let blocked = Arc::new(Mutex::new(blocked));
    let served = Served {
        calls: Arc::default(),
        go_on: watch::channel(false).0,
        waiting: Arc::default(),
        unblock,
        callers: Arc::default(),
        order: Arc::default(),
    };
    let [small, large, waits, reads, blocks] = [(); 5].map(|()| served.clone());
    let paths = Router::new()
        .route(
            "/small",
            post(async move |Extension(caller): Extension<Connection>| {
                small.calls.fetch_add(1, Ordering::Relaxed);
                small.callers.lock().push(caller.known());
                small.order.lock().push(caller.client().name.to_string());
                "small"
            }),
        )
        .route("/client", post(async move |Extension(caller): Extension<Connection>| caller.client().name.to_string()))
        .route(
            "/large",
            post(async move || {
                large.calls.fetch_add(1, Ordering::Relaxed);
                vec![b'x'; MIB]
            }),
        )
        .route(
            "/waits",
            post(async move || {
                waits.calls.fetch_add(1, Ordering::Relaxed);
                waits.waiting.notify_one();
                let _ = waits.go_on.subscribe().wait_for(|go_on| *go_on).await;
                "waited"
            }),
        )
        .route(
            "/blocks",
            post(async move || {
                blocks.waiting.notify_one();
                // The thread answers nothing meanwhile.
                blocked.lock().recv_timeout(LIMIT).map_or("not unblocked", |()| "blocked")
            }),
        )
        .route(
            "/reads",
            post(async move |body: axum::body::Body| {
                reads.waiting.notify_one();
                axum::body::to_bytes(body, usize::MAX).await.map_or("refused", |_| "read")
            }),
        );
    let shutdown = CancellationToken::new();
    let grpc = serve_within(listener().into(), None, Routes::from(paths), limits, shutdown.clone(), drain).unwrap();
    Running { grpc, served, shutdown }
}

/// An HTTP/2 connection.
#[derive(Clone)]
pub(super) struct Client {
    /// Its address, as the server sees it.
    address: SocketAddr,
    pub(super) calls: h2::client::SendRequest<Bytes>,
    /// The connection's result; `None` until it has ended.
    ended: watch::Receiver<Option<Result<(), Option<h2::Reason>>>>,
}

impl Client {
    pub(super) async fn connect(running: &Running, window: u32) -> Self {
        let stream = TcpStream::connect(tcp(&running.grpc)).await.unwrap();
        let address = stream.local_addr().unwrap();
        let mut builder = h2::client::Builder::new();
        builder.initial_window_size(window).initial_connection_window_size(1 << 30);
        let (calls, connection) = builder.handshake(stream).await.unwrap();
        let (end, ended) = watch::channel(None);
        tokio::spawn(async move {
            let _ = end.send(Some(connection.await.map_err(|error| error.reason())));
        });
        Self { address, calls, ended }
    }

    async fn begins(&self, path: &str) -> (h2::client::ResponseFuture, h2::SendStream<Bytes>) {
        let mut calls = timeout(LIMIT, self.calls.clone().ready()).await.unwrap().unwrap();
        let request = Request::post(format!("http://a{path}")).body(()).unwrap();
        calls.send_request(request, false).unwrap()
    }

    /// Begins a call. Its answer arrives when the server has produced it, and its body when it is read.
    pub(super) async fn begins_call(&self, path: &str) -> h2::client::ResponseFuture {
        let (answer, mut body) = self.begins(path).await;
        body.send_data(Bytes::new(), true).unwrap();
        answer
    }

    /// Connects, and begins a call that waits until [`Client::ends_with`].
    pub(super) async fn with_a_waiting_call(running: &Running) -> (Self, h2::client::ResponseFuture) {
        let client = Self::connect(running, 65_535).await;
        let waits = client.begins_call("/waits").await;
        timeout(LIMIT, running.served.waiting.notified()).await.unwrap();
        (client, waits)
    }

    /// Lets a call that waits go on, which is answered before the connection ends by GOAWAY.
    pub(super) async fn ends_with(&mut self, waits: h2::client::ResponseFuture, running: &Running) {
        running.served.go_on.send_replace(true);
        assert_eq!(read(waits).await.unwrap(), b"waited");
        assert_eq!(self.has_ended().await, Ok(()), "GOAWAY without an error");
    }

    pub(super) async fn calls(&self, path: &str) -> Result<Vec<u8>, h2::Error> {
        read(self.begins_call(path).await).await
    }

    /// Waits until it accepts no new call.
    pub(super) async fn has_received_goaway(&self) {
        let received = async {
            while let Ok(ready) = self.calls.clone().ready().await {
                drop(ready);
                tokio::task::yield_now().await;
            }
        };
        timeout(LIMIT, received).await.unwrap();
    }

    pub(super) async fn has_ended(&mut self) -> Result<(), Option<h2::Reason>> {
        timeout(LIMIT, self.ended.wait_for(Option::is_some)).await.unwrap().unwrap().unwrap()
    }
}

pub(super) async fn read(answer: h2::client::ResponseFuture) -> Result<Vec<u8>, h2::Error> {
    read_body(timeout(LIMIT, answer).await.unwrap()?.into_body()).await
}

pub(super) async fn read_body(mut body: h2::RecvStream) -> Result<Vec<u8>, h2::Error> {
    let mut all = Vec::new();
    while let Some(data) = timeout(LIMIT, body.data()).await.unwrap() {
        let data = data?;
        body.flow_control().release_capacity(data.len())?;
        all.extend(data);
    }
    Ok(all)
}

impl Running {
    pub(super) async fn end(mut self) {
        self.shutdown.cancel();
        timeout(LIMIT, self.grpc.ended()).await.unwrap().unwrap();
    }
}

#[tokio::test]
async fn connections_of_a_client_are_bounded_and_the_one_that_calls_stays() {
    let limits = GrpcLimits::default();
    let running = serve(limits);
    let client = Client::connect(&running, 65_535).await;
    // Two processes of one address, behind a proxy or on loopback, differ by their ports.
    assert_eq!(client.calls("/client").await.unwrap(), client.address.to_string().into_bytes());
    let mut silent = Vec::new();
    for _ in 0..200 {
        let mut stream = TcpStream::connect(tcp(&running.grpc)).await.unwrap();
        // The server's settings arrive, so the connection is served.
        stream.read_exact(&mut [0; 9]).await.unwrap();
        silent.push(stream);
    }
    let open = limits.connections.per_peer - 1;
    let oldest = silent.len() - open;
    for stream in &mut silent[..oldest] {
        // It fails or ends.
        let _ = timeout(LIMIT, stream.read_to_end(&mut Vec::new())).await.unwrap();
    }
    assert_eq!(client.calls("/small").await.unwrap(), b"small");
    for stream in &mut silent[oldest..] {
        let mut rest = [0; 4096];
        let open = loop {
            match stream.try_read(&mut rest) {
                Ok(0) => break false,
                Ok(_) => {}
                Err(error) => break error.kind() == std::io::ErrorKind::WouldBlock,
            }
        };
        assert!(open, "the newest stay");
    }
    running.end().await;
}

/// The settings that the server announces, as identifier and value.
#[tokio::test]
async fn calls_at_once_and_their_headers_are_bounded() {
    let running = serve(GrpcLimits::default());
    let mut stream = TcpStream::connect(tcp(&running.grpc)).await.unwrap();
    stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").await.unwrap();
    let mut head = [0; 9];
    stream.read_exact(&mut head).await.unwrap();
    assert_eq!(head[3], 4, "SETTINGS");
    let mut settings = vec![0; usize::from(head[2])];
    stream.read_exact(&mut settings).await.unwrap();
    let settings: HashSet<_> = settings
        .chunks(6)
        .map(|entry| {
            let number = u32::from_be_bytes(entry[2..].try_into().unwrap());
            (u16::from_be_bytes(entry[..2].try_into().unwrap()), number)
        })
        .collect();
    assert!(settings.contains(&(3, 256)) && settings.contains(&(6, 8 << 10)), "{settings:?}");
    running.end().await;
}

#[tokio::test]
async fn answers_that_nobody_reads_are_made_up_to_a_bound_and_then_all_are_answered() {
    let limits = GrpcLimits::default();
    let running = serve(limits);
    // It accepts some bytes of each answer until it reads.
    let slow = Client::connect(&running, 16_384).await;
    let mut answers = Vec::new();
    for _ in 0..64 {
        answers.push(slow.begins_call("/large").await);
    }
    let bound = limits.bytes.answers / MIB;
    while running.served.calls.load(Ordering::Relaxed) < bound {
        tokio::task::yield_now().await;
    }
    // When the server answers this, it has read all of the calls above.
    let other = Client::connect(&running, 65_535).await;
    for _ in 0..10 {
        assert_eq!(other.calls("/small").await.unwrap(), b"small");
    }
    assert_eq!(running.served.calls.load(Ordering::Relaxed), bound + 10);
    let bodies = join_all(answers.into_iter().map(read)).await;
    assert!(bodies.iter().all(|body| body.as_ref().unwrap().len() == MIB));
    running.end().await;
}

/// The state of the connections that hold too much together.
#[derive(Clone, Copy, Eq, PartialEq)]
enum Holding {
    Open,
    ShuttingDown,
}

#[rstest]
#[case::of_open_ones(Holding::Open)]
#[case::during_the_shutdown_too(Holding::ShuttingDown)]
#[tokio::test]
async fn the_largest_connection_is_cut_where_all_hold_too_much(#[case] holding: Holding) {
    let limits = GrpcLimits {
        connections: Limits { per_peer: 2, ..Limits::default() },
        bytes: ByteLimits { requests: MIB, answers: MIB, total: 3 * MIB / 2 },
        ..GrpcLimits::default()
    };
    let running = serve_with_drain(limits, LIMIT);
    let mut calls = Vec::new();
    for _ in 0..2 {
        let client = Client::connect(&running, 65_535).await;
        let (answer, mut body) = client.begins("/reads").await;
        running.served.waiting.notified().await;
        if holding != Holding::ShuttingDown {
            body.send_data(vec![0; MIB].into(), false).unwrap();
        }
        calls.push((client, answer, body));
    }
    if holding == Holding::ShuttingDown {
        running.shutdown.cancel();
        for (client, _, body) in &mut calls {
            client.has_received_goaway().await;
            body.send_data(vec![0; MIB].into(), false).unwrap();
        }
    }
    let [(mut a, of_a, body_of_a), (mut b, of_b, body_of_b)] = <[_; 2]>::try_from(calls).ok().unwrap();
    let (cut, answer, mut body) = tokio::select! {
        _ = a.has_ended() => (of_a, of_b, body_of_b),
        _ = b.has_ended() => (of_b, of_a, body_of_a),
    };
    assert!(read(cut).await.is_err(), "cut");
    body.send_data(Bytes::new(), true).unwrap();
    assert_eq!(read(answer).await.unwrap(), b"read");
    running.end().await;
}

#[tokio::test]
async fn requests_under_way_are_bounded() {
    let bytes = ByteLimits { requests: MIB, ..GrpcLimits::default().bytes };
    let running = serve(GrpcLimits { bytes, ..GrpcLimits::default() });
    let client = Client::connect(&running, 65_535).await;
    let (first, mut body) = client.begins("/reads").await;
    body.send_data(vec![0; MIB - 10].into(), false).unwrap();
    running.served.waiting.notified().await;
    let reads = async |length| {
        let (answer, mut body) = client.begins("/reads").await;
        body.send_data(vec![0; length].into(), true).unwrap();
        read(answer).await.unwrap()
    };
    let arrived = async {
        while reads(11).await != b"refused" {
            tokio::task::yield_now().await;
        }
    };
    timeout(LIMIT, arrived).await.unwrap();
    assert_eq!(reads(10).await, b"read");
    body.send_data(Bytes::new(), true).unwrap();
    assert_eq!(read(first).await.unwrap(), b"read");
    assert_eq!(reads(MIB).await, b"read", "what was answered counts no more");
    running.end().await;
}

/// Without TLS a browser speaks HTTP/1.1 alone, whatever a page's script requests.
#[tokio::test]
async fn http1_requests_that_a_web_page_can_send_reach_no_rpc() {
    let running = serve(GrpcLimits::default());
    let body = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
    let length = body.len();
    for request in [
        "GET /small HTTP/1.1\r\nhost: a\r\n\r\n".to_owned(),
        format!("POST /small HTTP/1.1\r\nhost: a\r\ncontent-type: text/plain\r\ncontent-length: {length}\r\n\r\n{body}"),
        "GET /small HTTP/1.1\r\nhost: a\r\nconnection: upgrade, http2-settings\r\nupgrade: h2c\r\nhttp2-settings: AAMAAABk\r\n\r\n"
            .to_owned(),
    ] {
        let mut stream = TcpStream::connect(tcp(&running.grpc)).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        // It fails or ends.
        let _ = timeout(LIMIT, stream.read_to_end(&mut answer)).await.unwrap();
        assert!(!answer.starts_with(b"HTTP/1"), "{answer:?}");
    }
    assert_eq!(running.served.calls.load(Ordering::Relaxed), 0);
    let client = Client::connect(&running, 65_535).await;
    assert_eq!(client.calls("/small").await.unwrap(), b"small");
    running.end().await;
}
