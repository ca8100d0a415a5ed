//! The clients that may change the log filter, and the answers of its page, over a real socket.

use std::sync::Arc;

use axum::{body::Body, http::Request};
use parking_lot::Mutex;
use rstest::rstest;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;

use super::{LIMIT, listener};
use crate::{AllowedHosts, LogLevel, LogLevels, http::Peer, log_level_router, serve_http};

/// Records the requested changes, and refuses `bad`.
#[derive(Default)]
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

#[rstest]
#[case::shown("GET /debug/log-level", &[], "", 200, r#"{"filter":"info","start":"info"}"#)]
#[case::changed("PUT /debug/log-level", &[], "debug", 200, r#""filter":"debug""#)]
#[case::refused("PUT /debug/log-level", &[], "bad", 400, "the log level stays as it is: bad is no level")]
#[case::a_web_page("PUT /debug/log-level", &["origin: http://localhost"], "debug", 403, "isn't changed from web pages")]
#[case::by_another_site("PUT /debug/log-level", &["sec-fetch-site: cross-site"], "debug", 403, "other sites")]
#[case::by_a_proxy("PUT /debug/log-level", &["x-forwarded-for: 192.0.2.7"], "debug", 403, "not through a proxy")]
#[case::another_method("POST /debug/log-level", &[], "debug", 405, "")]
#[tokio::test]
async fn the_log_level_is_shown_and_changed_by_processes_of_this_machine(
    #[case] line: &str,
    #[case] headers: &[&str],
    #[case] body: &str,
    #[case] status: u16,
    #[case] part: &str,
) {
    let mut lines = vec![format!("{line} HTTP/1.1"), "host: localhost".to_owned()];
    lines.extend(headers.iter().map(|&header| header.to_owned()));
    let answer = ask(&lines, body).await;
    assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")) && answer.contains(part), "{answer}");
}

#[tokio::test]
async fn the_name_of_another_host_is_not_answered() {
    let answer = ask(&["GET /debug/log-level HTTP/1.1".to_owned(), "host: example.com".to_owned()], "").await;
    assert!(answer.starts_with("HTTP/1.1 421 "), "{answer}");
}

#[tokio::test]
async fn a_filter_of_many_pages_is_not_read() {
    let lines = ["PUT /debug/log-level HTTP/1.1".to_owned(), "host: localhost".to_owned()];
    let answer = ask(&lines, &"a=info,".repeat(1_000)).await;
    assert!(answer.starts_with("HTTP/1.1 413 "), "{answer}");
}

#[tokio::test]
async fn a_log_level_change_from_another_origin_is_refused_before_its_body_arrives() {
    let listener = listener();
    let mut stream = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    let ends = CancellationToken::new();
    let router = log_level_router(Arc::new(Remembers::default()), AllowedHosts::on([127, 0, 0, 1].into()));
    let serving = tokio::spawn(serve_http(listener, router, ends.clone()));
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

#[tokio::test(start_paused = true)]
async fn a_filter_that_is_not_sent_is_not_waited_for() {
    let router = log_level_router(Arc::new(Remembers::default()), AllowedHosts::on([127, 0, 0, 1].into()));
    let peer = Peer(([127, 0, 0, 1], 1).into());
    let unsent = Body::from_stream(futures::stream::pending::<Result<Vec<u8>, std::io::Error>>());
    let request = Request::put("/debug/log-level").header("host", "localhost").extension(peer).body(unsent).unwrap();
    assert_eq!(router.oneshot(request).await.unwrap().status(), 408);
}

async fn ask(lines: &[String], body: &str) -> String {
    let listener = listener();
    let mut stream = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    let ends = CancellationToken::new();
    let router = log_level_router(Arc::new(Remembers::default()), AllowedHosts::on([127, 0, 0, 1].into()));
    let serving = tokio::spawn(serve_http(listener, router, ends.clone()));
    let head = lines.join("\r\n");
    let request = format!("{head}\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}", body.len());
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    tokio::time::timeout(LIMIT, stream.read_to_string(&mut answer)).await.unwrap().unwrap();
    ends.cancel();
    serving.await.unwrap().unwrap();
    answer
}
