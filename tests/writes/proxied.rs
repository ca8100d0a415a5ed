//! Tests of a management cluster that is only reachable through a proxy.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use parking_lot::Mutex;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _, copy_bidirectional},
    net::{TcpListener, TcpStream},
    task::JoinSet,
};

use super::world::World;

/// `user:p@ss` in the header's encoding.
const CREDENTIALS: &str = "proxy-authorization: basic dxnlcjpwqhnz";

/// A proxy that accepts one user.
struct Proxy {
    address: SocketAddr,
    /// The servers that this user has requested, one line for each connection.
    asked: Arc<Mutex<Vec<String>>>,
}

impl Proxy {
    /// Starts a proxy that serves until the test's runtime ends.
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let asked = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&asked);
        tokio::spawn(async move {
            let mut tunnels = JoinSet::new();
            loop {
                let (client, _) = listener.accept().await.unwrap();
                tunnels.spawn(tunnel(client, Arc::clone(&seen)));
            }
        });
        Self { address, asked }
    }
}

async fn tunnel(mut client: TcpStream, asked: Arc<Mutex<Vec<String>>>) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let Ok(byte) = client.read_u8().await else { return };
        head.push(byte);
    }
    let head = String::from_utf8(head).unwrap().to_lowercase();
    if !head.contains(CREDENTIALS) {
        let _ = client.write_all(b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n").await;
        return;
    }
    let server = head.strip_prefix("connect ").and_then(|rest| rest.split_once(' ')).unwrap().0.to_owned();
    let mut connection = TcpStream::connect(&server).await.unwrap();
    asked.lock().push(server);
    client.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n").await.unwrap();
    let _ = copy_bidirectional(&mut client, &mut connection).await;
}

/// On loopback a proxy of the environment would be bypassed; the kubeconfig's own applies to every server.
#[tokio::test(flavor = "multi_thread")]
async fn lists_watches_and_writes_go_through_the_proxy_of_the_kubeconfig() {
    let mut world = World::without_program(2).await;
    let proxy = Proxy::start().await;
    let url = world.sandbox.management().url().to_owned();
    let own = format!("{url}\n    proxy-url: http://user:p%40ss@{}", proxy.address);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("config");
    let direct = sandbox::kubeconfig::kubeconfig(&url);
    let kubeconfig = direct.replace(&format!("server: {url}"), &format!("server: {own}"));
    assert_ne!(kubeconfig, direct);
    std::fs::write(&path, kubeconfig).unwrap();

    let before = world.sandbox.management().requests().all().len();
    world.start_program(&path).await;
    world.increase(1, Duration::from_secs(30)).await.unwrap();
    world.until_machines_known(3).await;

    let requests = world.sandbox.management().requests().all().split_off(before);
    let verbs: std::collections::BTreeSet<_> = requests.iter().map(|request| request.verb).collect();
    assert!(["get", "watch", "patch"].iter().all(|verb| verbs.contains(verb)), "{verbs:?}");
    // Open watches have a connection each, and no connection bypassed the proxy.
    let asked = proxy.asked.lock().clone();
    let watches = requests.iter().filter(|request| request.verb == "watch").count();
    let server = url.trim_start_matches("http://");
    assert!(asked.len() >= watches.min(5) && asked.iter().all(|asked| asked == server), "{asked:?}");
    world.stop().await;
}
