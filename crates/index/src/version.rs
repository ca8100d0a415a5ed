//! Versions of a group's object: the one that a write is based on and tested against. Nothing here looks at another
//! object.

use std::time::{Duration, Instant};

use nodegroup::writing::GroupVersion;

/// The time for which an own write counts while the watch hasn't reported it, if resourceVersions are ordered. It is
/// long, since a watch may be broken for longer than Refresh tolerates, and an older size would cause a second write.
/// It is limited, since after a restored backup the watch never catches up.
pub(super) const WRITTEN_FOR: Duration = Duration::from_secs(15 * 60);
/// The same time if resourceVersions aren't ordered, and only an equal size shows that the watch has caught up.
pub(super) const UNORDERED_FOR: Duration = Duration::from_secs(30);

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
}

impl Versions {
    /// Records a version from the watch.
    pub(super) fn show(&mut self, version: GroupVersion) {
        if self.written.as_ref().is_some_and(|written| written.is_seen(&version)) {
            self.written = None;
        }
        self.shown = Some(version);
    }

    /// Records a version that was written or read, unless the watch has already reported a later one.
    pub(super) fn set_written(&mut self, version: GroupVersion, now: Instant) {
        let written = Written { version, at: now };
        let is_later = |before: &GroupVersion| !written.is_seen(before);
        if self.shown.as_ref().is_none_or(is_later) {
            self.written = Some(written);
        }
    }

    /// Returns the version that a write is based on: the one written last, else the one from the watch.
    pub(super) fn current(&self, now: Instant) -> Option<&GroupVersion> {
        self.still_written(now).map(|written| &written.version).or(self.shown.as_ref())
    }

    /// The last version from the watch, even if the object was deleted since.
    pub(super) fn shown(&self) -> Option<&GroupVersion> {
        self.shown.as_ref()
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
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn version(replicas: i32, resource_version: &str) -> GroupVersion {
        GroupVersion { uid: "uid".into(), resource_version: resource_version.into(), generation: 1, replicas }
    }

    fn group(replicas: i32, resource_version: &str) -> Versions {
        let mut versions = Versions::default();
        versions.show(version(replicas, resource_version));
        versions
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
