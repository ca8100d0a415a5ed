//! Versions of a group's object: the one that a write is based on and tested against, and the size that this process wrote
//! last, until it is overwritten. Nothing here looks at another object, or decides on sizes.

use std::time::{Duration, Instant};

use rules::capi::Uid;
use rules::group_version::GroupVersion;
use serde::{Deserialize, Serialize};

/// The time for which an own write counts while the watch hasn't reported it, if resourceVersions are ordered. It is
/// long, since a watch may be broken for longer than Refresh tolerates, and an older size would cause a second write.
/// It is limited, since after a restored backup the watch never catches up.
const WRITTEN_FOR: Duration = Duration::from_secs(15 * 60);
/// The same time if resourceVersions aren't ordered, and only an equal size shows that the watch has caught up.
const UNORDERED_FOR: Duration = Duration::from_secs(30);

/// A size that was written, or read after a failed write, and that the watch hasn't reported yet.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct WrittenSize {
    /// The size.
    pub replicas: i32,
    /// The seconds since it was written or read.
    pub ago: u64,
}

/// A version that this process wrote, or read after a failed write, and that the watch may not have reported yet.
#[derive(Clone, Debug)]
struct Known {
    version: GroupVersion,
    at: Instant,
}

impl Known {
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

#[derive(Debug, Default)]
pub(super) struct Versions {
    /// The last version from the watch, even if the object was deleted since.
    shown: Option<GroupVersion>,
    written: Option<Known>,
}

impl Versions {
    pub(super) fn show(&mut self, version: GroupVersion) {
        if self.written.as_ref().is_some_and(|written| written.is_seen(&version)) {
            self.written = None;
        }
        self.shown = Some(version);
    }

    /// Records a version that was written or read, unless the watch has already reported a later one.
    pub(super) fn set_known(&mut self, version: GroupVersion, now: Instant) {
        let written = Known { version, at: now };
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
        let ago = now.saturating_duration_since(written.at).as_secs();
        Some(WrittenSize { replicas: written.version.replicas, ago })
    }

    fn still_written(&self, now: Instant) -> Option<&Known> {
        self.written.as_ref().filter(|written| now.saturating_duration_since(written.at) < written.believed_for())
    }
}

// The size that this process wrote last for a group, until it is overwritten. `scale` takes from it that another
// writer has overwritten the size, or that no Machine is created for it. Nothing here decides on sizes.

#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct OwnSize {
    uid: Uid,
    /// The resourceVersion of the write.
    version: u64,
    pub(super) replicas: i32,
}

/// A size of another writer that has overwritten one of this process.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Overwritten {
    /// The size that this process had written.
    pub from: i32,
    /// The current size.
    pub to: i32,
}

impl OwnSize {
    /// Creates a value from the written version; `None` if versions aren't numbers and can't be ordered.
    pub(super) fn of(version: &GroupVersion) -> Option<Self> {
        let number = version.resource_version.number()?;
        Some(Self { uid: version.uid.clone(), version: number, replicas: version.replicas })
    }

    /// Returns the size of a later version of the object, if it differs.
    pub(super) fn overwritten_by(&self, shown: &GroupVersion) -> Option<Overwritten> {
        let is_later = shown.uid == self.uid && shown.resource_version.number()? > self.version;
        (is_later && shown.replicas != self.replicas).then_some(Overwritten { from: self.replicas, to: shown.replicas })
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn version((replicas, uid, resource_version): (i32, &str, &str)) -> GroupVersion {
        GroupVersion { uid: uid.into(), resource_version: resource_version.into(), generation: 1, replicas }
    }

    /// Returns the versions of a group of size 2 that was shown, then written with size 5.
    fn written(shown: &str, written: &str, now: Instant) -> Versions {
        let mut versions = Versions::default();
        versions.show(version((2, "a", shown)));
        versions.set_known(version((5, "a", written)), now);
        versions
    }

    #[rstest]
    #[case::at_once(("10", "11"), &[], 5)]
    #[case::after_an_older_event(("8", "11"), &[(2, "9")], 5)]
    #[case::until_the_watch_has_caught_up(("9", "100"), &[(5, "100"), (4, "101")], 4)]
    #[case::unless_the_watch_has_passed_it_already(("12", "11"), &[], 2)]
    #[case::while_versions_that_are_no_numbers_show_another_size(("a", "b"), &[(2, "c")], 5)]
    #[case::until_they_have_shown_its_size(("a", "b"), &[(2, "c"), (5, "d"), (6, "e")], 6)]
    fn a_written_size_is_answered(
        #[case] (shown, wrote): (&str, &str),
        #[case] then_shown: &[(i32, &str)],
        #[case] size: i32,
    ) {
        let now = Instant::now();
        let mut versions = written(shown, wrote, now);
        for (replicas, resource_version) in then_shown {
            versions.show(version((*replicas, "a", resource_version)));
        }
        assert_eq!(versions.size(now), size);
    }

    #[rstest]
    #[case::versions_in_order("10", "11", WRITTEN_FOR)]
    #[case::versions_without_order("a", "b", UNORDERED_FOR)]
    fn a_write_that_the_watch_never_shows_is_believed_for_a_limited_time(
        #[case] shown: &str,
        #[case] wrote: &str,
        #[case] limit: Duration,
    ) {
        let now = Instant::now();
        let versions = written(shown, wrote, now);
        assert_eq!((versions.size(now + limit / 2), versions.size(now + limit)), (5, 2));
    }

    #[rstest]
    #[case::another_size_later((3, "a", "11"), Some(3))]
    #[case::the_same_size((5, "a", "11"), None)]
    #[case::the_write_itself((5, "a", "10"), None)]
    #[case::a_watch_that_lags_behind((3, "a", "9"), None)]
    #[case::another_object((3, "b", "11"), None)]
    #[case::no_number((3, "a", "x"), None)]
    fn a_size_is_overwritten_by(#[case] shown: (i32, &str, &str), #[case] expected: Option<i32>) {
        let own = OwnSize::of(&version((5, "a", "10"))).unwrap();
        assert_eq!(own.overwritten_by(&version(shown)), expected.map(|to| Overwritten { from: 5, to }));
    }
}
