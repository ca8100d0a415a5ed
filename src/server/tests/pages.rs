use std::sync::Arc;

use axum::{Router, body::Body, http::Request};
use prometheus_client::{
    metrics::{counter::Counter, gauge::Gauge, histogram::Histogram},
    registry::Unit,
};
use rstest::rstest;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

use super::{LIMIT, listener};
use crate::server::{Check, ReadinessMetrics, SharedRegistry, http_router, new_registry, serve_http};

fn router(checks: Vec<Check>, registry: &SharedRegistry) -> Router {
    http_router(Arc::new(move || checks.clone()), Arc::clone(registry))
}

/// Status, content type and body.
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
#[case::pending_verbose(
    "/readyz?verbose",
    half_way(),
    503,
    "[+]management/clusters ok\n[-]workload/nodes: 403: may not list nodes [+]fake ok\nreadyz check failed\n"
)]
#[case::live_though_not_ready("/livez", half_way(), 200, "ok\n")]
#[tokio::test]
async fn probes_tell_how_things_stand(
    #[case] path: &str,
    #[case] checks: Vec<Check>,
    #[case] code: u16,
    #[case] body: &str,
) {
    let answer = ask(router(checks, &new_registry()), "GET", path).await;
    assert_eq!(answer, (code, "text/plain; charset=utf-8".to_owned(), body.to_owned()));
}

#[tokio::test]
async fn metrics_may_be_added_late() {
    let registry = new_registry();
    let router = router(vec![], &registry);
    let counter = Counter::<u64>::default();
    registry.write().register("refreshes", "Refresh calls", counter.clone());
    counter.inc();
    let (code, _, body) = ask(router, "GET", "/metrics").await;
    assert_eq!(code, 200);
    assert!(body.contains("capi_autoscaler_provider_refreshes_total 1\n"), "{body}");
}

const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
const PROMETHEUS: &str = "text/plain; version=0.0.4; charset=utf-8";

#[rstest]
#[case::nobody_says_anything(None, PROMETHEUS)]
#[case::a_browser(Some("text/html,application/xml;q=0.9,*/*;q=0.8"), PROMETHEUS)]
#[case::an_old_scraper(Some("text/plain;version=0.0.4;q=0.5,*/*;q=0.1"), PROMETHEUS)]
#[case::prometheus(
    Some("application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.4,*/*;q=0.1"),
    OPEN_METRICS
)]
#[tokio::test]
async fn a_scraper_gets_the_text_form_that_it_asks_for(#[case] accept: Option<&str>, #[case] content_type: &str) {
    let mut request = Request::builder().uri("/metrics");
    if let Some(accept) = accept {
        request = request.header("accept", accept);
    }
    let response = router(vec![], &new_registry()).oneshot(request.body(Body::empty()).unwrap()).await.unwrap();
    assert_eq!(response.headers()["content-type"], content_type);
}

#[tokio::test]
async fn both_text_forms_have_the_same_samples_and_name_families_their_own_way() {
    let registry = new_registry();
    registry.write().register("refreshes", "Refresh calls", Counter::<u64>::default());
    registry.write().register("depth", "How deep", Gauge::<i64>::default());
    let took = Histogram::new([0.5]);
    took.observe(0.25);
    registry.write().register_with_unit("took", "How long", Unit::Seconds, took);
    let text = |accept: &'static str| {
        let request = Request::builder().uri("/metrics").header("accept", accept).body(Body::empty()).unwrap();
        let answer = router(vec![], &registry).oneshot(request);
        async {
            let body = axum::body::to_bytes(answer.await.unwrap().into_body(), usize::MAX).await.unwrap();
            String::from_utf8(body.to_vec()).unwrap()
        }
    };
    let (open, plain) = (text("application/openmetrics-text").await, text("text/plain").await);
    let samples =
        |text: &str| text.lines().filter(|line| !line.starts_with('#')).map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(samples(&open), samples(&plain));
    assert_eq!(samples(&open).len(), 8, "{open}");
    assert!(open.ends_with("# EOF\n") && open.contains("# UNIT "), "{open}");
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
            "# HELP capi_autoscaler_provider_refreshes_total Refresh calls.",
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

#[rstest]
#[case::head("HEAD", "/readyz", 200)]
#[case::post("POST", "/readyz", 405)]
#[case::delete("DELETE", "/metrics", 405)]
#[case::unknown("GET", "/", 404)]
#[case::below("GET", "/livez/x", 404)]
#[case::post_unknown("POST", "/x", 404)]
#[tokio::test]
async fn nothing_else_is_answered(#[case] method: &str, #[case] path: &str, #[case] code: u16) {
    let (answered, _, body) = ask(router(vec![], &new_registry()), method, path).await;
    assert_eq!(answered, code);
    assert_eq!(body, "");
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
