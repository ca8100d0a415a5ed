//! Checks on the Machines that copies delete, and mark in MachinePools: each was named, and the size is lowered for each
//! once, by the copy that was told that its deletion is done. Where it isn't lowered, the Machine is replaced, for a
//! cause that is counted.

use std::collections::BTreeSet;

use tonic::Code;

use super::{
    Author, Check, EXCUSED, Group, Ledger, Machine,
    calls::{Asked, Request},
    refusals::OLD,
    sizes::{GIVEN_UP, SizeWrite},
    taken::{GONE_EARLY, LATE_SIZE},
};
use crate::{
    entropy::{Nanos, SECOND},
    host::TICK,
};

/// The prefix of a mark of the program.
pub(super) const MARKED_BY: &str = "capi-autoscaler-provider ";
/// The longest time from a deletion to the sending of its smaller size: a copy repeats writes for 20 s, and may stand
/// still, or its task may not run, meanwhile.
const LOWERS_FOR: Nanos = 240 * SECOND;
/// The time for which a copy repeats a smaller size.
const UNDER_WAY: Nanos = 20 * SECOND;
/// The min time between two replacements in one group, less the latency of a request.
const REPLACES_AFTER: Nanos = (5 * 60 - 10) * SECOND;

/// A cause for which a named Machine is replaced: docs/design/simulation.md, What can't be promised.
const FOREIGN: &str = "replaced: somebody else has deleted a named Machine";
const ENDED: &str = "replaced: a copy ends between a deletion and its smaller size";
const NOT_TOLD: &str = "replaced: a copy doesn't know whether a deletion was its own";
const NOT_LOWERED: &str = "replaced: the size can't be lowered after a deletion, and the answer says so";
const NOT_HEARD: &str = "replaced: the size can't be lowered after a deletion, and the caller has left";
const SURPRISED: &str = "replaced: a copy is told of a deletion that it had given up";

/// What isn't done for its caller: no harm.
const GIVEN_BACK: &str = "an increase whose caller had left is given back";

/// A Machine that a copy has deleted or marked.
#[derive(Clone, Debug)]
#[allow(clippy::struct_excessive_bools, reason = "each is a fact about the deletion")]
pub(super) struct Removal {
    pub(super) copy: usize,
    pub(super) group: String,
    pub(super) uid: String,
    pub(super) at: Nanos,
    /// True if the copy has received the answer.
    is_told: bool,
    /// True if the size was lowered for it.
    pub(super) is_lowered: bool,
    /// True if a new Machine has come in its place before its smaller size was seen.
    is_made_good: bool,
    /// True if its copy has ended since, before the size was lowered.
    is_left: bool,
    /// True if it was a mark that the copy has taken off again.
    pub(super) is_taken_back: bool,
    /// True if it never had a Node, and was deleted when the size could become no smaller.
    may_be_replacement: bool,
    /// True once a caller who had asked for it was answered OK although the size wasn't lowered.
    is_replacement: bool,
    /// The first end of a call that had asked for it: its code, or `None` for a caller who had left.
    #[allow(clippy::option_option, reason = "no end, an end without a code, and one with a code")]
    outcome: Option<Option<Code>>,
}

impl Removal {
    fn is_of(&self, copy: usize, group: &str) -> bool {
        self.copy == copy && self.group == group
    }

    /// Returns true if the size is still to be lowered for it.
    fn is_open(&self) -> bool {
        !self.is_lowered && !self.is_taken_back && !self.is_replacement
    }
}

impl Ledger {
    /// Records a request of a copy whose answer it receives: the deletion or the mark that it has just done is its own.
    pub(crate) fn tells(&mut self, copy: usize, path: &str) {
        let Some(name) = path.split("/machines/").nth(1) else { return };
        let now = self.now;
        let machines = &self.machines;
        let is_it = |it: &&mut Removal| {
            it.copy == copy && it.at == now && machines.get(&it.uid).is_some_and(|machine| machine.name == name)
        };
        if let Some(removal) = self.removals.iter_mut().rev().find(is_it) {
            removal.is_told = true;
        }
    }

    pub(super) fn writes_machine(&mut self, copy: usize, uid: &str, before: Option<&Machine>, after: &Machine) {
        let is_pool = after.group.starts_with("MachinePool/");
        let is_ours = |machine: &Machine| machine.marked_since().is_some();
        let had_mark = before.is_some_and(is_ours);
        let mark = after.mark.as_ref().map(|(mark, _)| mark);
        let is_changed = mark != before.and_then(|machine| machine.mark.as_ref()).map(|(mark, _)| mark);
        let is_taken = after.is_deleting && before.is_some_and(|machine| !machine.is_deleting);
        let name = &after.name;
        if is_changed && !is_ours(after) && had_mark {
            let removal = self.removals.iter_mut().rev().find(|it| it.copy == copy && it.uid == uid);
            if let Some(removal) = removal {
                removal.is_taken_back = !removal.is_lowered;
                if removal.is_taken_back {
                    self.taken_back.insert(uid.to_owned(), self.now);
                }
            }
        } else if is_changed && !is_pool {
            self.find(Check::TakenUnnamed, format!("copy {copy} marked {name} of {}", after.group));
        }
        if is_pool && is_taken {
            self.find(Check::TakenUnnamed, format!("copy {copy} deleted {name} of {} by name", after.group));
        }
        if is_taken || (is_changed && is_ours(after)) {
            self.removes(copy, uid, before.unwrap_or(after));
        }
    }

    fn removes(&mut self, copy: usize, uid: &str, machine: &Machine) {
        let (id, name) = (machine.group.clone(), machine.name.clone());
        self.begins(copy, "the deletion of a Machine", &id);
        let sent = self.sent;
        let asks = |asked: &Asked| {
            let names = match &asked.request {
                Request::Delete { group, uids, .. } => *group == id && uids.contains(uid),
                Request::Decrease { group, .. } => *group == id && machine.node.is_none(),
                Request::Increase { .. }
                | Request::TargetSize { .. }
                | Request::Instances { .. }
                | Request::Template { .. }
                | Request::Other(_) => false,
            };
            // A copy's clock may be a tick behind that of the world, which dates calls.
            names && asked.copy == copy && asked.at <= sent + TICK
        };
        let goes_on = |asked: &Asked| asked.ended.is_some_and(|ended| self.has_patched(copy, &id, asked.at, ended));
        let waits = |asked: &Asked| self.is_in_time(asked, sent) || asked.began_late || goes_on(asked);
        let all: Vec<_> = self.asked.values().filter(|asked| asks(asked)).collect();
        let waiting: Vec<_> = all.iter().filter(|asked| waits(asked)).collect();
        let found = if all.is_empty() {
            Some((Check::TakenUnnamed, "for which no call has asked"))
        } else if waiting.is_empty() {
            Some((Check::AfterDeadline, "after all who had asked for it had left"))
        } else if waiting.iter().all(|asked| asked.is_refused) {
            Some((Check::RefusedLeavesNothing, "for a call that it had refused for good"))
        } else if machine.node.is_some() && !self.named_with_node.contains(uid) {
            Some((Check::TakenUnnamed, "as one that never joined, and it had a Node"))
        } else if self.rolls(&id).is_some() && self.named_in_rollout(copy, uid) == self.rolls(&id) {
            Some((Check::RollsOut, "although its group rolls out"))
        } else {
            None
        };
        // A caller may leave while the DELETE is repeated, whose first answer was lost or that came late.
        let has_left = |asked: &&&Asked| {
            matches!(asked.request, Request::Decrease { .. }) && asked.ended.is_some() && !asked.is_ok
        };
        let is_unheard = self.unheard.contains(&(copy, uid.to_owned()))
            || waiting.iter().max_by_key(|asked| asked.at).is_some_and(has_left);
        if let Some((check, why)) = found {
            self.find(check, format!("copy {copy} deleted {name} of {id}, {why}"));
        }
        let lately = self.now.saturating_sub(OLD);
        let group = self.groups.get(&id);
        let is_below = |left: i64| group.is_some_and(|group| group.bounds_since(lately).all(|(min, _)| left < min));
        let under_way = self.removals.iter().filter(|it| it.is_of(copy, &id) && it.is_open() && it.outcome.is_none());
        let under_way = under_way.filter(|it| it.is_told && it.at + UNDER_WAY > self.now).count();
        let size = group.map_or(0, |group| group.size);
        let left = size - i64::try_from(under_way).unwrap_or(i64::MAX) - 1;
        // The copy may know an older size, and older bounds.
        let sizes = self.sizes.get(&id).into_iter().flatten();
        let sizes = sizes.filter(|(until, _)| until.is_none_or(|until| until >= lately)).map(|(_, size)| *size);
        let lowest = sizes.min().unwrap_or(size);
        let is_at_min = group.is_some_and(|group| group.bounds_since(lately).any(|(min, _)| lowest <= min));
        let may_be_replacement = machine.node.is_none() && !id.starts_with("MachinePool/") && is_at_min;
        let is_too_many = machine.node.is_some() && under_way > 0 && is_below(left);
        if is_too_many {
            let what = format!("copy {copy} deleted {name} of {id}, which leaves {left} of size {size}, below its min");
            self.find(Check::Bounds, what);
        }
        self.removals.push(Removal {
            copy,
            group: id,
            uid: uid.to_owned(),
            at: self.now,
            is_told: false,
            is_lowered: false,
            is_made_good: false,
            is_left: false,
            is_taken_back: false,
            may_be_replacement,
            is_replacement: false,
            outcome: is_unheard.then_some(None),
        });
    }

    /// Records a smaller size that a copy has written: for Machines that it was told to have removed, or else for what
    /// its calls ask for beside them.
    pub(super) fn lowers(&mut self, copy: usize, id: &str, (before, group): (&Group, &mut Group), by: i64) {
        let (now, sent) = (self.now, self.sent);
        if let Some(writer) = self.writer.clone()
            && !self.lowered_by.insert(writer)
        {
            if now.saturating_sub(sent) > GIVEN_UP {
                *self.exceptions.entry(LATE_SIZE).or_default() += 1;
                group.allow(LATE_SIZE, by, now);
            } else {
                let what = format!("copy {copy} lowered the size of {id} by {by} for a second time");
                self.find(Check::TwoForOne, what);
            }
            return;
        }
        let is_own = |it: &&mut Removal| {
            it.is_of(copy, id) && it.is_open() && it.is_told && it.at <= sent + TICK && sent < it.at + LOWERS_FOR
        };
        let number = usize::try_from(by).unwrap_or_default();
        let mut own: Vec<_> = self.removals.iter_mut().rev().filter(is_own).take(number).collect();
        if own.len() == number {
            for removal in &mut own {
                removal.is_lowered = true;
            }
            let early = own.iter().filter(|removal| removal.is_made_good).count();
            group.allow(GONE_EARLY, i64::try_from(early).unwrap_or(i64::MAX), now);
            return;
        }
        if self.gives_back(copy, id, by) {
            return;
        }
        self.begins(copy, "the size", id);
        if self.is_for_places(copy, id, by) {
            if now.saturating_sub(sent) > GIVEN_UP && before.generation.1 > sent {
                *self.exceptions.entry(LATE_SIZE).or_default() += 1;
                group.allow(LATE_SIZE, by, now);
                return;
            }
            let came = self.gives_up(copy, id, before, by);
            group.gives_up(by, came, now);
            return;
        }
        let was_removing = |it: &Removal| it.is_of(copy, id) && sent < it.at + LOWERS_FOR;
        if self.removals.iter().any(was_removing) {
            let own = self.removals.iter().filter(|it| was_removing(it) && it.is_told && it.is_open()).count();
            let what = format!(
                "copy {copy} lowered the size of {id} by {by}, and {own} deletions were its own that had lowered nothing"
            );
            self.find(Check::TwoForOne, what);
        } else {
            self.find_author_missing(copy, id, (before.size, before.size - by));
        }
    }

    /// Returns true if a smaller size gives back a recent increase whose caller had left. It excuses nothing.
    fn gives_back(&mut self, copy: usize, id: &str, by: i64) -> bool {
        let sent = self.sent;
        let is_it = |write: &SizeWrite| {
            let is_left = |asked: &Asked| asked.ended.is_some_and(|ended| ended <= sent + TICK) && !asked.is_ok;
            write.copy == copy
                && write.group == id
                && write.by >= by
                && sent <= write.sent + GIVEN_UP + TICK
                && self.asked.get(&write.call).is_some_and(is_left)
        };
        let written = self.writes.iter().find(|(_, write)| is_it(write)).map(|(number, _)| *number);
        let Some(number) = written else { return false };
        self.writes.remove(&number);
        *self.exceptions.entry(GIVEN_BACK).or_default() += 1;
        true
    }

    /// Records the end of a call for the deletions that it had asked for.
    pub(super) fn notes_outcome(&mut self, asked: &Asked, code: Option<Code>) {
        if let (Request::Delete { uids, .. }, None) = (&asked.request, code) {
            self.unheard.extend(uids.iter().map(|uid| (asked.copy, uid.clone())));
        }
        let is_its = |it: &Removal| match &asked.request {
            Request::Delete { group, uids, .. } => it.group == *group && uids.contains(&it.uid),
            Request::Decrease { group, .. } => it.group == *group && !self.named.contains(&it.uid),
            Request::Increase { .. }
            | Request::TargetSize { .. }
            | Request::Instances { .. }
            | Request::Template { .. }
            | Request::Other(_) => false,
        };
        for removal in self.removals.iter_mut().filter(|it| it.copy == asked.copy && it.at >= asked.at && is_its(it)) {
            // Of several callers the one who was told the worst counts.
            let is_worse = match removal.outcome {
                None | Some(Some(Code::Ok)) => true,
                Some(None) => code.is_some_and(|code| code != Code::Ok),
                Some(Some(_)) => false,
            };
            if is_worse {
                removal.outcome = Some(code);
            }
        }
    }

    /// Checks a delete that was answered OK: each Machine that was deleted for it has lowered the size, or is replaced
    /// on purpose.
    pub(super) fn deletes_are_done(&mut self, asked: &Asked, uids: &BTreeSet<String>) {
        for uid in uids {
            let is_its = |it: &&mut Removal| it.uid == *uid && it.copy == asked.copy && it.at >= asked.at;
            match self.removals.iter_mut().rev().find(is_its) {
                Some(removal) if removal.is_open() && removal.may_be_replacement => {
                    removal.is_replacement = true;
                    let (group, at) = (removal.group.clone(), removal.at);
                    self.replaces_one(asked.copy, &group, at);
                }
                Some(removal) if removal.is_open() && removal.is_told && removal.outcome == Some(Some(Code::Ok)) => {
                    let (copy, group) = (asked.copy, removal.group.clone());
                    let what = format!("copy {copy} answered the deletion of {uid} of {group} OK, and lowered nothing");
                    self.find(Check::Replaced, what);
                }
                Some(_) => {}
                None => {
                    let by = self.machines.get(uid).filter(|it| it.is_deleting).and_then(|it| it.deleted_by);
                    if by == Some(Author::Foreign) && self.counted.insert(uid.clone()) {
                        *self.exceptions.entry(FOREIGN).or_default() += 1;
                    }
                }
            }
        }
    }

    /// Notes that an answer calls a Machine replaced. Returns false if the copy hasn't deleted it.
    pub(super) fn is_replaced_on_purpose(&mut self, copy: usize, uid: &str) -> bool {
        let is_it = |it: &&mut Removal| it.uid == uid && it.copy == copy && it.is_open();
        let Some(removal) = self.removals.iter_mut().rev().find(is_it) else { return false };
        removal.is_replacement = true;
        let (group, at) = (removal.group.clone(), removal.at);
        self.replaces_one(copy, &group, at);
        true
    }

    /// Checks a decrease that was answered OK: each Machine that was deleted for it has lowered the size.
    pub(super) fn decrease_is_done(&mut self, asked: &Asked, group: &str) {
        let is_its = |it: &&Removal| it.is_of(asked.copy, group) && it.at >= asked.at && !self.named.contains(&it.uid);
        let is_left = |it: &&Removal| it.is_open() && it.is_told && it.outcome == Some(Some(Code::Ok));
        let left = self.removals.iter().filter(is_its).find(is_left);
        if let Some(removal) = left {
            let (copy, uid) = (asked.copy, &removal.uid);
            let what =
                format!("copy {copy} answered a decrease of {group} OK, deleted {uid}, and lowered nothing for it");
            self.find(Check::Replaced, what);
        }
    }

    /// Checks a Machine that a copy has replaced at the min size.
    fn replaces_one(&mut self, copy: usize, group: &str, at: Nanos) {
        if !self.replaces {
            let what = format!("copy {copy} replaces a Machine of {group}, which --no-replacement forbids");
            self.find(Check::ReplacedTooSoon, what);
        }
        let last = self.replacements.insert((copy, group.to_owned()), at);
        let last = last.filter(|last| *last < at && self.last_killed.get(&copy).is_none_or(|killed| killed < last));
        if let Some(last) = last.filter(|last| at < last + REPLACES_AFTER && !self.clocks_jump) {
            let seconds = (at - last) / SECOND;
            let what = format!("copy {copy} replaces a Machine of {group} {seconds} s after the one before");
            self.find(Check::ReplacedTooSoon, what);
        }
    }

    /// Returns true if a new Machine comes in the place of a removed one, whose smaller size isn't written or wasn't
    /// seen. A MachineSet counts those that are still being deleted as replicas.
    pub(super) fn comes_early(&self, id: &str) -> bool {
        let Some(group) = self.groups.get(id) else { return false };
        let there = self.machines.values().filter(|machine| machine.group == id && !machine.is_gone).count();
        let gone = self.gone_early(id).filter(|it| !it.is_lowered).count();
        let is_beyond = |size: i64| i64::try_from(there).unwrap_or(i64::MAX) > size;
        is_beyond(group.size - i64::try_from(gone).unwrap_or_default()) && self.gone_early(id).next().is_some()
    }

    /// Returns the recently removed Machines that are gone, and that no new Machine has made good.
    fn gone_early(&self, id: &str) -> impl Iterator<Item = &Removal> {
        let is_gone = |uid: &str| self.machines.get(uid).is_some_and(|machine| machine.is_gone);
        let is_recent = |it: &Removal| self.now < it.at + EXCUSED && !it.is_replacement && !it.is_taken_back;
        self.removals.iter().filter(move |it| it.group == id && !it.is_made_good && is_recent(it) && is_gone(&it.uid))
    }

    /// Records that a new Machine has come in the place of a removed one.
    pub(super) fn makes_good(&mut self, id: &str) {
        let Some(uid) = self.gone_early(id).min_by_key(|it| it.is_lowered).map(|it| it.uid.clone()) else { return };
        let now = self.now;
        for removal in self.removals.iter_mut().filter(|it| it.uid == uid) {
            removal.is_made_good = true;
            if removal.is_lowered
                && let Some(group) = self.groups.get_mut(id)
            {
                group.allow(GONE_EARLY, 1, now);
            }
        }
    }

    /// Records that a copy ends: nobody lowers the size for what it has removed.
    pub(super) fn removals_are_left(&mut self, copy: usize) {
        for removal in self.removals.iter_mut().filter(|it| it.copy == copy && it.is_open()) {
            removal.is_left = true;
        }
    }

    /// Counts the Machines that are replaced, once it is certain.
    pub(super) fn look_at_removals(&mut self) {
        let now = self.now;
        let over: Vec<_> = self.removals.extract_if(.., |it| it.at + EXCUSED < now).collect();
        for removal in over.into_iter().filter(Removal::is_open) {
            self.is_replaced(&removal);
        }
    }

    /// Counts the Machines that are replaced, at the end of a world.
    pub(crate) fn removals_are_over(&mut self) {
        for removal in std::mem::take(&mut self.removals).into_iter().filter(Removal::is_open) {
            self.is_replaced(&removal);
        }
    }

    fn is_replaced(&mut self, removal: &Removal) {
        let is_gone = |group: &Group| group.is_gone || group.is_deleting;
        if self.groups.get(&removal.group).is_none_or(is_gone) {
            return;
        }
        let cause = match removal.outcome {
            _ if removal.is_left => ENDED,
            Some(Some(Code::Ok)) if removal.is_told => SURPRISED,
            _ if !removal.is_told => NOT_TOLD,
            Some(None) => NOT_HEARD,
            Some(Some(_)) => NOT_LOWERED,
            None => {
                let what = format!("{} of {} was deleted, and the size not lowered", removal.uid, removal.group);
                self.find(Check::Replaced, what);
                return;
            }
        };
        *self.exceptions.entry(cause).or_default() += 1;
    }
}
