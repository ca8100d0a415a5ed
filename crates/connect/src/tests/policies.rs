use std::{io, time::Duration};

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
    requests: mpsc::UnboundedReceiver<String>,
}

/// Starts a server that writes `answer` as it is and keeps the connection open.
async fn serve(answer: &'static str) -> Server {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let (seen, requests) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(converse(stream, answer, seen.clone()));
        }
    });
    Server { url, requests }
}

async fn converse(mut stream: TcpStream, answer: &'static str, seen: mpsc::UnboundedSender<String>) -> io::Result<()> {
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
            let _ = seen.send(String::from_utf8_lossy(&received).into_owned());
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
async fn a_refused_write_is_sent_once_and_says_who_sends_it(#[case] answer: &'static str, #[case] code: &str) {
    let mut server = serve(answer).await;
    for policy in [Policy::WRITES, Policy::WATCHES] {
        let error = patch(client(policy, &server.url)).await.unwrap_err();
        assert!(cause(&error).contains(code), "{}", cause(&error));
        let request = server.requests.recv().await.unwrap();
        assert!(request.contains(&format!("user-agent: {USER_AGENT}\r\n")), "{request}");
        assert!(server.requests.is_empty());
    }
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
    assert_eq!(server.requests.len(), 1);
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
