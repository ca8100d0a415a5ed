//! The shutdown of this program: after SIGTERM or SIGINT it finishes what it has begun, within 10 seconds; a second
//! signal or the end of that time ends it immediately.

use std::{future::Future, io, time::Duration};

use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tracing::info;

/// The maximum time from the first signal to the end: well within the 30 seconds that Kubernetes gives a Pod.
pub const GRACE: Duration = Duration::from_secs(10);

/// The outcome of a shutdown.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Outcome {
    /// All that was begun has been finished.
    Finished,
    /// [`GRACE`] has passed while something was still running.
    OutOfTime,
    /// A second signal came before all was finished.
    Cut,
}

/// The request to end this program, and its urgency. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Shutdown {
    stop: CancellationToken,
    now: CancellationToken,
}

impl Shutdown {
    /// Returns a shutdown that only [`Shutdown::request`] triggers.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns a shutdown that SIGTERM and SIGINT trigger. It needs a running Tokio runtime, and listens for as long as
    /// that runs.
    ///
    /// # Errors
    /// If the signals can't be listened for.
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

    /// Requests the shutdown; a second request ends the program immediately.
    pub fn request(&self) {
        if self.stop.is_cancelled() {
            self.now.cancel();
        }
        self.stop.cancel();
    }

    /// Returns a token that is cancelled when this program must begin nothing new.
    pub fn stopping(&self) -> CancellationToken {
        self.stop.clone()
    }

    /// Waits for the request, and then runs `work`, which finishes what was begun, within the time limit. `work`
    /// doesn't start before the request.
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

#[cfg(test)]
mod tests {
    use std::{
        future::{pending, ready},
        sync::atomic::{AtomicBool, Ordering},
    };

    use tokio::{task::yield_now, time::Instant};

    use super::*;

    #[tokio::test]
    async fn work_is_not_begun_before_the_end_is_asked_for() {
        let (shutdown, begun) = (Shutdown::new(), AtomicBool::new(false));
        let finishing = shutdown.finish(async { begun.store(true, Ordering::SeqCst) });
        let (outcome, ()) = tokio::join!(finishing, async {
            yield_now().await;
            assert!(!begun.load(Ordering::SeqCst));
            shutdown.request();
        });
        assert_eq!(outcome, Outcome::Finished);
        assert!(begun.load(Ordering::SeqCst) && shutdown.stopping().is_cancelled());
    }

    #[tokio::test(start_paused = true)]
    async fn work_has_ten_seconds() {
        let (shutdown, start) = (Shutdown::new(), Instant::now());
        shutdown.request();
        assert_eq!(shutdown.finish(pending()).await, Outcome::OutOfTime);
        assert_eq!(start.elapsed().as_secs(), GRACE.as_secs());
        assert_eq!(shutdown.finish(ready(())).await, Outcome::Finished);
    }

    #[tokio::test(start_paused = true)]
    async fn a_second_request_ends_it_at_once() {
        let (shutdown, start) = (Shutdown::new(), Instant::now());
        shutdown.request();
        let (outcome, ()) = tokio::join!(shutdown.finish(pending()), async {
            yield_now().await;
            shutdown.request();
        });
        assert_eq!(outcome, Outcome::Cut);
        assert_eq!(start.elapsed().as_secs(), 0);
    }
}
