//! One group as held: its object, what the rules say of it, and what it goes on answering while it is
//! pinned. Nothing here looks at another object.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use jiff::Timestamp;
use prost::bytes::Bytes;

use super::WrittenSize;
use crate::{
    capi::{KindRef, Node, ObjectKey, ScalableResource},
    nodegroup::{Definition, LeftOut, Overrides, Problem, RolloutCause, rollout},
};

/// How long an own write is believed that the watch hasn't shown, where resourceVersions say for certain which of two
/// is later. A watch may be broken for longer than a Refresh puts up with, and a size from before the write would have
/// it written twice; only after a restored backup do the versions never catch up.
const WRITTEN_FOR: Duration = Duration::from_secs(15 * 60);
/// The same, where only equality of the size tells that the watch has shown it.
const UNORDERED_FOR: Duration = Duration::from_secs(30);

/// Whether an object is a group now.
#[derive(Debug, Default, Eq, PartialEq)]
pub(super) enum Standing {
    /// There is no such object.
    #[default]
    Gone,
    /// It is a group.
    Live,
    /// It is none, and why.
    LeftOut(LeftOut, Vec<Problem>),
    /// It can't scale from zero as far as is known, and its infrastructure template hasn't been read yet.
    Waiting,
    /// The object doesn't decode.
    Undecodable(Problem),
}

/// What a group answers: the rules' definition, and what is worked out of it.
#[derive(Debug)]
pub struct Served {
    /// What the rules made of the objects.
    pub definition: Definition,
    /// The options that Cluster Autoscaler gets: the definition's own, or while the group is rolling out those that
    /// keep its Nodes from being chosen.
    pub options: Overrides,
    /// The template as an encoded core/v1 Node, shared by all answers. `None`: no template is known.
    pub template: Option<Bytes>,
}

impl Served {
    /// What a group of this definition answers.
    pub(super) fn new(definition: Definition, template: Option<Bytes>, rollout: Option<&Ongoing>) -> Self {
        let options = match rollout {
            Some(_) if !definition.ignores_rollouts => rollout::hold(&definition.options),
            Some(_) | None => definition.options.clone(),
        };
        Self { definition, options, template }
    }
}

/// That a group is rolling out, or about to.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Ongoing {
    /// What shows it.
    pub cause: RolloutCause,
    /// Since when: as the objects say, else since this process first saw it.
    pub since: Timestamp,
}

/// A size that was written by this process and that the watch may not have shown yet.
#[derive(Clone, Copy, Debug)]
struct Written {
    replicas: i32,
    /// `None` when the API server's resourceVersion isn't a number.
    resource_version: Option<u64>,
    at: Instant,
}

impl Written {
    fn believed_for(&self) -> Duration {
        if self.resource_version.is_some() { WRITTEN_FOR } else { UNORDERED_FOR }
    }
}

/// A MachineDeployment, MachineSet or MachinePool: group or not.
#[derive(Debug, Default)]
pub(super) struct Group {
    /// The object; the last one that did while it doesn't decode; `None` when it is gone or never decoded.
    pub(super) object: Option<Arc<ScalableResource>>,
    /// Whether it is a group now.
    pub(super) standing: Standing,
    /// What it answers; kept when it stops being a group, until the next Refresh.
    pub(super) served: Option<Arc<Served>>,
    /// The kind of infrastructure template it makes this program watch.
    pub(super) wants: Option<KindRef>,
    /// The first Machine of the group, by name, that has a Node, with this Node; of a MachinePool the first
    /// Node, under its own key.
    pub(super) sample: Option<(ObjectKey, Arc<Node>)>,
    /// That it is rolling out, whether it ignores that or not.
    pub(super) rollout: Option<Ongoing>,
    /// Replicas of the object, or those it had last.
    replicas: i32,
    written: Option<Written>,
}

impl Group {
    /// Takes a new version of the object.
    pub(super) fn set_object(&mut self, object: Arc<ScalableResource>) {
        self.replicas = object.replicas.unwrap_or_default();
        let version = object.meta.resource_version.number();
        if let Some(written) = self.written {
            let seen = match (version, written.resource_version) {
                (Some(version), Some(written)) => version >= written,
                _ => self.replicas == written.replicas,
            };
            if seen {
                self.written = None;
            }
        }
        self.object = Some(object);
    }

    /// Remembers a size that was written, unless the watch has shown a later version already.
    pub(super) fn set_written(&mut self, replicas: i32, resource_version: &str, now: Instant) {
        let written = Written { replicas, resource_version: number(resource_version), at: now };
        let held = self.object.as_ref().and_then(|object| object.meta.resource_version.number());
        let later = match (held, written.resource_version) {
            (Some(held), Some(written)) => held >= written,
            _ => self.replicas == replicas,
        };
        self.written = (!later).then_some(written);
    }

    /// The size asked for: what was written last, else what the object says, else what it said last.
    pub(super) fn size(&self, now: Instant) -> i32 {
        self.written(now).map_or(self.replicas, |written| written.replicas)
    }

    /// What was written last and the watch hasn't shown yet.
    pub(super) fn written(&self, now: Instant) -> Option<WrittenSize> {
        let written = self.written?;
        let age = now.saturating_duration_since(written.at);
        (age < written.believed_for()).then_some(WrittenSize { replicas: written.replicas, age })
    }

    /// The rollout that keeps its Machines from being deleted; `None` where it opts out of that.
    pub(super) fn holding_rollout(&self) -> Option<&Ongoing> {
        let ignored = self.served.as_ref().is_some_and(|served| served.definition.ignores_rollouts);
        self.rollout.as_ref().filter(|_| !ignored)
    }

    /// Whether there is an object, be it one that doesn't decode.
    pub(super) fn is_known(&self) -> bool {
        self.object.is_some() || matches!(self.standing, Standing::Undecodable(_))
    }

    /// Whether it is a group now.
    pub(super) fn is_live(&self) -> bool {
        self.standing == Standing::Live
    }
}

/// resourceVersions are compared as numbers, as Kubernetes has allowed since 1.35.
fn number(resource_version: &str) -> Option<u64> {
    resource_version.parse().ok()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;
    use crate::capi::{Context, Meta, ScalableKind};

    fn object(replicas: i32, resource_version: &str) -> Arc<ScalableResource> {
        let meta =
            Meta { key: ObjectKey::new("ns", "md"), uid: "uid".into(), resource_version: resource_version.into() };
        let value = json!({"spec": {"replicas": replicas}});
        let context = Context::new("cluster.x-k8s.io");
        Arc::new(ScalableResource::decode(ScalableKind::MachineDeployment, meta, &value, &context).unwrap())
    }

    fn group(replicas: i32, resource_version: &str) -> Group {
        let mut group = Group::default();
        group.set_object(object(replicas, resource_version));
        group
    }

    #[test]
    fn a_written_size_is_answered_at_once() {
        let now = Instant::now();
        let mut group = group(2, "10");
        group.set_written(5, "11", now);
        assert_eq!(group.size(now), 5);
    }

    #[test]
    fn an_older_event_does_not_undo_a_written_size() {
        let now = Instant::now();
        let mut group = group(2, "8");
        group.set_written(5, "11", now);
        group.set_object(object(2, "9"));
        assert_eq!(group.size(now), 5);
    }

    #[test]
    fn the_watch_takes_over_when_it_has_caught_up() {
        let now = Instant::now();
        let mut group = group(2, "9");
        group.set_written(5, "100", now);
        group.set_object(object(5, "100"));
        group.set_object(object(4, "101"));
        assert_eq!(group.size(now), 4);
    }

    #[test]
    fn a_write_that_the_watch_has_passed_already_is_not_remembered() {
        let now = Instant::now();
        let mut group = group(3, "12");
        group.set_written(5, "11", now);
        assert_eq!(group.size(now), 3);
    }

    #[test]
    fn versions_that_are_no_numbers_fall_back_to_equality_of_size() {
        let now = Instant::now();
        let mut group = group(2, "a");
        group.set_written(5, "b", now);
        group.set_object(object(2, "c"));
        assert_eq!(group.size(now), 5);
        group.set_object(object(5, "d"));
        group.set_object(object(6, "e"));
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
        group.set_written(5, written, now);
        assert_eq!(group.size(now + limit / 2), 5);
        assert_eq!(group.size(now + limit), 2);
    }

    #[test]
    fn a_write_is_believed_for_longer_than_a_watch_may_be_broken() {
        let now = Instant::now();
        let mut group = group(2, "10");
        group.set_written(5, "11", now);
        assert_eq!(group.size(now + Duration::from_secs(120)), 5);
    }
}
