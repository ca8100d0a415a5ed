//! The bytes that the program buffers for a gRPC connection: unanswered requests, by their announced length, and unread
//! answers. A client that doesn't read must delay nobody but itself.

use std::{
    collections::HashMap,
    mem,
    pin::{Pin, pin},
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    task::{Context, Poll, ready},
};

use futures::future::poll_fn;
use http_body::{Body, Frame, SizeHint};
use parking_lot::Mutex;
use prost::bytes::Bytes;
use tokio::sync::Notify;
use tonic::Status;

use super::{calls::UnderWay, connection::Client};

/// The limits of buffered bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct ByteLimits {
    /// The limit of the request bytes of a connection, or of a client; further requests are refused.
    pub(super) requests: usize,
    /// The limit of the unread answer bytes of a connection, or of a client; beyond it, further calls wait.
    pub(super) answers: usize,
    /// The limit of all connections together; beyond it, the largest connection is cut.
    pub(super) total: usize,
}

/// The bytes of all connections.
#[derive(Debug, Default)]
pub(super) struct AllBytes {
    buffered: AtomicUsize,
    /// Notified when all connections together have more than the limit.
    pub(super) exceeded: Notify,
}

/// The bytes that have a common limit: those of a connection, or of all connections of a client.
#[derive(Debug, Default)]
pub(super) struct LimitedBytes {
    requests: AtomicUsize,
    answers: AtomicUsize,
    /// Notified when answers have been read.
    read: Notify,
}

impl LimitedBytes {
    /// Adds the bytes of a request unless the limit is exceeded then. Other threads add to them too.
    fn try_add_request(&self, bytes: usize, limit: usize) -> bool {
        let added = |requests: usize| requests.checked_add(bytes).filter(|sum| *sum <= limit);
        self.requests.fetch_update(Ordering::AcqRel, Ordering::Relaxed, added).is_ok()
    }

    fn counter(&self, kind: Kind) -> &AtomicUsize {
        match kind {
            Kind::Request => &self.requests,
            Kind::Answer => &self.answers,
        }
    }
}

/// The bytes of each client that has connections, by its identity: one that opens many of them gets no more.
#[derive(Debug, Default)]
pub(super) struct BytesOfClients(Mutex<HashMap<String, Weak<LimitedBytes>>>);

impl BytesOfClients {
    /// Returns the bytes of a client, for another connection of it.
    pub(super) fn of(&self, client: &Client) -> Arc<LimitedBytes> {
        let identity = client.identity();
        let mut clients = self.0.lock();
        if let Some(known) = clients.get(&*identity).and_then(Weak::upgrade) {
            return known;
        }
        clients.retain(|_, known| known.strong_count() > 0);
        let bytes = Arc::<LimitedBytes>::default();
        clients.insert(identity.into_owned(), Arc::downgrade(&bytes));
        bytes
    }
}

/// The bytes of a connection.
#[derive(Debug)]
pub(super) struct BufferedBytes {
    limits: ByteLimits,
    /// The bytes that the limits are about.
    limited: Arc<LimitedBytes>,
    all: Arc<AllBytes>,
    own: AtomicUsize,
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Request,
    Answer,
}

/// A share of the buffered bytes, released when it is dropped.
#[derive(Debug)]
struct Reservation {
    of: Arc<BufferedBytes>,
    kind: Kind,
    bytes: usize,
}

impl BufferedBytes {
    pub(super) fn new(limits: ByteLimits, limited: Arc<LimitedBytes>, all: Arc<AllBytes>) -> Self {
        Self { limits, limited, all, own: AtomicUsize::new(0) }
    }

    /// Returns the number of buffered bytes.
    pub(super) fn bytes(&self) -> usize {
        self.own.load(Ordering::Relaxed)
    }

    /// Waits until the client has read enough of its answers for another one.
    pub(super) async fn wait_for_capacity(&self) {
        loop {
            let mut read = pin!(self.limited.read.notified());
            read.as_mut().enable();
            if self.limited.answers.load(Ordering::Relaxed) < self.limits.answers {
                return;
            }
            read.await;
        }
    }

    fn reserve_answer(self: &Arc<Self>, bytes: usize) -> Reservation {
        self.limited.answers.fetch_add(bytes, Ordering::Relaxed);
        self.reserved(Kind::Answer, bytes)
    }

    /// Returns `None` if the limit of requests would be exceeded.
    fn reserve_request(self: &Arc<Self>, bytes: usize) -> Option<Reservation> {
        let fits = self.limited.try_add_request(bytes, self.limits.requests);
        fits.then(|| self.reserved(Kind::Request, bytes))
    }

    /// Returns the share of bytes that have been added to those with the limit.
    fn reserved(self: &Arc<Self>, kind: Kind, bytes: usize) -> Reservation {
        self.own.fetch_add(bytes, Ordering::Relaxed);
        if self.all.buffered.fetch_add(bytes, Ordering::Relaxed) + bytes > self.limits.total {
            self.all.exceeded.notify_one();
        }
        Reservation { of: Arc::clone(self), kind, bytes }
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        let BufferedBytes { limited, all, own, .. } = &*self.of;
        limited.counter(self.kind).fetch_sub(self.bytes, Ordering::Release);
        own.fetch_sub(self.bytes, Ordering::Relaxed);
        all.buffered.fetch_sub(self.bytes, Ordering::Relaxed);
        if matches!(self.kind, Kind::Answer) {
            limited.read.notify_waiters();
        }
    }
}

/// The bytes of one call's request.
#[derive(Debug)]
pub(super) struct CallBytes {
    buffered: Arc<BufferedBytes>,
    message: Mutex<Option<Reservation>>,
    is_refused: AtomicBool,
}

impl CallBytes {
    pub(super) fn new(buffered: &Arc<BufferedBytes>) -> Arc<Self> {
        Arc::new(Self { buffered: Arc::clone(buffered), message: Mutex::default(), is_refused: AtomicBool::new(false) })
    }

    /// Returns the error of a request that exceeds the limit together with those that share it.
    pub(super) fn refusal(&self) -> Option<Status> {
        self.is_refused.load(Ordering::Relaxed).then(|| limit_exceeded(self.buffered.limits.requests))
    }

    /// Begins a message of this length, and releases the one before it.
    fn announce(&self, bytes: usize) -> Result<(), Status> {
        let mut message = self.message.lock();
        message.take();
        *message = self.buffered.reserve_request(bytes);
        if message.is_none() {
            self.is_refused.store(true, Ordering::Relaxed);
            return Err(limit_exceeded(self.buffered.limits.requests));
        }
        Ok(())
    }
}

fn limit_exceeded(limit: usize) -> Status {
    Status::resource_exhausted(format!(
        "the client's requests under way have more than {limit} bytes: send fewer at once"
    ))
}

/// Parses the lengths in a stream of gRPC messages. Each has a header: a flag byte, and its length in four bytes.
#[derive(Debug, Default)]
struct Lengths {
    head: [u8; 5],
    has: usize,
    left: usize,
}

impl Lengths {
    /// Reads further data. Returns the length of the last message that begins in it.
    fn read(&mut self, mut data: &[u8]) -> Option<usize> {
        let mut last = None;
        while !data.is_empty() {
            let skipped = self.left.min(data.len());
            self.left -= skipped;
            data = &data[skipped..];
            let taken = (self.head.len() - self.has).min(data.len());
            if self.left > 0 || taken == 0 {
                continue;
            }
            self.head[self.has..self.has + taken].copy_from_slice(&data[..taken]);
            self.has += taken;
            data = &data[taken..];
            if self.has == self.head.len() {
                let [_, length @ ..] = self.head;
                self.left = usize::try_from(u32::from_be_bytes(length)).unwrap_or(usize::MAX);
                self.has = 0;
                last = Some(self.left);
            }
        }
        last
    }
}

/// The body of a request. Each message counts from its header until the call is answered.
#[derive(Debug)]
pub(super) struct RequestBody<B> {
    inner: B,
    lengths: Lengths,
    call: Arc<CallBytes>,
}

impl<B> RequestBody<B> {
    pub(super) fn new(inner: B, call: Arc<CallBytes>) -> Self {
        Self { inner, lengths: Lengths::default(), call }
    }
}

impl<B> Body for RequestBody<B>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let Some(frame) = ready!(Pin::new(&mut self.inner).poll_frame(cx)) else { return Poll::Ready(None) };
        let frame = frame.map_err(|error| Status::from_error(error.into()))?;
        if let Some(data) = frame.data_ref()
            && let Some(length) = self.lengths.read(data)
        {
            self.call.announce(length)?;
        }
        Poll::Ready(Some(Ok(frame)))
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

/// The body of an answer, whose data counts until it is sent. Its first frame is polled before the connection asks for
/// it, so that it counts with its actual size.
#[derive(Debug)]
pub(super) struct ResponseBody<B: Body> {
    inner: B,
    /// The first frame, polled at the start.
    first: Poll<Option<Result<Frame<Bytes>, B::Error>>>,
    buffered: Arc<BufferedBytes>,
    under_way: Arc<UnderWay>,
}

impl<B: Body<Data = Bytes> + Unpin> ResponseBody<B> {
    pub(super) async fn new(mut inner: B, buffered: Arc<BufferedBytes>, under_way: UnderWay) -> Self {
        let under_way = Arc::new(under_way);
        let first = if inner.is_end_stream() {
            Poll::Pending
        } else {
            // The body of a watch has no frame yet, so this polls it only once.
            poll_fn(|cx| Poll::Ready(Pin::new(&mut inner).poll_frame(cx))).await
        };
        let first = first.map_ok(|frame| counted(frame, &buffered, &under_way));
        Self { inner, first, buffered, under_way }
    }
}

fn counted(frame: Frame<Bytes>, buffered: &Arc<BufferedBytes>, under_way: &Arc<UnderWay>) -> Frame<Bytes> {
    struct Owner(Bytes, #[expect(dead_code, reason = "dropped with the data")] (Reservation, Arc<UnderWay>));
    impl AsRef<[u8]> for Owner {
        fn as_ref(&self) -> &[u8] {
            &self.0
        }
    }
    frame.map_data(|data| {
        let reservation = buffered.reserve_answer(data.len());
        Bytes::from_owner(Owner(data, (reservation, Arc::clone(under_way))))
    })
}

impl<B: Body<Data = Bytes> + Unpin> Body for ResponseBody<B>
where
    B::Error: Unpin,
{
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        if let Poll::Ready(first) = mem::replace(&mut self.first, Poll::Pending) {
            return Poll::Ready(first);
        }
        let frame = ready!(Pin::new(&mut self.inner).poll_frame(cx));
        Poll::Ready(frame.map(|frame| frame.map(|frame| counted(frame, &self.buffered, &self.under_way))))
    }

    fn is_end_stream(&self) -> bool {
        match &self.first {
            Poll::Ready(first) => first.is_none(),
            Poll::Pending => self.inner.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        if self.first.is_ready() { SizeHint::default() } else { self.inner.size_hint() }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::thread;

    use futures::FutureExt as _;
    use rstest::rstest;

    use super::*;

    #[tokio::test]
    async fn all_connections_of_a_client_have_the_bytes_of_one() {
        let limits = ByteLimits { requests: 100, answers: 10, total: 1_000 };
        let (clients, all) = (BytesOfClients::default(), Arc::<AllBytes>::default());
        let connection = |uri: &str| {
            let client = Client { uri: Some(uri.into()), ..Client::default() };
            Arc::new(BufferedBytes::new(limits, clients.of(&client), Arc::clone(&all)))
        };
        let (first, second, other) = (connection("a"), connection("a"), connection("b"));
        let call = CallBytes::new(&first);
        call.announce(60).unwrap();
        assert!(CallBytes::new(&second).announce(41).is_err());
        let fits = CallBytes::new(&second);
        fits.announce(40).unwrap();
        assert_eq!((first.bytes(), second.bytes()), (60, 40));
        CallBytes::new(&other).announce(100).unwrap();
        drop(call);
        CallBytes::new(&second).announce(60).unwrap();
        let unread = first.reserve_answer(10);
        other.wait_for_capacity().await;
        let mut waiting = pin!(second.wait_for_capacity());
        assert!(waiting.as_mut().now_or_never().is_none());
        drop(unread);
        assert!(waiting.now_or_never().is_some());
    }

    /// A certificate with several URIs is nobody's, and may name another client's first.
    #[tokio::test]
    async fn a_client_by_name_takes_no_bytes_of_the_client_with_that_uri() {
        let clients = BytesOfClients::default();
        let uri = "spiffe://prod/ns/team-a/cluster/stage";
        let stage = Client { name: uri.into(), uri: Some(uri.into()), ..Client::default() };
        let nobody = Client { name: uri.into(), ..Client::default() };
        let bytes = [&stage, &nobody, &stage, &nobody].map(|client| clients.of(client));
        assert!(Arc::ptr_eq(&bytes[0], &bytes[2]) && Arc::ptr_eq(&bytes[1], &bytes[3]));
        assert!(!Arc::ptr_eq(&bytes[0], &bytes[1]));
    }

    /// The connections of a client are on several threads.
    #[test]
    fn requests_of_one_moment_exceed_no_limit_together() {
        let limits = ByteLimits { requests: 100, answers: 10, total: 1_000_000 };
        let (shared, at_once, most) = (Arc::<LimitedBytes>::default(), AtomicUsize::new(0), AtomicUsize::new(0));
        let announces = || {
            let connection = Arc::new(BufferedBytes::new(limits, Arc::clone(&shared), Arc::default()));
            for _ in 0..200_000 {
                let call = CallBytes::new(&connection);
                if call.announce(60).is_ok() {
                    most.fetch_max(at_once.fetch_add(1, Ordering::Relaxed) + 1, Ordering::Relaxed);
                    at_once.fetch_sub(1, Ordering::Relaxed);
                }
            }
        };
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(announces);
            }
        });
        assert_eq!(most.into_inner(), 1);
        assert_eq!(shared.requests.load(Ordering::Relaxed), 0, "each is released once");
    }

    #[test]
    fn a_client_without_connections_is_forgotten() {
        let clients = BytesOfClients::default();
        for number in 0..100 {
            let client = Client { uri: Some(format!("spiffe://prod/{number}").into()), ..Client::default() };
            drop(clients.of(&client));
        }
        assert_eq!(clients.0.lock().len(), 1);
    }

    #[rstest]
    #[case::nothing(b"", 1, &[])]
    #[case::half_a_head(b"\0\0\0\0", 9, &[])]
    #[case::a_head_in_pieces(b"\0\0\0\x01\x02", 2, &[258])]
    #[case::a_message_and_another(b"\0\0\0\0\x02ab\0\0\0\0\x03a", 6, &[2, 3])]
    #[case::the_last_of_a_piece(b"\0\0\0\0\x02ab\0\0\0\0\x03a", 99, &[3])]
    #[case::what_looks_like_a_head_within(b"\0\0\0\0\x05\0\xff\xff\xff\xff", 3, &[5])]
    #[case::empty_ones(b"\0\0\0\0\0\0\0\0\0\0", 5, &[0, 0])]
    #[case::the_longest(b"\0\xff\xff\xff\xff", 4, &[0xffff_ffff])]
    fn the_length_of_a_message_is_known_from_its_head(
        #[case] bytes: &[u8],
        #[case] piece: usize,
        #[case] expected: &[usize],
    ) {
        let mut lengths = Lengths::default();
        let seen: Vec<_> = bytes.chunks(piece).filter_map(|piece| lengths.read(piece)).collect();
        assert_eq!(seen, expected);
    }
}
