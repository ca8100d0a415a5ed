use std::{net::SocketAddr, sync::Arc, time::Duration};

use axum::{
    Router,
    body::{Body, Bytes},
    http::Request,
    routing::get,
};
use futures::{StreamExt as _, stream::FuturesUnordered};
use parking_lot::Mutex;
use prometheus_client::{
    collector::Collector,
    encoding::DescriptorEncoder,
    metrics::{counter::Counter, gauge::Gauge, histogram::Histogram},
    registry::Unit,
};
use rstest::rstest;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    sync::{oneshot, watch},
};
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

use super::{LIMIT, listener};
use crate::listen::{
    Check, ReadinessMetrics, SharedRegistry,
    connections::Limits,
    http::{protected, serve_within},
    http_router,
    metrics::MOST_TEXTS,
    new_registry, probe_router, serve_http,
};

fn router(checks: Vec<Check>, registry: &SharedRegistry) -> Router {
    http_router(Arc::new(move || checks.clone()), Arc::clone(registry))
}

/// Returns status, content type and body.
async fn ask(router: Router, method: &str, path: &str) -> (u16, String, String) {
    let request = Request::builder().method(method).uri(path).body(Body::empty()).unwrap();
    let response = router.oneshot(request).await.unwrap();
    let content_type = response.headers().get("content-type").map(|value| value.to_str().unwrap().to_owned());
    let status = response.status().as_u16();
    let body = axum::body::to_bytes(response.into_body(), usize::MAX).await.unwrap();
    (status, content_type.unwrap_or_default(), String::from_utf8(body.to_vec()).unwrap())
}

fn in_sync() -> Vec<Check> {
    vec![Check::ready("management/clusters"), Check::ready("workload/nodes")]
}

fn half_way() -> Vec<Check> {
    vec![Check::ready("management/clusters"), Check::pending("workload/nodes", "403: may not list nodes\n[+]fake ok")]
}

#[rstest]
#[case::ready("/readyz", in_sync(), 200, "ok\n")]
#[case::nothing_to_wait_for("/readyz", vec![], 200, "ok\n")]
#[case::ready_verbose(
    "/readyz?verbose",
    in_sync(),
    200,
    "[+]management/clusters ok\n[+]workload/nodes ok\nreadyz check passed\n"
)]
#[case::ready_verbose_with_a_value("/readyz?a=b&verbose=1", vec![], 200, "readyz check passed\n")]
#[case::not_verbose("/readyz?verbosely", in_sync(), 200, "ok\n")]
#[case::pending(
    "/readyz",
    half_way(),
    503,
    "[-]workload/nodes: 403: may not list nodes [+]fake ok\nreadyz check failed\n"
)]
#[case::broken_verbose(
    "/readyz?verbose",
    vec![Check::ready_but("management/machines", "nothing was heard\nfor 7 s")],
    200,
    "[+]management/machines ok, but nothing was heard for 7 s\nreadyz check passed\n"
)]
#[case::pending_verbose(
    "/readyz?verbose",
    half_way(),
    503,
    "[+]management/clusters ok\n[-]workload/nodes: 403: may not list nodes [+]fake ok\nreadyz check failed\n"
)]
#[case::live_though_not_ready("/livez", half_way(), 200, "ok\n")]
#[tokio::test]
async fn probes_show_how_things_stand(
    #[case] path: &str,
    #[case] checks: Vec<Check>,
    #[case] code: u16,
    #[case] body: &str,
) {
    let answer = ask(router(checks, &new_registry()), "GET", path).await;
    assert_eq!(answer, (code, "text/plain; charset=utf-8".to_owned(), body.to_owned()));
}

/// A page of another site must not embed an answer, nor a browser guess its type.
#[rstest]
#[case::live("GET", "/livez", 200, 200)]
#[case::head("HEAD", "/livez", 200, 200)]
#[case::not_ready("GET", "/readyz", 503, 503)]
#[case::metrics("GET", "/metrics", 200, 404)]
#[case::post("POST", "/readyz", 405, 405)]
#[case::delete("DELETE", "/metrics", 405, 404)]
#[case::unknown("GET", "/", 404, 404)]
#[case::below("GET", "/livez/x", 404, 404)]
#[case::post_unknown("POST", "/x", 404, 404)]
#[tokio::test]
async fn nothing_else_is_answered_on_the_listener_of_pages_and_on_that_of_probes(
    #[case] method: &str,
    #[case] path: &str,
    #[case] of_all: u16,
    #[case] of_probes: u16,
) {
    let routers = [(router(half_way(), &new_registry()), of_all), (probe_router(Arc::new(half_way)), of_probes)];
    for (router, code) in routers {
        let request = Request::builder().method(method).uri(path).body(Body::empty()).unwrap();
        let response = protected(router).oneshot(request).await.unwrap();
        assert_eq!(response.status(), code);
        let headers = response.headers();
        assert_eq!(headers["cross-origin-resource-policy"], "same-origin");
        assert_eq!(headers["x-content-type-options"], "nosniff");
        assert!(!headers.contains_key("access-control-allow-origin"));
    }
}

#[tokio::test]
async fn metrics_have_the_prometheus_text_format() {
    let registry = new_registry();
    let router = router(vec![], &registry);
    registry.write().register("refreshes", "Refresh calls, added late", Counter::<u64>::default());
    registry.write().register("depth", "How deep", Gauge::<i64>::default());
    let took = Histogram::new([0.5]);
    took.observe(0.25);
    registry.write().register_with_unit("took", "How long", Unit::Seconds, took);
    let (status, content_type, plain) = ask(router, "GET", "/metrics").await;
    assert_eq!((status, &*content_type), (200, "text/plain; version=0.0.4; charset=utf-8"));
    assert_eq!(plain.lines().filter(|line| !line.starts_with('#')).count(), 8, "{plain}");
    let comments: Vec<_> = plain.lines().filter(|line| line.starts_with('#')).collect();
    let version = env!("CARGO_PKG_VERSION");
    assert!(plain.contains(&format!("capi_autoscaler_provider_build_info{{version=\"{version}\"}} 1\n")), "{plain}");
    assert_eq!(
        comments,
        [
            "# HELP capi_autoscaler_provider_build_info The version that runs.",
            "# TYPE capi_autoscaler_provider_build_info gauge",
            "# HELP capi_autoscaler_provider_start_timestamp_seconds When this process started, in Unix time.",
            "# TYPE capi_autoscaler_provider_start_timestamp_seconds gauge",
            "# HELP capi_autoscaler_provider_refreshes_total Refresh calls, added late.",
            "# TYPE capi_autoscaler_provider_refreshes_total counter",
            "# HELP capi_autoscaler_provider_depth How deep.",
            "# TYPE capi_autoscaler_provider_depth gauge",
            "# HELP capi_autoscaler_provider_took_seconds How long.",
            "# TYPE capi_autoscaler_provider_took_seconds histogram",
        ]
    );
}

#[tokio::test]
async fn readiness_is_a_metric_and_what_fails_is_named() {
    let mut checks = half_way();
    checks.push(Check::informational("templates/A.b", "forbidden"));
    let scrape = async |checks: Vec<Check>| {
        let registry = new_registry();
        let of_metrics = checks.clone();
        registry.write().register_collector(Box::new(ReadinessMetrics::new(Arc::new(move || of_metrics.clone()))));
        let (_, _, body) = ask(router(checks, &registry), "GET", "/metrics").await;
        body
    };
    let ready = scrape(in_sync()).await;
    assert!(ready.contains("capi_autoscaler_provider_ready 1\n"), "{ready}");
    assert!(!ready.contains("failing_check{"), "{ready}");
    let body = scrape(checks).await;
    for line in [
        "ready 0",
        "failing_check{check=\"workload/nodes\",waited_for=\"true\"} 1",
        "failing_check{check=\"templates/A.b\",waited_for=\"false\"} 1",
    ] {
        assert!(body.contains(&format!("capi_autoscaler_provider_{line}\n")), "{line} isn't in {body}");
    }
    assert_eq!(body.matches("failing_check{").count(), 2, "{body}");
}

#[tokio::test]
async fn a_kept_connection_does_not_hold_up_the_end() {
    let listener = listener();
    let address = listener.local_addr().unwrap();
    let shutdown = CancellationToken::new();
    let serving = tokio::spawn(serve_http(listener, router(vec![], &new_registry()), shutdown.clone()));

    let mut stream = TcpStream::connect(address).await.unwrap();
    for _ in 0..2 {
        stream.write_all(b"GET /livez HTTP/1.1\r\nhost: a\r\n\r\n").await.unwrap();
        let mut answer = Vec::new();
        while !answer.ends_with(b"ok\n") {
            assert_ne!(stream.read_buf(&mut answer).await.unwrap(), 0);
        }
        assert!(answer.starts_with(b"HTTP/1.1 200 OK\r\n"));
    }
    let half = TcpStream::connect(address).await.unwrap();

    shutdown.cancel();
    tokio::time::timeout(LIMIT, serving).await.unwrap().unwrap().unwrap();
    assert_eq!(stream.read(&mut [0]).await.unwrap(), 0, "closed in order");
    assert!(TcpStream::connect(address).await.is_err(), "nobody listens any more");
    drop(half);
}

/// Starts a listener with these limits. Returns its address, its shutdown token and its task.
fn serve(
    router: Router,
    limits: Limits,
) -> (SocketAddr, CancellationToken, tokio::task::JoinHandle<std::io::Result<()>>) {
    let (listener, ends) = (listener(), CancellationToken::new());
    let address = listener.local_addr().unwrap();
    (address, ends.clone(), tokio::spawn(serve_within(listener, router, limits, ends)))
}

async fn asks(address: SocketAddr, line: &str) -> TcpStream {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(format!("{line} HTTP/1.1\r\nhost: a\r\n\r\n").as_bytes()).await.unwrap();
    stream
}

/// Reads until the answer ends like this. Returns false if the connection is closed before.
async fn reads(stream: &mut TcpStream, end: &[u8]) -> bool {
    let mut answer = Vec::new();
    while !answer.ends_with(end) {
        match tokio::time::timeout(LIMIT, stream.read_buf(&mut answer)).await.unwrap() {
            Ok(read) if read > 0 => {}
            Ok(_) | Err(_) => return false,
        }
    }
    true
}

#[tokio::test]
async fn connections_that_stay_open_keep_no_probe_out() {
    let limits = Limits::default();
    let (address, ends, serving) = serve(router(vec![], &new_registry()), limits);
    let mut kept = Vec::new();
    for _ in 0..200 {
        let mut stream = asks(address, "GET /livez").await;
        assert!(reads(&mut stream, b"ok\n").await, "a new connection is answered");
        kept.push(stream);
    }
    let mut open = 0;
    for stream in &mut kept {
        // Closed connections fail or end.
        let asked = stream.write_all(b"GET /livez HTTP/1.1\r\nhost: a\r\n\r\n").await;
        open += usize::from(asked.is_ok() && reads(stream, b"ok\n").await);
    }
    assert_eq!(open, limits.per_peer, "the newest of the client");
    ends.cancel();
    serving.await.unwrap().unwrap();
}

/// Returns a body larger than any socket buffer. The receiver gets an error once nobody holds the body any more.
fn large_body() -> (Bytes, oneshot::Receiver<()>) {
    struct Held(Vec<u8>, #[expect(dead_code, reason = "dropped with the answer")] oneshot::Sender<()>);
    impl AsRef<[u8]> for Held {
        fn as_ref(&self) -> &[u8] {
            &self.0
        }
    }
    let (held, gone) = oneshot::channel();
    (Bytes::from_owner(Held(vec![b'x'; 64 << 20], held)), gone)
}

const SHORT: Duration = Duration::from_millis(50);

#[rstest]
#[case::that_reads_slowly_at_its_age(Limits { age: SHORT, last_request: SHORT, ..Limits::default() }, true)]
#[case::that_reads_nothing(Limits { write: SHORT, ..Limits::default() }, false)]
#[tokio::test]
async fn a_connection_is_cut(#[case] limits: Limits, #[case] reads: bool) {
    let (body, gone) = large_body();
    let body = Arc::new(Mutex::new(Some(body)));
    let large = Router::new().route("/", get(move || async move { body.lock().take().unwrap() }));
    let (address, ends, serving) = serve(large, limits);
    let stream = asks(address, "GET /").await;
    let slow = async {
        // A byte now and then isn't enough.
        let mut byte = [0];
        while reads && stream.readable().await.is_ok() {
            if stream.try_read(&mut byte).is_ok_and(|read| read == 0) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        std::future::pending::<()>().await;
    };
    tokio::select! {
        gone = tokio::time::timeout(LIMIT, gone) => assert!(gone.unwrap().is_err(), "the answer is held"),
        () = slow => {}
    }
    ends.cancel();
    serving.await.unwrap().unwrap();
}

#[rstest]
#[case::nothing(b"")]
#[case::half_a_line(b"GET /liv")]
#[case::no_end_of_headers(b"GET /livez HTTP/1.1\r\nhost: a\r\n")]
#[tokio::test]
async fn a_request_that_is_not_sent_is_not_waited_for(#[case] sent: &[u8]) {
    let limits = Limits { headers: Duration::from_millis(50), ..Limits::default() };
    let (address, ends, serving) = serve(router(vec![], &new_registry()), limits);
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(sent).await.unwrap();
    // The connection is closed, whatever is sent before.
    let _ = tokio::time::timeout(LIMIT, stream.read_to_end(&mut Vec::new())).await.unwrap();
    ends.cancel();
    serving.await.unwrap().unwrap();
}

/// Counts encodings, each of which blocks until it may go on.
#[derive(Debug)]
struct Counted {
    begun: watch::Sender<usize>,
    may_end: Arc<Mutex<std::sync::mpsc::Receiver<()>>>,
}

impl Collector for Counted {
    fn encode(&self, _: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        self.begun.send_modify(|begun| *begun += 1);
        // Once the sender is dropped, nothing is waited for.
        let _ = self.may_end.lock().recv();
        Ok(())
    }
}

fn counted() -> (Router, watch::Receiver<usize>, std::sync::mpsc::Sender<()>) {
    let (begun, count) = watch::channel(0);
    let (go_on, may_end) = std::sync::mpsc::channel();
    let registry = new_registry();
    registry.write().register_collector(Box::new(Counted { begun, may_end: Arc::new(Mutex::new(may_end)) }));
    (router(vec![], &registry), count, go_on)
}

fn scrape() -> Request<Body> {
    Request::get("/metrics").body(Body::empty()).unwrap()
}

#[tokio::test]
async fn one_encoding_serves_all_who_ask_while_another_is_made() {
    let (router, mut count, go_on) = counted();
    let first = tokio::spawn(router.clone().oneshot(scrape()));
    count.wait_for(|begun| *begun == 1).await.unwrap();
    let mut others = FuturesUnordered::new();
    for _ in 0..50 {
        others.push(router.clone().oneshot(scrape()));
    }
    // All of them ask before the first encoding ends.
    assert!(futures::poll!(others.next()).is_pending());
    drop(go_on);
    assert_eq!(first.await.unwrap().unwrap().status(), 200);
    // No answer is read before all have arrived.
    let answers: Vec<_> = others.collect().await;
    assert!(answers.iter().all(|answer| answer.as_ref().unwrap().status() == 200));
    assert_eq!(*count.borrow(), 2);
}

#[tokio::test]
async fn few_texts_are_held_for_clients_that_do_not_read() {
    let (router, count, go_on) = counted();
    drop(go_on);
    let mut unread = Vec::new();
    for _ in 0..128 {
        let answer = router.clone().oneshot(scrape()).await.unwrap();
        assert_eq!(answer.status(), 200);
        unread.push(answer);
    }
    assert_eq!(*count.borrow(), MOST_TEXTS);
    unread.clear();
    let _ = router.oneshot(scrape()).await.unwrap();
    assert_eq!(*count.borrow(), MOST_TEXTS + 1, "made anew when they are gone");
}
