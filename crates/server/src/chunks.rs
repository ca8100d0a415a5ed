//! Splits bodies into small chunks. h2 sends data of more than 256 bytes in its own system call and the trailers in
//! another one, so the client wakes and reads twice. h2 buffers smaller chunks with headers and trailers, so an answer
//! of some kilobytes takes one write, like an empty one.

use std::{
    pin::Pin,
    task::{Context, Poll, ready},
};

use http_body::{Body, Frame, SizeHint};
use prost::bytes::Bytes;

/// The maximum size of a chunk that is buffered together with others: one byte less than h2's threshold for data that
/// it writes without copying.
const CHUNK: usize = 255;
/// The maximum size of data that is split: beyond it, the copies and the frame headers would cost more than a second
/// write.
const LONGEST: usize = 4096;

/// A body whose data is split into chunks, unless it is long.
#[derive(Debug)]
pub(super) struct Chunked<B> {
    inner: B,
    rest: Bytes,
}

impl<B> Chunked<B> {
    pub(super) fn new(inner: B) -> Self {
        Self { inner, rest: Bytes::new() }
    }
}

impl<B: Body<Data = Bytes> + Unpin> Body for Chunked<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        if self.rest.is_empty() {
            let Some(frame) = ready!(Pin::new(&mut self.inner).poll_frame(cx)?) else { return Poll::Ready(None) };
            match frame.into_data() {
                Ok(data) if data.len() <= CHUNK || data.len() > LONGEST => {
                    return Poll::Ready(Some(Ok(Frame::data(data))));
                }
                Ok(data) => self.rest = data,
                Err(trailers) => return Poll::Ready(Some(Ok(trailers))),
            }
        }
        let length = self.rest.len().min(CHUNK);
        Poll::Ready(Some(Ok(Frame::data(self.rest.split_to(length)))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let inner = self.inner.size_hint();
        let rest = self.rest.len() as u64;
        let mut hint = SizeHint::new();
        hint.set_lower(inner.lower().saturating_add(rest));
        if let Some(upper) = inner.upper() {
            hint.set_upper(upper.saturating_add(rest));
        }
        hint
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::{collections::VecDeque, convert::Infallible};

    use futures::future::poll_fn;
    use http::HeaderMap;
    use rstest::rstest;

    use super::*;

    /// A body that consists of these frames.
    struct Frames(VecDeque<Frame<Bytes>>);

    impl Body for Frames {
        type Data = Bytes;
        type Error = Infallible;

        fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
            Poll::Ready(self.0.pop_front().map(Ok))
        }

        fn is_end_stream(&self) -> bool {
            self.0.is_empty()
        }

        fn size_hint(&self) -> SizeHint {
            SizeHint::with_exact(self.0.iter().filter_map(Frame::data_ref).map(|data| data.len() as u64).sum())
        }
    }

    #[rstest]
    #[case::empty(0, 1)]
    #[case::short(255, 1)]
    #[case::one_more(256, 2)]
    #[case::a_template(2_000, 8)]
    #[case::the_longest(4_096, 17)]
    #[case::longer(4_097, 1)]
    #[tokio::test]
    async fn all_of_it_comes_in_order_and_the_trailers_last(#[case] length: usize, #[case] pieces: usize) {
        let data: Bytes = (0..length).map(|n| u8::try_from(n % 251).unwrap()).collect::<Vec<_>>().into();
        let frames = [Frame::data(data.clone()), Frame::trailers(HeaderMap::new())];
        let mut body = Chunked::new(Frames(frames.into()));
        let (mut seen, mut count) = (Vec::new(), 0);
        loop {
            let left = (length - seen.len()) as u64;
            assert_eq!((body.size_hint().lower(), body.size_hint().upper()), (left, Some(left)));
            assert!(!body.is_end_stream());
            let frame = poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await.unwrap().unwrap();
            match frame.into_data() {
                Ok(piece) => {
                    seen.extend(piece);
                    count += 1;
                }
                Err(trailers) => {
                    assert!(trailers.is_trailers());
                    break;
                }
            }
        }
        assert_eq!((seen, count), (data.to_vec(), pieces));
        assert!(body.is_end_stream());
        assert!(poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await.is_none());
    }
}
