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
/// The number of no call.
const NO_CALL: u64 = u64::MAX;
/// The cause for which an increase may be done twice: docs/design/delete-rule.md, What can't be promised.
const LATE_SIZE: &str = "a size write that was given up arrives when the size is again what it was";

/// A size that was written for an increase, known by the name under which it was sent.
#[derive(Clone, Debug)]
pub(super) struct Raise {
    copy: usize,
    request: Request,
    /// The time at which it was first sent.
    sent: Nanos,
    /// The time at which it was applied.
    at: Nanos,
    /// The call that it is taken to be for.
    pub(super) call: u64,
}

/// The calls that may be the author of a write.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Authors {
    /// Those whose caller waited when it was first sent.
    Waiting,
    /// Those as well whose caller left while the copy stood still.
    StoodStill,
}

/// Equal increases under way at once differ by nothing that the API shows, so each write may be of any of them. The rule
/// holds if the writes can be assigned to calls so that each write has a call of its own that wasn't refused, and each
/// call that was answered OK has a write. The assignment changes along augmenting paths as writes and answers come.
impl Ledger {
    /// Checks that an increase is applied once if answered OK, never if refused, and at most once if the outcome is
    /// unknown.
    pub(super) fn increase_is_done(&mut self, number: u64, asked: &Asked, code: Code, (group, delta): (&str, i64)) {
        let writer = self.raises.iter().find(|(_, raise)| raise.call == number).map(|(writer, _)| writer.clone());
        let (is_consistent, times) = match writer {
            Some(_) if code == Code::Ok || is_open(code) => (true, 1),
            Some(writer) => {
                (self.assign_anew(|ledger, authors| ledger.call_for(&writer, authors, &mut BTreeSet::new())), 1)
            }
            None if code == Code::Ok => {
                (self.assign_anew(|ledger, authors| ledger.write_for(number, asked, authors, &mut BTreeSet::new())), 0)
            }
            None => (true, 0),
        };
        if !is_consistent {
            let what = format!("an increase of {group} by {delta} was answered {code:?} and done {times} times");
            self.find(Check::IncreaseOnce, what);
        }
    }

    /// Records a larger size that a copy has written.
    pub(super) fn increased(&mut self, copy: usize, id: &str, (from, to): (i64, i64)) {
        let is_late = self.now.saturating_sub(self.sent) > GIVEN_UP;
        let request = Request::Increase { group: id.to_owned(), delta: to - from };
        let writer = self.writer.clone().unwrap_or_else(|| format!("unnamed at revision {}", self.revision));
        if self.raises.contains_key(&writer) {
            if is_late {
                *self.exceptions.entry(LATE_SIZE).or_default() += 1;
            } else {
                let what = format!("copy {copy} wrote size {from} to {to} of {id} for a second time");
                self.find(Check::IncreaseOnce, what);
            }
            return;
        }
        let sent = self.counts.first_sent(&writer).unwrap_or(self.sent);
        self.raises.insert(writer.clone(), Raise { copy, request: request.clone(), sent, at: self.now, call: NO_CALL });
        if self.assign_anew(|ledger, authors| ledger.call_for(&writer, authors, &mut BTreeSet::new())) {
            return;
        }
        self.raises.remove(&writer);
        let what = format!("copy {copy} wrote size {from} to {to} of {id}");
        let mut equal = self.asked.values().filter(|asked| asked.copy == copy && asked.request == request).peekable();
        let (check, why) = if equal.peek().is_none() {
            (Check::SizeOfCommand, "for which no call has asked")
        } else if equal.all(|asked| asked.is_refused) {
            (Check::IncreaseOnce, "for an increase that it had refused for good")
        } else {
            (Check::AfterDeadline, "for which no call waited, or it was done before")
        };
        self.find(check, format!("{what}, {why}"));
    }

    /// Finds an assignment, if need be with a call whose caller left while the copy stood still, which is counted.
    fn assign_anew(&mut self, mut assign: impl FnMut(&mut Self, Authors) -> bool) -> bool {
        if assign(self, Authors::Waiting) {
            return true;
        }
        let found = assign(self, Authors::StoodStill);
        if found {
            *self.exceptions.entry(STOOD_STILL).or_default() += 1;
        }
        found
    }

    /// Returns true if a call may be the author of a write.
    fn may_be_of(&self, raise: &Raise, asked: &Asked, authors: Authors) -> bool {
        let is_equal = asked.copy == raise.copy && asked.request == raise.request && !asked.is_refused;
        let was_done = !asked.is_ok || asked.ended.is_none_or(|ended| raise.at <= ended);
        let is_in_time = match authors {
            Authors::Waiting => asked.ended.is_none_or(|ended| raise.sent <= ended + AT_ONCE),
            Authors::StoodStill => self.is_in_time(asked, raise.sent),
        };
        is_equal && was_done && asked.at <= raise.sent && is_in_time
    }

    /// Assigns a write to a call, whose own write may get another one. Returns false if there is none.
    fn call_for(&mut self, writer: &str, authors: Authors, seen: &mut BTreeSet<u64>) -> bool {
        let Some(raise) = self.raises.get(writer).cloned() else { return false };
        let may_be = |(_, asked): &(&u64, &Asked)| self.may_be_of(&raise, asked, authors);
        let calls: Vec<u64> = self.asked.iter().filter(may_be).map(|(number, _)| *number).collect();
        for call in calls {
            if !seen.insert(call) {
                continue;
            }
            let other = self.raises.iter().find(|(other, it)| it.call == call && *other != writer);
            let other = other.map(|(other, _)| other.clone());
            if other.is_none_or(|other| self.call_for(&other, authors, seen)) {
                if let Some(raise) = self.raises.get_mut(writer) {
                    raise.call = call;
                }
                return true;
            }
        }
        false
    }

    /// Assigns a write to a call that was answered OK: one of a call that wasn't, or one whose call gets another.
    /// Returns false if there is none.
    fn write_for(&mut self, number: u64, asked: &Asked, authors: Authors, seen: &mut BTreeSet<String>) -> bool {
        let may_be = |(_, raise): &(&String, &Raise)| self.may_be_of(raise, asked, authors);
        let writes: Vec<_> =
            self.raises.iter().filter(may_be).map(|(writer, raise)| (writer.clone(), raise.call)).collect();
        for (writer, call) in writes {
            if !seen.insert(writer.clone()) {
                continue;
            }
            let needs = self.asked.get(&call).filter(|other| other.is_ok).cloned();
            if needs.is_none_or(|other| self.write_for(call, &other, authors, seen)) {
                if let Some(raise) = self.raises.get_mut(&writer) {
                    raise.call = number;
                }
                return true;
            }
        }
        false
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
            Request::Increase { group, .. } if group == id => {
                self.raises.values().find(|raise| raise.call == number).map(|raise| raise.at)
            }
            Request::Decrease { group, .. } if group == id && done.applied > 0 => Some(done.applied_at),
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

#[cfg(test)]
mod tests {
    use prost::Message as _;
    use proto::NodeGroupIncreaseSizeRequest;

    use super::*;
    use crate::{ledger::Answered, tasks::Pause};

    const GROUP: &str = "MachineDeployment/default/workers";

    fn at(ledger: &mut Ledger, seconds: u64) {
        ledger.now = seconds * SECOND;
    }

    fn asks(ledger: &mut Ledger, number: u64, delta: i32) {
        let request = NodeGroupIncreaseSizeRequest { id: GROUP.into(), delta };
        let message = [vec![0; 5], request.encode_to_vec()].concat();
        ledger.asked(number, 0, "/NodeGroupIncreaseSize", &message);
    }

    fn sends(ledger: &mut Ledger, writer: &str) {
        ledger.sends_size(writer, ledger.now);
    }

    fn writes(ledger: &mut Ledger, writer: &str, by: i64) {
        (ledger.writer, ledger.sent) = (Some(writer.to_owned()), ledger.now);
        ledger.increased(0, GROUP, (5, 5 + by));
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

    /// An answer can't be for what is written after it, though another call's outcome is open.
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
        ledger.increased(0, GROUP, (5, 6));
        assert_eq!((found(&mut ledger), ledger.exceptions.get(LATE_SIZE).copied()), (vec![], Some(1)));
        writes(&mut ledger, "a", 1);
        assert_eq!(found(&mut ledger), [Check::IncreaseOnce]);
    }
}
