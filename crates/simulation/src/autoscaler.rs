//! A Cluster Autoscaler of some version, which is restarted now and then. It calls one copy of the program until that
//! fails, and then another.

use std::{
    future::Future,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use connect::Policy;
use fastrand::Rng;
use http::{Request, Response};
use sandbox::autoscaler::{Backoff, Caller, Driver, Settings, Version, Workload};
use tokio::time::{sleep, timeout};
use tower::{BoxError, Service};

use crate::{
    entropy::{self, Nanos},
    network::{Body, Port},
    plan::Chance,
};

/// Versions that differ in their calls, fields or decisions.
const VERSIONS: [Version; 6] = [
    Version::new(33, 6),
    Version::new(34, 1),
    Version::new(34, 5),
    Version::new(35, 2),
    Version::new(36, 1),
    Version::new(37, 0),
];

/// The time from which no fault strikes, and the time of the end.
#[derive(Clone, Copy)]
pub(crate) struct Times {
    pub(crate) calm: Nanos,
    pub(crate) end: Nanos,
}

/// Runs until the end. Each restart loses the driver's state, calls and deletes.
pub(crate) async fn run(port: Port, copies: usize, seed: u64, times: Times) {
    let chance = Chance::new(seed);
    let mut draw = chance.of("autoscaler", 0, 0);
    let settings = settings(&mut draw);
    let mut version = draw.choice(VERSIONS).unwrap_or(VERSIONS[0]);
    port.note(format!("Cluster Autoscaler: {settings:?}"));
    for life in 0.. {
        let mut draw = chance.of("autoscaler's life", 0, life);
        if draw.u32(0..5) == 0 {
            version = draw.choice(VERSIONS).unwrap_or(version);
        }
        port.note(format!("Cluster Autoscaler {version} starts"));
        let now = entropy::now();
        let lasts = if draw.bool() { draw.u64(10..600) } else { draw.u64(600..3600) };
        let mut until = now.saturating_add(Duration::from_secs(lasts).as_nanos().try_into().unwrap_or(Nanos::MAX));
        if until > times.calm {
            until = times.end;
        }
        let caller = Caller::new(Connection::new(port.clone(), copies, draw.usize(0..copies)));
        let notes = port.clone();
        let note = move |line: &str| notes.note(format!("Cluster Autoscaler: {line}"));
        let rng = Rng::with_seed(draw.u64(..));
        let driver =
            Driver::new(caller.clone(), Workload::new(port.workload(Policy::WRITES)), version, settings, rng, note);
        let left = Duration::from_nanos(until.saturating_sub(now));
        // A driver that returns by itself has failed for long.
        let was_ended = timeout(left, driver.run()).await.is_err();
        if was_ended && draw.bool() {
            // A killed process sends no Cleanup.
            let _ = caller.cleanup().await;
        }
        if entropy::now() >= times.end {
            return;
        }
        sleep(Duration::from_millis(draw.u64(500..30_000))).await;
    }
}

/// Returns Cluster Autoscaler's defaults, except for times that are too long for a world.
fn settings(draw: &mut Rng) -> Settings {
    let mut seconds = |from: u64, to: u64| Duration::from_secs(draw.u64(from..=to));
    Settings {
        unneeded: seconds(60, 180),
        unready: seconds(90, 360),
        provision: seconds(180, 300),
        startup: seconds(180, 600),
        delay_after_add: seconds(20, 180),
        delay_after_failure: seconds(20, 180),
        recheck: seconds(20, 90),
        drain: seconds(60, 120),
        backoff: Backoff { initial: seconds(60, 120), max: seconds(180, 300), reset: seconds(1200, 2400) },
        drain_parallelism: 1 + usize::from(seconds(0, 1).is_zero()),
        ..Settings::default()
    }
}

/// A connection to one copy of the program, which moves to the next copy once a call fails.
#[derive(Clone)]
struct Connection {
    port: Port,
    copies: usize,
    to: Arc<AtomicUsize>,
}

impl Connection {
    fn new(port: Port, copies: usize, to: usize) -> Self {
        Self { port, copies, to: Arc::new(AtomicUsize::new(to)) }
    }
}

impl Service<Request<tonic::body::Body>> for Connection {
    type Response = Response<Body>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, BoxError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<tonic::body::Body>) -> Self::Future {
        let connection = self.clone();
        Box::pin(async move {
            let to = connection.to.load(Ordering::Relaxed);
            let answer = connection.port.caller(to).call(request).await;
            if answer.is_err() {
                // Calls that fail together move it only once.
                let next = (to + 1) % connection.copies;
                let _ = connection.to.compare_exchange(to, next, Ordering::Relaxed, Ordering::Relaxed);
            }
            answer
        })
    }
}
