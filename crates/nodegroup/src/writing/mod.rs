//! Implements the traits of the rule of deletion ([`delete_rule`]) for the identities, objects and calls of this
//! program. It must neither decide anything nor make a call.

mod call_error;
mod size_writer;
mod version;

use std::sync::Arc;

use arcstr::ArcStr;
use capi::{Machine, ScalableResource, Uid};
use delete_rule::{
    Member, Source, Spec,
    steps::{Calls, FailedCall, Failure, Group, MarkedMember, Unmarked},
};
use jiff::Timestamp;
use shared_informer::ResourceVersion;

pub use self::{
    call_error::CallError,
    size_writer::{SizeWriter, is_own, manager},
    version::GroupVersion,
};
use crate::{DeletionLog, Excluded, LogError, RolloutCause, SharedLog, Ticket, deletion_log::Types};

/// An object that creates Machines.
#[derive(Clone, Debug)]
pub struct SetView {
    /// The object.
    pub object: Arc<ScalableResource>,
    /// Its log of deletions; a copy on a MachineSet of a MachineDeployment.
    pub log: Option<SharedLog>,
}

/// The reason for which a group can't be written.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum NotScalable {
    /// The group doesn't exist.
    Unknown,
    /// It was a group at the last Refresh and isn't one now.
    Excluded(Excluded),
}

/// The rollout of a group, in progress or about to begin.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Ongoing {
    /// The evidence for it.
    pub cause: RolloutCause,
    /// The time of its beginning: from the objects, or else the time at which this process first saw it.
    pub since: Timestamp,
}

/// The context of a Machine that may be replaced.
#[derive(Clone, Debug)]
pub struct Note {
    /// The uid of the group's object.
    pub group: Uid,
    /// The value of the group's annotation for the last replacement.
    pub text: Option<ArcStr>,
    /// The Machine as it was seen.
    pub machine: Arc<Machine>,
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
            Self::Missing(_) | Self::Forbidden(_) | Self::Refused(_) | Self::NotServed(_) | Self::Abandoned => {
                Failure::Final
            }
        }
    }

    fn was_sent(&self) -> bool {
        !matches!(self, Self::NotServed(_) | Self::Abandoned)
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
        Ticket::of_mark(self.delete_mark()?)
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
