//! Clients that are silent in the handshake, or begin one again and again: they take no time from calls, and no handshake
//! from other clients.

use std::io::ErrorKind;

use testkit::until;
use tokio::net::TcpSocket;

use super::*;

const HOUR: Duration = Duration::from_secs(60 * 60);

/// Opens this number of connections from each of these addresses of the loopback network.
async fn connect(server: SocketAddr, addresses: std::ops::Range<u8>, of_each: usize) -> Vec<TcpStream> {
    let mut streams = Vec::new();
    for address in addresses.flat_map(|address| std::iter::repeat_n(address, of_each)) {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind(([127, 0, 0, address], 0).into()).unwrap();
        streams.push(socket.connect(server).await.unwrap());
    }
    streams
}

async fn until_open(streams: &[TcpStream], most: usize) {
    let is_open = |stream: &&TcpStream| match stream.try_read(&mut [0]) {
        Ok(read) => read > 0,
        Err(error) => error.kind() == ErrorKind::WouldBlock,
    };
    let open = || streams.iter().filter(is_open).count();
    until("the others are closed", async || (open() <= most).then_some(())).await;
}

/// One address has more connections than it may make handshakes at once.
#[rstest]
#[case::of_another_address(false, 2..3, 100, 16)]
#[case::of_its_own_address_if_it_has_authenticated(true, 1..2, 300, 16)]
#[case::of_many_addresses_if_it_has_authenticated(true, 2..102, 3, 64)]
#[tokio::test]
async fn silent_clients_take_no_handshake_from_one(
    #[case] is_known: bool,
    #[case] addresses: std::ops::Range<u8>,
    #[case] of_each: usize,
    #[case] stay: usize,
) {
    let running = Running::start(GrpcLimits::default()).await;
    let client = running.client(&[NAME]);
    if is_known {
        assert!(running.ask(&client).await.is_some());
    }
    let silent = connect(tcp(&running.grpc), addresses, of_each).await;
    for _ in 0..5 {
        assert!(running.ask(&client).await.is_some());
    }
    for reason in ["timeout", "rate"] {
        assert_eq!(running.metric(&refused(reason)), "0", "{reason}: none had to end for that");
    }
    until_open(&silent, stay).await;
    running.end().await;
}

/// A thread may accept many connections before it reads from one.
#[tokio::test]
async fn a_client_whose_first_message_has_arrived_is_not_evicted_as_silent() {
    let (servers, clients, listener) = (Authority::new("servers"), Authority::new("clients"), listener());
    let client = Client::new(&servers, Some(&clients.issue(&[NAME], |_| {})));
    let address = listener.local_addr().unwrap();
    let mut first = connect(address, 1..2, 1).await.remove(0);
    first.write_all(&client.hello()).await.unwrap();
    let _silent = connect(address, 1..2, 100).await;
    let running = Running::on(listener, servers, clients, boundless(), Some(AllowedClients::default())).await;
    let answered = timeout(LIMIT, first.read(&mut [0])).await.unwrap().unwrap();
    assert_eq!(answered, 1, "it isn't closed");
    running.end().await;
}

/// A client may send its first message and then nothing.
#[tokio::test]
async fn clients_that_fall_silent_in_the_handshake_are_evicted() {
    let running = Running::start(boundless()).await;
    let client = running.client(&[NAME]);
    assert!(running.ask(&client).await.is_some());
    let mut silent = connect(tcp(&running.grpc), 1..2, 100).await;
    for stream in &mut silent {
        // Those that were evicted already fail.
        let _ = stream.write_all(&client.hello()).await;
        assert!(running.ask(&client).await.is_some());
    }
    assert_eq!(running.metric(&refused("timeout")), "0", "none had to end for that");
    running.end().await;
}

fn rates(stranger: u32, strangers: u32, known: u32) -> HandshakeRates {
    let [stranger, strangers, known] = [stranger, strangers, known].map(|at_once| Rate { at_once, each: HOUR });
    HandshakeRates { stranger, strangers, known }
}

#[rstest]
#[case::of_one_address(rates(5, 1_000, 3), 2..3)]
#[case::of_many_addresses(rates(1_000, 6, 3), 2..6)]
#[tokio::test]
async fn connections_beyond_the_rate_are_closed_and_a_client_that_has_authenticated_comes_in(
    #[case] rates: HandshakeRates,
    #[case] flooding: std::ops::Range<u8>,
) {
    let running = Running::start(at_rates(GrpcLimits::default(), rates)).await;
    let client = running.client(&[NAME]);
    assert!(running.ask(&client).await.is_some());
    let mut streams = Vec::new();
    for address in flooding.cycle().take(40) {
        let mut stream = connect(tcp(&running.grpc), address..address + 1, 1).await.remove(0);
        stream.write_all(&client.hello()).await.unwrap();
        streams.push(stream);
    }
    running.until_metric(&refused("rate"), "35").await;
    assert_eq!(running.metric(&refused("too_many")), "0");
    until_open(&streams, 5).await;
    for is_admitted in [true, true, true, false] {
        assert_eq!(running.ask(&client).await.is_some(), is_admitted, "it has a rate of its own");
    }
    running.end().await;
}
