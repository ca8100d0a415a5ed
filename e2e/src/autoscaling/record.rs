//! A proxy to the program that records requests and answers byte for byte. It must change neither.

use std::{
    convert::Infallible,
    fs,
    future::{poll_fn, ready},
    net::Ipv4Addr,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll},
};

use anyhow::{Result, ensure};
use futures::future::BoxFuture;
use http::{HeaderMap, Request, Response};
use http_body_util::{BodyExt as _, Full};
use prost::{Message, bytes::Bytes};
use tokio::{net::TcpListener, task::JoinHandle};
use tonic::{
    Code, Status,
    body::Body,
    codegen::Service,
    server::NamedService,
    transport::{Channel, Server, server::TcpIncoming},
};

use super::transcript;

/// The reason for which a call couldn't be forwarded.
type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// The length of the prefix of a gRPC message: its compressed flag, and its length.
const PREFIX: usize = 5;

/// A call that has been answered, as bytes: it is decoded only when a check needs it.
#[derive(Clone, Debug)]
pub struct Call {
    /// The RPC, such as `Refresh`.
    pub name: String,
    /// The time of its start: the number of starts and ends before it.
    pub began: usize,
    /// The time of its end, likewise.
    pub ended: usize,
    /// The status code of the answer, or `Cancelled` if the caller didn't wait for it.
    pub code: Code,
    request: Bytes,
    response: Bytes,
}

impl Call {
    /// Decodes the request.
    pub fn request<M: Message + Default>(&self) -> Result<M> {
        message(&self.request)
    }

    /// Decodes the response.
    pub fn response<M: Message + Default>(&self) -> Result<M> {
        message(&self.response)
    }
}

#[cfg(test)]
impl Call {
    /// Returns a call that a test has made up.
    pub(super) fn made(
        name: &str,
        time: [usize; 2],
        code: Code,
        asked: &impl Message,
        answered: &impl Message,
    ) -> Self {
        let body = |message: &[u8]| Bytes::from([&[0; PREFIX], message].concat());
        let (request, response) = (body(&asked.encode_to_vec()), body(&answered.encode_to_vec()));
        Self { name: name.to_owned(), began: time[0], ended: time[1], code, request, response }
    }
}

fn message<M: Message + Default>(body: &Bytes) -> Result<M> {
    ensure!(body.len() >= PREFIX, "{} bytes are no message", body.len());
    Ok(M::decode(body.slice(PREFIX..))?)
}

/// The calls so far, in the order in which they ended.
#[derive(Clone, Debug, Default)]
pub struct Calls(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    now: usize,
    calls: Vec<Call>,
}

impl Calls {
    /// Returns all calls.
    pub fn all(&self) -> Vec<Call> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).calls.clone()
    }

    /// Returns the calls of one RPC.
    pub fn of(&self, name: &str) -> Vec<Call> {
        let state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        state.calls.iter().filter(|call| call.name == name).cloned().collect()
    }

    fn begin(&self) -> usize {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        state.now += 1;
        state.now - 1
    }

    fn end(&self, call: impl FnOnce(usize) -> Call) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let call = call(state.now);
        state.now += 1;
        state.calls.push(call);
    }
}

/// A port through which the program can be reached. Dropping it closes it, and writes a transcript.
pub struct Recorder {
    /// The listening address, such as `127.0.0.1:1234`.
    pub address: String,
    /// The recorded calls.
    pub calls: Calls,
    serving: JoinHandle<()>,
    transcript: PathBuf,
}

impl Recorder {
    /// Listens and forwards calls. At the end all of them are written to a file.
    pub async fn start(program: Channel, transcript: PathBuf) -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?.to_string();
        let calls = Calls::default();
        let way = Forwarder { program, calls: calls.clone() };
        let serving = tokio::spawn(async move {
            // The server ends only when it is dropped.
            let _ = Server::builder().add_service(way).serve_with_incoming(TcpIncoming::from(listener)).await;
        });
        Ok(Self { address, calls, serving, transcript })
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        self.serving.abort();
        let lines: Vec<String> = self.calls.all().iter().map(transcript::line).collect();
        // A missing transcript is noticed by its reader.
        let _ = fs::write(&self.transcript, lines.join("\n") + "\n");
    }
}

#[derive(Clone)]
struct Forwarder {
    program: Channel,
    calls: Calls,
}

impl NamedService for Forwarder {
    const NAME: &'static str = "clusterautoscaler.cloudprovider.v1.externalgrpc.CloudProvider";
}

impl Service<Request<Body>> for Forwarder {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let way = self.clone();
        Box::pin(async move {
            let handed_on = way.forward(request).await;
            Ok(handed_on.unwrap_or_else(|error| Status::unavailable(error.to_string()).into_http()))
        })
    }
}

impl Forwarder {
    async fn forward(mut self, request: Request<Body>) -> Result<Response<Body>, BoxError> {
        let began = self.calls.begin();
        let (mut head, body) = request.into_parts();
        let name = head.uri.path().rsplit('/').next().unwrap_or_default().to_owned();
        // The connection to the program has an HTTP version of its own.
        head.version = http::Version::default();
        let request = body.collect().await?.to_bytes();
        let pending = Pending { calls: self.calls.clone(), call: Some((name, began, request.clone())) };
        poll_fn(|context| self.program.poll_ready(context)).await?;
        let answer = self.program.call(Request::from_parts(head, Body::new(Full::new(request)))).await?;
        let (head, body) = answer.into_parts();
        let body = body.collect().await?;
        let trailers = body.trailers().cloned();
        let response = body.to_bytes();
        let code = code(trailers.as_ref().unwrap_or(&head.headers));
        pending.end(code, response.clone());
        let body = Full::new(response);
        // A refusal has its status in the head and ends there. With trailers announced, a caller would wait for them in
        // vain.
        let body = match trailers {
            Some(trailers) => Body::new(body.with_trailers(ready(Some(Ok(trailers))))),
            None => Body::new(body),
        };
        Ok(Response::from_parts(head, body))
    }
}

/// A call without an answer yet: its name, its start, and its request. A dropped one is recorded too, since its request
/// may have been carried out.
struct Pending {
    calls: Calls,
    call: Option<(String, usize, Bytes)>,
}

impl Pending {
    fn end(mut self, code: Code, response: Bytes) {
        self.keep(code, response);
    }

    fn keep(&mut self, code: Code, response: Bytes) {
        if let Some((name, began, request)) = self.call.take() {
            self.calls.end(|ended| Call { name, began, ended, code, request, response });
        }
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        self.keep(Code::Cancelled, Bytes::new());
    }
}

fn code(headers: &HeaderMap) -> Code {
    Status::from_header_map(headers).map_or(Code::Unknown, |status| status.code())
}
