//! Clients that send nothing, or nothing more, in the handshake: they delay no other client.

use testkit::until;

use super::*;

#[tokio::test]
async fn a_client_that_says_nothing_holds_up_no_other() {
    let servers = Authority::new("servers");
    let running = Running::start(&servers.issue(&[HOST], |_| {}), None).await;
    let silent = TcpStream::connect(tcp(&running.grpc)).await.unwrap();
    running.ask(&Client::new(&servers, None)).await.unwrap();
    drop(silent);
    running.end().await;
}

/// Opens this number of silent connections from each of these addresses of the loopback network.
async fn silent(server: SocketAddr, addresses: std::ops::Range<u8>, of_each: usize) -> Vec<TcpStream> {
    let mut silent = Vec::new();
    for address in addresses {
        for _ in 0..of_each {
            silent.push(connect(server, address).await);
        }
    }
    silent
}

#[tokio::test]
async fn an_address_of_many_silent_connections_holds_up_no_other() {
    let servers = Authority::new("servers");
    let running = Running::start(&servers.issue(&[HOST], |_| {}), None).await;
    let silent = silent(tcp(&running.grpc), 2..3, 100).await;
    running.until_metric("tls_refused_connections_total{reason=\"too_many\"}", "84").await;
    running.ask(&Client::new(&servers, None)).await.unwrap();
    assert_eq!(running.metric("tls_refused_connections_total{reason=\"timeout\"}"), "0", "none had to end for that");
    drop(silent);
    running.end().await;
}

/// One address has more connections than it may make handshakes at once.
#[rstest]
#[case::behind_its_own_address(1..2, 300, 16)]
#[case::of_many_addresses(2..102, 3, 64)]
#[tokio::test]
async fn silent_clients_take_no_handshake_from_one_that_has_authenticated(
    #[case] addresses: std::ops::Range<u8>,
    #[case] of_each: usize,
    #[case] stay: usize,
) {
    let (servers, clients) = (Authority::new("servers"), Authority::new("clients"));
    let (rates, allowed) = (HandshakeRates::default(), Some(AllowedClients::default()));
    let running = Running::serving_at(rates, &servers.issue(&[HOST], |_| {}), &[&clients], allowed).await;
    let client = Client::new(&servers, Some(&clients.issue(&["ca"], |_| {})));
    running.ask(&client).await.unwrap();
    let silent = silent(tcp(&running.grpc), addresses, of_each).await;
    for _ in 0..5 {
        running.ask(&client).await.unwrap();
    }
    for reason in ["timeout", "rate"] {
        let refused = running.metric(&format!("tls_refused_connections_total{{reason=\"{reason}\"}}"));
        assert_eq!(refused, "0", "{reason}: none had to end for that");
    }
    let open = || silent.iter().filter(|stream| !is_closed(stream)).count();
    until("the others are closed", async || (open() <= stay).then_some(())).await;
    drop(silent);
    running.end().await;
}

/// A thread may accept many connections before it reads from one.
#[tokio::test]
async fn a_client_whose_first_message_has_arrived_is_not_evicted_as_silent() {
    let (servers, clients) = (Authority::new("servers"), Authority::new("clients"));
    let (listener, client) = (listener(), Client::new(&servers, Some(&clients.issue(&["ca"], |_| {}))));
    let address = listener.local_addr().unwrap();
    let mut first = connect(address, 1).await;
    first.write_all(&client.hello()).await.unwrap();
    let silent = silent(address, 1..2, 100).await;
    let limits = GrpcLimits { handshakes: boundless(), ..GrpcLimits::default() };
    let (server, allowed) = (servers.issue(&[HOST], |_| {}), Some(AllowedClients::default()));
    let running = Running::serving_on(listener, limits, &server, &[&clients], allowed).await;
    let answered = timeout(LIMIT, first.read(&mut [0])).await.unwrap().unwrap();
    assert_eq!(answered, 1, "it isn't closed");
    drop(silent);
    running.end().await;
}

/// A client may send its first message and then nothing.
#[tokio::test]
async fn clients_that_fall_silent_in_the_handshake_are_evicted() {
    let (servers, clients) = (Authority::new("servers"), Authority::new("clients"));
    let running = Running::start(&servers.issue(&[HOST], |_| {}), Some((&clients, &[]))).await;
    let client = Client::new(&servers, Some(&clients.issue(&["ca"], |_| {})));
    running.ask(&client).await.unwrap();
    let mut silent = silent(tcp(&running.grpc), 1..2, 100).await;
    for stream in &mut silent {
        // Those that were evicted already fail.
        let _ = stream.write_all(&client.hello()).await;
        running.ask(&client).await.unwrap();
    }
    assert_eq!(running.metric("tls_refused_connections_total{reason=\"timeout\"}"), "0", "none had to end for that");
    drop(silent);
    running.end().await;
}
