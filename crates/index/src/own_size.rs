//! The size that this process wrote last for a group, until it is overwritten. From here the controller of a group
//! learns that somebody has overwritten it, or that no Machine is created for it. Nothing here decides on sizes.

use std::collections::BTreeSet;

use capi::{ScalableKind, ScalableResource, Uid};
use nodegroup::{GroupId, writing::GroupVersion};

use super::{Index, group::Group, increase::Increase, live_state::LiveState};

/// A size that this process wrote.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct OwnSize {
    uid: Uid,
    /// The resourceVersion of the write.
    version: u64,
    replicas: i32,
}

/// A size with which somebody else has overwritten one of this process.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Overwritten {
    /// The size that this process had written.
    pub from: i32,
    /// The current size.
    pub to: i32,
}

impl OwnSize {
    /// Creates a value from the written version; `None` if versions aren't numbers and can't be ordered.
    fn of(version: &GroupVersion) -> Option<Self> {
        let number = version.resource_version.number()?;
        Some(Self { uid: version.uid.clone(), version: number, replicas: version.replicas })
    }

    /// Returns the size of a later version of the object, if it differs.
    pub(super) fn overwritten_by(&self, shown: &GroupVersion) -> Option<Overwritten> {
        let is_later = shown.uid == self.uid && shown.resource_version.number()? > self.version;
        (is_later && shown.replicas != self.replicas).then_some(Overwritten { from: self.replicas, to: shown.replicas })
    }
}

impl Group {
    /// Records if the watch reports another size than the one that this process wrote last. During a write the size
    /// may be the new one, so this waits for the answer.
    pub(super) fn check_overwritten(&mut self, shown: &GroupVersion) {
        if self.size_writes > 0 {
            return;
        }
        if let Some(overwritten) = self.own_size.as_ref().and_then(|own| own.overwritten_by(shown)) {
            self.own_size = None;
            self.overwritten = Some(overwritten);
        }
    }

    fn check_shown_size(&mut self) {
        if let Some(shown) = self.versions.shown().filter(|_| self.object.is_some()).cloned() {
            self.check_overwritten(&shown);
        }
    }
}

/// A size write in progress, until its answer is there.
#[derive(Debug)]
#[must_use]
pub struct SizeWrite<'a> {
    index: &'a Index,
    id: &'a GroupId,
}

impl Drop for SizeWrite<'_> {
    fn drop(&mut self) {
        let mut inner = self.index.inner.write();
        let live = &mut inner.live;
        let Some(group) = live.groups.get_mut(self.id) else { return };
        group.size_writes = group.size_writes.saturating_sub(1);
        group.check_shown_size();
        if group.overwritten.is_some() {
            live.observed.insert(self.id.clone());
            self.index.observed.send_replace(());
        }
    }
}

impl LiveState {
    /// Returns the reason for which no Machine is created for a larger size, from the MachineSets of a group.
    pub(super) fn held_back(&self, id: &GroupId) -> Option<&str> {
        let reason = |object: &ScalableResource| object.held_back.is_some();
        let object = |id: &GroupId| self.groups.get(id)?.object.as_deref().filter(|object| reason(object));
        let set = match id.kind {
            ScalableKind::MachineDeployment => self
                .sets_by_deployment
                .get(&id.key)
                .find_map(|key| object(&GroupId::new(ScalableKind::MachineSet, key.clone()))),
            ScalableKind::MachineSet | ScalableKind::MachinePool => object(id),
        };
        set?.held_back.as_deref()
    }

    /// Marks a group as observed if its size, written by this process, was overwritten, or if the creation of its
    /// Machines has stopped or resumed.
    pub(super) fn check_size(&mut self, id: GroupId, old: Option<&ScalableResource>, new: &ScalableResource) {
        let Some(group) = self.groups.get(&id) else { return };
        let has_turned = old.and_then(|old| old.held_back.as_ref()) != new.held_back.as_ref();
        if group.overwritten.is_some() || (group.own_size.is_some() && has_turned) {
            self.observed.insert(id);
        }
    }
}

impl Index {
    /// Begins a size write of a group.
    pub fn begin_size_write<'a>(&'a self, id: &'a GroupId) -> SizeWrite<'a> {
        if let Some(group) = self.inner.write().live.groups.get_mut(id) {
            group.size_writes = group.size_writes.saturating_add(1);
        }
        SizeWrite { index: self, id }
    }

    /// Records that this process has replaced the size `from` with another one.
    pub fn set_own_size(&self, id: &GroupId, from: i32, version: &GroupVersion) {
        let mut inner = self.inner.write();
        let live = &mut inner.live;
        if let Some(group) = live.groups.get_mut(id) {
            group.own_size = OwnSize::of(version);
            if version.replicas > from {
                group.increase = Some(Increase::now());
            }
            // The watch may have been quicker.
            group.check_shown_size();
            live.observed.insert(id.clone());
            self.observed.send_replace(());
        }
    }

    /// Returns the groups with observations of their sizes since the last call.
    #[must_use]
    pub fn take_observed(&self) -> BTreeSet<GroupId> {
        std::mem::take(&mut self.inner.write().live.observed)
    }

    /// Returns the size with which somebody has overwritten one of this process, once.
    #[must_use]
    pub fn take_overwritten(&self, id: &GroupId) -> Option<Overwritten> {
        self.inner.write().live.groups.get_mut(id)?.overwritten.take()
    }

    /// Returns the size that this process wrote and that is still in force, with the reason for which no Machine is
    /// created for it.
    #[must_use]
    pub fn held_back_own(&self, id: &GroupId) -> Option<(i32, String)> {
        let inner = self.inner.read();
        let own = inner.live.groups.get(id)?.own_size.as_ref()?;
        Some((own.replicas, inner.live.held_back(id)?.to_owned()))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn version(replicas: i32, uid: &str, resource_version: &str) -> GroupVersion {
        GroupVersion { uid: uid.into(), resource_version: resource_version.into(), generation: 1, replicas, log: None }
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
