//! Checks on refusals: each must have the cause that its message gives, and no effect.

use std::collections::BTreeSet;

use tonic::Code;

use super::{
    Check, Ledger,
    calls::{Answered, Asked, Request},
    deletions::Removal,
};
use crate::{
    entropy::{Nanos, SECOND},
    faults::MADE_UP,
};

/// The longest time for which a copy uses an old size, or old bounds.
pub(super) const OLD: Nanos = 400 * SECOND;
/// The longest time from the refusal of a request to the answer of another that has joined it.
const JOINS: Nanos = 60 * SECOND;
/// The longest time from a write to its answer.
const ANSWERED: Nanos = 40 * SECOND;
/// The longest time from the first of two equal sizes that somebody else has written to the end of what follows.
const PUT_BACK: Nanos = 2 * 3600 * SECOND;
/// The time for which a refusal is remembered.
const KEPT: Nanos = 300 * SECOND;

/// The time after a refused deletion for which the error of the Machine isn't sent, less the duration of a call.
const SPARED: Nanos = 290 * SECOND;

/// A request of a copy that was refused.
#[derive(Clone, Debug)]
pub(super) struct Refusal {
    copy: usize,
    path: String,
    at: Nanos,
    /// True if it was made up by the simulation.
    is_made_up: bool,
}

impl Ledger {
    /// Records a request of a copy that the simulation refuses.
    pub(crate) fn refuses(&mut self, copy: usize, path: &str) {
        self.note_refusal(copy, path, true);
    }

    fn note_refusal(&mut self, copy: usize, path: &str, is_made_up: bool) {
        let now = self.now;
        self.refusals.retain(|refusal| refusal.at + KEPT > now);
        self.refusals.push(Refusal { copy, path: path.to_owned(), at: now, is_made_up });
    }

    /// Records the API's answer to a request of a copy.
    pub(crate) fn served(&mut self, copy: usize, verb: &str, path: &str, status: u16) {
        if (400..500).contains(&status) {
            self.note_refusal(copy, path, false);
        }
        if verb == "list" && status == 200 {
            self.lists(copy, path);
        }
        if verb == "list" && path.ends_with("/machines") && status == 200 {
            self.lists_machines(copy);
        }
    }

    /// Checks that a permanently refused request has neither lowered the size nor removed a Machine that no other request
    /// has named.
    pub(super) fn refused(
        &mut self,
        number: u64,
        asked: &Asked,
        group: &str,
        uids: &BTreeSet<String>,
        answered: &Answered<'_>,
    ) {
        let (copy, text) = (asked.copy, answered.text);
        let by = self.reassign(number);
        if by > 0 {
            let what =
                format!("copy {copy} refused a delete of {group} of which it had lowered the size by {by}: {text}");
            self.find(Check::RefusedLeavesNothing, what);
        }
        for uid in uids {
            if self.is_named_by_others(number, uid) {
                continue;
            }
            // Of several Machines at the minimum one is replaced, and the answer says which.
            if text.contains("is replaced, and") && self.is_replaced_on_purpose(copy, uid) {
                continue;
            }
            let removed = self.removals.iter().rev().find(|removal| removal.uid == *uid && !removal.is_taken_back);
            match removed {
                Some(removal) if removal.copy == copy && removal.at >= asked.at => {
                    let what = format!("the deletion of {uid} of {group} was refused, and it was removed: {text}");
                    self.find(Check::RefusedLeavesNothing, what);
                }
                // This Machine no longer counts as named.
                None if !self.ok_deletes.contains_key(uid) => {
                    self.named.remove(uid);
                    self.named_with_node.remove(uid);
                }
                Some(_) | None => {}
            }
        }
    }

    /// Checks that a permanently refused decrease leaves no size written for it, and no Machine deleted.
    pub(super) fn decrease_is_refused(&mut self, number: u64, asked: &Asked, id: &str, code: Code) {
        let copy = asked.copy;
        let by = self.reassign(number);
        if by > 0 {
            let what = format!("copy {copy} refused a decrease of {id} with {code:?}, and had lowered it by {by}");
            self.find(Check::RefusedLeavesNothing, what);
        }
        let is_other = |(other, it): (&u64, &Asked)| {
            let is_decrease = matches!(&it.request, Request::Decrease { group, .. } if group == id);
            *other != number && it.copy == copy && is_decrease && it.ended.is_none_or(|ended| ended >= asked.at)
        };
        if self.asked.iter().any(is_other) {
            return;
        }
        let is_left = |removal: &&Removal| {
            let is_its =
                removal.copy == copy && removal.group == id && removal.at >= asked.at && !removal.is_taken_back;
            is_its && !self.named.contains(&removal.uid)
        };
        if let Some(removal) = self.removals.iter().find(is_left) {
            let uid = &removal.uid;
            let what = format!("copy {copy} refused a decrease of {id} with {code:?}, and {uid} was deleted for it");
            self.find(Check::RefusedLeavesNothing, what);
        }
    }

    /// Checks a refused increase: some recent size of the group must leave no capacity for it.
    pub(super) fn increase_for_cause(&mut self, (copy, asked): (usize, Nanos), id: &str, delta: i64, text: &str) {
        // The copy's own write counts once it has been answered, whatever its watch shows.
        let own = self.own_sizes.get(&(copy, id.to_owned())).copied();
        let is_known = |at: &Nanos| *at + ANSWERED < asked && self.is_well(copy) && !self.was_killed_since(copy, *at);
        let since = own.filter(is_known).map_or(0, |at| at + 1).max(asked.saturating_sub(OLD));
        let largest = self.highest_size(id, since);
        let max = self
            .groups
            .get(id)
            .and_then(|group| group.bounds_since(asked.saturating_sub(OLD)).map(|(_, max)| max).min());
        let (Some(max), Some(largest)) = (max, largest) else { return };
        let is_refused_by_api = text.contains(MADE_UP) || text.contains("API server");
        // The refusal may be about a deleted group of the same name.
        let was_deleted = self.groups.get(id).is_some_and(|group| group.is_gone || group.created + OLD > asked);
        let is_gone = was_deleted && text.contains("its object was deleted");
        let is_put_back = text.contains("keeps putting the size back") && self.is_put_back(id);
        if is_put_back {
            self.left_to_others.insert(id.to_owned(), self.now);
        }
        if delta > 0 && largest + delta <= max && !is_refused_by_api && !is_gone && !is_put_back {
            let what = format!("copy {copy} refused an increase of {id} by {delta}, at {largest} of {max}: {text}");
            self.find(Check::RefusedForCause, what);
        }
    }

    /// Returns true if an increase of a group was refused since then, because somebody keeps putting its size back.
    pub(crate) fn is_left_to_others(&self, id: &str, since: Nanos) -> bool {
        self.left_to_others.get(id).is_some_and(|at| *at >= since)
    }

    /// Returns true if somebody else has written the same size of a group twice within the time in which that counts.
    fn is_put_back(&self, id: &str) -> bool {
        let written = self.foreign_sizes.get(id).into_iter().flatten();
        let mut sizes: Vec<_> = written.filter(|(at, _)| at + PUT_BACK > self.now).map(|(_, size)| *size).collect();
        sizes.sort_unstable();
        sizes.windows(2).any(|two| two[0] == two[1])
    }

    /// Records that the API refused the deletion of a single Machine: the copy must not report its error again at once.
    pub(super) fn delete_is_denied(&mut self, copy: usize, uids: &BTreeSet<String>, text: &str) {
        if let (1, Some(uid)) = (uids.len(), uids.first())
            && text.contains(MADE_UP)
        {
            self.denied.insert((copy, uid.clone()), self.now);
        }
    }

    /// Returns the Machines whose errors a copy sends although the API refused to delete them shortly before the call.
    pub(super) fn errors_in_vain(&self, copy: usize, asked: Nanos, ids: &[&str]) -> Vec<String> {
        let (now, is_vain) = (self.now, |denied: Nanos| (denied..denied + SPARED).contains(&asked));
        let machines = ids.iter().filter_map(|id| self.machine_of(id));
        let denied = |uid: &String| self.denied.get(&(copy, uid.clone())).copied();
        machines.filter(|uid| denied(uid).is_some_and(|at| is_vain(at) && now < at + SPARED)).collect()
    }

    fn was_killed_since(&self, copy: usize, since: Nanos) -> bool {
        self.last_killed.get(&copy).is_some_and(|killed| *killed >= since)
    }

    /// Returns true if no Machine of this name exists, or it is being deleted.
    fn is_going(&self, name: &str) -> bool {
        !self.machines.values().any(|machine| machine.name == name && !machine.is_gone && !machine.is_deleting)
    }

    /// Checks a delete that was refused because the API server refuses a request about its own Machines, or about the
    /// group.
    pub(super) fn delete_for_cause(
        &mut self,
        (copy, asked): (usize, Nanos),
        group: &str,
        (uids, places): (&BTreeSet<String>, i64),
        text: &str,
    ) {
        if !text.contains(MADE_UP) {
            return;
        }
        let names: BTreeSet<_> = uids.iter().filter_map(|uid| Some(&self.machines.get(uid)?.name)).collect();
        let own_name = group.rsplit('/').next().unwrap_or_default();
        let is_cause = |refusal: &Refusal| {
            let machine = refusal.path.split("/machines/").nth(1);
            let concerns = match machine {
                // A copy may still know deleted Machines, which count as instances without a Machine. One that hangs in
                // deletion may be logged for a placeholder.
                Some(name) => {
                    names.is_empty() || names.iter().any(|own| *own == name) || (places > 0 && self.is_going(name))
                }
                None => refusal.path.ends_with("/machines") || refusal.path.split('/').any(|part| part == own_name),
            };
            refusal.is_made_up && refusal.copy == copy && refusal.at + JOINS > asked && concerns
        };
        if !self.refusals.iter().any(is_cause) {
            let what = format!("copy {copy} refused to delete {names:?}, of which nothing was refused: {text}");
            self.find(Check::RefusedForCause, what);
        }
    }
}
