//! Sizes alone: increases, replicas that have no Machine, and what a smaller target size gives up. A write is decided on
//! the index, has the size it was decided on as precondition, and is decided again on what the API server says.

use std::{collections::HashSet, sync::Arc};

use super::{
    Command, ScaleError,
    api::{CallError, GroupChange, GroupSeen},
    batch::Marked,
    going::Leaving,
    lane::Caller,
    metrics::Write,
    outcome::SizeWritten,
    rule::{self, Fate, Named, entry},
    writer::SizeWriter,
};
use crate::{
    capi::{Machine, ScalableKind},
    index::{GroupVersion, NotScalable},
    nodegroup::{Bounds, DeletionLog, SizeError, Ticket, size},
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
    /// How many, those that are being deleted included.
    all: i32,
    /// How many have a Node and aren't being deleted.
    with_node: i32,
    /// Those that have no Node and aren't being deleted.
    waiting: Vec<Arc<Machine>>,
}

impl Command {
    pub(super) async fn increase(&self, delta: i32, caller: &Caller) -> Result<(), ScaleError> {
        let view = self.view()?;
        let bounds = view.bounds;
        let decide = |version: &GroupVersion| size::increase(version.replicas, delta, bounds);
        self.resize(view.version, decide, Some(caller)).await
    }

    /// Lowers the size for replicas without a Machine, or instances that are no Machines.
    pub(super) async fn give_up(
        &self,
        version: GroupVersion,
        count: usize,
        bounds: Bounds,
        caller: Option<&Caller>,
    ) -> Result<(), ScaleError> {
        let decide = |version: &GroupVersion| {
            // What is wanted lowers the size as well; a log that nobody can read was refused before this.
            let wanted = version.log().map_or(0, |log| log.wanted());
            let others = size::delete(version.replicas, wanted, Bounds { min: 0, ..bounds })?;
            size::delete(others, count, bounds)?;
            size::delete(version.replicas, count, bounds)
        };
        self.resize(version, decide, caller).await
    }

    /// Never an error where only time can help, since it would end the caller's loop for all groups
    /// (kubernetes/autoscaler#7928): then nothing changes.
    pub(super) async fn decrease(&self, delta: i32, caller: &Caller) -> Result<(), ScaleError> {
        // A wrong delta is wrong whatever the group is like.
        size::decrease(0, delta, 0).map_err(|error| self.refused(&error))?;
        if let Err(NotScalable::LeftOut(why)) = self.index().scale_view(&self.id) {
            tracing::info!(group = %self.id, "the size is left as it is: {why}");
            return Ok(());
        }
        let view = self.view()?;
        if self.is_left_while_rolling_out(&view) {
            return Ok(());
        }
        let mut attempts = self.attempts();
        let ticket = super::draw_ticket();
        let mut version = view.version;
        let mut chosen: Option<Giving> = None;
        loop {
            let log = match version.log() {
                Ok(log) => log,
                Err(error) => {
                    tracing::warn!(group = %self.id, "the size is left as it is: {error}");
                    return Ok(());
                }
            };
            // A write whose answer was lost was done: what was chosen then stays.
            if let Some(giving) = chosen.take_if(|_| log.has(&ticket)) {
                return self.lower_soft(version, giving).await;
            }
            let giving = self.choose(&version, &log, delta)?;
            if giving.machines.is_empty() {
                return self.give_way(version, giving.others, Some(caller)).await;
            }
            if caller.is_gone() {
                return Err(self.abandoned());
            }
            let error = match self.log_soft(&version, &log, &giving.machines, &ticket).await {
                Ok(logged) => return self.lower_soft(logged, giving).await,
                Err(error) => error,
            };
            chosen = Some(giving);
            if !attempts.again(&error).await {
                return Err(self.failed(&error));
            }
            version = self.view_again(&mut attempts).await.map_err(|error| self.failed(&error))?;
        }
    }

    /// Chooses what goes for a smaller target size: never a Machine that has a Node.
    fn choose(&self, version: &GroupVersion, log: &DeletionLog, delta: i32) -> Result<Giving, ScaleError> {
        let there = self.there(log);
        // What is wanted has been promised already.
        let size = version.replicas.saturating_sub(count(log.wanted()));
        let target = size::decrease(size, delta, there.with_node).map_err(|error| self.refused(&error))?;
        let fewer = usize::try_from(size.saturating_sub(target)).unwrap_or_default();
        let mut waiting = there.waiting;
        waiting.sort_by_key(|machine| machine.failure.is_none());
        let staying = usize::try_from(target.saturating_sub(there.with_node)).unwrap_or_default();
        waiting.truncate(waiting.len().saturating_sub(staying).min(fewer));
        let machines: Vec<_> = waiting
            .into_iter()
            .map(|machine| Named { name: machine.meta.key.name.clone(), uid: machine.meta.uid.clone() })
            .collect();
        Ok(Giving { others: fewer - machines.len(), machines })
    }

    /// The Machines that are there now, but for those in the log.
    fn there(&self, log: &DeletionLog) -> There {
        let mut machines = self.index().machines(&self.id);
        machines.retain(|machine| log.get(&machine.meta.uid).is_none());
        let with_node = machines.iter().filter(|machine| machine.node_name.is_some() && !machine.deleting).count();
        let mut there = There { all: count(machines.len()), with_node: count(with_node), waiting: Vec::new() };
        if self.id.kind == ScalableKind::MachinePool
            && machines.is_empty()
            && let Ok(view) = self.index().scale_view(&self.id)
        {
            (there.all, there.with_node) = (view.machines, view.machines_with_node);
        }
        there.waiting = machines;
        there.waiting.retain(|machine| machine.node_name.is_none() && !machine.deleting);
        there
    }

    /// Logs Machines without a Node, as far as they are alive.
    async fn log_soft(
        &self,
        version: &GroupVersion,
        log: &DeletionLog,
        machines: &[Named],
        ticket: &Ticket,
    ) -> Result<GroupVersion, CallError> {
        let known = self.learn(version, log, machines).await?;
        let alive = machines.iter().filter(|named| known.lives.get(&named.uid) == Some(&rule::Life::Alive));
        let entries: Vec<_> = alive.map(|named| entry(named, ticket, true)).collect();
        if entries.is_empty() {
            return Ok(version.clone());
        }
        let text = log.clone().with(entries).print().map_err(|error| CallError::Refused(error.to_string()))?;
        let change = GroupChange { replicas: None, log: text };
        self.wrote_log(self.write(Write::Log, self.api().write_group(&self.id, version, &change)).await)
    }

    async fn lower_soft(&self, version: GroupVersion, giving: Giving) -> Result<(), ScaleError> {
        let bounds = Bounds { min: 0, max: i32::MAX };
        let uids: HashSet<_> = giving.machines.iter().map(|named| named.uid.clone()).collect();
        let soft = version.log().map_or(0, |log| uids.iter().filter(|uid| log.get(uid).is_some()).count());
        let lowered = self.carry_out(version, &uids, bounds, Marked::default()).await;
        let version = lowered.map_err(super::carry::NotLowered::error)?;
        // Cluster Autoscaler may ask for one of them that it still holds for an instance.
        let leaving = giving.machines.iter().map(|named| Leaving::Machine(self.machine_key(&named.name)));
        self.inner.going.accept(&self.id, leaving);
        // Those that went by themselves meanwhile are replicas without a Machine.
        self.give_way(version, giving.others + giving.machines.len() - soft, None).await
    }

    /// Lowers the size by as many, as far as there are replicas without a Machine, and not below the Machines that have a
    /// Node and what is promised to go: by what is there at the moment of each write.
    async fn give_way(&self, version: GroupVersion, most: usize, caller: Option<&Caller>) -> Result<(), ScaleError> {
        if most == 0 {
            return Ok(());
        }
        let decide = |version: &GroupVersion| {
            let Ok(log) = version.log() else { return Ok(version.replicas) };
            let there = self.there(&log);
            // Lowered entries count no more in the size, wanted ones still do; neither is among those that are there.
            let wanted = self::count(log.wanted());
            let missing = version.replicas.saturating_sub(there.all.saturating_add(wanted)).max(0);
            match missing.min(self::count(most)) {
                0 => Ok(version.replicas),
                fewer => size::decrease(version.replicas, -fewer, there.with_node.saturating_add(wanted)),
            }
        };
        self.resize(version, decide, caller).await
    }

    /// Writes the size that `decide` makes of the group. The first decision is made on `version`, without a read. Before
    /// the first write it ends with its caller.
    async fn resize(
        &self,
        mut version: GroupVersion,
        decide: impl Fn(&GroupVersion) -> Result<i32, SizeError>,
        caller: Option<&Caller>,
    ) -> Result<(), ScaleError> {
        let writer = SizeWriter::draw();
        let mut attempts = self.attempts();
        let mut maybe_done = false;
        let mut refused = false;
        loop {
            let to = decide(&version).map_err(|error| self.refused(&error))?;
            let from = version.replicas;
            if to == from {
                tracing::info!(group = %self.id, size = from, "size is left as it is");
                return Ok(());
            }
            if !maybe_done && caller.is_some_and(Caller::is_gone) {
                return Err(self.abandoned());
            }
            let error = match self.write(Write::Size, self.api().write_size(&self.id, &version, to, &writer)).await {
                Ok(written) => {
                    self.wrote(&written, SizeWritten { from, machines: &[], attempts: &attempts });
                    return Ok(());
                }
                Err(error) => error,
            };
            maybe_done |= matches!(error, CallError::Unknown(..));
            let is_tried_again = attempts.again(&error).await;
            if !is_tried_again && !maybe_done {
                return Err(self.failed(&error));
            }
            if is_tried_again && matches!(error, CallError::Busy(..) | CallError::Unauthorized(_)) {
                // Nothing was done, and nothing has been seen to change.
                continue;
            }
            // What may have been done is looked at, whether it is tried again or not.
            let now = match self.see_again(&mut self.attempts()).await {
                Ok(now) => now,
                Err(unread) if maybe_done => return Err(self.unread(from, to, &unread)),
                Err(unread) => return Err(self.failed(&unread)),
            };
            let GroupSeen { version: now, managed } = now;
            let fate = if maybe_done { rule::fate(&version, &now, to, writer.of(&managed)) } else { Fate::NotDone };
            match fate {
                Fate::Done => {
                    self.wrote(&now, SizeWritten { from, machines: &[], attempts: &attempts });
                    return Ok(());
                }
                Fate::NotDone if is_tried_again => {}
                // It may arrive yet: nothing was refused for good.
                Fate::NotDone | Fate::Unknown => return Err(self.unknown(from, to, now.replicas, &error)),
            }
            if let CallError::Rejected(message) = &error
                && now.replicas == from
            {
                // The size was as expected, and yet the write was rejected: by validation or a webhook.
                if std::mem::replace(&mut refused, true) {
                    return Err(self.refuses(to, message));
                }
            }
            version = now;
        }
    }

    fn unread(&self, from: i32, to: i32, error: &CallError) -> ScaleError {
        ScaleError::Unavailable(format!(
            "{}; so it isn't known whether the size write {from} to {to}, which had no answer, was done; read the size \
             before asking again",
            self.failed(error)
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
