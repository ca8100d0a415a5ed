//! The lowered entries whose smaller size has reached whoever has the Machines made.

use std::collections::HashMap;

use crate::{Complete, Entry, Log, Map, Phase, Policy, Rule, Types};

/// The kinds of groups.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Kind {
    /// A MachineDeployment, whose MachineSets have copies of its log and size.
    MachineDeployment,
    /// A MachineSet that is the group itself.
    MachineSet,
    /// A MachinePool, whose infrastructure chooses which Machine goes.
    MachinePool,
}

/// An object that has Machines made: a MachineSet of a MachineDeployment, or the group's own.
pub trait Source<T: Types> {
    /// spec.replicas.
    fn replicas(&self) -> Option<i32>;
    /// The size that was copied with the log.
    fn desired_replicas(&self) -> Option<i32>;
    /// status.replicas.
    fn status_replicas(&self) -> i32;
    /// metadata.generation.
    fn generation(&self) -> i64;
    /// The generation that its controller has seen.
    fn seen_generation(&self) -> i64;
    /// Its log, where it has one that can be read. It is asked for only where it counts.
    fn log(&self) -> Option<&Log<T>>;
}

/// The moment at which a Machine may be deleted by name that a smaller size has left.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) enum ByName {
    /// Its MachineSet has counted it out.
    #[default]
    AtOnce,
    /// There are more replicas than its MachinePool should have: its provider hasn't acted.
    NotYet,
    /// Once its provider had the time to delete it.
    InTime,
}

/// The lowered entries whose smaller size has reached whoever has the Machines made, by uid and ticket.
#[derive(Clone, Debug, Default)]
pub struct Followed<T: Types, P = Complete> {
    tickets: Map<T, T::Ticket>,
    pub(crate) by_name: ByName,
    policy: P,
}

impl<P: Policy> Rule<P> {
    /// The entries that are followed, by what the objects show that have the Machines made.
    pub fn followed<T: Types, S: Source<T>>(self, kind: Kind, sources: &[S]) -> Followed<T, P> {
        // A new Machine of an old MachineSet would be as wrong as one of the newest.
        if !sources.iter().all(|set| set.seen_generation() == set.generation()) && self.0.waits_until_seen() {
            return Followed { tickets: HashMap::default(), by_name: ByName::default(), policy: self.0 };
        }
        let has_size = |set: &&S| match kind {
            Kind::MachineDeployment => has_its_size(*set, sources),
            Kind::MachineSet | Kind::MachinePool => true,
        };
        let logs = sources.iter().filter(has_size).filter_map(Source::log);
        let lowered = logs.flat_map(Log::entries).filter(|entry| entry.phase == Phase::Lowered);
        let has_come_down = sources.iter().all(|pool| pool.status_replicas() <= pool.replicas().unwrap_or_default());
        let by_name = match kind {
            Kind::MachineDeployment | Kind::MachineSet => ByName::AtOnce,
            Kind::MachinePool if has_come_down => ByName::InTime,
            Kind::MachinePool => ByName::NotYet,
        };
        let tickets = lowered.map(|entry| (entry.uid.clone(), entry.ticket.clone())).collect();
        Followed { tickets, by_name, policy: self.0 }
    }
}

impl<T: Types, P: Policy> Followed<T, P> {
    /// Returns true if this entry is lowered and followed.
    pub fn has(&self, entry: &Entry<T>) -> bool {
        let is_its = |ticket: &T::Ticket| *ticket == entry.ticket || !self.policy.compares_tickets();
        entry.phase == Phase::Lowered && self.tickets.get(&entry.uid).is_some_and(is_its)
    }

    /// Returns true if all entries of a log are.
    pub fn has_all(&self, log: &Log<T>) -> bool {
        log.entries().iter().all(|entry| self.has(entry))
    }

    /// Returns true if the Machine of an entry of this log may be deleted by name, if it is there: no other Machine is to go
    /// for which a smaller size may still take this one.
    pub fn permits_by_name(&self, log: &Log<T>, entry: &Entry<T>) -> bool {
        let waits = !self.has_all(log) && self.policy.waits_for_others();
        self.by_name != ByName::NotYet && log.get(&entry.uid) == Some(entry) && self.has(entry) && !waits
    }

    /// The same, with these entries too: what was once seen to be followed stays so.
    #[must_use]
    pub fn and(mut self, entries: impl IntoIterator<Item = Entry<T>>) -> Self {
        self.tickets.extend(entries.into_iter().map(|entry| (entry.uid, entry.ticket)));
        self
    }
}

/// Returns true if a MachineSet has the log, the whole size that came with it, and all Machines. In a rollout none has the whole
/// size, and nothing tells how much of the smaller one each has been given: one that hasn't would make a Machine in the place of
/// one that is deleted by name. Nor does the size of one without the log tell, which may be the whole one by chance.
fn has_its_size<T: Types, S: Source<T>>(set: &S, sources: &[S]) -> bool {
    let mut active = sources.iter().filter_map(Source::replicas).filter(|replicas| *replicas > 0);
    let whole = Some(active.next().unwrap_or_default());
    active.next().is_none() && set.replicas() == whole && set.desired_replicas() == whole
}
