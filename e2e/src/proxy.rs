//! A proxy to the API server that can hold back watches and the answers to patches, as a busy server delays them, that
//! can slow down and throttle requests, and that can be cut.
//!
//! The program connects to it by plain HTTP/1.1, so that it sees the requests of each connection; it connects to a real
//! API server by TLS.

use std::{
    net::{Ipv4Addr, SocketAddr},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU8, AtomicUsize, Ordering},
    },
    time::Duration,
};

use anyhow::{Context, Result};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, split},
    net::{TcpListener, TcpStream},
    sync::watch,
    task::{JoinHandle, JoinSet},
    time::{Instant, sleep},
};
use tokio_rustls::{
    TlsConnector,
    rustls::{ClientConfig, pki_types::ServerName},
};

/// The largest part of a request or answer that is forwarded at once.
const PART: usize = 16 * 1024;

/// The kind of request that a connection carries now: the answers to each kind are held back together.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(u8)]
enum Carried {
    Other,
    Watch,
    Write,
}

/// The traffic that is held back.
#[derive(Clone, Copy, Debug, Default)]
struct Held {
    watches: bool,
    writes: bool,
    /// The time for which each request waits.
    delay: Duration,
    /// The shortest time between two requests that are carried. Others are answered with 429, as API Priority and
    /// Fairness does.
    interval: Duration,
    /// True if no connection is carried at all.
    all: bool,
    /// The number of times that all open connections were cut.
    cuts: usize,
}

/// A proxy on a port of its own. Dropping it cuts its connections.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    held: watch::Sender<Held>,
    asked: Asked,
    refused: Arc<AtomicUsize>,
    accepting: JoinHandle<()>,
}

/// The answer to a request that is throttled, whose connection ends with it.
const TOO_MANY_REQUESTS: &[u8] =
    b"HTTP/1.1 429 Too Many Requests\r\nRetry-After: 1\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";

/// The paths and queries of the received requests.
type Asked = Arc<Mutex<Vec<String>>>;

impl Proxy {
    /// Listens and forwards to the API server on a port of 127.0.0.1, by TLS if it has settings for it. Requests get the
    /// token, if any.
    pub(crate) async fn start(port: u16, tls: Option<ClientConfig>, token: Option<String>) -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let held = watch::Sender::new(Held::default());
        let tls = tls.map(|tls| TlsConnector::from(Arc::new(tls)));
        let (asked, refused) = (Asked::default(), Arc::default());
        let throttle = Throttle { next: Arc::new(Mutex::new(Instant::now())), refused: Arc::clone(&refused) };
        let authorization = token.map(|token| format!("Authorization: Bearer {token}\r\n").into());
        let way = Forwarder { port, tls, held: held.clone(), asked: Arc::clone(&asked), throttle, authorization };
        let accepting = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                connections.spawn(way.clone().carry(client));
            }
        });
        Ok(Self { address, held, asked, refused, accepting })
    }

    /// Returns its URL, for a kubeconfig.
    pub fn server(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Holds back watch events from now on; other answers pass.
    pub fn hold_watches(&self) {
        self.held.send_modify(|held| held.watches = true);
    }

    /// Releases the watch events that were held back.
    pub fn release_watches(&self) {
        self.held.send_modify(|held| held.watches = false);
    }

    /// Holds back the answers to patches from now on; the API server carries them out.
    pub fn hold_writes(&self) {
        self.held.send_modify(|held| held.writes = true);
    }

    /// Releases the answers to patches.
    pub fn release_writes(&self) {
        self.held.send_modify(|held| held.writes = false);
    }

    /// Lets each request wait for this time from now on.
    pub fn slow_down(&self, delay: Duration) {
        self.held.send_modify(|held| held.delay = delay);
    }

    /// Answers requests with 429 from now on unless this time has passed since the last one that was carried.
    pub fn throttle(&self, interval: Duration) {
        self.held.send_modify(|held| held.interval = interval);
    }

    /// Returns the number of requests that were answered with 429.
    pub fn refused(&self) -> usize {
        self.refused.load(Ordering::Relaxed)
    }

    /// Cuts all connections, and refuses new ones. When this returns, nothing is carried any more.
    pub async fn cut(&self) {
        self.held.send_modify(|held| held.all = true);
        // Each connection holds a receiver, and nothing else does.
        self.held.closed().await;
    }

    /// Cuts the open connections, which loses the traffic they hold back. New ones are carried.
    pub fn cut_once(&self) {
        self.held.send_modify(|held| held.cuts += 1);
    }

    /// Carries connections again.
    pub fn mend(&self) {
        self.held.send_modify(|held| held.all = false);
    }

    /// Returns the paths and queries of the received requests.
    pub fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

#[derive(Clone)]
struct Forwarder {
    port: u16,
    tls: Option<TlsConnector>,
    held: watch::Sender<Held>,
    asked: Asked,
    throttle: Throttle,
    /// The header that is added to each request.
    authorization: Option<Arc<str>>,
}

#[derive(Clone)]
struct Throttle {
    /// When the next request may be carried.
    next: Arc<Mutex<Instant>>,
    refused: Arc<AtomicUsize>,
}

impl Throttle {
    fn admits(&self, interval: Duration) -> bool {
        let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        let admitted = interval.is_zero() || *next <= now;
        if admitted {
            *next = now + interval;
        } else {
            self.refused.fetch_add(1, Ordering::Relaxed);
        }
        admitted
    }
}

impl Forwarder {
    /// Carries one connection until either side ends it, or it is cut.
    async fn carry(self, client: TcpStream) -> Result<()> {
        let mut gate = self.held.subscribe();
        let cuts = gate.borrow().cuts;
        tokio::select! {
            cut = gate.wait_for(|held| held.all || held.cuts != cuts) => cut.map(drop).map_err(Into::into),
            ended = self.connect(client) => ended,
        }
    }

    async fn connect(self, client: TcpStream) -> Result<()> {
        let server = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).await?;
        // Otherwise the parts of a request wait for delayed acknowledgements.
        client.set_nodelay(true)?;
        server.set_nodelay(true)?;
        match &self.tls {
            Some(tls) => {
                let server = tls.connect(ServerName::try_from("127.0.0.1")?, server).await?;
                self.forward(client, server).await
            }
            None => self.forward(client, server).await,
        }
    }

    async fn forward(&self, client: TcpStream, server: impl AsyncRead + AsyncWrite) -> Result<()> {
        let (from_client, mut to_client) = split(client);
        let (from_server, to_server) = split(server);
        let carried = AtomicU8::new(Carried::Other as u8);
        tokio::select! {
            throttled = self.requests(from_client, to_server, &carried) => throttled?,
            ended = answers(from_server, &mut to_client, &carried, self.held.subscribe()) => return ended,
        }
        to_client.write_all(TOO_MANY_REQUESTS).await?;
        Ok(to_client.shutdown().await?)
    }

    /// Forwards requests until one is throttled.
    async fn requests(
        &self,
        mut client: impl AsyncRead + Unpin,
        mut server: impl AsyncWrite + Unpin,
        carried: &AtomicU8,
    ) -> Result<()> {
        let mut part = vec![0; PART];
        loop {
            let length = client.read(&mut part).await?;
            let mut part = part.get(..length).filter(|part| !part.is_empty()).context("the client is gone")?;
            if let Some((method, target)) = request_line(part) {
                carried.store(carried_by(method, target) as u8, Ordering::Relaxed);
                self.asked.lock().unwrap_or_else(PoisonError::into_inner).push(target.to_owned());
                let Held { delay, interval, .. } = *self.held.borrow();
                if !self.throttle.admits(interval) {
                    return Ok(());
                }
                sleep(delay).await;
                if let Some(header) = &self.authorization {
                    let end = part.iter().position(|byte| *byte == b'\n').context("a request line without end")? + 1;
                    server.write_all(&part[..end]).await?;
                    server.write_all(header.as_bytes()).await?;
                    part = &part[end..];
                }
            }
            server.write_all(part).await?;
            server.flush().await?;
        }
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

/// Returns the method and target of the request that begins with this part.
fn request_line(part: &[u8]) -> Option<(&str, &str)> {
    let line = part.split(|byte| *byte == b'\r').next()?;
    str::from_utf8(line).ok()?.strip_suffix(" HTTP/1.1")?.split_once(' ')
}

fn carried_by(method: &str, target: &str) -> Carried {
    match method {
        "PATCH" => Carried::Write,
        _ if target.contains("watch=true") => Carried::Watch,
        _ => Carried::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// After the cut nothing that the server sends reaches a client.
    #[tokio::test]
    async fn a_cut_is_over_when_it_returns() -> Result<()> {
        let server = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let proxy = Proxy::start(server.local_addr()?.port(), None, None).await?;
        let mut client = TcpStream::connect(proxy.address).await?;
        let (mut carried, _) = server.accept().await?;
        carried.write_all(b"before").await?;
        let mut recorded = [0; 6];
        client.read_exact(&mut recorded).await?;
        proxy.cut().await;
        carried.write_all(b"after").await.ok();
        drop(carried);
        proxy.mend();
        let mut rest = Vec::new();
        client.read_to_end(&mut rest).await.ok();
        assert_eq!((&recorded, rest.as_slice()), (b"before", b"".as_slice()));
        Ok(())
    }
}
