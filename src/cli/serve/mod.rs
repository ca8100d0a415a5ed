//! `serve`: builds the program's configuration from the flags, and runs the program until a signal ends it. It must
//! wire no modules together: [`App`] does.

mod args;
mod config;
mod flags;
mod fleet;
mod socket;
mod tls;

use anyhow::Context as _;
use tokio::runtime::Builder;

pub(super) use self::config::OneCluster;
pub use self::{
    args::ServeArgs,
    config::ServeConfig,
    fleet::FleetArgs,
    tls::{Reflection, TlsArgs},
};
#[cfg(test)]
use super::usage::Flag;
use app::{App, FleetApp};
use server::Shutdown;

/// The difference by which the threads that follow clusters, write and serve pages are nicer than those that answer
/// Cluster Autoscaler, which get a processor first where there are too few.
const NICER: i32 = 5;

/// Serves until the program is asked to end.
pub(super) fn run(config: ServeConfig) -> anyhow::Result<()> {
    let nice = rustix::process::getpriority_process(None).unwrap_or_default() + NICER;
    let runtime = Builder::new_multi_thread().enable_all().on_thread_start(move || give_way(nice)).build();
    let runtime = runtime.context("can't start the runtime")?;
    let result = runtime.block_on(async {
        let shutdown = Shutdown::on_signals().context("can't listen for signals")?;
        match config {
            ServeConfig::One(config) => App::start(*config, shutdown).await?.finish().await?,
            ServeConfig::Fleet(config) => FleetApp::start(*config, shutdown).await?.finish().await?,
        }
        Ok(())
    });
    // Tasks that are still running had their time.
    runtime.shutdown_background();
    result
}

/// Lets other threads go before this one, by its nice value. On Linux alone each thread has one of its own.
fn give_way(nice: i32) {
    if cfg!(target_os = "linux") {
        // Everybody may raise it. Where a sandbox denies that, all threads are equal.
        let _ = rustix::process::setpriority_process(None, nice);
    }
}

/// Returns the flags of `serve` alone whose values are parsed here: a test compares their names with clap's.
#[cfg(test)]
pub(super) fn flags() -> impl Iterator<Item = Flag> {
    flags::FLAGS.into_iter().chain(socket::FLAGS).chain(tls::FLAGS).chain(fleet::FLAGS)
}
