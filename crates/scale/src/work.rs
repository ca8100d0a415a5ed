//! The state of a group's turn; the gate of its writes, each of which is made here, once the Cluster may be written and has
//! a slot among Clusters; and the reports to the log, the metrics, the index, the history, Events and callers.

use std::{
    collections::{BTreeSet, HashMap},
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use arcstr::ArcStr;
use parking_lot::Mutex;
use rules::{
    GroupId,
    text::{LogLimit, shortened},
    writing::{CallError, GroupVersion, NotScalable},
};
use shared_informer::Spawner;
use tokio::time::Instant;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{
    ScaleOptions,
    accepted::AcceptedDeletions,
    api::Api,
    error::{ScaleError, code_name},
    events::{EventContent, EventRecorder},
    history::{History, LONGEST_TEXT},
    metrics::{ScaleMetrics, Write},
    queue::{Caller, Lanes},
    refusal,
    retry::Attempts,
};
use index::{Index, ScaleView};

/// The maximum number of clients in a log line or a note.
const MOST_CLIENTS: usize = 3;

/// A written size, as it is reported.
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

/// The work on one group: a command or an observation.
pub(super) struct Work {
    pub(super) shared: Arc<Shared>,
    pub(super) id: GroupId,
    /// The size written in this turn.
    resized: Mutex<Option<Resized>>,
    /// The clients whose commands this turn carries out.
    clients: Mutex<BTreeSet<ArcStr>>,
    /// The calls that wait for this turn's commands.
    callers: Mutex<Vec<Weak<()>>>,
    /// True once something was written in this turn.
    has_written: AtomicBool,
    /// True once a write of this turn had no answer.
    may_have_written: AtomicBool,
}

/// A size that has been written.
#[derive(Clone, Copy)]
struct Resized {
    from: i32,
    to: i32,
    attempts: u32,
}

impl Work {
    pub(super) fn new(shared: Arc<Shared>, id: GroupId) -> Self {
        Self {
            shared,
            id,
            resized: Mutex::default(),
            clients: Mutex::default(),
            callers: Mutex::default(),
            has_written: AtomicBool::default(),
            may_have_written: AtomicBool::default(),
        }
    }

    pub(super) fn index(&self) -> &Index {
        &self.shared.index
    }

    pub(super) fn api(&self) -> &Api {
        &self.shared.api
    }

    /// Returns the group as it is now.
    pub(super) fn view(&self) -> Result<ScaleView, ScaleError> {
        self.index().scale_view(&self.id).map_err(|why| refusal::not_scalable(&self.id, &why))
    }

    /// Stores in the index the version of the group that was read.
    pub(super) fn store_version(&self, version: &GroupVersion) {
        self.index().set_written(&self.id, version.clone());
    }

    /// Returns attempts that count each retry.
    pub(super) fn attempts(&self) -> Attempts {
        Attempts::counted(self.shared.metrics.retries())
    }

    /// Returns attempts of what must not be given up early.
    pub(super) fn persistent_attempts(&self) -> Attempts {
        Attempts::persistent(self.shared.metrics.retries())
    }

    /// Makes a call that writes, unless the Cluster may not be written any more, or nobody waits for this turn.
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
        self.write_anyway(write, checked).await
    }

    /// Waits for a slot of the Cluster, makes the call, and counts it, without asking if it may still be written. Each write
    /// goes through it; alone it is for what takes a mark back, which a Cluster that isn't served any more needs too.
    pub(super) async fn write_anyway<T>(
        &self,
        write: Write,
        call: impl Future<Output = Result<T, CallError>> + Send,
    ) -> Result<T, CallError> {
        let _slot = self.api().tenancy().slot().await;
        let started = std::time::Instant::now();
        let result = call.await;
        self.shared.metrics.count_write(write, result.as_ref().err(), started.elapsed());
        if write != Write::DryRun {
            self.has_written.fetch_or(result.is_ok(), Ordering::Relaxed);
            self.may_have_written.fetch_or(matches!(result, Err(CallError::Unknown(..))), Ordering::Relaxed);
        }
        result
    }

    /// Returns true if nobody waits for the commands of this turn any more, and nothing was written for them. The slot
    /// of a write may be long in coming for one of many Clusters.
    pub(super) fn is_abandoned(&self) -> bool {
        self.has_no_caller()
            && !self.has_written.load(Ordering::Relaxed)
            && !self.may_have_written.load(Ordering::Relaxed)
    }

    /// Returns true if nobody waits for the commands of this turn any more.
    pub(super) fn has_no_caller(&self) -> bool {
        let callers = self.callers.lock();
        !callers.is_empty() && callers.iter().all(|caller| caller.strong_count() == 0)
    }

    /// Resets the state of the previous turn.
    pub(super) fn begin_turn(&self) {
        self.resized.lock().take();
        self.clients.lock().clear();
        self.callers.lock().clear();
        self.has_written.store(false, Ordering::Relaxed);
        self.may_have_written.store(false, Ordering::Relaxed);
    }

    /// Records the callers whose commands this turn carries out.
    pub(super) fn note_callers<'a>(&self, callers: impl IntoIterator<Item = &'a Caller>) {
        for caller in callers {
            self.callers.lock().push(caller.waiting.clone());
            self.clients.lock().extend(caller.client.clone());
        }
    }
}

/// The state that the commands of one workload cluster share.
pub(super) struct Shared {
    pub(super) index: Arc<Index>,
    pub(super) api: Api,
    pub(super) options: ScaleOptions,
    pub(super) metrics: ScaleMetrics,
    pub(super) events: EventRecorder,
    pub(super) history: History,
    pub(super) spawner: Spawner,
    pub(super) tasks: TaskTracker,
    pub(super) ended: CancellationToken,
    pub(super) lanes: Lanes,
    pub(super) accepted_deletions: AcceptedDeletions,
    pub(super) refusals: Refusals,
    pub(super) repeats: Repeats,
}

// Reports to the log, the metrics, the index, the history, Events and callers. They decide nothing.

impl Work {
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
        let resized = Resized { from: write.from, to: version.replicas, attempts: write.attempts };
        crate::traces::set(&[
            ("from", resized.from.into()),
            ("to", resized.to.into()),
            ("attempts", resized.attempts.into()),
        ]);
        *self.resized.lock() = Some(resized);
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
        let resized = *self.resized.lock();
        let (from, to) = (resized.map(|it| it.from), resized.map(|it| it.to));
        let attempts = resized.map(|it| it.attempts);
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

// The limit of log lines for refused and failed commands: the first of a group and reason at once, and those that follow
// within a minute as a sum. A caller could fill the log otherwise. It never concerns a command that is done, or may be.

/// The maximum number of kinds. Those beyond it count as refusals of groups that aren't known.
const MOST: usize = 1_000;

/// The kind of a refusal.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) struct Kind {
    /// Its group; `None` if none is known by that id, of which a caller may make up any number.
    pub(super) group: Option<GroupId>,
    pub(super) command: &'static str,
    pub(super) code: &'static str,
}

/// The refusals of the last minute.
#[derive(Debug)]
pub(super) struct Refusals(Mutex<LogLimit<Kind>>);

impl Default for Refusals {
    fn default() -> Self {
        Self(Mutex::new(LogLimit::new(1)))
    }
}

impl Refusals {
    /// Counts a refusal. Returns the number of earlier ones that weren't logged, if this one has to be logged.
    pub(super) fn allows(&self, mut kind: Kind) -> Option<u64> {
        let mut limit = self.0.lock();
        if !limit.may_count(&kind, MOST) {
            kind.group = None;
        }
        limit.allows(kind, 1, Instant::now().into_std())
    }

    /// Logs the sums of refused and failed commands whose minute is over.
    pub(super) fn sum_up(&self) {
        let over = self.0.lock().over(Instant::now().into_std());
        for (Kind { group, command, code }, more) in over {
            let group = group.map_or_else(|| "(none that is known)".to_owned(), |group| group.to_string());
            tracing::warn!(group, command, code, more, "further commands were refused or failed");
        }
    }
}

// Commands that succeed, change nothing and are repeated: Cluster Autoscaler takes such a success for a change, and may
// then silently skip the rest of its loop for all groups.

/// The time for which a command without effect is remembered. Cluster Autoscaler's loops are seconds apart, and its
/// caches live for minutes.
const REMEMBERED_FOR: Duration = Duration::from_secs(15 * 60);

/// The last commands without effect of each group, by kind of command.
#[derive(Debug, Default)]
pub(super) struct Repeats(Mutex<HashMap<(GroupId, &'static str), Repeat>>);

/// A series of commands of one kind that changed nothing.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Repeat {
    /// The number of commands.
    pub(super) times: u32,
    last: Instant,
}

impl Repeats {
    /// Records a command that succeeded. Returns the series if neither this command nor the previous ones changed
    /// anything.
    pub(super) fn note(&self, id: &GroupId, command: &'static str, has_effect: bool) -> Option<Repeat> {
        let now = Instant::now();
        let mut repeats = self.0.lock();
        repeats.retain(|_, repeat| now.duration_since(repeat.last) < REMEMBERED_FOR);
        let key = (id.clone(), command);
        if has_effect {
            repeats.remove(&key);
            return None;
        }
        let repeat = repeats.entry(key).or_insert(Repeat { times: 0, last: now });
        *repeat = Repeat { times: repeat.times.saturating_add(1), last: now };
        (repeat.times > 1).then_some(*repeat)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn group(name: &str) -> GroupId {
        GroupId::parse(&format!("MachineDeployment/team-a/{name}")).unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn the_number_of_kinds_is_bounded_whatever_the_number_of_groups() {
        let kind =
            |name: usize| Kind { group: Some(group(&format!("g{name}"))), command: "increase", code: "NOT_FOUND" };
        let refusals = Refusals::default();
        let logged = (0..10 * MOST).filter(|name| refusals.allows(kind(*name)).is_some()).count();
        assert_eq!(logged, MOST + 1);
        tokio::time::advance(rules::text::PAUSE).await;
        let sum: u64 = refusals.0.lock().over(Instant::now().into_std()).iter().map(|(_, more)| more).sum();
        assert_eq!(usize::try_from(sum).unwrap(), 10 * MOST - logged);
    }

    #[tokio::test(start_paused = true)]
    async fn a_command_without_effect_is_noted_when_it_comes_again() {
        let repeats = Repeats::default();
        let times = |name: &str, has_effect| repeats.note(&group(name), "decrease", has_effect).map(|it| it.times);
        assert_eq!((times("a", false), times("b", false)), (None, None));
        assert_eq!((times("a", false), times("a", false)), (Some(2), Some(3)));
        assert_eq!(repeats.note(&group("a"), "delete", false), None, "another command");
        assert_eq!((times("a", true), times("a", false)), (None, None), "it had an effect meanwhile");
        tokio::time::advance(REMEMBERED_FOR).await;
        assert_eq!(times("b", false), None, "long ago");
        assert_eq!(repeats.0.lock().len(), 1, "what nobody asks for again is forgotten");
    }
}
