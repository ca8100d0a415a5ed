//! Connections whose TLS handshake is done. Handshakes run side by side, so that a slow client holds up no other, and
//! are bounded in number and time.

use std::{collections::HashMap, io, net::IpAddr, sync::Arc, time::Duration};

use futures::{Stream, StreamExt};
use parking_lot::Mutex;
use rustls::{AlertDescription, CertificateError, Error};
use tokio::{
    net::TcpStream,
    sync::{Semaphore, mpsc},
    time::timeout,
};
use tokio_rustls::{TlsAcceptor, server::TlsStream};
use tokio_stream::wrappers::ReceiverStream;
use tracing::{debug, warn};

use super::{Certificates, metrics::Refused, names::NotAllowed};

const HANDSHAKE: Duration = Duration::from_secs(10);
/// A Cluster Autoscaler has one connection; whoever opens more handshakes than this at once waits.
const HANDSHAKES_AT_ONCE: usize = 64;
/// More from one address are refused at once, so that a client that opens them and says nothing holds up itself alone.
const OF_ONE_ADDRESS: usize = 16;

/// The connections of `incoming` once their handshakes are done. It needs a running Tokio runtime. It ends, and
/// with it all that is under way, when the stream is dropped.
pub(in crate::server) fn accept(
    incoming: impl Stream<Item = io::Result<TcpStream>> + Send + Unpin + 'static,
    certificates: Certificates,
) -> impl Stream<Item = io::Result<TlsStream<TcpStream>>> {
    let (sender, receiver) = mpsc::channel(1);
    tokio::spawn(take(incoming, certificates, sender));
    ReceiverStream::new(receiver)
}

async fn take(
    mut incoming: impl Stream<Item = io::Result<TcpStream>> + Unpin,
    certificates: Certificates,
    done: mpsc::Sender<io::Result<TlsStream<TcpStream>>>,
) {
    let slots = Arc::new(Semaphore::new(HANDSHAKES_AT_ONCE));
    let peers = Peers::default();
    loop {
        // The semaphore is never closed.
        let Ok(slot) = Arc::clone(&slots).acquire_owned().await else { return };
        let accepted = tokio::select! {
            () = done.closed() => return,
            accepted = incoming.next() => accepted,
        };
        let stream = match accepted {
            Some(Ok(stream)) => stream,
            // Told and paused for already.
            Some(Err(_)) => continue,
            None => return,
        };
        let Some(place) = peers.enter(&stream) else {
            certificates.metrics.count_refused(Refused::TooMany);
            debug!(peer = ?stream.peer_addr().ok(), "no TLS connection: too many handshakes of this address at once");
            continue;
        };
        let (certificates, done) = (certificates.clone(), done.clone());
        tokio::spawn(async move {
            let shaken = tokio::select! {
                () = done.closed() => return,
                shaken = shake_hands(stream, &certificates) => shaken,
            };
            drop((slot, place));
            if let Some(stream) = shaken {
                // The server has ended if nobody takes it.
                let _ = done.send(Ok(stream)).await;
            }
        });
    }
}

/// How many handshakes are under way, by address.
#[derive(Clone, Default)]
struct Peers(Arc<Mutex<HashMap<IpAddr, usize>>>);

/// One handshake of an address. Dropping it makes room for another.
struct Place {
    peers: Peers,
    address: IpAddr,
}

impl Peers {
    /// `None`: the address has as many as it may have, or the connection is gone already.
    fn enter(&self, stream: &TcpStream) -> Option<Place> {
        let address = stream.peer_addr().ok()?.ip();
        let mut peers = self.0.lock();
        let count = peers.entry(address).or_default();
        if *count == OF_ONE_ADDRESS {
            return None;
        }
        *count += 1;
        Some(Place { peers: self.clone(), address })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut peers = self.peers.0.lock();
        if let Some(count) = peers.get_mut(&self.address) {
            *count -= 1;
            if *count == 0 {
                peers.remove(&self.address);
            }
        }
    }
}

async fn shake_hands(stream: TcpStream, certificates: &Certificates) -> Option<TlsStream<TcpStream>> {
    let peer = stream.peer_addr().map_or_else(|_| "unknown".to_owned(), |peer| peer.to_string());
    let acceptor = TlsAcceptor::from(certificates.current());
    let (refused, why) = match timeout(HANDSHAKE, acceptor.accept(stream)).await {
        Ok(Ok(stream)) if stream.get_ref().1.alpn_protocol().is_some() => return Some(stream),
        Ok(Ok(_)) => (Refused::Protocol, "the client didn't ask for HTTP/2 (ALPN h2)".to_owned()),
        Ok(Err(error)) => (reason(&error), why(&error)),
        Err(_) => (Refused::TimeOut, format!("the handshake took longer than {} s", HANDSHAKE.as_secs())),
    };
    certificates.metrics.count_refused(refused);
    match refused {
        // Scanners and probes of TCP do that all day.
        Refused::Protocol | Refused::TimeOut | Refused::TooMany => debug!(peer, "no TLS connection: {why}"),
        Refused::NoCertificate | Refused::Certificate | Refused::Name => {
            warn!(peer, reason = refused.as_str(), "a client was refused: {why}");
        }
    }
    None
}

/// What the log says of it: rustls shows an error of a verifier as its Rust value.
fn why(error: &io::Error) -> String {
    match error.get_ref().and_then(|error| error.downcast_ref::<Error>()) {
        Some(Error::InvalidCertificate(CertificateError::Other(other))) => other.0.to_string(),
        Some(_) | None => error.to_string(),
    }
}

fn reason(error: &io::Error) -> Refused {
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
