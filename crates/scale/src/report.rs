//! Reports to the log, the metrics, the history, Events and callers, and of written sizes to the index.

use std::{sync::atomic::Ordering, time::Duration};

use arcstr::ArcStr;
use index::ScaleView;
use rules::{
    group_version::{GroupVersion, NotScalable},
    text::shortened,
};

use super::{
    error::{ScaleError, code_name},
    events::EventContent,
    history::LONGEST_TEXT,
    limited_log::Kind,
    queue::Caller,
    turn::Turn,
};

/// The maximum number of clients in a log line or a note.
const MOST_CLIENTS: usize = 3;

/// What is reported of a written size.
#[derive(Clone, Copy)]
pub(super) struct SizeReport<'a> {
    pub(super) from: i32,
    /// The names of the Machines that it removes; none for a larger size, or for replicas without a Machine.
    pub(super) machines: &'a [ArcStr],
    /// The number of attempts.
    pub(super) attempts: u32,
    /// The time since the first attempt.
    pub(super) elapsed: Duration,
}

/// The last size written in a turn, for the log of its commands.
#[derive(Clone, Copy)]
pub(super) struct SizeChange {
    from: i32,
    to: i32,
    attempts: u32,
}

impl Turn {
    /// Reports a smaller target size that changes nothing: its object is no node group now, or is rolling out.
    pub(super) fn report_size_left(&self, scalable: &Result<ScaleView, NotScalable>) {
        match scalable {
            Err(NotScalable::Excluded(why)) => tracing::info!(group = %self.id, "the size is left as it is: {why}"),
            Err(NotScalable::Unknown) => {}
            Ok(ScaleView { version, rollout, .. }) => {
                let cause = rollout.as_ref().map(|rollout| rollout.cause.to_string());
                let cause = cause.unwrap_or_else(|| "rolling out with the strategy OnDelete".to_owned());
                tracing::info!(group = %self.id, size = version.replicas, "target size is left as it is: the group is {cause}");
            }
        }
    }

    /// Reports that no Machine is made for a size that this program has written.
    pub(super) fn report_held_back(&self, size: i32, why: &str) {
        tracing::warn!(group = %self.id, size, "no Machine is made for the size that was written: {why}");
        self.report(EventContent::held_back(size, why));
    }

    /// Reports a Node that is smaller than what was remembered when its size was written.
    pub(super) fn report_smaller(&self, note: &str) {
        tracing::warn!(group = %self.id, "a Node is smaller than was remembered: {note}");
        self.report(EventContent::smaller(note));
    }

    /// Reports a size that a manager puts back again and again.
    pub(super) fn report_put_back(&self, (from, to): (i32, i32), manager: &ArcStr, times: u32) {
        self.shared.metrics.count_put_back(manager);
        tracing::warn!(group = %self.id, from, to, %manager, times, "somebody keeps putting the size back");
        self.report(EventContent::put_back(from, to, manager));
    }

    /// Reports a size that a server without the right to write would have written.
    pub(super) fn report_planned(&self, command: &'static str, (from, to): (i32, i32), machines: &str) {
        tracing::info!(group = %self.id, command, from, to, machines, "read-only: this size would be written");
    }

    /// Reports the answer to a command of a server that may not write.
    pub(super) fn report_read_only(
        &self,
        command: &'static str,
        client: Option<&ArcStr>,
        result: &Result<(), ScaleError>,
    ) {
        if let Err(error) = result {
            if !matches!(error, ScaleError::ReadOnly(_)) {
                let code = code_name(error.grpc_code());
                let kind = Kind { group: self.index().uid(&self.id).map(|_| self.id.clone()), command, code };
                let (text, client) = (error.to_string(), client.map(ArcStr::as_str));
                let text = shortened(&text, LONGEST_TEXT);
                if let Some(more) = self.shared.refusals.allows(kind) {
                    tracing::info!(group = %self.id, command, client, code, more, "read-only: this would be refused: {text}");
                } else {
                    tracing::debug!(group = %self.id, command, client, code, "read-only: this would be refused: {text}");
                }
            }
            self.shared.history.answered(&self.id, command, error, client);
        }
        self.shared.metrics.count_command(command, result.as_ref().err());
    }

    /// Reports a written size.
    pub(super) fn wrote(&self, version: &GroupVersion, write: SizeReport<'_>) {
        self.index().set_known_version(&self.id, version.clone());
        self.index().set_own_size(&self.id, write.from, version);
        tracing::info!(
            group = %self.id,
            from = write.from,
            to = version.replicas,
            machines = (!write.machines.is_empty()).then(|| write.machines.join(",")),
            client = self.clients(),
            attempts = write.attempts,
            milliseconds = u64::try_from(write.elapsed.as_millis()).unwrap_or(u64::MAX),
            "size written"
        );
        let change = SizeChange { from: write.from, to: version.replicas, attempts: write.attempts };
        crate::traces::set(&[
            ("from", change.from.into()),
            ("to", change.to.into()),
            ("attempts", change.attempts.into()),
        ]);
        *self.size_change.lock() = Some(change);
        self.report(EventContent::scaled(write.from, version.replicas, write.machines));
    }

    /// Reports an event of the group.
    pub(super) fn report(&self, content: EventContent) {
        self.report_with_code(content, None);
    }

    fn report_with_code(&self, content: EventContent, code: Option<&'static str>) {
        let content = content.requested_by(self.clients().as_deref());
        self.shared.history.reported(&self.id, &content, code);
        if let Some(uid) = self.index().uid(&self.id) {
            self.shared.events.record(&self.id, &uid, content);
        }
    }

    /// Returns the names of the clients whose commands this turn carries out, at most `MOST_CLIENTS`; `None` if it
    /// carries out none.
    pub(super) fn clients(&self) -> Option<String> {
        let clients = self.clients.lock();
        let first: Vec<_> = clients.iter().take(MOST_CLIENTS).map(ArcStr::as_str).collect();
        let more = clients.len() - first.len();
        match (first.is_empty(), more) {
            (true, _) => None,
            (false, 0) => Some(first.join(", ")),
            (false, _) => Some(format!("{} and {more} more", first.join(", "))),
        }
    }

    /// Reports a successful command without effect, if the previous ones had none either.
    fn report_repetition(&self, command: &'static str) {
        let has_effect = self.has_written.load(Ordering::Relaxed);
        if let Some(repeat) = self.shared.repeats.note(&self.id, command, has_effect) {
            self.shared.metrics.count_repeated(command);
            tracing::warn!(
                group = %self.id, command, times = repeat.times,
                "command succeeds, changes nothing and is repeated: Cluster Autoscaler may be skipping its loops for it"
            );
        }
    }

    /// Reports the result of a command, and answers its caller.
    pub(super) fn answer(&self, caller: Caller, result: Result<(), ScaleError>) {
        let command = caller.command;
        self.shared.metrics.count_command(command, result.as_ref().err());
        self.log_result(&caller, &result);
        if result.is_ok() {
            self.report_repetition(command);
        }
        if let Err(error) = &result {
            match EventContent::of_error(command == "increase", error) {
                Some(content) => self.report_with_code(content, Some(error.code())),
                None => self.shared.history.answered(&self.id, command, error, caller.client.as_ref()),
            }
        }
        caller.answer(result);
    }

    /// Logs one line per command with its result. The commands of a batch share its size.
    fn log_result(&self, caller: &Caller, result: &Result<(), ScaleError>) {
        let (command, nodes, group) = (caller.command, caller.nodes, &self.id);
        let client = caller.client.as_deref();
        let milliseconds = u64::try_from(caller.begun.elapsed().as_millis()).unwrap_or(u64::MAX);
        let change = *self.size_change.lock();
        let (from, to) = (change.map(|it| it.from), change.map(|it| it.to));
        let attempts = change.map(|it| it.attempts);
        match result {
            Ok(()) => {
                tracing::info!(%group, command, client, nodes, code = "OK", milliseconds, from, to, attempts, "command done");
            }
            Err(error) => {
                let code = code_name(error.grpc_code());
                let is_known = self.index().uid(group).is_some();
                let kind = Kind { group: is_known.then(|| group.clone()), command, code };
                let text = error.to_string();
                let text = shortened(&text, LONGEST_TEXT);
                // A command that has changed the size, or may have, is logged, whatever became of it.
                let may_be_done = change.is_some() || self.may_have_written.load(Ordering::Relaxed);
                let allowed = if may_be_done { Some(0) } else { self.shared.refusals.allows(kind) };
                if let Some(more) = allowed {
                    tracing::warn!(%group, command, client, nodes, code, milliseconds, from, to, attempts, more, "command refused or failed: {text}");
                } else {
                    tracing::debug!(%group, command, client, nodes, code, milliseconds, "command refused or failed: {text}");
                }
            }
        }
    }
}
