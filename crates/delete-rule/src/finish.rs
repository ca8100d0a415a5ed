//! The steps of a finisher, which drives all deletions of a group to their end, whoever began them.

use std::{collections::HashMap, time::Duration};

use crate::{Entry, Followed, Forgets, Log, Phase, Policy, Rule, Types, followed::ByName};

/// A Machine of the group in a view that may lag behind.
pub trait Member<T: Types>: Clone {
    /// Returns the uid.
    fn uid(&self) -> &T::Uid;
    /// Returns true if the Machine is being deleted.
    fn is_deleting(&self) -> bool;
    /// Returns the ticket of its mark; `None` if it has no mark, or somebody else's.
    fn ticket(&self) -> Option<T::Ticket>;
}

/// A step that the finisher has to take.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Finish<T: Types, M> {
    /// Marks the Machines of all wanted entries and lowers the size for them.
    CarryOn,
    /// Removes an entry from the log whose Machine seems gone, once it is known to be gone.
    ForgetGone(Entry<T>),
    /// Removes a soft entry from the log, once its smaller size has no Machine left to take.
    ForgetSoft(Entry<T>),
    /// Deletes the Machine by name: the smaller size was spent on another one.
    Delete(Entry<T>),
    /// Leaves the Machine to its infrastructure provider, since this time.
    Leave(Entry<T>, T::Time),
    /// Marks the Machine of an entry again, because its mark belongs to an earlier acceptance.
    MarkAgain(Entry<T>),
    /// Removes a mark of ours that belongs to no entry, but only from this version of the Machine: a newer version may
    /// have the mark of a later entry.
    Unmark(M),
}

/// The time for which a Machine is left to its infrastructure provider once its MachinePool has come down to the
/// smaller size: the provider may be deleting it, and no object shows which Machine it has chosen.
pub const LEFT_TO_PROVIDER: Duration = Duration::from_secs(300);

/// The times since which Machines of a MachinePool have been left to their infrastructure provider.
pub type LeftSince<T> = HashMap<(<T as Types>::Uid, <T as Types>::Ticket), <T as Types>::Time, <T as Types>::Hasher>;

impl<P: Policy> Rule<P> {
    /// Decides the next steps for a group's deletions. The log and the Machines may be views that lag behind: whatever
    /// matters is read again before a step is taken.
    pub fn finish<T: Types, M: Member<T>>(
        self,
        log: &Log<T>,
        machines: &[M],
        followed: &Followed<T, P>,
        left: &LeftSince<T>,
        now: T::Time,
    ) -> Vec<Finish<T, M>> {
        let mut steps = Vec::new();
        if log.wanted() > 0 && self.0.carries_on() {
            steps.push(Finish::CarryOn);
        }
        let are_all_followed = followed.has_all(log) || !self.0.waits_for_others();
        for entry in log.entries().iter().filter(|entry| self.is_to_finish(entry, followed)) {
            let life = machines.iter().find(|machine| *machine.uid() == entry.uid).map(Member::is_deleting);
            match life {
                None => steps.push(Finish::ForgetGone(entry.clone())),
                Some(true) if self.0.forgets() == Forgets::Deleting => steps.push(Finish::ForgetGone(entry.clone())),
                Some(_) if !followed.has(entry) => {}
                Some(_) if entry.soft && are_all_followed => steps.push(Finish::ForgetSoft(entry.clone())),
                Some(false) if !entry.soft && are_all_followed => {
                    steps.extend(self.by_name(entry, followed.by_name, left, now));
                }
                Some(_) => {}
            }
        }
        steps.extend(machines.iter().filter_map(|machine| self.of_mark(log, machine)));
        steps
    }

    fn is_to_finish<T: Types>(self, entry: &Entry<T>, followed: &Followed<T, P>) -> bool {
        followed.has(entry) || (self.0.forgets() != Forgets::GoneAndFollowed && entry.phase == Phase::Lowered)
    }

    /// Returns the step for a Machine's mark. A mark whose response was lost may arrive late, and overwrite that of a
    /// later acceptance. It isn't just removed then: if the Machine had no mark, the smaller size would take another
    /// one.
    pub fn of_mark<T: Types, M: Member<T>>(self, log: &Log<T>, machine: &M) -> Option<Finish<T, M>> {
        let ticket = machine.ticket()?;
        match log.get(machine.uid()) {
            Some(entry) if entry.ticket == ticket => None,
            None => self.0.takes_marks_off().then(|| Finish::Unmark(machine.clone())),
            Some(_) if !self.0.marks_again() => Some(Finish::Unmark(machine.clone())),
            Some(entry) if entry.phase == Phase::Lowered => Some(Finish::MarkAgain(entry.clone())),
            // The Machine of a wanted entry is marked before the size is lowered for it.
            Some(_) => None,
        }
    }

    /// Returns the step for a Machine that still exists although its smaller size has been followed.
    fn by_name<T: Types, M>(
        self,
        entry: &Entry<T>,
        by_name: ByName,
        left: &LeftSince<T>,
        now: T::Time,
    ) -> Option<Finish<T, M>> {
        match by_name {
            _ if !self.0.deletes_by_name() => None,
            ByName::AtOnce => Some(Finish::Delete(entry.clone())),
            ByName::NotYet => None,
            ByName::InTime => {
                let since = left.get(&(entry.uid.clone(), entry.ticket.clone())).copied().unwrap_or(now);
                let is_time = T::between(since, now) >= LEFT_TO_PROVIDER;
                Some(if is_time { Finish::Delete(entry.clone()) } else { Finish::Leave(entry.clone(), since) })
            }
        }
    }
}
