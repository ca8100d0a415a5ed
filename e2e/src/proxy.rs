//! A way to the API server on which watches can be held up, as they are behind on a busy one.
//!
//! The program speaks plain HTTP/1.1 to it, so that it sees which connection carries a watch; it speaks TLS to the API server.

use std::{
    net::{Ipv4Addr, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use anyhow::{Context, Result};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, split},
    net::{TcpListener, TcpStream},
    sync::watch,
    task::{JoinHandle, JoinSet},
};
use tokio_rustls::{
    TlsConnector,
    rustls::{ClientConfig, pki_types::ServerName},
};

/// Largest part of a request or answer that is handed on at once.
const PART: usize = 16 * 1024;

/// A proxy on a port of its own. Dropping it cuts its connections.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    held: watch::Sender<bool>,
    accepting: JoinHandle<()>,
}

impl Proxy {
    /// Listens, and hands on to the API server on a port of 127.0.0.1.
    pub(crate) async fn start(port: u16, tls: ClientConfig) -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let (held, gate) = watch::channel(false);
        let way = Way { port, tls: TlsConnector::from(Arc::new(tls)), gate };
        let accepting = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                connections.spawn(way.clone().carry(client));
            }
        });
        Ok(Self { address, held, accepting })
    }

    /// Its address, for a kubeconfig.
    #[must_use]
    pub fn server(&self) -> String {
        format!("http://{}", self.address)
    }

    /// From now on, what watches tell is kept back; other answers go through.
    pub fn hold_watches(&self) {
        self.held.send_replace(true);
    }

    /// Lets watches tell what was kept back.
    pub fn release_watches(&self) {
        self.held.send_replace(false);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

#[derive(Clone)]
struct Way {
    port: u16,
    tls: TlsConnector,
    gate: watch::Receiver<bool>,
}

impl Way {
    /// Carries one connection until either side ends it.
    async fn carry(self, client: TcpStream) -> Result<()> {
        let server = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).await?;
        let server = self.tls.connect(ServerName::try_from("127.0.0.1")?, server).await?;
        let (from_client, to_client) = split(client);
        let (from_server, to_server) = split(server);
        let watching = AtomicBool::new(false);
        tokio::select! {
            ended = requests(from_client, to_server, &watching) => ended,
            ended = answers(from_server, to_client, &watching, self.gate) => ended,
        }
    }
}

async fn requests(
    mut client: impl AsyncRead + Unpin,
    mut server: impl AsyncWrite + Unpin,
    watching: &AtomicBool,
) -> Result<()> {
    let mut part = vec![0; PART];
    loop {
        let length = client.read(&mut part).await?;
        let part = part.get(..length).filter(|part| !part.is_empty()).context("the client is gone")?;
        if let Some(target) = target(part) {
            watching.store(target.contains("watch=true"), Ordering::Relaxed);
        }
        server.write_all(part).await?;
        server.flush().await?;
    }
}

async fn answers(
    mut server: impl AsyncRead + Unpin,
    mut client: impl AsyncWrite + Unpin,
    watching: &AtomicBool,
    mut gate: watch::Receiver<bool>,
) -> Result<()> {
    let mut part = vec![0; PART];
    loop {
        let length = server.read(&mut part).await?;
        let part = part.get(..length).filter(|part| !part.is_empty()).context("the server is gone")?;
        if watching.load(Ordering::Relaxed) {
            gate.wait_for(|held| !held).await?;
        }
        client.write_all(part).await?;
    }
}

/// The target of a request that begins with this part.
fn target(part: &[u8]) -> Option<&str> {
    let line = part.split(|byte| *byte == b'\r').next()?;
    let line = str::from_utf8(line).ok()?.strip_suffix(" HTTP/1.1")?;
    line.split_once(' ').map(|(_method, target)| target)
}
