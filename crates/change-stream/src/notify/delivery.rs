//! The task of one destination: it gathers changes into batches, limits the rate, and retries until a batch is
//! delivered, refused or too old.
//!
//! The URL of a webhook is a secret: no type shows it, redirects are never followed, since that would reveal it to another
//! host, and no error text may contain it, so this module writes its own.

use std::{env, error::Error as StdError, fmt, fs, io, path::PathBuf, str::FromStr, sync::Arc, time::Duration};

use anyhow::{anyhow, bail};
use connect::{Connector, Proxies, USER_AGENT, is_loopback};
use http::{HeaderMap, Request, StatusCode, Uri, header};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::{
    client::legacy::{Client, Error as ClientError, connect::HttpConnector},
    rt::TokioExecutor,
};
use jiff::Timestamp;
use kube::client::Body;
use rustls::{ClientConfig, RootCertStore};
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::CancellationToken;

use super::{
    queue::{Batch, Queue},
    rules::Destination,
};

/// The longest `Retry-After` that is respected.
const LONGEST_RETRY_AFTER: Duration = Duration::from_secs(300);
/// The pause between attempts while `watch` is ending.
const HURRIED: Duration = Duration::from_millis(250);
/// The longest `Retry-After` that is respected while `watch` is ending: nothing is sent after the end.
const LAST_RETRY_AFTER: Duration = Duration::from_secs(1);

/// The rate and the timeouts of sending.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Pace {
    /// The time for which the first change of a batch waits for more.
    pub gather: Duration,
    /// The shortest time between two messages.
    pub interval: Duration,
    /// The longest time that one request may take.
    pub timeout: Duration,
    /// The pause after the first failure; it doubles with each further failure.
    pub backoff: Duration,
    /// The longest pause.
    pub longest_backoff: Duration,
    /// The time after which a batch that can't be delivered is given up.
    pub give_up: Duration,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            gather: Duration::from_secs(2),
            interval: Duration::from_secs(1),
            timeout: Duration::from_secs(10),
            backoff: Duration::from_secs(1),
            longest_backoff: Duration::from_secs(60),
            give_up: Duration::from_secs(900),
        }
    }
}

pub(super) struct Delivery {
    pub(super) name: String,
    pub(super) to: Destination,
    pub(super) queue: Arc<Queue>,
    pub(super) poster: Poster,
    pub(super) pace: Pace,
    pub(super) closing: CancellationToken,
}

impl Delivery {
    /// Runs until `closing` is cancelled and the queue is empty.
    pub(super) async fn run(self) {
        let mut earliest = Instant::now();
        loop {
            while self.queue.len() == 0 {
                if self.closing.is_cancelled() {
                    return;
                }
                self.unless_closing(self.queue.filled.notified()).await;
            }
            self.unless_closing(self.gather()).await;
            self.unless_closing(sleep_until(earliest)).await;
            if let Some(batch) = self.queue.take(self.to.kind.limits()) {
                earliest = Instant::now() + self.pace.interval;
                self.deliver(&batch).await;
            }
        }
    }

    /// Waits for more changes, unless there are enough for a batch.
    async fn gather(&self) {
        let end = Instant::now() + self.pace.gather;
        let enough = self.to.kind.limits().changes;
        while self.queue.len() < enough {
            tokio::select! {
                () = sleep_until(end) => return,
                () = self.queue.filled.notified() => {}
            }
        }
    }

    async fn deliver(&self, batch: &Batch) {
        let begun = Instant::now();
        let body = self.to.kind.body(batch);
        let mut pause = self.pace.backoff;
        let mut failures = 0_u32;
        loop {
            let (why, after) = match self.attempt(body.clone()).await {
                Outcome::Delivered => {
                    if failures > 0 {
                        tracing::info!(rule = self.name, failures, "notifications are delivered again");
                    }
                    return self.queue.sent(batch.changes.len());
                }
                Outcome::Refused(why) => return self.give_up(batch, &why),
                Outcome::Later { why, after } => (why, after),
            };
            if begun.elapsed() >= self.pace.give_up {
                return self.give_up(batch, &why);
            }
            // A receiver may request a longer pause than ours, but no shorter one: a receiver that is down may send 0.
            let wait = after.map_or(pause, |after| after.min(LONGEST_RETRY_AFTER).max(pause));
            if failures == 0 {
                tracing::warn!(rule = self.name, ?wait, "a notification can't be delivered and is tried again: {why}");
            } else {
                tracing::debug!(rule = self.name, ?wait, failures, "a notification still can't be delivered: {why}");
            }
            failures += 1;
            self.wait(wait, after).await;
            pause = (pause * 2).min(self.pace.longest_backoff);
        }
    }

    /// Waits before the next attempt. The end of `watch` interrupts the wait and shortens the next ones, because
    /// nothing is sent after it.
    async fn wait(&self, wait: Duration, asked: Option<Duration>) {
        if self.closing.is_cancelled() {
            let hurried = asked.map_or(HURRIED, |asked| asked.clamp(HURRIED, LAST_RETRY_AFTER));
            return sleep(wait.min(hurried)).await;
        }
        self.unless_closing(sleep(wait)).await;
    }

    async fn attempt(&self, body: Vec<u8>) -> Outcome {
        match self.url().await {
            Ok(url) => self.poster.post(&url, body).await,
            Err(why) => Outcome::Later { why, after: None },
        }
    }

    /// Reads the current URL: the file may have been rotated. It may also be on a disk that hangs, which must not
    /// block any other task.
    async fn url(&self) -> Result<SecretUrl, String> {
        let (source, allow_http) = (self.to.url.clone(), self.to.allow_http);
        let reading = tokio::task::spawn_blocking(move || source.read(allow_http));
        match tokio::time::timeout(self.pace.timeout, reading).await {
            Ok(Ok(read)) => read.map_err(|error| error.to_string()),
            Ok(Err(error)) => Err(format!("reading its URL failed: {error}")),
            Err(_) => Err(format!("its URL could not be read in {:?}", self.pace.timeout)),
        }
    }

    fn give_up(&self, batch: &Batch, why: &str) {
        tracing::warn!(rule = self.name, changes = batch.changes.len(), "a notification is given up: {why}");
        self.queue.failed(batch);
    }

    async fn unless_closing(&self, wait: impl Future<Output = ()>) {
        self.closing.run_until_cancelled(wait).await;
    }
}

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

/// The source of a URL.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum UrlSource {
    /// A file whose first line is the URL. It is read for every attempt, so that it can be rotated.
    File(PathBuf),
    /// An environment variable.
    Variable(String),
}

/// A URL that can be posted to.
#[derive(Clone)]
pub(super) struct SecretUrl(Uri);

impl UrlSource {
    /// Reads the current URL. `http` is refused beyond loopback unless it is allowed. No error quotes a URL.
    pub(super) fn read(&self, allow_http: bool) -> anyhow::Result<SecretUrl> {
        let text = match self {
            Self::File(path) => fs::read_to_string(path)
                .map_err(|error| anyhow!("{self}: can't read it: {error}: put the webhook's URL there"))?,
            Self::Variable(name) => {
                env::var(name).map_err(|_| anyhow!("{self}: not set: put the webhook's URL there"))?
            }
        };
        let unusable = |why: &str| anyhow!("{self}: {why} (the URL isn't shown, since it is a secret)");
        let uri: Uri = text
            .trim()
            .lines()
            .next()
            .unwrap_or_default()
            .trim_end()
            .parse()
            .map_err(|_| unusable("it holds no URL"))?;
        let Some(authority) = uri.authority() else {
            return Err(unusable("it holds no URL with a host, such as https://hooks.example.com/path"));
        };
        if authority.as_str().contains('@') {
            return Err(unusable("its URL holds a user name or password, which isn't supported"));
        }
        match uri.scheme_str() {
            Some("https") => Ok(SecretUrl(uri)),
            Some("http") if allow_http || is_loopback(authority.host()) => Ok(SecretUrl(uri)),
            Some("http") => Err(unusable(
                "its URL is http, which everyone on the way can read: use https, or allow it with --allow-http or \
                 allowHttp",
            )),
            _ => Err(unusable("its URL is neither https nor http")),
        }
    }
}

impl SecretUrl {
    pub(super) fn is_https(&self) -> bool {
        self.0.scheme_str() == Some("https")
    }

    /// Returns the URL, for the request only.
    pub(super) fn expose(&self) -> Uri {
        self.0.clone()
    }
}

impl fmt::Debug for SecretUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[url]")
    }
}

impl FromStr for UrlSource {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        match text.split_once(':') {
            Some(("file", path)) if !path.is_empty() && !path.contains("://") => Ok(Self::File(PathBuf::from(path))),
            Some(("env", name)) if is_variable(name) => Ok(Self::Variable(name.to_owned())),
            _ => bail!(
                "say where the URL is kept, as file:PATH or env:NAME: a URL itself would show in the list of processes (what \
                 was given isn't repeated here)"
            ),
        }
    }
}

pub(super) fn is_variable(name: &str) -> bool {
    !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

impl fmt::Display for UrlSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => write!(f, "file {}", path.display()),
            Self::Variable(name) => write!(f, "environment variable {name}"),
        }
    }
}
