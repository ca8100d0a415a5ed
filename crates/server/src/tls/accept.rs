//! Connections with a completed TLS handshake. Handshakes run concurrently, with limits on their rate, number and time,
//! and none waits for a place: if there are too many, the oldest is evicted. Clients whose ClientHello hasn't arrived
//! are counted separately, and use up nothing of the rate, so that silent ones take no handshake from others.

use std::{
    io,
    net::{IpAddr, SocketAddr},
    pin::pin,
    sync::Arc,
    time::{Duration, Instant},
};

use futures::{FutureExt, Stream, StreamExt};
use parking_lot::Mutex;
use rustls::{AlertDescription, CertificateError, Error, server::Acceptor};
use tokio::{
    net::TcpStream,
    sync::mpsc,
    task::yield_now,
    time::{interval, timeout},
};
use tokio_rustls::{LazyConfigAcceptor, StartHandshake, server::TlsStream};
use tokio_stream::wrappers::ReceiverStream;
use tracing::{debug, warn};

use super::{
    Certificates,
    metrics::Refused,
    names::{NotAllowed, client_of},
};
use crate::{
    connection::Client,
    grpc_connections::Peer,
    handshake_rate::{HandshakeRate, HandshakeRates},
    open_connections::{Limits, OpenConnection, OpenConnections, Source},
};
use nodegroup::text::{LogLimit, PAUSE, shortened};

pub(crate) const HANDSHAKE: Duration = Duration::from_secs(10);
/// Cluster Autoscaler makes one handshake at a time.
pub(crate) const HANDSHAKES_AT_ONCE: usize = 64;
pub(crate) const OF_ONE_ADDRESS: usize = 16;
/// The maximum length of a logged reason, in characters; a certificate may contain anything.
const LONGEST_WHY: usize = 600;
/// The maximum number of addresses and reasons whose refusals are logged one by one in a minute.
const MOST_ADDRESSES: usize = 64;

/// A connection with a completed handshake, and its peer.
type Accepted = io::Result<(TlsStream<TcpStream>, Peer)>;

/// Returns the connections of `incoming` once their handshakes are completed. It needs a running Tokio runtime.
/// Dropping the stream ends it with all handshakes under way. Streams that share `handshakes` share their limits.
pub(crate) fn accept(
    incoming: impl Stream<Item = io::Result<TcpStream>> + Send + Unpin + 'static,
    certificates: Certificates,
    handshakes: Arc<Handshakes>,
) -> impl Stream<Item = Accepted> + Unpin {
    let (sender, receiver) = mpsc::channel(1);
    tokio::spawn(take(incoming, certificates, handshakes, sender));
    ReceiverStream::new(receiver)
}

async fn take(
    mut incoming: impl Stream<Item = io::Result<TcpStream>> + Unpin,
    certificates: Certificates,
    handshakes: Arc<Handshakes>,
    done: mpsc::Sender<Accepted>,
) {
    let mut sums = interval(PAUSE);
    loop {
        let accepted = tokio::select! {
            () = done.closed() => return,
            _ = sums.tick() => {
                handshakes.refusals.sum_up(Instant::now());
                continue;
            }
            accepted = incoming.next() => accepted,
        };
        let stream = match accepted {
            Some(Ok(accepted)) => accepted,
            // The error has been logged, and a pause has passed.
            Some(Err(_)) => continue,
            None => return,
        };
        // A socket without a peer address is already closed.
        let Ok(peer) = stream.peer_addr() else { continue };
        let source = Source::from(peer.ip());
        let silent = handshakes.silent.open(source).0;
        let (certificates, done, handshakes) = (certificates.clone(), done.clone(), Arc::clone(&handshakes));
        tokio::spawn(async move {
            let shaken = tokio::select! {
                () = done.closed() => return,
                shaken = timeout(HANDSHAKE, handshakes.shake_hands(stream, source, silent, &certificates)) => shaken,
            };
            let slow = || Err((Refused::TimeOut, format!("the handshake took longer than {} s", HANDSHAKE.as_secs())));
            match shaken.unwrap_or_else(|_| slow()) {
                // If nobody receives it, the server has ended.
                Ok(stream) => {
                    let client =
                        client(&stream, &certificates).map(|client| Client { peer: Some(peer.ip()), ..client });
                    let client = client.unwrap_or_else(|| Client::at(peer));
                    drop(done.send(Ok((stream, Peer { source, client }))).await);
                }
                Err((refused, why)) => {
                    certificates.metrics.count_refused(refused);
                    handshakes.refusals.log(peer, refused, &why, Instant::now());
                }
            }
        });
    }
}

/// Returns the client of a connection with a completed handshake; `None` without a certificate.
fn client(stream: &TlsStream<TcpStream>, certificates: &Certificates) -> Option<Client> {
    let shown = stream.get_ref().1.peer_certificates()?;
    client_of(shown.first()?, certificates.allowed.as_deref()?)
}

/// The handshakes under way.
#[derive(Debug)]
pub(crate) struct Handshakes {
    rate: HandshakeRate,
    /// The clients whose ClientHello hasn't arrived yet.
    silent: OpenConnections,
    /// The other clients.
    speaking: OpenConnections,
    refusals: Refusals,
}

impl Handshakes {
    pub(crate) fn new(rates: HandshakeRates) -> Self {
        let limits = Limits { total: HANDSHAKES_AT_ONCE, per_peer: OF_ONE_ADDRESS, ..Limits::default() };
        Self {
            rate: HandshakeRate::new(rates),
            silent: OpenConnections::new(limits),
            speaking: OpenConnections::new(limits),
            refusals: Refusals::default(),
        }
    }

    /// Returns true if a handshake with this source may begin, and counts it.
    fn admits(&self, source: Source) -> bool {
        self.rate.admits(source, self.silent.has_authenticated_lately(source), Instant::now())
    }

    async fn shake_hands(
        &self,
        stream: TcpStream,
        source: Source,
        silent: OpenConnection,
        certificates: &Certificates,
    ) -> Result<TlsStream<TcpStream>, (Refused, String)> {
        let failed = |error| (classify(&error), error_text(&error));
        let many = || (Refused::TooMany, "too many handshakes at once: the oldest was closed".to_owned());
        let hello = client_hello(stream, &silent).await.ok_or_else(many)?.map_err(failed)?;
        // No key has been computed yet, and nothing signed.
        if !self.admits(source) {
            return Err((Refused::Rate, "too many handshakes in a short time".to_owned()));
        }
        let speaking = self.speaking.open(source).0;
        drop(silent);
        let stream = tokio::select! {
            () = speaking.excess.cancelled() => return Err(many()),
            stream = hello.into_stream(certificates.current()) => stream.map_err(failed)?,
        };
        if stream.get_ref().1.alpn_protocol().is_none() {
            return Err((Refused::Protocol, "the client didn't ask for HTTP/2 (ALPN h2)".to_owned()));
        }
        self.silent.has_authenticated(source);
        self.speaking.has_authenticated(source);
        Ok(stream)
    }
}

/// Returns the ClientHello of a client; `None` if the connection was evicted before it arrived. Many connections may be
/// accepted before the runtime looks at their sockets, so that an evicted one is read from once more after that.
async fn client_hello(stream: TcpStream, silent: &OpenConnection) -> Option<io::Result<StartHandshake<TcpStream>>> {
    let mut hello = pin!(LazyConfigAcceptor::new(Acceptor::default(), stream));
    tokio::select! {
        biased;
        hello = hello.as_mut() => return Some(hello),
        () = silent.excess.cancelled() => {}
    }
    yield_now().await;
    hello.now_or_never()
}

/// The log of refused clients: the first one of an address and reason is logged immediately, and those that follow
/// within a minute are counted. Any Pod that reaches the port could otherwise fill the log.
#[derive(Debug)]
struct Refusals(Mutex<LogLimit<Kind>>);

/// The kind of a refusal: its reason, and the client's address; `None` stands for those beyond [`MOST_ADDRESSES`].
type Kind = (&'static str, Option<IpAddr>);

impl Default for Refusals {
    fn default() -> Self {
        Self(Mutex::new(LogLimit::new(1)))
    }
}

impl Refusals {
    fn log(&self, peer: SocketAddr, refused: Refused, why: &str, now: Instant) {
        let why = shortened(why, LONGEST_WHY);
        match refused {
            // Scanners and TCP probes cause these all day.
            Refused::Protocol | Refused::TimeOut | Refused::TooMany | Refused::Rate => {
                debug!(%peer, "no TLS connection: {why}");
            }
            Refused::NoCertificate | Refused::Certificate | Refused::Name => {
                let reason = refused.as_str();
                let allowed = {
                    let mut limit = self.0.lock();
                    let own = (reason, Some(peer.ip().to_canonical()));
                    let kind = if limit.may_count(&own, MOST_ADDRESSES) { own } else { (reason, None) };
                    limit.allows(kind, 1, now)
                };
                if let Some(more) = allowed {
                    warn!(%peer, reason, more, "a client was refused: {why}");
                } else {
                    debug!(%peer, reason, "a client was refused: {why}");
                }
            }
        }
    }

    /// Logs the counts whose minute is over. It must be called periodically.
    fn sum_up(&self, now: Instant) {
        let over = self.0.lock().over(now);
        for ((reason, address), more) in over {
            let address = address.map_or_else(|| "(several)".to_owned(), |address| address.to_string());
            warn!(peer = address, reason, more, "a client was refused: further ones for the same reason");
        }
    }
}

/// Returns the text for the log: rustls formats a verifier's error as its Rust value.
fn error_text(error: &io::Error) -> String {
    match error.get_ref().and_then(|error| error.downcast_ref::<Error>()) {
        Some(Error::InvalidCertificate(CertificateError::Other(other))) => other.0.to_string(),
        Some(_) | None => error.to_string(),
    }
}

fn classify(error: &io::Error) -> Refused {
    let Some(error) = error.get_ref().and_then(|error| error.downcast_ref::<Error>()) else {
        return Refused::Protocol;
    };
    match error {
        Error::NoCertificatesPresented => Refused::NoCertificate,
        Error::InvalidCertificate(CertificateError::Other(other)) if other.0.is::<NotAllowed>() => Refused::Name,
        Error::InvalidCertificate(_) | Error::AlertReceived(AlertDescription::CertificateExpired) => {
            Refused::Certificate
        }
        _ => Refused::Protocol,
    }
}

#[cfg(test)]
#[allow(clippy::panic)]
mod tests {
    use super::*;
    use testkit::CapturedLog;

    fn address(number: u32) -> SocketAddr {
        SocketAddr::from((std::net::Ipv4Addr::from_bits(0x0a00_0000 + number), 1))
    }

    #[test]
    fn clients_that_are_refused_without_end_have_a_line_and_a_sum_a_minute() {
        let (refusals, begun) = (Refusals::default(), Instant::now());
        let why = "a name, ".repeat(10_000);
        let said = CapturedLog::of(|| {
            for _ in 0..5_000 {
                refusals.log(address(1), Refused::Name, &why, begun);
            }
            refusals.log(address(2), Refused::Name, "another name", begun);
            refusals.sum_up(begun);
            refusals.sum_up(begun + PAUSE);
            refusals.sum_up(begun + PAUSE * 2);
        });
        let lines: Vec<_> = said.lines().collect();
        let [first, other, sum] = lines[..] else { panic!("{} lines", lines.len()) };
        assert!(first.contains("peer=10.0.0.1:1") && first.len() < 1_000, "{first}");
        assert!(other.contains("10.0.0.2:1"), "one client doesn't hide another: {other}");
        assert!(sum.contains("further ones for the same reason") && sum.contains("more=4999"), "{sum}");
        assert!(sum.contains("10.0.0.1"), "{sum}");
    }

    #[test]
    fn clients_of_many_addresses_have_few_lines() {
        let (refusals, begun) = (Refusals::default(), Instant::now());
        let said = CapturedLog::of(|| {
            for number in 0..10_000 {
                refusals.log(address(number), Refused::NoCertificate, "none", begun);
            }
            refusals.sum_up(begun + PAUSE);
        });
        assert_eq!(said.lines().count(), MOST_ADDRESSES + 2);
        assert!(said.contains("(several)") && said.contains(&format!("more={}", 9_999 - MOST_ADDRESSES)), "{said}");
    }
}
