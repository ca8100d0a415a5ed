//! Decides if a Machine has failed for good. Every part of the program must decide this here.

use capi::{Machine, MachinePhase};

/// Cluster API's reason of InfrastructureReady if a Machine's infrastructure was deleted.
const INFRASTRUCTURE_DELETED: &str = "Deleted";

/// Returns true if a Machine has failed for good. Up to Cluster API 1.10, that is its phase together with a failure's
/// reason or message, which on bare metal are also set during provisioning. Since 1.11 there is no such phase, and
/// its conditions count.
#[must_use]
pub fn has_failed(machine: &Machine) -> bool {
    let infrastructure = machine.infrastructure_not_ready.as_ref();
    let is_gone = infrastructure.is_some_and(|condition| condition.reason == INFRASTRUCTURE_DELETED);
    (machine.phase == MachinePhase::Failed && machine.failure.is_some()) || (is_gone && !machine.deleting)
}
