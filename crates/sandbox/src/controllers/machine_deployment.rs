//! MachineDeployment: keeps one MachineSet per template, scales the newest to its size, and rolls out a new template
//! through the sizes of all, within maxSurge and maxUnavailable. Labels, annotations and timeouts of a template are
//! changed in place, as Cluster API does; any other change of it is a rollout.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::{
    Context, Plan, Side,
    conditions::{self, ConditionContent},
    keys,
    machine_set::set_group_defaults,
    object::{self, Object},
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
    if deployment.deleting() {
        return Plan::leave(deployment, &sets, keys::DEPLOYMENT_FINALIZER);
    }
    let mut children: Vec<_> = sets.into_iter().map(|set| Child { set }).collect();
    let mut plan = Plan::default();
    let mut after = Value::clone(deployment);
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
            roll(&mut plan, &after, revision, &newest, &children, strategy);
            children.push(newest);
        }
    }
    status(&mut after, &children, strategy, context);
    plan.change(Side::Management, deployment, after);
    plan
}

/// Sets the defaults that a real API would have filled in, and the Cluster as owner.
fn set_defaults(deployment: &mut Value, cluster: Option<&Value>) {
    set_group_defaults(deployment, keys::DEPLOYMENT_FINALIZER);
    let cluster_name = deployment["spec"]["clusterName"].clone();
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
    let suffix = object::suffix_of(&format!("{}/{}/{template}", deployment.namespace(), deployment.name()));
    let hash = format!("{}-{suffix}", object::hash(&template) % 10_000_000_000);
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

/// Sets the size of a MachineSet, and its annotations about the MachineDeployment's size. No other annotation is copied:
/// nothing here reads one of a MachineSet.
fn resize(set: &mut Value, deployment: &Value, replicas: i64, strategy: Strategy) {
    let desired = deployment.number("/spec/replicas");
    set.set("/spec/replicas", json!(replicas));
    set.set(&object::annotation(keys::DESIRED_REPLICAS), json!(desired.to_string()));
    set.set(&object::annotation(keys::MAX_REPLICAS), json!(strategy.most(desired).to_string()));
}

/// Advances the sizes by one step, and deletes MachineSets left over from older rollouts. `older` is sorted by age.
fn roll(plan: &mut Plan, deployment: &Value, revision: i64, newest: &Child, older: &[Child], strategy: Strategy) {
    let sizes: Vec<_> = older.iter().map(Child::size).collect();
    let desired = deployment.number("/spec/replicas").max(0);
    let (replicas, lesser) = step(desired, strategy, newest.size(), &sizes);
    plan.change(Side::Management, &newest.set, synced(&newest.set, deployment, revision, replicas, strategy));
    for (child, replicas) in older.iter().zip(lesser) {
        let mut set = Value::clone(&child.set);
        if set.number("/spec/replicas") != replicas {
            resize(&mut set, deployment, replicas, strategy);
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

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Strategy {
    /// Gradually, within bounds.
    RollingUpdate {
        /// The number of Machines that may exist above the size.
        surge: i64,
        /// The number of Machines of the size that may be unavailable.
        unavailable: i64,
    },
    /// When somebody deletes an old Machine.
    OnDelete,
}

impl Strategy {
    /// Returns the strategy of a MachineDeployment of either contract version.
    pub(super) fn of(deployment: &Value, desired: i64) -> Self {
        let strategy = ["/spec/rollout/strategy", "/spec/strategy"].into_iter().find_map(|at| deployment.pointer(at));
        let strategy = strategy.unwrap_or(&Value::Null);
        if strategy.text("/type") == Some("OnDelete") {
            return Self::OnDelete;
        }
        let bounds = &strategy["rollingUpdate"];
        let surge = share(&bounds["maxSurge"], desired, true).unwrap_or(1);
        let unavailable = share(&bounds["maxUnavailable"], desired, false).unwrap_or(0);
        // With both at 0 there would be no progress.
        Self::RollingUpdate { surge, unavailable: if surge == 0 { unavailable.max(1) } else { unavailable } }
    }

    /// Returns the maximum number of Machines.
    pub(super) fn most(self, desired: i64) -> i64 {
        match self {
            Self::RollingUpdate { surge, .. } => desired + surge,
            Self::OnDelete => desired,
        }
    }
}

/// Parses a number, or a percentage of `of`, which is rounded up or down.
fn share(value: &Value, of: i64, up: bool) -> Option<i64> {
    if let Some(number) = value.as_i64() {
        return Some(number.max(0));
    }
    let percent: i64 = value.as_str()?.strip_suffix('%')?.parse().ok()?;
    let hundredths = (of * percent.max(0)).max(0);
    Some(if up { (hundredths + 99) / 100 } else { hundredths / 100 })
}

#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct Size {
    /// The `spec.replicas`.
    pub(super) wanted: i64,
    /// The number of its Machines, including those being deleted.
    pub(super) actual: i64,
    /// The number of its available Machines.
    pub(super) available: i64,
}

/// Returns the new `spec.replicas` of the newest MachineSet and of the older ones, oldest first, towards `desired`.
pub(super) fn step(desired: i64, strategy: Strategy, newest: Size, older: &[Size]) -> (i64, Vec<i64>) {
    let all = || older.iter().chain([&newest]);
    match strategy {
        Strategy::RollingUpdate { surge, unavailable } => {
            let headroom = desired + surge - all().map(|size| size.wanted.max(size.actual)).sum::<i64>();
            let grown = newest.wanted + headroom.min(desired - newest.wanted).max(0);
            let available: i64 = all().map(|size| size.available.min(size.wanted)).sum();
            let wanted: i64 = all().map(|size| size.wanted).sum();
            let coming = (newest.wanted - newest.available).max(0);
            let least = desired - unavailable;
            (grown.min(desired), shrink(older, wanted - least - coming, available - least))
        }
        Strategy::OnDelete => {
            let existing: i64 = all().map(|size| size.wanted.max(size.actual)).sum();
            let replicas = desired.min(newest.wanted + (desired - existing).max(0));
            let mut surplus = older.iter().map(|size| size.wanted).sum::<i64>() + replicas - desired;
            // The replica of a Machine that is gone isn't filled again, whatever the size is.
            let left = older.iter().map(|size| size.wanted.min(size.actual)).collect::<Vec<_>>();
            surplus -= older.iter().zip(&left).map(|(size, left)| size.wanted - left).sum::<i64>();
            let take = |wanted: i64| {
                let less = wanted.min(surplus.max(0));
                surplus -= less;
                wanted - less
            };
            (replicas, left.into_iter().map(take).collect())
        }
    }
}

/// Returns the sizes of older sets shrunk by at most `most` Machines altogether: unavailable ones first, and at most
/// `most_available` of the available ones.
fn shrink(older: &[Size], most: i64, most_available: i64) -> Vec<i64> {
    let mut most = most.max(0);
    let mut sizes: Vec<i64> = older.iter().map(|size| size.wanted).collect();
    for (wanted, size) in sizes.iter_mut().zip(older) {
        let idle = (size.wanted - size.available).max(0).min(most);
        *wanted -= idle;
        most -= idle;
    }
    let mut most = most.min(most_available.max(0));
    for wanted in &mut sizes {
        let less = (*wanted).min(most);
        *wanted -= less;
        most -= less;
    }
    sizes
}

/// Returns the sizes while rollouts are paused: the difference goes to the newest set that has Machines.
pub(super) fn scale_only(desired: i64, sizes: &[Size]) -> Vec<i64> {
    let mut wanted: Vec<i64> = sizes.iter().map(|size| size.wanted).collect();
    let mut change = desired - wanted.iter().sum::<i64>();
    let last = sizes.iter().rposition(|size| size.wanted > 0).or(sizes.len().checked_sub(1));
    if change > 0
        && let Some(last) = last
    {
        wanted[last] += change;
    }
    for wanted in wanted.iter_mut().rev() {
        let less = (*wanted).min((-change).max(0));
        *wanted -= less;
        change += less;
    }
    wanted
}

/// The controllers' name in `managedFields`.
pub(crate) const MANAGER: &str = "capi-controllers";

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;
    use serde_json::json;

    use crate::{
        controllers::{Write, object::Names, testing},
        settings::Settings,
    };

    fn planned(deployment: &Value, sets: &[&Value]) -> Plan {
        let settings = Settings::default();
        let mut drawn = Names::default();
        let context = testing::context(&settings, &mut drawn);
        let sets = sets.iter().map(|set| Arc::new((*set).clone())).collect();
        plan(&Arc::new(deployment.clone()), None, sets, &context)
    }

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

    const fn full(wanted: i64) -> Size {
        Size { wanted, actual: wanted, available: wanted }
    }

    const fn size(wanted: i64, actual: i64, available: i64) -> Size {
        Size { wanted, actual, available }
    }

    #[rstest]
    #[case::grows_at_once(5, 1, 0, full(2), &[], 5, &[])]
    #[case::shrinks_at_once(1, 1, 0, full(2), &[], 1, &[])]
    #[case::one_more_first(3, 1, 0, full(0), &[full(3)], 1, &[3])]
    #[case::waits_for_it(3, 1, 0, size(1, 1, 0), &[full(3)], 1, &[3])]
    #[case::then_one_less(3, 1, 0, full(1), &[full(3)], 1, &[2])]
    #[case::waits_until_it_is_gone(3, 1, 0, full(1), &[size(2, 3, 2)], 1, &[2])]
    #[case::then_the_next(3, 1, 0, full(1), &[full(2)], 2, &[2])]
    #[case::the_end(3, 1, 0, full(3), &[full(1)], 3, &[0])]
    #[case::without_surge_one_less_first(3, 0, 1, full(0), &[full(3)], 0, &[2])]
    #[case::then_one_more(3, 0, 1, full(0), &[full(2)], 1, &[2])]
    #[case::waits_without_surge(3, 0, 1, size(1, 1, 0), &[full(2)], 1, &[2])]
    #[case::idle_ones_go_first(3, 1, 1, full(1), &[full(2), size(1, 1, 0)], 1, &[1, 0])]
    #[case::to_zero(0, 1, 0, full(1), &[full(3)], 0, &[0])]
    fn a_rolling_update_keeps_its_bounds(
        #[case] desired: i64,
        #[case] surge: i64,
        #[case] unavailable: i64,
        #[case] newest: Size,
        #[case] older: &[Size],
        #[case] expected: i64,
        #[case] expected_older: &[i64],
    ) {
        let sizes = step(desired, Strategy::RollingUpdate { surge, unavailable }, newest, older);
        assert_eq!(sizes, (expected, expected_older.to_vec()));
    }

    #[rstest]
    #[case::nothing_goes_by_itself(3, full(0), &[full(3)], 0, &[3])]
    #[case::a_machine_counts_until_it_is_gone(3, full(0), &[size(3, 3, 2)], 0, &[3])]
    #[case::a_machine_that_is_gone_is_not_replaced_in_its_set(3, full(0), &[size(3, 2, 2)], 0, &[2])]
    #[case::but_in_the_newest(3, full(0), &[full(2)], 1, &[2])]
    #[case::a_smaller_size_takes_from_the_oldest(3, full(2), &[full(1), full(1)], 2, &[0, 1])]
    #[case::then_from_the_next(2, full(1), &[full(1), full(2)], 1, &[0, 1])]
    #[case::a_machine_that_is_gone_meets_the_smaller_size(3, full(1), &[size(3, 2, 2)], 1, &[2])]
    #[case::the_newest_never_exceeds_the_size(1, full(2), &[full(1)], 1, &[0])]
    #[case::a_larger_size_is_for_the_newest(5, full(1), &[full(2)], 3, &[2])]
    fn on_delete_only_older_sets_shrink(
        #[case] desired: i64,
        #[case] newest: Size,
        #[case] older: &[Size],
        #[case] expected: i64,
        #[case] expected_older: &[i64],
    ) {
        assert_eq!(step(desired, Strategy::OnDelete, newest, older), (expected, expected_older.to_vec()));
    }

    #[rstest]
    #[case::default(json!({}), 4, 1, 0)]
    #[case::numbers(json!({ "rollingUpdate": { "maxSurge": 2, "maxUnavailable": 1 } }), 4, 2, 1)]
    #[case::percent(json!({ "rollingUpdate": { "maxSurge": "30%", "maxUnavailable": "30%" } }), 4, 2, 1)]
    #[case::never_both_zero(json!({ "rollingUpdate": { "maxSurge": 0, "maxUnavailable": "10%" } }), 4, 0, 1)]
    fn bounds_are_read(#[case] strategy: Value, #[case] of: i64, #[case] surge: i64, #[case] unavailable: i64) {
        let expected = Strategy::RollingUpdate { surge, unavailable };
        assert_eq!(Strategy::of(&json!({ "spec": { "rollout": { "strategy": strategy } } }), of), expected);
        assert_eq!(Strategy::of(&json!({ "spec": { "strategy": strategy } }), of), expected);
    }

    #[test]
    fn a_paused_rollout_still_scales() {
        assert_eq!(scale_only(5, &[full(1), full(2), full(0)]), [1, 4, 0]);
        assert_eq!(scale_only(1, &[full(1), full(2)]), [1, 0]);
        assert_eq!(scale_only(0, &[full(1), full(2)]), [0, 0]);
    }
}
