//! The bytes that the program holds for gRPC connections: those of requests until they are answered, and those of answers
//! until they are read. A client that doesn't read must delay nobody but itself.

use std::{
    collections::HashMap,
    pin::pin,
    sync::{
        Arc, Weak,
        atomic::{AtomicUsize, Ordering},
    },
};

use futures::{FutureExt as _, StreamExt as _, TryStreamExt as _, stream};
use http_body_util::{BodyStream, StreamBody};
use parking_lot::Mutex;
use prost::bytes::Bytes;
use tokio::sync::Notify;
use tonic::{Status, body::Body};

use super::connections::{Client, UnderWay};

/// The limits of held bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct ByteLimits {
    /// The limit of the request bytes of a client; further requests are refused.
    pub(super) requests: usize,
    /// The limit of the unread answer bytes of a client; beyond it, further calls wait.
    pub(super) answers: usize,
    /// The limit of all connections together; beyond it, the largest connection is cut.
    pub(super) total: usize,
}

/// The bytes of all connections.
#[derive(Debug, Default)]
pub(super) struct AllBytes {
    held: AtomicUsize,
    /// Notified when all connections together have more than the limit.
    pub(super) exceeded: Notify,
    /// The bytes of each client that has connections, by its identity: one that opens many of them gets no more.
    clients: Mutex<HashMap<String, Weak<ClientBytes>>>,
}

/// The bytes of all connections of a client.
#[derive(Debug, Default)]
struct ClientBytes {
    requests: AtomicUsize,
    answers: AtomicUsize,
    /// Notified when answers have been read.
    read: Notify,
}

impl AllBytes {
    /// Returns the bytes of a client, for another connection of it.
    fn of(&self, client: &Client) -> Arc<ClientBytes> {
        let identity = client.identity();
        let mut clients = self.clients.lock();
        if let Some(known) = clients.get(&*identity).and_then(Weak::upgrade) {
            return known;
        }
        clients.retain(|_, known| known.strong_count() > 0);
        let bytes = Arc::<ClientBytes>::default();
        clients.insert(identity.into_owned(), Arc::downgrade(&bytes));
        bytes
    }
}

/// The bytes of a connection.
#[derive(Debug)]
pub(super) struct ConnectionBytes {
    limits: ByteLimits,
    own: Arc<AtomicUsize>,
    client: Arc<ClientBytes>,
    all: Arc<AllBytes>,
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Request,
    Answer,
}

/// Bytes that count until this is dropped.
#[derive(Debug)]
struct Held {
    of: Arc<ConnectionBytes>,
    kind: Kind,
    bytes: usize,
}

/// The bytes of one request, which count until this and its body are dropped.
#[derive(Debug)]
pub(super) struct RequestBytes(#[expect(dead_code, reason = "dropped with the call")] Arc<Mutex<Vec<Held>>>);

impl ConnectionBytes {
    /// Returns the bytes of a client's new connection, whose sum `own` shows.
    pub(super) fn new(limits: ByteLimits, own: Arc<AtomicUsize>, client: &Client, all: &Arc<AllBytes>) -> Arc<Self> {
        Arc::new(Self { limits, own, client: all.of(client), all: Arc::clone(all) })
    }

    /// Waits until the client has read enough of its answers for another one.
    pub(super) async fn wait_for_capacity(&self) {
        loop {
            let mut read = pin!(self.client.read.notified());
            read.as_mut().enable();
            if self.client.answers.load(Ordering::Relaxed) < self.limits.answers {
                return;
            }
            read.await;
        }
    }

    /// Counts the data of a request as it arrives. It fails when the client has too much under way.
    pub(super) fn request<B>(self: &Arc<Self>, body: B) -> (Body, RequestBytes)
    where
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let all = Arc::<Mutex<Vec<_>>>::default();
        let (bytes, held) = (Arc::clone(self), Arc::clone(&all));
        let frames = BodyStream::new(body).map(move |frame| {
            let frame = frame.map_err(|error| Status::from_error(error.into()))?;
            if let Some(data) = frame.data_ref() {
                held.lock().push(bytes.hold_request(data.len())?);
            }
            Ok::<_, Status>(frame)
        });
        (Body::new(StreamBody::new(frames)), RequestBytes(all))
    }

    /// Counts the data of an answer until it is sent; the call is under way until then.
    pub(super) fn answer(self: &Arc<Self>, body: Body, under_way: UnderWay) -> Body {
        struct Counted(Bytes, #[expect(dead_code, reason = "dropped with the data")] (Held, Arc<UnderWay>));
        impl AsRef<[u8]> for Counted {
            fn as_ref(&self) -> &[u8] {
                &self.0
            }
        }
        if http_body::Body::is_end_stream(&body) {
            return body;
        }
        let (mut rest, bytes, under_way) = (BodyStream::new(body).fuse(), Arc::clone(self), Arc::new(under_way));
        // Before the connection asks for it, so that it counts with its actual size. A watch has no frame yet.
        let first = rest.next().now_or_never().flatten();
        let frames = stream::iter(first).chain(rest).map_ok(move |frame| {
            frame.map_data(|data| {
                let held = bytes.hold_answer(data.len());
                Bytes::from_owner(Counted(data, (held, Arc::clone(&under_way))))
            })
        });
        Body::new(StreamBody::new(frames))
    }

    /// Counts bytes of a request, unless the client has too many then. Other threads may count some too.
    fn hold_request(self: &Arc<Self>, bytes: usize) -> Result<Held, Status> {
        let limit = self.limits.requests;
        let added = |held: usize| held.checked_add(bytes).filter(|sum| *sum <= limit);
        if self.client.requests.fetch_update(Ordering::AcqRel, Ordering::Relaxed, added).is_err() {
            return Err(Status::resource_exhausted(format!(
                "the client's requests under way have more than {limit} bytes: send fewer at once"
            )));
        }
        Ok(self.hold(Kind::Request, bytes))
    }

    fn hold_answer(self: &Arc<Self>, bytes: usize) -> Held {
        self.client.answers.fetch_add(bytes, Ordering::Relaxed);
        self.hold(Kind::Answer, bytes)
    }

    fn hold(self: &Arc<Self>, kind: Kind, bytes: usize) -> Held {
        self.own.fetch_add(bytes, Ordering::Relaxed);
        if self.all.held.fetch_add(bytes, Ordering::Relaxed) + bytes > self.limits.total {
            self.all.exceeded.notify_one();
        }
        Held { of: Arc::clone(self), kind, bytes }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let ConnectionBytes { own, client, all, .. } = &*self.of;
        own.fetch_sub(self.bytes, Ordering::Relaxed);
        all.held.fetch_sub(self.bytes, Ordering::Relaxed);
        match self.kind {
            Kind::Request => {
                client.requests.fetch_sub(self.bytes, Ordering::Release);
            }
            Kind::Answer => {
                client.answers.fetch_sub(self.bytes, Ordering::Release);
                client.read.notify_waiters();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(name: &str, uri: Option<&str>) -> Client {
        Client { name: name.into(), uri: uri.map(Into::into), ..Client::default() }
    }

    #[tokio::test]
    async fn all_connections_of_a_client_have_the_bytes_of_one() {
        let (limits, all) = (ByteLimits { requests: 100, answers: 10, total: 1_000 }, Arc::default());
        let connection = |client| ConnectionBytes::new(limits, Arc::default(), &client, &all);
        let of = |uri| connection(client("", Some(uri)));
        let (first, second, other) = (of("a"), of("a"), of("b"));
        let held = first.hold_request(60).unwrap();
        assert!(second.hold_request(41).is_err());
        let fits = second.hold_request(40).unwrap();
        assert_eq!((first.own.load(Ordering::Relaxed), second.own.load(Ordering::Relaxed)), (60, 40));
        let of_other = other.hold_request(100).unwrap();
        drop((held, of_other));
        let again = second.hold_request(60).unwrap();
        let unread = first.hold_answer(10);
        other.wait_for_capacity().await;
        {
            let mut waiting = pin!(second.wait_for_capacity());
            assert!(waiting.as_mut().now_or_never().is_none());
            drop(unread);
            assert!(waiting.now_or_never().is_some());
        }
        drop((fits, again, first, second, other));
        let _last = connection(client("last", None));
        assert_eq!(all.clients.lock().len(), 1, "a client without connections is forgotten");
        assert_eq!(all.held.load(Ordering::Relaxed), 0);
    }
}
