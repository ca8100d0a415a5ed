//! Connections with a completed TLS handshake. Handshakes run concurrently, with limits on their rate, number and time,
//! and none waits for a place: if there are too many, the oldest is evicted. Clients whose ClientHello hasn't arrived
//! are counted separately, and use up nothing of the rate, so that silent ones take no handshake from others.

use std::{
    collections::HashMap,
    io,
    net::{IpAddr, SocketAddr},
    pin::pin,
    sync::Arc,
    time::{Duration, Instant},
};

use futures::{FutureExt, Stream, StreamExt};
use parking_lot::Mutex;
use rules::named_enum;
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
    names::{NotAllowed, client_of},
};
use crate::listen::{
    connections::{Client, Limits, OpenConnections, Place, Source},
    grpc::{Io, Peer},
};
use rules::{
    log_limit::{LogLimit, PAUSE},
    text::shortened,
};

pub(crate) const HANDSHAKE: Duration = Duration::from_secs(10);
/// Cluster Autoscaler makes one handshake at a time.
pub(crate) const HANDSHAKES_AT_ONCE: usize = 64;
pub(crate) const OF_ONE_ADDRESS: usize = 16;
/// The maximum length of a logged reason, in characters; a certificate may contain anything.
const LONGEST_WHY: usize = 600;
/// The maximum number of addresses and reasons whose refusals are logged one by one in a minute.
const MOST_ADDRESSES: usize = 64;

/// The time for which connections of an authenticated client are evicted last: longer than a connection lasts.
pub(crate) const AUTHENTICATED_LATELY: Duration = Duration::from_secs(2 * 60 * 60);
/// The maximum number of clients that are known to have authenticated: as many as there may be connections of a fleet.
const MAX_AUTHENTICATED: usize = 4_096;

/// A connection with a completed handshake, and its peer.
type Accepted = io::Result<(Box<dyn Io>, Peer)>;

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
        let silent = handshakes.silent.open(source, None, handshakes.is_known(source)).0;
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
                    drop(done.send(Ok((Box::new(stream), Peer { source, client }))).await);
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
    rate: HandshakeLimiter,
    /// The clients whose ClientHello hasn't arrived yet.
    silent: OpenConnections,
    /// The other clients.
    speaking: OpenConnections,
    /// The clients that have authenticated lately, with the time.
    known: Mutex<HashMap<Source, Instant>>,
    refusals: Refusals,
}

impl Handshakes {
    pub(crate) fn new(rates: HandshakeRates) -> Self {
        let limits = Limits { total: HANDSHAKES_AT_ONCE, per_peer: OF_ONE_ADDRESS, ..Limits::default() };
        Self {
            rate: HandshakeLimiter::new(rates),
            silent: OpenConnections::new(limits),
            speaking: OpenConnections::new(limits),
            known: Mutex::default(),
            refusals: Refusals::default(),
        }
    }

    /// Returns true if connections of other clients are evicted before those of this one, which has a rate of its own.
    fn is_known(&self, source: Source) -> bool {
        self.known.lock().get(&source).is_some_and(|at| at.elapsed() < AUTHENTICATED_LATELY)
    }

    fn has_authenticated(&self, source: Source) {
        let (now, mut known) = (Instant::now(), self.known.lock());
        if known.len() >= MAX_AUTHENTICATED && !known.contains_key(&source) {
            known.retain(|_, at| now.duration_since(*at) < AUTHENTICATED_LATELY);
            let oldest = known.iter().min_by_key(|(_, at)| **at).map(|(source, _)| *source);
            if let Some(oldest) = oldest.filter(|_| known.len() >= MAX_AUTHENTICATED) {
                known.remove(&oldest);
            }
        }
        known.insert(source, now);
    }

    async fn shake_hands(
        &self,
        stream: TcpStream,
        source: Source,
        silent: Place,
        certificates: &Certificates,
    ) -> Result<TlsStream<TcpStream>, (Refused, String)> {
        let failed = |error| (classify(&error), error_text(&error));
        let many = || (Refused::TooMany, "too many handshakes at once: the oldest was closed".to_owned());
        let hello = client_hello(stream, &silent).await.ok_or_else(many)?.map_err(failed)?;
        // No key has been computed yet, and nothing signed.
        let is_known = self.is_known(source);
        if !self.rate.admits(source, is_known, Instant::now()) {
            return Err((Refused::Rate, "too many handshakes in a short time".to_owned()));
        }
        let speaking = self.speaking.open(source, None, is_known).0;
        drop(silent);
        let stream = tokio::select! {
            () = speaking.connection.cut.cancelled() => return Err(many()),
            stream = hello.into_stream(certificates.current()) => stream.map_err(failed)?,
        };
        if stream.get_ref().1.alpn_protocol().is_none() {
            return Err((Refused::Protocol, "the client didn't ask for HTTP/2 (ALPN h2)".to_owned()));
        }
        self.has_authenticated(source);
        Ok(stream)
    }
}

/// Returns the ClientHello of a client; `None` if the connection was evicted before it arrived. Many connections may be
/// accepted before the runtime looks at their sockets, so that an evicted one is read from once more after that.
async fn client_hello(stream: TcpStream, silent: &Place) -> Option<io::Result<StartHandshake<TcpStream>>> {
    let mut hello = pin!(LazyConfigAcceptor::new(Acceptor::default(), stream));
    tokio::select! {
        biased;
        hello = hello.as_mut() => return Some(hello),
        () = silent.connection.cut.cancelled() => {}
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

named_enum! {
    /// The reason why a client's attempt led to no connection.
    #[derive(Clone, Copy, Debug, Eq, PartialEq)]
    pub(super) enum Refused {
        /// It presented no certificate.
        NoCertificate = "no_certificate",
        /// Its certificate is invalid, by issuer, dates or key usage.
        Certificate = "certificate",
        /// The certificate's names or key aren't allowed.
        Name = "name",
        /// It took too long.
        TimeOut = "timeout",
        /// The client used no supported TLS, or disconnected.
        Protocol = "protocol",
        /// It was evicted, since there were too many handshakes.
        TooMany = "too_many",
        /// It was one of too many handshakes in a short time.
        Rate = "rate",
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

/// A number of handshakes at once, and one more whenever a time has passed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rate {
    pub(crate) at_once: u32,
    pub(crate) each: Duration,
}

/// The rates of handshakes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HandshakeRates {
    /// The rate of an address that hasn't authenticated lately.
    pub(crate) stranger: Rate,
    /// The rate of all such addresses together. It takes many to use it up, since a client that comes for the first
    /// time is among them.
    pub(crate) strangers: Rate,
    /// The rate of an address that has authenticated lately.
    pub(crate) known: Rate,
}

impl Default for HandshakeRates {
    fn default() -> Self {
        Self {
            stranger: Rate { at_once: 16, each: Duration::from_millis(500) },
            strangers: Rate { at_once: 256, each: Duration::from_millis(8) },
            known: Rate { at_once: 256, each: Duration::from_millis(32) },
        }
    }
}

impl HandshakeRates {
    /// Returns the rates for the autoscalers of thousands of clusters, which all connect after a restart.
    pub(crate) fn of_many_clients() -> Self {
        Self {
            strangers: Rate { at_once: 4_096, each: Duration::from_millis(4) },
            known: Rate { at_once: 1_024, each: Duration::from_millis(8) },
            ..Self::default()
        }
    }
}

impl Rate {
    /// Takes a handshake. `used_until` is the time at which all are available again; returns the new one, or `None`
    /// if no handshake is available.
    fn take(self, used_until: Option<Instant>, now: Instant) -> Option<Instant> {
        let used_until = used_until.map_or(now, |until| until.max(now)) + self.each;
        (used_until.duration_since(now) <= self.each * self.at_once).then_some(used_until)
    }
}

/// The handshakes that were taken lately.
#[derive(Debug)]
pub(super) struct HandshakeLimiter {
    rates: HandshakeRates,
    used: Mutex<Used>,
}

/// The times at which all handshakes are available again.
#[derive(Debug, Default)]
struct Used {
    by_strangers: Option<Instant>,
    /// The times of sources, as known ones or as strangers: one that authenticates begins anew.
    by_source: HashMap<(Source, bool), Instant>,
}

impl HandshakeLimiter {
    pub(super) fn new(rates: HandshakeRates) -> Self {
        Self { rates, used: Mutex::default() }
    }

    /// Returns true if a handshake with this source may begin, and counts it.
    pub(super) fn admits(&self, source: Source, is_known: bool, now: Instant) -> bool {
        let HandshakeRates { stranger, strangers, known } = self.rates;
        let (key, rate) = ((source, is_known), if is_known { known } else { stranger });
        let mut used = self.used.lock();
        let Some(by_source) = rate.take(used.by_source.get(&key).copied(), now) else { return false };
        if !is_known {
            let Some(by_strangers) = strangers.take(used.by_strangers, now) else { return false };
            used.by_strangers = Some(by_strangers);
        }
        if !used.by_source.contains_key(&key) {
            used.by_source.retain(|_, until| *until > now);
        }
        used.by_source.insert(key, by_source);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use testkit::CapturedLog;

    const SECOND: Duration = Duration::from_secs(1);

    fn address(number: u32) -> Source {
        Source::Address(std::net::Ipv4Addr::from_bits(0x0a00_0000 + number).into())
    }

    #[test]
    fn a_limited_number_of_clients_is_known_to_have_authenticated() {
        let handshakes = Handshakes::new(HandshakeRates::default());
        (0..5_000).for_each(|user| handshakes.has_authenticated(Source::User(user)));
        assert_eq!(handshakes.known.lock().len(), MAX_AUTHENTICATED);
        assert!(handshakes.is_known(Source::User(4_999)));
    }

    #[test]
    fn clients_that_are_refused_without_end_have_a_line_and_a_sum_a_minute_and_those_of_many_addresses_a_few() {
        let (refusals, begun) = (Refusals::default(), Instant::now());
        let why = "a name, ".repeat(10_000);
        let peer = |number: u32| SocketAddr::from((std::net::Ipv4Addr::from_bits(0x0a00_0000 + number), 1));
        let said = CapturedLog::of(|| {
            (0..5_000).for_each(|_| refusals.log(peer(1), Refused::Name, &why, begun));
            refusals.log(peer(2), Refused::Name, "another name", begun);
            (0..=2).for_each(|minutes| refusals.sum_up(begun + PAUSE * minutes));
        });
        let lines: Vec<_> = said.lines().collect();
        assert!(lines[0].contains("peer=10.0.0.1:1") && lines[0].len() < 1_000, "{said}");
        assert!(lines[1].contains("10.0.0.2:1"), "one client doesn't hide another: {said}");
        assert!(lines[2].contains("further ones for the same reason") && lines[2].contains("more=4999"), "{said}");
        assert!(lines[2].contains("10.0.0.1") && lines.len() == 3, "{said}");

        let said = CapturedLog::of(|| {
            (0..10_000).for_each(|number| refusals.log(peer(number), Refused::NoCertificate, "none", begun));
            refusals.sum_up(begun + PAUSE);
        });
        assert_eq!(said.lines().count(), MOST_ADDRESSES + 2);
        assert!(said.contains("(several)") && said.contains(&format!("more={}", 9_999 - MOST_ADDRESSES)), "{said}");
    }

    /// Returns the number of handshakes of the first 10,000 that these sources may begin at this time.
    fn admitted(rate: &HandshakeLimiter, is_known: bool, now: Instant, source: impl Fn(u32) -> Source) -> usize {
        (0..10_000).filter(|number| rate.admits(source(*number), is_known, now)).count()
    }

    #[test]
    fn an_address_has_a_number_of_handshakes_at_once_and_two_in_a_second() {
        let (rate, begun) = (HandshakeLimiter::new(HandshakeRates::default()), Instant::now());
        let after = |seconds| admitted(&rate, false, begun + SECOND * seconds, |_| address(1));
        assert_eq!([0, 0, 1, 4, 100, 100].map(after), [16, 0, 2, 6, 16, 0]);
    }

    /// Returns the time for which these addresses keep out one that comes for the first time, if each of them is always
    /// there before it; `None` if it is kept out for longer than a minute.
    fn kept_out(flooding: u32) -> Option<Duration> {
        let (rate, begun) = (HandshakeLimiter::new(HandshakeRates::default()), Instant::now());
        let mut ticks = (0..7_500).map(|tick| HandshakeRates::default().strangers.each * tick);
        ticks.find(|passed| {
            let now = begun + *passed;
            for number in 1..=flooding {
                while rate.admits(address(number), false, now) {}
            }
            rate.admits(address(0), false, now)
        })
    }

    #[test]
    fn a_first_handshake_is_kept_out_for_moments_by_few_addresses_and_without_end_by_63() {
        assert_eq!([1, 15, 16].map(kept_out), [0, 0, 8].map(|millis| Some(Duration::from_millis(millis))));
        assert!(kept_out(40).is_some_and(|time| time < SECOND * 6), "{:?}", kept_out(40));
        assert_eq!(kept_out(63), None);
    }

    #[test]
    fn many_addresses_take_none_from_one_that_has_authenticated_lately_and_are_forgotten() {
        let (rate, begun) = (HandshakeLimiter::new(HandshakeRates::default()), Instant::now());
        let strangers = |seconds| admitted(&rate, false, begun + SECOND * seconds, address);
        assert_eq!([0, 1, 1].map(strangers), [256, 125, 0]);
        assert_eq!(admitted(&rate, true, begun, |_| address(1)), 256, "it was among them, and begins anew");
        for second in 2..100 {
            admitted(&rate, false, begun + SECOND * second, |number| address(second * 10_000 + number));
            assert!(rate.used.lock().by_source.len() <= 256 + 125 + 1);
        }
        assert_eq!(admitted(&rate, false, begun + SECOND * 200, |_| address(1)), 16);
        assert_eq!(rate.used.lock().by_source.len(), 1);
    }
}
