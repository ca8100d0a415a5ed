//! Binds the rule of deletion ([`delete_rule`]) to the program's identities, objects and calls. It must decide nothing.

use std::sync::Arc;

use capi::{Machine, ScalableKind};
use delete_rule::{
    Kind, Policy, Rule,
    steps::{self},
};
pub(super) use delete_rule::{
    LEFT_TO_PROVIDER, Life, RULE,
    steps::{Now, RetryPolicy, Steps, UnloggedMachines, machine_of},
};
use nodegroup::deletion_log::Types;

use nodegroup::writing::SetView;

pub(super) type Call = steps::Call<Types>;
pub(super) type Carry = steps::Carry<Types>;
pub(super) type Decrease = steps::Decrease<Types>;
pub(super) type Deletion = steps::Deletion<Types>;
pub(super) type Effect = steps::Effect<Types>;
pub(super) type Finish = delete_rule::Finish<Types, Arc<Machine>>;
pub(super) type Followed = delete_rule::Followed<Types>;
pub(super) type LeftSince = delete_rule::LeftSince<Types>;
pub(super) type GroupMachines = delete_rule::GroupMachines<Types>;
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
pub(super) type Details = steps::Details<Types>;

/// Returns the lowered entries whose smaller size has reached the controller that creates the group's Machines.
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
