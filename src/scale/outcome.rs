//! What comes of writes and commands, told in one place: to the log, the metrics and the index. Nothing is decided here.

use arcstr::ArcStr;

use super::{Command, ScaleError, api::CallError, retry::Attempts};
use crate::index::GroupVersion;

/// A size that was to be written.
pub(super) struct SizeWritten<'a> {
    pub(super) from: i32,
    /// The Machines that go for it, by name; none for a size that grows, or for replicas without a Machine.
    pub(super) machines: &'a [ArcStr],
    pub(super) attempts: &'a Attempts,
}

impl Command {
    /// A size was written, or not.
    pub(super) fn wrote(
        &self,
        result: Result<GroupVersion, CallError>,
        write: SizeWritten<'_>,
    ) -> Result<GroupVersion, CallError> {
        self.inner.metrics.count_write("size", if result.is_ok() { "ok" } else { "error" });
        let version = result?;
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
        Ok(version)
    }

    /// The log of deletions was written, or not.
    pub(super) fn wrote_log(&self, result: Result<GroupVersion, CallError>) -> Result<GroupVersion, CallError> {
        self.inner.metrics.count_write("log", if result.is_ok() { "ok" } else { "error" });
        if let Ok(version) = &result {
            self.index().set_written(&self.id, version.clone());
        }
        result
    }

    /// A command has ended like this; its caller is told.
    pub(super) fn answer(&self, caller: super::lane::Caller, result: Result<(), ScaleError>) {
        let command = caller.command();
        self.inner.metrics.count_command(command, result.as_ref().err());
        if let Err(error) = &result {
            tracing::warn!(group = %self.id, command, code = error.code(), "command refused or failed: {error}");
        }
        caller.answer(result);
    }
}
