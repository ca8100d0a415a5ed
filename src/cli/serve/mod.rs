//! `serve`: builds the program's configuration from the flags, and runs the program until a signal ends it. It must
//! wire no modules together: [`App`] does.

mod args;
mod config;
mod flags;
mod fleet;
mod socket;
mod tls;

use anyhow::Context as _;

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

/// Serves until the program is asked to end.
pub(super) fn run(config: ServeConfig) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Runtime::new().context("can't start the runtime")?;
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

/// Returns the flags of `serve` alone whose values are parsed here: a test compares their names with clap's.
#[cfg(test)]
pub(super) fn flags() -> impl Iterator<Item = Flag> {
    flags::FLAGS.into_iter().chain(socket::FLAGS).chain(tls::FLAGS).chain(fleet::FLAGS)
}
