//! `serve`: builds the program's configuration from the flags, and runs the program until a signal ends it. It must
//! wire no modules together: [`App`] does.

mod args;
mod config;
mod fleet;
mod socket;
mod tls;

use std::{io, num::NonZero, thread};

use anyhow::Context as _;
use tokio::runtime::{Builder, Runtime};

pub(super) use self::config::OneCluster;
pub use self::{
    args::ServeArgs,
    fleet::FleetArgs,
    tls::{Reflection, TlsArgs},
};
use app::{App, Config};
use service::listen::Shutdown;

/// Serves until the program is asked to end.
pub(super) fn run(config: Config) -> anyhow::Result<()> {
    let runtime = runtime(&config).context("can't start the runtime")?;
    let result = runtime.block_on(async {
        let shutdown = Shutdown::on_signals().context("can't listen for signals")?;
        App::start(config, shutdown).await?.finish().await?;
        Ok(())
    });
    // Tasks that are still running had their time.
    runtime.shutdown_background();
    result
}

/// Returns the runtime of all but the answers to calls, which have a thread of their own. A fleet's leaves a processor to
/// it: what one Cluster's API server sends must not keep all busy.
fn runtime(config: &Config) -> io::Result<Runtime> {
    if config.fleet.is_none() {
        return Runtime::new();
    }
    let processors = thread::available_parallelism().map_or(1, NonZero::get);
    Builder::new_multi_thread().worker_threads((processors - 1).max(1)).enable_all().build()
}
