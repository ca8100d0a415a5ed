//! One HTTP request: a POST of JSON, and the meaning of its response. Redirects are never followed, since that would
//! reveal the secret URL to another host. No error text may contain the URL, so this module writes its own error texts.

use std::{error::Error as StdError, io, time::Duration};

use http::{HeaderMap, Request, StatusCode, header};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::{
    client::legacy::{Client, Error as ClientError, connect::HttpConnector},
    rt::TokioExecutor,
};
use jiff::Timestamp;
use kube::client::Body;
use rustls::{ClientConfig, RootCertStore};

use super::url::SecretUrl;
use connect::{Connector, Proxies, USER_AGENT};

/// Sends requests. Clones share their connections.
#[derive(Clone)]
pub(super) struct Poster {
    client: Client<HttpsConnector<Connector>, Body>,
    timeout: Duration,
}

/// The outcome of a request.
#[derive(Debug, Eq, PartialEq)]
pub(super) enum Outcome {
    /// The receiver accepted it.
    Delivered,
    /// A retry may succeed; the receiver may have sent a `Retry-After`.
    Later { why: String, after: Option<Duration> },
    /// It will never be accepted.
    Refused(String),
}

impl Poster {
    /// Returns a poster that trusts the system's root certificates. Missing root certificates are an error only if a
    /// receiver `needs_tls`.
    pub(super) fn new(timeout: Duration, needs_tls: bool) -> io::Result<Self> {
        // An error means that a provider is installed already.
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        tcp.set_connect_timeout(Some(timeout));
        let https = match HttpsConnectorBuilder::new().with_native_roots() {
            Ok(https) => https,
            Err(error) if needs_tls => return Err(error),
            Err(_) => {
                let trusting_nobody = ClientConfig::builder().with_root_certificates(RootCertStore::empty());
                HttpsConnectorBuilder::new().with_tls_config(trusting_nobody.with_no_client_auth())
            }
        };
        let way = Connector::new(tcp, Proxies::of_environment().map_err(io::Error::other)?)?;
        let connector = https.https_or_http().enable_http1().wrap_connector(way);
        let client = Client::builder(TokioExecutor::new()).pool_idle_timeout(Duration::from_secs(30)).build(connector);
        Ok(Self { client, timeout })
    }

    /// Posts a JSON body.
    pub(super) async fn post(&self, url: &SecretUrl, body: Vec<u8>) -> Outcome {
        let request = Request::post(url.expose())
            .header(header::CONTENT_TYPE, "application/json")
            .header(header::USER_AGENT, USER_AGENT)
            .body(Body::from(body));
        let Ok(request) = request else { return Outcome::Refused("its URL can't be requested".into()) };
        match tokio::time::timeout(self.timeout, self.client.request(request)).await {
            Ok(Ok(answer)) => judge(answer.status(), answer.headers()),
            Ok(Err(error)) => Outcome::Later { why: reason(&error), after: None },
            Err(_) => Outcome::Later { why: format!("no answer in {:?}", self.timeout), after: None },
        }
    }
}

fn judge(status: StatusCode, headers: &HeaderMap) -> Outcome {
    let why = format!("the receiver answered {}", status.as_u16());
    match status.as_u16() {
        200..=299 => Outcome::Delivered,
        300..=399 => Outcome::Refused(format!("{why}, a redirect, which isn't followed: use the URL that it leads to")),
        408 | 425 | 429 | 500..=599 => Outcome::Later { why, after: retry_after(headers, Timestamp::now()) },
        _ => Outcome::Refused(why),
    }
}

/// Parses `Retry-After`, as seconds or as a date.
pub(super) fn retry_after(headers: &HeaderMap, now: Timestamp) -> Option<Duration> {
    let text = headers.get(header::RETRY_AFTER)?.to_str().ok()?.trim();
    if let Ok(seconds) = text.parse() {
        return Some(Duration::from_secs(seconds));
    }
    let date = jiff::fmt::rfc2822::parse(text).ok()?.timestamp();
    Some(Duration::try_from(date.duration_since(now)).unwrap_or_default())
}

/// Describes a failed request without any part of the URL. Error texts of libraries may contain the URL.
fn reason(error: &ClientError) -> String {
    let mut next: Option<&(dyn StdError + 'static)> = Some(error);
    while let Some(cause) = next {
        if let Some(tls) = cause.downcast_ref::<rustls::Error>() {
            return match tls {
                rustls::Error::InvalidCertificate(_) => "TLS: the receiver's certificate isn't accepted".into(),
                _ => "TLS: the handshake failed".into(),
            };
        }
        if let Some(io) = cause.downcast_ref::<io::Error>() {
            if io.raw_os_error().is_some() {
                return format!("connection: {}", io.kind());
            }
            // `io::Error::source` skips the inner error, so this code continues with the inner error.
            if let Some(inner) = io.get_ref() {
                next = Some(inner);
                continue;
            }
        }
        next = cause.source();
    }
    if error.is_connect() { "can't connect, or the name isn't known".into() } else { "the connection broke".into() }
}
