//! The rule of deletion ([`delete_rule`]) with the program's identities and objects. Nothing is decided here.

use std::sync::Arc;

pub(super) use delete_rule::{Fate, LEFT_TO_PROVIDER, Life, Marking, Places, RULE, Shrinking, SizedBy};
use delete_rule::{Kind, Member, Source, Spec};

use crate::{
    capi::{Machine, ScalableKind, Uid},
    index::{GroupVersion, SetView},
    nodegroup::{DeletionLog, Ticket, deletion_log::Types},
};

pub(super) type Accepted = delete_rule::Accepted<Types>;
pub(super) type Finish = delete_rule::Finish<Types, Arc<Machine>>;
pub(super) type Followed = delete_rule::Followed<Types>;
pub(super) type LeftSince = delete_rule::LeftSince<Types>;
pub(super) type Listed = delete_rule::Listed<Types>;
pub(super) type Look = delete_rule::Look<Types, Arc<Machine>>;
pub(super) type LookCall = delete_rule::LookCall<Types, Arc<Machine>>;
pub(super) type Lowering = delete_rule::Lowering<Types>;
pub(super) type Named = delete_rule::Named<Types>;
pub(super) type Refusal = delete_rule::Refusal<Types>;
pub(super) type Request = delete_rule::Request<Types>;
pub(super) type Seen<'a> = delete_rule::Seen<'a, Types>;

impl Member<Types> for Arc<Machine> {
    fn uid(&self) -> &Uid {
        &self.meta.uid
    }

    fn is_deleting(&self) -> bool {
        self.deleting
    }

    fn ticket(&self) -> Option<Ticket> {
        Ticket::of_mark(self.delete_mark.as_ref()?)
    }
}

impl Source<Types> for SetView {
    fn replicas(&self) -> Option<i32> {
        self.object.replicas
    }

    fn desired_replicas(&self) -> Option<i32> {
        self.object.desired_replicas
    }

    fn status_replicas(&self) -> i32 {
        self.object.status_replicas
    }

    fn generation(&self) -> i64 {
        self.object.generation
    }

    fn seen_generation(&self) -> i64 {
        self.object.seen_generation
    }

    fn log(&self) -> Option<&DeletionLog> {
        self.log.as_ref()?.read().ok()
    }
}

/// The lowered entries whose smaller size has reached whoever has the group's Machines made.
pub(super) fn followed(kind: ScalableKind, sets: &[SetView]) -> Followed {
    let kind = match kind {
        ScalableKind::MachineDeployment => Kind::MachineDeployment,
        ScalableKind::MachineSet => Kind::MachineSet,
        ScalableKind::MachinePool => Kind::MachinePool,
    };
    RULE.followed(kind, sets)
}

/// The fate of a size write from `seen` to `to` whose answer was lost, by what the object is `now`.
pub(super) fn fate(seen: &GroupVersion, now: &GroupVersion, to: i32, sized_by: SizedBy) -> Fate {
    RULE.fate(&spec(seen), &spec(now), to, sized_by)
}

fn spec(version: &GroupVersion) -> Spec<'_, Uid> {
    Spec { uid: &version.uid, generation: version.generation, replicas: version.replicas }
}
