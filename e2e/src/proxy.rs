//! A way to the API server on which watches and the answers to writes can be held up, as they are behind on a busy one.
//!
//! The program speaks plain HTTP/1.1 to it, so that it sees which connection carries what; it speaks TLS to the API server.

use std::{
    net::{Ipv4Addr, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicU8, Ordering},
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

/// What a connection carries now: the answers to this are held up together.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(u8)]
enum Carried {
    Other,
    Watch,
    Write,
}

/// What is held up.
#[derive(Clone, Copy, Debug, Default)]
struct Held {
    watches: bool,
    writes: bool,
}

/// A proxy on a port of its own. Dropping it cuts its connections.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    held: watch::Sender<Held>,
    accepting: JoinHandle<()>,
}

impl Proxy {
    /// Listens, and hands on to the API server on a port of 127.0.0.1.
    pub(crate) async fn start(port: u16, tls: ClientConfig) -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let (held, gate) = watch::channel(Held::default());
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
        self.held.send_modify(|held| held.watches = true);
    }

    /// Lets watches tell what was kept back.
    pub fn release_watches(&self) {
        self.held.send_modify(|held| held.watches = false);
    }

    /// From now on, the answers to writes are kept back; the API server does what they ask for.
    pub fn hold_writes(&self) {
        self.held.send_modify(|held| held.writes = true);
    }

    /// Lets the answers to writes through.
    pub fn release_writes(&self) {
        self.held.send_modify(|held| held.writes = false);
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
    gate: watch::Receiver<Held>,
}

impl Way {
    /// Carries one connection until either side ends it.
    async fn carry(self, client: TcpStream) -> Result<()> {
        let server = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).await?;
        let server = self.tls.connect(ServerName::try_from("127.0.0.1")?, server).await?;
        let (from_client, to_client) = split(client);
        let (from_server, to_server) = split(server);
        let carried = AtomicU8::new(Carried::Other as u8);
        tokio::select! {
            ended = requests(from_client, to_server, &carried) => ended,
            ended = answers(from_server, to_client, &carried, self.gate) => ended,
        }
    }
}

async fn requests(
    mut client: impl AsyncRead + Unpin,
    mut server: impl AsyncWrite + Unpin,
    carried: &AtomicU8,
) -> Result<()> {
    let mut part = vec![0; PART];
    loop {
        let length = client.read(&mut part).await?;
        let part = part.get(..length).filter(|part| !part.is_empty()).context("the client is gone")?;
        if let Some(now) = carried_by(part) {
            carried.store(now as u8, Ordering::Relaxed);
        }
        server.write_all(part).await?;
        server.flush().await?;
    }
}

async fn answers(
    mut server: impl AsyncRead + Unpin,
    mut client: impl AsyncWrite + Unpin,
    carried: &AtomicU8,
    mut gate: watch::Receiver<Held>,
) -> Result<()> {
    let mut part = vec![0; PART];
    loop {
        let length = server.read(&mut part).await?;
        let part = part.get(..length).filter(|part| !part.is_empty()).context("the server is gone")?;
        let carried = carried.load(Ordering::Relaxed);
        if carried == Carried::Watch as u8 {
            gate.wait_for(|held| !held.watches).await?;
        } else if carried == Carried::Write as u8 {
            gate.wait_for(|held| !held.writes).await?;
        }
        client.write_all(part).await?;
    }
}

/// What a request asks for that begins with this part.
fn carried_by(part: &[u8]) -> Option<Carried> {
    let line = part.split(|byte| *byte == b'\r').next()?;
    let line = str::from_utf8(line).ok()?.strip_suffix(" HTTP/1.1")?;
    let (method, target) = line.split_once(' ')?;
    Some(match method {
        "PATCH" => Carried::Write,
        _ if target.contains("watch=true") => Carried::Watch,
        _ => Carried::Other,
    })
}
