//! The write that lowers the size for what is wanted.

use crate::{Bounds, Entry, Listed, Log, Map, Phase, Policy, Rule, Set, SizeError, Types, as_i64, size};

/// The write that lowers the size for what is wanted.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Lowering<T: Types> {
    /// The size.
    pub to: i32,
    /// The log, written with it.
    pub log: Log<T>,
    /// The names of those for which it is lowered.
    pub names: Vec<T::Name>,
}

impl<P: Policy> Rule<P> {
    /// Returns true if the log takes a Machine from those that stay. One that only steers which goes for a size that is
    /// lowered already may stay after all.
    pub fn leaves<T: Types>(self, log: &Log<T>, uid: &T::Uid) -> bool {
        let stays = |entry: &Entry<T>| entry.soft && entry.phase == Phase::Lowered && self.0.counts_soft_as_staying();
        self.0.counts_by_log() && log.get(uid).is_some_and(|entry| !stays(entry))
    }

    /// Entries whose Machines go by themselves and whose places are filled, by a list from after the group was viewed: of
    /// `going` as many as the size doesn't count beyond the Machines that stay. They leave the log, and the size stays as it
    /// is for them.
    pub fn filled<T: Types>(self, log: &Log<T>, replicas: i32, listed: &Listed<T>, going: &[&Entry<T>]) -> Set<T> {
        let staying = listed.alive.iter().filter(|uid| log.get(uid).is_none()).count();
        let size = i64::from(replicas) - as_i64(log.wanted() - going.len());
        let open = usize::try_from(size - as_i64(staying)).unwrap_or_default();
        let open = if self.0.counts_going() { open } else { going.len() };
        going.iter().skip(open).map(|entry| entry.uid.clone()).collect()
    }

    /// Lowers the size for entries that are wanted under the ticket under which they were marked, but for those whose places
    /// are `filled`, which leave the log; `None` when there is nothing to write. Where the minimum leaves no room for all,
    /// the soft ones stay.
    ///
    /// # Errors
    /// When the size would be below the minimum.
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
