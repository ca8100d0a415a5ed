//! The default limits are the numbers in SECURITY.md and docs/how-to/tls.md.

use std::time::Duration;

use crate::listen::{
    connections::Limits,
    grpc::{GrpcLimits, JITTER, MAX_HEADER_BYTES},
    tls::{AUTHENTICATED_LATELY, HANDSHAKE, HANDSHAKES_AT_ONCE, HandshakeRates, OF_ONE_ADDRESS, Rate},
};

/// Asserts that a document has each of these texts, however its lines are wrapped.
#[track_caller]
fn assert_states(document: &str, texts: &[String]) {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(document);
    let words = std::fs::read_to_string(path).unwrap().split_whitespace().collect::<Vec<_>>().join(" ");
    for text in texts {
        assert!(words.contains(text), "{document} doesn't say: {text}");
    }
}

fn minutes(duration: Duration) -> u64 {
    duration.as_secs() / 60
}

#[test]
fn limits_of_connections_are_as_documented() {
    let (http, grpc, many) = (Limits::default(), GrpcLimits::default(), GrpcLimits::of_many_clients());
    let of_grpc = grpc.connections;
    let (youngest, oldest) = (minutes(of_grpc.age.mul_f64(1.0 - JITTER)), minutes(of_grpc.age));
    let mib = |bytes: usize| bytes >> 20;
    let texts = [
        format!("{} connections per address and {} in all", http.per_peer, http.total),
        format!("after {} s, at most {} s later", http.age.as_secs(), http.last_request.as_secs()),
        format!("{} connections per address or socket user, {} in all", of_grpc.per_peer, of_grpc.total),
        format!("after {youngest} to {oldest} minutes"),
        format!("{} calls and {} KiB of headers per connection", grpc.streams, MAX_HEADER_BYTES >> 10),
        format!("{} MiB of requests and {} MiB of unread answers", mib(grpc.bytes.requests), mib(grpc.bytes.answers)),
        format!("{} MiB on all connections", mib(grpc.bytes.total)),
        format!(
            "{} connections per replica, with {} MiB",
            many.connections.per_identity.unwrap(),
            mib(many.bytes.requests)
        ),
    ];
    assert_states("SECURITY.md", &texts);
    assert_states("docs/how-to/tls.md", &[format!("when it is {youngest} to {oldest} minutes old")]);
}

#[test]
fn limits_of_handshakes_are_as_documented() {
    let (one, many) = (HandshakeRates::default(), HandshakeRates::of_many_clients());
    let number = |it: u32| if it < 1_000 { it.to_string() } else { format!("{},{:03}", it / 1_000, it % 1_000) };
    let a_second = |rate: Rate| 1_000 / rate.each.as_millis();
    let row = |of: &str, one: Rate, many: Rate| {
        let at_once = format!("{} ({})", number(one.at_once), number(many.at_once));
        format!("| {of} | {at_once} | {} ({}) |", a_second(one), a_second(many))
    };
    let texts = [
        format!(
            "A handshake has {} seconds. {OF_ONE_ADDRESS} per address and {HANDSHAKES_AT_ONCE}",
            HANDSHAKE.as_secs()
        ),
        format!("| an unknown address | {} | {} |", one.stranger.at_once, a_second(one.stranger)),
        row("all unknown addresses together", one.strangers, many.strangers),
        row("a known address", one.known, many.known),
    ];
    assert_states("docs/how-to/tls.md", &texts);
    assert_eq!(AUTHENTICATED_LATELY, Duration::from_secs(2 * 60 * 60), "within two hours");
}
