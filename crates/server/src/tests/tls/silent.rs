//! Clients that send nothing, or nothing more, in the handshake: they delay no other client.

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

#[tokio::test]
async fn an_address_of_many_silent_connections_holds_up_no_other() {
    let servers = Authority::new("servers");
    let running = Running::start(&servers.issue(&[HOST], |_| {}), None).await;
    let mut silent = Vec::new();
    for _ in 0..100 {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind(([127, 0, 0, 2], 0).into()).unwrap();
        silent.push(socket.connect(tcp(&running.grpc)).await.unwrap());
    }
    running.until_metric("tls_refused_connections_total{reason=\"too_many\"}", "84").await;
    running.ask(&Client::new(&servers, None)).await.unwrap();
    assert_eq!(running.metric("tls_refused_connections_total{reason=\"timeout\"}"), "0", "none had to end for that");
    drop(silent);
    running.end().await;
}

/// Opens this number of silent connections from each of these addresses of the loopback network.
async fn silent(running: &Running, addresses: std::ops::Range<u8>, of_each: usize) -> Vec<TcpStream> {
    let mut silent = Vec::new();
    for address in addresses {
        for _ in 0..of_each {
            let socket = TcpSocket::new_v4().unwrap();
            socket.bind(([127, 0, 0, address], 0).into()).unwrap();
            silent.push(socket.connect(tcp(&running.grpc)).await.unwrap());
        }
    }
    silent
}

#[rstest]
#[case::behind_its_own_address(1..2, 100)]
#[case::of_many_addresses(2..102, 2)]
#[tokio::test]
async fn silent_clients_take_no_handshake_from_one_that_has_authenticated(
    #[case] addresses: std::ops::Range<u8>,
    #[case] of_each: usize,
) {
    let (servers, clients) = (Authority::new("servers"), Authority::new("clients"));
    let running = Running::start(&servers.issue(&[HOST], |_| {}), Some((&clients, &[]))).await;
    let client = Client::new(&servers, Some(&clients.issue(&["ca"], |_| {})));
    running.ask(&client).await.unwrap();
    let silent = silent(&running, addresses, of_each).await;
    for _ in 0..5 {
        running.ask(&client).await.unwrap();
    }
    assert_eq!(running.metric("tls_refused_connections_total{reason=\"timeout\"}"), "0", "none had to end for that");
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
    let mut silent = silent(&running, 1..2, 100).await;
    for stream in &mut silent {
        let name = ServerName::try_from(HOST).unwrap();
        let mut hello = rustls::ClientConnection::new(Arc::clone(&client.config), name).unwrap();
        let mut bytes = Vec::new();
        hello.write_tls(&mut bytes).unwrap();
        // Those that were evicted already fail.
        let _ = stream.write_all(&bytes).await;
        running.ask(&client).await.unwrap();
    }
    assert_eq!(running.metric("tls_refused_connections_total{reason=\"timeout\"}"), "0", "none had to end for that");
    drop(silent);
    running.end().await;
}
