//! Floods of HTTP/2 frames and calls, and their effect on a Cluster Autoscaler beside them. The bound on resets is that
//! of h2; its test holds that nothing here turns it off.

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    task::yield_now,
    time::timeout,
};

use super::{
    LIMIT,
    hostile_grpc::{Client, Running, serve},
    tcp,
};
use crate::listen::grpc::GrpcLimits;

const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
/// The reason ENHANCE_YOUR_CALM of a GOAWAY.
const TOO_MUCH: u32 = 11;
/// The bytes that a flooding client sends at most, those in the kernel's buffers included.
const MOST_SENT: usize = 64 << 20;

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// Returns the headers of `POST http://a` and a path.
fn headers(path: &str) -> Vec<u8> {
    let literal = |name: u8, value: &str| [&[name, u8::try_from(value.len()).unwrap()], value.as_bytes()].concat();
    [vec![0x83, 0x86], literal(4, path), literal(1, "a")].concat()
}

/// Returns frames of this many calls of a path, the first ones of a connection.
fn calls(path: &str, count: u32) -> Vec<u8> {
    let call = |number| frame(HEADERS, END_HEADERS | END_STREAM, 2 * number + 1, &headers(path));
    (0..count).flat_map(call).collect()
}

async fn connect(running: &Running) -> TcpStream {
    let mut stream = TcpStream::connect(tcp(&running.grpc)).await.unwrap();
    stream
        .write_all(&[b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec(), frame(SETTINGS, 0, 0, &[])].concat())
        .await
        .unwrap();
    stream
}

/// Returns the reason of the GOAWAY among frames.
fn goaway(mut frames: &[u8]) -> Option<u32> {
    while let Some((head, rest)) = frames.split_at_checked(9) {
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        let (payload, rest) = rest.split_at_checked(usize::try_from(length).unwrap())?;
        if head[3] == 7 {
            return Some(u32::from_be_bytes(payload.get(4..8)?.try_into().unwrap()));
        }
        frames = rest;
    }
    None
}

/// Resets calls.
fn reset(number: u32) -> Vec<u8> {
    let call = frame(HEADERS, END_HEADERS | END_STREAM, 2 * number + 1, &headers("/waits"));
    [call, frame(RST_STREAM, 0, 2 * number + 1, &[0, 0, 0, 8])].concat()
}

#[tokio::test]
async fn a_client_that_resets_calls_without_end_loses_its_connection() {
    let running = serve(GrpcLimits::default());
    let other = Client::connect(&running, 65_535).await;
    let (mut reading, mut writing) = connect(&running).await.into_split();
    let sending = async move {
        let mut sent = 0;
        for number in 0.. {
            let bytes = reset(number);
            if writing.write_all(&bytes).await.is_err() {
                break;
            }
            sent += bytes.len();
        }
        sent
    };
    let receiving = async move {
        let mut answer = Vec::new();
        // It fails or ends.
        let _ = reading.read_to_end(&mut answer).await;
        goaway(&answer)
    };
    let (sent, reason) = timeout(LIMIT, async { tokio::join!(sending, receiving) }).await.unwrap();
    assert!(sent < MOST_SENT, "{sent} bytes");
    assert!(reason.is_none_or(|reason| reason == TOO_MUCH), "{reason:?}");
    assert_eq!(other.calls("/small").await.unwrap(), b"small");
    running.end().await;
}

/// Some clients have as many calls under way as they may, and all of them have come before that of another one.
#[tokio::test]
async fn calls_without_end_leave_others_their_turn_and_are_all_answered() {
    const CLIENTS: usize = 14;
    let limits = GrpcLimits::default();
    let running = serve(limits);
    let mut connections = Vec::new();
    for _ in 0..CLIENTS + 2 {
        let mut connection = connect(&running).await;
        // Its settings: it is served from now on.
        connection.read_exact(&mut [0; 9]).await.unwrap();
        connections.push(connection);
    }
    let (mut other, mut blocking) = (connections.pop().unwrap(), connections.pop().unwrap());
    let name = other.local_addr().unwrap().to_string();
    blocking.write_all(&calls("/blocks", 1)).await.unwrap();
    timeout(LIMIT, running.served.waiting.notified()).await.unwrap();
    for connection in &mut connections {
        connection.write_all(&calls("/small", limits.streams)).await.unwrap();
    }
    other.write_all(&calls("/small", 1)).await.unwrap();
    running.served.unblock.send(()).unwrap();
    let all = CLIENTS * usize::try_from(limits.streams).unwrap() + 1;
    let answered = async {
        while running.served.order.lock().len() < all {
            yield_now().await;
        }
    };
    timeout(LIMIT, answered).await.unwrap();
    let before = running.served.order.lock().iter().position(|client| *client == name).unwrap();
    // Its connection may be read a turn later than theirs.
    assert!(before <= 3 * CLIENTS, "{before} of {all} calls were answered before");
    running.end().await;
}
