//! Checks on increases: each is done once if it is answered OK, and its size is visible from then on.

use std::collections::BTreeSet;

use tonic::Code;

use super::{
    Check, Ledger,
    calls::{AT_ONCE, Asked, Request, STOOD_STILL, is_open},
    watches::TAKEN_UP,
};
use crate::entropy::{Nanos, SECOND};

/// A request that has been under way for longer was given up by its copy: `Policy::WRITES`.
const GIVEN_UP: Nanos = 10 * SECOND;
/// The cause for which an increase may be done twice: docs/design/delete-rule.md, What can't be promised.
const LATE_SIZE: &str = "a size write that was given up arrives when the size is again what it was";

impl Ledger {
    /// An increase is done once if it is answered OK, not at all if it is refused, and at most once if nobody knows.
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

    /// Gives a size to an equal increase, or takes it from there: of two that nothing but their writes' names tells apart either
    /// may be the author, where both were under way at the write, or the caller of the other left while the copy stood still.
    fn is_of_another(&mut self, number: u64, asked: &Asked, by: i64) -> bool {
        let stood_still = |equal: &Asked| equal.ended.is_some_and(|ended| self.has_paused(asked.copy, ended, ended));
        // A task that starves lets a later call overtake its own.
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

    /// A copy has written a larger size: that is the increase under whose name it was sent.
    pub(super) fn increased(&mut self, copy: usize, id: &str, (from, to): (i64, i64)) {
        let is_late = self.now.saturating_sub(self.sent) > GIVEN_UP;
        let request = Request::Increase { group: id.to_owned(), delta: to - from };
        let call = self.writer.as_ref().and_then(|writer| self.writers.get(writer)).copied();
        let is_it = |call: &u64| self.asked.get(call).is_some_and(|asked| asked.request == request);
        // One that is refused writes nothing: the next one's turn has come.
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

    /// Exchanges the call that a name was taken to be of for that of another name, under which nothing was written: which of
    /// two calls comes first only what they write tells, when the caller of one left while the copy stood still.
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

    /// Gives an earlier write to a call whose caller left while the copy stood still, if another of the same kind was taken for
    /// its author: this write is that other's then. Returns false if there is none.
    fn was_of_another(&mut self, copy: usize, request: &Request) -> bool {
        let equal = || self.asked.iter().filter(|(_, asked)| asked.copy == copy && asked.request == *request);
        let writer_of = |call: u64| self.writers.iter().find(|(_, of)| **of == call).map(|(writer, _)| writer.clone());
        let later =
            equal().filter(|(_, asked)| self.is_in_time(asked, self.sent)).filter_map(|(call, _)| writer_of(*call));
        let Request::Increase { group, .. } = request else { return false };
        let of_group = |asked: &Asked| {
            asked.copy == copy && matches!(&asked.request, Request::Increase { group: of, .. } if of == group)
        };
        // Of one under whose name nothing was written yet nobody knows by how much it is.
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
            // A size that was written in its name is that other one's.
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

    /// A copy sends a size of a group under this name: from the first time on it belongs to one increase.
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

    /// The increase whose turn it is when a copy first sends a size under a name: the oldest that somebody waits for, or else
    /// one whose caller left while the copy stood still.
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

    /// The oldest such increase that was waited for when the write was sent, and for which nothing was written.
    fn next_equal(&self, copy: usize, request: &Request) -> Option<u64> {
        let is_it = |(number, asked): &(&u64, &Asked)| {
            let was_open = asked.at <= self.sent && self.is_in_time(asked, self.sent);
            let is_free = !self.writers.values().any(|call| call == *number);
            asked.copy == copy && asked.request == *request && was_open && is_free
        };
        self.asked.iter().find(is_it).map(|(number, _)| *number)
    }

    /// The size that a copy has written is visible in its answers at once.
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

    /// The time at which the size of a group came to what a command was answered OK for.
    fn lowered_or_raised(&self, done: &Asked, id: &str) -> Option<Nanos> {
        match &done.request {
            Request::Increase { group, .. } | Request::Decrease { group, .. } if group == id && done.applied > 0 => {
                Some(done.applied_at)
            }
            // Whichever of several requests of a batch its size is written for.
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
