//! Checks on sizes that are lowered for replicas without a Machine: they must be decided on a list of the Machines that
//! is made after the group was read, and anew after each failed write.

use std::collections::{BTreeSet, HashMap};

use super::{Check, Group, Ledger};
use crate::entropy::{Nanos, SECOND};

/// The longest time for which a list of Machines is used: as long as a command goes on.
const KEPT: Nanos = 300 * SECOND;

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
        let is_staying = |uid: &&String| {
            let is_of = self.machines.get(*uid).is_some_and(|machine| machine.group == id);
            is_of && !self.named.contains(*uid)
        };
        let lists = self.counts.lists.get(&copy).into_iter().flatten();
        let lists: Vec<_> = lists.filter(|(at, _)| (since..=sent).contains(at)).collect();
        let counted = lists.iter().map(|(at, _)| *at).min().unwrap_or(sent);
        let came = self.machines.values().filter(|machine| machine.group == id && machine.created >= counted).count();
        let shown =
            lists.into_iter().map(|(_, there)| before.size - count(there.iter().filter(is_staying).count())).max();
        if shown.is_none_or(|shown| by > shown) {
            let shown = shown.map_or_else(|| "none was counted".to_owned(), |shown| format!("{shown} were missing"));
            let what = format!("copy {copy} lowered the size of {id} by {by} for Machines that aren't there: {shown}");
            self.find(Check::Placeholders, what);
        }
        count(came)
    }
}
