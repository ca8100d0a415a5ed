//! The acceptance of requests that stand together: each as a whole or not at all, in order of arrival.

use std::collections::HashSet;

use crate::{
    Bounds, Complete, Entry, Life, Listed, Log, Map, Named, Phase, Policy, Rule, Set, SizeError, Types, as_i64, size,
};

/// The instances that a request names.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Request<T: Types> {
    /// Machines.
    pub machines: Vec<Named<T>>,
    /// The number of placeholders of replicas.
    pub replicas: usize,
    /// The number of instances of a MachinePool that are no Machines, which only lower the size.
    pub instances: usize,
}

impl<T: Types> Request<T> {
    /// Returns true if it names Machines alone.
    #[must_use]
    pub fn is_of_machines(&self) -> bool {
        self.replicas + self.instances == 0
    }
}

/// The view of a group on which requests are decided.
#[derive(Clone, Debug)]
pub struct Seen<'a, T: Types> {
    /// Its log.
    pub log: &'a Log<T>,
    /// Its size.
    pub replicas: i32,
    /// The bounds of its size.
    pub bounds: Bounds,
    /// Of each Machine that a request names and that isn't in the log.
    pub lives: &'a Map<T, Life>,
    /// Those of them that have a Node although they are given up as ones that never joined.
    pub joined: &'a Set<T>,
    /// All Machines of the group, at the same moment as `lives`. Empty where no named one is being deleted and no
    /// placeholder is named: only then it matters.
    pub listed: &'a Listed<T>,
    /// True if a MachineSet counts Machines that are being deleted as replicas. Where it doesn't, a new one comes for each
    /// at once, and a smaller size would take one that is alive.
    pub counts_deleting: bool,
    /// The number of placeholders that are known to be given up already.
    pub given_up: usize,
}

/// The part of an accepted request beside the Machines that it names.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Accepted<T: Types> {
    /// Machines that are being deleted and have no Node any more, which its placeholders stand for.
    pub without_node: Vec<Named<T>>,
    /// The number of replicas without a Machine, which only lower the size.
    pub replicas: usize,
}

/// The reason for which a request isn't accepted.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Refusal<T: Types> {
    /// A Machine is in the log for a smaller target size, and leaves it within seconds.
    InTheWay(T::Name),
    /// A Machine has a Node although it is named as one that never joined.
    HasJoined(T::Name),
    /// Placeholders have become Machines since.
    Replaced {
        /// The number that was named.
        named: usize,
        /// The number that is left.
        left: usize,
    },
    /// An instance of a MachinePool was named as one that is no Machine, and the pool has Machines: without a mark on its own
    /// another would go.
    IsOfMachines,
    /// The size would be below the minimum.
    BelowMin(SizeError),
    /// The log has no room.
    Log(T::LogError),
}

/// Requests of one batch that have been accepted so far, in order of arrival.
#[derive(Debug)]
pub struct Acceptance<'a, T: Types, P = Complete> {
    rule: Rule<P>,
    seen: Seen<'a, T>,
    ticket: T::Ticket,
    log: Log<T>,
    others: usize,
    given_up: usize,
}

impl<P: Policy> Rule<P> {
    /// Begins to accept requests that are logged under this ticket.
    pub fn acceptance<T: Types>(self, seen: Seen<'_, T>, ticket: T::Ticket) -> Acceptance<'_, T, P> {
        Acceptance { rule: self, log: seen.log.clone(), given_up: seen.given_up, seen, ticket, others: 0 }
    }

    /// Returns true if a request may be accepted while the group is rolling out, in which a smaller size may take any
    /// Machine. What is decided already goes on; what somebody else is deleting needs nothing and leaves the request: it is
    /// the rollout's, or will be made good by it.
    pub fn admits_in_rollout<T: Types>(self, request: &mut Request<T>, log: &Log<T>, lives: &Map<T, Life>) -> bool {
        let is_logged = |uid: &T::Uid| log.get(uid).is_some();
        let takes = |uid: &T::Uid| !is_logged(uid) && lives.get(uid) == Some(&Life::Alive);
        if !request.is_of_machines() || request.machines.iter().any(|named| takes(&named.uid)) {
            return false;
        }
        request.machines.retain(|named| is_logged(&named.uid));
        true
    }
}

impl<T: Types, P: Policy> Acceptance<'_, T, P> {
    /// Accepts a request as a whole or not at all.
    ///
    /// # Errors
    /// The reason for which it isn't accepted.
    pub fn accept(&mut self, request: &Request<T>) -> Result<Accepted<T>, Refusal<T>> {
        if request.instances > 0 && !self.seen.listed.is_empty() {
            return Err(Refusal::IsOfMachines);
        }
        let policy = self.rule.0;
        let mut leaving = Vec::new();
        let mut deleting = Vec::new();
        for named in &request.machines {
            match self.log.get(&named.uid) {
                Some(entry) if entry.soft => return Err(Refusal::InTheWay(named.name.clone())),
                Some(_) => continue,
                None => {}
            }
            if named.never_joined && self.seen.joined.contains(&named.uid) {
                return Err(Refusal::HasJoined(named.name.clone()));
            }
            match self.seen.lives.get(&named.uid) {
                Some(Life::Alive) => leaving.push(named),
                Some(Life::Deleting) => deleting.push(named),
                Some(Life::Gone) if !policy.spares_gone() => leaving.push(named),
                Some(Life::Gone) | None => {}
            }
        }
        let alive = leaving.len();
        let size = self.size_without(leaving.len() + request.instances);
        if self.seen.counts_deleting && !deleting.is_empty() {
            let replaced = if policy.counts_deleting() { self.replaced(size, &leaving) } else { deleting.len() };
            leaving.extend(deleting.into_iter().take(replaced));
        }
        let mut accepted = Accepted::default();
        let mut given_up = 0;
        if request.replicas > 0 {
            let listed = self.seen.listed;
            let rule = self.rule;
            let leaves = |uid: &T::Uid| rule.leaves(&self.log, uid) || leaving.iter().any(|named| named.uid == *uid);
            let size = self.size_without(leaving.len() + request.instances);
            let left = listed.placeholders(size, leaves).min(request.replicas);
            let joined = self.wanted_placeholders(request.replicas - left);
            given_up = request.replicas - left - joined.len();
            if given_up > self.given_up {
                return Err(Refusal::Replaced { named: request.replicas, left });
            }
            if listed.instances.is_none() {
                // One with a soft entry has lowered the size by its own place already.
                let is_free = |named: &&Named<T>| self.log.get(&named.uid).is_none() && !leaves(&named.uid);
                let without_node = listed.without_node.iter().filter(is_free);
                accepted.without_node = without_node.take(left).cloned().collect();
            }
            accepted.replicas = left - accepted.without_node.len();
            leaving.extend(listed.without_node.iter().filter(|named| accepted.without_node.contains(named)));
            accepted.without_node.extend(joined);
        }
        let others = self.others + accepted.replicas + request.instances;
        if leaving.len() + accepted.replicas + request.instances > 0 {
            let count = self.log.wanted() + leaving.len() + others;
            size::delete(self.seen.replicas, count, self.seen.bounds).map_err(Refusal::BelowMin)?;
        }
        let entries = leaving.into_iter().enumerate().map(|(position, named)| {
            let counted = position >= alive;
            Entry { counted, ..Entry::wanted(named, &self.ticket, false) }
        });
        let log = self.log.clone().with(entries);
        T::check(&log).map_err(Refusal::Log)?;
        (self.log, self.others) = (log, others);
        self.given_up -= given_up;
        Ok(accepted)
    }

    /// Machines that placeholders stand for and whose deletion is wanted already, at most so many.
    fn wanted_placeholders(&self, most: usize) -> Vec<Named<T>> {
        let is_wanted = |named: &&Named<T>| {
            self.log.get(&named.uid).is_some_and(|entry| entry.phase == Phase::Wanted && !entry.soft)
        };
        self.seen.listed.without_node.iter().filter(is_wanted).take(most).cloned().collect()
    }

    /// The size that is decided so far, less as many.
    fn size_without(&self, count: usize) -> i64 {
        let wanted = if self.rule.0.counts_by_log() { self.log.wanted() } else { 0 };
        i64::from(self.seen.replicas) - as_i64(wanted + self.others + count)
    }

    /// The number of those that are being deleted that would be replaced by new Machines: as long as the size that is decided
    /// so far counts more than are there to stay.
    fn replaced(&self, size: i64, leaving: &[&Named<T>]) -> usize {
        let logged = self.log.entries().iter().map(|entry| &entry.uid);
        let leaving: HashSet<_, T::Hasher> = logged.chain(leaving.iter().map(|named| &named.uid)).collect();
        let staying = self.seen.listed.alive.iter().filter(|uid| !leaving.contains(uid)).count();
        usize::try_from(size - as_i64(staying)).unwrap_or_default()
    }

    /// The log with all that was accepted, if that added to it.
    #[must_use]
    pub fn log(&self) -> Option<&Log<T>> {
        (self.log != *self.seen.log).then_some(&self.log)
    }
}

/// The number of placeholders that are known to be given up already: as many as the size came down since it was seen first, as
/// the log tells, and as was remembered.
#[must_use]
pub fn given_up<T: Types>(log: &Log<T>, listed: &Listed<T>, came_down: i32, remembered: usize) -> usize {
    let is_given_up = |entry: &&Entry<T>| match entry.phase {
        Phase::Lowered => entry.counted,
        // Its Machine is gone, and the size will come down for it.
        Phase::Wanted => !entry.soft && !listed.has(&entry.uid),
    };
    let in_log = log.entries().iter().filter(is_given_up).count();
    usize::try_from(came_down).unwrap_or_default().max(in_log).max(remembered)
}
