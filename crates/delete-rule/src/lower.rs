//! The write that lowers the size for wanted entries.

use crate::{Bounds, Entry, GroupMachines, Log, Map, Phase, Policy, Rule, Set, SizeError, Types, as_i64, size};

/// The write that lowers the size for wanted entries.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Lowering<T: Types> {
    /// The new size.
    pub to: i32,
    /// The log, written together with the size.
    pub log: Log<T>,
    /// The names of the Machines for which the size is lowered.
    pub names: Vec<T::Name>,
}

impl<P: Policy> Rule<P> {
    /// Returns true if the log takes a Machine from those that stay. A Machine whose entry is soft and already lowered
    /// may stay after all.
    pub fn leaves<T: Types>(self, log: &Log<T>, uid: &T::Uid) -> bool {
        let stays = |entry: &Entry<T>| entry.soft && entry.phase == Phase::Lowered && self.0.counts_soft_as_staying();
        self.0.counts_by_log() && log.get(uid).is_some_and(|entry| !stays(entry))
    }

    /// Returns the entries of `deleted_elsewhere` whose place another Machine has taken, by a list that is newer than
    /// the view of the group. The size exceeds the Machines that stay by the number of open places. The returned
    /// entries leave the log without lowering the size.
    pub fn filled<T: Types>(
        self,
        log: &Log<T>,
        replicas: i32,
        listed: &GroupMachines<T>,
        deleted_elsewhere: &[&Entry<T>],
    ) -> Set<T> {
        let staying = listed.alive.iter().filter(|uid| log.get(uid).is_none()).count();
        let size = i64::from(replicas) - as_i64(log.wanted() - deleted_elsewhere.len());
        let open = usize::try_from(size - as_i64(staying)).unwrap_or_default();
        let open = if self.0.counts_deleted_elsewhere() { open } else { deleted_elsewhere.len() };
        deleted_elsewhere.iter().skip(open).map(|entry| entry.uid.clone()).collect()
    }

    /// Lowers the size for the wanted entries whose Machines are marked under the entry's ticket. Entries of `filled`
    /// leave the log without lowering the size. Returns `None` if there is nothing to write. If the minimum doesn't
    /// permit all, the soft ones stay wanted.
    ///
    /// # Errors
    /// Fails if the size would be below the minimum.
    pub fn lower<T: Types>(
        self,
        log: &Log<T>,
        replicas: i32,
        bounds: Bounds,
        marked: &Map<T, T::Ticket>,
        filled: &Set<T>,
    ) -> Result<Option<Lowering<T>>, SizeError> {
        let is_filled = |entry: &Entry<T>| filled.contains(&entry.uid);
        let is_ready =
            |entry: &Entry<T>| entry.phase == Phase::Wanted && self.has_its_mark(entry, marked) && !is_filled(entry);
        let lower = |is_such: &dyn Fn(&Entry<T>) -> bool| {
            let names: Vec<_> =
                log.entries().iter().filter(|entry| is_such(entry)).map(|entry| entry.name.clone()).collect();
            let to = size::delete(replicas, names.len(), bounds)?;
            let is_written = !names.is_empty() || !filled.is_empty();
            Ok(is_written.then(|| Lowering { to, log: log.clone().without(is_filled).lowered(is_such), names }))
        };
        let is_hard = |entry: &Entry<T>| is_ready(entry) && !entry.soft;
        lower(&is_ready).or_else(|error| match lower(&is_hard) {
            Ok(None) => Err(error),
            hard => hard,
        })
    }

    fn has_its_mark<T: Types>(self, entry: &Entry<T>, marked: &Map<T, T::Ticket>) -> bool {
        !self.0.marks()
            || marked.get(&entry.uid).is_some_and(|ticket| *ticket == entry.ticket || !self.0.compares_tickets())
    }
}
