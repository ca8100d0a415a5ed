//! The parts of a running program around its provider, whichever it is: listeners and their pages, health, prices and
//! traces, and the order in which they end.

use std::{io, time::Duration};

use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::listeners::Addresses;
use service::listen::{GrpcThread, GrpcThreadError, Outcome, Shutdown};

/// The time limit for sending the last spans.
const TRACES_AT_THE_END: Duration = Duration::from_millis(500);

/// The log target of the lines about the start and the end.
const LOG: &str = "app";

/// The parts of a running program around its provider.
pub(super) struct Serving {
    pub(super) shutdown: Shutdown,
    pub(super) grpc: GrpcThread,
    pub(super) addresses: Addresses,
    pub(super) health: JoinHandle<()>,
    pub(super) prices: Option<JoinHandle<()>>,
    pub(super) traces: Option<scale::traces::Sender>,
    pub(super) pages: Vec<JoinHandle<io::Result<()>>>,
    pub(super) pages_ended: CancellationToken,
}

impl Serving {
    /// Waits for a shutdown request; then lets running calls and, by `drain`, commands finish, and ends all tasks, at
    /// last those of the clusters by `end`. The error of `drain` is the number of commands that were still running.
    ///
    /// # Errors
    /// If gRPC ended by itself.
    pub(super) async fn finish(
        mut self,
        drain: impl Future<Output = Result<(), usize>>,
        end: impl Future<Output = ()>,
    ) -> Result<(), GrpcThreadError> {
        let mut served = Ok(());
        let shutdown = self.shutdown.clone();
        let outcome = shutdown
            .finish(async {
                // A call ends when its command ends. `drain` also waits for commands whose caller is gone.
                let (grpc, drained) = tokio::join!(self.grpc.ended(), drain);
                served = grpc;
                if let Err(running) = drained {
                    warn!(target: LOG, running, "commands were still running at the end and have been cut off");
                }
                // If the task panicked, there is nothing left to end.
                let _ = self.health.await;
                if let Some(prices) = self.prices {
                    let _ = prices.await;
                }
                if let Some(traces) = self.traces {
                    traces.finish(TRACES_AT_THE_END).await;
                }
                self.pages_ended.cancel();
                for pages in self.pages {
                    let _ = pages.await;
                }
                end.await;
            })
            .await;
        match outcome {
            Outcome::Finished => info!(target: LOG, "ended"),
            Outcome::OutOfTime => warn!(target: LOG, "ended with work unfinished: it took too long"),
            Outcome::Cut => warn!(target: LOG, "ended at once, with work unfinished"),
        }
        served
    }
}
