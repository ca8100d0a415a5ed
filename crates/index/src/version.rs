//! Versions of a group's object: the one that a write is based on and tested against, and the time since which its
//! size is the current one. Nothing here looks at another object.

use std::time::{Duration, Instant};

use delete_rule::RULE;
use nodegroup::{SharedLog, deletion_log::Types, writing::GroupVersion};

/// The time for which an own write counts while the watch hasn't reported it, if resourceVersions are ordered. It is
/// long, since a watch may be broken for longer than Refresh tolerates, and an older size would cause a second write.
/// It is limited, since after a restored backup the watch never catches up.
pub(super) const WRITTEN_FOR: Duration = Duration::from_secs(15 * 60);
/// The same time if resourceVersions aren't ordered, and only an equal size shows that the watch has caught up.
pub(super) const UNORDERED_FOR: Duration = Duration::from_secs(30);

/// The time since which a group's spec is the current one, as far as this process has observed.
pub type Era = delete_rule::Era<Types>;

/// A size that was written, or read after a failed write, and that the watch hasn't reported yet.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct WrittenSize {
    /// The size.
    pub replicas: i32,
    /// The time since it was written or read.
    pub age: Duration,
}

/// A version that this process wrote, or read after a failed write, and that the watch may not have reported yet.
#[derive(Clone, Debug)]
struct Written {
    version: GroupVersion,
    at: Instant,
}

impl Written {
    fn believed_for(&self) -> Duration {
        if self.version.resource_version.number().is_some() { WRITTEN_FOR } else { UNORDERED_FOR }
    }

    /// Returns true if a version from the watch is this one or a later one.
    fn is_seen(&self, shown: &GroupVersion) -> bool {
        match (shown.resource_version.number(), self.version.resource_version.number()) {
            (Some(shown), Some(written)) => shown >= written,
            _ => shown.replicas == self.version.replicas,
        }
    }
}

/// The versions of one group's object.
#[derive(Debug, Default)]
pub(super) struct Versions {
    /// The last version from the watch, even if the object was deleted since.
    shown: Option<GroupVersion>,
    written: Option<Written>,
    era: Option<Era>,
}

impl Versions {
    /// Records a version from the watch.
    pub(super) fn show(&mut self, version: GroupVersion) {
        self.record_era(&version);
        if self.written.as_ref().is_some_and(|written| written.is_seen(&version)) {
            self.written = None;
        }
        self.shown = Some(version);
    }

    /// Records a version that was written or read, unless the watch has already reported a later one.
    pub(super) fn set_written(&mut self, version: GroupVersion, now: Instant) {
        self.record_era(&version);
        let written = Written { version, at: now };
        let is_later = |before: &GroupVersion| !written.is_seen(before);
        if self.shown.as_ref().is_none_or(is_later) {
            self.written = Some(written);
        }
    }

    fn record_era(&mut self, version: &GroupVersion) {
        let version = version.seen();
        RULE.see(self.era.get_or_insert_with(|| Era::new(&version)), &version);
    }

    /// Returns the version that a write is based on: the one written last, else the one from the watch.
    pub(super) fn current(&self, now: Instant) -> Option<&GroupVersion> {
        self.still_written(now).map(|written| &written.version).or(self.shown.as_ref())
    }

    /// The last version from the watch, even if the object was deleted since.
    pub(super) fn shown(&self) -> Option<&GroupVersion> {
        self.shown.as_ref()
    }

    /// Returns the logs of the stored versions.
    pub(super) fn logs(&self) -> impl Iterator<Item = &SharedLog> {
        let written = self.written.as_ref().map(|written| &written.version);
        written.into_iter().chain(&self.shown).filter_map(|version| version.log.as_ref())
    }

    /// Returns the desired size of the current version, or 0 if nothing is known.
    pub(super) fn size(&self, now: Instant) -> i32 {
        self.current(now).map_or(0, |version| version.replicas)
    }

    /// Returns the size that was written last, until the watch has reported it.
    pub(super) fn written(&self, now: Instant) -> Option<WrittenSize> {
        let written = self.still_written(now)?;
        let age = now.saturating_duration_since(written.at);
        Some(WrittenSize { replicas: written.version.replicas, age })
    }

    fn still_written(&self, now: Instant) -> Option<&Written> {
        self.written.as_ref().filter(|written| now.saturating_duration_since(written.at) < written.believed_for())
    }

    /// Returns the era of the current generation.
    pub(super) fn era(&self) -> Option<&Era> {
        self.era.as_ref()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use nodegroup::{DeletionLog, LogAnnotation as _, Phase, deletion_log::Entry};
    use rstest::rstest;

    use super::*;

    fn version(replicas: i32, resource_version: &str) -> GroupVersion {
        GroupVersion {
            uid: "uid".into(),
            resource_version: resource_version.into(),
            generation: 1,
            replicas,
            log: None,
        }
    }

    fn group(replicas: i32, resource_version: &str) -> Versions {
        let mut versions = Versions::default();
        versions.show(version(replicas, resource_version));
        versions
    }

    /// Returns a log with this text, parsed.
    fn shared(text: Option<String>) -> Option<SharedLog> {
        let log = SharedLog::new(text?.as_str().into());
        let _ = log.read();
        Some(log)
    }

    fn logging(machine: &str, resource_version: &str, generation: i64) -> GroupVersion {
        let entry = Entry {
            name: machine.into(),
            uid: machine.into(),
            ticket: "t".into(),
            phase: Phase::Wanted,
            soft: machine.starts_with("soft"),
            counted: machine.starts_with("counted"),
            pending: false,
        };
        let log = DeletionLog::default().with([entry]).print().unwrap();
        GroupVersion { generation, log: shared(log), ..version(3, resource_version) }
    }

    #[test]
    fn a_generation_is_known_since_the_first_of_its_versions_that_was_seen() {
        let mut versions = group(3, "10");
        versions.record_era(&version(3, "12"));
        assert_eq!(versions.era().unwrap().since(), Some(10), "a status was written");
        versions.record_era(&GroupVersion { generation: 2, ..version(2, "20") });
        versions.record_era(&version(3, "13"));
        let era = versions.era().unwrap();
        assert_eq!((era.generation(), era.since()), (2, Some(20)), "an older version came late");
        versions.record_era(&GroupVersion { uid: "another".into(), ..version(1, "30") });
        let era = versions.era().unwrap();
        assert_eq!((era.generation(), era.since()), (1, Some(30)), "it was made anew");
    }

    #[test]
    fn of_those_who_come_to_the_log_the_counted_ones_begin_anew_and_of_those_who_leave_it_the_soft_ones() {
        let mut versions = group(3, "10");
        versions.record_era(&logging("a", "11", 1));
        assert_eq!(versions.era().unwrap().since(), Some(10), "it was alive when it was logged");
        versions.record_era(&version(3, "13"));
        versions.record_era(&logging("counted", "14", 1));
        versions.record_era(&logging("b", "12", 1));
        let era = versions.era().unwrap();
        assert_eq!(era.since(), Some(14), "an older version came late");
        assert!(["a", "b", "counted"].into_iter().all(|uid| era.has_logged(&uid.into())), "all were in it");
        versions.record_era(&logging("soft", "15", 1));
        versions.record_era(&version(3, "13"));
        assert_eq!(versions.era().unwrap().since(), Some(14), "an older version came late");
        versions.record_era(&version(3, "16"));
        assert_eq!(versions.era().unwrap().since(), Some(16), "a soft entry has left");
        versions.record_era(&logging("b", "20", 2));
        let era = versions.era().unwrap();
        assert!(!era.has_logged(&"a".into()), "it was in the log of another generation");
    }

    /// Returns a log of 1,000 Machines whose uids begin with this text.
    fn logging_many(uids: &str, resource_version: u64) -> GroupVersion {
        let entries = (0..1_000).map(|n| Entry {
            name: format!("m{n}").into(),
            uid: format!("{uids}-{n}").into(),
            ticket: "t".into(),
            phase: Phase::Lowered,
            soft: false,
            counted: false,
            pending: false,
        });
        let log = DeletionLog::default().with(entries).print().unwrap();
        GroupVersion { log: shared(log), ..version(3, &resource_version.to_string()) }
    }

    #[test]
    fn entries_that_left_the_log_are_forgotten_after_a_limit() {
        let mut versions = group(3, "10");
        for round in 11..41 {
            versions.record_era(&logging_many(&format!("round-{round}"), round));
            // Those of two logs are remembered, and with a third one those of that alone.
            let era = versions.era().unwrap();
            let is_second = round.is_multiple_of(2);
            assert_eq!(era.remembered(), if is_second { 2_000 } else { 1_000 }, "after round {round}");
            assert_eq!(era.has_logged(&format!("round-{}-0", round - 1).as_str().into()), is_second, "round {round}");
        }
        let era = versions.era().unwrap();
        assert!(era.has_logged(&"round-40-0".into()), "what is in the log is remembered");
        let left = (11..41).rev().find(|round| !era.has_logged(&format!("round-{round}-0").as_str().into()));
        assert!(
            era.since() > left,
            "no Machine is believed as of before what was forgotten had left: {:?}",
            era.since()
        );
    }

    #[rstest]
    #[case::no_log(SharedLog::new("v9".into()), true)]
    #[case::beyond_what_is_read(SharedLog::new("[".repeat(200_000).as_str().into()), true)]
    #[case::out_of_scope(SharedLog::new("[]".into()), false)]
    fn after_a_log_that_was_not_read_no_older_machine_is_believed(#[case] log: SharedLog, #[case] reads: bool) {
        let mut versions = group(3, "10");
        if reads {
            assert!(log.read().is_err());
        }
        versions.record_era(&GroupVersion { log: Some(log.clone()), ..version(3, "12") });
        versions.record_era(&version(3, "11"));
        assert_eq!(versions.era().unwrap().since(), Some(10), "an older version came late");
        assert_eq!(log.is_read(), reads, "it isn't read under the lock");
        versions.record_era(&version(3, "13"));
        assert_eq!(versions.era().unwrap().since(), Some(13), "what has left it meanwhile was seen by nobody");
        versions.record_era(&version(3, "14"));
        assert_eq!(versions.era().unwrap().since(), Some(13));
    }

    #[test]
    fn a_version_that_comes_late_makes_nobody_forgotten_who_is_in_the_log() {
        let mut versions = group(3, "10");
        versions.record_era(&logging_many("first", 11));
        versions.record_era(&logging_many("present", 20));
        versions.record_era(&logging_many("late", 15));
        let era = versions.era().unwrap();
        assert!((0..1_000).all(|n| era.has_logged(&format!("present-{n}").into())));
    }

    #[test]
    fn a_written_size_is_answered_at_once() {
        let now = Instant::now();
        let mut group = group(2, "10");
        group.set_written(version(5, "11"), now);
        assert_eq!(group.size(now), 5);
    }

    #[test]
    fn an_older_event_does_not_undo_a_written_size() {
        let now = Instant::now();
        let mut group = group(2, "8");
        group.set_written(version(5, "11"), now);
        group.show(version(2, "9"));
        assert_eq!(group.size(now), 5);
    }

    #[test]
    fn the_watch_takes_over_when_it_has_caught_up() {
        let now = Instant::now();
        let mut group = group(2, "9");
        group.set_written(version(5, "100"), now);
        group.show(version(5, "100"));
        group.show(version(4, "101"));
        assert_eq!(group.size(now), 4);
    }

    #[test]
    fn a_write_that_the_watch_has_passed_already_is_not_remembered() {
        let now = Instant::now();
        let mut group = group(3, "12");
        group.set_written(version(5, "11"), now);
        assert_eq!(group.size(now), 3);
    }

    #[test]
    fn versions_that_are_no_numbers_fall_back_to_equality_of_size() {
        let now = Instant::now();
        let mut group = group(2, "a");
        group.set_written(version(5, "b"), now);
        group.show(version(2, "c"));
        assert_eq!(group.size(now), 5);
        group.show(version(5, "d"));
        group.show(version(6, "e"));
        assert_eq!(group.size(now), 6);
    }

    #[rstest]
    #[case::versions_in_order("10", "11", WRITTEN_FOR)]
    #[case::versions_without_order("a", "b", UNORDERED_FOR)]
    fn a_write_that_the_watch_never_shows_is_believed_for_a_limited_time(
        #[case] held: &str,
        #[case] written: &str,
        #[case] limit: Duration,
    ) {
        let now = Instant::now();
        let mut group = group(2, held);
        group.set_written(version(5, written), now);
        assert_eq!(group.size(now + limit / 2), 5);
        assert_eq!(group.size(now + limit), 2);
    }

    #[test]
    fn a_write_is_believed_for_longer_than_a_watch_may_be_broken() {
        let now = Instant::now();
        let mut group = group(2, "10");
        group.set_written(version(5, "11"), now);
        assert_eq!(group.size(now + Duration::from_secs(120)), 5);
    }
}
