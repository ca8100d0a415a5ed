//! The state of one group: its object, the result of the rules, and its served values while it is pinned. Nothing here
//! looks at another object.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use arcstr::ArcStr;
use jiff::{SignedDuration, Timestamp};
use prost::bytes::Bytes;
use rules::capi::{KindRef, Node, ObjectKey, ScalableResource, Uid};
use rules::{
    Definition, DeleteConditions, ErrorRules, Excluded, Exclusion, Instance, MachineView, Overrides, Problem, Shortage,
    placeholder,
    replacement::Replaced,
    rollout,
    writing::{GroupVersion, Ongoing},
};
use serde::{Deserialize, Serialize};
use tokio::time;

/// The values that a group is served with: the rules' definition, and the values derived from it.
#[derive(Debug)]
pub struct Served {
    /// The rules' result for the objects.
    pub definition: Definition,
    /// The options for Cluster Autoscaler: the definition's own, or during a rollout those that keep its Nodes from
    /// being chosen for deletion.
    pub options: Overrides,
    /// The template as an encoded core/v1 Node, shared by all answers; `None` if no template is known.
    pub template: Option<Bytes>,
}

impl Served {
    /// Creates the served values of a group with this definition.
    pub(super) fn new(definition: Definition, template: Option<Bytes>, rollout: Option<&Ongoing>) -> Self {
        let options = match rollout {
            Some(_) if !definition.ignores_rollouts => rollout::hold(&definition.options),
            Some(_) | None => definition.options.clone(),
        };
        Self { definition, options, template }
    }
}

/// A MachineDeployment, MachineSet or MachinePool, be it a group or not.
#[derive(Debug)]
pub(super) struct Group {
    /// The object, or its last decodable version while it doesn't decode; `None` if it was deleted or never decoded.
    pub(super) object: Option<Arc<ScalableResource>>,
    /// The reason why it isn't a group; `None` while it is one.
    pub(super) excluded: Option<Excluded>,
    /// Its served values, which are kept until the next Refresh when it stops being a group.
    pub(super) served: Option<Arc<Served>>,
    /// The kind of its infrastructure template, if this program should watch it.
    pub(super) wants: Option<KindRef>,
    /// The first Machine by name that has a Node, with that Node; for a MachinePool the key of its first Node, with
    /// that Node.
    pub(super) sample: Option<(ObjectKey, Arc<Node>)>,
    /// Its rollout, in progress or about to begin, even if the group ignores rollouts.
    pub(super) rollout: Option<Ongoing>,
    /// The versions of the object, or of the last object if it was deleted.
    pub(super) versions: Versions,
    /// The size that this process wrote last, until it is overwritten.
    pub(super) own_size: Option<OwnSize>,
    /// The number of this process's size writes in progress.
    pub(super) size_writes: u32,
    /// The reason why it is left alone for a while.
    pub(super) held: Option<Held>,
    /// The last Machine that this process replaced at the min size.
    pub(super) replaced: Option<Replaced>,
    /// The last increase of the size by this process.
    pub(super) increase: Option<Increase>,
    /// The lack of capacity that a MachinePool reports while instances are missing.
    pub(super) shortage: Option<Shortage>,
    /// The size of another writer that has replaced this process's, until it is reported.
    pub(super) overwritten: Option<Overwritten>,
    /// The time of the object's deletion, while the group is still served.
    pub(super) deleted_at: Option<time::Instant>,
}

/// A group without an object.
impl Default for Group {
    fn default() -> Self {
        Self {
            object: None,
            excluded: Some(Exclusion::Gone.into()),
            served: None,
            wants: None,
            sample: None,
            rollout: None,
            versions: Versions::default(),
            own_size: None,
            size_writes: 0,
            held: None,
            replaced: None,
            increase: None,
            shortage: None,
            overwritten: None,
            deleted_at: None,
        }
    }
}

impl Group {
    /// Sets a new version of the object.
    pub(super) fn set_object(&mut self, object: Arc<ScalableResource>) {
        let version = GroupVersion::of(&object);
        self.check_overwritten(&version);
        self.versions.show(version);
        self.object = Some(object);
        self.deleted_at = None;
    }

    /// Records a size from the watch that differs from the one that this process wrote last. Does nothing during a
    /// write, whose new size the watch may report before the API server answers.
    fn check_overwritten(&mut self, shown: &GroupVersion) {
        if self.size_writes > 0 {
            return;
        }
        if let Some(overwritten) = self.own_size.as_ref().and_then(|own| own.overwritten_by(shown)) {
            self.own_size = None;
            self.overwritten = Some(overwritten);
        }
    }

    /// Compares the size that the watch has shown last, once no write is in progress.
    pub(super) fn check_shown_size(&mut self) {
        if let Some(shown) = self.versions.shown().filter(|_| self.object.is_some()).cloned() {
            self.check_overwritten(&shown);
        }
    }

    /// Returns the desired size: the one written last, else the object's, else that of the last object.
    pub(super) fn size(&self, now: Instant) -> i32 {
        self.versions.size(now)
    }

    /// Returns the conditions that a delete of its failed Machines would meet now.
    pub(super) fn delete_conditions(&self, rules: ErrorRules) -> DeleteConditions {
        let can_scale_down = self.is_live() && self.holding_rollout().is_none();
        let definition = self.served.as_ref().map(|served| &served.definition);
        let min = definition.map_or(0, |definition| definition.bounds.min);
        let grace = definition.map_or(rules.grace, |definition| definition.capacity_error_grace);
        let rules = ErrorRules { grace, ..rules };
        let (replaced, now) = (self.replaced.clone(), Timestamp::now());
        DeleteConditions { rules, accepts: can_scale_down, min, replaced, now }
    }

    /// Returns the rollout that keeps its Machines from being deleted; `None` if the group opts out of that.
    pub(super) fn holding_rollout(&self) -> Option<&Ongoing> {
        let ignored = self.served.as_ref().is_some_and(|served| served.definition.ignores_rollouts);
        self.rollout.as_ref().filter(|_| !ignored)
    }

    /// Returns true if there is an object, even one that doesn't decode.
    pub(super) fn is_known(&self) -> bool {
        self.object.is_some() || self.is_undecodable()
    }

    /// Returns true if it is a group now.
    pub(super) fn is_live(&self) -> bool {
        self.excluded.is_none()
    }

    /// Returns its problems.
    pub(super) fn problems(&self) -> &[Problem] {
        match (&self.excluded, &self.served) {
            (Some(excluded), _) => &excluded.problems,
            (None, Some(served)) => &served.definition.problems,
            (None, None) => &[],
        }
    }

    /// Returns true if it is a group with problems, or excluded because of an error.
    pub(super) fn is_in_need(&self) -> bool {
        let is_error = self.excluded.as_ref().is_some_and(|excluded| excluded.reason.is_error());
        is_error || !self.problems().is_empty()
    }

    /// Returns true if its object doesn't decode.
    pub(super) fn is_undecodable(&self) -> bool {
        self.excluded.as_ref().is_some_and(|excluded| excluded.reason == Exclusion::Undecodable)
    }
}

// Versions of a group's object: the one that a write is based on and tested against. Nothing here looks at another
// object.

/// The time for which an own write counts while the watch hasn't reported it, if resourceVersions are ordered. It is
/// long, since a watch may be broken for longer than Refresh tolerates, and an older size would cause a second write.
/// It is limited, since after a restored backup the watch never catches up.
pub(super) const WRITTEN_FOR: Duration = Duration::from_secs(15 * 60);
/// The same time if resourceVersions aren't ordered, and only an equal size shows that the watch has caught up.
pub(super) const UNORDERED_FOR: Duration = Duration::from_secs(30);

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
        let ago = now.saturating_duration_since(written.at).as_secs();
        Some(WrittenSize { replicas: written.version.replicas, ago })
    }

    fn still_written(&self, now: Instant) -> Option<&Written> {
        self.written.as_ref().filter(|written| now.saturating_duration_since(written.at) < written.believed_for())
    }
}

// The size that this process wrote last for a group, until it is overwritten. `scale` takes from it that another
// writer has overwritten the size, or that no Machine is created for it. Nothing here decides on sizes.

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

// The ids of instances shortly after an increase of the size.
//
// Since 1.36, Cluster Autoscaler considers an increase complete as soon as every missing Node is an instance that has
// timed out, even if the increase times out in the same loop: the group is then not backed off, and is increased again
// and again. An instance's timeout starts when Cluster Autoscaler first sees its id; an increase's timeout starts with
// the response. The instances of an increase therefore have a temporary id in its first minute: they time out that
// much later, and at least one loop runs in between.

/// The time for which the instances of an increase have temporary ids. It must be longer than a loop of Cluster
/// Autoscaler, and than the clock difference between the API server and this process.
const NEW_FOR: Duration = Duration::from_secs(60);

/// An increase that this process has written.
#[derive(Clone, Copy, Debug)]
pub(super) struct Increase {
    at: time::Instant,
    time: Timestamp,
}

impl Increase {
    /// Returns an increase that was just written.
    pub(super) fn now() -> Self {
        Self { at: time::Instant::now(), time: Timestamp::now() }
    }

    /// Replaces the ids of the increase's instances in its first minute: those of Machines without a Node that were
    /// created for it, and of replicas without a Machine. `members` are the Machines of the first instances, in order.
    pub(super) fn rename(self, instances: &mut [Instance], members: &[MachineView<'_>]) {
        if self.at.elapsed() >= NEW_FOR {
            return;
        }
        let old = instances.len().min(members.len());
        let (of_machines, replicas) = instances.split_at_mut(old);
        for (instance, _) in of_machines.iter_mut().zip(members).filter(|(_, member)| self.brought(member)) {
            placeholder::rename_new(&mut instance.id);
        }
        for instance in replicas {
            placeholder::rename_new(&mut instance.id);
        }
    }

    /// Returns true if a Machine was created for the increase. Allows for a clock difference between the API server and
    /// this process.
    fn brought(self, member: &MachineView<'_>) -> bool {
        let tolerance = SignedDuration::try_from(NEW_FOR).unwrap_or_default();
        member.machine.created.time().is_some_and(|created| created >= self.time - tolerance)
    }
}

// Machines whose deletion the API server recently refused or didn't answer. Their instances are sent without an error
// meanwhile: Cluster Autoscaler requests the deletion of an instance with an error in every loop, and doesn't count it
// as a replica.

/// The time for which the error isn't sent after the first failure. It is much longer than a loop of Cluster
/// Autoscaler, which takes several consecutive loops to correct a size that doesn't add up.
const FIRST: Duration = Duration::from_secs(5 * 60);
/// The maximum of this time, which doubles with each further failure: to Cluster Autoscaler, an instance without an
/// error may still join until `--max-node-provision-time` has passed since its error was last sent.
const LONGEST: Duration = Duration::from_secs(4 * 60 * 60);

/// A failed deletion.
#[derive(Clone, Copy, Debug)]
pub(super) struct FailedDelete {
    /// The time of the last failure.
    since: time::Instant,
    /// The time after it for which the error isn't sent.
    lasts: Duration,
}

impl FailedDelete {
    /// Returns true if the error is sent again.
    pub(super) fn is_over(self) -> bool {
        self.since.elapsed() >= self.lasts
    }

    /// Returns a failure at the current time that follows `before`.
    pub(super) fn after(before: Option<&Self>) -> Self {
        let lasts = match before {
            Some(failed) if failed.is_over() => (failed.lasts * 2).min(LONGEST),
            // The deletion was requested again although the error isn't sent.
            Some(failed) => failed.lasts,
            None => FIRST,
        };
        Self { since: time::Instant::now(), lasts }
    }
}

// Groups that are left alone for a while, since writes of them come to nothing. Cluster Autoscaler would drain Node
// after Node, or raise the size in every loop. Options keep it from choosing their Nodes meanwhile.

/// The reason why a group is left alone.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Hold {
    /// The API server refuses to delete a Machine, or to lower the size: a right is missing, or a webhook or policy
    /// denies it. Holds its words.
    DeletesRefused(String),
    /// This field manager keeps putting the size back.
    SizePutBack(ArcStr),
}

/// A hold, and the time at which it ends.
#[derive(Clone, Debug)]
pub(super) struct Held {
    pub(super) why: Hold,
    pub(super) until: time::Instant,
}

impl Hold {
    /// Returns the time for which a group is left alone before the next write is tried.
    pub(super) fn lasts(&self) -> Duration {
        match self {
            Self::DeletesRefused(_) => Duration::from_secs(10 * 60),
            Self::SizePutBack(_) => Duration::from_secs(30 * 60),
        }
    }

    /// Returns the reason, for people.
    #[must_use]
    pub fn reason(&self) -> String {
        match self {
            Self::DeletesRefused(why) => {
                format!("its Nodes aren't scaled down for now, since the API server refuses it: {why}")
            }
            Self::SizePutBack(manager) => format!(
                "its size isn't changed for now, since field manager {manager} keeps putting it back: leave spec.replicas \
                 out of what it applies to this group, once both size annotations are set, or the group out of autoscaling"
            ),
        }
    }
}

impl Held {
    pub(super) fn why(&self) -> Option<&Hold> {
        (time::Instant::now() < self.until).then_some(&self.why)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
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
        versions.set_written(version((5, "a", written)), now);
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
