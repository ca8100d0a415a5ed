//! Checks on sizes that are lowered for replicas without a Machine: they must be decided on a list of the Machines that
//! is made after the group was read, and anew after each failed write.

use std::collections::{BTreeSet, HashMap};

use super::{Check, Group, Ledger, Machine, log::Log, refusals::OLD, watches::Kind};
use crate::entropy::{Nanos, SECOND};

/// The longest time for which a list of Machines is used: as long as a command goes on.
const KEPT: Nanos = 300 * SECOND;
/// The longest time from a decision of an untroubled copy to the log that it writes.
const DECIDES: Nanos = 15 * SECOND;

/// The lists of Machines and the writes of sizes of all copies.
#[derive(Debug, Default)]
pub(super) struct Counts {
    /// The Machines that were alive, by uid, at the time of each list of a copy.
    lists: HashMap<usize, Vec<(Nanos, BTreeSet<String>)>>,
    /// The times at which a size was sent, by the name under which it is written.
    attempts: HashMap<String, Vec<Nanos>>,
}

impl Counts {
    /// Returns the time at which a size was first sent under a name.
    pub(super) fn first_sent(&self, writer: &str) -> Option<Nanos> {
        self.attempts.get(writer)?.first().copied()
    }
}

impl Ledger {
    /// Records that a copy lists all Machines.
    pub(super) fn lists_machines(&mut self, copy: usize) {
        let there = self.machines.iter().filter(|(_, machine)| !machine.is_deleting && !machine.is_gone);
        let there = there.map(|(uid, _)| uid.clone()).collect();
        let now = self.now;
        let lists = self.counts.lists.entry(copy).or_default();
        lists.retain(|(at, _)| at + KEPT > now);
        lists.push((now, there));
    }

    /// Records that a size is sent under a name.
    pub(super) fn sends_size(&mut self, writer: &str, at: Nanos) {
        self.counts.attempts.entry(writer.to_owned()).or_default().push(at);
    }

    /// Checks that a copy has lowered a size for replicas without a Machine by no more than were missing when it
    /// counted. Returns the number of Machines that have taken these replicas since then.
    pub(super) fn gives_up(&mut self, copy: usize, id: &str, before: &Group, by: i64) -> i64 {
        // A MachinePool without Machines shrinks for the named instances, and there is nothing to count.
        if id.starts_with("MachinePool/") && !self.machines.values().any(|machine| machine.group == id) {
            return 0;
        }
        let sent = self.sent;
        let attempts = self.writer.as_ref().and_then(|writer| self.counts.attempts.get(writer));
        let failed = attempts.into_iter().flatten().copied().filter(|at| *at < sent).max().unwrap_or_default();
        let since = failed.max(before.generation.1);
        let count = |number: usize| i64::try_from(number).unwrap_or(i64::MAX);
        let leaves = |uid: &String| before.log.get(uid).is_some_and(|entry| !entry.is_soft || !entry.is_lowered);
        let is_staying = |uid: &&String| {
            let is_of = self.machines.get(*uid).is_some_and(|machine| machine.group == id);
            is_of && !leaves(uid) && !self.named.contains(*uid)
        };
        let wanted = count(before.log.values().filter(|entry| !entry.is_lowered).count());
        let lists = self.counts.lists.get(&copy).into_iter().flatten();
        let lists: Vec<_> = lists.filter(|(at, _)| (since..=sent).contains(at)).collect();
        let counted = lists.iter().map(|(at, _)| *at).min().unwrap_or(sent);
        let came = self.machines.values().filter(|machine| machine.group == id && machine.created >= counted).count();
        let shown = lists
            .into_iter()
            .map(|(_, there)| before.size - wanted - count(there.iter().filter(is_staying).count()))
            .max();
        if shown.is_none_or(|shown| by > shown) {
            let shown = shown.map_or_else(|| "none was counted".to_owned(), |shown| format!("{shown} were missing"));
            let what = format!("copy {copy} lowered the size of {id} by {by} for Machines that aren't there: {shown}");
            self.find(Check::Placeholders, what);
        }
        count(came)
    }

    /// Returns the lists that a copy made between two times.
    fn lists_of(&self, copy: usize, from: Nanos, to: Nanos) -> impl Iterator<Item = &BTreeSet<String>> {
        let lists = self.counts.lists.get(&copy).into_iter().flatten();
        lists.filter(move |(at, _)| (from..=to).contains(at)).map(|(_, there)| there)
    }

    /// Checks that a copy has written the log of a group with a size for every Machine that stays. If an entry is of a
    /// Machine that was being deleted when it was logged, the decided size must leave a replica for each remaining
    /// Machine, by a list from after the group was read: the replica of the deleted one may have been filled.
    ///
    /// Returns the number of such Machines that have lowered the size now, and the number of Machines that have come
    /// since they were logged.
    pub(super) fn by_lists(&mut self, copy: usize, id: &str, before: &Group, (size, log): (i64, &Log)) -> (i64, i64) {
        self.soft_are_over(copy, id, &before.log, log);
        if size != before.size {
            self.own_sizes.insert((copy, id.to_owned()), self.now);
        }
        if size < before.size {
            self.own_lower_sizes.entry((copy, id.to_owned())).or_default().push(self.now);
        }
        if id.starts_with("MachinePool/") {
            return (0, 0);
        }
        let count = |number: usize| i64::try_from(number).unwrap_or(i64::MAX);
        let mut going = Vec::new();
        let mut lowered = Vec::new();
        let mut uncounted = Vec::new();
        for (uid, entry) in log {
            let known = before.log.get(uid).filter(|known| known.ticket == entry.ticket);
            let key = (uid.clone(), entry.ticket.clone());
            if known.is_none() && entry.is_counted {
                going.push(entry.name.as_str());
                self.going_since.entry(key.clone()).or_insert(before.generation.1);
            }
            if entry.is_lowered
                && known.is_some_and(|known| !known.is_lowered)
                && let Some(since) = self.going_since.get(&key)
            {
                lowered.push(*since);
            }
            let is_going = self.machines.get(uid).is_some_and(|machine| machine.is_deleting || machine.is_gone);
            if known.is_none() && !entry.is_counted && !entry.is_soft && is_going {
                if self.knows_that_it_goes(copy, uid) {
                    uncounted.push(entry.name.as_str());
                }
                self.going_since.insert(key.clone(), before.generation.1);
                self.going_when_logged.insert(key);
            } else if entry.is_lowered
                && known.is_some_and(|known| !known.is_lowered)
                && self.going_when_logged.contains(&key)
            {
                going.push(entry.name.as_str());
            }
        }
        if !uncounted.is_empty() {
            let what = format!("copy {copy} logged {uncounted:?} of {id} as ones that stay, and knew that they go");
            self.find(Check::Phases, what);
        }
        let since = lowered.iter().min().copied().unwrap_or(Nanos::MAX);
        let came = self.machines.values().filter(|machine| machine.group == id && machine.created >= since).count();
        let filled = (count(lowered.len()), count(came));
        if going.is_empty() {
            return filled;
        }
        let wanted = log.values().filter(|entry| !entry.is_lowered).count();
        let left = size - count(wanted);
        let stays = |uid: &&String| {
            let is_of = self.machines.get(*uid).is_some_and(|machine| machine.group == id);
            is_of && !log.contains_key(*uid) && !before.log.contains_key(*uid)
        };
        let staying = |there: &BTreeSet<String>| count(there.iter().filter(stays).count());
        let fewest = self.lists_of(copy, before.generation.1, self.sent).map(staying).min();
        if fewest.is_none_or(|staying| left < staying) {
            let staying = fewest.map_or_else(|| "none was counted".to_owned(), |count| format!("{count} stay"));
            let what =
                format!("copy {copy} leaves {left} places of {id} for {going:?}, which go by themselves: {staying}");
            self.find(Check::Placeholders, what);
        }
        filled
    }

    /// Returns true if a copy knew of a Machine's deletion when it decided on the request that is being served.
    fn knows_that_it_goes(&self, copy: usize, uid: &str) -> bool {
        let decided = self.sent.saturating_sub(DECIDES);
        let deleting_at = self.machines.get(uid).and_then(|machine| machine.deleting_at);
        self.is_well(copy) && deleting_at.is_some_and(|at| self.has_seen(copy, Kind::Machines, at, decided))
    }

    /// Checks a log that a copy has written: its pending deletions must respect a recent min size.
    pub(super) fn leaves_the_minimum(&mut self, copy: usize, id: &str, (group, before): (&Group, &Log), log: &Log) {
        let lately = self.now.saturating_sub(OLD);
        let adds = log.iter().any(|(uid, entry)| !entry.is_soft && !before.contains_key(uid));
        let wanted = log.values().filter(|entry| !entry.is_lowered).count();
        let left = group.size - i64::try_from(wanted).unwrap_or(i64::MAX);
        if adds && group.bounds_since(lately).all(|(min, _)| left < min) {
            let (size, min) = (group.size, group.min);
            self.find(Check::Bounds, format!("copy {copy} logged {wanted} of {id} at size {size}, with min {min}"));
        }
    }

    /// Checks a log that a copy has written: a soft entry leaves it once nothing remains to be deleted for its smaller
    /// size.
    fn soft_are_over(&mut self, copy: usize, id: &str, before: &Log, after: &Log) {
        let (now, sent) = (self.now, self.sent);
        for (uid, entry) in after.iter().filter(|(_, entry)| entry.is_soft && entry.is_lowered) {
            self.soft_lowered.entry((uid.clone(), entry.ticket.clone())).or_insert(now);
        }
        let mut found = Vec::new();
        for (uid, entry) in before.iter().filter(|(_, entry)| entry.is_soft && entry.is_lowered) {
            let stays = after.get(uid).is_some_and(|kept| kept.ticket == entry.ticket);
            let is_alive = |machine: &Machine| machine.group == id && !machine.is_deleting && !machine.is_gone;
            let since = self.soft_lowered.get(&(uid.clone(), entry.ticket.clone())).copied();
            let (Some(since), false) = (since, stays || !self.machines.get(uid).is_some_and(is_alive)) else {
                continue;
            };
            let sizes = self.sizes.get(id).into_iter().flatten();
            let of_group = sizes.filter(|(until, _)| until.is_none_or(|until| until > since)).map(|(_, size)| *size);
            let Some(largest) = of_group.max() else { continue };
            let is_of = |uid: &&String| self.machines.get(*uid).is_some_and(|machine| machine.group == id);
            let count =
                |there: &BTreeSet<String>| i64::try_from(there.iter().filter(is_of).count()).unwrap_or(i64::MAX);
            let fewest = self.lists_of(copy, since, sent).map(count).min();
            if fewest.is_none_or(|count| count > largest) && self.rolls(id).is_none() {
                let name = &entry.name;
                found.push(format!(
                    "copy {copy} forgot {name} of {id}, which has {fewest:?} Machines at size {largest}"
                ));
            }
        }
        for what in found {
            self.find(Check::Phases, what);
        }
    }
}
