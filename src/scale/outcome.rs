//! What comes of writes and commands, told in one place: to the log, the metrics, the index, and by Events. Nothing is
//! decided here.

use std::time::Instant;

use arcstr::ArcStr;

use super::{Command, ScaleError, api::CallError, events::Happening, lane::Caller, metrics::Write, retry::Attempts};
use crate::index::GroupVersion;

/// A size that was to be written.
#[derive(Clone, Copy)]
pub(super) struct SizeWritten<'a> {
    pub(super) from: i32,
    /// The Machines that go for it, by name; none for a size that grows, or for replicas without a Machine.
    pub(super) machines: &'a [ArcStr],
    pub(super) attempts: &'a Attempts,
}

impl Command {
    /// Makes a call that writes, and counts how it ended and how long it took.
    pub(super) async fn write<T>(
        &self,
        write: Write,
        call: impl Future<Output = Result<T, CallError>> + Send,
    ) -> Result<T, CallError> {
        let started = Instant::now();
        let result = call.await;
        self.inner.metrics.count_write(write, result.as_ref().err(), started.elapsed());
        result
    }

    /// Attempts whose repetitions are counted.
    pub(super) fn attempts(&self) -> Attempts {
        Attempts::counted(self.inner.metrics.retries())
    }

    /// A size was written.
    pub(super) fn wrote(&self, version: &GroupVersion, write: SizeWritten<'_>) {
        self.index().set_written(&self.id, version.clone());
        tracing::info!(
            group = %self.id,
            from = write.from,
            to = version.replicas,
            machines = write.machines.join(","),
            attempts = write.attempts.made(),
            milliseconds = write.attempts.elapsed().as_millis(),
            "size written"
        );
        self.tell(Happening::scaled(write.from, version.replicas, write.machines));
    }

    /// The log of deletions was written, or not.
    pub(super) fn wrote_log(&self, result: Result<GroupVersion, CallError>) -> Result<GroupVersion, CallError> {
        if let Ok(version) = &result {
            self.index().set_written(&self.id, version.clone());
        }
        result
    }

    /// Tells by an Event on the group what happened to it.
    pub(super) fn tell(&self, happening: Happening) {
        self.tell_with_code(happening, None);
    }

    fn tell_with_code(&self, happening: Happening, code: Option<&'static str>) {
        self.inner.history.told(&self.id, &happening, code);
        if let Some(uid) = self.index().uid(&self.id) {
            self.inner.events.record(&self.id, &uid, happening);
        }
    }

    /// A command has ended like this; its caller is told.
    pub(super) fn answer(&self, caller: Caller, result: Result<(), ScaleError>) {
        let command = caller.command();
        self.inner.metrics.count_command(command, result.as_ref().err());
        if let Err(error) = &result {
            tracing::warn!(group = %self.id, command, code = error.code(), "command refused or failed: {error}");
            match Happening::of_error(command == "increase", error) {
                Some(happening) => self.tell_with_code(happening, Some(error.code())),
                None => self.inner.history.answered(&self.id, command, error),
            }
        }
        caller.answer(result);
    }
}
