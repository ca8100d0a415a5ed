//! Connections with a completed TLS handshake. Handshakes run concurrently, with limits on their number and time, and
//! none waits for a place: if there are too many, the oldest is evicted. Clients that haven't sent anything yet are
//! counted separately, so that silent ones take no place from others.

use std::{io, sync::Arc, time::Duration};

use futures::{Stream, StreamExt};
use rustls::{AlertDescription, CertificateError, Error, server::Acceptor};
use tokio::{net::TcpStream, sync::mpsc, time::timeout};
use tokio_rustls::{LazyConfigAcceptor, server::TlsStream};
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
    grpc_threads::Place,
    open_connections::{Limits, OpenConnection, OpenConnections, Source},
};

const HANDSHAKE: Duration = Duration::from_secs(10);
/// Cluster Autoscaler makes one handshake at a time.
const HANDSHAKES_AT_ONCE: usize = 64;
const OF_ONE_ADDRESS: usize = 16;

/// A connection with a completed handshake, and its peer.
type Accepted = io::Result<(TlsStream<TcpStream>, Peer)>;

/// Returns the connections of `incoming` once their handshakes are completed. It needs a running Tokio runtime.
/// Dropping the stream ends it with all handshakes under way. Streams that share `handshakes` share their limits.
pub(crate) fn accept(
    incoming: impl Stream<Item = io::Result<(TcpStream, Place)>> + Send + Unpin + 'static,
    certificates: Certificates,
    handshakes: Arc<Handshakes>,
) -> impl Stream<Item = Accepted> + Unpin {
    let (sender, receiver) = mpsc::channel(1);
    tokio::spawn(take(incoming, certificates, handshakes, sender));
    ReceiverStream::new(receiver)
}

async fn take(
    mut incoming: impl Stream<Item = io::Result<(TcpStream, Place)>> + Unpin,
    certificates: Certificates,
    handshakes: Arc<Handshakes>,
    done: mpsc::Sender<Accepted>,
) {
    loop {
        let accepted = tokio::select! {
            () = done.closed() => return,
            accepted = incoming.next() => accepted,
        };
        let (stream, place) = match accepted {
            Some(Ok(accepted)) => accepted,
            // The error has been logged, and a pause has passed.
            Some(Err(_)) => continue,
            None => return,
        };
        // A socket without a peer address is already closed.
        let Ok(peer) = stream.peer_addr() else { continue };
        let silent = handshakes.silent.open(peer.ip()).0;
        let (certificates, done, handshakes) = (certificates.clone(), done.clone(), Arc::clone(&handshakes));
        tokio::spawn(async move {
            let source = Source::from(peer.ip());
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
                    drop(done.send(Ok((stream, Peer { source, client, place }))).await);
                }
                Err((refused, why)) => refuse(&certificates, &peer.to_string(), refused, &why),
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
    /// The clients whose ClientHello hasn't arrived yet.
    silent: OpenConnections,
    /// The other clients.
    speaking: OpenConnections,
}

impl Default for Handshakes {
    fn default() -> Self {
        let limits = Limits { total: HANDSHAKES_AT_ONCE, per_peer: OF_ONE_ADDRESS, ..Limits::default() };
        Self { silent: OpenConnections::new(limits), speaking: OpenConnections::new(limits) }
    }
}

impl Handshakes {
    async fn shake_hands(
        &self,
        stream: TcpStream,
        source: Source,
        silent: OpenConnection,
        certificates: &Certificates,
    ) -> Result<TlsStream<TcpStream>, (Refused, String)> {
        let failed = |error| (classify(&error), error_text(&error));
        let many = || (Refused::TooMany, "too many handshakes at once: the oldest was closed".to_owned());
        let hello = tokio::select! {
            () = silent.excess.cancelled() => return Err(many()),
            hello = LazyConfigAcceptor::new(Acceptor::default(), stream) => hello.map_err(failed)?,
        };
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

fn refuse(certificates: &Certificates, peer: &str, refused: Refused, why: &str) {
    certificates.metrics.count_refused(refused);
    match refused {
        // Scanners and TCP probes cause these all day.
        Refused::Protocol | Refused::TimeOut | Refused::TooMany => debug!(peer, "no TLS connection: {why}"),
        Refused::NoCertificate | Refused::Certificate | Refused::Name => {
            warn!(peer, reason = refused.as_str(), "a client was refused: {why}");
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
