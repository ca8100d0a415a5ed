//! Checks on sizes that are lowered for replicas without a Machine: they are decided on a list of the Machines that is made
//! after the group was looked at, and anew after each write that has failed.

use std::collections::{BTreeSet, HashMap};

use super::{Check, Group, Ledger};
use crate::entropy::{Nanos, SECOND};

/// A list of Machines is used for no longer than a command goes on.
const KEPT: Nanos = 300 * SECOND;

/// The lists of Machines and the writes of sizes of all copies.
#[derive(Debug, Default)]
pub(super) struct Counts {
    /// The Machines that were alive, by uid, when each list of a copy was made.
    lists: HashMap<usize, Vec<(Nanos, BTreeSet<String>)>>,
    /// The times at which a size was sent, by the name under which it is written.
    attempts: HashMap<String, Vec<Nanos>>,
}

impl Counts {
    /// When a size was first sent under a name.
    pub(super) fn first_sent(&self, writer: &str) -> Option<Nanos> {
        self.attempts.get(writer)?.first().copied()
    }
}

impl Ledger {
    /// A copy is told all Machines that there are.
    pub(super) fn lists_machines(&mut self, copy: usize) {
        let there = self.machines.iter().filter(|(_, machine)| !machine.is_deleting && !machine.is_gone);
        let there = there.map(|(uid, _)| uid.clone()).collect();
        let now = self.now;
        let lists = self.counts.lists.entry(copy).or_default();
        lists.retain(|(at, _)| at + KEPT > now);
        lists.push((now, there));
    }

    /// A size is sent under a name.
    pub(super) fn sends_size(&mut self, writer: &str, at: Nanos) {
        self.counts.attempts.entry(writer.to_owned()).or_default().push(at);
    }

    /// A copy has lowered a size for replicas that have no Machine: by no more than were missing when it counted.
    pub(super) fn gives_up(&mut self, copy: usize, id: &str, before: &Group, by: i64) {
        // A MachinePool that has no Machines comes down for the instances that were named, and there is nothing to count.
        if id.starts_with("MachinePool/") && !self.machines.values().any(|machine| machine.group == id) {
            return;
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
        let lists = lists.filter(|(at, _)| (since..=sent).contains(at));
        let shown = lists.map(|(_, there)| before.size - wanted - count(there.iter().filter(is_staying).count())).max();
        if shown.is_none_or(|shown| by > shown) {
            let shown = shown.map_or_else(|| "none was counted".to_owned(), |shown| format!("{shown} were missing"));
            let what = format!("copy {copy} lowered the size of {id} by {by} for Machines that aren't there: {shown}");
            self.find(Check::Placeholders, what);
        }
    }
}
