//! The instances of a node group as Cluster Autoscaler sees them: their id, state and error, one per Machine, and
//! the order in which they are looked at.

pub use super::placeholder::{PlaceholderRef, template_node_groups};
use super::{GroupId, exhausted, placeholder};
use crate::capi::{Machine, MachinePhase};

/// A condition's message may be 32 KiB long, and thousands of Machines may fail at once: an answer beyond 4 MiB is an
/// error to Cluster Autoscaler, which then takes the group for one without instances.
const LONGEST_MESSAGE: usize = 400;
const ELLIPSIS: &str = "…";

/// An instance of a node group.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Instance {
    /// A provider id, or a placeholder that [`PlaceholderRef::parse`] leads back to its Machine or group.
    pub id: String,
    /// What it is doing.
    pub state: InstanceState,
    /// What went wrong with it.
    pub error: Option<InstanceError>,
}

/// What an instance is doing.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum InstanceState {
    /// It has no Node yet.
    Creating,
    /// Its Node has joined.
    Running,
    /// It is on its way out.
    Deleting,
}

/// What went wrong with an instance. Cluster Autoscaler deletes the creating ones that have one, in every loop and with
/// no check of the minimum, and backs their group off.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct InstanceError {
    /// For machines: `DeletingFailed` or `ProvisioningFailed`.
    pub code: &'static str,
    /// For people: the Machine's own words where it has any.
    pub message: String,
    /// Whether it is for want of resources.
    pub class: ErrorClass,
}

/// Classes of errors, with their numbers on the wire.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum ErrorClass {
    /// Capacity or quota has run out.
    OutOfResources = 1,
    /// Anything else.
    Other = 99,
}

impl ErrorClass {
    /// `instanceErrorClass` on the wire.
    #[must_use]
    pub fn number(self) -> i32 {
        match self {
            Self::OutOfResources => 1,
            Self::Other => 99,
        }
    }
}

/// The instance of a Machine. `node_provider_id` is that of its Node, for a Machine that lacks one.
///
/// A Machine that has a Node but no provider id on either keeps its `pending-machine` id and counts as creating, since
/// Cluster Autoscaler couldn't recognize its Node; Cluster API sets no nodeRef before there is a provider id.
#[must_use]
pub fn of_machine(machine: &Machine, node_provider_id: Option<&str>) -> Instance {
    let key = || machine.meta.key.clone();
    let failed = machine.failure.is_some() || machine.phase == MachinePhase::Failed;
    let has_node = machine.node_name.is_some();
    match (failed, machine.deleting) {
        (true, true) => Instance {
            id: placeholder::failed(&key()),
            state: InstanceState::Deleting,
            error: Some(InstanceError {
                code: "DeletingFailed",
                message: message(machine, "deleting the Machine failed"),
                class: ErrorClass::Other,
            }),
        },
        (true, false) if !has_node => Instance {
            id: placeholder::failed(&key()),
            state: InstanceState::Creating,
            error: Some(provisioning_failed(machine)),
        },
        (false, true) => Instance { id: placeholder::deleting(&key()), state: InstanceState::Deleting, error: None },
        (false, false) if !has_node => Instance {
            id: placeholder::pending(&key()),
            state: InstanceState::Creating,
            error: infrastructure_is_exhausted(machine).then(|| provisioning_failed(machine)),
        },
        (true | false, false) => match machine.provider_id.as_deref().or(node_provider_id) {
            Some(id) => of_provider_id(id),
            None => Instance { id: placeholder::pending(&key()), state: InstanceState::Creating, error: None },
        },
    }
}

/// An instance of a MachinePool, which has no Machines: one of its `spec.providerIDList`.
#[must_use]
pub fn of_provider_id(id: &str) -> Instance {
    Instance { id: id.to_owned(), state: InstanceState::Running, error: None }
}

/// The stand-in for a replica that has no Machine yet, counted from 0 within its group.
#[must_use]
pub fn replica_placeholder(group: &GroupId, index: u32) -> Instance {
    Instance { id: placeholder::replica(group, index), state: InstanceState::Creating, error: None }
}

fn provisioning_failed(machine: &Machine) -> InstanceError {
    let exhausted = infrastructure_is_exhausted(machine)
        || machine
            .failure
            .as_ref()
            .and_then(|failure| failure.reason.as_deref())
            .is_some_and(|reason| reason == exhausted::INSUFFICIENT_RESOURCES);
    InstanceError {
        code: "ProvisioningFailed",
        message: message(machine, "provisioning the Machine failed"),
        class: if exhausted { ErrorClass::OutOfResources } else { ErrorClass::Other },
    }
}

/// Whether the condition InfrastructureReady, which mirrors the infrastructure's own words, says so in a listed way.
fn infrastructure_is_exhausted(machine: &Machine) -> bool {
    machine.infrastructure_not_ready.as_ref().is_some_and(|condition| {
        exhausted::is_exhausted(&condition.reason) || exhausted::is_exhausted(&condition.message)
    })
}

/// The Machine's failure, else the words of its infrastructure, else `otherwise`; not more than
/// [`LONGEST_MESSAGE`] bytes of them.
fn message(machine: &Machine, otherwise: &str) -> String {
    let mut message = whole_message(machine, otherwise);
    if message.len() > LONGEST_MESSAGE {
        let end = (0..=LONGEST_MESSAGE - ELLIPSIS.len()).rev().find(|end| message.is_char_boundary(*end));
        message.truncate(end.unwrap_or_default());
        message.push_str(ELLIPSIS);
    }
    message
}

fn whole_message(machine: &Machine, otherwise: &str) -> String {
    let pair = |reason: Option<&str>, message: Option<&str>| {
        let parts = [reason, message].into_iter().flatten().filter(|part| !part.is_empty());
        Some(parts.collect::<Vec<_>>().join(": ")).filter(|text| !text.is_empty())
    };
    let failure =
        machine.failure.as_ref().and_then(|failure| pair(failure.reason.as_deref(), failure.message.as_deref()));
    let infrastructure = || {
        let condition = machine.infrastructure_not_ready.as_ref()?;
        pair(Some(&condition.reason), Some(&condition.message))
    };
    failure.or_else(infrastructure).unwrap_or_else(|| otherwise.to_owned())
}

#[cfg(test)]
mod tests;
