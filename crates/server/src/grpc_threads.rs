//! The distribution of connections over the threads that answer gRPC. One thread accepts them, and hands each, before
//! anything of it is read, to the thread with the fewest open ones. All calls of a connection stay on its thread: they
//! come one after another.

use std::{io, net, sync::Arc};

use futures::{Stream, StreamExt};
use tokio::{net::TcpStream, sync::mpsc};
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;

/// The maximum number of connections that wait until their thread takes them. Further ones wait in the listener's
/// backlog.
const WAITING: usize = 128;

/// A connection's place on the thread that serves it. Dropping it frees the place.
#[derive(Debug, Default)]
pub(super) struct Place {
    #[expect(dead_code, reason = "its holders are counted")]
    held: Arc<()>,
    /// Its position in the order in which connections were accepted; 0 if one thread takes all of them.
    pub(super) order: u64,
}

/// The sender of connections to a thread.
#[derive(Debug)]
pub(super) struct ThreadSender {
    connections: mpsc::Sender<(net::TcpStream, Place)>,
    /// Held by each [`Place`] too.
    places: Arc<()>,
}

/// The connections that are handed to a thread.
pub(super) type Handed = mpsc::Receiver<(net::TcpStream, Place)>;

impl ThreadSender {
    pub(super) fn new() -> (Self, Handed) {
        let (connections, handed) = mpsc::channel(WAITING);
        (Self { connections, places: Arc::default() }, handed)
    }

    /// Returns the number of connections that the thread serves, or will soon.
    fn open(&self) -> usize {
        Arc::strong_count(&self.places)
    }
}

/// Hands each incoming connection to one of the threads, until `shutdown` is cancelled.
pub(super) async fn distribute(
    mut incoming: impl Stream<Item = io::Result<TcpStream>> + Unpin,
    threads: Vec<ThreadSender>,
    shutdown: CancellationToken,
) {
    let mut order = 0;
    loop {
        let accepted = tokio::select! {
            () = shutdown.cancelled() => return,
            accepted = incoming.next() => accepted,
        };
        let stream = match accepted {
            Some(Ok(stream)) => stream,
            // The error has been logged, and a pause has passed.
            Some(Err(_)) => continue,
            None => return,
        };
        // The thread registers the socket with its own runtime.
        let Ok(stream) = stream.into_std() else { continue };
        // One that takes no connections keeps nobody from the others.
        let takes = |thread: &&ThreadSender| thread.connections.capacity() > 0;
        let Some(thread) = threads.iter().filter(takes).min_by_key(|thread| thread.open()) else { continue };
        order += 1;
        let place = Place { held: Arc::clone(&thread.places), order };
        // If it fails, the thread has ended, and the program does too.
        if thread.connections.send((stream, place)).await.is_err() {
            return;
        }
    }
}

/// Returns the connections that were handed to this thread. It must be polled on the thread's runtime.
pub(super) fn receive(handed: Handed) -> impl Stream<Item = io::Result<(TcpStream, Place)>> + Send + Unpin {
    ReceiverStream::new(handed).map(|(stream, place)| Ok((TcpStream::from_std(stream)?, place)))
}
