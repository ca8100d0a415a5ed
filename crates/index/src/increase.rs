//! The ids of instances shortly after an increase of the size.
//!
//! Since 1.36, Cluster Autoscaler considers an increase complete as soon as every missing Node is an instance that
//! has timed out, even if the increase times out in the same loop: the group is then not backed off, and is increased
//! again and again. The timeout of an instance starts with its id, that of an increase with its answer. Instances of
//! an increase therefore have another id for its first minute: their timeout ends that much later, and at least one
//! loop runs in between.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use nodegroup::{Instance, MachineView, placeholder};
use tokio::time::Instant;

/// The time for which the instances of an increase have ids of their own. A loop of Cluster Autoscaler must be
/// shorter, and the clocks of API server and this process must differ by less.
const NEW_FOR: Duration = Duration::from_secs(60);

/// An increase that this process has written.
#[derive(Clone, Copy, Debug)]
pub(super) struct Increase {
    at: Instant,
    time: Timestamp,
}

impl Increase {
    /// Returns an increase that was just written.
    pub(super) fn now() -> Self {
        Self { at: Instant::now(), time: Timestamp::now() }
    }

    /// Replaces the ids of the increase's instances while it is new: those of Machines without a Node that came with
    /// it, and of replicas without a Machine. `members` are the Machines of the first instances, in the same order.
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

    /// Returns true if a Machine was made for the increase, within the tolerance of two clocks: API server and this
    /// process.
    fn brought(self, member: &MachineView<'_>) -> bool {
        let tolerance = SignedDuration::try_from(NEW_FOR).unwrap_or_default();
        member.machine.created.time().is_some_and(|created| created >= self.time - tolerance)
    }
}
