//! The state of one group: its object, the result of the rules, and its served values while it is pinned. Nothing here
//! looks at another object.

use std::{sync::Arc, time::Instant};

use jiff::Timestamp;
use prost::bytes::Bytes;
use rules::capi::{KindRef, Node, ObjectKey, ScalableResource};
use rules::{
    Definition, DeleteConditions, ErrorRules, Excluded, Exclusion, FromZero, NodeTemplate, Overrides, Problem,
    Shortage, Source, group_version::GroupVersion, remembered::Templates, replacement::Replaced, rollout,
    rollout::Rollout,
};
use tokio::time;

use super::{
    hold::Held,
    increase::Increase,
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
    pub(super) fn new(definition: Definition, template: Option<Bytes>, rollout: Option<&Rollout>) -> Self {
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
    pub(super) rollout: Option<Rollout>,
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
        let can_scale_down = self.is_live() && self.rollout_in_force().is_none();
        let definition = self.served.as_ref().map(|served| &served.definition);
        let min = definition.map_or(0, |definition| definition.bounds.min);
        let grace = definition.map_or(rules.grace, |definition| definition.capacity_error_grace);
        let rules = ErrorRules { grace, ..rules };
        let (replaced, now) = (self.replaced.clone(), Timestamp::now());
        DeleteConditions { rules, accepts: can_scale_down, min, replaced, now }
    }

    /// Returns the rollout that keeps its Machines from being deleted; `None` if the group opts out of that.
    pub(super) fn rollout_in_force(&self) -> Option<&Rollout> {
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
