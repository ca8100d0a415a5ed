//! `watch`: prints the changes that a [`change_stream`] reports, object by object. The stream sends the notifications
//! itself.

mod config;
mod printer;
mod render;

#[cfg(test)]
mod tests;

use std::{
    io::{self, Write},
    sync::Arc,
    time::Duration,
};

use anyhow::Context as _;
use change_stream::watch as stream;

pub(super) use self::config::WatchConfig;
pub use self::config::{Output, Target, WatchArgs};
use self::printer::{Printer, Writing};
use service::listen::Shutdown;

/// The time limit for a slow reader to read the last lines at shutdown.
const LAST_LINES: Duration = Duration::from_secs(1);

/// Watches until the program is asked to end, or until nobody reads its output.
pub(super) fn run(config: WatchConfig) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Runtime::new().context("can't start the runtime")?;
    let result = runtime.block_on(async {
        let shutdown = Shutdown::on_signals().context("can't listen for signals")?;
        let stopping = shutdown.stopping();
        match stopping.run_until_cancelled(Watch::start(config, io::stdout(), stream::Tempo::default())).await {
            Some(started) => started?.finish(&shutdown).await,
            None => Ok(()),
        }
    });
    // A thread may still be blocked on an output that nobody reads.
    runtime.shutdown_background();
    result
}

/// A running watch.
struct Watch {
    stream: stream::Watch,
    writing: Option<Writing>,
}

impl Watch {
    /// Checks the configuration against the cluster, and starts to watch. It needs a running multi-thread Tokio
    /// runtime.
    ///
    /// # Errors
    /// If a cluster can't be reached, a resource isn't served, a permission is missing, or a selector is refused.
    async fn start(
        config: WatchConfig,
        out: impl Write + Send + 'static,
        tempo: stream::Tempo,
    ) -> anyhow::Result<Self> {
        let WatchConfig { stream, output, color, show_initial } = config;
        let mut writing = None;
        let reporting = || {
            if output == Output::None {
                return anyhow::Ok(None);
            }
            let (printer, started) = Printer::start(out, output, color.is_on()).context("can't start the output")?;
            writing = Some(started);
            let report = Arc::new(move |change: &_| printer.print(change));
            Ok(Some(stream::Output { report, initial: show_initial }))
        };
        let stream = stream::Watch::start(stream, reporting, tempo).await?;
        Ok(Self { stream, writing })
    }

    /// Waits for a shutdown request, or until nobody reads the output; then sends queued notifications, and ends all
    /// tasks.
    ///
    /// # Errors
    /// If a write of the output fails for a reason other than a missing reader.
    async fn finish(self, shutdown: &Shutdown) -> anyhow::Result<()> {
        let unread = self.writing.as_ref().map(|writing| writing.broken.clone()).unwrap_or_default();
        let stopping = shutdown.stopping();
        tokio::select! {
            () = unread.cancelled() => shutdown.request(),
            () = stopping.cancelled() => {}
        }
        let mut written = Ok(());
        shutdown.finish(async { written = self.end().await }).await;
        written.context("can't write to standard output")
    }

    async fn end(self) -> io::Result<()> {
        let Self { stream, writing } = self;
        let written = async {
            match writing {
                Some(writing) => writing.finish(LAST_LINES).await,
                None => Ok(()),
            }
        };
        stream.end(written).await
    }
}
