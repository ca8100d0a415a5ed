use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use k8s_openapi::api::core::v1::Secret;
use kube::{
    Api, Client, Config,
    api::{Patch, PatchParams},
};
use rstest::rstest;
use serde_json::json;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::mpsc,
};

use crate::{Policy, Proxies, USER_AGENT, cause};

const SOON: Duration = Duration::from_millis(50);
/// Longer than any test runs, for limits that must not take effect.
const NEVER: Duration = Duration::from_secs(3600);
const PATIENT: Policy = Policy { connect: NEVER, answer: None, silence: NEVER, idle: NEVER, longest: None };

/// A server that answers each request with the same bytes, and records the requests.
struct Server {
    url: String,
    requests: Arc<AtomicUsize>,
    heads: mpsc::UnboundedReceiver<String>,
}

/// Starts a server that writes `answer` as it is and keeps the connection open.
async fn serve(answer: &'static str) -> Server {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let requests = Arc::new(AtomicUsize::new(0));
    let (send, heads) = mpsc::unbounded_channel();
    let seen = Arc::clone(&requests);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(converse(stream, answer, Arc::clone(&seen), send.clone()));
        }
    });
    Server { url, requests, heads }
}

async fn converse(
    mut stream: TcpStream,
    answer: &'static str,
    seen: Arc<AtomicUsize>,
    heads: mpsc::UnboundedSender<String>,
) -> io::Result<()> {
    let mut received = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        let read = stream.read(&mut buffer).await?;
        if read == 0 {
            return Ok(());
        }
        received.extend_from_slice(&buffer[..read]);
        // The tests' requests arrive as one piece, head and body.
        if received.windows(4).any(|window| window == b"\r\n\r\n") {
            seen.fetch_add(1, Ordering::SeqCst);
            let _ = heads.send(String::from_utf8_lossy(&received).into_owned());
            received.clear();
            stream.write_all(answer.as_bytes()).await?;
        }
    }
}

fn client(policy: Policy, url: &str) -> Client {
    policy.client(Config::new(url.parse().unwrap()), Proxies::default()).unwrap()
}

async fn patch(client: Client) -> Result<Secret, kube::Error> {
    let secrets: Api<Secret> = Api::namespaced(client, "team-a");
    secrets.patch("x", &PatchParams::default(), &Patch::Merge(json!({}))).await
}

#[rstest]
#[case::too_many_requests("HTTP/1.1 429 Too Many Requests\r\nRetry-After: 1\r\nContent-Length: 0\r\n\r\n", "429")]
#[case::unavailable("HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n", "503")]
#[case::gateway_timeout("HTTP/1.1 504 Gateway Timeout\r\nContent-Length: 0\r\n\r\n", "504")]
#[tokio::test]
async fn a_refused_write_is_sent_once(#[case] answer: &'static str, #[case] code: &str) {
    let server = serve(answer).await;
    for policy in [Policy::WRITES, Policy::WATCHES] {
        server.requests.store(0, Ordering::SeqCst);
        let error = patch(client(policy, &server.url)).await.unwrap_err();
        assert!(cause(&error).contains(code), "{}", cause(&error));
        assert_eq!(server.requests.load(Ordering::SeqCst), 1);
    }
}

#[tokio::test]
async fn requests_say_who_sends_them() {
    let mut server = serve("HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n").await;
    patch(client(Policy::WRITES, &server.url)).await.unwrap_err();
    let head = server.heads.recv().await.unwrap();
    assert!(head.contains(&format!("user-agent: {USER_AGENT}\r\n")), "{head}");
}

#[tokio::test]
async fn connecting_ends_when_nobody_shakes_hands() {
    // The kernel accepts the connection, but nobody answers the TLS handshake.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://{}", listener.local_addr().unwrap());
    let error = patch(client(Policy { connect: SOON, ..PATIENT }, &url)).await.unwrap_err();
    let expected = format!("can't connect to {url}: ");
    assert!(cause(&error).starts_with(&expected) && cause(&error).contains("deadline"), "{}", cause(&error));
}

#[tokio::test]
async fn a_write_waits_for_its_answer_only_so_long() {
    let server = serve("").await;
    let error = patch(client(Policy { answer: Some(SOON), ..PATIENT }, &server.url)).await.unwrap_err();
    assert!(cause(&error).contains("no answer within 0.05 s"), "{}", cause(&error));
    assert_eq!(server.requests.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn an_answer_that_falls_silent_is_an_error() {
    let server = serve("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{").await;
    let error = patch(client(Policy { silence: SOON, ..PATIENT }, &server.url)).await.unwrap_err();
    assert!(cause(&error).contains("timed out"), "{}", cause(&error));
}

#[tokio::test]
async fn a_refused_connection_says_so_with_the_address() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://{}", listener.local_addr().unwrap());
    drop(listener);
    let error = patch(client(Policy::WRITES, &url)).await.unwrap_err();
    assert_eq!(cause(&error), format!("connection refused by {url}"));
}

#[test]
fn writes_end_and_watches_do_not() {
    assert!(Policy::WRITES.answer.is_some_and(|limit| limit <= Duration::from_secs(10)));
    assert!(Policy::WRITES.connect < Duration::from_secs(5), "within the caller's deadline");
    assert_eq!(Policy::WATCHES.answer, None);
    assert!(Policy::WATCHES.silence > Duration::from_secs(60), "bookmarks come about every minute");
}
