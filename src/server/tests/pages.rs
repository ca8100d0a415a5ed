use std::sync::Arc;

use axum::{Router, body::Body, http::Request};
use prometheus_client::metrics::counter::Counter;
use rstest::rstest;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

use super::{LIMIT, listener};
use crate::server::{Check, SharedRegistry, http_router, new_registry, serve_http};

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
async fn metrics_are_openmetrics_text_and_may_be_added_late() {
    let registry = new_registry();
    let router = router(vec![], &registry);
    let counter = Counter::<u64>::default();
    registry.write().register("refreshes", "Refresh calls", counter.clone());
    counter.inc();
    let (code, content_type, body) = ask(router, "GET", "/metrics").await;
    assert_eq!((code, content_type.as_str()), (200, "application/openmetrics-text; version=1.0.0; charset=utf-8"));
    let version = env!("CARGO_PKG_VERSION");
    assert!(body.contains(&format!("capi_autoscaler_provider_build_info{{version=\"{version}\"}} 1\n")), "{body}");
    assert!(body.contains("capi_autoscaler_provider_refreshes_total 1\n"), "{body}");
    assert!(body.ends_with("# EOF\n"), "{body}");
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
