//! The messages between hosts, before they are given a time: each host sends into one outbox, and the world decides
//! whether and when a message arrives.

use std::{
    future::Future,
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use connect::Policy;
use futures::stream;
use http::{HeaderMap, Request, Response, request::Parts};
use http_body::Frame;
use http_body_util::{BodyExt as _, BodyStream, StreamBody, combinators::UnsyncBoxBody};
use parking_lot::Mutex;
use tokio::sync::{Notify, oneshot};
use tokio_stream::StreamExt as _;
use tonic::Status;
use tower::BoxError;

use crate::{
    entropy::{self, Nanos},
    host::Host,
};

/// The number of a host in its world.
pub(crate) type HostId = usize;

/// The number of an API: [`MANAGEMENT`], or one more than that of the Cluster.
pub(crate) type ApiId = usize;

/// The API of the management cluster, which is that of the workload cluster too in a world with one Cluster.
pub(crate) const MANAGEMENT: ApiId = 0;

/// A body that comes whole or in chunks.
pub(crate) type Body = UnsyncBoxBody<Bytes, BoxError>;

pub(crate) struct Sent {
    pub(crate) at: Nanos,
    pub(crate) from: HostId,
    pub(crate) message: Message,
}

pub(crate) enum Message {
    Request(ApiRequest),
    /// A chunk of a watch, or its end.
    Piece(u64, Option<Bytes>),
    /// A watch that is no longer read.
    Unread(u64),
    /// A call to a copy of the program.
    Call(Call),
    /// The answer to a call.
    Reply(u64, RpcResult),
    /// The end of a copy that was asked to end: true if all work under way was finished.
    Drained(bool),
    /// A line for the trace, from an actor.
    Note(String),
}

pub(crate) struct ApiRequest {
    /// The API: that of the management cluster, or of a workload cluster with one of its own.
    pub(crate) to: ApiId,
    pub(crate) parts: Parts,
    pub(crate) body: Bytes,
    pub(crate) reply: oneshot::Sender<Result<Response<Body>, BoxError>>,
}

pub(crate) struct Call {
    /// The number of the copy.
    pub(crate) to: usize,
    /// The number of the caller's Cluster.
    pub(crate) cluster: usize,
    pub(crate) parts: Parts,
    pub(crate) body: Bytes,
    pub(crate) reply: oneshot::Sender<RpcResult>,
}

/// An answer to a call, or `Err` if the connection is cut.
pub(crate) type RpcResult = Result<Answer, BoxError>;

pub(crate) struct Answer {
    parts: http::response::Parts,
    /// The message with its gRPC prefix of five bytes.
    pub(crate) message: Bytes,
    trailers: Option<HeaderMap>,
    /// The status in the trailers, or in the headers if there is no message.
    pub(crate) status: Status,
}

impl Answer {
    pub(crate) async fn read<B: http_body::Body<Data = Bytes>>(response: Response<B>) -> Result<Self, B::Error> {
        let (parts, body) = response.into_parts();
        let body = body.collect().await?;
        let trailers = body.trailers().cloned();
        let in_trailers = || Status::from_header_map(trailers.as_ref()?);
        let status = Status::from_header_map(&parts.headers).or_else(in_trailers).unwrap_or_else(|| Status::ok(""));
        Ok(Self { parts, message: body.to_bytes(), trailers, status })
    }

    fn into_response(self) -> Response<Body> {
        let trailers = self.trailers.map(|trailers| Ok(Frame::trailers(trailers)));
        let frames = [Ok(Frame::data(self.message))].into_iter().chain(trailers);
        Response::from_parts(self.parts, StreamBody::new(stream::iter(frames)).boxed_unsync())
    }
}

#[derive(Clone)]
pub(crate) struct Port {
    from: HostId,
    outbox: Arc<Mutex<Vec<Sent>>>,
    sent: Arc<Notify>,
    /// The number of its Cluster, and the API of that one's workload cluster.
    cluster: usize,
    workload: ApiId,
}

impl Port {
    pub(crate) fn new(from: HostId, host: &Host, outbox: &Arc<Mutex<Vec<Sent>>>) -> Self {
        Self { from, outbox: Arc::clone(outbox), sent: host.sent(), cluster: 0, workload: MANAGEMENT }
    }

    pub(crate) fn of_cluster(&self, cluster: usize) -> Self {
        Self { cluster, workload: cluster + 1, ..self.clone() }
    }

    pub(crate) fn send(&self, message: Message) {
        self.outbox.lock().push(Sent { at: entropy::now(), from: self.from, message });
        self.sent.notify_one();
    }

    pub(crate) fn note(&self, line: impl Into<String>) {
        self.send(Message::Note(line.into()));
    }

    /// Returns a client of the management cluster's API with a policy's time-outs: for the head of an answer, and for a
    /// silent body.
    pub(crate) fn client(&self, policy: Policy) -> kube::Client {
        self.client_of(MANAGEMENT, policy)
    }

    pub(crate) fn workload(&self, policy: Policy) -> kube::Client {
        self.client_of(self.workload, policy)
    }

    fn client_of(&self, to: ApiId, policy: Policy) -> kube::Client {
        let port = self.clone();
        let service = tower::service_fn(move |request: Request<kube::client::Body>| {
            let port = port.clone();
            async move {
                let (parts, body) = request.into_parts();
                let body = body.collect_bytes().await?;
                let (reply, answer) = oneshot::channel();
                port.send(Message::Request(ApiRequest { to, parts, body, reply }));
                let answer = policy.limit(async { answer.await.map_err(|_| cut())? }).await?;
                Ok::<_, BoxError>(answer.map(|body| heard_within(body, policy.silence)))
            }
        });
        kube::Client::new(service, "default")
    }

    /// Returns a client of a copy of the program.
    pub(crate) fn caller(&self, to: usize) -> Caller {
        Caller { port: self.clone(), to }
    }
}

/// Wraps a body so that reading it fails after a silence of this length.
fn heard_within(body: Body, silence: Duration) -> Body {
    let frames = BodyStream::new(body).timeout(silence).map(|frame| match frame {
        Ok(frame) => frame,
        Err(_) => Err(BoxError::from(io::Error::from(io::ErrorKind::TimedOut))),
    });
    StreamBody::new(frames).boxed_unsync()
}

pub(crate) fn cut() -> BoxError {
    BoxError::from(io::Error::from(io::ErrorKind::ConnectionReset))
}

#[derive(Clone)]
pub(crate) struct Caller {
    port: Port,
    to: usize,
}

impl tower::Service<Request<tonic::body::Body>> for Caller {
    type Response = Response<Body>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, BoxError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<tonic::body::Body>) -> Self::Future {
        let (port, to, cluster) = (self.port.clone(), self.to, self.port.cluster);
        Box::pin(async move {
            let (parts, body) = request.into_parts();
            let body = body.collect().await?.to_bytes();
            let (reply, answer) = oneshot::channel();
            port.send(Message::Call(Call { to, cluster, parts, body, reply }));
            let answer = answer.await.map_err(|_| cut())??;
            Ok(answer.into_response())
        })
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;
    use tonic::Code;

    use super::*;

    fn read(headers: HeaderMap, trailers: Option<HeaderMap>) -> (Code, String) {
        let frames = trailers.map(|trailers| Ok::<_, BoxError>(Frame::trailers(trailers)));
        let mut response = Response::new(StreamBody::new(stream::iter(frames)));
        *response.headers_mut() = headers;
        let status = Answer::read(response).now_or_never().and_then(Result::ok).expect("an answer").status;
        (status.code(), status.message().to_owned())
    }

    #[test]
    fn a_status_is_read_from_headers_and_trailers() {
        let refused = Status::permission_denied("the API server refuses: 100 %");
        let headers = refused.clone().into_http::<tonic::body::Body>().into_parts().0.headers;
        assert_eq!(headers["grpc-message"], "the%20API%20server%20refuses:%20100%20%25");
        let expected = (Code::PermissionDenied, refused.message().to_owned());
        assert_eq!(read(headers.clone(), None), expected);
        assert_eq!(read(HeaderMap::new(), Some(headers)), expected);
        assert_eq!(read(HeaderMap::new(), None), (Code::Ok, String::new()));
    }
}
