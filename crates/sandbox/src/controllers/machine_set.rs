//! MachineSet: keeps a number of Machines created from its template.
//!
//! Machines that are being deleted count as replicas until they are gone. A set that must shrink takes those first,
//! then the marked ones, then those being updated in place, then unhealthy ones, then by its delete policy; ties go by
//! name (contract, section 7, row 23).

use std::{cmp::Reverse, sync::Arc};

use serde_json::{Map, Value, json};

use super::{
    Context, Plan, Side,
    conditions::{self, ConditionContent},
    keys,
    object::{self, Object},
};
use crate::settings::Contract;

pub(crate) fn plan(set: &Arc<Value>, machines: &[Arc<Value>], context: &mut Context<'_>) -> Plan {
    if set.deleting() {
        return Plan::leave(set, machines, keys::SET_FINALIZER);
    }
    let mut plan = Plan::default();
    let mut after = Value::clone(set);
    set_defaults(&mut after);
    propagate(&mut plan, &after, machines);
    let wanted = usize::try_from(after.number("/spec/replicas")).unwrap_or_default();
    let creates = after.annotation(keys::NO_NEW_MACHINES) != Some("true");
    let missing = if creates { wanted.saturating_sub(machines.len()) } else { 0 };
    for _ in 0..missing {
        plan.create(Side::Management, new_machine(&after, context));
    }
    let surplus = machines.len().saturating_sub(wanted);
    for machine in
        deletion_order(set, machines, context).into_iter().take(surplus).filter(|machine| !machine.deleting())
    {
        plan.delete(Side::Management, machine);
    }
    status(&mut after, machines, context);
    plan.change(Side::Management, set, after);
    plan
}

/// Propagates labels and annotations of the template to the existing Machines.
fn propagate(plan: &mut Plan, set: &Value, machines: &[Arc<Value>]) {
    let passed = [("labels", machine_labels(set)), ("annotations", template_annotations(set))];
    for machine in machines.iter().filter(|machine| !machine.deleting()) {
        let lacking = passed.iter().flat_map(|(field, all)| all.iter().map(move |(key, value)| (field, key, value)));
        let lacking: Vec<_> =
            lacking.filter(|(field, key, value)| machine["metadata"][**field][key.as_str()] != **value).collect();
        if lacking.is_empty() {
            // This is the common case, which must not copy each Machine of a large set.
            continue;
        }
        let mut wanted = Value::clone(machine);
        for (field, key, value) in lacking {
            wanted.set(&format!("/metadata/{field}/{}", object::escape(key)), value.clone());
        }
        plan.change(Side::Management, machine, wanted);
    }
}

/// Sets the defaults that a real API would have filled in.
fn set_defaults(set: &mut Value) {
    set_group_defaults(set, keys::SET_FINALIZER);
    let name = set.name().to_owned();
    if set.map("/spec/selector/matchLabels").is_empty() {
        set.set("/spec/selector/matchLabels", json!({ keys::SET_NAME: name }));
        set.set(&format!("/spec/template/metadata/labels/{}", object::escape(keys::SET_NAME)), json!(name));
    }
}

/// Sets the defaults that all node groups share: the size of one without is the least of its annotations, or 1.
pub(super) fn set_group_defaults(group: &mut Value, finalizer: &str) {
    group.add_finalizer(finalizer);
    let cluster = group["spec"]["clusterName"].clone();
    group.set_default(&object::label(keys::CLUSTER_NAME), cluster);
    let least = group.annotation(keys::MIN_SIZE).map_or(Some(0), |text| text.parse().ok());
    let size: i64 = least.filter(|_| group.annotation(keys::MAX_SIZE).is_some()).unwrap_or(1);
    group.set_default("/spec/replicas", json!(size));
}

fn machine_labels(set: &Value) -> Map<String, Value> {
    let mut labels = set.map("/spec/template/metadata/labels");
    if let Some(cluster) = set.text("/spec/clusterName") {
        labels.insert(keys::CLUSTER_NAME.to_owned(), json!(cluster));
    }
    labels.insert(keys::SET_NAME.to_owned(), json!(set.name()));
    if let Some(deployment) = set.label(keys::DEPLOYMENT_NAME) {
        labels.insert(keys::DEPLOYMENT_NAME.to_owned(), json!(deployment));
    }
    labels
}

fn template_annotations(set: &Value) -> Map<String, Value> {
    set.map("/spec/template/metadata/annotations")
}

/// Creates a Machine from the set's template. Its references name the objects that infrastructure and bootstrap
/// providers would create for it: of the template's kind without `Template`, with the Machine's name.
pub(crate) fn new_machine(set: &Value, context: &mut Context<'_>) -> Value {
    let name = format!("{}-{}", set.name(), context.names.suffix());
    let mut spec = set["spec"]["template"]["spec"].clone();
    spec.set_default("/clusterName", set["spec"]["clusterName"].clone());
    for reference in ["/infrastructureRef", "/bootstrap/configRef"] {
        if let Some(Value::Object(reference)) = spec.pointer_mut(reference) {
            let kind = reference.get("kind").and_then(Value::as_str).unwrap_or_default();
            reference.insert("kind".to_owned(), json!(kind.strip_suffix("Template").unwrap_or(kind)));
            reference.insert("name".to_owned(), json!(name));
        }
    }
    json!({
        "apiVersion": context.settings.contract.api_version(),
        "kind": "Machine",
        "metadata": {
            "name": name,
            "namespace": set.namespace(),
            "labels": machine_labels(set),
            "annotations": template_annotations(set),
            "ownerReferences": [object::controlled_by(set)],
            "finalizers": [keys::MACHINE_FINALIZER],
        },
        "spec": spec,
    })
}

/// Returns all Machines, in the order in which a smaller set would take them.
fn deletion_order<'a>(set: &Value, machines: &'a [Arc<Value>], context: &Context<'_>) -> Vec<&'a Arc<Value>> {
    #[derive(Eq, Ord, PartialEq, PartialOrd)]
    enum Rank<'a> {
        Deleting,
        Marked,
        Updating,
        Unhealthy,
        Newest(Reverse<&'a str>),
        Oldest(&'a str),
        Any,
    }
    let policy = set.text("/spec/deletion/order").or_else(|| set.text("/spec/deletePolicy"));
    let is_random = !matches!(policy, Some("Newest" | "Oldest"));
    let contract = context.settings.contract;
    let rank = |machine: &'a Value| {
        // All times have the same format, so their text sorts chronologically.
        let created = machine.text("/metadata/creationTimestamp").unwrap_or_default();
        if machine.deleting() {
            Rank::Deleting
        } else if machine.annotation(keys::DELETE_MACHINE).is_some() {
            if is_random && context.version.marked_ties_with_unhealthy() { Rank::Unhealthy } else { Rank::Marked }
        } else if machine.text("/status/phase") == Some("Updating") {
            Rank::Updating
        } else if !is_healthy(machine, contract) {
            Rank::Unhealthy
        } else {
            match policy {
                Some("Newest") => Rank::Newest(Reverse(created)),
                Some("Oldest") => Rank::Oldest(created),
                Some(_) | None => Rank::Any,
            }
        }
    };
    let mut order: Vec<_> = machines.iter().collect();
    order.sort_by_key(|machine| (rank(machine), machine.name()));
    order
}

/// Returns true if a Machine has a Node that isn't known to be unhealthy, and has not failed.
fn is_healthy(machine: &Value, contract: Contract) -> bool {
    machine.text("/status/nodeRef/name").is_some()
        && !conditions::is_false(machine, contract, "NodeHealthy")
        && !has_failed(machine)
}

/// Returns true if a Machine has failed permanently, by either path in its status.
pub(crate) fn has_failed(machine: &Value) -> bool {
    let places = ["/status", "/status/deprecated/v1beta1"];
    places.into_iter().any(|place| {
        ["failureReason", "failureMessage"].into_iter().any(|field| machine.text(&format!("{place}/{field}")).is_some())
    })
}

fn status(set: &mut Value, machines: &[Arc<Value>], context: &Context<'_>) {
    let contract = context.settings.contract;
    let count = |test: &dyn Fn(&Value) -> bool| machines.iter().filter(|machine| test(machine)).count();
    let total = machines.len();
    let ready = count(&|machine| !machine.deleting() && conditions::is_true(machine, contract, "Ready"));
    let deleting = count(&|machine| machine.deleting());
    let wanted = usize::try_from(set.number("/spec/replicas")).unwrap_or_default();
    let selector = object::selector_text(&set.map("/spec/selector/matchLabels"));
    let generation = set.generation();
    set.set("/status/replicas", json!(total));
    set.set("/status/readyReplicas", json!(ready));
    set.set("/status/availableReplicas", json!(ready));
    set.set("/status/selector", json!(selector));
    set.set("/status/observedGeneration", json!(generation));
    match contract {
        Contract::V1Beta1 => set.set("/status/fullyLabeledReplicas", json!(total)),
        Contract::V1Beta2 => set.set("/status/upToDateReplicas", json!(total - deleting)),
    }
    let grows = wanted > total;
    let shrinks = wanted < total;
    let all_ready = ready == total;
    for says in [
        ConditionContent::new("ScalingUp", grows, if grows { "ScalingUp" } else { "NotScalingUp" }),
        ConditionContent::new("ScalingDown", shrinks, if shrinks { "ScalingDown" } else { "NotScalingDown" }),
        ConditionContent::new("MachinesReady", all_ready, if all_ready { "Ready" } else { "NotReady" }),
        ConditionContent::new("Deleting", false, "NotDeleting"),
    ] {
        conditions::set(set, contract, &says, context.now);
    }
    for says in [
        ConditionContent::new("Ready", all_ready, "WaitingForMachines"),
        ConditionContent::new("MachinesReady", all_ready, "WaitingForMachines"),
        ConditionContent::new("Resized", total == wanted, if grows { "ScalingUp" } else { "ScalingDown" }),
    ] {
        conditions::set_old(set, contract, &says, context.now);
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;
    use crate::{
        controllers::{Write, object::Names, testing},
        settings::Settings,
    };

    fn names(writes: &[Write]) -> Vec<&str> {
        writes
            .iter()
            .filter_map(|write| match write {
                Write::Delete(_, object) => Some(object.name()),
                Write::Create(..) | Write::Change(..) => None,
            })
            .collect()
    }

    fn set(replicas: i64, policy: Option<&str>) -> Arc<Value> {
        let mut set = testing::machine_set("workers-1", replicas);
        if let Some(policy) = policy {
            set.set("/spec/deletion/order", json!(policy));
        }
        Arc::new(set)
    }

    fn machine(text: &str) -> Arc<Value> {
        // The format is `name[:trait]`.
        let (name, traits) = text.split_once(':').unwrap_or((text, ""));
        let mut machine = testing::running_machine(name, "workers-1");
        match traits {
            "deleting" => machine.set("/metadata/deletionTimestamp", json!("2026-01-01T00:00:00Z")),
            "marked" => machine.set(&object::annotation(keys::DELETE_MACHINE), json!("")),
            "updating" => machine.set("/status/phase", json!("Updating")),
            "no-node" => machine.unset("/status/nodeRef"),
            "failed" => machine.set("/status/deprecated/v1beta1/failureMessage", json!("it broke")),
            "old" => machine.set("/metadata/creationTimestamp", json!("2025-01-01T00:00:00Z")),
            "" => {}
            other => panic!("{other}"),
        }
        Arc::new(machine)
    }

    #[rstest]
    #[case::nothing_to_do(3, None, &["a", "b", "c"], &[])]
    #[case::the_mark_goes_first(2, None, &["a:no-node", "b:updating", "c:marked"], &["c"])]
    #[case::then_in_place_updates(2, None, &["a:no-node", "b:updating", "c"], &["b"])]
    #[case::then_those_without_a_node(2, None, &["a", "b", "c:no-node"], &["c"])]
    #[case::or_failed(2, None, &["a", "b", "c:failed"], &["c"])]
    #[case::then_by_name(1, None, &["c", "b", "a"], &["a", "b"])]
    #[case::or_the_newest(2, Some("Newest"), &["a:old", "b"], &[])]
    #[case::or_the_newest(1, Some("Newest"), &["a:old", "b"], &["b"])]
    #[case::or_the_oldest(1, Some("Oldest"), &["a", "b:old"], &["b"])]
    #[case::a_deleting_one_counts_and_the_mark_is_spared(2, None, &["a:deleting", "b", "c:marked"], &[])]
    #[case::a_deleting_one_counts_only_once(1, None, &["a:deleting", "b", "c:marked"], &["c"])]
    fn a_smaller_set_takes(
        #[case] replicas: i64,
        #[case] policy: Option<&str>,
        #[case] machines: &[&str],
        #[case] expected: &[&str],
    ) {
        let machines: Vec<_> = machines.iter().map(|text| machine(text)).collect();
        let mut names_drawn = Names::default();
        let settings = Settings::default();
        let mut context = testing::context(&settings, &mut names_drawn);
        let plan = plan(&set(replicas, policy), &machines, &mut context);
        assert_eq!(names(&plan.writes), expected);
    }

    #[test]
    fn a_deleting_machine_is_not_replaced_before_it_is_gone_nor_in_a_set_that_creates_none() {
        let settings = Settings::default();
        let mut drawn = Names::default();
        let mut context = testing::context(&settings, &mut drawn);
        let created = |plan: &Plan| plan.writes.iter().filter(|write| matches!(write, Write::Create(..))).count();
        let machines = [machine("a:deleting"), machine("b")];
        assert_eq!(created(&plan(&set(2, None), &machines, &mut context)), 0);
        assert_eq!(created(&plan(&set(2, None), &machines[1..], &mut context)), 1);
        let mut old = Value::clone(&set(2, None));
        old.set(&object::annotation(keys::NO_NEW_MACHINES), json!("true"));
        assert_eq!(created(&plan(&Arc::new(old), &machines[1..], &mut context)), 0);
    }
}
