//! Decides which Machine that never became a Node is replaced, and when. At the min size, Cluster Autoscaler asks in
//! every loop for the deletion of Machines with an error, although the size can't become smaller
//! (kubernetes/autoscaler#10059). One of them is then deleted at the same size, so that its MachineSet replaces it.
//! A group has at most one such replacement in an interval that grows until a Machine joins, because each attempt may
//! cost money.

use std::{fmt, str::FromStr};

use arcstr::ArcStr;
use capi::{Machine, Uid};
use delete_rule::replacement::{self as rule, WallTime};
use jiff::Timestamp;

use super::failed::has_failed;

/// The longest uid that is read, in bytes. A UUID has 36.
const LONGEST_UID: usize = 128;
/// The longest text that is read, in bytes; none that is written is longer.
const LONGEST_TEXT: usize = 256;

/// The last replacement of a group. An annotation shares it with all copies of the program, and keeps it over restarts.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Replaced {
    /// The time of the decision.
    pub at: Timestamp,
    /// The number of consecutive replacements without a Machine having joined.
    pub count: u32,
    /// The Machine.
    pub uid: Uid,
}

/// The next step for a Machine.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Replacement {
    /// Write this, then delete the Machine.
    Begin(Replaced),
    /// Delete the Machine; this was already written for it.
    Continue(Replaced),
    /// Do nothing before this time.
    Wait(Timestamp),
}

impl Replaced {
    /// Returns the time from which on the next replacement is allowed.
    #[must_use]
    pub fn next(&self) -> Timestamp {
        timestamp(self.decided().next())
    }

    /// Returns the same in the type of the delete rule.
    #[must_use]
    pub fn decided(&self) -> rule::Replaced<Uid> {
        rule::Replaced { at: self.at.as_nanosecond(), count: self.count, uid: self.uid.clone() }
    }
}

impl From<rule::Replaced<Uid>> for Replaced {
    fn from(rule::Replaced { at, count, uid }: rule::Replaced<Uid>) -> Self {
        Self { at: timestamp(at), count, uid }
    }
}

/// Returns the timestamp of this time, or the last possible one.
#[must_use]
pub fn timestamp(time: WallTime) -> Timestamp {
    Timestamp::from_nanosecond(time).unwrap_or(Timestamp::MAX)
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

/// Decides the next step for the Machine with this uid. `joined` is the creation time of the group's youngest Machine
/// that has a Node.
///
/// A `known` time that lies further in the future than any interval is ignored, because a clock was wrong.
#[must_use]
pub fn decide(known: Option<&Replaced>, uid: &Uid, joined: Option<Timestamp>, now: Timestamp) -> Replacement {
    let last = known.map(Replaced::decided);
    match rule::decide(last.as_ref(), uid, joined.map(Timestamp::as_nanosecond), now.as_nanosecond()) {
        rule::Replacement::Begin(replaced) => Replacement::Begin(replaced.into()),
        rule::Replacement::Continue(replaced) => Replacement::Continue(replaced.into()),
        rule::Replacement::Wait(until) => Replacement::Wait(timestamp(until)),
    }
}

/// Writes the annotation's value: time, number and uid.
impl fmt::Display for Replaced {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.0} {} {}", self.at, self.count, self.uid)
    }
}

/// The error for an annotation that this program didn't write. Such an annotation is ignored and overwritten.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct NotReplaced;

impl FromStr for Replaced {
    type Err = NotReplaced;

    fn from_str(text: &str) -> Result<Self, NotReplaced> {
        if text.len() > LONGEST_TEXT {
            return Err(NotReplaced);
        }
        let mut parts = text.split(' ');
        let (Some(at), Some(count), Some(uid), None) = (parts.next(), parts.next(), parts.next(), parts.next()) else {
            return Err(NotReplaced);
        };
        let at = capi::time(at).ok_or(NotReplaced)?;
        let count = count.parse().map_err(|_| NotReplaced)?;
        if uid.is_empty() || uid.len() > LONGEST_UID {
            Err(NotReplaced)
        } else {
            Ok(Self { at, count, uid: uid.into() })
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use jiff::SignedDuration;
    use rstest::rstest;

    use super::*;
    use crate::testing::machine;
    use capi::{Failure, MachinePhase, Rare};

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

    #[test]
    fn the_first_one_is_replaced_at_once() {
        let expected = Replaced { at: at(7), count: 1, uid: "new".into() };
        assert_eq!(decide(None, &"new".into(), None, at(7)), Replacement::Begin(expected));
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
        let decided = decide(Some(&known(count)), &"new".into(), joined.map(at), at(now));
        let expected = match expected {
            Ok(count) => Replacement::Begin(Replaced { at: at(now), count, uid: "new".into() }),
            Err(minutes) => Replacement::Wait(at(minutes)),
        };
        assert_eq!(decided, expected);
    }

    #[test]
    fn the_same_one_is_gone_on_with_at_any_time() {
        for now in [1000, 1001, 5000] {
            assert_eq!(decide(Some(&known(3)), &"old".into(), None, at(now)), Replacement::Continue(known(3)));
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

    #[test]
    fn a_written_replacement_annotation_parses_to_the_same_replacement() {
        let written = known(3).to_string();
        assert_eq!(written, "1970-01-01T16:40:00Z 3 old");
        assert_eq!(written.parse(), Ok(known(3)));
    }

    fn of_uid(bytes: usize) -> String {
        format!("1970-01-01T16:40:00Z 3 {}", "u".repeat(bytes))
    }

    fn of_count(digits: usize) -> String {
        format!("1970-01-01T16:40:00Z {:0>digits$} old", 3)
    }

    #[rstest]
    #[case::of_a_uid(of_uid(128), of_uid(129))]
    #[case::of_bytes(of_count(231), of_count(232))]
    fn a_text_is_read_up_to_each_bound_and_not_beyond(#[case] at_bound: String, #[case] beyond: String) {
        assert_eq!(at_bound.parse::<Replaced>().map(|replaced| replaced.count), Ok(3));
        assert_eq!(beyond.parse::<Replaced>(), Err(NotReplaced));
    }

    #[rstest]
    #[case("")]
    #[case("yes")]
    #[case("1970-01-01T16:40:00Z 3")]
    #[case("1970-01-01T16:40:00Z 3 ")]
    #[case("1970-01-01T16:40:00Z -3 old")]
    #[case("yesterday 3 old")]
    #[case::of_the_earliest_time("-009999-01-02T01:59:58.02Z 3 old")]
    #[case::of_a_year_before_0000("0000-01-01T00:00:00+01:00 3 old")]
    #[case::of_a_signed_year("+001970-01-01T16:40:00Z 3 old")]
    #[case("1970-01-01T16:40:00Z 3 old and more")]
    fn a_foreign_value_of_the_replacement_annotation_is_no_replacement(#[case] text: &str) {
        assert_eq!(text.parse::<Replaced>(), Err(NotReplaced));
    }
}
