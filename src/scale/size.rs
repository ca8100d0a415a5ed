//! Sizes alone: increases, replicas that have no Machine, and what a smaller target size gives up. A write is decided on
//! the index, has the size it was decided on as precondition, and is decided again on what the API server says.

use std::{collections::HashSet, sync::Arc};

use super::{
    Command, ScaleError, Tickets,
    api::{CallError, GroupChange, GroupSeen},
    carry::{Carried, NotLowered},
    going::Leaving,
    lane::Caller,
    mark::Marked,
    metrics::Write,
    outcome::SizeWritten,
    rule::{self, Fate, Listed, Named, Places, RULE, Shrinking},
    writer::SizeWriter,
};
use crate::{
    capi::{Machine, ScalableKind},
    index::{GroupVersion, Member, NotScalable, ScaleView},
    nodegroup::{Bounds, DeletionLog, LogAnnotation as _, Ticket, deletion_log::Entry, instance, size},
};

/// How a smaller target size comes about.
struct Giving {
    /// Machines without a Node that are to go.
    machines: Vec<Named>,
    /// Further replicas, which have no Machine.
    others: usize,
}

/// The Machines of a group that are there and in no log.
struct There {
    /// How many have a Node and aren't being deleted.
    with_node: i32,
    /// Those that have no Node and aren't being deleted.
    waiting: Vec<Arc<Machine>>,
}

/// The part of a delete that is no Machine.
pub(super) struct GivingUp {
    pub(super) places: Places,
    pub(super) bounds: Bounds,
    /// The group's Machines, where they were counted a moment ago and nothing was written since.
    pub(super) listed: Option<Listed>,
}

/// The writes of a smaller target size so far.
#[derive(Debug, Default)]
struct Done {
    /// True once the size was lowered for a part of it.
    has_lowered: bool,
    /// True if a write of the log had no answer.
    maybe_logged: bool,
}

/// The size that a command aims at.
enum Aim {
    Increase(i32, Bounds),
    GiveUp(GivingUp),
    /// Gives up as many replicas without a Machine, as far as there are some.
    GiveWay {
        most: usize,
        min: i32,
    },
}

impl Aim {
    /// Returns true if Machines are counted for it, so that its write tests what they were counted by.
    fn counts(&self) -> bool {
        match self {
            Self::Increase(..) => false,
            Self::GiveUp(giving) => giving.places.replicas > 0,
            Self::GiveWay { .. } => true,
        }
    }
}

impl Command {
    pub(super) async fn increase(&self, delta: i32, caller: &Caller) -> Result<(), ScaleError> {
        let view = self.view()?;
        self.resize(view.version, Aim::Increase(delta, view.bounds), Some(caller)).await?;
        self.inner.going.forget_replicas(&self.id);
        Ok(())
    }

    /// Lowers the size for replicas without a Machine, or instances that are no Machines.
    pub(super) async fn give_up(
        &self,
        version: GroupVersion,
        giving: GivingUp,
        caller: Option<&Caller>,
    ) -> Result<(), ScaleError> {
        self.resize(version, Aim::GiveUp(giving), caller).await.map(drop)
    }

    /// The size that a command makes of a version of the group.
    async fn aim(&self, version: &GroupVersion, aim: &mut Aim) -> Result<i32, ScaleError> {
        let size = match aim {
            Aim::Increase(delta, bounds) => size::increase(version.replicas, *delta, *bounds),
            Aim::GiveUp(giving) => return self.size_without(version, giving).await,
            Aim::GiveWay { most, min } => {
                let Ok(log) = version.log() else { return Ok(version.replicas) };
                let left = self.placeholders(version, &log, None, 0).await?;
                RULE.give_way(&log, version.replicas, *min, left.min(*most), || self.there(&log).with_node)
            }
        };
        size.map_err(|error| self.refused(&error))
    }

    /// The size without what a delete gives up. Each placeholder is looked for anew.
    async fn size_without(&self, version: &GroupVersion, giving: &mut GivingUp) -> Result<i32, ScaleError> {
        let GivingUp { places, bounds, listed } = giving;
        // A log that nobody can read was refused before this.
        let log = version.log().unwrap_or_default();
        let left = match places.replicas {
            0 => 0,
            _ => self.placeholders(version, &log, listed.take(), places.instances).await?,
        };
        RULE.give_up(&log, version.replicas, *bounds, left, *places).map_err(|refusal| self.refusal(&refusal))
    }

    /// Counts the placeholders by what the API server says of the group's Machines now: a watch that lags behind
    /// takes for missing what has come.
    async fn placeholders(
        &self,
        version: &GroupVersion,
        log: &DeletionLog,
        listed: Option<Listed>,
        instances: usize,
    ) -> Result<usize, ScaleError> {
        let listed = match listed {
            Some(listed) => listed,
            None => self.list_again().await.map_err(|error| self.failed(&error))?,
        };
        Ok(RULE.placeholders(log, version.replicas, &listed, instances))
    }

    async fn list_again(&self) -> Result<Listed, CallError> {
        let mut attempts = self.attempts();
        loop {
            match self.list().await {
                Err(error) if attempts.again(&error).await => {}
                result => return result,
            }
        }
    }

    /// Where only time can help it is a success that changes nothing: an error would fail the caller's loop for all groups
    /// (kubernetes/autoscaler#7928). A success ends that loop too, and silently; so instances are answered so that the
    /// caller never asks again and again (see [`crate::nodegroup::instance::of_group`]).
    pub(super) async fn decrease(&self, delta: i32, caller: &Caller) -> Result<(), ScaleError> {
        // A wrong delta is wrong whatever the group is like.
        size::decrease(0, delta, 0, 0).map_err(|error| self.refused(&error))?;
        if let Err(NotScalable::LeftOut(why)) = self.index().scale_view(&self.id) {
            tracing::info!(group = %self.id, "the size is left as it is: {why}");
            return Ok(());
        }
        let view = self.view()?;
        if self.is_left_while_rolling_out(&view) {
            return Ok(());
        }
        let mut done = Done::default();
        let result = self.decrease_in(view, delta, caller, &mut done).await;
        result.map_err(|error| error.unless_logged(done.maybe_logged).unless_lowered(done.has_lowered))
    }

    /// The same in a group that can be scaled down. `done` tells of it whatever the end.
    async fn decrease_in(
        &self,
        view: ScaleView,
        delta: i32,
        caller: &Caller,
        done: &mut Done,
    ) -> Result<(), ScaleError> {
        let mut attempts = self.attempts();
        let mut tickets = Tickets::draw();
        let mut version = view.version;
        let mut chosen: Option<Giving> = None;
        let (mut delta, mut has_given_way) = (delta, false);
        // Whoever ends it by leaving: nobody, once something may be written.
        let mut caller = Some(caller);
        loop {
            let log = match version.log() {
                Ok(log) => log,
                Err(error) => {
                    tracing::warn!(group = %self.id, "the size is left as it is: {error}");
                    return Ok(());
                }
            };
            // A write whose answer was lost was done: what was chosen then stays.
            if let Some(giving) = chosen.take_if(|_| tickets.are_in(&log)) {
                return self.lower_soft(version, giving, view.bounds, None, done).await;
            }
            let mut giving = self.choose(&version, &log, delta, view.bounds)?;
            if giving.machines.is_empty() {
                return self.give_way(version, giving.others, view.bounds, caller).await.map(drop);
            }
            if giving.others > 0 && !has_given_way {
                // Before the Machines: those that the size is lowered for may stay, and count as if they did.
                if self.give_way(version, giving.others, view.bounds, caller).await? {
                    caller = None;
                    done.has_lowered = true;
                }
                (delta, has_given_way) = (-count(giving.machines.len()), true);
                version = self.view()?.version;
                continue;
            }
            giving.others = 0;
            let error = match self.pending_of(&version, &log, &giving.machines, &tickets.current).await {
                // The reads may take as long as a caller waits.
                Ok(_) if caller.is_some_and(Caller::is_gone) => return Err(self.abandoned()),
                Ok(entries) if entries.is_empty() => {
                    return self.lower_soft(version, giving, view.bounds, caller, done).await;
                }
                Ok(entries) => match self.log_soft(&version, log, entries).await {
                    Ok(logged) => return self.lower_soft(logged, giving, view.bounds, None, done).await,
                    Err(error) => {
                        if matches!(error, CallError::Unknown(..)) {
                            (caller, done.maybe_logged) = (None, true);
                        }
                        error
                    }
                },
                Err(error) => error,
            };
            chosen = Some(giving);
            if !attempts.again(&error).await {
                return Err(self.failed(&error));
            }
            let seen = match self.view_again(&mut attempts).await {
                Ok(version) => version,
                Err(error) => return Err(self.failed(&error)),
            };
            if done.maybe_logged {
                tickets.renew();
            }
            version = seen;
        }
    }

    /// Chooses what goes for a smaller target size: never a Machine that has a Node.
    fn choose(
        &self,
        version: &GroupVersion,
        log: &DeletionLog,
        delta: i32,
        bounds: Bounds,
    ) -> Result<Giving, ScaleError> {
        let there = self.there(log);
        let mut waiting = there.waiting;
        let room = (there.with_node, waiting.len());
        let shrinking = RULE.shrink(log, version.replicas, bounds.min, delta, room);
        let Shrinking { machines, others } = shrinking.map_err(|error| self.refused(&error))?;
        waiting.sort_by_key(|machine| !instance::has_failed(machine));
        waiting.truncate(machines);
        let machines: Vec<_> = waiting
            .into_iter()
            .map(|machine| Named {
                name: machine.meta.key.name.clone(),
                uid: machine.meta.uid.clone(),
                never_joined: true,
            })
            .collect();
        Ok(Giving { machines, others })
    }

    /// The Machines that are there now, but for those in the log.
    fn there(&self, log: &DeletionLog) -> There {
        let mut members = self.index().members(&self.id);
        members.retain(|member| log.get(&member.machine.meta.uid).is_none() && !member.machine.deleting);
        if self.id.kind == ScalableKind::MachinePool
            && members.is_empty()
            && let Ok(view) = self.index().scale_view(&self.id)
        {
            return There { with_node: view.machines_with_node, waiting: Vec::new() };
        }
        let (joined, waiting): (Vec<_>, Vec<_>) = members.into_iter().partition(Member::has_node);
        There { with_node: count(joined.len()), waiting: waiting.into_iter().map(|member| member.machine).collect() }
    }

    /// The soft entries of Machines without a Node, as far as these are alive and haven't joined.
    async fn pending_of(
        &self,
        version: &GroupVersion,
        log: &DeletionLog,
        machines: &[Named],
        ticket: &Ticket,
    ) -> Result<Vec<Entry>, CallError> {
        let known = self.learn(version, log, machines, false).await?;
        for named in machines {
            match known.unread.get(&named.uid) {
                // An error would end the caller's loop for all groups.
                Some(error) if error.is_final() => {
                    let (machine, failed) = (&named.name, self.failed(error));
                    tracing::warn!(group = %self.id, %machine, "the size is left as it is for a Machine: {failed}");
                }
                Some(error) => return Err(error.clone()),
                None => {}
            }
        }
        let is_pending = |uid| known.lives.get(uid) == Some(&rule::Life::Alive) && !known.joined.contains(uid);
        let alive = machines.iter().filter(|named| is_pending(&named.uid));
        Ok(alive.map(|named| Entry::wanted(named, ticket, true)).collect())
    }

    async fn log_soft(
        &self,
        version: &GroupVersion,
        log: DeletionLog,
        entries: Vec<Entry>,
    ) -> Result<GroupVersion, CallError> {
        self.logs(entries.iter());
        let text = log.with(entries).print().map_err(|error| CallError::Refused(error.to_string()))?;
        let change = GroupChange { replicas: None, log: text };
        self.wrote_log(self.write(Write::Log, self.api().write_group(&self.id, version, &change)).await)
    }

    /// Lowers the size for what was logged of what was chosen. If that is nothing, it ends with its caller.
    async fn lower_soft(
        &self,
        version: GroupVersion,
        giving: Giving,
        bounds: Bounds,
        caller: Option<&Caller>,
        done: &mut Done,
    ) -> Result<(), ScaleError> {
        let uids: HashSet<_> = giving.machines.iter().map(|named| named.uid.clone()).collect();
        let soft = version.log().map_or(0, |log| uids.iter().filter(|uid| log.get(uid).is_some()).count());
        let Carried { version, failures, lowered } =
            self.carry_out(version, &uids, std::slice::from_ref(&uids), bounds, Marked::default()).await;
        // What isn't taken back and still stands in the log another copy has lowered.
        let is_left = |log: DeletionLog| uids.iter().any(|uid| log.get(uid).is_some() && !failures.contains_key(uid));
        done.has_lowered |= lowered > 0 || version.log().is_ok_and(is_left);
        for failure in failures.values() {
            match failure {
                NotLowered::Refused(error) | NotLowered::Pending(error) => return Err(error.clone()),
                NotLowered::Spared(why) => tracing::info!(group = %self.id, "the size is left as it is: {why}"),
            }
        }
        // Cluster Autoscaler may ask for one of them that it still holds for an instance.
        let lowered = giving.machines.iter().filter(|named| !failures.contains_key(&named.uid));
        self.inner.going.accept(&self.id, lowered.map(|named| Leaving::Machine(self.machine_key(&named.name))));
        // Those that went by themselves meanwhile are replicas without a Machine.
        self.give_way(version, giving.others + giving.machines.len() - soft, bounds, caller).await.map(drop)
    }

    /// Lowers the size by as many, as far as there are placeholders, and not below the minimum, nor the Machines that have
    /// a Node and what is promised to go: by what is there at the moment of each write. Returns whether it was lowered.
    async fn give_way(
        &self,
        version: GroupVersion,
        most: usize,
        bounds: Bounds,
        caller: Option<&Caller>,
    ) -> Result<bool, ScaleError> {
        if most == 0 {
            return Ok(false);
        }
        self.resize(version, Aim::GiveWay { most, min: bounds.min }, caller).await
    }

    /// Writes the size that a command aims at, and returns whether it differs. The first decision is made on `version`,
    /// without a read of the group. Before the first write it ends with its caller.
    async fn resize(
        &self,
        mut version: GroupVersion,
        mut aim: Aim,
        caller: Option<&Caller>,
    ) -> Result<bool, ScaleError> {
        let writer = SizeWriter::draw();
        let mut attempts = self.attempts();
        // The last size that was written without an answer, and what from: it may arrive yet, and nothing is refused for good.
        let mut unanswered: Option<(i32, i32)> = None;
        let mut refused = false;
        loop {
            let to = match (self.aim(&version, &mut aim).await, unanswered) {
                (Err(refusal), Some((from, to))) => return Err(Self::unread(from, to, &refusal)),
                (aimed, _) => aimed?,
            };
            let from = version.replicas;
            if to == from {
                tracing::info!(group = %self.id, size = from, "size is left as it is");
                return Ok(false);
            }
            if unanswered.is_none() && caller.is_some_and(Caller::is_gone) {
                return Err(self.abandoned());
            }
            let written = if aim.counts() {
                self.write(Write::Size, self.api().write_counted_size(&self.id, &version, to, &writer)).await
            } else {
                self.write(Write::Size, self.api().write_size(&self.id, &version, to, &writer)).await
            };
            let error = match written {
                Ok(written) => {
                    self.wrote(&written, SizeWritten { from, machines: &[], attempts: &attempts });
                    return Ok(true);
                }
                Err(error) => error,
            };
            if matches!(error, CallError::Unknown(..)) {
                unanswered = Some((from, to));
            }
            let is_tried_again = attempts.again(&error).await;
            if !is_tried_again && unanswered.is_none() {
                return Err(self.failed(&error));
            }
            if is_tried_again && matches!(error, CallError::Busy(..) | CallError::Unauthorized(_)) {
                // Nothing was done, and nothing has been seen to change.
                continue;
            }
            // What may have been done is looked at, whether it is tried again or not.
            let now = match self.see_again(&mut self.attempts()).await {
                Ok(now) => now,
                Err(error) if unanswered.is_some() => return Err(Self::unread(from, to, &self.failed(&error))),
                Err(error) => return Err(self.failed(&error)),
            };
            let GroupSeen { version: now, managed } = now;
            let fate =
                if unanswered.is_some() { rule::fate(&version, &now, to, writer.of(&managed)) } else { Fate::NotDone };
            match fate {
                Fate::Done => {
                    self.wrote(&now, SizeWritten { from, machines: &[], attempts: &attempts });
                    return Ok(true);
                }
                // With several writes since, a counted one may be the first of them, and would be done twice.
                Fate::NotDone if unanswered.is_some() && aim.counts() && now.generation > version.generation + 1 => {
                    return Err(self.unknown(from, to, now.replicas, &error));
                }
                Fate::NotDone if is_tried_again => {}
                // It may arrive yet: nothing was refused for good.
                Fate::NotDone | Fate::Unknown => return Err(self.unknown(from, to, now.replicas, &error)),
            }
            let is_as_expected = now.replicas == from
                && (!aim.counts() || (now.generation, &now.log) == (version.generation, &version.log));
            if let CallError::Rejected(message) = &error
                && is_as_expected
            {
                // All was as expected, and yet the write was rejected: by validation or a webhook.
                if std::mem::replace(&mut refused, true) {
                    return Err(match unanswered {
                        Some((from, to)) => Self::unread(from, to, &self.refuses(to, message)),
                        None => self.refuses(to, message),
                    });
                }
            }
            version = now;
        }
    }

    /// The answer after a write without an answer of which nothing more can be learned.
    fn unread(from: i32, to: i32, error: &ScaleError) -> ScaleError {
        ScaleError::Unavailable(format!(
            "{error}; so it isn't known whether the size write {from} to {to}, which had no answer, was done; read the size \
             before asking again"
        ))
    }

    fn unknown(&self, from: i32, to: i32, now: i32, error: &CallError) -> ScaleError {
        ScaleError::Unavailable(format!(
            "{}; it isn't known whether the size write {from} to {to} was done, and the size is {now} now",
            self.failed(error)
        ))
    }
}

fn count(count: usize) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX)
}
