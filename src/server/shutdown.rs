//! The way this program ends: SIGTERM or SIGINT asks it to finish what it has begun, within 10 seconds; a second
//! signal, or the end of those, ends it as it stands.

use std::{future::Future, io, time::Duration};

use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tracing::info;

/// From the first signal to the end at the latest: well within the 30 seconds that Kubernetes leaves a Pod.
pub const GRACE: Duration = Duration::from_secs(10);

/// The outcome of a shutdown.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Outcome {
    /// All that was begun is finished.
    Finished,
    /// [`GRACE`] is over and something was still running.
    OutOfTime,
    /// A second signal came before it was finished.
    Cut,
}

/// The request to end this program, and its urgency. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Shutdown {
    stop: CancellationToken,
    now: CancellationToken,
}

impl Shutdown {
    /// One that only [`Shutdown::request`] triggers.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// One that SIGTERM and SIGINT trigger. It needs a running Tokio runtime, and listens as long as that runs.
    ///
    /// # Errors
    /// When the signals can't be listened for.
    pub fn on_signals() -> io::Result<Self> {
        let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
        let shutdown = Self::new();
        let shared = shutdown.clone();
        tokio::spawn(async move {
            loop {
                let name = tokio::select! {
                    Some(()) = terminate.recv() => "SIGTERM",
                    Some(()) = interrupt.recv() => "SIGINT",
                    else => return,
                };
                info!(signal = name, "asked to end");
                shared.request();
            }
        });
        Ok(shutdown)
    }

    /// Asks to end; the second time, at once.
    pub fn request(&self) {
        if self.stop.is_cancelled() {
            self.now.cancel();
        }
        self.stop.cancel();
    }

    /// Cancelled when this program shall begin nothing new.
    #[must_use]
    pub fn stopping(&self) -> CancellationToken {
        self.stop.clone()
    }

    /// Waits until this program shall end, then for `work`, which finishes what was begun, as long as is allowed.
    /// `work` isn't begun before.
    pub async fn finish(&self, work: impl Future<Output = ()>) -> Outcome {
        self.stop.cancelled().await;
        tokio::select! {
            biased;
            () = self.now.cancelled() => Outcome::Cut,
            done = tokio::time::timeout(GRACE, work) => match done {
                Ok(()) => Outcome::Finished,
                Err(_) => Outcome::OutOfTime,
            },
        }
    }
}
