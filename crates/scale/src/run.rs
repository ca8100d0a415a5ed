//! Makes the calls of commands, retries them, and reports them. It must decide nothing.

use std::{
    collections::{HashMap, VecDeque},
    time::Duration,
};

use arcstr::ArcStr;
use delete_rule::steps::{CallerId, RetryBudget, SIDE_BY_SIDE};
use futures::{StreamExt as _, stream::FuturesUnordered};
use nodegroup::{
    DeletionLog, LogAnnotation as _, Ticket,
    deletion_log::{Entry, Types},
    replacement::Replaced,
    writing::{CallError, GroupVersion, SizeWriter},
};
use parking_lot::Mutex;
use shared_informer::ResourceVersion;

use super::{
    api::GroupChange,
    fields::MachineMeta,
    metrics::Write,
    now::CurrentState,
    outcome::SizeWritten,
    read,
    retry::Attempts,
    rule::{Call, Effect, GroupMachines, Life, MarkCall, MarkOutcome, Named, Outcome, RetryPolicy, Steps, machine_of},
    work::Work,
};

/// The calls of one command.
pub(super) struct Run<'a> {
    work: &'a Work,
    budgets: Mutex<HashMap<RetryBudget, Attempts>>,
}

/// Carries out a command that has one caller or none.
pub(super) async fn carry_out(work: &Work, steps: &mut impl Steps<Types>, has_left: impl Fn(CallerId) -> bool) {
    let run = Run::new(work);
    let (mut calls, mut waiting) = (FuturesUnordered::new(), VecDeque::new());
    loop {
        waiting.extend(steps.next(&CurrentState { work, has_left: &has_left }));
        run.report(steps.effects());
        while calls.len() < SIDE_BY_SIDE
            && let Some(call) = waiting.pop_front()
        {
            calls.push(run.call(call));
        }
        let Some(outcome) = calls.next().await else { return };
        steps.took(outcome);
        run.report(steps.effects());
    }
}

impl<'a> Run<'a> {
    pub(super) fn new(work: &'a Work) -> Self {
        Self { work, budgets: Mutex::default() }
    }

    /// Makes a call, and returns its outcome.
    pub(super) async fn call(&self, call: Call) -> Outcome {
        let work = self.work;
        match call {
            Call::ReadGroup(policy) => Outcome::Group(self.read_group(policy).await),
            Call::ReadSize(writer) => {
                let mut attempts = work.attempts();
                let seen = loop {
                    match work.api().read_group(&work.id).await {
                        Err(error) if attempts.again(&error).await => {}
                        seen => break seen,
                    }
                };
                Outcome::Size(seen.map(|seen| {
                    work.store_version(&seen.version);
                    (seen.version, writer.of(&seen.managed))
                }))
            }
            Call::Read(named) => {
                let life = read::life(work, &named).await;
                Outcome::Life(named.uid, life)
            }
            Call::ReadDetails(named) => {
                let details = read::details(work, &named).await;
                Outcome::Details(named.uid, details)
            }
            Call::ReadVersion(entry) => {
                let seen = work.api().read_machine(&work.machine_key(&entry.name), &entry.uid).await;
                Outcome::Version(entry, seen.ok().flatten().map(|machine| machine.version))
            }
            Call::List(policy) => Outcome::Listed(self.list(policy).await),
            Call::WriteLog { seen, log } => {
                work.log_new_entries(&seen, &log);
                Outcome::Written(write_log(work, &seen, &log).await)
            }
            Call::Lower { seen, lowering } if lowering.names.is_empty() => {
                Outcome::Written(write_log(work, &seen, &lowering.log).await)
            }
            Call::Lower { seen, lowering } => {
                let _writing = work.index().begin_size_write(&work.id);
                let written = write(work, Write::Size, &seen, (Some(lowering.to), &lowering.log)).await;
                if let Ok(version) = &written {
                    self.wrote(RetryBudget::Lower, seen.replicas, version, &lowering.names);
                }
                Outcome::Written(written)
            }
            Call::Resize { seen, to, writer, counted } => {
                let _writing = work.index().begin_size_write(&work.id);
                let written = resize(work, &seen, to, &writer, counted).await;
                if let Ok(version) = &written {
                    self.wrote(RetryBudget::Size, seen.replicas, version, &[]);
                }
                Outcome::Written(written)
            }
            Call::Mark(entry, call) => {
                let outcome = mark(work, &entry, call).await;
                Outcome::Mark(entry, outcome)
            }
            Call::Delete { machine, version } => {
                let deleted = delete(work, &machine, version.as_ref()).await;
                Outcome::Deleted(machine.uid, deleted)
            }
            Call::Unmark { name, ticket, version } => {
                let taken = unmark(work, &name, &ticket, &version).await;
                Outcome::Unmarked(name, taken)
            }
            Call::WriteReplaced { note, replaced } => {
                let text = Replaced::from(replaced).to_string();
                let write = work.api().write_replaced(&work.id, &note.group, note.text.as_deref(), &text);
                Outcome::WrittenReplaced(work.write(Write::Replaced, write).await)
            }
            Call::Pause(budget, error) => {
                let mut attempts = self.attempts(budget);
                let again = attempts.again(&error).await;
                self.budgets.lock().insert(budget, attempts);
                Outcome::Paused(budget, again)
            }
        }
    }

    /// Returns the attempts of a budget. A budget has one call in flight at a time.
    fn attempts(&self, budget: RetryBudget) -> Attempts {
        self.budgets.lock().remove(&budget).unwrap_or_else(|| self.work.attempts())
    }

    async fn read_group(&self, policy: RetryPolicy) -> Result<GroupVersion, CallError> {
        let RetryPolicy::Of(budget) = policy else { return read::group(self.work).await };
        let mut attempts = self.attempts(budget);
        let group = loop {
            match read::group(self.work).await {
                Err(error) if attempts.again(&error).await => {}
                group => break group,
            }
        };
        self.budgets.lock().insert(budget, attempts);
        group
    }

    async fn list(&self, policy: RetryPolicy) -> Result<GroupMachines, CallError> {
        if policy == RetryPolicy::Once {
            return read::list(self.work).await;
        }
        let mut attempts = self.work.attempts();
        loop {
            match read::list(self.work).await {
                Err(error) if attempts.again(&error).await => {}
                listed => return listed,
            }
        }
    }

    /// Reports a size that was written within a retry budget.
    fn wrote(&self, budget: RetryBudget, from: i32, version: &GroupVersion, machines: &[ArcStr]) {
        let budgets = self.budgets.lock();
        let (attempts, elapsed) =
            budgets.get(&budget).map_or((1, Duration::ZERO), |attempts| (attempts.made(), attempts.elapsed()));
        self.work.wrote(version, SizeWritten { from, machines, attempts, elapsed });
    }

    /// Reports the effects of a command, and returns those that concern its callers.
    pub(super) fn report(&self, effects: Vec<Effect>) -> Vec<Effect> {
        let mut left = Vec::new();
        for effect in effects {
            match effect {
                Effect::Begin(budget) => {
                    self.budgets.lock().insert(budget, self.work.attempts());
                }
                Effect::SizeWritten { from, version } => self.wrote(RetryBudget::Size, from, &version, &[]),
                effect => left.extend(self.work.report_effect(effect)),
            }
        }
        left
    }
}

async fn write_log(work: &Work, seen: &GroupVersion, log: &DeletionLog) -> Result<GroupVersion, CallError> {
    let version = write(work, Write::Log, seen, (None, log)).await?;
    work.store_version(&version);
    Ok(version)
}

async fn write(
    work: &Work,
    write: Write,
    seen: &GroupVersion,
    (replicas, log): (Option<i32>, &DeletionLog),
) -> Result<GroupVersion, CallError> {
    let only_takes_out = work.api().tenancy().is_one_of_many() && replicas.is_none() && only_takes_out(seen, log);
    let log = log.print().map_err(|error| CallError::Refused(error.to_string()))?;
    let change = GroupChange { replicas, log };
    let call = work.api().write_group(&work.id, seen, &change);
    if only_takes_out { work.take_back(write, call).await } else { work.write(write, call).await }
}

/// Returns true if a log has no entry that its group hasn't.
fn only_takes_out(seen: &GroupVersion, log: &DeletionLog) -> bool {
    let is_there = |before: DeletionLog| log.entries().iter().all(|entry| before.get(&entry.uid) == Some(entry));
    seen.log().is_ok_and(is_there)
}

async fn resize(
    work: &Work,
    seen: &GroupVersion,
    to: i32,
    writer: &SizeWriter,
    counted: bool,
) -> Result<GroupVersion, CallError> {
    if counted {
        work.write(Write::Size, work.api().write_counted_size(&work.id, seen, to, writer)).await
    } else {
        work.write(Write::Size, work.api().write_size(&work.id, seen, to, writer)).await
    }
}

/// Makes a call for the mark of an entry's Machine.
async fn mark(work: &Work, entry: &Entry, call: MarkCall) -> MarkOutcome {
    let key = work.machine_key(&entry.name);
    match call {
        MarkCall::ReadOwner => {
            let seen = work.api().read_machine(&key, &entry.uid).await;
            let is_of_group = |seen: MachineMeta| seen.is_of(&work.index().owners(&work.id));
            MarkOutcome::IsOfGroup(seen.map(|seen| seen.map(is_of_group)))
        }
        MarkCall::Read => MarkOutcome::Life(read::life(work, &machine_of(entry)).await),
        MarkCall::ReadDetails => MarkOutcome::Details(read::details(work, &machine_of(entry)).await),
        MarkCall::ReadGroup => MarkOutcome::Group(read::group(work).await),
        MarkCall::Set(version) => {
            let value = entry.ticket.mark();
            let set = work.api().set_mark(&key, &entry.uid, version.as_ref(), &value);
            MarkOutcome::Set(match work.write(Write::Mark, set).await {
                Ok(machine) if machine.deleting => Ok(Life::Deleting),
                Ok(_) => Ok(Life::Alive),
                Err(CallError::Missing(_)) => Ok(Life::Gone),
                Err(error) => Err(error),
            })
        }
    }
}

/// Deletes a Machine. Returns false if there is none with its name.
async fn delete(work: &Work, machine: &Named, version: Option<&ResourceVersion>) -> Result<bool, CallError> {
    let key = work.machine_key(&machine.name);
    match work.write(Write::Delete, work.api().delete_machine(&key, &machine.uid, version)).await {
        Ok(()) => Ok(true),
        Err(CallError::Missing(_)) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Removes this program's mark from a Machine of this version. Succeeds if the Machine is gone.
async fn unmark(work: &Work, name: &ArcStr, ticket: &Ticket, version: &ResourceVersion) -> Result<(), CallError> {
    let (key, value) = (work.machine_key(name), ticket.mark());
    match work.take_back(Write::Unmark, work.api().take_mark(&key, &value, version)).await {
        Err(CallError::Missing(_)) => Ok(()),
        taken => taken,
    }
}
