//! Tests of notifications against a receiver on loopback with prepared answers, and of the rules file.

mod delivering;
mod messages;
mod rules;
mod urls;

use std::{
    collections::VecDeque,
    net::SocketAddr,
    path::PathBuf,
    sync::{Arc, Mutex},
    time::Duration,
};

use axum::{Router, body::Bytes, extract::State, http::StatusCode, response::IntoResponse, routing::post};
use jiff::Timestamp;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::{runtime::Handle, sync::watch, task::JoinHandle, time::Instant};

use super::{Destination, Limits, Notifier, Pace, Rule, SinkKind, UrlSource};
use crate::changes::{Change, Filter, Identity, Kind, Snapshot};

/// Longer than any test should take.
const PATIENCE: Duration = Duration::from_secs(20);
/// The part of the URL that must never be visible.
const TOKEN: &str = "T0P-S3CR3T";

fn kind(name: &str) -> Kind {
    let plural = format!("{}s", name.to_lowercase());
    Kind { group: "cluster.x-k8s.io".into(), version: "v1beta2".into(), kind: name.into(), plural }
}

fn identity(kind: &Kind, namespace: &str, name: &str) -> Identity {
    Identity {
        time: Timestamp::UNIX_EPOCH,
        cluster: "management",
        kind: Arc::new(kind.clone()),
        namespace: namespace.into(),
        name: name.into(),
        uid: "u".into(),
        resource_version: "1".into(),
    }
}

/// Returns the part of a Machine that is compared.
fn snapshot(machine: &Value) -> Arc<Snapshot> {
    let machine = serde_json::from_str(&machine.to_string()).unwrap();
    Arc::new(Filter::new(kind("Machine"), &[]).snapshot(machine))
}

/// Returns the change of the phase of a Machine with this name.
fn modified(name: &str) -> Change {
    changed(name, &json!({"status": {"phase": "Pending"}}), &json!({"status": {"phase": "Running"}}))
}

fn changed(name: &str, old: &Value, new: &Value) -> Change {
    Change::modified(identity(&kind("Machine"), "team-a", name), snapshot(old), snapshot(new)).unwrap()
}

/// The reaction of a receiver to a request.
#[derive(Clone)]
enum Answer {
    Status(u16),
    RetryAfter(u16, &'static str),
    /// Redirects to this URL.
    Redirect(String),
    /// Never answers.
    Never,
}

/// A receiver with prepared answers; after them it accepts everything.
struct Receiver {
    address: SocketAddr,
    shared: Arc<Shared>,
    task: JoinHandle<()>,
    /// The directory of the file with the URL.
    folder: TempDir,
}

struct Shared {
    answers: Mutex<VecDeque<Answer>>,
    /// The bodies, with the times of their arrival.
    received: watch::Sender<Vec<(Instant, Value)>>,
}

async fn receive(State(shared): State<Arc<Shared>>, body: Bytes) -> axum::response::Response {
    let body: Value = serde_json::from_slice(&body).unwrap();
    let answer = shared.answers.lock().unwrap().pop_front();
    shared.received.send_modify(|received| received.push((Instant::now(), body)));
    match answer {
        None => StatusCode::OK.into_response(),
        Some(Answer::Status(code)) => StatusCode::from_u16(code).unwrap().into_response(),
        Some(Answer::RetryAfter(code, after)) => {
            (StatusCode::from_u16(code).unwrap(), [("retry-after", after)]).into_response()
        }
        Some(Answer::Redirect(to)) => (StatusCode::TEMPORARY_REDIRECT, [("location", to)]).into_response(),
        Some(Answer::Never) => std::future::pending().await,
    }
}

impl Receiver {
    async fn start(answers: impl IntoIterator<Item = Answer>) -> Self {
        let answers = Mutex::new(answers.into_iter().collect());
        let shared = Arc::new(Shared { answers, received: watch::Sender::new(Vec::new()) });
        let router = Router::new().route("/{*path}", post(receive)).with_state(Arc::clone(&shared));
        let (address, task) = testkit::serve(router).await;
        let receiver = Self { address, shared, task, folder: tempfile::tempdir().unwrap() };
        std::fs::write(receiver.file(), format!("{}\n", receiver.url())).unwrap();
        receiver
    }

    fn url(&self) -> String {
        format!("http://{}/services/{TOKEN}?key={TOKEN}", self.address)
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join("url")
    }

    fn destination(&self, kind: SinkKind) -> Destination {
        Destination { kind, url: UrlSource::File(self.file()), allow_http: false }
    }

    fn notifier(&self, kind: SinkKind, limits: Limits, pace: Pace) -> Notifier {
        let rule = Rule::everything("one", self.destination(kind));
        Notifier::start(vec![rule], limits, pace, &Handle::current()).unwrap()
    }

    /// Waits for this many messages and returns them.
    async fn messages(&self, count: usize) -> Vec<(Instant, Value)> {
        let mut received = self.shared.received.subscribe();
        let enough = received.wait_for(|received| received.len() >= count);
        tokio::time::timeout(PATIENCE, enough).await.expect("messages come").unwrap().clone()
    }

    fn received(&self) -> usize {
        self.shared.received.borrow().len()
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Returns a pace without needless waits.
fn quick() -> Pace {
    Pace {
        gather: Duration::ZERO,
        interval: Duration::ZERO,
        timeout: Duration::from_secs(10),
        backoff: Duration::from_millis(5),
        longest_backoff: Duration::from_millis(40),
        give_up: Duration::from_secs(60),
    }
}

/// Returns the names of the objects in a JSON message.
fn names(message: &Value) -> Vec<String> {
    let changes = message["changes"].as_array().unwrap();
    changes.iter().map(|change| change["name"].as_str().unwrap().to_owned()).collect()
}
