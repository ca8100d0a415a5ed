//! Standard output, written by a thread of its own. When whoever reads it is slow, the tellers wait, and informers merge
//! what they would have been told; nothing piles up here, and no watch stands still.

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

use super::render;
use crate::changes::Change;

/// Lines that may wait for the reader.
const WAITING: usize = 64;

/// The form of lines.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Form {
    Json,
    Text { coloured: bool },
}

/// Prints changes. Clones print to the same output.
#[derive(Clone)]
pub(super) struct Printer {
    lines: SyncSender<String>,
    form: Form,
}

/// The writing thread, as seen by whoever started it.
pub(super) struct Writing {
    /// Cancelled when nothing can be written any more.
    pub(super) broken: CancellationToken,
    error: Arc<Mutex<Option<io::Error>>>,
    done: oneshot::Receiver<()>,
}

impl Printer {
    /// Starts the thread that writes to `out`.
    pub(super) fn start(out: impl Write + Send + 'static, form: Form) -> io::Result<(Self, Writing)> {
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
            // Nobody may be waiting any more.
            let _ = ended.send(());
        })?;
        Ok((Self { lines, form }, writing))
    }

    /// Prints a change, and waits while the reader is behind. It must be called on a runtime of several threads.
    pub(super) fn print(&self, change: &Change) {
        let text = match self.form {
            Form::Json => {
                let mut line = change.to_json();
                line.push('\n');
                line
            }
            Form::Text { coloured } => render::text(change, coloured),
        };
        match self.lines.try_send(text) {
            // When nothing can be written any more, the program is about to end.
            Ok(()) | Err(TrySendError::Disconnected(_)) => {}
            Err(TrySendError::Full(text)) => {
                let _ = block_in_place(|| self.lines.send(text));
            }
        }
    }
}

impl Writing {
    /// Waits until all is written, for at most `patience`; every printer must have been dropped. A reader that went away
    /// is no error.
    pub(super) async fn finish(self, patience: Duration) -> io::Result<()> {
        // Lines that aren't read in time aren't written.
        let _ = tokio::time::timeout(patience, self.done).await;
        match self.error.lock().take() {
            Some(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error),
            Some(_) | None => Ok(()),
        }
    }
}

/// Writes until every printer is gone; flushes whenever nothing more waits.
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
