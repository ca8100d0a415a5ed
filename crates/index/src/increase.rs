//! The ids of instances shortly after an increase of the size.
//!
//! Since 1.36, Cluster Autoscaler considers an increase complete as soon as every missing Node is an instance that has
//! timed out, even if the increase times out in the same loop: the group is then not backed off, and is increased again
//! and again. An instance's timeout starts when Cluster Autoscaler first sees its id; an increase's timeout starts with
//! the response. The instances of an increase therefore have a temporary id in its first minute: they time out that
//! much later, and at least one loop runs in between.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use rules::{Instance, MachineView, placeholder};
use tokio::time;

/// The time for which the instances of an increase have temporary ids. It must be longer than a loop of Cluster
/// Autoscaler, and than the clock difference between the API server and this process.
const NEW_FOR: Duration = Duration::from_secs(60);

/// An increase that this process has written.
#[derive(Clone, Copy, Debug)]
pub(super) struct Increase {
    at: time::Instant,
    time: Timestamp,
}

impl Increase {
    pub(super) fn now() -> Self {
        Self { at: time::Instant::now(), time: Timestamp::now() }
    }

    /// Replaces the ids of the increase's instances in its first minute: those of Machines without a Node that were
    /// created for it, and of replicas without a Machine. `members` are the Machines of the first instances, in order.
    pub(super) fn use_temporary_ids(self, instances: &mut [Instance], members: &[MachineView<'_>]) {
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

    /// Returns true if a Machine was created for the increase. Allows for a clock difference between the API server and
    /// this process.
    fn brought(self, member: &MachineView<'_>) -> bool {
        let tolerance = SignedDuration::try_from(NEW_FOR).unwrap_or_default();
        member.machine.created.time().is_some_and(|created| created >= self.time - tolerance)
    }
}
