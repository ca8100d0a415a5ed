//! Decides which Machine that never became a Node is replaced, and when. At the min size, Cluster Autoscaler asks in
//! every loop for the deletion of Machines with an error, although the size can't become smaller
//! (kubernetes/autoscaler#10059). One of them is then deleted at the same size, so that its MachineSet replaces it.
//! A group has at most one such replacement in an interval that grows until a Machine joins, because each attempt may
//! cost money.

use crate::capi::{Machine, Uid};
use arcstr::ArcStr;
use jiff::{SignedDuration, Timestamp};

use super::failure::has_failed;

/// The interval after the first replacement. It doubles with each further one until a Machine joins.
const FIRST_INTERVAL: SignedDuration = SignedDuration::from_mins(5);
const LONGEST_INTERVAL: SignedDuration = SignedDuration::from_hours(1);

/// The last replacement of a group. Each process remembers its own.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Replaced {
    /// The time of the deletion.
    pub at: Timestamp,
    /// The number of consecutive replacements without a Machine having joined.
    pub count: u32,
    /// The Machine.
    pub uid: Uid,
}

/// The decision about a Machine.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Replacement {
    /// Delete the Machine, and remember this.
    Delete(Replaced),
    /// Do nothing before this time.
    Wait(Timestamp),
}

impl Replaced {
    /// Returns the time from which on the next replacement is allowed.
    pub fn next(&self) -> Timestamp {
        let interval = FIRST_INTERVAL * 2_i32.pow(self.count.saturating_sub(1).min(16));
        self.at.saturating_add(interval.min(LONGEST_INTERVAL)).unwrap_or(Timestamp::MAX)
    }
}

/// The Machines of a group, as far as the next replacement depends on them.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Siblings {
    /// The creation time of the youngest Machine that has a Node.
    pub joined: Option<Timestamp>,
    /// The creation time of the youngest Machine that has none, if it was created after others. After a restart, and to
    /// another replica of this program, it shows the last replacement.
    pub waiting: Option<Timestamp>,
}

/// Decides about the Machine with this uid.
///
/// A `known` time that lies further in the future than any interval is ignored, because a clock was wrong.
pub fn decide(known: Option<&Replaced>, uid: &Uid, siblings: Siblings, now: Timestamp) -> Replacement {
    let next = |count| Replacement::Delete(Replaced { at: now, count, uid: uid.clone() });
    let Some(known) = known.filter(|known| known.at.duration_since(now) <= LONGEST_INTERVAL) else {
        let until = siblings.waiting.filter(|created| *created <= now).map(|created| created + FIRST_INTERVAL);
        return until.filter(|until| now < *until).map_or_else(|| next(1), Replacement::Wait);
    };
    if known.uid == *uid {
        return Replacement::Delete(known.clone());
    }
    let has_joined = siblings.joined.is_some_and(|joined| joined > known.at);
    let known = Replaced { count: if has_joined { 0 } else { known.count }, ..known.clone() };
    if now < known.next() { Replacement::Wait(known.next()) } else { next(known.count.saturating_add(1)) }
}

/// Returns the Machine that is replaced first: the one whose replacement has begun, else one that failed for good,
/// else the first by name.
pub fn first<'a>(machines: impl IntoIterator<Item = &'a Machine>, known: Option<&Replaced>) -> Option<&'a Machine> {
    machines.into_iter().min_by_key(|machine| rank(machine, known))
}

/// Returns the sort key by which Machines that never became Nodes are deleted.
pub(super) fn rank(machine: &Machine, known: Option<&Replaced>) -> (bool, bool, ArcStr) {
    let is_known = known.is_some_and(|known| known.uid == machine.meta.uid);
    (!is_known, !has_failed(machine), machine.meta.key.name.clone())
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;
    use crate::capi::{Failure, MachinePhase, Rare};
    use crate::testing::machine;

    fn at(minutes: i64) -> Timestamp {
        Timestamp::UNIX_EPOCH + SignedDuration::from_mins(minutes)
    }

    fn known(count: u32) -> Replaced {
        Replaced { at: at(1000), count, uid: "old".into() }
    }

    #[rstest]
    #[case::the_first_again(0, 5)]
    #[case::the_first(1, 5)]
    #[case::the_second(2, 10)]
    #[case::the_third(3, 20)]
    #[case::the_fourth(4, 40)]
    #[case::the_fifth(5, 60)]
    #[case::far_later(u32::MAX, 60)]
    fn the_interval_grows_up_to_an_hour(#[case] count: u32, #[case] minutes: i64) {
        assert_eq!(known(count).next(), at(1000 + minutes));
    }

    /// Returns the count of a replacement at this minute, or the minute until which it waits.
    fn decided(known: Option<&Replaced>, siblings: Siblings, minute: i64) -> Result<u32, i64> {
        match decide(known, &"new".into(), siblings, at(minute)) {
            Replacement::Delete(replaced) => {
                assert_eq!((replaced.at, replaced.uid), (at(minute), "new".into()));
                Ok(replaced.count)
            }
            Replacement::Wait(until) => Err(until.as_second() / 60),
        }
    }

    #[rstest]
    #[case::nobody_waits(None, Ok(1))]
    #[case::all_are_old_enough(Some(995), Ok(1))]
    #[case::one_was_created_a_moment_ago(Some(999), Err(1004))]
    #[case::a_clock_was_wrong(Some(2000), Ok(1))]
    fn without_a_memory_the_youngest_machine_shows_the_last_replacement(
        #[case] waiting: Option<i64>,
        #[case] expected: Result<u32, i64>,
    ) {
        let siblings = Siblings { waiting: waiting.map(at), joined: None };
        assert_eq!(decided(None, siblings, 1000), expected);
    }

    #[rstest]
    #[case::too_early(2, None, 1009, Err(1010))]
    #[case::in_time(2, None, 1010, Ok(3))]
    #[case::an_older_one_has_joined(2, Some(999), 1009, Err(1010))]
    #[case::a_replacement_has_joined_a_moment_ago(2, Some(1001), 1004, Err(1005))]
    #[case::a_replacement_has_joined(2, Some(1001), 1005, Ok(1))]
    #[case::the_clock_was_a_little_ahead(1, None, 990, Err(1005))]
    #[case::the_clock_was_wrong(5, None, 900, Ok(1))]
    fn another_one_waits_for_its_interval(
        #[case] count: u32,
        #[case] joined: Option<i64>,
        #[case] now: i64,
        #[case] expected: Result<u32, i64>,
    ) {
        let siblings = Siblings { joined: joined.map(at), waiting: None };
        assert_eq!(decided(Some(&known(count)), siblings, now), expected);
    }

    #[test]
    fn the_deletion_of_the_same_one_is_repeated_at_any_time() {
        for now in [1000, 1001, 5000] {
            let decided = decide(Some(&known(3)), &"old".into(), Siblings::default(), at(now));
            assert_eq!(decided, Replacement::Delete(known(3)));
        }
    }

    #[test]
    fn the_recorded_machine_is_replaced_first_and_then_failed_machines_by_name() {
        let failed = |name: &str| {
            let mut machine = machine(name);
            machine.phase = MachinePhase::Failed;
            let failure = Some(Failure { reason: Some("CreateError".into()), message: None });
            machine.rare = Rare { failure, ..Rare::default() }.boxed();
            machine
        };
        let machines = [machine("a"), failed("c"), failed("b")];
        let name = |known: Option<&Replaced>| first(&machines, known).unwrap().meta.key.name.to_string();
        assert_eq!(name(None), "b", "failed ones first, then by name");
        let known = Replaced { uid: "uid-of-a".into(), ..known(1) };
        assert_eq!(name(Some(&known)), "a", "what was begun is gone on with");
        assert_eq!(first(&[], None), None);
    }
}
