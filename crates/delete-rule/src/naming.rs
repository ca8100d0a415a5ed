//! The decisions on the Machines and instances that a request names, and on a smaller target size.

use crate::{Entry, Followed, Phase, Policy, Types};

/// A Machine that a request names, as it is observed when the request is taken.
#[derive(Clone, Copy, Debug, Default)]
pub struct Named {
    /// True if the request names it by the id of an instance without a Node.
    pub by_placeholder: bool,
    /// True if it is being deleted.
    pub is_deleting: bool,
    /// Its Node.
    pub node: NodeSeen,
}

/// The Node of a Machine, as it is observed.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum NodeSeen {
    /// There is none.
    #[default]
    None,
    /// The Machine has a nodeRef, and no Node is there.
    Reference,
    /// It is there.
    Present,
}

/// The decision.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Naming {
    /// It is deleted.
    Delete {
        /// True if it is given up as one that never joined, so that it stays if it has a Node when it is marked.
        never_joined: bool,
    },
    /// It stays: it was named as one without a Node, and has joined meanwhile.
    HasJoined,
    /// Nothing is to be done now: the size was lowered for it, and it is deleted by name after the rollout.
    WaitsForRollout,
}

impl Named {
    /// Decides. `has_lowered` and `waits_for_rollout` look into the group's log, and are called only where that counts.
    pub fn decide(self, has_lowered: impl FnOnce() -> bool, waits_for_rollout: impl FnOnce() -> bool) -> Naming {
        let never_joined = self.by_placeholder && !self.is_deleting;
        // A Machine for which the size was lowered goes, even if it has joined since.
        if never_joined && self.node != NodeSeen::None && !has_lowered() {
            return Naming::HasJoined;
        }
        if !self.is_deleting && self.node != NodeSeen::Present && waits_for_rollout() {
            return Naming::WaitsForRollout;
        }
        Naming::Delete { never_joined }
    }
}

/// Returns true if the deletion of a Machine by name waits for the end of a rollout. `active` is the number of
/// MachineSets with replicas. `entry`, the Machine's entry of the log, and `followed` are looked up only where they
/// count.
pub fn waits_for_rollout<T: Types, P: Policy>(
    active: usize,
    entry: impl FnOnce() -> Option<Entry<T>>,
    followed: impl FnOnce() -> Followed<T, P>,
) -> bool {
    let is_lowered = |entry: &Entry<T>| entry.phase == Phase::Lowered && !entry.soft;
    active > 1 && entry().is_some_and(|entry| is_lowered(&entry) && !followed().has(&entry))
}

/// An instance of a MachinePool that is no known Machine, as a request names it.
#[derive(Clone, Copy, Debug)]
pub struct Instance {
    /// True if its deletion has been accepted already.
    pub is_accepted: bool,
    /// Its place in the pool.
    pub place: Place,
    /// True if the operator lets the infrastructure provider choose which instance goes.
    pub provider_may_choose: bool,
}

/// The place of an instance in its MachinePool.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Place {
    /// Machines of the pool are known, and none of them is its own.
    OfMachines,
    /// No Machine of the pool is known, and the pool lists it.
    Listed,
    /// No Machine of the pool is known, and the pool doesn't list it.
    NotListed,
}

/// The decision on an instance.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum InstanceNaming {
    /// It is on its way out.
    Accepted,
    /// The size is lowered for it.
    Lower,
    /// It has gone, or isn't listed yet. A smaller size would remove another instance.
    NotListed,
    /// Its own Machine isn't known yet. Without a mark on it another instance would be removed.
    AwaitMachine,
    /// The operator refuses that another instance may go in its place.
    Refuse,
}

impl Instance {
    /// Decides.
    #[must_use]
    pub fn decide(self) -> InstanceNaming {
        match self {
            Self { is_accepted: true, .. } => InstanceNaming::Accepted,
            Self { place: Place::OfMachines, .. } => InstanceNaming::AwaitMachine,
            Self { place: Place::NotListed, .. } => InstanceNaming::NotListed,
            Self { provider_may_choose: false, .. } => InstanceNaming::Refuse,
            Self { .. } => InstanceNaming::Lower,
        }
    }
}

/// A node group, for a smaller target size.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Shrinkable {
    /// The size may be lowered.
    Yes,
    /// It is rolling out: a smaller size is spread over its MachineSets.
    RollingOut,
    /// It is no node group at present, for example since it is paused.
    Excluded,
}

impl Shrinkable {
    /// Returns true if the size is left as it is, and the request succeeds: only time helps, and an error would end the
    /// caller's loop for all groups (kubernetes/autoscaler#7928). A success ends the loop as well, so the instances
    /// that the group shows don't make the caller repeat the call.
    #[must_use]
    pub fn leaves_size(self) -> bool {
        self != Self::Yes
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    const PLACEHOLDER: Named = Named { by_placeholder: true, is_deleting: false, node: NodeSeen::None };
    const NODE: Named = Named { by_placeholder: false, is_deleting: false, node: NodeSeen::Present };
    const PLAIN: Naming = Naming::Delete { never_joined: false };
    const GIVEN_UP: Naming = Naming::Delete { never_joined: true };

    #[rstest]
    #[case::a_node(NODE, false, false, PLAIN)]
    #[case::a_node_whatever_the_log_says(NODE, true, true, PLAIN)]
    #[case::one_that_never_joined(PLACEHOLDER, false, false, GIVEN_UP)]
    #[case::it_has_a_node_ref_now(Named { node: NodeSeen::Reference, ..PLACEHOLDER }, false, false, Naming::HasJoined)]
    #[case::it_has_a_node_now(Named { node: NodeSeen::Present, ..PLACEHOLDER }, false, false, Naming::HasJoined)]
    #[case::it_is_counted_as_gone(Named { node: NodeSeen::Present, ..PLACEHOLDER }, true, false, GIVEN_UP)]
    #[case::it_goes_anyway(Named { is_deleting: true, node: NodeSeen::Present, ..PLACEHOLDER }, false, true, PLAIN)]
    #[case::it_waits(PLACEHOLDER, true, true, Naming::WaitsForRollout)]
    #[case::it_waits_without_its_node(Named { node: NodeSeen::Reference, ..NODE }, true, true, Naming::WaitsForRollout)]
    fn a_named_machine(#[case] named: Named, #[case] has_lowered: bool, #[case] waits: bool, #[case] expected: Naming) {
        assert_eq!(named.decide(|| has_lowered, || waits), expected);
    }

    const INSTANCE: Instance = Instance { is_accepted: false, place: Place::Listed, provider_may_choose: true };
    /// Nothing speaks for it.
    const LEAST: Instance = Instance { is_accepted: false, place: Place::NotListed, provider_may_choose: false };

    #[rstest]
    #[case::any_may_go(INSTANCE, InstanceNaming::Lower)]
    #[case::no_other_may_go(Instance { provider_may_choose: false, ..INSTANCE }, InstanceNaming::Refuse)]
    #[case::it_has_gone(Instance { place: Place::NotListed, ..INSTANCE }, InstanceNaming::NotListed)]
    #[case::it_has_gone_first(LEAST, InstanceNaming::NotListed)]
    #[case::its_machine_comes(Instance { place: Place::OfMachines, ..INSTANCE }, InstanceNaming::AwaitMachine)]
    #[case::its_machine_comes_first(Instance { place: Place::OfMachines, ..LEAST }, InstanceNaming::AwaitMachine)]
    #[case::it_is_named_again(Instance { is_accepted: true, ..LEAST }, InstanceNaming::Accepted)]
    fn an_instance_of_a_pool(#[case] instance: Instance, #[case] expected: InstanceNaming) {
        assert_eq!(instance.decide(), expected);
    }

    #[test]
    fn a_size_that_only_time_can_lower_is_left() {
        assert!(!Shrinkable::Yes.leaves_size());
        assert!(Shrinkable::RollingOut.leaves_size() && Shrinkable::Excluded.leaves_size());
    }
}
