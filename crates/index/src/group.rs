//! The state of one group: its object, the result of the rules, and its served values while it is pinned, and for how long it or
//! its instances are treated differently. Nothing here looks at another object.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use arcstr::ArcStr;
use jiff::{SignedDuration, Timestamp};
use prost::bytes::Bytes;
use rules::capi::{KindRef, Node, ObjectKey, ScalableResource};
use rules::{
    Definition, DeleteConditions, ErrorRules, Excluded, Exclusion, FromZero, Instance, MachineView, NodeTemplate,
    Overrides, Problem, Shortage, Source, group_version::GroupVersion, placeholder, remembered::Templates,
    replacement::Replaced, rollout, rollout::Ongoing,
};
use tokio::time;

use super::{
    remembered_groups::{LastSeen, SmallerNode, Unconfirmed},
    versions::{Overwritten, OwnSize, Versions},
};

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
    pub(super) fn new(definition: Definition, template: Option<Bytes>, rollout: Option<&Ongoing>) -> Self {
        let options = match rollout {
            Some(_) if !definition.ignores_rollouts => rollout::keep_nodes(&definition.options),
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
    /// The kind of its bootstrap template, if this program should watch it.
    pub(super) wants_bootstrap: Option<KindRef>,
    /// The content of its templates, once it is known and Nodes are remembered by it.
    pub(super) templates: Option<Templates>,
    /// The last Node that was remembered.
    pub(super) last_seen: Option<Box<LastSeen>>,
    /// The templates of the last Node that was looked at for volumes and devices, and the day.
    pub(super) looked_at: Option<Box<(Templates, i64)>>,
    /// The time of the last increase by this process of which a remembered amount may have been the reason.
    pub(super) bought_by_memory: Option<time::Instant>,
    /// Such increases, since a Node has last shown all that is remembered.
    pub(super) unconfirmed: Option<Unconfirmed>,
    /// The last Node that was smaller than what was remembered.
    pub(super) smaller: Option<SmallerNode>,
    /// True if that one isn't reported yet.
    pub(super) reports_smaller: bool,
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
            wants_bootstrap: None,
            templates: None,
            last_seen: None,
            looked_at: None,
            bought_by_memory: None,
            unconfirmed: None,
            smaller: None,
            reports_smaller: false,
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
    pub(super) fn set_object(&mut self, object: Arc<ScalableResource>) {
        let version = GroupVersion::of(&object);
        self.check_overwritten(&version);
        self.versions.show(version);
        self.object = Some(object);
        self.deleted_at = None;
        if self.is_undecodable() {
            // It decodes now, and is no group until it is evaluated, which leaves out those that don't decode.
            self.excluded = Some(Exclusion::Gone.into());
        }
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

    /// Returns the kinds of its templates that this program should watch.
    pub(super) fn wanted(&self) -> impl Iterator<Item = &KindRef> {
        self.wants.iter().chain(&self.wants_bootstrap)
    }

    /// Returns true if an amount of its template is remembered.
    pub(super) fn uses_memory(&self) -> bool {
        let template = self.served.as_ref().and_then(|served| served.definition.template.as_ref());
        let is_remembered = |template: &NodeTemplate| {
            let mut amounts = template.capacity.iter().chain(&template.overhead);
            amounts.any(|(_, amount)| matches!(amount.source, Source::Remembered(_)))
        };
        template.is_some_and(is_remembered)
    }

    /// Returns true if there is an object, even one that doesn't decode.
    pub(super) fn is_known(&self) -> bool {
        self.object.is_some() || self.is_undecodable()
    }

    pub(super) fn is_live(&self) -> bool {
        self.excluded.is_none()
    }

    pub(super) fn problems(&self) -> &[Problem] {
        match (&self.excluded, &self.served) {
            (Some(excluded), _) => &excluded.problems,
            (None, Some(served)) => &served.definition.problems,
            (None, None) => &[],
        }
    }

    /// Returns what lets it scale from zero.
    pub(super) fn scales_from_zero_by(&self) -> Option<FromZero> {
        self.served.as_ref()?.definition.from_zero
    }

    /// Returns true if it is a group with problems, or excluded because of an error.
    pub(super) fn is_in_need(&self) -> bool {
        let is_error = self.excluded.as_ref().is_some_and(|excluded| excluded.reason.is_error());
        is_error || !self.problems().is_empty()
    }

    pub(super) fn is_undecodable(&self) -> bool {
        self.excluded.as_ref().is_some_and(|excluded| excluded.reason == Exclusion::Undecodable)
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

/// The time for which no Node is scaled down after a refused delete: somebody has to change a right or a policy first.
const REFUSED_DELETES_HOLD_FOR: Duration = Duration::from_secs(10 * 60);
/// The time for which a size that was put back twice within an hour (size_observer.rs of `scale`) isn't raised: a GitOps
/// controller would put it back within minutes.
const SIZE_PUT_BACK_HOLDS_FOR: Duration = Duration::from_secs(30 * 60);

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
            Self::DeletesRefused(_) => REFUSED_DELETES_HOLD_FOR,
            Self::SizePutBack(_) => SIZE_PUT_BACK_HOLDS_FOR,
        }
    }

    /// Returns the reason, for people.
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
