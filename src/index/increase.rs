//! The ids of instances while a larger size is new.
//!
//! Since 1.36 Cluster Autoscaler takes an increase for done as soon as each missing Node has an instance that has been
//! waited for too long, even if both times end in one loop: the group isn't backed off then, and is increased again and
//! again. The time of an instance begins with its id, the time of an increase with its answer. So instances that come with
//! an increase have another id for its first minute: their time ends that much later, and a loop comes in between.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use nodegroup::{Instance, MachineView, placeholder};
use tokio::time::Instant;

/// The instances of an increase have ids of their own for so long. A loop of Cluster Autoscaler must be shorter, and the
/// clocks of API server and this process differ by less.
const NEW_FOR: Duration = Duration::from_secs(60);

/// A larger size that this process has written.
#[derive(Clone, Copy, Debug)]
pub(super) struct Increase {
    at: Instant,
    time: Timestamp,
}

impl Increase {
    /// One that was just written.
    pub(super) fn now() -> Self {
        Self { at: Instant::now(), time: Timestamp::now() }
    }

    /// Gives instances the ids that they have while it is new: those of Machines without a Node that came with it, and of
    /// replicas without a Machine. `members` are the Machines of the first instances, in the same order.
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

    /// Returns true for a Machine that was made for it, as far as the clocks of API server and this process can tell.
    fn brought(self, member: &MachineView<'_>) -> bool {
        let tolerance = SignedDuration::try_from(NEW_FOR).unwrap_or_default();
        member.machine.created.time().is_some_and(|created| created >= self.time - tolerance)
    }
}
