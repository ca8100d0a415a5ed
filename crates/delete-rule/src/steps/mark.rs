//! The mark of an entry's Machine, call by call, and several marks at once. A Machine that is given up as one that
//! never joined must never be marked without a test of the version in which it had no Node.

use std::mem;

use super::{
    Call, Calls, Details, Effect, FailedCall as _, Failure, Group as _, NotMarked, Now, Outcome, SIDE_BY_SIDE, Steps,
};
use crate::{Complete, Entry, Life, Marking, Phase, Policy, Rule};

/// A call for the mark of an entry's Machine.
#[derive(Clone, Debug)]
pub enum MarkCall<T: Calls> {
    /// Checks if the Machine exists and is owned by the group: [`MarkOutcome::IsOfGroup`].
    ReadOwner,
    /// Checks if the Machine exists: [`MarkOutcome::Life`].
    Read,
    /// Reads everything that shows if the Machine has joined: [`MarkOutcome::Details`].
    ReadDetails,
    /// Reads the group: [`MarkOutcome::Group`].
    ReadGroup,
    /// Marks the Machine under the entry's ticket, if it has this version; any version if `None`: [`MarkOutcome::Set`].
    Set(Option<T::Version>),
}

/// The outcome of a call for a mark.
#[derive(Clone, Debug)]
pub enum MarkOutcome<T: Calls> {
    /// True if the Machine is owned by the group; `None` if it is gone.
    IsOfGroup(Result<Option<bool>, T::Failed>),
    /// The Machine's life.
    Life(Result<Life, T::Failed>),
    /// The Machine.
    Details(Result<Details<T>, T::Failed>),
    /// The group.
    Group(Result<T::Group, T::Failed>),
    /// The Machine's life after the patch; gone if no Machine has its name.
    Set(Result<Life, T::Failed>),
}

/// The reason why a Machine isn't marked although no call has failed.
#[derive(Clone, Debug)]
pub enum Unmarked<T: Calls> {
    /// The Machine isn't known to be owned by the group. It may be later.
    NotOfGroup,
    /// The log has no entry of the Machine any more, or a different one: another write came between.
    NotInLog,
    /// The log can't be read, and a retry doesn't help.
    Unreadable(T::Unreadable),
}

/// The mark of an entry's Machine. A Machine that is gone or marked by somebody else needs none.
#[derive(Clone, Debug)]
pub struct Mark<T: Calls, P = Complete> {
    rule: Rule<P>,
    entry: Entry<T>,
    /// The version in which the Machine had no Node, if known.
    version: Option<T::Version>,
    /// True until the Machine was read again because a watch has shown its Node; the result of that read counts.
    may_reread: bool,
    stage: Stage<T>,
}

/// The next step, or the call whose outcome is awaited.
#[derive(Clone, Debug)]
enum Stage<T: Calls> {
    Begin,
    /// The Machine is owned by the group.
    Decide,
    /// The Machine is read after a failure, or instead of being marked.
    Read(Option<T::Failed>),
    /// The log is read after the Machine, because an entry that was taken back in the meantime must not be marked.
    ReadGroup {
        version: Option<T::Version>,
        is_needed: bool,
    },
    Set(Option<T::Version>),
    Waiting(Awaited<T>),
    End(Result<Life, NotMarked<T>>),
}

#[derive(Clone, Debug)]
enum Awaited<T: Calls> {
    IsOfGroup,
    Life(Option<T::Failed>),
    Details {
        is_needed: bool,
    },
    Group {
        version: Option<T::Version>,
        is_needed: bool,
    },
    /// True if the Machine must have no Node.
    Set {
        is_pending: bool,
    },
}

impl<T: Calls, P: Policy> Mark<T, P> {
    /// Begins the mark of an entry, with the version in which its Machine had no Node, if that is known and matters.
    pub fn new(rule: Rule<P>, entry: Entry<T>, version: Option<T::Version>) -> Self {
        Self { rule, entry, version, may_reread: true, stage: Stage::Begin }
    }

    /// Returns the Machine's life as the mark has shown it, once it has ended.
    pub fn end(&self) -> Option<&Result<Life, NotMarked<T>>> {
        if let Stage::End(end) = &self.stage { Some(end) } else { None }
    }

    /// Returns true if the Machine must have no Node when it is marked.
    fn spares_joined(&self) -> bool {
        self.entry.gives_up() && self.entry.phase == Phase::Wanted && self.rule.0.spares_joined()
    }

    /// Returns true if a watch has shown the Machine's Node.
    fn has_node(&self, now: &impl Now<T>) -> bool {
        self.rule.0.marks_look_again() && now.has_node(&self.entry)
    }

    fn advance(&mut self, now: &impl Now<T>) -> Option<MarkCall<T>> {
        let (awaited, call) = match mem::replace(&mut self.stage, Stage::Begin) {
            Stage::Begin if !now.knows_group_of(&self.entry) => (Awaited::IsOfGroup, MarkCall::ReadOwner),
            Stage::Begin | Stage::Decide => self.decide(now),
            Stage::Read(failure) => (Awaited::Life(failure), MarkCall::Read),
            Stage::ReadGroup { version, is_needed } => (Awaited::Group { version, is_needed }, MarkCall::ReadGroup),
            // `nodeRef` may lag behind, so that the Machine still has the version in which it was read without a Node.
            Stage::Set(Some(_)) if self.may_reread && self.has_node(now) => {
                self.may_reread = false;
                (Awaited::Details { is_needed: true }, MarkCall::ReadDetails)
            }
            Stage::Set(version) => (Awaited::Set { is_pending: true }, MarkCall::Set(version)),
            stage @ (Stage::Waiting(_) | Stage::End(_)) => {
                self.stage = stage;
                return None;
            }
        };
        self.stage = Stage::Waiting(awaited);
        Some(call)
    }

    fn decide(&mut self, now: &impl Now<T>) -> (Awaited<T>, MarkCall<T>) {
        let is_needed = !now.is_marked_by_another(&self.entry);
        if !self.spares_joined() {
            return if is_needed {
                (Awaited::Set { is_pending: false }, MarkCall::Set(None))
            } else {
                (Awaited::Life(None), MarkCall::Read)
            };
        }
        // Somebody else's mark tests no version, and `nodeRef` may lag behind the Node, so the Machine is read instead.
        match self.version.take().filter(|_| is_needed && !self.has_node(now)) {
            Some(version) => (Awaited::Set { is_pending: true }, MarkCall::Set(Some(version))),
            None => (Awaited::Details { is_needed }, MarkCall::ReadDetails),
        }
    }

    /// Takes the outcome of a call.
    pub(super) fn take(&mut self, outcome: MarkOutcome<T>) {
        let awaited = match mem::replace(&mut self.stage, Stage::Begin) {
            Stage::Waiting(awaited) => awaited,
            stage => {
                self.stage = stage;
                return;
            }
        };
        let stage = match (awaited, outcome) {
            (Awaited::IsOfGroup, MarkOutcome::IsOfGroup(Ok(Some(true)))) => Stage::Decide,
            (Awaited::IsOfGroup, MarkOutcome::IsOfGroup(Ok(Some(false)))) => self.leave(Unmarked::NotOfGroup),
            (Awaited::IsOfGroup, MarkOutcome::IsOfGroup(Ok(None)))
            | (Awaited::Set { is_pending: true }, MarkOutcome::Set(Ok(Life::Gone))) => self.is_gone(),
            // The mark has failed although the Machine exists, or a read has failed.
            (Awaited::Life(Some(failure)), MarkOutcome::Life(Ok(Life::Alive | Life::Deleting)))
            | (
                _,
                MarkOutcome::IsOfGroup(Err(failure))
                | MarkOutcome::Life(Err(failure))
                | MarkOutcome::Details(Err(failure))
                | MarkOutcome::Group(Err(failure)),
            ) => failed(failure),
            (Awaited::Life(_), MarkOutcome::Life(Ok(life))) => Stage::End(Ok(life)),
            (Awaited::Details { is_needed }, MarkOutcome::Details(Ok(whole))) => self.judge(whole, is_needed),
            (Awaited::Group { version, is_needed }, MarkOutcome::Group(Ok(group))) => {
                self.after_group(&group, version, is_needed)
            }
            // Another Machine has its name by now, or another write came between.
            (Awaited::Set { is_pending: false }, MarkOutcome::Set(Err(failure)))
                if failure.failure().is_of_the_object() =>
            {
                Stage::Read(Some(failure))
            }
            // A Machine that has changed since it was read is read again by the next attempt.
            (Awaited::Set { .. }, MarkOutcome::Set(marked)) => Stage::End(marked.map_err(NotMarked::Failed)),
            (awaited, _) => Stage::Waiting(awaited),
        };
        self.stage = match stage {
            Stage::End(Ok(Life::Gone)) if !self.rule.0.lowers_for_gone() => {
                Stage::End(Err(NotMarked::DeletedElsewhere))
            }
            stage => stage,
        };
    }

    fn judge(&self, whole: Details<T>, is_needed: bool) -> Stage<T> {
        let Details { life, has_joined, version, ticket } = whole;
        match self.rule.marking(&self.entry, life, has_joined, ticket.as_ref()) {
            Marking::Mark => Stage::ReadGroup { version, is_needed },
            Marking::Marked => Stage::End(Ok(life)),
            Marking::NotNeeded => Stage::End(Ok(Life::Gone)),
            Marking::Joined => Stage::End(Err(NotMarked::Joined)),
            Marking::DeletedElsewhere => Stage::End(Err(NotMarked::DeletedElsewhere)),
        }
    }

    fn after_group(&self, group: &T::Group, version: Option<T::Version>, is_needed: bool) -> Stage<T> {
        match group.log() {
            Err(error) => self.leave(Unmarked::Unreadable(error)),
            Ok(log) if log.get(&self.entry.uid) != Some(&self.entry) => self.leave(Unmarked::NotInLog),
            Ok(_) if is_needed => Stage::Set(version),
            Ok(_) => Stage::End(Ok(if version.is_some() { Life::Alive } else { Life::Deleting })),
        }
    }

    /// Handles a Machine that is gone. A smaller size for its soft entry would take another Machine.
    fn is_gone(&self) -> Stage<T> {
        let is_spared = self.entry.soft && self.entry.phase == Phase::Wanted;
        Stage::End(if is_spared { Err(NotMarked::DeletedElsewhere) } else { Ok(Life::Gone) })
    }

    fn leave(&self, why: Unmarked<T>) -> Stage<T> {
        failed(T::unmarked(&self.entry.name, why))
    }
}

fn failed<T: Calls>(failure: T::Failed) -> Stage<T> {
    Stage::End(Err(NotMarked::Failed(failure)))
}

impl<T: Calls, P: Policy> Steps<T> for Mark<T, P> {
    fn next(&mut self, now: &impl Now<T>) -> Vec<Call<T>> {
        let call = self.advance(now);
        call.map(|call| Call::Mark(self.entry.clone(), call)).into_iter().collect()
    }

    fn took(&mut self, outcome: Outcome<T>) {
        if let Outcome::Mark(_, outcome) = outcome {
            self.take(outcome);
        }
    }

    fn effects(&mut self) -> Vec<Effect<T>> {
        Vec::new()
    }
}

/// Marks in progress, made concurrently.
#[derive(Clone, Debug)]
pub(super) struct Marks<T: Calls, P>(Vec<Mark<T, P>>);

impl<T: Calls, P: Policy> Marks<T, P> {
    pub(super) fn new() -> Self {
        Self(Vec::new())
    }

    pub(super) fn begin(&mut self, mark: Mark<T, P>) {
        self.0.push(mark);
    }

    /// Returns the number of marks in progress.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns the calls of the marks that wait for no outcome. At most [`SIDE_BY_SIDE`] marks make calls at a time, so
    /// that none relies on a read from long before.
    pub(super) fn next(&mut self, now: &impl Now<T>) -> Vec<Call<T>> {
        self.0.iter_mut().take(SIDE_BY_SIDE).flat_map(|mark| mark.next(now)).collect()
    }

    /// Takes the outcome of a call for an entry's mark. Returns the mark's result if that was its last call.
    pub(super) fn took(&mut self, entry: &Entry<T>, outcome: MarkOutcome<T>) -> Option<Result<Life, NotMarked<T>>> {
        let is_its = |mark: &Mark<T, P>| mark.entry.uid == entry.uid && mark.entry.ticket == entry.ticket;
        let place = self.0.iter().position(is_its)?;
        let mark = &mut self.0[place];
        mark.take(outcome);
        let end = mark.end().cloned()?;
        self.0.remove(place);
        Some(end)
    }
}

/// Returns the effect of a failed call to remove a mark. There is none if the Machine has changed, because it is looked
/// at again.
pub(super) fn mark_that_stays<T: Calls>(outcome: &Outcome<T>) -> Option<Effect<T>> {
    match outcome {
        Outcome::Unmarked(name, Err(failure)) if failure.failure() != Failure::Rejected => {
            Some(Effect::MarkStays(name.clone(), failure.clone()))
        }
        _ => None,
    }
}
