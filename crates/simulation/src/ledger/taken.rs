//! Checks on deleted Machines: one with a Node is deleted only if it was named, or for a cause that can't be ruled out,
//! and none is taken from a group that a copy knows to be rolling out. A size is lowered for replicas without a Machine
//! only by a list of the Machines that is made after the group was read, and anew after each failed write.

use std::collections::{BTreeSet, HashMap};

use sandbox::{api::ChangeKind, engine::Observed};
use serde_json::Value;

use super::{
    Author, Check, EXCUSED, Group, Ledger, Machine,
    watches::{Kind, TAKEN_UP},
};
use crate::entropy::{Nanos, SECOND};

/// The longest time that a smaller size stays unseen by a controller whose caches lag.
const UNSEEN: Nanos = 120 * SECOND;

/// A cause for the deletion of a Machine that nobody named: docs/design/simulation.md, What can't be promised.
pub(super) const FOREIGN_SIZE: &str = "someone else wrote a smaller size";
/// The size is lowered for one that is gone by now, and in whose place another one has come.
pub(super) const GONE_EARLY: &str = "a named Machine is gone, and made good, before Cluster API sees the smaller size";
/// A size that was given up has arrived when the size was again what it had been.
pub(super) const LATE_SIZE: &str = "a size write that was given up arrives when the size is again what it was";
const UNSEEN_DELETION: &str = "the MachineSet controller sees a smaller size before the deletion that it is for";
const TWICE: &str = "the MachineSet controller may act twice after an error";
pub(super) const OLD_SIZE: &str = "the MachineDeployment controller wrote an old size to its MachineSet";
const SURPLUS: &str = "the MachineSet controller has made more Machines than its size";
const ROLLOUT: &str = "a rollout replaces Machines";
pub(super) const POOL: &str = "the infrastructure of a MachinePool chooses which Machine goes";
const PLACE: &str = "a Machine has come into a placeholder's place";

impl Group {
    /// Records that the size was lowered for replicas that had no Machine, or one in deletion. If a new Machine has
    /// filled such a replica since the count, or fills it later, the controllers may delete another Machine.
    pub(super) fn gives_up(&mut self, places: i64, came: i64, now: Nanos) {
        let came = came.min(places);
        self.allow(PLACE, came, now);
        let open = usize::try_from(places - came).unwrap_or_default();
        self.given_up.extend(std::iter::repeat_n(now, open));
    }
}

impl Ledger {
    /// Records that the MachineSet controller has created a Machine.
    pub(super) fn comes(&mut self, id: &str) {
        let now = self.now;
        let alive = self.machines.values().filter(|machine| machine.group == id && !machine.is_deleting).count();
        let is_surplus = self.is_surplus(id);
        let is_early = self.comes_early(id);
        if is_early && !self.fills_place(id) {
            self.makes_good(id);
        }
        let Some(group) = self.groups.get_mut(id) else { return };
        let is_beyond = i64::try_from(alive).unwrap_or(i64::MAX) > group.size;
        group.given_up.retain(|since| now.saturating_sub(*since) < EXCUSED);
        group.beyond_size.retain(|since| now.saturating_sub(*since) < EXCUSED);
        if is_beyond && group.given_up.pop().is_some() {
            group.allow(PLACE, 1, now);
        } else if is_beyond && !is_early && group.beyond_size.pop().is_some() {
            group.allow(OLD_SIZE, 1, now);
        }
        // A surplus Machine causes the deletion of another one, now or when the size is lowered.
        if is_surplus {
            group.allow(SURPLUS, 1, now);
        }
    }

    /// Returns true if a new Machine comes in the place of a replica that was given up.
    fn fills_place(&self, id: &str) -> bool {
        let is_recent = |since: &Nanos| self.now.saturating_sub(*since) < EXCUSED;
        let alive = self.machines.values().filter(|machine| machine.group == id && !machine.is_deleting).count();
        let is_it = |group: &Group| {
            i64::try_from(alive).unwrap_or(i64::MAX) > group.size && group.given_up.iter().any(is_recent)
        };
        self.groups.get(id).is_some_and(is_it)
    }

    /// Returns true if a group has more Machines than any of its recent sizes.
    fn is_surplus(&self, id: &str) -> bool {
        let alive = self.machines.values().filter(|machine| machine.group == id && !machine.is_deleting).count();
        let largest = self.highest_size(id, self.now.saturating_sub(UNSEEN));
        largest.is_some_and(|largest| i64::try_from(alive).unwrap_or(i64::MAX) > largest)
    }

    /// Checks the deletion of a Machine: one with a Node is deleted only if it was named, or for a cause that can't be
    /// ruled out.
    pub(super) fn goes(&mut self, uid: &str, machine: &Machine, author: Author) {
        let has_node = machine.node.is_some()
            || (!machine.provider_id.is_empty() && self.nodes.contains_key(&machine.provider_id));
        if author != Author::Controllers || self.named.contains(uid) || !has_node {
            if machine.group.starts_with("MachinePool/")
                && author == Author::Controllers
                && let Some(group) = self.groups.get_mut(&machine.group)
            {
                group.excuses(POOL, self.now);
            }
            return;
        }
        let now = self.now;
        let observed = self.observed.get(&self.revision).copied();
        let is_unseen = |revision: u64| observed.is_some_and(|observed| observed.machines < revision);
        let lags = self.removals.iter().any(|removal| {
            let deletion = self.machines.get(&removal.uid).and_then(|machine| machine.deleting_at);
            removal.group == machine.group && removal.is_lowered && deletion.is_some_and(is_unseen)
        });
        let is_surplus = self.is_surplus(&machine.group);
        let is_rolling = self.rolls(&machine.group).is_some();
        let Some(group) = self.groups.get_mut(&machine.group) else { return };
        let is_another = |by: Observed| observed.is_some_and(|observed| observed.reconcile != by.reconcile);
        let twice = group.taken.is_some_and(|(revision, by)| is_unseen(revision) && is_another(by));
        // The Machine is deleted with its group.
        if group.is_deleting {
            return;
        }
        let is_rolling = is_rolling || group.rolled.is_some_and(|at| now.saturating_sub(at) < EXCUSED);
        let causes = [POOL, OLD_SIZE, FOREIGN_SIZE, GONE_EARLY, LATE_SIZE, PLACE, SURPLUS];
        let cause = if is_surplus {
            Some(SURPLUS)
        } else if is_rolling {
            Some(ROLLOUT)
        } else {
            let allowed = causes.into_iter().find(|cause| group.excuses(cause, now));
            allowed.or(lags.then_some(UNSEEN_DELETION)).or(twice.then_some(TWICE))
        };
        match cause {
            Some(cause) => *self.exceptions.entry(cause).or_default() += 1,
            None => {
                let what = format!("{} of {} went with its Node, and nobody has named it", machine.name, machine.group);
                self.find(Check::TakenUnnamed, what);
            }
        }
    }
}

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

const REVISION: &str = "machinedeployment.clusters.x-k8s.io/revision";

#[derive(Clone, Debug)]
pub(super) struct Set {
    pub(super) group: String,
    revision: i64,
    has_replicas: bool,
}

impl Ledger {
    pub(super) fn set(&mut self, change: ChangeKind, id: &str, group: &str, object: &Value) {
        self.change(Kind::Sets, group);
        if change == ChangeKind::Deleted {
            self.all_sets.remove(id);
        } else {
            let revision = object["metadata"]["annotations"][REVISION].as_str().and_then(|text| text.parse().ok());
            let count = |field: &str| object[field]["replicas"].as_i64().unwrap_or_default();
            let has_replicas = count("spec") > 0 || count("status") > 0;
            let set = Set { group: group.to_owned(), revision: revision.unwrap_or_default(), has_replicas };
            self.all_sets.insert(id.to_owned(), set);
        }
        let sets = || self.all_sets.values().filter(|set| set.group == group);
        let newest = sets().map(|set| set.revision).max();
        if sets().any(|set| set.has_replicas && Some(set.revision) != newest) {
            self.rolling.entry(group.to_owned()).or_insert(self.revision);
        } else if self.rolling.remove(group).is_some()
            && let Some(group) = self.groups.get_mut(group)
        {
            group.rolled = Some(self.now);
        }
    }

    /// Returns the revision since which a group rolls out.
    pub(super) fn rolls(&self, group: &str) -> Option<u64> {
        self.rolling.get(group).copied()
    }

    /// Returns the revision since which a group rolls out, if a copy has processed it.
    pub(super) fn known_rollout(&self, copy: usize, group: &str) -> Option<u64> {
        let at = self.now.saturating_sub(TAKEN_UP);
        self.rolls(group).filter(|since| self.has_seen(copy, Kind::Sets, *since, at))
    }
}
