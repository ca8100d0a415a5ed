//! Size limits for answers of API servers. kube's client reads an error of any length to its end, so an error is cut at
//! its limit, and its beginning serves as the message.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll},
};

use bytes::Bytes;
use http::Response;
use http_body::{Body, Frame, SizeHint};
use tower::BoxError;

use super::tls_error::in_words;

/// The maximum length of an error in bytes.
const LONGEST_ERROR: usize = 64 << 10;

/// A body of at most a number of bytes.
#[derive(Debug)]
pub struct Bounded<B> {
    inner: B,
    left: usize,
    on_excess: OnExcess,
}

/// The end of a body that exceeds its limit.
#[derive(Clone, Copy, Debug)]
enum OnExcess {
    /// The body ends without an error.
    Ends,
    /// Reading fails; holds the limit in bytes.
    Fails(usize),
}

/// Limits an answer as each of the program's clients does: errors always, other answers if `longest` is set.
#[must_use]
pub fn bounded<B>(answer: Response<B>, longest: Option<usize>) -> Response<Bounded<B>> {
    let is_error = answer.status().is_client_error() || answer.status().is_server_error();
    let (left, on_excess) = match longest {
        _ if is_error => (LONGEST_ERROR, OnExcess::Ends),
        Some(longest) => (longest, OnExcess::Fails(longest)),
        None => (usize::MAX, OnExcess::Ends),
    };
    answer.map(|inner| Bounded { inner, left, on_excess })
}

impl<B: Body<Data = Bytes> + Unpin> Body for Bounded<B>
where
    B::Error: Into<BoxError>,
{
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if self.left == 0
            && let OnExcess::Ends = self.on_excess
        {
            return Poll::Ready(None);
        }
        let frame = match Pin::new(&mut self.inner).poll_frame(context) {
            Poll::Pending => return Poll::Pending,
            Poll::Ready(None) => return Poll::Ready(None),
            Poll::Ready(Some(Err(error))) => return Poll::Ready(Some(Err(in_words(error.into())))),
            Poll::Ready(Some(Ok(frame))) => frame,
        };
        let data = match frame.into_data() {
            Ok(data) => data,
            Err(trailers) => return Poll::Ready(Some(Ok(trailers))),
        };
        let (length, left) = (data.len(), self.left);
        self.left = left.saturating_sub(length);
        match self.on_excess {
            _ if length <= left => Poll::Ready(Some(Ok(Frame::data(data)))),
            OnExcess::Fails(longest) => {
                let message = format!("the answer is longer than {longest} bytes");
                Poll::Ready(Some(Err(io::Error::new(io::ErrorKind::FileTooLarge, message).into())))
            }
            OnExcess::Ends => Poll::Ready(Some(Ok(Frame::data(data.slice(..start_of_character(&data, left)))))),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let mut hint = SizeHint::new();
        let left = u64::try_from(self.left).unwrap_or(u64::MAX);
        if let Some(upper) = self.inner.size_hint().upper() {
            hint.set_upper(upper.min(left));
        }
        hint
    }
}

/// Returns the last position up to `at` at which a UTF-8 character begins, so that the cut text stays valid.
fn start_of_character(text: &[u8], at: usize) -> usize {
    let is_inside = |at: usize| text.get(at).is_some_and(|byte| byte & 0b1100_0000 == 0b1000_0000);
    (at.saturating_sub(3)..=at).rev().find(|at| !is_inside(*at)).unwrap_or(at)
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    };

    use http::{Request, StatusCode};
    use kube::{Client, client};
    use tower::ServiceExt;

    use super::*;

    /// Returns a client whose server sends endless answers, and the number of bytes sent.
    fn endless(status: u16, part: &'static str, longest: Option<usize>) -> (Client, Arc<AtomicUsize>) {
        let sent = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&sent);
        let service = tower::service_fn(move |_: Request<client::Body>| {
            let counted = Arc::clone(&counted);
            async move {
                let parts = futures::stream::repeat_with(move || {
                    counted.fetch_add(part.len(), Ordering::Relaxed);
                    Ok::<_, io::Error>(part)
                });
                let mut answer = Response::new(axum::body::Body::from_stream(parts));
                *answer.status_mut() = StatusCode::from_u16(status).unwrap();
                Ok::<_, BoxError>(answer)
            }
        });
        (Client::new(service.map_response(move |answer| bounded(answer, longest)), "default"), sent)
    }

    fn request() -> Request<Vec<u8>> {
        Request::get("/api/v1/nodes").body(Vec::new()).unwrap()
    }

    #[tokio::test]
    async fn an_error_without_end_is_read_up_to_its_bound_and_has_its_code() {
        let (client, sent) = endless(503, "äöü of a proxy ", None);
        let error = client.request_stream(request()).await.err().unwrap();
        let kube::Error::Api(status) = &error else { panic!("{error:?}") };
        assert_eq!(status.code, 503);
        assert!(status.message.starts_with("äöü of a proxy"), "{}", status.message);
        let cause = crate::cause(&error);
        assert!(cause.len() < 10_000, "{}", cause.len());
        let sent = sent.load(Ordering::Relaxed);
        assert!((LONGEST_ERROR..2 * LONGEST_ERROR).contains(&sent), "{sent}");
    }

    #[tokio::test]
    async fn an_answer_without_end_fails_at_its_bound_and_says_so() {
        const LONGEST: usize = 100_000;
        let (client, sent) = endless(200, "0123456789", Some(LONGEST));
        let error = client.request_text(request()).await.unwrap_err();
        let cause = crate::cause(&error);
        assert!(cause.contains("the answer is longer than 100000 bytes"), "{cause}");
        let sent = sent.load(Ordering::Relaxed);
        assert!((LONGEST..2 * LONGEST).contains(&sent), "{sent}");
    }
}
