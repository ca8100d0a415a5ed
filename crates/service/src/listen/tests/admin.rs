//! The requests that the admin listener answers, over a real socket, since a client may send any bytes.

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
use crate::listen::{
    AdminPages, AllowedHosts, DebugError, LogLevel, LogLevels, StatusAnswer, admin_router, http::PeerAddress,
    log_level_router, new_registry, serve_http,
};

/// Answers with its query, and refuses `bad`.
struct Echo;

impl AdminPages for Echo {
    fn state(&self, query: &str) -> Result<Vec<u8>, DebugError> {
        if query == "bad" { Err(DebugError::Query("bad isn't known".to_owned())) } else { Ok(query.into()) }
    }

    fn clusters(&self) -> Result<Vec<u8>, DebugError> {
        Ok(b"all clusters".to_vec())
    }

    fn page(&self, path: &str, query: &str) -> StatusAnswer {
        match path {
            "/" if query == "bad" => StatusAnswer::Wrong("<p>bad".to_owned()),
            "/" | "/groups/MachineSet/a/b c" => StatusAnswer::Found(format!("<p>{path} {query}")),
            _ => StatusAnswer::Missing("<p>nothing".to_owned()),
        }
    }

    fn style(&self) -> &'static str {
        "p {}"
    }
}

/// Returns the whole answer to a request of these lines, from a listener that takes `address` for its own.
async fn answer(address: &str, lines: &[&str]) -> String {
    let hosts = AllowedHosts { listened_on: address.parse().unwrap(), names: vec!["status.example".parse().unwrap()] };
    let listener = listener();
    let mut stream = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    let ends = CancellationToken::new();
    let serving = tokio::spawn(serve_http(listener, admin_router(Arc::new(Echo), new_registry(), hosts), ends.clone()));
    let request = lines.join("\r\n") + "\r\nconnection: close\r\n\r\n";
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    tokio::time::timeout(LIMIT, stream.read_to_string(&mut answer)).await.unwrap().unwrap();
    ends.cancel();
    serving.await.unwrap().unwrap();
    answer
}

fn status(answer: &str) -> u16 {
    answer.split(' ').nth(1).unwrap().parse().unwrap()
}

#[rstest]
#[case::loopback("127.0.0.1", "127.0.0.1:8081", 200)]
#[case::another_port_that_leads_here("127.0.0.1", "127.0.0.1:9000", 200)]
#[case::no_port("127.0.0.1", "127.0.0.1", 200)]
#[case::all_of_loopback("127.0.0.1", "127.9.9.9", 200)]
#[case::loopback_of_ipv6("127.0.0.1", "[::1]:8081", 200)]
#[case::mapped_loopback("127.0.0.1", "[::ffff:127.0.0.1]:8081", 200)]
#[case::localhost("127.0.0.1", "localhost:8081", 200)]
#[case::in_any_case("127.0.0.1", "LocalHost", 200)]
#[case::rooted("127.0.0.1", "localhost.:8081", 200)]
#[case::a_foreign_name("127.0.0.1", "evil.example:8081", 421)]
#[case::a_name_that_begins_well("127.0.0.1", "127.0.0.1.evil.example", 421)]
#[case::a_name_below_localhost("127.0.0.1", "a.localhost", 421)]
#[case::a_foreign_address("127.0.0.1", "10.0.0.5:8081", 421)]
#[case::user_in_front("127.0.0.1", "localhost@evil.example", 421)]
#[case::not_a_host("127.0.0.1", "a b", 421)]
#[case::empty("127.0.0.1", "", 421)]
#[case::the_address_listened_on("10.0.0.5", "10.0.0.5:8081", 200)]
#[case::another_address("10.0.0.5", "10.0.0.6:8081", 421)]
#[case::any_address_when_all_are_listened_on("0.0.0.0", "10.0.0.5:8081", 200)]
#[case::any_address_of_ipv6("::", "[2001:db8::1]:8081", 200)]
#[case::a_name_that_was_given("127.0.0.1", "Status.Example:8443", 200)]
#[case::a_name_below_a_given_one("127.0.0.1", "a.status.example", 421)]
#[case::no_name_even_then("0.0.0.0", "evil.example", 421)]
#[case::two("127.0.0.1", "localhost\r\nhost: evil.example", 421)]
#[tokio::test]
async fn only_addresses_and_localhost_are_answered(#[case] listen: &str, #[case] host: &str, #[case] code: u16) {
    let answer = answer(listen, &["GET /debug/state HTTP/1.1", &format!("host: {host}")]).await;
    assert_eq!(status(&answer), code, "{answer}");
}

#[rstest]
#[case::no_host(&["GET /debug/state HTTP/1.1"])]
#[case::of_http_1_0(&["GET /debug/state HTTP/1.0"])]
#[case::another_in_the_request_line(&["GET http://evil.example/debug/state HTTP/1.1", "host: localhost"])]
#[case::on_any_path(&["GET /other HTTP/1.1", "host: evil.example"])]
#[case::of_the_metrics(&["GET /metrics HTTP/1.1", "host: evil.example"])]
#[tokio::test]
async fn a_request_that_names_no_host_or_two_is_misdirected(#[case] lines: &[&str]) {
    let answer = answer("127.0.0.1", lines).await;
    assert_eq!(status(&answer), 421, "{answer}");
    assert!(answer.contains("ask by a loopback address or localhost"), "{answer}");
}

#[rstest]
#[case::get("GET", "/debug/state", 200)]
#[case::head("HEAD", "/debug/state", 200)]
#[case::post("POST", "/debug/state", 405)]
#[case::delete("DELETE", "/debug/state", 405)]
#[case::options("OPTIONS", "/debug/state", 405)]
#[case::bad_query("GET", "/debug/state?bad", 400)]
#[case::clusters("GET", "/debug/clusters", 200)]
#[case::post_to_clusters("POST", "/debug/clusters", 405)]
#[case::metrics("GET", "/metrics", 200)]
#[case::post_to_metrics("POST", "/metrics", 405)]
#[case::another_page("GET", "/livez", 404)]
#[case::the_status_page("GET", "/?q=a", 200)]
#[case::head_of_it("HEAD", "/", 200)]
#[case::post_to_it("POST", "/", 405)]
#[case::a_query_that_it_refuses("GET", "/?bad", 400)]
#[case::a_group("GET", "/groups/MachineSet/a/b%20c", 200)]
#[case::no_group("GET", "/groups/MachineSet/a/d", 404)]
#[case::style("GET", "/style.css", 200)]
#[tokio::test]
async fn it_can_only_be_read(#[case] method: &str, #[case] path: &str, #[case] code: u16) {
    let answer = answer("127.0.0.1", &[&format!("{method} {path} HTTP/1.1"), "host: localhost"]).await;
    assert_eq!(status(&answer), code, "{answer}");
}

#[tokio::test]
async fn the_answer_is_json_that_nobody_keeps_or_guesses_the_type_of() {
    let answer = answer("127.0.0.1", &["GET /debug/state?group=a HTTP/1.1", "host: localhost"]).await;
    for header in [
        "content-type: application/json",
        "cache-control: no-store",
        "x-content-type-options: nosniff",
        "cross-origin-resource-policy: same-origin",
    ] {
        assert!(answer.contains(&format!("\r\n{header}\r\n")), "{header}: {answer}");
    }
    assert!(!answer.contains("access-control") && answer.ends_with("\r\n\r\ngroup=a"), "{answer}");
}

#[rstest]
#[case::page("/", "text/html; charset=utf-8")]
#[case::missing("/nothing", "text/html; charset=utf-8")]
#[case::wrong("/?bad", "text/html; charset=utf-8")]
#[case::style("/style.css", "text/css; charset=utf-8")]
#[tokio::test]
async fn a_browser_may_only_show_the_page(#[case] path: &str, #[case] kind: &str) {
    let answer = answer("127.0.0.1", &[&format!("GET {path} HTTP/1.1"), "host: localhost"]).await;
    for header in [
        &*format!("content-type: {kind}"),
        "content-security-policy: default-src 'none'; style-src 'self'; img-src data:; form-action 'self'; base-uri \
         'none'; frame-ancestors 'none'",
        "x-content-type-options: nosniff",
        "referrer-policy: no-referrer",
        "x-frame-options: DENY",
        "cache-control: no-store",
        "cross-origin-resource-policy: same-origin",
    ] {
        assert!(answer.contains(&format!("\r\n{header}\r\n")), "{header}: {answer}");
    }
}

#[rstest]
#[case::no_browser(&[], true)]
#[case::typed_or_bookmarked(&["sec-fetch-site: none", "sec-fetch-mode: navigate", "sec-fetch-dest: document"], true)]
#[case::its_own_page(&["sec-fetch-site: same-origin", "sec-fetch-mode: no-cors"], true)]
#[case::a_link(&["sec-fetch-site: cross-site", "sec-fetch-mode: navigate", "sec-fetch-dest: document"], true)]
#[case::an_image(&["sec-fetch-site: cross-site", "sec-fetch-mode: no-cors", "sec-fetch-dest: image"], false)]
#[case::a_script(&["sec-fetch-site: cross-site", "sec-fetch-mode: cors", "sec-fetch-dest: empty"], false)]
#[case::another_port(&["sec-fetch-site: same-site", "sec-fetch-mode: no-cors", "sec-fetch-dest: script"], false)]
#[case::a_frame(&["sec-fetch-site: cross-site", "sec-fetch-mode: navigate", "sec-fetch-dest: iframe"], false)]
#[tokio::test]
async fn pages_of_other_sites_get_nothing(#[case] headers: &[&str], #[case] is_answered: bool) {
    let lines = ["GET /debug/state?a HTTP/1.1", "host: localhost"];
    let answer = answer("127.0.0.1", &[&lines, headers].concat()).await;
    assert_eq!(answer.starts_with("HTTP/1.1 200 "), is_answered, "{answer}");
    assert_eq!(answer.starts_with("HTTP/1.1 403 "), !is_answered, "{answer}");
}

#[tokio::test]
async fn one_answer_is_held_for_who_does_not_read_it() {
    let hosts = AllowedHosts::on([127, 0, 0, 1].into());
    let router = admin_router(Arc::new(Echo), new_registry(), hosts);
    let ask = || {
        let request = Request::get("/debug/state?a").header("host", "localhost").body(Body::empty()).unwrap();
        router.clone().oneshot(request)
    };
    let unread = ask().await.unwrap();
    let mut next = std::pin::pin!(ask());
    // Only the end of the first answer lets the second one begin.
    assert!(futures::poll!(next.as_mut()).is_pending());
    drop(unread);
    assert_eq!(tokio::time::timeout(LIMIT, next).await.unwrap().unwrap().status(), 200);
}

// The log filter.

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
