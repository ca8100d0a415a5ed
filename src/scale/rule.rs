//! The rule of deletion ([`delete_rule`]) with the program's identities, objects and calls. Nothing is decided here.

use std::sync::Arc;

use arcstr::ArcStr;
use delete_rule::{
    Kind, Member, Policy, Rule, Source, Spec,
    steps::{self, Calls, MarkedMember, Unmarked},
};
pub(super) use delete_rule::{
    LEFT_TO_PROVIDER, Life, RULE,
    steps::{FailedCall, Failure, Group, Now, Steps, There, Tries, machine_of},
};

use super::{call_error::CallError, writer::SizeWriter};
use crate::{
    capi::{Machine, ScalableKind, Uid},
    index::{GroupVersion, NotScalable, Ongoing, SetView},
    nodegroup::{
        DeletionLog, Ticket,
        deletion_log::{LogError, Types},
    },
};
use shared_informer::ResourceVersion;

pub(super) type Call = steps::Call<Types>;
pub(super) type Carry = steps::Carry<Types>;
pub(super) type Decrease = steps::Decrease<Types>;
pub(super) type Deletion = steps::Deletion<Types>;
pub(super) type Effect = steps::Effect<Types>;
pub(super) type Finish = delete_rule::Finish<Types, Arc<Machine>>;
pub(super) type Followed = delete_rule::Followed<Types>;
pub(super) type LeftSince = delete_rule::LeftSince<Types>;
pub(super) type Listed = delete_rule::Listed<Types>;
pub(super) type MarkCall = steps::MarkCall<Types>;
pub(super) type MarkOutcome = steps::MarkOutcome<Types>;
pub(super) type Marked = steps::Marked<Types>;
pub(super) type Named = delete_rule::Named<Types>;
pub(super) type NotDone = steps::NotDone<Types>;
pub(super) type NotLowered = steps::NotLowered<Types>;
pub(super) type NotReplaced = steps::NotReplaced<Types>;
pub(super) type Candidate = steps::Candidate<Types>;
pub(super) type Replaceable = steps::Replaceable<Types>;
pub(super) type Outcome = steps::Outcome<Types>;
pub(super) type Refusal = delete_rule::Refusal<Types>;
pub(super) type Request = delete_rule::Request<Types>;
pub(super) type Resize = steps::Resize<Types>;
pub(super) type Settle = steps::Settle<Types, Arc<Machine>>;
pub(super) type View = steps::View<Types>;
pub(super) type Whole = steps::Whole<Types>;

/// A note about a Machine that may be replaced.
#[derive(Clone, Debug)]
pub struct Note {
    /// The group's object.
    pub(super) group: Uid,
    /// The text by which it tells of the last replacement.
    pub(super) text: Option<ArcStr>,
    /// The Machine as it was seen.
    pub(super) machine: Arc<Machine>,
}

impl Calls for Types {
    type Group = GroupVersion;
    type Version = ResourceVersion;
    type Writer = SizeWriter;
    type Failed = CallError;
    type Unreadable = LogError;
    type NotScalable = NotScalable;
    type Rollout = Ongoing;
    type Note = Note;
    type Unread = ArcStr;

    fn unmarked(name: &ArcStr, why: Unmarked<Self>) -> CallError {
        match why {
            Unmarked::NotOfGroup => CallError::Unknown(
                format!("the log names Machine {name}, which isn't known yet as one of the group's"),
                None,
            ),
            Unmarked::NotInLog => {
                CallError::Conflict(format!("the log has another entry of Machine {name} by now, or none"))
            }
            Unmarked::Unreadable(error) => CallError::Refused(error.to_string()),
        }
    }
}

impl Group<Types> for GroupVersion {
    fn spec(&self) -> Spec<'_, Uid> {
        Spec { uid: &self.uid, generation: self.generation, replicas: self.replicas }
    }

    fn log(&self) -> Result<DeletionLog, LogError> {
        Self::log(self)
    }

    fn is_unchanged_since(&self, other: &Self) -> bool {
        (self.generation, &self.log) == (other.generation, &other.log)
    }
}

impl FailedCall for CallError {
    fn failure(&self) -> Failure {
        match self {
            Self::Rejected(_) => Failure::Rejected,
            Self::Conflict(_) => Failure::Conflict,
            Self::Unknown(..) => Failure::Unknown,
            Self::Busy(..) | Self::Unauthorized(_) | Self::NotDiscovered => Failure::NotNow,
            Self::Missing(_) | Self::Forbidden(_) | Self::Refused(_) => Failure::Final,
        }
    }
}

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

impl MarkedMember<Types> for Arc<Machine> {
    fn name(&self) -> ArcStr {
        self.meta.key.name.clone()
    }

    fn version(&self) -> ResourceVersion {
        self.meta.resource_version.clone()
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
pub(super) fn followed<P: Policy>(
    rule: Rule<P>,
    kind: ScalableKind,
    sets: &[SetView],
) -> delete_rule::Followed<Types, P> {
    let kind = match kind {
        ScalableKind::MachineDeployment => Kind::MachineDeployment,
        ScalableKind::MachineSet => Kind::MachineSet,
        ScalableKind::MachinePool => Kind::MachinePool,
    };
    rule.followed(kind, sets)
}
