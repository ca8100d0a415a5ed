//! The clients that may change the log filter, and the answers of its page, over a real socket.

use std::{io::Error, sync::Arc};

use axum::{Router, body::Body, http::Request};
use futures::stream;
use parking_lot::Mutex;
use rstest::rstest;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;

use super::{LIMIT, listener};
use crate::listen::{AllowedHosts, LogLevel, LogLevels, http::PeerAddress, log_level_router, serve_http};

/// Records the requested changes, and refuses `bad`.
#[derive(Debug, Default)]
struct Remembers(Mutex<Vec<String>>);

impl LogLevels for Remembers {
    fn level(&self) -> LogLevel {
        let filter = self.0.lock().last().cloned().unwrap_or_else(|| "info".to_owned());
        LogLevel { filter, start: "info".to_owned() }
    }

    fn change(&self, filter: &str) -> Result<(), String> {
        if filter == "bad" {
            return Err("bad is no level".to_owned());
        }
        self.0.lock().push(filter.to_owned());
        Ok(())
    }
}

fn router() -> Router {
    log_level_router(Arc::new(Remembers::default()), AllowedHosts::on([127, 0, 0, 1].into()))
}

const HERE: &str = "127.0.0.1:1";

#[rstest]
#[case::shown(HERE, "GET", &["host: localhost"], "", 200, r#"{"filter":"info","start":"info"}"#)]
#[case::changed(HERE, "PUT", &["host: localhost"], "debug", 200, r#""filter":"debug""#)]
#[case::refused(HERE, "PUT", &["host: localhost"], "bad", 400, "the log level stays as it is: bad is no level")]
#[case::another_method(HERE, "POST", &["host: localhost"], "debug", 405, "")]
#[case::by_ipv6("[::1]:1", "PUT", &["host: [::1]:8081"], "debug", 200, "")]
#[case::by_a_mapped_address("[::ffff:127.0.0.1]:1", "PUT", &["host: LOCALHOST.:8081"], "debug", 200, "")]
#[case::by_any_address_of_loopback(HERE, "PUT", &["host: 127.0.0.2:8081"], "debug", 200, "")]
#[case::by_another_machine("192.0.2.7:1", "PUT", &["host: localhost"], "debug", 403, "only changed from a loopback")]
#[case::by_another_machine_on_ipv6("[2001:db8::7]:1", "PUT", &["host: localhost"], "debug", 403, "")]
#[case::by_a_name_that_is_answered(HERE, "PUT", &["host: status.example.com"], "debug", 403, "only changed from")]
#[case::by_a_foreign_name(HERE, "PUT", &["host: localhost.example.com"], "debug", 421, "")]
#[case::by_a_web_page(HERE, "PUT", &["host: localhost", "origin: http://localhost"], "debug", 403, "from web pages")]
#[case::by_another_site(HERE, "PUT", &["host: localhost", "sec-fetch-site: cross-site"], "debug", 403, "other sites")]
#[case::by_a_proxy(HERE, "PUT", &["host: localhost", "forwarded: 192.0.2.7"], "debug", 403, "not through a proxy")]
#[case::by_one_that_says_via(HERE, "PUT", &["host: localhost", "via: a"], "debug", 403, "not through a proxy")]
#[case::by_nginx(HERE, "PUT", &["host: localhost", "x-real-ip: a"], "debug", 403, "not through a proxy")]
#[case::by_a_network(HERE, "PUT", &["host: localhost", "true-client-ip: a"], "debug", 403, "not through a proxy")]
#[case::by_most(HERE, "PUT", &["host: localhost", "x-forwarded-server: a"], "debug", 403, "not through a proxy")]
#[tokio::test]
async fn the_log_level_is_shown_and_changed_by_processes_of_this_machine(
    #[case] peer: &str,
    #[case] method: &str,
    #[case] headers: &[&str],
    #[case] body: &'static str,
    #[case] status: u16,
    #[case] part: &str,
) {
    let names = vec!["status.example.com".parse().unwrap()];
    let hosts = AllowedHosts { listened_on: [127, 0, 0, 1].into(), names };
    let mut request =
        Request::builder().method(method).uri("/debug/log-level").extension(PeerAddress(peer.parse().unwrap()));
    for (name, value) in headers.iter().map(|header| header.split_once(": ").unwrap()) {
        request = request.header(name, value);
    }
    let router = log_level_router(Arc::new(Remembers::default()), hosts);
    let answer = router.oneshot(request.body(Body::from(body)).unwrap()).await.unwrap();
    assert_eq!(answer.status(), status);
    let answer = axum::body::to_bytes(answer.into_body(), usize::MAX).await.unwrap();
    assert!(String::from_utf8_lossy(&answer).contains(part), "{answer:?}");
}

#[tokio::test]
async fn a_log_level_change_from_another_origin_is_refused_before_its_body_arrives() {
    let listener = listener();
    let mut stream = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    let ends = CancellationToken::new();
    let serving = tokio::spawn(serve_http(listener, router(), ends.clone()));
    let head = "PUT /debug/log-level HTTP/1.1\r\nhost: localhost\r\norigin: http://a\r\ncontent-length: 5\r\n\r\n";
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    let status = b"HTTP/1.1 403 ";
    while answer.len() < status.len() {
        let read = tokio::time::timeout(LIMIT, stream.read_buf(&mut answer)).await.unwrap().unwrap();
        assert_ne!(read, 0, "closed without an answer");
    }
    assert!(answer.starts_with(status), "{}", String::from_utf8_lossy(&answer));
    ends.cancel();
    serving.await.unwrap().unwrap();
}

#[rstest]
#[case::that_is_not_sent(Body::from_stream(stream::pending::<Result<Vec<u8>, Error>>()), 408)]
#[case::of_many_pages(Body::from("a=info,".repeat(1_000)), 413)]
#[tokio::test(start_paused = true)]
async fn a_filter_is_not_waited_for(#[case] body: Body, #[case] status: u16) {
    let request = Request::put("/debug/log-level").header("host", "localhost");
    let request = request.extension(PeerAddress(([127, 0, 0, 1], 1).into())).body(body).unwrap();
    assert_eq!(router().oneshot(request).await.unwrap().status(), status);
}
