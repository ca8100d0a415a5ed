//! One group as held: its object, what the rules say of it, and what it goes on answering while it is
//! pinned. Nothing here looks at another object.

use std::{sync::Arc, time::Instant};

use arcstr::ArcStr;
use capi::{KindRef, Node, ObjectKey, REPLACED, ScalableResource};
use nodegroup::{
    Definition, DeleteConditions, ErrorRules, LeftOut, Overrides, SharedLog, rollout,
    writing::{GroupVersion, Ongoing, SetView},
};
use prost::bytes::Bytes;

use super::{
    increase::Increase,
    own_size::{Overwritten, OwnSize},
    standing::Standing,
    version::Versions,
};

/// A group's answers: the rules' definition, and the values derived from it.
#[derive(Debug)]
pub struct Served {
    /// The rules' result for the objects.
    pub definition: Definition,
    /// The options that Cluster Autoscaler gets: the definition's own, or while the group is rolling out those that
    /// keep its Nodes from being chosen.
    pub options: Overrides,
    /// The template as an encoded core/v1 Node, shared by all answers. `None`: no template is known.
    pub template: Option<Bytes>,
}

impl Served {
    /// Returns the answers of a group of this definition.
    pub(super) fn new(definition: Definition, template: Option<Bytes>, rollout: Option<&Ongoing>) -> Self {
        let options = match rollout {
            Some(_) if !definition.ignores_rollouts => rollout::hold(&definition.options),
            Some(_) | None => definition.options.clone(),
        };
        Self { definition, options, template }
    }
}

/// A MachineDeployment, MachineSet or MachinePool: group or not.
#[derive(Debug, Default)]
pub(super) struct Group {
    /// The object; the last one that did while it doesn't decode; `None` when it is gone or never decoded.
    pub(super) object: Option<Arc<ScalableResource>>,
    /// Its present standing.
    pub(super) standing: Standing,
    /// Its answers; kept when it stops being a group, until the next Refresh.
    pub(super) served: Option<Arc<Served>>,
    /// The kind of infrastructure template it makes this program watch.
    pub(super) wants: Option<KindRef>,
    /// The first Machine of the group, by name, that has a Node, with this Node; of a MachinePool the first
    /// Node, under its own key.
    pub(super) sample: Option<(ObjectKey, Arc<Node>)>,
    /// Its rollout, under way or about to begin, even if the group ignores rollouts.
    pub(super) rollout: Option<Ongoing>,
    /// The object's versions, or those it had last.
    pub(super) versions: Versions,
    /// The size that this process wrote last, while it stands.
    pub(super) own_size: Option<OwnSize>,
    /// The number of this process's writes of a size that have no answer yet.
    pub(super) size_writes: u32,
    /// The last larger size that this process wrote.
    pub(super) increase: Option<Increase>,
    /// The size that somebody has written over it, until that is reported.
    pub(super) overwritten: Option<Overwritten>,
    /// Since when there has been no object, where it answers all the same.
    pub(super) gone_since: Option<tokio::time::Instant>,
}

impl Group {
    /// The group as an object that has Machines made; `None` without an object.
    pub(super) fn set_view(&self) -> Option<SetView> {
        let log = self.versions.shown().and_then(|version| version.log.clone());
        Some(SetView { object: Arc::clone(self.object.as_ref()?), log })
    }

    /// Takes a new version of the object, with its log.
    pub(super) fn set_object(&mut self, object: Arc<ScalableResource>, log: Option<SharedLog>) {
        let version = GroupVersion::of(&object, log);
        self.look_at_own_size(&version);
        self.versions.show(version);
        self.object = Some(object);
        self.gone_since = None;
    }

    /// The size asked for: what was written last, else what the object says, else what it said last.
    pub(super) fn size(&self, now: Instant) -> i32 {
        self.versions.size(now)
    }

    /// The conditions that a delete of its failed Machines would meet now.
    pub(super) fn delete_conditions(&self, rules: ErrorRules, now: Instant) -> DeleteConditions {
        let can_scale_down = self.is_live() && self.holding_rollout().is_none();
        let definition = self.served.as_ref().map(|served| &served.definition);
        let min = definition.map_or(0, |definition| definition.bounds.min);
        let grace = definition.map_or(rules.grace, |definition| definition.capacity_error_grace);
        let rules = ErrorRules { grace, ..rules };
        let log = self.versions.current(now).and_then(|version| version.log.as_ref());
        let replaced = self.object.as_ref().and_then(|object| object.annotations.get(REPLACED));
        DeleteConditions::of(rules, can_scale_down, min, log, replaced.map(ArcStr::as_str))
    }

    /// The rollout that keeps its Machines from being deleted; `None` where it opts out of that.
    pub(super) fn holding_rollout(&self) -> Option<&Ongoing> {
        let ignored = self.served.as_ref().is_some_and(|served| served.definition.ignores_rollouts);
        self.rollout.as_ref().filter(|_| !ignored)
    }

    /// Returns true if there is an object, be it one that doesn't decode.
    pub(super) fn is_known(&self) -> bool {
        self.object.is_some() || matches!(self.standing, Standing::Undecodable(_))
    }

    /// The least size that deletions keep to, which is 0 for what isn't a group any more. `None` where deletions have to
    /// wait, or are another program's.
    pub(super) fn min_of_deletions(&self) -> Option<i32> {
        self.object.as_ref()?;
        match &self.standing {
            Standing::Live(()) => Some(self.served.as_ref()?.definition.bounds.min),
            // Accepted deletions are carried out, though the group asks for no more.
            Standing::LeftOut(LeftOut::NotAutoscaled | LeftOut::InvalidBounds | LeftOut::NoScaleFromZero, _)
            | Standing::Waiting => Some(0),
            Standing::LeftOut(
                LeftOut::OutOfScope | LeftOut::OwnedByMachineDeployment | LeftOut::Paused | LeftOut::NamespaceForbidden,
                _,
            )
            | Standing::Undecodable(_)
            | Standing::Gone => None,
        }
    }

    /// True if its object has a log of deletions.
    pub(super) fn has_log(&self) -> bool {
        self.object.as_ref().is_some_and(|object| object.deleting_log.is_some())
    }

    /// Returns true if it is a group now.
    pub(super) fn is_live(&self) -> bool {
        self.standing.is_live()
    }
}
