//! Reports writes and commands to the log, the metrics, the index, the history, Events and callers. It must decide
//! nothing.

use std::{
    collections::BTreeSet,
    sync::atomic::Ordering,
    time::{Duration, Instant},
};

use arcstr::ArcStr;
use jiff::Timestamp;
use nodegroup::{
    DeletionLog, LogError, MachineView, Shortage,
    deletion_log::Entry,
    instance,
    writing::{CallError, GroupVersion, NotScalable},
};

use super::{
    accepted_deletions::DeletionTarget,
    answer,
    command::Caller,
    error::ScaleError,
    events::EventContent,
    history::LONGEST_TEXT,
    metrics::Write,
    refusals::Kind,
    rule::{Effect, Named, NotLowered},
    shared::Shared,
    work::{Resized, Work},
};
use index::ScaleView;
use text::shortened;

/// The maximum number of clients in a log line or a note.
const MOST_CLIENTS: usize = 3;
/// The maximum number of tickets in a log line or a note. Entries that are lowered together mostly share one.
const MOST_TICKETS: usize = 8;

/// A written size.
#[derive(Clone, Copy)]
pub(super) struct SizeWritten<'a> {
    pub(super) from: i32,
    /// The names of the Machines that it removes; none for a larger size, or for replicas without a Machine.
    pub(super) machines: &'a [ArcStr],
    /// The number of attempts.
    pub(super) attempts: u32,
    /// The time since the first attempt.
    pub(super) elapsed: Duration,
}

/// Returns the tickets of entries, each once and at most `MOST_TICKETS`; `None` if there is no entry.
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
    /// Makes a call that writes, if the Cluster may still be written, and counts its result and duration.
    pub(super) async fn write<T>(
        &self,
        write: Write,
        call: impl Future<Output = Result<T, CallError>> + Send,
    ) -> Result<T, CallError> {
        let checked = async {
            self.api().tenancy().check()?;
            if self.api().tenancy().is_one_of_many() && self.is_abandoned() {
                return Err(CallError::Abandoned);
            }
            call.await
        };
        self.take_back(write, checked).await
    }

    /// Returns true if nobody waits for the commands of this turn any more, and nothing was written for them. The turn
    /// of a write may be long in coming for one of many Clusters.
    fn is_abandoned(&self) -> bool {
        let callers = self.callers.lock();
        let are_gone = !callers.is_empty() && callers.iter().all(|caller| caller.strong_count() == 0);
        are_gone && !self.has_written.load(Ordering::Relaxed) && !self.may_have_written.load(Ordering::Relaxed)
    }

    /// Does the same for a call that only takes back what was written: a Cluster that isn't served any more needs it.
    pub(super) async fn take_back<T>(
        &self,
        write: Write,
        call: impl Future<Output = Result<T, CallError>> + Send,
    ) -> Result<T, CallError> {
        let _turn = self.api().tenancy().turn().await;
        let started = Instant::now();
        let result = call.await;
        self.shared.metrics.count_write(write, result.as_ref().err(), started.elapsed());
        self.has_written.fetch_or(result.is_ok(), Ordering::Relaxed);
        self.may_have_written.fetch_or(matches!(result, Err(CallError::Unknown(..))), Ordering::Relaxed);
        result
    }

    /// Reports an effect of a command, and returns one that concerns its callers.
    pub(super) fn report_effect(&self, effect: Effect) -> Option<Effect> {
        let id = &self.id;
        match effect {
            Effect::Begin(_) | Effect::SizeWritten { .. } | Effect::Answer(..) | Effect::Deferred(_) => {
                return Some(effect);
            }
            Effect::Undeletable(machines) => self.record_failed_deletes(&machines),
            Effect::SizeLeft(size) => tracing::info!(group = %id, size, "size is left as it is"),
            Effect::SizeSpared(why) => {
                tracing::info!(group = %id, "the size is left as it is: {}", answer::not_done(id, &why));
            }
            Effect::MachineSpared(machine, error) => {
                let failed = self.failed(&error);
                tracing::warn!(group = %id, %machine, "the size is left as it is for a Machine: {failed}");
            }
            Effect::DeletedByName(entry) => {
                tracing::info!(group = %id, machine = %entry.name, ticket = %entry.ticket, "Machine deleted by name: the smaller size has taken another one");
                self.report_of(tickets_of([&entry]).as_deref(), EventContent::deleted_by_name(&entry.name));
            }
            Effect::Replaced(machine, note) => {
                let shortage = Shortage::of(&note.machine, None, false, Timestamp::now());
                let view = MachineView { machine: &note.machine, node: None, shortage, undeletable: false };
                let why = instance::of_machine(view).error;
                let why = why.map_or_else(|| "it was given up".to_owned(), |error| error.message);
                let client = self.clients();
                tracing::info!(group = %id, machine = %machine.name, client, "Machine is replaced at the minimum size: {why}");
                self.report(EventContent::replaced(&machine.name, &why));
            }
            Effect::Over(entries) => {
                let machines: Vec<_> = entries.iter().map(|entry| entry.name.as_str()).collect();
                let ticket = tickets_of(&entries);
                tracing::info!(group = %id, machines = machines.join(","), ticket, "deletions completed");
            }
            Effect::MarkStays(machine, error) => {
                let failed = self.failed(&error);
                tracing::warn!(group = %id, %machine, "can't take the delete-machine annotation back; this is tried again: {failed}");
            }
            Effect::Filled(machine) => {
                tracing::info!(
                    group = %id, %machine,
                    "the Machine is being deleted by somebody else and is already replaced: the size isn't \
                     lowered for it"
                );
            }
            Effect::Leaving(machines) => {
                let leaving = machines.iter().map(|named| DeletionTarget::Machine(self.machine_key(&named.name)));
                self.shared.accepted_deletions.accept(id, leaving);
            }
            Effect::ChosenByProvider(instances) => self.report_chosen_by_provider(instances),
        }
        None
    }

    /// Reports a log of deletions that can't be read.
    pub(super) fn report_unreadable_log(&self, error: &LogError) {
        tracing::warn!(group = %self.id, "deletions can't be finished: {error}");
    }

    /// Reports a decided deletion for which the size isn't lowered, or not yet.
    pub(super) fn report_not_lowered(&self, failure: &NotLowered) {
        let (id, error) = (&self.id, answer::not_done(&self.id, failure.why()));
        match failure {
            NotLowered::Spared(_) => {
                tracing::info!(group = %id, "a deletion that was decided is given up: {error}");
            }
            NotLowered::Refused(_) => {
                tracing::warn!(group = %id, code = error.code(), "a deletion that was decided is given up: {error}");
            }
            NotLowered::Pending(_) => {
                tracing::warn!(group = %id, code = error.code(), "a deletion that was decided waits: {error}");
            }
        }
    }

    /// Reports a reconcile of the finisher that failed.
    pub(super) fn report_not_finished(&self, error: &CallError) {
        tracing::warn!(group = %self.id, "can't finish deletions; this is tried again: {}", self.failed(error));
    }

    /// Reports a delete of Nodes that belong to no Machine of a MachinePool.
    pub(super) fn report_instances_without_machines(&self) {
        tracing::warn!(group = %self.id, "the MachinePool has no Machines for these Nodes: its infrastructure provider chooses which instance goes");
    }

    /// Reports a smaller target size that changes nothing: its object is no node group now, or is rolling out.
    pub(super) fn report_size_left(&self, scalable: &Result<ScaleView, NotScalable>) {
        match scalable {
            Err(NotScalable::Excluded(why)) => tracing::info!(group = %self.id, "the size is left as it is: {why}"),
            Err(NotScalable::Unknown) => {}
            Ok(ScaleView { version, rollout, .. }) => {
                let cause = rollout.as_ref().map(|rollout| rollout.cause.to_string());
                let (size, cause) = (version.replicas, cause.unwrap_or_default());
                tracing::info!(group = %self.id, size, "target size is left as it is: the group is {cause}");
            }
        }
    }

    /// Reports that no Machine is made for a size that this program has written.
    pub(super) fn report_held_back(&self, size: i32, why: &str) {
        tracing::warn!(group = %self.id, size, "no Machine is made for the size that was written: {why}");
        self.report(EventContent::held_back(size, why));
    }

    /// Reports that it isn't known who has written the size.
    pub(super) fn report_unknown_writer(&self, error: &CallError) {
        tracing::debug!(group = %self.id, "can't read who has written the size: {error:?}");
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
                let code = error.code();
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
            machines = (!write.machines.is_empty()).then(|| write.machines.join(",")),
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

    /// Logs the new entries of the deletion log that is about to be written. Only this line has the ticket together
    /// with the client, since any copy may finish the deletion and logs the ticket alone. It precedes the write, whose
    /// answer may be lost.
    pub(super) fn log_new_entries(&self, seen: &GroupVersion, log: &DeletionLog) {
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

    /// Stores in the index the version of the group that was read, or that the write of its log returned.
    pub(super) fn store_version(&self, version: &GroupVersion) {
        self.index().set_written(&self.id, version.clone());
    }

    /// Marks Machines in the index whose deletion the API server has refused or left without an answer.
    pub(super) fn record_failed_deletes(&self, machines: &[Named]) {
        for named in machines {
            self.index().record_failed_delete(&self.machine_key(&named.name), &named.uid);
        }
    }

    /// Reports an event of the group.
    pub(super) fn report(&self, content: EventContent) {
        self.report_with_code(content, None);
    }

    /// Reports an event of the group. Outside of commands, the note names the tickets of the log's entries.
    pub(super) fn report_of(&self, tickets: Option<&str>, content: EventContent) {
        let is_for_commands = self.is_for_commands.load(Ordering::Relaxed);
        self.report(if is_for_commands { content } else { content.of_tickets(tickets) });
    }

    /// Reports that an infrastructure provider chooses the instances.
    pub(super) fn report_chosen_by_provider(&self, instances: usize) {
        self.report(EventContent::chosen_by_provider(instances));
    }

    fn report_with_code(&self, content: EventContent, code: Option<&'static str>) {
        let content = content.requested_by(self.clients().as_deref());
        self.shared.history.reported(&self.id, &content, code);
        if let Some(uid) = self.index().uid(&self.id) {
            self.shared.events.record(&self.id, &uid, content);
        }
    }

    /// Resets the state of the previous turn.
    pub(super) fn begin_turn(&self) {
        self.resized.lock().take();
        self.clients.lock().clear();
        self.callers.lock().clear();
        self.has_written.store(false, Ordering::Relaxed);
        self.may_have_written.store(false, Ordering::Relaxed);
        self.is_for_commands.store(false, Ordering::Relaxed);
    }

    /// Records the callers whose commands this turn carries out.
    pub(super) fn note_callers<'a>(&self, callers: impl IntoIterator<Item = &'a Caller>) {
        self.is_for_commands.store(true, Ordering::Relaxed);
        for caller in callers {
            self.callers.lock().push(caller.waiting().clone());
            self.clients.lock().extend(caller.client().cloned());
        }
    }

    /// Returns the names of the clients whose commands this turn carries out, at most `MOST_CLIENTS`; `None` if it
    /// carries out none.
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
        let command = caller.command();
        self.shared.metrics.count_command(command, result.as_ref().err());
        self.log_result(&caller, &result);
        if result.is_ok() {
            self.report_repetition(command);
        }
        if let Err(error) = &result {
            match EventContent::of_error(command == "increase", error) {
                Some(content) => self.report_with_code(content, Some(error.code())),
                None => self.shared.history.answered(&self.id, command, error, caller.client()),
            }
        }
        caller.answer(result);
    }

    /// Logs one line per command with its result. The commands of a batch share its size.
    fn log_result(&self, caller: &Caller, result: &Result<(), ScaleError>) {
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
                let is_known = self.index().uid(group).is_some();
                let kind = Kind { group: is_known.then(|| group.clone()), command, code };
                let text = error.to_string();
                let text = shortened(&text, LONGEST_TEXT);
                // A command that has changed the size, or may have, is logged, whatever became of it.
                let may_be_done = resized.is_some() || self.may_have_written.load(Ordering::Relaxed);
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

/// Logs the sums of refused and failed commands whose minute is over.
pub(super) fn sum_up_refusals(shared: &Shared) {
    for (Kind { group, command, code }, more) in shared.refusals.take_sums() {
        let group = group.map_or_else(|| "(none that is known)".to_owned(), |group| group.to_string());
        tracing::warn!(group, command, code, more, "further commands were refused or failed");
    }
}
