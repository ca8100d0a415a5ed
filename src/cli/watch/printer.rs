//! Standard output, written by its own thread. If its reader is slow, the handlers block, and the informers merge
//! further changes: nothing accumulates here, and no watch is delayed.

use std::{
    io::{self, Write},
    sync::{
        Arc,
        mpsc::{Receiver, SyncSender, TrySendError, sync_channel},
    },
    thread,
    time::Duration,
};

use parking_lot::Mutex;
use tokio::{sync::oneshot, task::block_in_place};
use tokio_util::sync::CancellationToken;

use super::{Output, render};
use change_stream::changes::Change;

/// The maximum number of lines that wait for the reader.
const WAITING: usize = 64;

/// Prints changes. Clones print to the same output.
#[derive(Clone)]
pub(super) struct Printer {
    lines: SyncSender<String>,
    output: Output,
    coloured: bool,
}

/// The writing thread, for the code that started it.
pub(super) struct Writing {
    /// Cancelled when the output is broken.
    pub(super) broken: CancellationToken,
    error: Arc<Mutex<Option<io::Error>>>,
    done: oneshot::Receiver<()>,
}

impl Printer {
    /// Starts the thread that writes to `out`.
    pub(super) fn start(
        out: impl Write + Send + 'static,
        output: Output,
        coloured: bool,
    ) -> io::Result<(Self, Writing)> {
        let (lines, queued) = sync_channel(WAITING);
        let (ended, done) = oneshot::channel();
        let broken = CancellationToken::new();
        let error = Arc::new(Mutex::new(None));
        let writing = Writing { broken: broken.clone(), error: Arc::clone(&error), done };
        thread::Builder::new().name("output".into()).spawn(move || {
            if let Err(why) = write(out, &queued) {
                *error.lock() = Some(why);
                broken.cancel();
            }
            // There may be no receiver any more.
            let _ = ended.send(());
        })?;
        Ok((Self { lines, output, coloured }, writing))
    }

    /// Prints a change, and blocks while the reader is behind. It must be called on a multi-thread runtime.
    pub(super) fn print(&self, change: &Change) {
        let text = match self.output {
            Output::Json => change.to_json() + "\n",
            Output::Text => render::text(change, self.coloured),
            Output::Line => render::line(change, self.coloured),
            Output::None => return,
        };
        match self.lines.try_send(text) {
            // If the output is broken, the program is about to end.
            Ok(()) | Err(TrySendError::Disconnected(_)) => {}
            Err(TrySendError::Full(text)) => {
                let _ = block_in_place(|| self.lines.send(text));
            }
        }
    }
}

impl Writing {
    /// Waits until everything is written, for at most `patience`; all printers must have been dropped. It is no error
    /// if the reader is gone.
    pub(super) async fn finish(self, patience: Duration) -> io::Result<()> {
        // Lines that aren't read in time are lost.
        let _ = tokio::time::timeout(patience, self.done).await;
        match self.error.lock().take() {
            Some(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error),
            Some(_) | None => Ok(()),
        }
    }
}

/// Writes until all printers are dropped; flushes whenever the queue is empty.
fn write(mut out: impl Write, queued: &Receiver<String>) -> io::Result<()> {
    while let Ok(line) = queued.recv() {
        out.write_all(line.as_bytes())?;
        while let Ok(line) = queued.try_recv() {
            out.write_all(line.as_bytes())?;
        }
        out.flush()?;
    }
    Ok(())
}
