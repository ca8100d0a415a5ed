//! Acceptance of a batch of deletion requests, in order of arrival: each is accepted as a whole or refused as a whole.

use std::collections::HashSet;

use crate::{
    Bounds, Complete, Entry, GroupMachines, Life, Log, Map, Named, Phase, Policy, Rule, Set, SizeError, Types, as_i64,
    size,
};

/// The instances that a request names.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Request<T: Types> {
    /// The named Machines.
    pub machines: Vec<Named<T>>,
    /// The number of placeholders for replicas without a Machine.
    pub replicas: usize,
    /// The number of MachinePool instances that have no Machine; they only lower the size.
    pub instances: usize,
}

impl<T: Types> Request<T> {
    /// Returns true if the request names only Machines.
    #[must_use]
    pub fn is_of_machines(&self) -> bool {
        self.replicas + self.instances == 0
    }
}

/// The state of a group on which requests are decided.
#[derive(Clone, Debug)]
pub struct GroupState<'a, T: Types> {
    /// The group's log.
    pub log: &'a Log<T>,
    /// The group's size.
    pub replicas: i32,
    /// The bounds of the size.
    pub bounds: Bounds,
    /// The life of each Machine that a request names and that isn't in the log.
    pub lives: &'a Map<T, Life>,
    /// The Machines of `lives` that have a Node although the request names them as ones that never joined.
    pub joined: &'a Set<T>,
    /// All Machines of the group, read at the same moment as `lives`. May be empty if no named Machine is being deleted
    /// and no placeholder is named, since it is only used in those cases.
    pub listed: &'a GroupMachines<T>,
    /// True if a MachineSet counts Machines that are being deleted as replicas. If it doesn't, it replaces each of them
    /// at once, and a smaller size would take a Machine that is alive.
    pub counts_deleting: bool,
    /// The number of placeholders whose replicas are known to be given up already.
    pub given_up: usize,
}

/// The part of an accepted request besides the Machines that it names.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Accepted<T: Types> {
    /// Machines for which the request has placeholders: they are being deleted and have no Node any more.
    pub without_node: Vec<Named<T>>,
    /// The number of replicas without a Machine, which only lower the size.
    pub replicas: usize,
}

/// The reason why a request is refused.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Refusal<T: Types> {
    /// The Machine is in the log for a smaller target size, and will leave the log within seconds.
    InTheWay(T::Name),
    /// The Machine has a Node although the request names it as one that never joined.
    HasJoined(T::Name),
    /// Placeholders have become Machines in the meantime.
    Replaced {
        /// The number of placeholders that the request names.
        named: usize,
        /// The number of placeholders that are left.
        left: usize,
    },
    /// The request names a MachinePool instance as one without a Machine, but the pool has Machines. The instance's own
    /// Machine has no mark, so that a smaller size would take another one.
    IsOfMachines,
    /// The size would be below the minimum.
    BelowMin(SizeError),
    /// The log would be too large.
    Log(T::LogError),
}

/// The requests of one batch that have been accepted so far, in order of arrival.
#[derive(Debug)]
pub struct Acceptance<'a, T: Types, P = Complete> {
    rule: Rule<P>,
    group: GroupState<'a, T>,
    ticket: T::Ticket,
    log: Log<T>,
    others: usize,
    given_up: usize,
}

impl<P: Policy> Rule<P> {
    /// Begins to accept requests, which are logged under this ticket.
    pub fn acceptance<T: Types>(self, group: GroupState<'_, T>, ticket: T::Ticket) -> Acceptance<'_, T, P> {
        Acceptance { rule: self, log: group.log.clone(), given_up: group.given_up, group, ticket, others: 0 }
    }

    /// Returns true if a request may be accepted during a rollout. A smaller size may take any Machine then, so a
    /// Machine that is alive must be in the log already. Other Machines are being deleted or gone, and are removed from
    /// the request: the rollout deletes or replaces them.
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
    /// Accepts a request as a whole, or refuses it.
    ///
    /// # Errors
    /// Returns the reason why the request is refused.
    pub fn accept(&mut self, request: &Request<T>) -> Result<Accepted<T>, Refusal<T>> {
        if request.instances > 0 && !self.group.listed.is_empty() {
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
            if named.never_joined && self.group.joined.contains(&named.uid) {
                return Err(Refusal::HasJoined(named.name.clone()));
            }
            match self.group.lives.get(&named.uid) {
                Some(Life::Alive) => leaving.push(named),
                Some(Life::Deleting) => deleting.push(named),
                Some(Life::Gone) if !policy.spares_gone() => leaving.push(named),
                Some(Life::Gone) | None => {}
            }
        }
        let alive = leaving.len();
        let size = self.size_without(leaving.len() + request.instances);
        if self.group.counts_deleting && !deleting.is_empty() {
            let replaced = if policy.counts_deleting() { self.replaced(size, &leaving) } else { deleting.len() };
            leaving.extend(deleting.into_iter().take(replaced));
        }
        let mut accepted = Accepted::default();
        let mut given_up = 0;
        if request.replicas > 0 {
            let listed = self.group.listed;
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
                // The size has already been lowered for a Machine with a soft entry.
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
            size::delete(self.group.replicas, count, self.group.bounds).map_err(Refusal::BelowMin)?;
        }
        let checked = self.log.entries().len();
        for (position, named) in leaving.into_iter().enumerate() {
            let counted = position >= alive;
            self.log.push(Entry { counted, ..Entry::wanted(named, &self.ticket, false) });
        }
        if let Err(error) = T::check(&self.log, checked) {
            self.log.truncate(checked);
            return Err(Refusal::Log(error));
        }
        self.others = others;
        self.given_up -= given_up;
        Ok(accepted)
    }

    /// Returns at most `most` Machines for which there are placeholders and whose deletion is already in the log.
    fn wanted_placeholders(&self, most: usize) -> Vec<Named<T>> {
        let is_wanted = |named: &&Named<T>| {
            self.log.get(&named.uid).is_some_and(|entry| entry.phase == Phase::Wanted && !entry.soft)
        };
        self.group.listed.without_node.iter().filter(is_wanted).take(most).cloned().collect()
    }

    /// Returns the size decided so far, lowered by `count`.
    fn size_without(&self, count: usize) -> i64 {
        let wanted = if self.rule.0.counts_by_log() { self.log.wanted() } else { 0 };
        i64::from(self.group.replicas) - as_i64(wanted + self.others + count)
    }

    /// Returns the number of Machines being deleted that would be replaced by new ones: the number by which the size
    /// decided so far exceeds the Machines that stay.
    fn replaced(&self, size: i64, leaving: &[&Named<T>]) -> usize {
        let logged = self.log.entries().iter().map(|entry| &entry.uid);
        let leaving: HashSet<_, T::Hasher> = logged.chain(leaving.iter().map(|named| &named.uid)).collect();
        let staying = self.group.listed.alive.iter().filter(|uid| !leaving.contains(uid)).count();
        usize::try_from(size - as_i64(staying)).unwrap_or_default()
    }

    /// Returns the log with all accepted requests, or `None` if they added nothing to it.
    #[must_use]
    pub fn log(&self) -> Option<&Log<T>> {
        (self.log != *self.group.log).then_some(&self.log)
    }
}

/// Returns the number of placeholders whose replicas are known to be given up already: the maximum of `came_down` (the
/// size's decrease since it was first seen), the number in the log, and `remembered`.
#[must_use]
pub fn given_up<T: Types>(log: &Log<T>, listed: &GroupMachines<T>, came_down: i32, remembered: usize) -> usize {
    let is_given_up = |entry: &&Entry<T>| match entry.phase {
        Phase::Lowered => entry.counted,
        // Its Machine is gone, and the size will be lowered for it.
        Phase::Wanted => !entry.soft && !listed.has(&entry.uid),
    };
    let in_log = log.entries().iter().filter(is_given_up).count();
    usize::try_from(came_down).unwrap_or_default().max(in_log).max(remembered)
}
