//! The write of a size: with a test of the size that it was decided on, under a field manager of its own, and decided anew on
//! what the API server has if that test fails. A write without an answer is settled by the field manager that the object
//! names. Where that leaves it open, the size is left as it is.

use std::collections::HashSet;

use arcstr::ArcStr;
use index::Hold;
use rules::{
    Bounds,
    call_error::CallError,
    capi::Uid,
    field_manager::{SizeWriter, SizedBy},
    group_version::GroupVersion,
    size,
};

use super::{
    api::{GroupState, SizeCall},
    error::ScaleError,
    metrics::Write,
    queue::Caller,
    read::{self, GroupMachines},
    refusal,
    report::SizeReport,
    retry::Attempts,
    turn::Turn,
};

/// The size that is to be reached, whatever it is when it is written.
pub(super) enum Aim<'a> {
    /// Larger by this delta.
    Raise { delta: i32, bounds: Bounds },
    /// Smaller by this number of Machines, which are deleted or marked, but not below the minimum.
    Lower { by: i32, min: i32 },
    /// Smaller by the replicas that have no Machine, and by instances of a MachinePool without Machines, but not below
    /// the minimum.
    LowerByMissing {
        /// The maximum number of replicas.
        replicas: usize,
        instances: usize,
        /// The Machines that are being deleted, and for which the size is lowered already.
        leaving: &'a HashSet<Uid>,
        /// The Machines of the group, if they were counted a moment ago.
        listed: Option<GroupMachines>,
        min: i32,
    },
}

impl Aim<'_> {
    /// Returns the size that this version of the group is to get.
    async fn size_for(&mut self, turn: &Turn, seen: &GroupVersion) -> Result<i32, ScaleError> {
        let now = seen.replicas;
        match self {
            Self::Raise { delta, bounds } => {
                size::after_increase(now, *delta, *bounds).map_err(|error| refusal::size(&turn.id, &error))
            }
            Self::Lower { by, min } => Ok(size::lowered(now, *by, *min)),
            Self::LowerByMissing { replicas, instances, leaving, listed, min } => {
                let (machines, instances) = (listed.take(), as_i32(*instances));
                let missing = match machines {
                    _ if *replicas == 0 => 0,
                    Some(machines) => machines.placeholders(now - instances, |uid| leaving.contains(uid)),
                    None => {
                        let machines = read::machines(turn).await?;
                        machines.placeholders(now - instances, |uid| leaving.contains(uid))
                    }
                };
                Ok(size::lowered(now, as_i32(missing.min(*replicas)) + instances, *min))
            }
        }
    }
}

/// A size that was written.
pub(super) struct Written {
    pub(super) from: i32,
    pub(super) to: i32,
    /// The version that the write has made; `None` if its answer was lost.
    pub(super) version: Option<GroupVersion>,
}

/// A size that is being written.
pub(super) struct SizeWrite<'a> {
    turn: &'a Turn,
    attempts: Attempts,
    writer: SizeWriter,
    /// The caller, whose leaving ends it before the first write.
    caller: Option<&'a Caller>,
    /// The names of the Machines that the size removes, for people.
    machines: &'a [ArcStr],
    /// The last write without an answer, as sizes from and to. It may still arrive, so nothing is refused for good.
    unanswered: Option<(i32, i32)>,
    /// True once a write was rejected although the size was as expected.
    was_rejected: bool,
}

/// What became of a size write without an answer.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Lost {
    /// The size is written.
    Done,
    /// The size isn't written. If the write still arrives, its test fails.
    NotDone,
    /// Others have written since, and this write may be among theirs.
    Unknown,
}

/// Decides what became of the write of `to` on `seen`, by the object as it is now and its last writer of the size.
fn what_became_of(seen: &GroupVersion, now: &GroupVersion, to: i32, sized_by: SizedBy) -> Lost {
    if now.uid != seen.uid || now.generation == seen.generation {
        return Lost::NotDone;
    }
    match (now.generation - seen.generation, now.replicas == to, sized_by) {
        (_, true, SizedBy::This) => Lost::Done,
        // A Scale omits a size of 0, for which an API server names nobody.
        (1, true, SizedBy::Nobody) if to == 0 => Lost::Done,
        // Ours isn't among these one or two writes: another writer's equal size changes the generation only if a third
        // write came between them. After a size of 0 an API server names nobody for other sizes either: then it may be
        // this write or another.
        (1, false, _) | (1 | 2, true, SizedBy::Another) => Lost::NotDone,
        _ => Lost::Unknown,
    }
}

impl<'a> SizeWrite<'a> {
    /// Prepares a write for a caller, whose leaving ends it before the first write.
    pub(super) fn new(turn: &'a Turn, caller: Option<&'a Caller>) -> Self {
        let (attempts, writer) = (turn.attempts(), SizeWriter::draw());
        Self { turn, attempts, writer, caller, machines: &[], unanswered: None, was_rejected: false }
    }

    /// Prepares a write for these Machines, which are on their way out. It is repeated for as long as may be.
    pub(super) fn after(turn: &'a Turn, machines: &'a [ArcStr]) -> Self {
        Self { attempts: turn.persistent_attempts(), machines, ..Self::new(turn, None) }
    }

    /// Writes the size, decided on this version of the group first. Returns `None` if it is as it should be.
    pub(super) async fn write(
        mut self,
        mut version: GroupVersion,
        mut aim: Aim<'_>,
    ) -> Result<Option<Written>, ScaleError> {
        let (turn, id) = (self.turn, &self.turn.id);
        loop {
            let from = version.replicas;
            let to = aim.size_for(turn, &version).await.map_err(|why| self.unless_written(why))?;
            if to == from {
                tracing::info!(group = %id, size = from, "size is left as it is");
                return Ok(None);
            }
            if self.unanswered.is_none() && self.caller.is_some_and(Caller::is_gone) {
                return Err(refusal::abandoned(id));
            }
            let written = {
                let _writing = turn.index().begin_size_write(id);
                let call = turn.api().write_size(id, &version, to, &self.writer, SizeCall::Write);
                let written = turn.write(Write::Size, call).await;
                if let Ok(version) = &written {
                    self.report(from, version);
                }
                written
            };
            let error = match written {
                Ok(version) => return Ok(Some(Written { from, to, version: Some(version) })),
                Err(error) => error,
            };
            if matches!(error, CallError::OutcomeUnknown(..)) {
                self.unanswered = Some((from, to));
            }
            let again = self.attempts.again(&error).await;
            if !again && self.unanswered.is_none() {
                return Err(refusal::failed(id, &error));
            }
            if again && error.is_not_now() {
                continue;
            }
            let GroupState { version: seen, managed } =
                self.read().await.map_err(|error| self.unless_written(refusal::failed(id, &error)))?;
            let became = match self.unanswered {
                Some((_, to)) => what_became_of(&version, &seen, to, self.writer.of(&managed)),
                None => Lost::NotDone,
            };
            match became {
                Lost::Done => {
                    self.report(from, &seen);
                    return Ok(Some(Written { from, to, version: None }));
                }
                Lost::NotDone if again => {}
                Lost::NotDone | Lost::Unknown => {
                    return Err(refusal::size_unknown(id, (from, to, seen.replicas), &error));
                }
            }
            if seen.uid != version.uid {
                if !matches!(aim, Aim::Raise { .. }) {
                    // Its Machines were of the former object.
                    return Err(refusal::made_anew(id));
                }
                // What was written was of the former object, so nothing is under way any more for a caller that has left.
                self.unanswered = None;
            }
            if matches!(error, CallError::Rejected(_)) && seen.replicas == from {
                if self.was_rejected {
                    return Err(self.unless_written(refusal::rejected(id, to, &error)));
                }
                self.was_rejected = true;
            }
            version = seen;
        }
    }

    /// Reads the group after a write that failed.
    async fn read(&self) -> Result<GroupState, CallError> {
        let mut attempts = self.turn.attempts();
        loop {
            match self.turn.api().read_group(&self.turn.id).await {
                Err(error) if attempts.again(&error).await => {}
                Ok(seen) => {
                    self.turn.index().set_known_version(&self.turn.id, seen.version.clone());
                    return Ok(seen);
                }
                Err(error) => return Err(error),
            }
        }
    }

    fn report(&self, from: i32, version: &GroupVersion) {
        let Self { turn, attempts, machines, .. } = self;
        turn.wrote(version, SizeReport { from, machines, attempts: attempts.made(), elapsed: attempts.elapsed() });
    }

    /// Returns the answer for a refusal: while a write has no answer, nothing is refused for good.
    fn unless_written(&self, why: ScaleError) -> ScaleError {
        match self.unanswered {
            Some((from, to)) => refusal::size_unread(&why, from, to),
            None => why,
        }
    }
}

/// A size that can't be written as decided.
pub(super) enum TryAgain {
    /// The group has another size by now: decide again.
    Anew,
    /// It can't be written.
    No(ScaleError),
}

/// Tries a size without writing it, before something is done that can't be undone: rights, policies and webhooks judge
/// a dry run, and a size that somebody else has written meanwhile fails its test.
pub(super) async fn dry_run_size(turn: &Turn, seen: &GroupVersion, to: i32) -> Result<(), TryAgain> {
    let id = &turn.id;
    let (mut attempts, writer) = (turn.attempts(), SizeWriter::draw());
    loop {
        let call = turn.api().write_size(id, seen, to, &writer, SizeCall::DryRun);
        let error = match turn.write(Write::DryRun, call).await {
            Ok(_) => return Ok(()),
            // A webhook without support for dry runs can't be asked.
            Err(CallError::Refused(why)) if why.contains("does not support dry run") => return Ok(()),
            Err(error) => error,
        };
        if matches!(error, CallError::Refused(_) | CallError::Forbidden(_)) {
            turn.index().hold(id, Some(Hold::DeletesRefused(error.to_string())));
            return Err(TryAgain::No(refusal::failed(id, &error)));
        }
        if !attempts.again(&error).await {
            return Err(TryAgain::No(refusal::failed(id, &error)));
        }
        if error.is_not_now() || matches!(error, CallError::OutcomeUnknown(..)) {
            continue;
        }
        match turn.api().read_group(id).await {
            Ok(now) if now.version.replicas == seen.replicas && now.version.uid == seen.uid => {
                if attempts.made() > 2 {
                    return Err(TryAgain::No(refusal::rejected(id, to, &error)));
                }
            }
            Ok(now) => {
                turn.index().set_known_version(&turn.id, now.version.clone());
                return Err(TryAgain::Anew);
            }
            Err(error) => return Err(TryAgain::No(refusal::failed(id, &error))),
        }
    }
}

/// Returns a count as a size.
pub(super) fn as_i32(count: usize) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn version(uid: &str, generation: i64, replicas: i32) -> GroupVersion {
        GroupVersion { uid: uid.into(), resource_version: "1".into(), generation, replicas }
    }

    #[rstest]
    #[case::it_is_the_last_writer(version("a", 8, 3), SizedBy::This, Lost::Done)]
    #[case::it_is_the_last_writer_of_many(version("a", 12, 3), SizedBy::This, Lost::Done)]
    #[case::nothing_was_written(version("a", 7, 5), SizedBy::Another, Lost::NotDone)]
    #[case::another_size_by_one_write(version("a", 8, 4), SizedBy::Another, Lost::NotDone)]
    #[case::the_same_size_by_somebody_else(version("a", 8, 3), SizedBy::Another, Lost::NotDone)]
    #[case::the_same_size_and_nobody_is_named(version("a", 8, 3), SizedBy::Nobody, Lost::Unknown)]
    #[case::overwritten(version("a", 9, 4), SizedBy::Another, Lost::Unknown)]
    #[case::overwritten_and_back(version("a", 10, 3), SizedBy::Another, Lost::Unknown)]
    #[case::several_writes_of_nobody(version("a", 9, 3), SizedBy::Nobody, Lost::Unknown)]
    #[case::the_group_was_made_anew(version("b", 8, 3), SizedBy::This, Lost::NotDone)]
    fn a_write_from_5_to_3_without_an_answer(
        #[case] now: GroupVersion,
        #[case] sized_by: SizedBy,
        #[case] expected: Lost,
    ) {
        assert_eq!(what_became_of(&version("a", 7, 5), &now, 3, sized_by), expected);
    }
}
