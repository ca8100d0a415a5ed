//! The assignment of written sizes to calls, and the checks on increases. Concurrent equal commands look the same in
//! the API, so a write may be for any of them. The rules hold if some assignment fits: each write has a call that wasn't
//! refused and asked for as much, and each increase that was answered OK has a write, once, and its size is visible from
//! then on. The assignment changes along augmenting paths as writes and answers come.

use std::collections::BTreeSet;

use tonic::Code;

use super::{
    Check, Ledger,
    calls::{AT_ONCE, Asked, Request, STOOD_STILL},
    taken::LATE_SIZE,
    watches::TAKEN_UP,
};
use crate::entropy::{Nanos, SECOND};

/// The number that stands for no call.
const NO_CALL: u64 = u64::MAX;

/// A size that a copy has written for a call.
#[derive(Clone, Debug)]
pub(super) struct SizeWrite {
    pub(super) copy: usize,
    pub(super) group: String,
    /// The change of the size.
    pub(super) by: i64,
    /// The time at which it was first sent.
    pub(super) sent: Nanos,
    /// The time at which it was applied.
    pub(super) at: Nanos,
    /// The call to which it is assigned.
    pub(super) call: u64,
}

impl SizeWrite {
    fn count(&self) -> i64 {
        self.by.abs()
    }
}

/// The calls that may be the author of a write; each variant includes those before it.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
enum Authors {
    /// Calls whose caller was waiting when the write was first sent.
    Waiting,
    /// Calls that lower the size and had begun to write, or had joined others, before their caller left.
    Begun,
    /// Calls whose caller left while the copy stood still.
    StoodStill,
    /// Calls that lower the size and were answered OK before the write.
    Answered,
}

const AUTHORS: [Authors; 4] = [Authors::Waiting, Authors::Begun, Authors::StoodStill, Authors::Answered];

/// Returns the total by which a call may change the size of a group, if one of its writes changes it by `by`.
fn most_by(request: &Request, id: &str, by: i64) -> i64 {
    match request {
        Request::Increase { group, delta } if group == id && *delta == by => by,
        Request::Decrease { group, delta } if group == id && by < 0 => -delta,
        Request::Delete { group, places, .. } if group == id && by < 0 => *places,
        Request::Increase { .. }
        | Request::Decrease { .. }
        | Request::Delete { .. }
        | Request::TargetSize { .. }
        | Request::Instances { .. }
        | Request::Template { .. }
        | Request::Other(_) => 0,
    }
}

impl Ledger {
    /// Assigns a write that changes the size of a group by `by` to a call. Returns false if no assignment fits.
    pub(super) fn assign(&mut self, copy: usize, id: &str, by: i64) -> bool {
        let sent = self.writer.as_ref().and_then(|writer| self.counts.first_sent(writer)).unwrap_or(self.sent);
        let write = SizeWrite { copy, group: id.to_owned(), by, sent, at: self.now, call: NO_CALL };
        let number = self.writes.last_key_value().map_or(0, |(last, _)| last + 1);
        self.writes.insert(number, write);
        let is_assigned = self.assign_anew(number);
        if !is_assigned {
            self.writes.remove(&number);
        }
        is_assigned
    }

    /// Moves the writes of a refused call to other calls. Returns the part of the change that fits no other call.
    pub(super) fn reassign(&mut self, call: u64) -> i64 {
        let writes: Vec<_> = self.writes.iter().filter(|(_, write)| write.call == call).map(|(it, _)| *it).collect();
        let left = writes.into_iter().filter(|write| !self.assign_anew(*write)).collect::<Vec<_>>();
        left.iter().filter_map(|write| self.writes.get(write)).map(SizeWrite::count).sum()
    }

    /// Returns true if a call that was answered OK has a write, perhaps after taking over another call's.
    pub(super) fn has_write(&mut self, call: u64, asked: &Asked) -> bool {
        if self.writes.values().any(|write| write.call == call) {
            return true;
        }
        self.search(|ledger, authors| ledger.write_for(call, asked, authors, &mut BTreeSet::new())).is_some()
    }

    pub(super) fn last_write(&self, call: u64) -> Option<&SizeWrite> {
        self.writes.values().filter(|write| write.call == call).max_by_key(|write| write.at)
    }

    fn assign_anew(&mut self, number: u64) -> bool {
        let found = self.search(|ledger, authors| ledger.call_for(number, authors, &mut BTreeSet::new()));
        if found == Some(Authors::StoodStill)
            && let Some(call) = self.writes.get(&number).map(|write| write.call)
            && let Some(asked) = self.asked.get_mut(&call)
        {
            asked.began_late = true;
        }
        found.is_some()
    }

    /// Searches for an assignment, and tries unlikely authors only if no other fits. Counts an assignment as an
    /// exception if a copy must have stood still for it.
    fn search(&mut self, mut search: impl FnMut(&mut Self, Authors) -> bool) -> Option<Authors> {
        let found = AUTHORS.into_iter().find(|authors| search(self, *authors))?;
        if found == Authors::StoodStill {
            *self.exceptions.entry(STOOD_STILL).or_default() += 1;
        }
        Some(found)
    }

    fn may_be_of(&self, write: &SizeWrite, asked: &Asked, authors: Authors) -> bool {
        let SizeWrite { copy, group, by, sent, at, call: _ } = write;
        if asked.copy != *copy
            || asked.is_refused
            || asked.at > *at
            || most_by(&asked.request, group, *by) < write.count()
        {
            return false;
        }
        let Some(ended) = asked.ended else { return true };
        let was_answered = asked.is_ok && *at > ended;
        if was_answered && (*by > 0 || authors < Authors::Answered) {
            return false;
        }
        let has_begun = || {
            let has_patched = || self.has_patched(*copy, group, asked.at, ended);
            *by < 0 && (asked.began_late || has_patched())
        };
        *sent <= ended + AT_ONCE
            || (authors >= Authors::Begun && has_begun())
            || (authors >= Authors::StoodStill && self.stood_still(*copy, ended, *sent))
    }

    /// Assigns a write to a call, and moves that call's own writes to others if need be. Returns false if no call fits.
    fn call_for(&mut self, number: u64, authors: Authors, seen: &mut BTreeSet<u64>) -> bool {
        let Some(write) = self.writes.get(&number).cloned() else { return false };
        let calls = self.asked.iter().filter(|(_, asked)| self.may_be_of(&write, asked, authors));
        let calls: Vec<_> =
            calls.map(|(call, asked)| (*call, most_by(&asked.request, &write.group, write.by))).collect();
        for (call, most) in calls {
            if !seen.insert(call) {
                continue;
            }
            let others = self.writes.iter().filter(|(other, it)| it.call == call && **other != number);
            let others: Vec<_> = others.map(|(other, it)| (*other, it.count())).collect();
            let mut rest = most - write.count() - others.iter().map(|(_, count)| count).sum::<i64>();
            for (other, count) in others {
                if rest < 0 && self.call_for(other, authors, seen) {
                    rest += count;
                }
            }
            if rest >= 0 {
                if let Some(write) = self.writes.get_mut(&number) {
                    write.call = call;
                }
                return true;
            }
        }
        false
    }

    /// Finds a write for a call that was answered OK: from a call that wasn't, or from one that can get another write.
    /// Returns false if there is none.
    fn write_for(&mut self, call: u64, asked: &Asked, authors: Authors, seen: &mut BTreeSet<u64>) -> bool {
        let writes = self.writes.iter().filter(|(_, write)| self.may_be_of(write, asked, authors));
        let writes: Vec<_> = writes.map(|(number, write)| (*number, write.call)).collect();
        for (number, of) in writes {
            if !seen.insert(number) {
                continue;
            }
            let needs = self.asked.get(&of).filter(|other| other.is_ok).cloned();
            if needs.is_none_or(|other| self.write_for(of, &other, authors, seen)) {
                if let Some(write) = self.writes.get_mut(&number) {
                    write.call = call;
                }
                return true;
            }
        }
        false
    }

    /// Reports a write that no call can be the author of.
    pub(super) fn find_author_missing(&mut self, copy: usize, id: &str, (from, to): (i64, i64)) {
        let asked_for =
            |asked: &&Asked| asked.copy == copy && most_by(&asked.request, id, to - from) >= (to - from).abs();
        let mut asked = self.asked.values().filter(asked_for).peekable();
        let (check, why) = if asked.peek().is_none() {
            (Check::SizeOfCommand, "for which no call has asked")
        } else if to > from && asked.all(|asked| asked.is_refused) {
            (Check::IncreaseOnce, "for an increase that it had refused for good")
        } else if to < from && asked.any(|asked| asked.is_refused) {
            (Check::RefusedLeavesNothing, "for a call that it had refused for good")
        } else {
            (Check::AfterDeadline, "for which no caller waited, or it was done before")
        };
        self.find(check, format!("copy {copy} wrote size {from} to {to} of {id}, {why}"));
    }
}

/// The age from which a request under way was given up by its copy: `Policy::WRITES`.
pub(super) const GIVEN_UP: Nanos = 10 * SECOND;

impl Ledger {
    /// Checks that an increase is applied once if answered OK, never if refused, and at most once if the outcome is
    /// unknown.
    pub(super) fn increase_is_done(&mut self, number: u64, asked: &Asked, code: Code, (group, delta): (&str, i64)) {
        let times = if code == Code::Ok {
            (!self.has_write(number, asked)).then_some(0)
        } else {
            (asked.is_refused && self.reassign(number) > 0).then_some(1)
        };
        if let Some(times) = times {
            let what = format!("an increase of {group} by {delta} was answered {code:?} and done {times} times");
            self.find(Check::IncreaseOnce, what);
        }
    }

    /// Records a larger size that a copy has written.
    pub(super) fn increased(&mut self, copy: usize, id: &str, (from, to): (i64, i64)) {
        if let Some(writer) = self.writer.clone()
            && !self.increased_by.insert(writer)
        {
            if self.now.saturating_sub(self.sent) > GIVEN_UP {
                *self.exceptions.entry(LATE_SIZE).or_default() += 1;
            } else {
                let what = format!("copy {copy} wrote size {from} to {to} of {id} for a second time");
                self.find(Check::IncreaseOnce, what);
            }
        } else if !self.assign(copy, id, to - from) {
            self.find_author_missing(copy, id, (from, to));
        }
    }

    /// Checks that the size that a copy has written is visible in its answers at once.
    pub(super) fn size_is_visible(&mut self, asked: &Asked, id: &str, answered: i64) {
        // One that has left keeps its last state, and one that has returned begins anew.
        if self.is_out_lately(asked.at) {
            return;
        }
        let shown = asked.at.saturating_sub(TAKEN_UP);
        if let Some(size) = self.size(id).filter(|size| *size != answered)
            && self.knows(asked.copy, id, shown)
        {
            let what = format!("copy {} answers size {answered} of {id}, and was shown {size} before", asked.copy);
            self.find(Check::Consistent, what);
        }
        let newest = self
            .asked
            .iter()
            .filter(|(_, other)| other.copy == asked.copy && other.is_ok)
            .filter(|(_, other)| other.ended.is_some_and(|ended| ended <= asked.at))
            .filter_map(|(number, other)| self.lowered_or_raised(*number, other, id))
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
    fn lowered_or_raised(&self, number: u64, done: &Asked, id: &str) -> Option<Nanos> {
        match &done.request {
            Request::Increase { group, .. } | Request::Decrease { group, .. } if group == id => {
                self.last_write(number).map(|write| write.at)
            }
            // Any of the requests of a batch counts, since one size is written for all of them. Later sizes may be
            // those of commands that haven't been answered yet.
            Request::Delete { group, .. } if group == id => {
                let ended = done.ended?;
                let written = self.own_lower_sizes.get(&(done.copy, id.to_owned()))?;
                written.iter().copied().find(|written| (done.at..=ended).contains(written))
            }
            Request::Increase { .. }
            | Request::Decrease { .. }
            | Request::Delete { .. }
            | Request::TargetSize { .. }
            | Request::Instances { .. }
            | Request::Template { .. }
            | Request::Other(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use prost::Message as _;
    use proto::{NodeGroupDecreaseTargetSizeRequest, NodeGroupIncreaseSizeRequest};

    use tonic::Code;

    use super::*;
    use crate::{
        entropy::SECOND,
        ledger::{Answered, Group, taken::LATE_SIZE},
        tasks::Pause,
    };

    const GROUP: &str = "MachineDeployment/default/workers";

    fn at(ledger: &mut Ledger, seconds: u64) {
        ledger.now = seconds * SECOND;
    }

    fn asks(ledger: &mut Ledger, number: u64, delta: i32) {
        let (path, message) = if delta > 0 {
            let request = NodeGroupIncreaseSizeRequest { id: GROUP.into(), delta };
            ("/NodeGroupIncreaseSize", request.encode_to_vec())
        } else {
            let request = NodeGroupDecreaseTargetSizeRequest { id: GROUP.into(), delta };
            ("/NodeGroupDecreaseTargetSize", request.encode_to_vec())
        };
        ledger.asked(number, 0, path, &[vec![0; 5], message].concat());
    }

    fn sends(ledger: &mut Ledger, writer: &str) {
        ledger.sends_size(writer, ledger.now);
    }

    fn writes(ledger: &mut Ledger, writer: &str, by: i64) {
        (ledger.writer, ledger.sent) = (Some(writer.to_owned()), ledger.now);
        ledger.size_of_command(0, GROUP, &Group { size: 5, ..Group::default() }, 5 + by);
    }

    fn is_answered(ledger: &mut Ledger, number: u64, code: Option<Code>) {
        ledger.answered(number, &Answered { code, message: &[], text: "" });
    }

    fn found(ledger: &mut Ledger) -> Vec<Check> {
        ledger.findings().into_iter().map(|finding| finding.check).collect()
    }

    #[test]
    fn each_increase_that_is_done_has_a_write() {
        let mut ledger = Ledger::default();
        asks(&mut ledger, 1, 2);
        writes(&mut ledger, "a", 2);
        is_answered(&mut ledger, 1, Some(Code::Ok));
        assert_eq!(found(&mut ledger), []);
        asks(&mut ledger, 2, 2);
        is_answered(&mut ledger, 2, Some(Code::Ok));
        assert_eq!(found(&mut ledger), [Check::IncreaseOnce], "nothing was written for the second");
    }

    #[test]
    fn one_increase_is_not_done_under_two_names() {
        let mut ledger = Ledger::default();
        asks(&mut ledger, 1, 2);
        writes(&mut ledger, "a", 2);
        writes(&mut ledger, "b", 2);
        assert_eq!(found(&mut ledger), [Check::AfterDeadline]);
    }

    #[test]
    fn a_size_that_nobody_has_asked_for_is_found() {
        let mut ledger = Ledger::default();
        asks(&mut ledger, 1, 2);
        writes(&mut ledger, "a", 3);
        assert_eq!(found(&mut ledger), [Check::SizeOfCommand]);
    }

    #[test]
    fn either_of_two_equal_increases_may_be_the_author() {
        let mut ledger = Ledger::default();
        for (number, writer) in [(1, "a"), (2, "b"), (3, "c")] {
            asks(&mut ledger, number, 1);
            sends(&mut ledger, writer);
        }
        writes(&mut ledger, "c", 1);
        is_answered(&mut ledger, 3, Some(Code::FailedPrecondition));
        writes(&mut ledger, "b", 1);
        is_answered(&mut ledger, 1, Some(Code::Ok));
        is_answered(&mut ledger, 2, Some(Code::Ok));
        assert_eq!(found(&mut ledger), []);
    }

    #[test]
    fn an_increase_that_is_refused_is_not_done() {
        let mut ledger = Ledger::default();
        asks(&mut ledger, 1, 1);
        asks(&mut ledger, 2, 1);
        writes(&mut ledger, "a", 1);
        writes(&mut ledger, "b", 1);
        is_answered(&mut ledger, 2, Some(Code::Unavailable));
        is_answered(&mut ledger, 1, Some(Code::FailedPrecondition));
        assert_eq!(found(&mut ledger), [Check::IncreaseOnce]);
    }

    /// A call that was answered OK isn't the author of a later write, even if no other call fits.
    #[test]
    fn a_write_after_the_answer_is_of_another_call() {
        let mut ledger = Ledger::default();
        asks(&mut ledger, 1, 1);
        sends(&mut ledger, "a");
        sends(&mut ledger, "b");
        writes(&mut ledger, "a", 1);
        is_answered(&mut ledger, 1, Some(Code::Ok));
        at(&mut ledger, 1);
        writes(&mut ledger, "b", 1);
        assert_eq!(found(&mut ledger), [Check::AfterDeadline]);
    }

    #[test]
    fn a_caller_who_has_left_is_written_for_only_by_a_copy_that_stood_still() {
        for stood_still in [false, true] {
            let mut ledger = Ledger::default();
            asks(&mut ledger, 1, 1);
            at(&mut ledger, 2);
            is_answered(&mut ledger, 1, None);
            at(&mut ledger, 5);
            if stood_still {
                ledger.pauses.push(Pause { copy: 0, began: SECOND, ended: ledger.now });
            }
            writes(&mut ledger, "a", 1);
            let expected: &[Check] = if stood_still { &[] } else { &[Check::AfterDeadline] };
            assert_eq!(found(&mut ledger), expected);
            assert_eq!(ledger.exceptions.get(STOOD_STILL).copied().unwrap_or_default(), u64::from(stood_still));
        }
    }

    #[test]
    fn a_size_that_arrives_twice_is_excused_if_it_is_late() {
        let mut ledger = Ledger::default();
        asks(&mut ledger, 1, 1);
        writes(&mut ledger, "a", 1);
        at(&mut ledger, 60);
        ledger.sent = 0;
        ledger.size_of_command(0, GROUP, &Group { size: 5, ..Group::default() }, 6);
        assert_eq!((found(&mut ledger), ledger.exceptions.get(LATE_SIZE).copied()), (vec![], Some(1)));
        writes(&mut ledger, "a", 1);
        assert_eq!(found(&mut ledger), [Check::IncreaseOnce]);
    }

    #[test]
    fn a_decrease_may_be_done_in_parts_and_no_further() {
        let mut ledger = Ledger::default();
        asks(&mut ledger, 1, -3);
        writes(&mut ledger, "a", -1);
        writes(&mut ledger, "b", -2);
        assert_eq!(found(&mut ledger), []);
        writes(&mut ledger, "c", -1);
        assert_eq!(found(&mut ledger), [Check::AfterDeadline]);
    }

    /// The first write is assigned to the larger decrease, and has to move for the second to fit.
    #[test]
    fn a_part_of_a_decrease_moves_to_another_one() {
        let mut ledger = Ledger::default();
        asks(&mut ledger, 1, -3);
        asks(&mut ledger, 2, -1);
        writes(&mut ledger, "a", -1);
        writes(&mut ledger, "b", -3);
        assert_eq!(found(&mut ledger), []);
    }

    #[test]
    fn a_decrease_that_is_refused_leaves_nothing() {
        for other in [-2, -1] {
            let mut ledger = Ledger::default();
            asks(&mut ledger, 1, -2);
            asks(&mut ledger, 2, other);
            writes(&mut ledger, "a", -2);
            is_answered(&mut ledger, 1, Some(Code::FailedPrecondition));
            let expected: &[Check] = if other == -2 { &[] } else { &[Check::RefusedLeavesNothing] };
            assert_eq!(found(&mut ledger), expected, "beside a decrease by {other}");
        }
    }

    #[test]
    fn a_decrease_whose_caller_has_left_goes_on_if_it_had_begun() {
        for has_begun in [false, true] {
            let mut ledger = Ledger::default();
            asks(&mut ledger, 1, -1);
            if has_begun {
                ledger.patches.push((0, "/namespaces/default/machinedeployments/workers".to_owned(), SECOND));
            }
            at(&mut ledger, 2);
            is_answered(&mut ledger, 1, None);
            at(&mut ledger, 5);
            writes(&mut ledger, "a", -1);
            let expected: &[Check] = if has_begun { &[] } else { &[Check::AfterDeadline] };
            assert_eq!(found(&mut ledger), expected);
        }
    }
}
