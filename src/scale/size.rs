//! Size writes: decided on the index, written with the size they were decided on as precondition, and decided again
//! on what the API server says when that has changed.

use std::time::{Duration, Instant};

use super::{
    Command, ScaleError,
    api::{CallError, Size},
    events::Happening,
};
use crate::nodegroup::{SizeError, size};

/// How often one size write is tried before the caller is told to come again.
const MOST_ATTEMPTS: u32 = 5;
/// How long a command waits between two attempts when the server doesn't say.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
/// A longer wish of the server isn't waited for: the caller comes again anyway.
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// Why a size write failed.
pub(super) struct NotWritten {
    pub(super) error: ScaleError,
    /// An attempt had no answer: the size may be written all the same.
    pub(super) maybe_done: bool,
}

impl Command {
    pub(super) async fn increase(&self, delta: i32) -> Result<(), ScaleError> {
        let view = self.view()?;
        let bounds = view.bounds;
        let result = self.write(view.size, |current| size::increase(current, delta, bounds)).await;
        result.map_err(|failure| failure.error)
    }

    pub(super) async fn decrease(&self, delta: i32) -> Result<(), ScaleError> {
        let view = self.view()?;
        let with_node = view.machines_with_node;
        let decide = |current| size::decrease(current, delta, with_node);
        let target = decide(view.size).map_err(|error| self.refused(&error))?;
        if self.is_left_while_rolling_out(&view) {
            return Ok(());
        }
        // Machines that have no Node are marked, so that none that has one goes in their stead.
        let marked = if target < view.size { self.mark_without_node(with_node, target).await? } else { Vec::new() };
        match self.write(view.size, decide).await {
            Ok(()) => Ok(()),
            Err(failure) => Err(self.give_up(&marked, failure).await),
        }
    }

    /// Writes what `decide` makes of the current size. The first decision is made on `known`, without a read.
    pub(super) async fn write(
        &self,
        known: i32,
        decide: impl Fn(i32) -> Result<i32, SizeError> + Send,
    ) -> Result<(), NotWritten> {
        let mut maybe_done = false;
        let result = self.try_to_write(known, decide, &mut maybe_done).await;
        result.map_err(|error| NotWritten { error, maybe_done })
    }

    /// `maybe_done`: whether an earlier attempt may have been done although its answer was lost.
    async fn try_to_write(
        &self,
        known: i32,
        decide: impl Fn(i32) -> Result<i32, SizeError> + Send,
        maybe_done: &mut bool,
    ) -> Result<(), ScaleError> {
        let started = Instant::now();
        let mut from = known;
        let mut to = decide(from).map_err(|error| self.refused(&error))?;
        for attempt in 1..=MOST_ATTEMPTS {
            if to == from {
                tracing::info!(group = %self.id, size = from, "size is left as it is");
                return Ok(());
            }
            if !*maybe_done && self.caller.is_gone() {
                return Err(self.abandoned());
            }
            let error = match self.api().write_size(&self.id, from, to).await {
                Ok(size) => {
                    self.written(from, &size, attempt, started);
                    return Ok(());
                }
                Err(error) => error,
            };
            self.inner.metrics.count_write("size", "error");
            *maybe_done |= matches!(error, CallError::Unknown(_));
            self.pause_or_fail(&error, attempt).await?;
            let size = match self.api().read_size(&self.id).await {
                Ok(size) => size,
                Err(error) if attempt == MOST_ATTEMPTS => return Err(self.failed(&error)),
                Err(_) => continue,
            };
            if *maybe_done && size.replicas == to {
                self.written(from, &size, attempt, started);
                return Ok(());
            }
            if size.replicas == from {
                // The size was as expected, and yet the write was rejected: by validation or a webhook.
                if let CallError::Rejected(message) = &error
                    && attempt > 1
                {
                    // An attempt whose answer was lost was rejected like this one.
                    *maybe_done = false;
                    return Err(ScaleError::FailedPrecondition(format!(
                        "{}: the API server refuses the size {to}: {message}",
                        self.id
                    )));
                }
                continue;
            }
            if *maybe_done {
                return Err(ScaleError::Unavailable(format!(
                    "{}: the size write {from} to {to} had no answer, and the size is {} now: it isn't known whether it \
                     was done; read the size before asking again",
                    self.id, size.replicas
                )));
            }
            from = size.replicas;
            to = decide(from).map_err(|error| self.refused(&error))?;
        }
        Err(ScaleError::Aborted(format!(
            "{}: the size kept changing under {MOST_ATTEMPTS} attempts to write it; try again",
            self.id
        )))
    }

    fn written(&self, from: i32, size: &Size, attempts: u32, started: Instant) {
        self.index().set_written(&self.id, size.replicas, &size.resource_version);
        self.inner.metrics.count_write("size", "ok");
        self.tell(Happening::scaled(from, size.replicas, &[]));
        tracing::info!(
            group = %self.id,
            from,
            to = size.replicas,
            attempts,
            milliseconds = started.elapsed().as_millis(),
            "size written"
        );
    }

    /// Waits before the next attempt where one makes sense.
    async fn pause_or_fail(&self, error: &CallError, attempt: u32) -> Result<(), ScaleError> {
        let pause = match error {
            CallError::Rejected(_) => return Ok(()),
            CallError::Busy(_, after) => after.unwrap_or(FIRST_PAUSE * attempt),
            CallError::Conflict(_) | CallError::Unknown(_) => FIRST_PAUSE * attempt,
            CallError::Missing(_) | CallError::Forbidden(_) | CallError::Refused(_) | CallError::NotDiscovered => {
                return Err(self.failed(error));
            }
        };
        if attempt == MOST_ATTEMPTS || pause > LONGEST_PAUSE {
            return Err(self.failed(error));
        }
        tokio::time::sleep(pause).await;
        Ok(())
    }

    /// A rule's refusal as an error of this command.
    pub(super) fn refused(&self, error: &SizeError) -> ScaleError {
        let message = format!("{}: {error}", self.id);
        match error {
            SizeError::Delta { .. } => ScaleError::InvalidArgument(message),
            SizeError::AboveMax { .. } | SizeError::BelowMin { .. } => ScaleError::FailedPrecondition(message),
        }
    }

    /// A failed call as an error of this command.
    pub(super) fn failed(&self, error: &CallError) -> ScaleError {
        let id = &self.id;
        match error {
            CallError::Rejected(message) | CallError::Conflict(message) => {
                ScaleError::Aborted(format!("{id}: the object changed meanwhile: {message}; try again"))
            }
            CallError::Busy(message, _) => {
                ScaleError::Unavailable(format!("{id}: the API server is busy: {message}; try again"))
            }
            CallError::Unknown(message) => ScaleError::Unavailable(format!(
                "{id}: the API server gave no usable answer: {message}; read the size before asking again"
            )),
            CallError::Missing(message) => ScaleError::NotFound(format!("{id}: the object is gone: {message}")),
            CallError::Forbidden(message) => ScaleError::PermissionDenied(format!(
                "{id}: {message}; grant this program's user patch on Machines, and get and patch on /scale of the group's kind"
            )),
            CallError::Refused(message) => {
                ScaleError::FailedPrecondition(format!("{id}: the API server refuses it: {message}"))
            }
            CallError::NotDiscovered => ScaleError::Unavailable(format!(
                "{id}: discovery hasn't found yet how the API server serves this kind; try again"
            )),
        }
    }
}
