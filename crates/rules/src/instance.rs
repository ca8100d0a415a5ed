//! The instances of a node group as Cluster Autoscaler sees them, with their id, state and error: one per Machine,
//! plus placeholders.

use std::borrow::Cow;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use crate::{
    Grace, GroupId, Lack,
    capi::{Condition, Failure, Machine, MachinePhase, Node, ScalableResource},
    failure::{CapacityWords, INSUFFICIENT_RESOURCES, has_failed, pool_has_failed},
    named_enum, placeholder,
    replacement::{self, Replaced, Replacement, Siblings},
};

pub use crate::placeholder::{PlaceholderRef, template_node_groups};

/// The longest message of an error, in bytes. A condition's message may be long, and thousands of Machines may fail
/// at once: Cluster Autoscaler rejects an answer beyond 4 MiB, and then treats the group as one without instances.
const LONGEST_MESSAGE: usize = 400;
const ELLIPSIS: &str = "…";
/// The code of an instance that never came.
const PROVISIONING_FAILED: &str = "ProvisioningFailed";

/// An instance of a node group.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Instance {
    /// A provider id, or a placeholder that [`PlaceholderRef::parse`] resolves to its Machine or group.
    pub id: String,
    /// Its state.
    pub state: InstanceState,
    /// Its error, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<InstanceError>,
}

named_enum! {
    /// The state of an instance.
    #[derive(Clone, Copy, Debug, Deserialize, Eq, Hash, PartialEq, Serialize)]
    #[serde(rename_all = "camelCase")]
    pub enum InstanceState {
        /// It has no Node yet.
        Creating = "creating",
        /// Its Node has joined.
        Running = "running",
        /// It is being deleted.
        Deleting = "deleting",
    }
}

/// The error of an instance. Cluster Autoscaler deletes the creating instances that have one, in every loop and
/// without regard to the minimum size, and backs their group off.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct InstanceError {
    /// The code, for programs: `DeletingFailed` or `ProvisioningFailed`.
    pub code: Cow<'static, str>,
    /// The message, for people: that of the Machine if it has one.
    pub message: String,
    /// True if capacity or quota has run out.
    pub out_of_resources: bool,
    /// True if it is sent to Cluster Autoscaler: see [`of_group`].
    #[serde(default)]
    pub sent: bool,
}

/// The maximum number of placeholders in one answer: an absurdly large size must not make an answer larger than the
/// caller accepts (4 MiB).
const MOST_PLACEHOLDERS: u32 = 10_000;

/// The maximum number of errors of a MachinePool in one answer, for the same reason. Cluster Autoscaler deletes these, and
/// gets the next ones in its next loop.
const MOST_POOL_ERRORS: usize = 1_000;

/// Once the API server has refused to delete this many failed Machines of a group, none of the group's errors is sent:
/// each delete would only try another Machine.
const MOST_UNDELETABLE: usize = 3;

/// The operator's rules for deletions of failed Machines.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ErrorRules {
    /// True if the server deletes Machines, which a read-only one doesn't.
    pub deletes: bool,
    /// True if failed Machines are replaced one by one at the min size.
    pub replaces_at_min: bool,
    /// The grace period for a lack of capacity; a group may override it.
    pub grace: Grace,
}

impl Default for ErrorRules {
    fn default() -> Self {
        Self { deletes: true, replaces_at_min: true, grace: Grace::default() }
    }
}

/// A Machine with its Node and further observations.
#[derive(Clone, Copy, Debug)]
pub struct MachineView<'a> {
    /// The Machine.
    pub machine: &'a Machine,
    /// Its Node, if known.
    pub node: Option<&'a Node>,
    /// The lack of capacity that its infrastructure reports.
    pub shortage: Option<Shortage>,
    /// True if the API server recently refused to delete it, or didn't answer.
    pub undeletable: bool,
}

/// A MachinePool with further observations.
#[derive(Clone, Copy, Debug)]
pub struct PoolView<'a> {
    /// The MachinePool.
    pub pool: &'a ScalableResource,
    /// The lack of capacity that its infrastructure reports while instances are missing.
    pub shortage: Option<Shortage>,
    /// The number of its Machines. A delete takes none of their replicas by a placeholder.
    pub machines: usize,
}

impl PoolView<'_> {
    /// Returns true if the pool reports a failure or a lack of capacity.
    pub fn has_error(&self) -> bool {
        self.shortage.is_some() || pool_has_failed(self.pool)
    }
}

/// A lack of capacity or quota, and the time since which it has lasted.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Shortage {
    /// The lack: waiting may resolve it, or not.
    pub lack: Lack,
    /// The time since which it has lasted without a break.
    pub since: Timestamp,
}

impl Shortage {
    /// Returns the shortage that the condition InfrastructureReady of a Machine or MachinePool reports at `now`. `known`
    /// is its shortage at the last observation, and `seen_before` is true if there was one. Only at the first
    /// observation, such as after a restart, it counts from the condition's own time, at which the infrastructure became
    /// unready.
    pub fn by(
        words: &CapacityWords,
        condition: Option<&Condition>,
        known: Option<Self>,
        seen_before: bool,
        now: Timestamp,
    ) -> Option<Self> {
        let condition = condition?;
        let lack = words.lack(&condition.reason).max(words.lack(&condition.message))?;
        let first = || if seen_before { now } else { condition.since.map_or(now, |since| since.min(now)) };
        Some(Self { lack, since: known.map_or_else(first, |known| known.since) })
    }

    /// Returns true if the shortage is an error at `now`.
    pub fn is_error(self, grace: Grace, now: Timestamp) -> bool {
        match self.lack {
            Lack::Lasts => true,
            Lack::Heals => grace.is_over(self.since, now),
        }
    }
}

/// The numbers of a group's instances, by state.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct InstanceCounts {
    /// The number whose Nodes have joined.
    pub running: u64,
    /// The number that have no Node yet, including placeholders.
    pub creating: u64,
    /// The number that are being deleted.
    pub deleting: u64,
    /// The number that have an error, in any state.
    pub failed: u64,
}

impl InstanceCounts {
    /// Returns the counts of a group of this size with these Machines, as [`of_group`] has them.
    pub fn of_machines<'a>(size: i32, members: impl Iterator<Item = MachineView<'a>>) -> Self {
        let (mut counts, mut holding) = (Self::default(), 0);
        for member in members {
            let (state, has_error) = state_of(member);
            match state {
                InstanceState::Running => counts.running += 1,
                InstanceState::Creating => counts.creating += 1,
                InstanceState::Deleting => counts.deleting += 1,
            }
            counts.failed += u64::from(has_error);
            holding += usize::from(holds_its_place(member.machine, member.node.is_some()));
        }
        counts.creating += u64::from(missing(size, holding));
        counts
    }

    /// Returns the counts of a MachinePool of this size, whose list has this many provider ids.
    pub fn of_provider_ids(size: i32, listed: usize, has_error: bool) -> Self {
        let creating = missing(size, listed).into();
        let failed = if has_error { creating } else { 0 };
        Self { running: listed as u64, creating, failed, ..Self::default() }
    }
}

/// The conditions that a deletion of a group's failed Machines would meet now.
#[derive(Clone, Debug)]
pub struct DeleteConditions {
    /// The operator's rules, with the group's own grace period.
    pub rules: ErrorRules,
    /// True if the group can be scaled down: it is a group now, and isn't rolling out.
    pub accepts: bool,
    /// The min size.
    pub min: i32,
    /// The last replacement at the min size.
    pub replaced: Option<Replaced>,
    /// The present time.
    pub now: Timestamp,
}

/// Returns the instances of a group, in the order of its Machines, and placeholders for the rest of its size.
///
/// Cluster Autoscaler expects each replica to be a Node or an instance that it counts as unregistered. If their sum
/// stays below the size, it calls DecreaseTargetSize and skips the rest of its loop for all groups, again and again.
/// Therefore:
///
/// - A Machine that is being deleted and whose Node is gone doesn't replace a placeholder.
/// - An instance with an error counts as neither. So an error is sent only if the delete that it causes would be
///   accepted now:
///   - not while the group rolls out;
///   - above the min size, for at most as many Machines as exceed it, since one call deletes them all;
///   - at the min size, for the one Machine that would be replaced now;
///   - not for a while after the API server refused to delete the Machine, or several of the group.
/// - The error of a lack of capacity that waiting may resolve is sent only after its grace period.
pub fn of_group(
    id: &GroupId,
    size: i32,
    members: &[MachineView<'_>],
    conditions: impl FnOnce() -> DeleteConditions,
) -> Vec<Instance> {
    let mut instances: Vec<_> = members.iter().map(|member| of_machine(*member)).collect();
    let is_creating = |instance: &Instance| instance.error.is_some() && instance.state == InstanceState::Creating;
    if instances.iter().any(is_creating) {
        let conditions = conditions();
        let is_refused =
            |(instance, member): &(&Instance, &MachineView<'_>)| is_creating(instance) && member.undeletable;
        let undeletable = instances.iter().zip(members).filter(is_refused).count();
        let has_error = |(instance, member): &(&Instance, &MachineView<'_>)| {
            let is_sent = undeletable < MOST_UNDELETABLE && !member.undeletable;
            is_creating(instance) && is_sent && is_error_now(member, conditions.rules.grace, conditions.now)
        };
        let failed = instances.iter().zip(members).filter(has_error);
        let failed: Vec<_> = failed.map(|(_, member)| member.machine).collect();
        let deletable = deletable(size, &failed, members, &conditions);
        for (instance, member) in instances.iter_mut().zip(members) {
            let is_deletable = || deletable.iter().any(|one| std::ptr::eq(*one, member.machine));
            let is_sent = !is_creating(instance) || is_deletable();
            if let Some(error) = &mut instance.error {
                error.sent = is_sent;
            }
        }
    }
    let holding = members.iter().filter(|member| holds_its_place(member.machine, member.node.is_some())).count();
    instances.extend(placeholders(id, size, holding));
    instances
}

/// Returns the instances of a MachinePool: those with these ids, and a placeholder for each other replica. A failure or
/// lack of capacity that the pool reports is the error of its placeholders. It is sent for as many of them as a delete
/// would be accepted for now, by the rules of [`of_group`]; at the min size that is none, since its provider alone makes
/// instances of a pool.
pub fn of_pool<'a>(
    id: &GroupId,
    size: i32,
    ids: impl ExactSizeIterator<Item = &'a str>,
    view: PoolView<'_>,
    conditions: impl FnOnce() -> DeleteConditions,
) -> Vec<Instance> {
    let listed = ids.len();
    let mut instances: Vec<_> = ids.map(of_provider_id).chain(placeholders(id, size, listed)).collect();
    let missing = instances.len() - listed;
    if missing == 0 || !view.has_error() {
        return instances;
    }
    let DeleteConditions { rules, accepts, min, now, .. } = conditions();
    let PoolView { pool, shortage, machines } = view;
    let is_now = pool_has_failed(pool) || shortage.is_some_and(|shortage| shortage.is_error(rules.grace, now));
    let deletable = if is_now && rules.deletes && accepts {
        let above_min = usize::try_from(size.saturating_sub(min)).unwrap_or_default();
        above_min.min(missing.saturating_sub(machines.saturating_sub(listed))).min(MOST_POOL_ERRORS)
    } else {
        0
    };
    let error = InstanceError {
        code: PROVISIONING_FAILED.into(),
        message: message(pool.failure.as_ref(), pool.infrastructure_not_ready.as_ref(), "provisioning the pool failed"),
        out_of_resources: is_out_of_resources(shortage, pool.failure.as_ref()),
        sent: true,
    };
    for (number, placeholder) in instances.iter_mut().skip(listed).enumerate() {
        placeholder.error = Some(InstanceError { sent: number < deletable, ..error.clone() });
    }
    instances
}

/// Returns true if a Machine without a Node has failed, or has a shortage whose grace period is over.
fn is_error_now(member: &MachineView<'_>, grace: Grace, now: Timestamp) -> bool {
    has_failed(member.machine) || member.shortage.is_some_and(|shortage| shortage.is_error(grace, now))
}

/// Returns true if a Machine stands for a replica by itself: Cluster Autoscaler sees its Node, or counts its
/// instance as one that may still come.
fn holds_its_place(machine: &Machine, has_known_node: bool) -> bool {
    !machine.deleting || has_known_node
}

/// Returns a placeholder for each replica beyond the `present` ones.
pub fn placeholders(id: &GroupId, size: i32, present: usize) -> impl Iterator<Item = Instance> {
    (0..missing(size, present)).map(move |index| replica_placeholder(id, index))
}

/// Returns the number of replicas beyond the `present` ones, which is that of placeholders.
fn missing(size: i32, present: usize) -> u32 {
    let size = u32::try_from(size).unwrap_or_default();
    size.saturating_sub(u32::try_from(present).unwrap_or(u32::MAX)).min(MOST_PLACEHOLDERS)
}

/// Returns the failed Machines whose deletion in one call would be accepted now.
fn deletable<'a>(
    size: i32,
    failed: &[&'a Machine],
    members: &[MachineView<'_>],
    conditions: &DeleteConditions,
) -> Vec<&'a Machine> {
    let DeleteConditions { rules, accepts, min, replaced, now } = conditions;
    if !rules.deletes || !accepts {
        return Vec::new();
    }
    let mut failed = failed.to_vec();
    let above_min = usize::try_from(size.saturating_sub(*min)).unwrap_or_default();
    if above_min > 0 {
        failed.sort_by_key(|machine| replacement::rank(machine, None));
        failed.truncate(above_min);
        return failed;
    }
    let siblings = siblings(members.iter().copied());
    let first = replacement::first(failed, replaced.as_ref()).filter(|_| rules.replaces_at_min);
    let is_due = |machine: &&Machine| match replacement::decide(replaced.as_ref(), &machine.meta.uid, siblings, *now) {
        Replacement::Delete(_) => true,
        Replacement::Wait(_) => false,
    };
    first.filter(is_due).into_iter().collect()
}

/// Machines of a group that were created within this time were created together, and none for another.
const CREATED_TOGETHER: SignedDuration = SignedDuration::from_mins(1);

/// Returns the times of a group's Machines on which its next replacement depends.
pub fn siblings<'a>(members: impl IntoIterator<Item = MachineView<'a>>) -> Siblings {
    let (mut siblings, mut oldest) = (Siblings::default(), None);
    for member in members.into_iter().filter(|member| !member.machine.deleting) {
        let (created, has_joined) =
            (member.machine.created.time(), member.machine.node_name.is_some() || member.node.is_some());
        let youngest = if has_joined { &mut siblings.joined } else { &mut siblings.waiting };
        *youngest = (*youngest).max(created);
        oldest = [oldest, created].into_iter().flatten().min();
    }
    let is_later = |created: &Timestamp| oldest.is_some_and(|oldest| created.duration_since(oldest) > CREATED_TOGETHER);
    Siblings { waiting: siblings.waiting.filter(is_later), ..siblings }
}

/// The role of a Machine as an instance.
#[derive(Clone, Copy)]
enum Role<'a> {
    /// It has failed and is being deleted.
    FailedAndDeleting,
    /// It has failed before it had a Node.
    Failed,
    /// It is being deleted.
    Deleting,
    /// It has no Node yet.
    Pending,
    /// It has a Node, but that has no provider id by which Cluster Autoscaler could recognize it.
    Unrecognized,
    /// It has a Node with this id. While the Node isn't known, it is the Machine's own.
    Joined(&'a str),
}

impl<'a> Role<'a> {
    fn of(member: MachineView<'a>) -> Self {
        let MachineView { machine, node, .. } = member;
        let has_node = machine.node_name.is_some() || node.is_some();
        match (has_failed(machine), machine.deleting) {
            (true, true) => Self::FailedAndDeleting,
            (false, true) => Self::Deleting,
            (true, false) if !has_node => Self::Failed,
            (false, false) if !has_node => Self::Pending,
            (true | false, false) => {
                // Cluster Autoscaler compares whole ids with those of Nodes. A Machine may write its id in another
                // form, which Cluster Autoscaler would take for an instance that never joined, and delete.
                let id = node.map_or(&machine.provider_id, |node| &node.provider_id);
                id.as_deref().map_or(Self::Unrecognized, Self::Joined)
            }
        }
    }
}

/// Returns the state of a Machine as an instance, and if it has an error.
fn state_of(member: MachineView<'_>) -> (InstanceState, bool) {
    match Role::of(member) {
        Role::FailedAndDeleting => (InstanceState::Deleting, true),
        Role::Failed => (InstanceState::Creating, true),
        Role::Deleting => (InstanceState::Deleting, false),
        Role::Pending => (InstanceState::Creating, member.shortage.is_some()),
        Role::Unrecognized => (InstanceState::Creating, false),
        Role::Joined(_) => (InstanceState::Running, false),
    }
}

/// Returns the instance of a Machine. [`of_group`] decides if its error is sent.
///
/// A Machine whose Node has no provider id keeps its `pending-machine` id and counts as creating, since Cluster
/// Autoscaler couldn't recognize the Node.
pub fn of_machine(member: MachineView<'_>) -> Instance {
    let MachineView { machine, shortage, .. } = member;
    let key = &machine.meta.key;
    let (id, error) = match Role::of(member) {
        Role::FailedAndDeleting => {
            let error = InstanceError {
                code: "DeletingFailed".into(),
                message: message_of(machine, "deleting the Machine failed"),
                out_of_resources: false,
                sent: true,
            };
            (placeholder::failed(key), Some(error))
        }
        Role::Failed => (placeholder::failed(key), Some(provisioning_failed(machine, shortage))),
        Role::Deleting => (placeholder::deleting(key), None),
        Role::Pending => (placeholder::pending(key), shortage.map(|_| provisioning_failed(machine, shortage))),
        Role::Unrecognized => (placeholder::pending(key), None),
        Role::Joined(id) => return of_provider_id(id),
    };
    Instance { id, state: state_of(member).0, error }
}

/// Returns an instance of a MachinePool, which has no Machines: one of its `spec.providerIDList`.
pub fn of_provider_id(id: &str) -> Instance {
    Instance { id: id.to_owned(), state: InstanceState::Running, error: None }
}

/// Returns the placeholder of a replica that has no Machine yet; `index` counts from 0 within the group.
pub fn replica_placeholder(group: &GroupId, index: u32) -> Instance {
    Instance { id: placeholder::replica(group, index), state: InstanceState::Creating, error: None }
}

fn provisioning_failed(machine: &Machine, shortage: Option<Shortage>) -> InstanceError {
    InstanceError {
        code: PROVISIONING_FAILED.into(),
        message: message_of(machine, "provisioning the Machine failed"),
        out_of_resources: is_out_of_resources(shortage, machine.failure().filter(|_| has_failed(machine))),
        sent: true,
    }
}

fn is_out_of_resources(shortage: Option<Shortage>, failure: Option<&Failure>) -> bool {
    let reason = failure.and_then(|failure| failure.reason.as_deref());
    shortage.is_some() || reason == Some(INSUFFICIENT_RESOURCES)
}

fn message_of(machine: &Machine, otherwise: &str) -> String {
    let failure = machine.failure().filter(|_| machine.phase == MachinePhase::Failed);
    message(failure, machine.infrastructure_not_ready(), otherwise)
}

/// Returns the message of a failure, or else of the infrastructure, or else `otherwise`; cut to [`LONGEST_MESSAGE`]
/// bytes.
fn message(failure: Option<&Failure>, infrastructure: Option<&Condition>, otherwise: &str) -> String {
    let mut message = whole_message(failure, infrastructure, otherwise);
    if message.len() > LONGEST_MESSAGE {
        let end = (0..=LONGEST_MESSAGE - ELLIPSIS.len()).rev().find(|end| message.is_char_boundary(*end));
        message.truncate(end.unwrap_or_default());
        message.push_str(ELLIPSIS);
    }
    message
}

fn whole_message(failure: Option<&Failure>, infrastructure: Option<&Condition>, otherwise: &str) -> String {
    let pair = |reason: Option<&str>, message: Option<&str>| {
        let parts = [reason, message].into_iter().flatten().filter(|part| !part.is_empty());
        Some(parts.collect::<Vec<_>>().join(": ")).filter(|text| !text.is_empty())
    };
    let failure = failure.and_then(|failure| pair(failure.reason.as_deref(), failure.message.as_deref()));
    let infrastructure =
        || infrastructure.and_then(|condition| pair(Some(&condition.reason), Some(&condition.message)));
    failure.or_else(infrastructure).unwrap_or_else(|| otherwise.to_owned())
}

#[cfg(test)]
mod tests;
