//! Tests of every row of the contract's table of instances, and of the order of its conditions.

use crate::capi::{Condition, Created, Failure, Rare, ScalableKind};
use rstest::rstest;

use super::{MachineView, of_machine as instance_of, *};
use crate::testing::{self, machine};

fn with(change: impl FnOnce(&mut Machine)) -> Machine {
    let mut machine = machine("worker-1");
    change(&mut machine);
    machine
}

#[allow(clippy::unnecessary_wraps)] // as the field has it
fn failed(reason: Option<&str>, message: Option<&str>) -> Option<Failure> {
    Some(Failure { reason: reason.map(Into::into), message: message.map(Into::into) })
}

#[allow(clippy::unnecessary_wraps)] // as the field has it
fn not_ready(reason: &str, message: &str) -> Option<Condition> {
    Some(Condition { reason: reason.into(), message: message.into(), since: None })
}

/// Returns a view of a Machine whose conditions have lasted for long.
fn view<'a>(machine: &'a Machine, node: Option<&'a Node>) -> MachineView<'a> {
    let shortage = shortage(machine.infrastructure_not_ready(), None, false, Timestamp::UNIX_EPOCH);
    MachineView { machine, node, shortage, undeletable: false }
}

fn shortage(
    condition: Option<&Condition>,
    known: Option<Shortage>,
    seen_before: bool,
    now: Timestamp,
) -> Option<Shortage> {
    Shortage::by(&CapacityWords::default(), condition, known, seen_before, now)
}

fn of_machine(machine: &Machine, node: Option<&Node>) -> Instance {
    instance_of(view(machine, node))
}

fn rare(failure: Option<Failure>, infrastructure_not_ready: Option<Condition>) -> Option<Box<Rare>> {
    Rare { failure, infrastructure_not_ready, ..Rare::default() }.boxed()
}

/// By phase, and with a failure's words or without.
#[rstest]
#[case::with_reason_and_message(MachinePhase::Failed, failed(Some("CreateError"), Some("broken")), true)]
#[case::with_a_message(MachinePhase::Failed, failed(None, Some("broken")), true)]
#[case::with_a_reason(MachinePhase::Failed, failed(Some("CreateError"), None), true)]
#[case::a_phase_without_words(MachinePhase::Failed, None, false)]
#[case::words_alone(MachinePhase::Other, failed(Some("CreateError"), Some("broken")), false)]
fn a_machine_has_failed_up_to_cluster_api_1_10(
    #[case] phase: MachinePhase,
    #[case] failure: Option<Failure>,
    #[case] expected: bool,
) {
    let machine = with(|machine| {
        machine.phase = phase;
        machine.rare = rare(failure, None);
    });
    assert_eq!(has_failed(&machine), expected);
}

/// By the condition InfrastructureReady.
#[rstest]
#[case::gone("Deleted", "it is gone", true)]
#[case::yet_to_come("DoesNotExist", "", false)]
#[case::of_no_listed_reason("ImageNotFound", "broken", false)]
#[case::aws("InstanceTerminated", "", true)]
#[case::aws_starting("InstanceNotReady", "", false)]
#[case::aws_stopped("InstanceStopped", "", false)]
#[case::hetzner("ServerCreateFailedIrrecoverableError", "Server creation failed", true)]
#[case::hetzner_since_v1beta2("NotReady", "* ServerCreated: failed with an irrecoverable error: invalid_input", true)]
#[case::hetzner_by_its_v1beta2_reason("CreationFailedIrrecoverably", "invalid_input", true)]
#[case::hetzner_tries_again("ServerCreateFailedReason", "x", false)]
#[case::ibm("InstanceErrored", "no image", true)]
#[case::openstack("InstanceStateError", "Instance is in ERROR state", true)]
#[case::openstack_deleted("InstanceDeleted", "deleted by hand", true)]
#[case::openstack_tries_again("InstanceStateError", "error creating Openstack instance: 503", false)]
#[case::proxmox("VMProvisionFailed", "VM template not found", true)]
#[case::proxmox_tries_again("CloningFailed", "x", false)]
#[case::a_host_of_metal3_being_prepared("AssociateBMHFailed", "the host is being inspected", false)]
#[case::a_host_of_hetzner_being_prepared("StillProvisioning", "* HostReady: registering", false)]
fn a_machine_has_failed_since_cluster_api_1_11(#[case] reason: &str, #[case] message: &str, #[case] expected: bool) {
    // Bare metal sets a failure's words while a host is being prepared.
    for failure in [None, failed(Some("CreateError"), Some("Failed to associate the BaremetalHost"))] {
        let machine = with(|machine| machine.rare = rare(failure, not_ready(reason, message)));
        assert_eq!(has_failed(&machine), expected);
    }
    // A scaling group of the cloud terminates instances and creates others, which no Machine has to be deleted for.
    let of_pool = with(|machine| {
        machine.owner = Some((ScalableKind::MachinePool, "pool".into()));
        machine.rare = rare(None, not_ready(reason, message));
    });
    assert_eq!(has_failed(&of_pool), reason == "Deleted");
}

/// Its provider doesn't try it again, so waiting is no use.
#[test]
fn a_lack_that_its_provider_gave_up_on_is_an_error_at_once() {
    let message = "* VirtualMachineProvisioned: cannot reserve 2B of memory on node host-1: 1B available memory left";
    let machine = with(|machine| machine.rare = rare(None, not_ready("NotReady", message)));
    let shortage = view(&machine, None).shortage.unwrap();
    assert!(shortage.is_error(Grace::Never, Timestamp::UNIX_EPOCH));
}

/// A Machine by words: `failed`, `deleting`, `joined` (it has a nodeRef), `id` (a providerID of its own), `gone` (its
/// infrastructure is) and `quota` (it lacks). `node` is the providerID of its known Node, empty if that has none.
///
/// Cluster Autoscaler compares whole ids, and deletes what seems to have no Node: the id is that of the Node. The nodeRef
/// lags behind the Node. A delete by the placeholder is refused while the Node is there, and one by the Machine's id isn't.
#[rstest]
#[case::pending("", None, "pending", "")]
#[case::pending_with_an_id("id", None, "pending", "")]
#[case::pending_for_a_quota("id quota", None, "pending", "ProvisioningFailed out of resources")]
#[case::failed("failed id", None, "failed", "ProvisioningFailed")]
#[case::failed_for_a_quota("failed quota", None, "failed", "ProvisioningFailed out of resources")]
#[case::deleting("deleting id quota", None, "deleting", "")]
#[case::deleting_with_a_node("deleting id joined", None, "deleting", "")]
#[case::a_deletion_removes_the_infrastructure_first("deleting gone", None, "deleting", "")]
#[case::deleting_failed("failed deleting id", None, "failed", "DeletingFailed")]
#[case::deleting_failed_with_a_node("failed deleting id joined", None, "failed", "DeletingFailed")]
#[case::running("joined id", None, "x://own", "")]
#[case::running_by_the_nodes_id("joined id", Some("x:///node"), "x:///node", "")]
#[case::running_by_the_nodes_id_alone("joined", Some("x:///node"), "x:///node", "")]
#[case::running_without_a_node_ref("id", Some("x:///node"), "x:///node", "")]
#[case::running_though_it_failed("failed joined id", None, "x://own", "")]
#[case::running_without_a_node_ref_though_it_failed("failed id", Some("x:///node"), "x:///node", "")]
#[case::unrecognized("joined", None, "pending", "")]
#[case::unrecognized_as_its_node_has_no_id("joined", Some(""), "pending", "")]
#[case::unrecognized_as_only_the_machine_has_an_id("joined id", Some(""), "pending", "")]
fn a_machine_is_an_instance(#[case] words: &str, #[case] node: Option<&str>, #[case] id: &str, #[case] error: &str) {
    let has = |word| words.split(' ').any(|it| it == word);
    let machine = with(|machine| {
        machine.deleting = has("deleting");
        machine.node_name = has("joined").then(|| "worker-1".into());
        machine.provider_id = has("id").then(|| "x://own".into());
        machine.phase = if has("failed") { MachinePhase::Failed } else { MachinePhase::Other };
        let failure = failed(Some("CreateError"), Some("broken")).filter(|_| has("failed"));
        let condition = not_ready(if has("gone") { "Deleted" } else { "QuotaExceeded" }, "");
        machine.rare = rare(failure, condition.filter(|_| has("gone") || has("quota")));
    });
    let provider_id = |id: &str| (!id.is_empty()).then(|| id.into());
    let node = node.map(|id| Node { provider_id: provider_id(id), ..testing::node(&[]) });
    let instance = of_machine(&machine, node.as_ref());
    let state = match (id, error) {
        ("deleting", _) | (_, "DeletingFailed") => InstanceState::Deleting,
        ("failed" | "pending", _) => InstanceState::Creating,
        _ => InstanceState::Running,
    };
    let id = if id.contains(':') { id.to_owned() } else { format!("{id}-machine-team-a_worker-1") };
    assert_eq!((instance.id, instance.state), (id, state));
    let lacks = |lacks: bool| if lacks { " out of resources" } else { "" };
    let found = instance.error.map(|error| format!("{}{}", error.code, lacks(error.out_of_resources)));
    assert_eq!(found.unwrap_or_default(), error);
}

/// A Machine that has failed without a Node.
#[rstest]
#[case::reason_and_message(failed(Some("CreateError"), Some("no rights")), None, "CreateError: no rights", false)]
#[case::message_alone(failed(None, Some("no rights")), None, "no rights", false)]
#[case::insufficient_resources(failed(Some("InsufficientResources"), None), None, "InsufficientResources", true)]
#[case::the_failure_before_the_infrastructure(failed(None, Some("no rights")), not_ready("A", "b"), "no rights", false)]
#[case::with_a_listed_message(
    failed(None, Some("no rights")),
    not_ready("NotReady", "* InstanceReady: InsufficientInstanceCapacity: no m5.large left"),
    "no rights",
    true
)]
#[case::else_the_infrastructures(None, not_ready("QuotaExceeded", "no cores"), "QuotaExceeded: no cores", true)]
#[case::or_its_reason_alone(None, not_ready("Deleted", ""), "Deleted", false)]
fn an_error_has_the_machines_own_message(
    #[case] failure: Option<Failure>,
    #[case] condition: Option<Condition>,
    #[case] expected: &str,
    #[case] out_of_resources: bool,
) {
    let machine = with(|machine| {
        machine.phase = MachinePhase::Failed;
        machine.rare = rare(failure, condition);
    });
    let error = of_machine(&machine, None).error.unwrap();
    assert_eq!((error.message.as_str(), error.out_of_resources), (expected, out_of_resources));
}

#[rstest]
#[case::of_one_byte_each("x")]
#[case::of_three_bytes_each("…")]
fn a_long_message_is_cut(#[case] character: &str) {
    let machine = with(|machine| {
        machine.phase = MachinePhase::Failed;
        machine.rare = rare(failed(None, Some(&character.repeat(32_768))), None);
    });
    let message = of_machine(&machine, None).error.unwrap().message;
    assert!((390..=400).contains(&message.len()) && message.ends_with('…'), "{} bytes", message.len());
}

const NOW: &str = "2026-01-01T12:00:00Z";

/// Returns the conditions in a group that can be scaled down.
fn conditions(min: i32) -> DeleteConditions {
    DeleteConditions { rules: ErrorRules::default(), accepts: true, min, replaced: None, now: NOW.parse().unwrap() }
}

/// Returns the Machines of a group whose errors are sent. By the first letter of its name, a Machine is healthy
/// (`h`), has failed (`f`), has lacked capacity for the minutes in its name (`c`) or lacks quota (`q`); `u` at the
/// end is one that the API server refused to delete.
fn sent(size: i32, names: &[&str], conditions: impl FnOnce(&mut DeleteConditions), min: i32) -> String {
    let machines: Vec<_> = names
        .iter()
        .map(|name| {
            let mut machine = machine(name);
            machine.node_name = name.starts_with('h').then(|| (*name).into());
            machine.provider_id = name.starts_with('h').then(|| format!("x://{name}").into());
            if name.starts_with('f') {
                machine.phase = MachinePhase::Failed;
                machine.rare = rare(failed(None, Some("broken")), None);
            }
            machine
        })
        .collect();
    let now: Timestamp = NOW.parse().unwrap();
    let shortage = |name: &str| match name.split_at(1) {
        ("c", minutes) => {
            let since = now - SignedDuration::from_mins(minutes.parse().unwrap());
            Some(Shortage { lack: Lack::Heals, since })
        }
        ("q", _) => Some(Shortage { lack: Lack::Lasts, since: now }),
        _ => None,
    };
    let view = |(machine, name): (_, &str)| MachineView {
        machine,
        node: None,
        shortage: shortage(name),
        undeletable: name.ends_with('u'),
    };
    let members: Vec<_> = machines.iter().zip(names.iter().copied()).map(view).collect();
    let id = GroupId::parse("MachineDeployment/team-a/workers").unwrap();
    let instances = of_group(&id, size, &members, || {
        let mut all = self::conditions(min);
        conditions(&mut all);
        all
    });
    let sent =
        instances.iter().zip(names).filter(|(instance, _)| instance.error.as_ref().is_some_and(|error| error.sent));
    sent.map(|(_, name)| *name).collect::<Vec<_>>().join(" ")
}

#[rstest]
#[case::when_it_has_lasted_for_long("5m", "c5 c6 q1")]
#[case::at_once("0", "c0 c4 c5 c6 q1")]
#[case::never("never", "q1")]
fn a_lack_of_capacity_is_waited_for_and_a_quota_is_not(#[case] grace: Grace, #[case] expected: &str) {
    let names = ["h", "c0", "c4", "c5", "c6", "q1"];
    assert_eq!(sent(6, &names, |conditions| conditions.rules.grace = grace, 0), expected);
}

/// An error within its grace period doesn't use up a deletion that another could have.
#[test]
fn of_those_that_may_go_none_waits() {
    assert_eq!(sent(3, &["c1", "c6", "f2"], |_| (), 1), "c6 f2");
    assert_eq!(sent(3, &["c1", "c6", "f2"], |_| (), 2), "f2");
    assert_eq!(sent(2, &["c1", "h"], |_| (), 2), "");
}

const LATER: &str = "2026-01-01T12:10:00Z";

#[rstest]
#[case::first_seen_with_the_conditions_time(None, false, Some("2026-01-01T11:50:00Z"), "2026-01-01T11:50:00Z")]
#[case::first_seen_without_a_time(None, false, None, LATER)]
#[case::first_seen_with_a_time_to_come(None, false, Some("2026-01-01T13:00:00Z"), LATER)]
#[case::seen_before_without_it(None, true, Some("2026-01-01T11:50:00Z"), LATER)]
#[case::seen_before_with_it(Some(NOW), true, Some("2026-01-01T12:09:00Z"), NOW)]
fn a_shortage_lasts_since(
    #[case] known: Option<&str>,
    #[case] seen_before: bool,
    #[case] condition: Option<&str>,
    #[case] expected: &str,
) {
    let since = condition.map(|since| since.parse().unwrap());
    let condition = Condition { reason: "NoValidHost".into(), message: "QuotaExceeded".into(), since };
    let known = known.map(|since| Shortage { lack: Lack::Heals, since: since.parse().unwrap() });
    let shortage = shortage(Some(&condition), known, seen_before, LATER.parse().unwrap()).unwrap();
    let since = expected.parse().unwrap();
    assert_eq!(shortage, Shortage { lack: Lack::Lasts, since }, "a quota beside it lasts");
}

/// Returns the instances of a MachinePool that lists 2, by what its infrastructure says.
fn of_pool_of(
    size: i32,
    failure: Option<Failure>,
    infrastructure_not_ready: Option<Condition>,
    machines: usize,
    min: i32,
    change: impl FnOnce(&mut DeleteConditions),
) -> Vec<Instance> {
    let mut pool = testing::scalable(ScalableKind::MachinePool, "pool");
    (pool.failure, pool.infrastructure_not_ready) = (failure, infrastructure_not_ready);
    let now = NOW.parse().unwrap();
    let shortage = shortage(pool.infrastructure_not_ready.as_ref(), None, false, now);
    let id = GroupId::parse("MachinePool/team-a/pool").unwrap();
    let view = PoolView { pool: &pool, shortage, machines };
    of_pool(&id, size, ["x://a", "x://b"].into_iter(), view, || {
        let mut all = conditions(min);
        change(&mut all);
        all
    })
}

#[test]
fn errors_of_a_large_pool_are_sent_in_parts() {
    let instances = of_pool_of(9_000, None, not_ready("QuotaExceeded", &"x".repeat(4_000)), 0, 0, |_| ());
    let sent: Vec<_> = instances.iter().filter_map(|it| it.error.as_ref()).filter(|error| error.sent).collect();
    assert_eq!(sent.len(), 1_000);
    assert!(sent.iter().all(|error| error.message.len() <= LONGEST_MESSAGE));
}

/// A pool has no Machine that could fail: its placeholders have what its own conditions say.
#[rstest]
#[case::nothing(None, None, None)]
#[case::waiting(None, not_ready("WaitingForInfrastructure", ""), None)]
#[case::parts_that_azure_removed(None, not_ready("Deleted", "disk successfully deleted"), None)]
#[case::a_quota(
    None,
    not_ready("Failed", "scalesets failed to create or update. err: QuotaExceeded"),
    Some((true, "Failed: scalesets failed to create or update. err: QuotaExceeded"))
)]
#[case::a_failure(
    failed(Some("CreateError"), Some("no rights")),
    not_ready("ASGProvisionFailed", "x"),
    Some((false, "CreateError: no rights"))
)]
#[case::a_failure_for_want_of_resources(
    failed(Some("InsufficientResources"), None),
    not_ready("NotReady", ""),
    Some((true, "InsufficientResources"))
)]
#[case::a_failure_that_is_over(failed(Some("CreateError"), Some("no rights")), None, None)]
#[case::a_final_reason(
    None, not_ready("InstanceErrored", "no image"), Some((false, "InstanceErrored: no image"))
)]
fn placeholders_of_a_pool_have_its_error(
    #[case] failure: Option<Failure>,
    #[case] condition: Option<Condition>,
    #[case] expected: Option<(bool, &str)>,
) {
    let instances = of_pool_of(5, failure, condition, 0, 0, |_| ());
    assert_eq!(instances.iter().map(|it| it.error.is_some()).take(2).collect::<Vec<_>>(), [false, false]);
    for placeholder in &instances[2..] {
        let error = placeholder.error.as_ref().map(|error| (&*error.code, error.out_of_resources, &*error.message));
        assert_eq!(error, expected.map(|(lacks, message)| ("ProvisioningFailed", lacks, message)));
        assert!(placeholder.error.as_ref().is_none_or(|error| error.sent));
        assert_eq!(placeholder.state, InstanceState::Creating);
    }
    assert_eq!(instances.len(), 5);
}

#[rstest]
#[case::all_that_are_missing(0, 0, |_: &mut DeleteConditions| (), 3)]
#[case::as_many_as_the_minimum_leaves(0, 4, |_: &mut DeleteConditions| (), 1)]
#[case::none_at_the_minimum(0, 5, |_: &mut DeleteConditions| (), 0)]
#[case::without_those_that_are_machines(4, 0, |_: &mut DeleteConditions| (), 1)]
#[case::none_while_it_rolls_out(0, 0, |it: &mut DeleteConditions| it.accepts = false, 0)]
#[case::none_where_nothing_is_written(0, 0, |it: &mut DeleteConditions| it.rules.deletes = false, 0)]
#[case::none_in_the_grace_period(0, 0, |it: &mut DeleteConditions| it.rules.grace = Grace::Never, 0)]
fn an_error_of_a_pool_is_sent_where_its_delete_is_accepted(
    #[case] machines: usize,
    #[case] min: i32,
    #[case] change: impl FnOnce(&mut DeleteConditions),
    #[case] expected: usize,
) {
    let lack = Some(Condition {
        reason: "Failed".into(),
        message: "AllocationFailed".into(),
        since: Some(Timestamp::UNIX_EPOCH),
    });
    let instances = of_pool_of(5, None, lack, machines, min, change);
    let errors = instances.iter().filter_map(|it| it.error.as_ref());
    assert_eq!(errors.clone().count(), 3);
    assert_eq!(errors.filter(|error| error.sent).count(), expected);
}

#[allow(clippy::unnecessary_wraps)] // as the field has it
fn replaced(minutes_ago: i64, name: &str) -> Option<Replaced> {
    let now: Timestamp = NOW.parse().unwrap();
    Some(Replaced { at: now - SignedDuration::from_mins(minutes_ago), count: 1, uid: machine(name).meta.uid })
}

#[rstest]
#[case::all_that_may_go(3, 1, &["h", "f1", "f2"], |_: &mut DeleteConditions| (), "f1 f2")]
#[case::as_many_as_the_minimum_leaves(3, 2, &["h", "f1", "f2"], |_: &mut DeleteConditions| (), "f1")]
#[case::one_at_the_minimum(3, 3, &["h", "f1", "f2"], |_: &mut DeleteConditions| (), "f1")]
#[case::below_the_minimum(2, 3, &["h", "f1"], |_: &mut DeleteConditions| (), "f1")]
#[case::none_while_it_rolls_out(3, 1, &["h", "f1"], |it: &mut DeleteConditions| it.accepts = false, "")]
#[case::none_where_nothing_is_written(3, 1, &["h", "f1"], |it: &mut DeleteConditions| it.rules.deletes = false, "")]
#[case::none_at_the_minimum_without_replacement(2, 2, &["h", "f1"], |it: &mut DeleteConditions| it.rules.replaces_at_min = false, "")]
#[case::above_the_minimum_without_replacement(2, 1, &["h", "f1"], |it: &mut DeleteConditions| it.rules.replaces_at_min = false, "f1")]
#[case::the_one_that_is_being_replaced(2, 2, &["f1", "f2"], |it: &mut DeleteConditions| it.replaced = replaced(1, "f2"), "f2")]
#[case::none_before_the_next_may_be_replaced(2, 2, &["f1", "f2"], |it: &mut DeleteConditions| it.replaced = replaced(1, "gone"), "")]
#[case::none_whose_deletion_failed(3, 1, &["h", "f1", "f2u"], |_: &mut DeleteConditions| (), "f1")]
#[case::one_beside_two_whose_deletion_failed(4, 1, &["h", "f1u", "f2u", "f3"], |_: &mut DeleteConditions| (), "f3")]
#[case::one_beside_three_that_have_not_failed(5, 1, &["hu", "hu", "hu", "h", "f1"], |_: &mut DeleteConditions| (), "f1")]
#[case::none_beside_three_whose_deletion_failed(5, 1, &["h", "f1u", "f2u", "f3u", "f4"], |_: &mut DeleteConditions| (), "")]
#[case::another_than_that_at_the_minimum(3, 3, &["h", "f1u", "f2"], |_: &mut DeleteConditions| (), "f2")]
#[case::the_next_when_it_is_time(2, 2, &["f1", "f2"], |it: &mut DeleteConditions| it.replaced = replaced(5, "gone"), "f1")]
fn an_error_is_sent_where_its_delete_is_accepted(
    #[case] size: i32,
    #[case] min: i32,
    #[case] names: &[&str],
    #[case] change: impl FnOnce(&mut DeleteConditions),
    #[case] expected: &str,
) {
    assert_eq!(sent(size, names, change, min), expected);
}

/// Returns the minute of the youngest Machine that has no Node, if it was created for another one.
#[rstest]
#[case::created_together(&[("f", 0), ("f", 0), ("h", 0)], None)]
#[case::one_of_them_in_place_of_another(&[("f", 0), ("f", 20), ("f", 0)], Some(20))]
#[case::in_place_of_another_beside_one_that_joined(&[("h", 0), ("f", 20)], Some(20))]
#[case::all_have_joined(&[("h", 0), ("h", 20)], None)]
#[case::alone(&[("f", 20)], None)]
fn the_last_replacement_shows_in_creation_times(#[case] machines: &[(&str, i64)], #[case] expected: Option<i64>) {
    let start: Timestamp = NOW.parse().unwrap();
    let at = |minute| start + SignedDuration::from_mins(minute);
    let machines: Vec<_> = machines
        .iter()
        .map(|(kind, minute)| {
            with(|machine| {
                machine.created = Created::at(Some(at(*minute)));
                machine.node_name = (*kind == "h").then(|| "node".into());
            })
        })
        .collect();
    let found = siblings(machines.iter().map(|machine| view(machine, None))).waiting;
    assert_eq!(found, expected.map(at));
}

#[test]
fn a_size_beyond_all_reason_gives_a_bounded_answer() {
    let id = GroupId::parse("MachineDeployment/team-a/workers").unwrap();
    assert_eq!(placeholders(&id, i32::MAX, 3).count(), 10_000);
}
