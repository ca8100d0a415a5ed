//! The lowered entries whose smaller size has reached the objects that create the Machines.

use std::collections::HashMap;

use crate::{Complete, Entry, Log, Map, Phase, Policy, Rule, Types};

/// The kinds of node groups.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Kind {
    /// A MachineDeployment, whose MachineSets have copies of its log and size.
    MachineDeployment,
    /// A MachineSet that is a node group itself.
    MachineSet,
    /// A MachinePool, whose infrastructure chooses the Machine to delete.
    MachinePool,
}

/// An object that creates Machines: a MachineSet of a MachineDeployment, or the node group itself.
pub trait Source<T: Types> {
    /// Returns `spec.replicas`.
    fn replicas(&self) -> Option<i32>;
    /// Returns the size that was copied together with the log.
    fn desired_replicas(&self) -> Option<i32>;
    /// Returns `status.replicas`.
    fn status_replicas(&self) -> i32;
    /// Returns `metadata.generation`.
    fn generation(&self) -> i64;
    /// Returns the generation that its controller has observed.
    fn seen_generation(&self) -> i64;
    /// Returns its log, if it has one that can be read. Only called where the log matters.
    fn log(&self) -> Option<&Log<T>>;
}

/// The time at which a Machine that the smaller size should have removed may be deleted by name.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) enum ByName {
    /// At once: its MachineSet no longer counts it.
    #[default]
    AtOnce,
    /// Not yet: its MachinePool has more replicas than desired, so its provider hasn't acted.
    NotYet,
    /// After its provider has had enough time to delete it.
    InTime,
}

/// The lowered entries whose smaller size has reached the objects that create the Machines, by uid and ticket.
#[derive(Clone, Debug, Default)]
pub struct Followed<T: Types, P = Complete> {
    tickets: Map<T, T::Ticket>,
    /// True if a MachineSet has the group's size. Only a policy that doesn't wait for the copied log uses it.
    has_size: bool,
    pub(crate) by_name: ByName,
    policy: P,
}

impl<P: Policy> Rule<P> {
    /// Returns the entries that are followed, judged by the objects that create the Machines.
    pub fn followed<T: Types, S: Source<T>>(self, kind: Kind, sources: &[S]) -> Followed<T, P> {
        // An old MachineSet that hasn't observed its size yet would replace a deleted Machine, too.
        if !sources.iter().all(|set| set.seen_generation() == set.generation()) && self.0.waits_until_seen() {
            let by_name = ByName::default();
            return Followed { tickets: HashMap::default(), has_size: false, by_name, policy: self.0 };
        }
        let has_size = |set: &&S| match kind {
            Kind::MachineDeployment => has_its_size(*set, sources) || !self.0.waits_until_alone(),
            Kind::MachineSet | Kind::MachinePool => true,
        };
        let logs = sources.iter().filter(has_size).filter_map(Source::log);
        let lowered = logs.flat_map(Log::entries).filter(|entry| entry.phase == Phase::Lowered);
        let has_come_down = sources.iter().all(|pool| pool.status_replicas() <= pool.replicas().unwrap_or_default());
        let by_name = match kind {
            Kind::MachineDeployment | Kind::MachineSet => ByName::AtOnce,
            Kind::MachinePool if !self.0.leaves_to_provider() => ByName::AtOnce,
            Kind::MachinePool if has_come_down => ByName::InTime,
            Kind::MachinePool => ByName::NotYet,
        };
        let tickets = lowered.map(|entry| (entry.uid.clone(), entry.ticket.clone())).collect();
        Followed { tickets, has_size: sources.iter().any(|set| has_size(&set)), by_name, policy: self.0 }
    }
}

impl<T: Types, P: Policy> Followed<T, P> {
    /// Returns true if this entry is lowered and followed.
    pub fn has(&self, entry: &Entry<T>) -> bool {
        let is_its = |ticket: &T::Ticket| *ticket == entry.ticket || !self.policy.compares_tickets();
        let is_in_log = self.tickets.get(&entry.uid).is_some_and(is_its);
        entry.phase == Phase::Lowered && (is_in_log || (self.has_size && !self.policy.waits_for_log()))
    }

    /// Returns true if all entries of a log are lowered and followed.
    pub fn has_all(&self, log: &Log<T>) -> bool {
        log.entries().iter().all(|entry| self.has(entry))
    }

    /// Returns true if the Machine of an entry of this log may be deleted by name, if it exists: no other deletion may
    /// be pending whose smaller size could still take this Machine.
    pub(crate) fn permits_by_name(&self, log: &Log<T>, entry: &Entry<T>) -> bool {
        let waits = !self.has_all(log) && self.policy.waits_for_others();
        self.by_name != ByName::NotYet && log.get(&entry.uid) == Some(entry) && self.has(entry) && !waits
    }

    /// Adds entries that were followed before: an entry once seen as followed stays so.
    #[must_use]
    pub fn and(mut self, entries: impl IntoIterator<Item = Entry<T>>) -> Self {
        self.tickets.extend(entries.into_iter().map(|entry| (entry.uid, entry.ticket)));
        self
    }
}

/// Returns true if a MachineSet has the group's whole size, which was copied with the log, and no other MachineSet has
/// replicas. During a rollout no MachineSet has the whole size, and nothing shows which one was scaled down. A
/// MachineSet that wasn't scaled down would replace a Machine that is deleted by name.
fn has_its_size<T: Types, S: Source<T>>(set: &S, sources: &[S]) -> bool {
    let mut active = sources.iter().filter_map(Source::replicas).filter(|replicas| *replicas > 0);
    let whole = Some(active.next().unwrap_or_default());
    active.next().is_none() && set.replicas() == whole && set.desired_replicas() == whole
}
