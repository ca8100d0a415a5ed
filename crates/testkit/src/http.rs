//! A minimal HTTP client without a library that adds to its requests, and servers for a test's own routes on loopback.

use std::{io, net::SocketAddr, sync::Arc};

use axum::{Router, extract::State, routing::post};
use serde_json::Value;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    sync::watch,
    task::JoinHandle,
};

/// Returns the status and body of a GET request.
pub async fn get(address: &str, path: &str) -> (u16, String) {
    try_get(address, path).await.unwrap_or_else(|error| panic!("{address}{path}: {error}"))
}

/// Sends a GET request to a server that may not listen yet.
///
/// # Errors
/// If no complete answer came.
pub async fn try_get(address: &str, path: &str) -> io::Result<(u16, String)> {
    let mut stream = TcpStream::connect(address).await?;
    let request = format!("GET {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    let no_answer = || io::Error::other(format!("no answer in HTTP: {answer:?}"));
    let (head, body) = answer.split_once("\r\n\r\n").ok_or_else(no_answer)?;
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
    Ok((status.ok_or_else(no_answer)?, body.to_owned()))
}

/// Returns a loopback address with a port that was free a moment ago.
pub fn free_address() -> SocketAddr {
    std::net::TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).unwrap()
}

/// Serves routes on a free port, until the task is aborted or the test's runtime ends.
pub async fn serve(router: Router) -> (SocketAddr, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    (address, tokio::spawn(async move { axum::serve(listener, router).await.unwrap() }))
}

/// Returns the route `/services/<token>` of a Slack-like receiver, and the JSON of all messages it has accepted.
pub fn receiver() -> (Router, watch::Receiver<Vec<Value>>) {
    let (send, received) = watch::channel(Vec::new());
    let keep = |State(send): State<Arc<watch::Sender<Vec<Value>>>>, body: String| async move {
        send.send_modify(|received| received.push(serde_json::from_str(&body).unwrap()));
        "ok"
    };
    (Router::new().route("/services/{token}", post(keep)).with_state(Arc::new(send)), received)
}
