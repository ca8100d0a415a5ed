//! Clients that begin handshakes again and again: they take no time from calls, and no handshake from other clients.

use testkit::until;

use super::*;

const HOUR: Duration = Duration::from_secs(60 * 60);
const RATE: &str = "tls_refused_connections_total{reason=\"rate\"}";

fn rates(stranger: u32, strangers: u32, known: u32) -> HandshakeRates {
    let [stranger, strangers, known] = [stranger, strangers, known].map(|at_once| Rate { at_once, each: HOUR });
    HandshakeRates { stranger, strangers, known }
}

#[rstest]
#[case::of_one_address(rates(5, 1_000, 3), &[2])]
#[case::of_many_addresses(rates(1_000, 6, 3), &[2, 3, 4, 5])]
#[tokio::test]
async fn connections_beyond_the_rate_are_closed_and_a_client_that_has_authenticated_comes_in(
    #[case] rates: HandshakeRates,
    #[case] flooding: &[u8],
) {
    let (servers, clients) = (Authority::new("servers"), Authority::new("clients"));
    let allowed = Some(AllowedClients::default());
    let running = Running::serving_at(rates, &servers.issue(&[HOST], |_| {}), &[&clients], allowed).await;
    let client = Client::new(&servers, Some(&clients.issue(&["ca"], |_| {})));
    running.ask(&client).await.unwrap();
    let mut streams = Vec::new();
    for number in 0..40 {
        let mut stream = connect(tcp(&running.grpc), flooding[number % flooding.len()]).await;
        stream.write_all(&client.hello()).await.unwrap();
        streams.push(stream);
    }
    running.until_metric(RATE, "35").await;
    assert_eq!(running.metric("tls_refused_connections_total{reason=\"too_many\"}"), "0");
    let closed = || streams.iter().filter(|stream| is_closed(stream)).count();
    until("those beyond it are closed, unanswered", async || (closed() == 35).then_some(())).await;
    running.ask(&client).await.unwrap();
    drop(streams);
    running.end().await;
}

#[tokio::test]
async fn a_client_that_has_authenticated_has_a_rate_too() {
    let (servers, clients) = (Authority::new("servers"), Authority::new("clients"));
    let allowed = Some(AllowedClients::default());
    let running = Running::serving_at(rates(1, 1, 3), &servers.issue(&[HOST], |_| {}), &[&clients], allowed).await;
    let client = Client::new(&servers, Some(&clients.issue(&["ca"], |_| {})));
    for _ in 0..4 {
        running.ask(&client).await.unwrap();
    }
    assert!(running.ask(&client).await.is_err());
    running.until_metric(RATE, "1").await;
    running.end().await;
}
