//! The default limits, as SECURITY.md and docs/how-to/tls.md state them.

use std::time::Duration;

use crate::listen::{
    connections::Limits,
    grpc::{GrpcLimits, JITTER, MAX_HEADER_BYTES},
    tls::{AUTHENTICATED_LATELY, HANDSHAKE, HANDSHAKES_AT_ONCE, HandshakeRates, OF_ONE_ADDRESS},
};

const SECURITY: &str = "SECURITY.md";
const TLS: &str = "docs/how-to/tls.md";

/// Asserts that a document has this text, however its lines are wrapped.
#[track_caller]
fn assert_states(document: &str, text: &str) {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(document);
    let words = std::fs::read_to_string(path).unwrap().split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains(text), "{document} doesn't say: {text}");
}

/// Returns a number as documents write it: with a comma before the last three of four digits.
fn number(number: u32) -> String {
    if number < 1_000 { number.to_string() } else { format!("{},{:03}", number / 1_000, number % 1_000) }
}

fn minutes(duration: Duration) -> u64 {
    duration.as_secs() / 60
}

#[test]
fn the_default_limits_of_http_are_those_of_the_documents() {
    let Limits { total, per_peer, per_identity, age, last_request, headers, write } = Limits::default();
    let [age, last_request, headers] = [age, last_request, headers].map(|it| it.as_secs());
    let text = format!(
        "{per_peer} connections per address and {total} in all; beyond that the client with the most loses its oldest. A \
         connection ends after {age} s, at most {last_request} s later whatever is unread, or after {headers} s without a \
         request"
    );
    assert_states(SECURITY, &text);
    assert_eq!((per_identity, write), (None, Duration::from_secs(30)));
}

#[test]
fn the_default_limits_of_grpc_are_those_of_the_documents() {
    let GrpcLimits { connections, silence, overtime, streams, bytes, .. } = GrpcLimits::default();
    let Limits { total, per_peer, per_identity, age, last_request, .. } = connections;
    assert_states(SECURITY, &format!("{per_peer} connections per address or socket user, {total} in all"));
    assert_eq!((per_identity, silence), (None, Duration::from_secs(1)));
    let (youngest, oldest) = (minutes(age.mul_f64(1.0 - JITTER)), minutes(age));
    let [overtime, last_request] = [overtime, last_request].map(minutes);
    let text = format!(
        "after {youngest} to {oldest} minutes, one second after a loop, or {overtime} minutes later between two calls; a call \
         that still runs is cut {last_request} minutes after that"
    );
    assert_states(SECURITY, &text);
    let (idle, busy) = (oldest + overtime, oldest + overtime + last_request);
    assert_states(SECURITY, &format!("ends within {idle} minutes, during a call within {busy}"));
    let text = format!(
        "A connection ends between two loops when it is {youngest} to {oldest} minutes old; within a loop it gets \
         {overtime} minutes more, during a call {}.",
        overtime + last_request
    );
    assert_states(TLS, &text);

    let headers = MAX_HEADER_BYTES >> 10;
    let [requests, answers, all] = [bytes.requests, bytes.answers, bytes.total].map(|bytes| bytes >> 20);
    let text = format!(
        "{streams} calls and {headers} KiB of headers per connection, {requests} MiB of requests and {answers} MiB of unread answers per client"
    );
    assert_states(SECURITY, &text);
    assert_states(SECURITY, &format!("; {all} MiB on all connections"));
}

#[test]
fn the_limits_of_each_client_of_a_fleet_are_those_of_the_documents() {
    let GrpcLimits { connections, bytes, .. } = GrpcLimits::of_many_clients();
    let of_identity = connections.per_identity.unwrap();
    let [requests, answers] = [bytes.requests, bytes.answers].map(|bytes| bytes >> 20);
    let text = format!(
        "an identity has {of_identity} connections per replica, with {requests} MiB of requests and {answers} MiB of unread \
         answers in all"
    );
    assert_states(SECURITY, &text);
    assert_eq!((connections.per_peer, connections.total), (1_024, 4_096));
}

#[test]
fn the_default_rates_of_handshakes_are_those_of_the_documents() {
    let seconds = HANDSHAKE.as_secs();
    let text =
        format!("A handshake has {seconds} seconds. {OF_ONE_ADDRESS} per address and {HANDSHAKES_AT_ONCE} in total");
    assert_states(TLS, &text);
    assert_eq!(AUTHENTICATED_LATELY, Duration::from_secs(2 * 60 * 60));
    assert_states(TLS, "haven't authenticated within two hours");

    let (one, many) = (HandshakeRates::default(), HandshakeRates::of_many_clients());
    for rates in [one, many] {
        assert_eq!((rates.stranger.at_once, rates.stranger.each), (16, Duration::from_millis(500)));
    }
    let a_second = |each: Duration| Duration::from_secs(1).as_millis() / each.as_millis();
    let at_once = [one.strangers, many.strangers, one.known, many.known].map(|rate| number(rate.at_once));
    let later = [one.strangers, many.strangers, one.known, many.known].map(|rate| a_second(rate.each));
    let ([strangers, of_fleet, known, known_of_fleet], [strangers_later, of_fleet_later, later, later_of_fleet]) =
        (at_once, later);
    let text = format!(
        "| an unknown address | 16 | 2 | | all unknown addresses together | {strangers} ({of_fleet}) | {strangers_later} \
         ({of_fleet_later}) | | a known address | {known} ({known_of_fleet}) | {later} ({later_of_fleet}) |"
    );
    assert_states(TLS, &text);
}
