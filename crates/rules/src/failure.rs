//! Decides if a Machine or MachinePool has failed for good. Every part of the program must decide this here.

use crate::capi::{Condition, Machine, MachinePhase, ScalableKind, ScalableResource};

use crate::shortage::has_words;

/// Cluster API's reason of InfrastructureReady if a Machine's infrastructure was deleted.
const INFRASTRUCTURE_DELETED: &str = "Deleted";

/// A reason by which an infrastructure provider says that a Machine will never be ready.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Terminal {
    /// The provider.
    pub provider: &'static str,
    /// The reason, or words of the message of a provider whose reason doesn't reach the Machine.
    pub text: &'static str,
    /// The file of the provider's sources that shows it.
    pub source: &'static str,
}

/// The one list of these reasons; `docs/reference/failures.md` shows it. After each of them its provider does nothing
/// more for the Machine. Providers of bare metal have none: theirs come and go while a host is being prepared.
pub const TERMINAL: [Terminal; 8] = [
    terminal("AWS", "InstanceTerminated", "controllers/awsmachine_controller.go"),
    terminal("Hetzner", "ServerCreateFailedIrrecoverableError", "pkg/services/hcloud/server/server.go"),
    terminal("Hetzner", "CreationFailedIrrecoverably", "pkg/services/hcloud/server/server.go"),
    terminal("Hetzner", "failed with an irrecoverable error", "pkg/services/hcloud/server/server.go"),
    terminal("IBM Cloud", "InstanceErrored", "internal/controllers/powervs/ibmpowervsmachine_controller.go"),
    terminal("OpenStack", "InstanceDeleted", "controllers/openstackmachine_controller.go"),
    terminal("OpenStack", "Instance is in ERROR state", "controllers/openstackmachine_controller.go"),
    terminal("Proxmox", "VMProvisionFailed", "internal/controller/proxmoxmachine_controller.go"),
];

const fn terminal(provider: &'static str, text: &'static str, source: &'static str) -> Terminal {
    Terminal { provider, text, source }
}

/// Returns true if a Machine has failed for good. Up to Cluster API 1.10 it then has the phase Failed and a failure's
/// reason or message; these texts alone don't count, since bare metal sets them during provisioning. Cluster API 1.11
/// and later don't set the phase, so the condition InfrastructureReady counts: the infrastructure is gone, or its
/// provider gives a reason of [`TERMINAL`].
#[must_use]
pub fn has_failed(machine: &Machine) -> bool {
    let infrastructure = machine.infrastructure_not_ready().filter(|_| !machine.deleting);
    let is_gone = infrastructure.is_some_and(|condition| condition.reason == INFRASTRUCTURE_DELETED);
    // A pool replaces its instances by itself.
    let is_of_pool = machine.owner.as_ref().is_some_and(|(kind, _)| *kind == ScalableKind::MachinePool);
    let is_terminal = || !is_of_pool && infrastructure.is_some_and(is_terminal);
    (machine.phase == MachinePhase::Failed && machine.failure().is_some()) || is_gone || is_terminal()
}

/// Returns true if a MachinePool has failed for good: its infrastructure isn't ready, and it has a failure's reason or
/// message, or gives a reason of [`TERMINAL`]. Cluster API up to 1.10 makes the phase Failed of a failure alone, but never
/// clears it, whatever becomes of the infrastructure. Bare metal, which sets such texts while a host is being prepared, has
/// no pools. The reason `Deleted` doesn't count: Cluster API doesn't set it on pools, and Azure's conditions have it for
/// parts that a pool has no more.
#[must_use]
pub fn pool_has_failed(pool: &ScalableResource) -> bool {
    let infrastructure = pool.infrastructure_not_ready.as_ref();
    infrastructure.is_some_and(|condition| pool.failure.is_some() || is_terminal(condition))
}

fn is_terminal(condition: &Condition) -> bool {
    let has = |text| has_words(&condition.reason, text, false) || has_words(&condition.message, text, false);
    TERMINAL.iter().any(|terminal| has(terminal.text))
}
