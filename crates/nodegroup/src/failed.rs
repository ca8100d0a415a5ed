//! Decides if a Machine has failed for good. Every part of the program must decide this here.

use capi::{Machine, MachinePhase};

/// Cluster API's reason of InfrastructureReady if a Machine's infrastructure was deleted.
const INFRASTRUCTURE_DELETED: &str = "Deleted";

/// Returns true if a Machine has failed for good. Up to Cluster API 1.10 it then has the phase Failed and a failure's
/// reason or message; these texts alone don't count, since bare metal sets them during provisioning. Cluster API 1.11
/// and later don't set the phase, so the condition InfrastructureReady counts.
#[must_use]
pub fn has_failed(machine: &Machine) -> bool {
    let infrastructure = machine.infrastructure_not_ready();
    let is_gone = infrastructure.is_some_and(|condition| condition.reason == INFRASTRUCTURE_DELETED);
    (machine.phase == MachinePhase::Failed && machine.failure().is_some()) || (is_gone && !machine.deleting)
}
