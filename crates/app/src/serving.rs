//! The parts of a running program around its provider, whichever it is: listeners and their pages, health, prices and
//! traces, and the order in which they end.

use std::{
    io,
    net::{SocketAddr, TcpListener},
    time::Duration,
};

use service::listen::{GrpcListener, GrpcThread, GrpcThreadError, Outcome, Shutdown, bind};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use anyhow::Context as _;

use crate::Config;

/// The time limit for sending the last spans.
const TRACES_AT_THE_END: Duration = Duration::from_millis(500);

const LOG: &str = "app";

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

// The listeners, which are opened before anything is started, and their addresses.

pub(super) struct Listeners {
    pub(super) grpc: GrpcListener,
    pub(super) http: TcpListener,
    pub(super) probes: Option<TcpListener>,
    pub(super) admin: Option<TcpListener>,
}

pub(super) struct Addresses {
    pub(super) http: SocketAddr,
    pub(super) probes: Option<SocketAddr>,
    pub(super) admin: Option<SocketAddr>,
}

impl Listeners {
    /// Opens the listeners. An error names the flag of the one that can't be opened.
    pub(super) fn open(config: &Config) -> anyhow::Result<Self> {
        let open = |address: Option<SocketAddr>, flag| address.map(|address| bind(address, flag)).transpose();
        Ok(Self {
            grpc: GrpcListener::open(&config.listen, config.socket_mode, Config::LISTEN_FLAG)?,
            http: bind(config.http_listen, Config::HTTP_LISTEN_FLAG)?,
            probes: open(config.probe_listen, Config::PROBE_LISTEN_FLAG)?,
            admin: open(config.admin_listen, Config::ADMIN_LISTEN_FLAG)?,
        })
    }

    pub(super) fn addresses(&self) -> anyhow::Result<Addresses> {
        let address = |listener: &TcpListener| listener.local_addr().context("a listener has no address");
        Ok(Addresses {
            http: address(&self.http)?,
            probes: self.probes.as_ref().map(address).transpose()?,
            admin: self.admin.as_ref().map(address).transpose()?,
        })
    }
}

impl Addresses {
    pub(super) fn log(&self) {
        info!(address = %self.http, "serving HTTP");
        if let Some(address) = self.probes {
            info!(%address, "serving probes");
        }
        if let Some(address) = self.admin {
            info!(%address, "serving the status page and the debug state");
        }
    }
}
