//! The bytes that a gRPC connection makes the program hold: unanswered requests, by the length that they announce, and
//! unread answers. A client that doesn't read must delay nobody but itself.

use std::{
    mem,
    pin::{Pin, pin},
    sync::{
        Arc,
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

/// The limits of held bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct ByteLimits {
    /// The limit of a connection's requests; more are refused.
    pub(super) requests: usize,
    /// The limit of a connection's answers; while more are unread, its further calls wait.
    pub(super) answers: usize,
    /// The limit of all connections; beyond it the largest is cut.
    pub(super) total: usize,
}

/// The bytes of all connections.
#[derive(Debug, Default)]
pub(super) struct AllBytes {
    held: AtomicUsize,
    /// Notified when all connections together hold more than the limit.
    pub(super) exceeded: Notify,
}

/// The bytes of a connection.
#[derive(Debug)]
pub(super) struct HeldBytes {
    limits: ByteLimits,
    all: Arc<AllBytes>,
    requests: AtomicUsize,
    answers: AtomicUsize,
    read: Notify,
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Request,
    Answer,
}

/// A share of the held bytes, until it is dropped.
#[derive(Debug)]
struct Part {
    of: Arc<HeldBytes>,
    kind: Kind,
    bytes: usize,
}

impl HeldBytes {
    pub(super) fn new(limits: ByteLimits, all: Arc<AllBytes>) -> Self {
        Self { limits, all, requests: AtomicUsize::new(0), answers: AtomicUsize::new(0), read: Notify::new() }
    }

    /// Returns the number of bytes held.
    pub(super) fn bytes(&self) -> usize {
        self.requests.load(Ordering::Relaxed) + self.answers.load(Ordering::Relaxed)
    }

    /// Waits until the client has read enough of its answers for another one.
    pub(super) async fn has_room(&self) {
        loop {
            let mut read = pin!(self.read.notified());
            read.as_mut().enable();
            if self.answers.load(Ordering::Relaxed) < self.limits.answers {
                return;
            }
            read.await;
        }
    }

    fn of_kind(&self, kind: Kind) -> &AtomicUsize {
        match kind {
            Kind::Request => &self.requests,
            Kind::Answer => &self.answers,
        }
    }

    fn take(self: &Arc<Self>, kind: Kind, bytes: usize) -> Part {
        self.of_kind(kind).fetch_add(bytes, Ordering::Relaxed);
        if self.all.held.fetch_add(bytes, Ordering::Relaxed) + bytes > self.limits.total {
            self.all.exceeded.notify_one();
        }
        Part { of: Arc::clone(self), kind, bytes }
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        self.of.of_kind(self.kind).fetch_sub(self.bytes, Ordering::Relaxed);
        self.of.all.held.fetch_sub(self.bytes, Ordering::Relaxed);
        if matches!(self.kind, Kind::Answer) {
            self.of.read.notify_waiters();
        }
    }
}

/// The bytes of one call's request.
#[derive(Debug)]
pub(super) struct CallBytes {
    held: Arc<HeldBytes>,
    message: Mutex<Option<Part>>,
    is_refused: AtomicBool,
}

impl CallBytes {
    pub(super) fn new(held: &Arc<HeldBytes>) -> Arc<Self> {
        Arc::new(Self { held: Arc::clone(held), message: Mutex::default(), is_refused: AtomicBool::new(false) })
    }

    /// Returns the error of a request that exceeds the limit together with the others of its connection.
    pub(super) fn refusal(&self) -> Option<Status> {
        self.is_refused.load(Ordering::Relaxed).then(|| too_much(self.held.limits.requests))
    }

    /// Begins a message of this length, and releases the one before it.
    fn announce(&self, bytes: usize) -> Result<(), Status> {
        let mut message = self.message.lock();
        message.take();
        let limit = self.held.limits.requests;
        if self.held.requests.load(Ordering::Relaxed).saturating_add(bytes) > limit {
            self.is_refused.store(true, Ordering::Relaxed);
            return Err(too_much(limit));
        }
        *message = Some(self.held.take(Kind::Request, bytes));
        Ok(())
    }
}

fn too_much(limit: usize) -> Status {
    Status::resource_exhausted(format!(
        "the requests under way on this connection have more than {limit} bytes: send fewer at once"
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
pub(super) struct Received<B> {
    inner: B,
    lengths: Lengths,
    call: Arc<CallBytes>,
}

impl<B> Received<B> {
    pub(super) fn new(inner: B, call: Arc<CallBytes>) -> Self {
        Self { inner, lengths: Lengths::default(), call }
    }
}

impl<B> Body for Received<B>
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

/// The body of an answer, whose data counts until it is sent. It is produced before anybody reads it, so that it counts
/// with its actual size.
#[derive(Debug)]
pub(super) struct Unread<B: Body> {
    inner: B,
    /// The first frame, produced before anybody polled for it.
    first: Poll<Option<Result<Frame<Bytes>, B::Error>>>,
    held: Arc<HeldBytes>,
}

impl<B: Body<Data = Bytes> + Unpin> Unread<B> {
    pub(super) async fn new(mut inner: B, held: Arc<HeldBytes>) -> Self {
        let first = if inner.is_end_stream() {
            Poll::Pending
        } else {
            // The frames of a watch come later.
            poll_fn(|cx| Poll::Ready(Pin::new(&mut inner).poll_frame(cx))).await
        };
        let first = first.map_ok(|frame| counted(frame, &held));
        Self { inner, first, held }
    }
}

fn counted(frame: Frame<Bytes>, held: &Arc<HeldBytes>) -> Frame<Bytes> {
    struct Counted(Bytes, #[expect(dead_code, reason = "dropped with the data")] Part);
    impl AsRef<[u8]> for Counted {
        fn as_ref(&self) -> &[u8] {
            &self.0
        }
    }
    frame.map_data(|data| {
        let part = held.take(Kind::Answer, data.len());
        Bytes::from_owner(Counted(data, part))
    })
}

impl<B: Body<Data = Bytes> + Unpin> Body for Unread<B>
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
        Poll::Ready(frame.map(|frame| frame.map(|frame| counted(frame, &self.held))))
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
mod tests {
    use rstest::rstest;

    use super::*;

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
