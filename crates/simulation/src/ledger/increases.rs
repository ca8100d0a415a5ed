//! Checks on increases: each is applied once if it is answered OK, and its size is visible from then on.

use std::collections::BTreeSet;

use tonic::Code;

use super::{
    Check, Ledger,
    calls::{Asked, Request},
    taken::LATE_SIZE,
    watches::TAKEN_UP,
};
use crate::entropy::{Nanos, SECOND};

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
            | Request::Other(_) => None,
        }
    }
}
