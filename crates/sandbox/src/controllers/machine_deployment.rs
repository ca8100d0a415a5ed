//! MachineDeployment: keeps one MachineSet per template, scales the newest to its size, and rolls out a new template
//! through the sizes of all. Labels, annotations and timeouts of a template are changed in place, as Cluster API does;
//! any other change of it is a rollout.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::{
    Context,
    conditions::{self, ConditionContent},
    keys,
    machine_set::DefaultSize as _,
    names,
    object::{self, Object},
    plan::{Plan, Side},
    propagation,
    rollout::{Size, Strategy, scale_only, step},
};
use crate::settings::Contract;

/// The parts of `spec.template.spec` whose change needs no new Machines.
const IN_PLACE: [&str; 7] = [
    "deletion",
    "minReadySeconds",
    "nodeDeletionTimeout",
    "nodeDrainTimeout",
    "nodeVolumeDetachTimeout",
    "readinessGates",
    "taints",
];

/// The number of MachineSets without Machines that are kept for inspection.
const HISTORY: usize = 1;

/// A MachineSet of the MachineDeployment.
struct Child {
    set: Arc<Value>,
}

impl Child {
    fn size(&self) -> Size {
        Size {
            wanted: self.set.number("/spec/replicas"),
            actual: self.set.number("/status/replicas"),
            available: self.set.number("/status/availableReplicas"),
        }
    }

    /// Returns its place among older sets, of which the first shrinks first.
    fn age(&self) -> (String, String) {
        let created = self.set.text("/metadata/creationTimestamp").unwrap_or_default();
        (created.to_owned(), self.set.name().to_owned())
    }

    fn revision(&self) -> i64 {
        self.set.annotation(keys::REVISION).and_then(|text| text.parse().ok()).unwrap_or_default()
    }
}

/// Plans the writes of a MachineDeployment's controller. `sets` are its MachineSets; `cluster` is its Cluster.
pub(crate) fn plan(
    deployment: &Arc<Value>,
    cluster: Option<&Value>,
    sets: Vec<Arc<Value>>,
    context: &Context<'_>,
) -> Plan {
    let mut children: Vec<_> = sets.into_iter().map(|set| Child { set }).collect();
    let mut plan = Plan::default();
    let mut after = Value::clone(deployment);
    if deployment.deleting() {
        for child in children.iter().filter(|child| !child.set.deleting()) {
            plan.delete(Side::Management, &child.set);
        }
        if children.is_empty() {
            after.remove_finalizer(keys::DEPLOYMENT_FINALIZER);
        }
        plan.change(Side::Management, deployment, after);
        return plan;
    }
    set_defaults(&mut after, cluster);
    children.retain(|child| !child.set.deleting());
    children.sort_by_key(|child| (child.revision(), child.set.name().to_owned()));
    let desired = after.number("/spec/replicas").max(0);
    let strategy = Strategy::of(&after, desired);

    let newest = children.iter().rposition(|child| same_template(&after, &child.set));
    let stopped = after["spec"]["paused"] == true;
    match newest {
        None if !stopped => {
            let revision = children.last().map_or(0, Child::revision) + 1;
            let sizes: Vec<_> = children.iter().map(Child::size).collect();
            let (replicas, _) = step(desired, strategy, Size::default(), &sizes);
            after.set(&object::annotation(keys::REVISION), json!(revision.to_string()));
            plan.create(Side::Management, new_set(&after, revision, replicas, strategy, context));
        }
        None => scale_paused(&mut plan, &after, &children, strategy, desired),
        Some(_) if stopped => scale_paused(&mut plan, &after, &children, strategy, desired),
        Some(newest) => {
            // A template that is used again gets the next revision.
            let highest = children.last().map_or(0, Child::revision);
            let newest = children.remove(newest);
            let revision = if newest.revision() < highest { highest + 1 } else { newest.revision().max(1) };
            children.sort_by_key(Child::age);
            after.set(&object::annotation(keys::REVISION), json!(revision.to_string()));
            roll(&mut plan, &after, revision, &newest, &children, strategy, context);
            children.push(newest);
        }
    }
    status(&mut after, &children, strategy, context);
    plan.change(Side::Management, deployment, after);
    plan
}

/// Sets the defaults that a real API would have filled in, and the Cluster as owner.
fn set_defaults(deployment: &mut Value, cluster: Option<&Value>) {
    deployment.add_finalizer(keys::DEPLOYMENT_FINALIZER);
    let cluster_name = deployment["spec"]["clusterName"].clone();
    deployment.set_default(&object::label(keys::CLUSTER_NAME), cluster_name.clone());
    deployment.set_default("/spec/replicas", json!(deployment.annotation_size().unwrap_or(1)));
    deployment.set_default("/spec/template/spec/clusterName", cluster_name);
    let name = deployment.name().to_owned();
    if deployment.map("/spec/selector/matchLabels").is_empty() {
        deployment.set("/spec/selector/matchLabels", json!({ keys::DEPLOYMENT_NAME: name }));
    }
    for (key, value) in deployment.map("/spec/selector/matchLabels") {
        deployment.set_default(&format!("/spec/template/metadata/labels/{}", object::escape(&key)), value);
    }
    if let Some(cluster) = cluster
        && deployment["metadata"]["ownerReferences"].as_array().is_none_or(Vec::is_empty)
    {
        let owner = json!({
            "apiVersion": cluster["apiVersion"],
            "kind": cluster.kind(),
            "name": cluster.name(),
            "uid": cluster.uid(),
        });
        deployment.set("/metadata/ownerReferences", json!([owner]));
    }
}

/// Returns true if a MachineSet creates the Machines that the MachineDeployment describes.
fn same_template(deployment: &Value, set: &Value) -> bool {
    rollout_relevant_spec(deployment) == rollout_relevant_spec(set)
}

fn rollout_relevant_spec(object: &Value) -> Map<String, Value> {
    let mut spec = object.map("/spec/template/spec");
    spec.retain(|field, _| !IN_PLACE.contains(&field.as_str()));
    spec
}

fn new_set(deployment: &Value, revision: i64, replicas: i64, strategy: Strategy, context: &Context<'_>) -> Value {
    let template = Value::Object(rollout_relevant_spec(deployment)).to_string();
    let suffix = names::suffix_of(&format!("{}/{}/{template}", deployment.namespace(), deployment.name()));
    let hash = format!("{}-{suffix}", names::hash(&template) % 10_000_000_000);
    let mut set = json!({
        "apiVersion": context.settings.contract.api_version(),
        "kind": "MachineSet",
        "metadata": {
            "name": format!("{}-{suffix}", deployment.name()),
            "namespace": deployment.namespace(),
            "labels": { keys::TEMPLATE_HASH: hash },
            "ownerReferences": [object::controlled_by(deployment)],
            "finalizers": [keys::SET_FINALIZER],
        },
        "spec": {
            "clusterName": deployment["spec"]["clusterName"],
            "selector": deployment["spec"]["selector"],
            "template": deployment["spec"]["template"],
        },
    });
    set.set(&format!("/spec/selector/matchLabels/{}", keys::TEMPLATE_HASH), json!(hash));
    synced(&set, deployment, revision, replicas, strategy)
}

/// Returns a MachineSet as its MachineDeployment wants it: with its size, and the template fields that are propagated
/// in place.
fn synced(set: &Value, deployment: &Value, revision: i64, replicas: i64, strategy: Strategy) -> Value {
    let mut set = set.clone();
    resize(&mut set, deployment, replicas, strategy);
    set.set(&object::annotation(keys::REVISION), json!(revision.to_string()));
    let mut labels = deployment.map("/spec/template/metadata/labels");
    if let Some(hash) = set.label(keys::TEMPLATE_HASH) {
        labels.insert(keys::TEMPLATE_HASH.to_owned(), json!(hash));
    }
    if let Some(cluster) = deployment.text("/spec/clusterName") {
        labels.insert(keys::CLUSTER_NAME.to_owned(), json!(cluster));
    }
    set.set("/spec/template/metadata/labels", Value::Object(labels.clone()));
    labels.insert(keys::DEPLOYMENT_NAME.to_owned(), json!(deployment.name()));
    set.set("/metadata/labels", Value::Object(labels));
    if let Some(annotations) = deployment.pointer("/spec/template/metadata/annotations") {
        set.set("/spec/template/metadata/annotations", annotations.clone());
    }
    for field in IN_PLACE {
        let at = format!("/spec/template/spec/{field}");
        match deployment.pointer(&at) {
            Some(value) => set.set(&at, value.clone()),
            None => set.unset(&at),
        }
    }
    for (from, to) in [
        ("/spec/deletion/order", "/spec/deletion/order"),
        ("/spec/strategy/rollingUpdate/deletePolicy", "/spec/deletePolicy"),
    ] {
        if let Some(policy) = deployment.pointer(from) {
            set.set(to, policy.clone());
        }
    }
    set
}

/// Sets the size of a MachineSet, and its annotations: the copied ones, and those about the MachineDeployment's size.
fn resize(set: &mut Value, deployment: &Value, replicas: i64, strategy: Strategy) {
    propagation::propagate(set, deployment);
    rescale(set, deployment, replicas, strategy);
}

fn rescale(set: &mut Value, deployment: &Value, replicas: i64, strategy: Strategy) {
    let desired = deployment.number("/spec/replicas");
    set.set("/spec/replicas", json!(replicas));
    set.set(&object::annotation(keys::DESIRED_REPLICAS), json!(desired.to_string()));
    set.set(&object::annotation(keys::MAX_REPLICAS), json!(strategy.most(desired).to_string()));
}

/// Advances the sizes by one step, and deletes MachineSets left over from older rollouts. `older` is sorted by age.
fn roll(
    plan: &mut Plan,
    deployment: &Value,
    revision: i64,
    newest: &Child,
    older: &[Child],
    strategy: Strategy,
    context: &Context<'_>,
) {
    let sizes: Vec<_> = older.iter().map(Child::size).collect();
    let desired = deployment.number("/spec/replicas").max(0);
    let (replicas, lesser) = step(desired, strategy, newest.size(), &sizes);
    plan.change(Side::Management, &newest.set, synced(&newest.set, deployment, revision, replicas, strategy));
    for (child, replicas) in older.iter().zip(lesser) {
        let mut set = Value::clone(&child.set);
        if context.version.annotates_older_sets() {
            resize(&mut set, deployment, replicas, strategy);
        } else if set.number("/spec/replicas") != replicas {
            rescale(&mut set, deployment, replicas, strategy);
        }
        if strategy == Strategy::OnDelete {
            set.set(&object::annotation(keys::NO_NEW_MACHINES), json!("true"));
        }
        plan.change(Side::Management, &child.set, set);
    }
    let empty: Vec<_> = older.iter().filter(|child| child.size() == Size::default()).collect();
    for child in &empty[..empty.len().saturating_sub(HISTORY)] {
        plan.writes.retain(|write| !write.is_change_of(&child.set));
        plan.delete(Side::Management, &child.set);
    }
}

fn scale_paused(plan: &mut Plan, deployment: &Value, children: &[Child], strategy: Strategy, desired: i64) {
    let sizes: Vec<_> = children.iter().map(Child::size).collect();
    for (child, replicas) in children.iter().zip(scale_only(desired, &sizes)) {
        let mut set = Value::clone(&child.set);
        resize(&mut set, deployment, replicas, strategy);
        plan.change(Side::Management, &child.set, set);
    }
}

/// Sets the status. `children` has the newest MachineSet last, if there is one.
fn status(deployment: &mut Value, children: &[Child], strategy: Strategy, context: &Context<'_>) {
    let contract = context.settings.contract;
    let sum = |field: &str| children.iter().map(|child| child.set.number(field)).sum::<i64>();
    let desired = deployment.number("/spec/replicas").max(0);
    let total = sum("/status/replicas");
    let ready = sum("/status/readyReplicas");
    let available = sum("/status/availableReplicas");
    let newest = children.last().filter(|child| same_template(deployment, &child.set));
    let updated = newest.map_or(0, |child| child.set.number("/status/replicas"));
    let rolls = total > updated;
    let phase = if total < desired || available < desired && !rolls {
        "ScalingUp"
    } else if total > desired && !rolls {
        "ScalingDown"
    } else if rolls {
        "ScalingUp"
    } else {
        "Running"
    };
    let selector = object::selector_text(&deployment.map("/spec/selector/matchLabels"));
    let generation = deployment.generation();
    for (field, value) in [
        ("observedGeneration", json!(generation)),
        ("replicas", json!(total)),
        ("readyReplicas", json!(ready)),
        ("availableReplicas", json!(available)),
        ("selector", json!(selector)),
        ("phase", json!(phase)),
    ] {
        deployment.set(&format!("/status/{field}"), value);
    }
    let missing = json!((desired - available).max(0));
    match contract {
        Contract::V1Beta1 => {
            deployment.set("/status/updatedReplicas", json!(updated));
            deployment.set("/status/unavailableReplicas", missing);
        }
        Contract::V1Beta2 => deployment.set("/status/upToDateReplicas", json!(updated)),
    }
    let least = match strategy {
        Strategy::RollingUpdate { unavailable, .. } => desired - unavailable,
        Strategy::OnDelete => desired,
    };
    let enough = available >= least;
    let says = |kind, is, yes, no| ConditionContent::new(kind, is, if is { yes } else { no });
    for says in [
        says("Available", enough, "Available", "NotAvailable"),
        says("RollingOut", rolls, "RollingOut", "NotRollingOut"),
        says("ScalingUp", total < desired, "ScalingUp", "NotScalingUp"),
        says("ScalingDown", total > desired && !rolls, "ScalingDown", "NotScalingDown"),
        says("MachinesReady", ready == total, "Ready", "NotReady"),
        says("MachinesUpToDate", !rolls, "UpToDate", "NotUpToDate"),
        says("Deleting", false, "Deleting", "NotDeleting"),
    ] {
        conditions::set(deployment, contract, &says, context.now);
    }
    for says in [
        says("Ready", enough, "", "WaitingForAvailableMachines"),
        says("Available", enough, "", "WaitingForAvailableMachines"),
        says("MachineSetReady", ready == total, "", "WaitingForMachines"),
    ] {
        conditions::set_old(deployment, contract, &says, context.now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        controllers::{names::Names, plan::Write, testing},
        settings::Settings,
    };

    fn planned(deployment: &Value, sets: &[&Value]) -> Plan {
        let settings = Settings::default();
        let mut drawn = Names::default();
        let context = testing::context(&settings, &mut drawn);
        let sets = sets.iter().map(|set| Arc::new((*set).clone())).collect();
        plan(&Arc::new(deployment.clone()), None, sets, &context)
    }

    /// Returns the first MachineSet of a MachineDeployment.
    fn first_set(deployment: &Value) -> Value {
        let plan = planned(deployment, &[]);
        let Some(Write::Create(_, set)) = plan.writes.into_iter().next() else { panic!("a MachineSet was expected") };
        set
    }

    fn changes<'a>(plan: &'a Plan, kind: &str) -> Vec<&'a Value> {
        let changed = plan.writes.iter().filter_map(|write| match write {
            Write::Change(_, _, after) => Some(after),
            Write::Create(..) | Write::Delete(..) => None,
        });
        changed.filter(|object| object.kind() == kind).collect()
    }

    #[test]
    fn the_first_machine_set_has_revision_1_and_the_size() {
        let set = first_set(&testing::machine_deployment("workers", 3));
        assert_eq!(set.annotation(keys::REVISION), Some("1"));
        assert_eq!(set.annotation(keys::DESIRED_REPLICAS), Some("3"));
        assert_eq!(set.annotation(keys::MAX_REPLICAS), Some("4"));
        assert_eq!(set.label(keys::DEPLOYMENT_NAME), Some("workers"));
        assert_eq!(set.number("/spec/replicas"), 3);
        assert_eq!(set["metadata"]["ownerReferences"][0]["controller"], true);
        let hash = set.label(keys::TEMPLATE_HASH).unwrap();
        assert_eq!(set.text("/spec/selector/matchLabels/machine-template-hash"), Some(hash));
        assert_eq!(set.text("/spec/template/metadata/labels/machine-template-hash"), Some(hash));
    }

    #[test]
    fn a_change_of_size_reaches_the_machine_set_with_its_annotation() {
        let mut deployment = testing::machine_deployment("workers", 3);
        let set = first_set(&deployment);
        deployment.set("/spec/replicas", json!(5));
        let plan = planned(&deployment, &[&set]);
        let [set] = changes(&plan, "MachineSet")[..] else { panic!("{plan:?}") };
        assert_eq!(set.number("/spec/replicas"), 5);
        assert_eq!(set.annotation(keys::DESIRED_REPLICAS), Some("5"));
    }

    #[test]
    fn labels_of_the_template_are_passed_on_without_a_rollout() {
        let mut deployment = testing::machine_deployment("workers", 3);
        let set = first_set(&deployment);
        deployment.set("/spec/template/metadata/labels/tier", json!("gold"));
        let plan = planned(&deployment, &[&set]);
        assert!(!plan.writes.iter().any(|write| matches!(write, Write::Create(..))), "{plan:?}");
        assert_eq!(changes(&plan, "MachineSet")[0]["spec"]["template"]["metadata"]["labels"]["tier"], "gold");
    }

    #[test]
    fn another_template_begins_a_machine_set_with_the_next_revision() {
        let mut deployment = testing::machine_deployment("workers", 3);
        let mut set = first_set(&deployment);
        set.set("/status/replicas", json!(3));
        set.set("/status/availableReplicas", json!(3));
        deployment.set("/spec/template/spec/version", json!("v1.36.0"));
        let plan = planned(&deployment, &[&set]);
        let Write::Create(_, new) = &plan.writes[0] else { panic!("{plan:?}") };
        assert_eq!((new.annotation(keys::REVISION), new.number("/spec/replicas")), (Some("2"), 1));
        assert_ne!(new.name(), set.name());
        let [deployment] = changes(&plan, "MachineDeployment")[..] else { panic!("{plan:?}") };
        assert_eq!(deployment.annotation(keys::REVISION), Some("2"));
    }

    #[test]
    fn a_template_that_comes_back_gets_the_next_revision() {
        let mut deployment = testing::machine_deployment("workers", 3);
        let first = first_set(&deployment);
        let mut second = first_set(&{
            let mut other = deployment.clone();
            other.set("/spec/template/spec/version", json!("v1.36.0"));
            other
        });
        second.set(&object::annotation(keys::REVISION), json!("2"));
        deployment.set(&object::annotation(keys::REVISION), json!("2"));
        let plan = planned(&deployment, &[&first, &second]);
        let sets = changes(&plan, "MachineSet");
        let back = sets.iter().find(|set| set.name() == first.name()).unwrap();
        assert_eq!(back.annotation(keys::REVISION), Some("3"));
    }

    #[test]
    fn without_a_size_it_gets_the_least_of_its_node_group() {
        let mut deployment = testing::machine_deployment("workers", 3);
        deployment.unset("/spec/replicas");
        assert_eq!(first_set(&deployment).number("/spec/replicas"), 1);
        deployment.set(&object::annotation(keys::MIN_SIZE), json!("2"));
        deployment.set(&object::annotation(keys::MAX_SIZE), json!("4"));
        assert_eq!(first_set(&deployment).number("/spec/replicas"), 2);
    }
}
