//! Checks on increases: each is applied once if it is answered OK, and its size is visible from then on.

use std::collections::BTreeSet;

use tonic::Code;

use super::{
    Check, Ledger,
    calls::{AT_ONCE, Asked, Request, STOOD_STILL, is_open},
    watches::TAKEN_UP,
};
use crate::entropy::{Nanos, SECOND};

/// The age from which a request under way was given up by its copy: `Policy::WRITES`.
const GIVEN_UP: Nanos = 10 * SECOND;
/// The cause for which an increase may be done twice: docs/design/delete-rule.md, What can't be promised.
const LATE_SIZE: &str = "a size write that was given up arrives when the size is again what it was";

impl Ledger {
    /// Checks that an increase is applied once if answered OK, never if refused, and at most once if the outcome is
    /// unknown.
    pub(super) fn increase_is_done(&mut self, number: u64, asked: &Asked, code: Code, (group, delta): (&str, i64)) {
        let allowed = if code == Code::Ok {
            1..=1
        } else if is_open(code) {
            0..=1
        } else {
            0..=0
        };
        let by = asked.applied - asked.applied.clamp(*allowed.start(), *allowed.end());
        if by != 0 && !self.is_of_another(number, asked, by) {
            let times = asked.applied;
            let what = format!("an increase of {group} by {delta} was answered {code:?} and done {times} times");
            self.find(Check::IncreaseOnce, what);
        }
    }

    /// Assigns a size to an equal increase, or takes it from there. Only their writers' names distinguish two equal
    /// increases: either may be the author if both were under way at the write, or if the caller of the other left
    /// while the copy stood still.
    fn is_of_another(&mut self, number: u64, asked: &Asked, by: i64) -> bool {
        let stood_still = |equal: &Asked| equal.ended.is_some_and(|ended| self.has_paused(asked.copy, ended, ended));
        // A starving task lets a later call overtake its own.
        let were_under_way = |equal: &Asked| {
            let (author, other) = if by < 0 { (equal, asked) } else { (asked, equal) };
            other.at <= author.applied_at && other.ended.is_none_or(|ended| ended >= author.applied_at)
        };
        let is_it = |(other, equal): &(&u64, &Asked)| {
            let is_equal = **other != number && equal.copy == asked.copy && equal.request == asked.request;
            is_equal && !equal.is_ok && (0..=1).contains(&(equal.applied + by))
        };
        let equal = || self.asked.iter().filter(is_it);
        let other = equal().find(|(_, it)| were_under_way(it)).map(|(other, _)| (*other, false));
        let other = other.or_else(|| equal().find(|(_, it)| stood_still(it)).map(|(other, _)| (*other, true)));
        let Some((other, stood_still)) = other else { return false };
        if let Some(other) = self.asked.get_mut(&other) {
            other.applied += by;
        }
        if let Some(asked) = self.asked.get_mut(&number) {
            asked.applied -= by;
        }
        if stood_still {
            *self.exceptions.entry(STOOD_STILL).or_default() += 1;
        }
        true
    }

    /// Records a larger size that a copy has written, for the increase under whose name it was sent.
    pub(super) fn increased(&mut self, copy: usize, id: &str, (from, to): (i64, i64)) {
        let is_late = self.now.saturating_sub(self.sent) > GIVEN_UP;
        let request = Request::Increase { group: id.to_owned(), delta: to - from };
        let call = self.writer.as_ref().and_then(|writer| self.writers.get(writer)).copied();
        let is_it = |call: &u64| self.asked.get(call).is_some_and(|asked| asked.request == request);
        // A refused increase writes nothing: the next one's turn has come.
        let call =
            call.filter(is_it).or_else(|| self.next_equal(copy, &request)).or_else(|| self.exchange(copy, &request));
        if let (Some(writer), Some(call)) = (&self.writer, call) {
            self.writers.insert(writer.clone(), call);
        }
        let asked = call.and_then(|call| self.asked.get_mut(&call));
        let Some(asked) = asked else {
            let what = format!("copy {copy} wrote size {from} to {to} of {id}, for which no call waited");
            if self.was_of_another(copy, &request) {
                return;
            }
            let was_asked = self.asked.values().any(|asked| asked.copy == copy && asked.request == request);
            return self.find(if was_asked { Check::AfterDeadline } else { Check::SizeOfCommand }, what);
        };
        asked.applied += 1;
        asked.applied_at = self.now;
        if asked.is_refused {
            let what =
                format!("copy {copy} wrote size {from} to {to} of {id} for an increase that it had refused for good");
            return self.find(Check::IncreaseOnce, what);
        }
        if asked.applied > 1 && is_late {
            asked.applied = 1;
            *self.exceptions.entry(LATE_SIZE).or_default() += 1;
        } else if asked.applied > 1 {
            self.find(Check::IncreaseOnce, format!("copy {copy} wrote size {from} to {to} of {id} for a second time"));
        }
    }

    /// Swaps the call assigned to a writer's name with that of another name under which nothing was written. If the
    /// caller of one left while the copy stood still, only the writes reveal which of two calls came first.
    fn exchange(&mut self, copy: usize, request: &Request) -> Option<u64> {
        let writer = self.writer.as_ref()?;
        let call = self.writers.get(writer).copied()?;
        let is_it = |(other, call): &(&String, &u64)| {
            let asked = self.asked.get(*call);
            let is_equal = |asked: &Asked| asked.copy == copy && asked.request == *request && asked.applied == 0;
            *other != writer && asked.is_some_and(|asked| is_equal(asked) && self.is_in_time(asked, self.sent))
        };
        let (other, its_call) = self.writers.iter().filter(is_it).min().map(|(other, call)| (other.clone(), *call))?;
        self.writers.insert(other, call);
        *self.exceptions.entry(STOOD_STILL).or_default() += 1;
        Some(its_call)
    }

    /// Moves an earlier write to a call whose caller left while the copy stood still, if another call of the same kind
    /// was taken for its author; this write then belongs to that one. Returns false if there is none.
    fn was_of_another(&mut self, copy: usize, request: &Request) -> bool {
        let equal = || self.asked.iter().filter(|(_, asked)| asked.copy == copy && asked.request == *request);
        let writer_of = |call: u64| self.writers.iter().find(|(_, of)| **of == call).map(|(writer, _)| writer.clone());
        let later =
            equal().filter(|(_, asked)| self.is_in_time(asked, self.sent)).filter_map(|(call, _)| writer_of(*call));
        let Request::Increase { group, .. } = request else { return false };
        let of_group = |asked: &Asked| {
            asked.copy == copy && matches!(&asked.request, Request::Increase { group: of, .. } if of == group)
        };
        // The delta of a name under which nothing was written yet is unknown.
        let wrote = |call: u64| self.asked.get(&call).is_some_and(|asked| asked.applied > 0);
        let found = later.into_iter().find_map(|writer| {
            let sent = self.counts.first_sent(&writer)?;
            let of = self.writers.get(&writer).copied()?;
            let is_earlier = |(call, asked): &(&u64, &Asked)| {
                let is_it = asked.request == *request || !wrote(of);
                let is_free = writer_of(**call).is_none() && asked.at <= sent && self.is_in_time(asked, sent);
                of_group(asked) && is_it && is_free
            };
            let call = *self.asked.iter().find(is_earlier)?.0;
            // A size that was written under its name belongs to that other call.
            Some((writer.clone(), call, if wrote(of) { call } else { of }))
        });
        let Some((writer, call, author)) = found else { return false };
        let other = self.writers.insert(writer, call);
        if let (Some(writer), Some(other)) = (self.writer.clone(), other) {
            self.writers.insert(writer, other);
        }
        if let Some(asked) = self.asked.get_mut(&author) {
            (asked.applied, asked.applied_at) = (asked.applied + 1, self.now);
        }
        *self.exceptions.entry(STOOD_STILL).or_default() += 1;
        true
    }

    /// Records that a copy sends a size of a group under this name: from the first time on the name belongs to one
    /// increase.
    pub(super) fn begins_increase(&mut self, copy: usize, writer: &str, group: &str, at: Nanos) {
        if self.writers.contains_key(writer) {
            return;
        }
        let Some(call) = self.next_increase(copy, group, at) else { return };
        let ended = self.asked.get(&call).and_then(|asked| asked.ended);
        if ended.is_some_and(|ended| at > ended + AT_ONCE) {
            *self.exceptions.entry(STOOD_STILL).or_default() += 1;
        }
        self.writers.insert(writer.to_owned(), call);
    }

    /// Returns the increase whose turn it is when a copy first sends a size under a name: the oldest with a waiting
    /// caller, or else one whose caller left while the copy stood still.
    fn next_increase(&self, copy: usize, name: &str, at: Nanos) -> Option<u64> {
        let end = format!("/{name}");
        let is_of_group =
            |asked: &Asked| matches!(&asked.request, Request::Increase { group, .. } if group.ends_with(&end));
        let is_free = |number: &u64| !self.writers.values().any(|call| call == number);
        let find = |is_open: &dyn Fn(Nanos) -> bool| {
            let is_it = |(number, asked): &(&u64, &Asked)| {
                asked.copy == copy && asked.ended.is_none_or(is_open) && is_of_group(asked) && is_free(number)
            };
            self.asked.iter().find(is_it).map(|(number, _)| *number)
        };
        find(&|ended| at <= ended + AT_ONCE).or_else(|| find(&|ended| self.stood_still(copy, ended, at)))
    }

    /// Returns the oldest such increase that had a waiting caller when the write was sent, and for which nothing was
    /// written.
    fn next_equal(&self, copy: usize, request: &Request) -> Option<u64> {
        let is_it = |(number, asked): &(&u64, &Asked)| {
            let was_open = asked.at <= self.sent && self.is_in_time(asked, self.sent);
            let is_free = !self.writers.values().any(|call| call == *number);
            asked.copy == copy && asked.request == *request && was_open && is_free
        };
        self.asked.iter().find(is_it).map(|(number, _)| *number)
    }

    /// Checks that the size that a copy has written is visible in its answers at once.
    pub(super) fn size_is_visible(&mut self, asked: &Asked, id: &str, answered: i64) {
        let shown = asked.at.saturating_sub(TAKEN_UP);
        if let Some(size) = self.size(id).filter(|size| *size != answered)
            && self.knows(asked.copy, id, shown)
        {
            let what = format!("copy {} answers size {answered} of {id}, and was shown {size} before", asked.copy);
            self.find(Check::Consistent, what);
        }
        let newest = self
            .asked
            .values()
            .filter(|other| other.copy == asked.copy && other.is_ok)
            .filter(|other| other.ended.is_some_and(|ended| ended <= asked.at))
            .filter_map(|other| self.lowered_or_raised(other, id))
            .max();
        let (Some(since), Some(history)) = (newest, self.sizes.get(id)) else { return };
        let later = history.iter().skip_while(|(until, _)| until.is_some_and(|until| until <= since));
        let sizes: BTreeSet<i64> = later.map(|(_, size)| *size).collect();
        if !sizes.contains(&answered) && self.last_killed.get(&asked.copy).is_none_or(|killed| *killed < since) {
            let copy = asked.copy;
            let what = format!("copy {copy} answers size {answered} of {id}, which since its command was {sizes:?}");
            self.find(Check::Consistent, what);
        }
    }

    /// Returns the time at which the size of a group became the one for which a command was answered OK.
    fn lowered_or_raised(&self, done: &Asked, id: &str) -> Option<Nanos> {
        match &done.request {
            Request::Increase { group, .. } | Request::Decrease { group, .. } if group == id && done.applied > 0 => {
                Some(done.applied_at)
            }
            // Any of the requests of a batch counts, since one size is written for all of them.
            Request::Delete { group, .. } if group == id => {
                let written = self.own_sizes.get(&(done.copy, id.to_owned())).copied()?;
                (done.at..=done.ended?).contains(&written).then_some(written)
            }
            Request::Increase { .. }
            | Request::Decrease { .. }
            | Request::Delete { .. }
            | Request::TargetSize { .. }
            | Request::Instances { .. }
            | Request::Other(_) => None,
        }
    }
}
