//! One pass of a finisher over a group, as a sequence of calls: it reads what the view suggests, checks again just
//! before it acts, and removes finished entries from the log. A call that fails must never hold up another.

use std::mem;

use crate::{Complete, Entry, Finish, Followed, Life, Log, Member, Policy, Rule, Set, Types};

/// A call of a pass. The calls of one stage may be made concurrently.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum ReconcileCall<T: Types, M> {
    /// Reads the Machine of an entry that seems gone, or seems to stay; report the result to [`Reconcile::took_life`].
    Read(Entry<T>),
    /// Reads the group; report it to [`Reconcile::took_group`].
    ReadGroup,
    /// Deletes the Machine of an entry by name, if [`Reconcile::permits`] it just before.
    Delete(Entry<T>),
    /// Marks the Machine of an entry again.
    Mark(Entry<T>),
    /// Removes the mark from a Machine, if the Machine hasn't changed at all.
    Unmark(M),
    /// Lists the group's Machines; report them to [`Reconcile::took_list`].
    List,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Stage {
    ReadGone,
    ReadSpent,
    ReadGroup,
    Delete,
    Mark,
    List,
    End,
}

/// A pass in progress.
#[derive(Clone, Debug)]
pub struct Reconcile<T: Types, M, P = Complete> {
    rule: Rule<P>,
    stage: Stage,
    /// Entries whose Machines seem gone; the confirmed ones move to `over`.
    gone: Vec<Entry<T>>,
    over: Vec<Entry<T>>,
    /// Entries whose Machines seem to stay; the confirmed ones move to `staying`.
    spent: Vec<Entry<T>>,
    staying: Vec<Entry<T>>,
    /// Soft entries; those whose smaller size has no Machine left to take move to `soft_over`.
    soft: Vec<Entry<T>>,
    soft_over: Vec<Entry<T>>,
    marks: Vec<Finish<T, M>>,
}

impl<P: Policy> Rule<P> {
    /// Begins a pass with the steps that a view of the group suggests.
    pub fn reconcile<T: Types, M>(self, steps: impl IntoIterator<Item = Finish<T, M>>) -> Reconcile<T, M, P> {
        let (gone, spent, soft, marks) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let (over, staying, soft_over) = (Vec::new(), Vec::new(), Vec::new());
        let mut reconcile =
            Reconcile { rule: self, stage: Stage::ReadGone, gone, over, spent, staying, soft, soft_over, marks };
        for step in steps {
            match step {
                Finish::CarryOn | Finish::Leave(..) => {}
                Finish::ForgetGone(entry) => reconcile.gone.push(entry),
                Finish::ForgetSoft(entry) => reconcile.soft.push(entry),
                Finish::Delete(entry) => reconcile.spent.push(entry),
                step @ (Finish::MarkAgain(_) | Finish::Unmark(_)) => reconcile.marks.push(step),
            }
        }
        reconcile
    }
}

impl<T: Types, M: Member<T>, P: Policy> Reconcile<T, M, P> {
    /// Returns the calls of the next stage, or none at the end. `now` has the group's log as read, and its followed
    /// entries; `None` before the read, and if the object isn't a node group any more.
    pub fn next(&mut self, now: Option<(&Log<T>, &Followed<T, P>)>) -> Vec<ReconcileCall<T, M>> {
        loop {
            let (next, calls) = match self.stage {
                Stage::ReadGone => (Stage::ReadSpent, self.gone.iter().cloned().map(ReconcileCall::Read).collect()),
                Stage::ReadSpent => (Stage::ReadGroup, self.spent.iter().cloned().map(ReconcileCall::Read).collect()),
                Stage::ReadGroup if self.soft.is_empty() && self.staying.is_empty() && self.marks.is_empty() => {
                    (Stage::End, Vec::new())
                }
                // If the read fails, no call that depends on it follows.
                Stage::ReadGroup => (Stage::End, vec![ReconcileCall::ReadGroup]),
                Stage::Delete => {
                    (Stage::Mark, mem::take(&mut self.staying).into_iter().map(ReconcileCall::Delete).collect())
                }
                Stage::Mark => (Stage::List, self.corrections(now)),
                Stage::List => {
                    let are_followed = |entry: &Entry<T>| {
                        now.is_some_and(|(log, followed)| followed.has_all(log) && log.get(&entry.uid) == Some(entry))
                    };
                    self.soft.retain(are_followed);
                    (Stage::End, self.soft.first().map(|_| ReconcileCall::List).into_iter().collect())
                }
                Stage::End => return Vec::new(),
            };
            self.stage = next;
            if !calls.is_empty() {
                return calls;
            }
        }
    }

    /// Returns the marks that are still to be set or removed, judged by the log as it was read.
    fn corrections(&mut self, now: Option<(&Log<T>, &Followed<T, P>)>) -> Vec<ReconcileCall<T, M>> {
        let Some((log, _)) = now else { return Vec::new() };
        let rule = self.rule;
        let correction = |step| {
            let step = match step {
                Finish::Unmark(machine) => rule.of_mark(log, &machine),
                step => Some(step),
            };
            match step {
                Some(Finish::MarkAgain(entry)) => {
                    (log.get(&entry.uid) == Some(&entry)).then_some(ReconcileCall::Mark(entry))
                }
                Some(Finish::Unmark(machine)) => Some(ReconcileCall::Unmark(machine)),
                Some(_) | None => None,
            }
        };
        mem::take(&mut self.marks).into_iter().filter_map(correction).collect()
    }

    /// Takes the result of reading an entry's Machine.
    pub fn took_life(&mut self, entry: Entry<T>, life: Life) {
        match life {
            Life::Gone if self.gone.contains(&entry) => self.over.push(entry),
            // The watch of Machines may lag behind that of MachineSets, and show a deleted Machine as alive. Only a
            // read confirms that it stays.
            Life::Alive if self.spent.contains(&entry) => self.staying.push(entry),
            Life::Alive | Life::Deleting | Life::Gone => {}
        }
    }

    /// Notes that the group was read, so that the calls that depend on it may follow.
    pub fn took_group(&mut self) {
        self.stage = Stage::Delete;
    }

    /// Takes a list of the Machines that are alive, and the size of their MachineSets.
    pub fn took_list(&mut self, alive: &Set<T>, size: i64) {
        let rule = self.rule;
        let is_over = |entry: &Entry<T>| rule.is_soft_over(alive.contains(&entry.uid), alive.len(), size);
        self.soft_over = mem::take(&mut self.soft).into_iter().filter(is_over).collect();
    }

    /// Returns true if the Machine of an entry may be deleted by name, given the current state of the group. Further
    /// deletions may have been decided since the read, and their smaller size could be spent on this Machine.
    pub fn permits(&self, entry: &Entry<T>, (log, followed): (&Log<T>, &Followed<T, P>)) -> bool {
        followed.permits_by_name(log, entry)
    }

    /// Returns the log without the finished entries, or `None` if it has none of them. Soft entries stay while
    /// other deletions are pending: their Machines could be named again before the smaller size has arrived.
    pub fn left_of(&self, log: &Log<T>, are_all_followed: impl FnOnce(&Log<T>) -> bool) -> Option<Log<T>> {
        let has_soft = self.soft_over.iter().any(|entry| log.get(&entry.uid) == Some(entry));
        let leaves_soft = has_soft && are_all_followed(log);
        let is_over = |entry: &Entry<T>| self.over.contains(entry) || (leaves_soft && self.soft_over.contains(entry));
        let left = log.clone().without(is_over);
        (left != *log).then_some(left)
    }

    /// Returns true if no entry is finished.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.over.is_empty() && self.soft_over.is_empty()
    }

    /// Returns the finished entries.
    pub fn over(&self) -> impl Iterator<Item = &Entry<T>> {
        self.over.iter().chain(&self.soft_over)
    }
}
