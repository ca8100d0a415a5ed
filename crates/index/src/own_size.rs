//! The size that this process wrote last for a group, until it is overwritten. `scale` takes from it that another
//! writer has overwritten the size, or that no Machine is created for it. Nothing here decides on sizes.

use capi::Uid;
use nodegroup::writing::GroupVersion;

/// A size that this process wrote.
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
#[allow(clippy::unwrap_used)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn version(replicas: i32, uid: &str, resource_version: &str) -> GroupVersion {
        GroupVersion { uid: uid.into(), resource_version: resource_version.into(), generation: 1, replicas }
    }

    #[rstest]
    #[case::another_size_later((3, "a", "11"), Some(3))]
    #[case::the_same_size((5, "a", "11"), None)]
    #[case::the_write_itself((5, "a", "10"), None)]
    #[case::a_watch_that_lags_behind((3, "a", "9"), None)]
    #[case::another_object((3, "b", "11"), None)]
    #[case::no_number((3, "a", "x"), None)]
    fn a_size_is_overwritten_by(#[case] shown: (i32, &str, &str), #[case] expected: Option<i32>) {
        let own = OwnSize::of(&version(5, "a", "10")).unwrap();
        let found = own.overwritten_by(&version(shown.0, shown.1, shown.2));
        assert_eq!(found, expected.map(|to| Overwritten { from: 5, to }));
    }
}
