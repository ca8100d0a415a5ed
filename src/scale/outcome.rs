//! Reports of writes and commands: to the log, the metrics, the index, the history, by Events, and to callers. Nothing is
//! decided here.

use std::{
    collections::BTreeSet,
    sync::atomic::Ordering,
    time::{Duration, Instant},
};

use arcstr::ArcStr;
use nodegroup::{
    DeletionLog,
    deletion_log::Entry,
    writing::{CallError, GroupVersion},
};

use super::{
    error::ScaleError,
    events::EventContent,
    metrics::Write,
    order::Caller,
    rule::Named,
    work::{Resized, Work},
};
use crate::traces;

/// The most clients that a line or a note names.
const MOST_CLIENTS: usize = 3;
/// The most tickets that a line or a note names. Entries that are lowered together are mostly of one.
const MOST_TICKETS: usize = 8;

/// A size that was to be written.
#[derive(Clone, Copy)]
pub(super) struct SizeWritten<'a> {
    pub(super) from: i32,
    /// The Machines that go for it, by name; none for a size that grows, or for replicas without a Machine.
    pub(super) machines: &'a [ArcStr],
    /// The number of attempts at it.
    pub(super) attempts: u32,
    /// The time since the first of them.
    pub(super) elapsed: Duration,
}

/// The tickets of entries, each once; `None` where there is no entry. Of many the first are named.
pub(super) fn tickets_of<'a>(entries: impl IntoIterator<Item = &'a Entry>) -> Option<String> {
    let tickets: BTreeSet<_> = entries.into_iter().map(|entry| &entry.ticket).collect();
    let named: Vec<_> = tickets.iter().take(MOST_TICKETS).map(ToString::to_string).collect();
    match (named.is_empty(), tickets.len() - named.len()) {
        (true, _) => None,
        (false, 0) => Some(named.join(", ")),
        (false, more) => Some(format!("{} and {more} more", named.join(", "))),
    }
}

impl Work {
    /// Makes a call that writes, and counts how it ended and how long it took.
    pub(super) async fn write<T>(
        &self,
        write: Write,
        call: impl Future<Output = Result<T, CallError>> + Send,
    ) -> Result<T, CallError> {
        let started = Instant::now();
        let result = call.await;
        self.shared.metrics.count_write(write, result.as_ref().err(), started.elapsed());
        self.has_written.fetch_or(result.is_ok(), Ordering::Relaxed);
        result
    }

    /// A size was written.
    pub(super) fn wrote(&self, version: &GroupVersion, write: SizeWritten<'_>) {
        self.index().set_written(&self.id, version.clone());
        self.index().set_own_size(&self.id, write.from, version);
        let log = version.log.as_ref().and_then(|log| log.read().ok());
        let entries = log.into_iter().flat_map(DeletionLog::entries);
        let tickets = tickets_of(entries.filter(|entry| write.machines.contains(&entry.name)));
        tracing::info!(
            group = %self.id,
            from = write.from,
            to = version.replicas,
            machines = write.machines.join(","),
            ticket = tickets,
            client = self.clients(),
            attempts = write.attempts,
            milliseconds = write.elapsed.as_millis(),
            "size written"
        );
        let resized = Resized { from: write.from, to: version.replicas, attempts: write.attempts };
        traces::set(&[("from", resized.from.into()), ("to", resized.to.into()), ("attempts", resized.attempts.into())]);
        *self.resized.lock() = Some(resized);
        self.report_of(tickets.as_deref(), EventContent::scaled(write.from, version.replicas, write.machines));
    }

    /// A log of deletions is about to be written in the place of the one that was seen. Whichever copy finishes its new entries
    /// names their ticket, and this line alone names it with the client: it comes before the write, of which the answer may be
    /// lost.
    pub(super) fn logs(&self, seen: &GroupVersion, log: &DeletionLog) {
        let before = seen.log().unwrap_or_default();
        let is_new = |entry: &&Entry| before.get(&entry.uid).is_none_or(|old| old.ticket != entry.ticket);
        let new: Vec<_> = log.entries().iter().filter(is_new).collect();
        if new.is_empty() {
            return;
        }
        let machines = new.iter().map(|entry| entry.name.as_str()).collect::<Vec<_>>().join(",");
        let (ticket, client) = (tickets_of(new), self.clients());
        tracing::info!(group = %self.id, machines, ticket, client, "deletions are written to the log");
    }

    /// The group was read, or its log written.
    pub(super) fn has_seen(&self, version: &GroupVersion) {
        self.index().set_written(&self.id, version.clone());
    }

    /// The API server has refused to delete Machines, or gave no answer.
    pub(super) fn couldnt_delete(&self, machines: &[Named]) {
        for named in machines {
            self.index().set_undeletable(&self.machine_key(&named.name), &named.uid);
        }
    }

    /// Tells by an Event on the group what happened to it.
    pub(super) fn tell(&self, content: EventContent) {
        self.report_with_code(content, None);
    }

    /// The same; where no command is done, it names the tickets of the log's entries that it is of.
    pub(super) fn report_of(&self, tickets: Option<&str>, content: EventContent) {
        let is_asked_for = self.is_asked_for.load(Ordering::Relaxed);
        self.tell(if is_asked_for { content } else { content.of_tickets(tickets) });
    }

    /// An infrastructure provider chooses which instances go.
    pub(super) fn report_chosen_by_provider(&self, instances: usize) {
        self.tell(EventContent::chosen_by_provider(instances));
    }

    fn report_with_code(&self, content: EventContent, code: Option<&'static str>) {
        let content = content.asked_by(self.clients().as_deref());
        self.shared.history.told(&self.id, &content, code);
        if let Some(uid) = self.index().uid(&self.id) {
            self.shared.events.record(&self.id, &uid, content);
        }
    }

    /// Forgets the turn before.
    pub(super) fn begin_turn(&self) {
        self.resized.lock().take();
        self.clients.lock().clear();
        self.has_written.store(false, Ordering::Relaxed);
        self.is_asked_for.store(false, Ordering::Relaxed);
    }

    /// Notes whose commands this turn does.
    pub(super) fn note_clients<'a>(&self, callers: impl IntoIterator<Item = &'a Caller>) {
        self.is_asked_for.store(true, Ordering::Relaxed);
        self.clients.lock().extend(callers.into_iter().filter_map(Caller::client).cloned());
    }

    /// The clients whose commands this turn does, by name; `None` where none has authenticated. Of many the first are named.
    fn clients(&self) -> Option<String> {
        let clients = self.clients.lock();
        let first: Vec<_> = clients.iter().take(MOST_CLIENTS).map(ArcStr::as_str).collect();
        let more = clients.len() - first.len();
        match (first.is_empty(), more) {
            (true, _) => None,
            (false, 0) => Some(first.join(", ")),
            (false, _) => Some(format!("{} and {more} more", first.join(", "))),
        }
    }

    /// A command has succeeded: whether it changed nothing, once more.
    fn look_at_effect(&self, command: &'static str) {
        let has_effect = self.has_written.load(Ordering::Relaxed);
        if let Some(repeat) = self.shared.repeats.note(&self.id, command, has_effect) {
            self.shared.metrics.count_repeated(command);
            tracing::warn!(
                group = %self.id, command, times = repeat.times,
                "command succeeds, changes nothing and comes again: Cluster Autoscaler may be skipping its loops for it"
            );
        }
    }

    /// A command has ended like this; its caller is told.
    pub(super) fn answer(&self, caller: Caller, result: Result<(), ScaleError>) {
        let command = caller.command();
        self.shared.metrics.count_command(command, result.as_ref().err());
        self.say(&caller, &result);
        if result.is_ok() {
            self.look_at_effect(command);
        }
        if let Err(error) = &result {
            match EventContent::of_error(command == "increase", error) {
                Some(content) => self.report_with_code(content, Some(error.code())),
                None => self.shared.history.answered(&self.id, command, error, caller.client()),
            }
        }
        caller.answer(result);
    }

    /// One line per command, with what it came to. A batch's commands share its size.
    fn say(&self, caller: &Caller, result: &Result<(), ScaleError>) {
        let (command, nodes, group) = (caller.command(), caller.nodes(), &self.id);
        let client = caller.client().map(ArcStr::as_str);
        let milliseconds = caller.elapsed().as_millis();
        let resized = *self.resized.lock();
        let (from, to) = (resized.map(|it| it.from), resized.map(|it| it.to));
        let attempts = resized.map(|it| it.attempts);
        match result {
            Ok(()) => {
                tracing::info!(%group, command, client, nodes, code = "OK", milliseconds, from, to, attempts, "command done");
            }
            Err(error) => {
                let code = error.grpc_code();
                tracing::warn!(%group, command, client, nodes, code, milliseconds, from, to, attempts, "command refused or failed: {error}");
            }
        }
    }
}
