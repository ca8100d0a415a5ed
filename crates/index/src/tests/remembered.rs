//! Tests of what is remembered of Nodes, by a program and by the next one.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use jiff::{SignedDuration, Timestamp};
use rstest::rstest;
use rules::capi::{Context, InfrastructureTemplate, KindRef, Meta, ObjectKey, ScalableKind, ScalableResource};
use rules::{Exclusion, FromZero, NodeTemplate};
use serde_json::{Value, json};

use super::objects::*;
use crate::{Change, Index, KindState, Memory};

const GPU: &str = "nvidia.com/gpu";

fn config_map() -> ObjectKey {
    ObjectKey::new("capi", "remembered-nodes")
}

/// A ConfigMap, and the programs that come and go.
#[derive(Default)]
struct Stored {
    data: BTreeMap<String, String>,
    version: u32,
}

impl Stored {
    /// Returns the memory of a program that has just started and read the ConfigMap.
    fn memory(&self) -> Arc<Memory> {
        let memory = Arc::new(Memory::new(&[config_map()]));
        self.show(&memory);
        memory
    }

    fn show(&self, memory: &Memory) {
        let data = self.data.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        memory.set_content(&config_map(), &self.version.to_string(), data);
    }

    /// Writes what a program wants to store. Returns false if another has written since it read.
    fn write(&mut self, memory: &Memory) -> bool {
        let Some(write) = memory.write(&config_map(), &BTreeSet::new()) else { return true };
        if *write.version != *self.version.to_string() {
            return false;
        }
        self.version += 1;
        for (name, value) in write.data {
            match value {
                Some(value) => drop(self.data.insert(name, value)),
                None => drop(self.data.remove(&name)),
            }
        }
        true
    }
}

fn index_with(memory: &Arc<Memory>, changes: impl IntoIterator<Item = Change>) -> Index {
    let index = Index::new(rules()).remembering(Some(Arc::clone(memory)));
    apply(&index, changes);
    index.refresh();
    index
}

fn template_with(name: &str, spec: &Value, generation: i64) -> Change {
    template_in(NAMESPACE, kind(), name, spec, generation)
}

fn template_in(namespace: &str, kind: KindRef, name: &str, spec: &Value, generation: i64) -> Change {
    let meta = Meta { key: ObjectKey::new(namespace, name), uid: "uid".into(), resource_version: "1".into() };
    let value = json!({"metadata": {"generation": generation}, "spec": spec});
    Change::Template(kind, Arc::new(InfrastructureTemplate::decode(meta, &value).unwrap()))
}

fn large() -> Value {
    json!({"template": {"spec": {"size": "large"}}})
}

/// Returns a MachineDeployment with its MachineSet and a template of large Machines.
fn group(name: &str, replicas: i32, template: &str) -> Vec<Change> {
    group_with(name, replicas, template, &json!({}))
}

fn group_with(name: &str, replicas: i32, template: &str, more: &Value) -> Vec<Change> {
    let mut value = using_template(template);
    merge(&mut value, more);
    let set = set_of_with(name, &format!("{name}-1"), &value);
    vec![deployment(name, replicas, ("0", "9"), &value), set, template_with(template, &large(), 1)]
}

/// Returns a Machine of the group `workers` with its Node.
fn member(name: &str, memory: &str) -> Vec<Change> {
    let value = json!({
        "metadata": {"labels": {"kubernetes.io/arch": "arm64", "disk": "ssd"}},
        "status": {
            "capacity": {"cpu": "8", "memory": memory, GPU: "1"},
            "allocatable": {"cpu": "7", "memory": memory, GPU: "1"},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    });
    vec![joined("MachineSet/workers-1", name), node(name, &value)]
}

/// Returns the group `workers` with a Machine that became this Node.
fn running(name: &str, memory: &str) -> Vec<Change> {
    [group("workers", 1, "old"), member(name, memory)].concat()
}

/// Returns an index in which the group `workers` has no Node.
fn at_zero(memory: &Arc<Memory>) -> Index {
    index_with(memory, group("workers", 0, "old"))
}

fn served(index: &Index, group: &str) -> Option<NodeTemplate> {
    index.refresh();
    index.served(&id(group))?.definition.template.clone()
}

/// Returns the memory of a group's template, and its source.
fn memory_of(index: &Index, group: &str) -> Option<(String, &'static str)> {
    let template = served(index, group)?;
    let memory = &template.capacity["memory"];
    Some((memory.value.to_string(), memory.source.as_str()))
}

fn remembered(amount: &str) -> (String, &'static str) {
    (amount.to_owned(), "remembered")
}

/// Returns what is stored of a group with one Node.
fn with_one_node() -> Stored {
    let mut stored = Stored::default();
    let memory = stored.memory();
    index_with(&memory, running("a", "30Gi"));
    assert!(stored.write(&memory));
    assert_eq!(stored.data.len(), 1);
    stored
}

#[test]
fn a_group_scales_from_zero_after_a_restart_and_a_new_name_of_its_template() {
    let stored = with_one_node();
    let mut changes = group("workers", 0, "new");
    changes.extend(group("others", 0, "small"));
    changes.push(template_with("small", &json!({"template": {"spec": {"size": "small"}}}), 1));
    let index = index_with(&stored.memory(), changes);
    assert_eq!(memory_of(&index, WORKERS), Some(remembered("30Gi")));
    let template = served(&index, WORKERS).unwrap();
    assert_eq!(
        (template.labels["disk"].value.as_str(), template.labels["kubernetes.io/arch"].value.as_str()),
        ("ssd", "arm64")
    );
    assert_eq!(template.allocatable("cpu").unwrap().to_string(), "7");
    assert!(template.capacity.contains_key(GPU));
    let from = template.labels["disk"].source.to_string();
    assert!(
        from.starts_with("remembered from Node a of MachineDeployment/team-a/workers in Cluster stage, 2"),
        "{from}"
    );
    assert_eq!(index.served(&id(WORKERS)).unwrap().definition.from_zero, Some(FromZero::Remembered));
    assert_eq!(memory_of(&index, "MachineDeployment/team-a/others"), None, "another spec");
}

#[test]
fn clusters_of_the_namespace_share_and_others_do_not() {
    let memory = with_one_node().memory();
    let mut changes = group_with("sister", 0, "copy", &json!({"spec": {"clusterName": "second"}}));
    let mut value = json!({
        "metadata": {"annotations": {
            "cluster.x-k8s.io/cluster-api-autoscaler-node-group-min-size": "0",
            "cluster.x-k8s.io/cluster-api-autoscaler-node-group-max-size": "9",
        }},
        "spec": {"clusterName": "stage", "replicas": 0},
    });
    merge(&mut value, &using_template("copy"));
    let meta = Meta { key: ObjectKey::new("team-b", "workers"), uid: "uid".into(), resource_version: "1".into() };
    let context = Context::new("cluster.x-k8s.io");
    let other = ScalableResource::decode(ScalableKind::MachineDeployment, meta, &value, &context).unwrap();
    changes.extend([Change::Scalable(Arc::new(other)), template_in("team-b", kind(), "copy", &large(), 1)]);
    let index = index_with(&memory, changes);
    assert_eq!(memory_of(&index, "MachineDeployment/team-a/sister"), Some(remembered("30Gi")));
    let tenant = index.snapshot(Some(&id("MachineDeployment/team-b/workers")), crate::Detail::Counts);
    assert_eq!(tenant.groups[0].standing.as_ref().unwrap_err().reason, Exclusion::NoScaleFromZero);
}

#[test]
fn one_index_learns_what_another_uses() {
    let memory = Stored::default().memory();
    let second = index_with(&memory, group("sister", 0, "copy"));
    assert_eq!(memory_of(&second, "MachineDeployment/team-a/sister"), None);
    let first = index_with(&memory, running("a", "30Gi"));
    let templates = memory.take_changed();
    assert!(!templates.is_empty());
    second.apply_and_take_notices(Change::Remembered(Arc::new(templates)));
    assert_eq!(memory_of(&second, "MachineDeployment/team-a/sister"), Some(remembered("30Gi")));
    assert_eq!(memory_of(&first, WORKERS), Some(("30Gi".into(), "learned")), "it runs");
}

#[test]
fn a_smaller_node_counts_at_once_and_is_reported_once() {
    let stored = with_one_node();
    let index = at_zero(&stored.memory());
    let version = written(&index, WORKERS, 1, "2");
    index.set_own_size(&id(WORKERS), 0, &version);
    apply(&index, member("b", "20Gi"));
    assert_eq!(memory_of(&index, WORKERS), Some(("20Gi".into(), "learned")));
    let smaller = index.take_smaller(&id(WORKERS)).unwrap();
    assert!(
        smaller.note.contains("Node b has 20Gi of memory for pods, and 30Gi was remembered from Node a"),
        "{smaller:?}"
    );
    assert_eq!(index.take_smaller(&id(WORKERS)), None);
    assert!(index.served(&id(WORKERS)).unwrap().definition.notes.contains(&smaller.note));
    apply(&index, gone("b"));
    assert_eq!(memory_of(&index, WORKERS), Some(remembered("20Gi")), "it doesn't return to the larger one");
    apply(&index, member("c", "30Gi").into_iter().chain(gone("c")));
    assert_eq!(memory_of(&index, WORKERS), Some(remembered("20Gi")), "the smallest counts");
}

/// Returns an index whose group has grown from zero by what is remembered.
fn grown(replicas: i32, more: &Value) -> Index {
    let index = index_with(&with_one_node().memory(), group_with("workers", 0, "old", more));
    let version = written(&index, WORKERS, replicas, "2");
    index.set_own_size(&id(WORKERS), 0, &version);
    index
}

#[test]
fn each_node_of_an_increase_is_compared_with_what_was_remembered() {
    let index = grown(2, &json!({}));
    apply(&index, member("b", "30Gi"));
    assert_eq!(index.take_smaller(&id(WORKERS)), None);
    apply(&index, member("c", "20Gi"));
    let smaller = index.take_smaller(&id(WORKERS)).unwrap();
    assert!(smaller.note.contains("Node c has 20Gi of memory"), "{smaller:?}");
}

#[test]
fn a_device_that_is_missing_is_reported_once_the_node_has_settled() {
    let cpu_by_annotation =
        json!({"metadata": {"annotations": {"capacity.cluster-autoscaler.kubernetes.io/cpu": "8"}}});
    let index = grown(1, &cpu_by_annotation);
    let without = |minutes: u32| {
        let amounts = json!({"cpu": "8", "memory": "30Gi"});
        let ready = json!({
            "type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z",
            "lastHeartbeatTime": format!("2026-01-01T00:{minutes:02}:00Z"),
        });
        let labels = json!({"kubernetes.io/arch": "arm64", "disk": "ssd"});
        let status = json!({"capacity": amounts, "allocatable": amounts, "conditions": [ready]});
        node("b", &json!({"metadata": {"labels": labels}, "status": status}))
    };
    apply(&index, [joined("MachineSet/workers-1", "b"), without(1)]);
    assert_eq!(index.take_smaller(&id(WORKERS)), None, "it may register late");
    apply(&index, [without(10)]);
    let smaller = index.take_smaller(&id(WORKERS)).unwrap();
    assert!(smaller.note.contains("Node b has 0 of nvidia.com/gpu for pods, and 1 was remembered"), "{smaller:?}");
}

/// Nodes of some minutes.
const OLD: &str = "2026-01-01T00:00:00Z";
/// Nodes that went at once.
const NEW: &str = "2100-01-01T00:00:00Z";

/// A Node whose device plugin never came is removed as unneeded, perhaps before its kubelet says how long it was ready. Of
/// each Node: the minutes from its increase to its end, and whether it has shown the GPU that is remembered.
#[rstest]
#[case::it_may_have_come_yet(OLD, &[(9, false)], true)]
#[case::it_never_came(OLD, &[(11, false)], false)]
#[case::it_never_came_in_the_short_lives_of_several(OLD, &[(4, false), (4, false), (4, false)], false)]
#[case::one_has_shown_it(OLD, &[(4, false), (4, true), (4, false)], true)]
#[case::another_increase_came_much_later(OLD, &[(61, true), (1, false)], true)]
#[case::two_went_too_early(NEW, &[(5, false), (6, false)], true)]
#[case::three_went_too_early(NEW, &[(4, false), (4, false), (4, false)], false)]
#[case::three_went_too_early_at_once(NEW, &[(2, false), (2, false), (2, false)], true)]
#[case::one_of_them_has_shown_it(NEW, &[(5, false), (4, true), (6, false), (6, false)], true)]
#[tokio::test(start_paused = true)]
async fn devices_that_were_missing_until_nodes_went_buy_no_others(
    #[case] created: &str,
    #[case] nodes: &[(u64, bool)],
    #[case] expected: bool,
) {
    let index = grown(1, &json!({}));
    for (number, (minutes, has_gpu)) in nodes.iter().enumerate() {
        let name = format!("b{number}");
        let version = written(&index, WORKERS, 1, &format!("{}", number + 2));
        index.set_own_size(&id(WORKERS), 0, &version);
        let mut amounts = json!({"cpu": "8", "memory": "30Gi"});
        if *has_gpu {
            amounts[GPU] = json!("1");
        }
        let ready = json!({"type": "Ready", "status": "True"});
        let labels = json!({"kubernetes.io/arch": "arm64", "disk": "ssd"});
        let status = json!({"capacity": amounts, "allocatable": amounts, "conditions": [ready]});
        let value = json!({"metadata": {"labels": labels, "creationTimestamp": created}, "status": status});
        apply(&index, [joined("MachineSet/workers-1", &name), node(&name, &value)]);
        tokio::time::advance(Duration::from_secs(60 * minutes)).await;
        let deleting = json!({
            "metadata": {"deletionTimestamp": "2026-01-02T03:04:05Z"},
            "spec": {"providerID": format!("cloud:///zone/{name}")},
            "status": {"phase": "Deleting", "nodeRef": {"name": name}},
        });
        index.apply_and_take_notices(machine("MachineSet/workers-1", &name, &deleting));
        apply(&index, gone(&name));
    }
    assert_eq!(served(&index, WORKERS).unwrap().capacity.contains_key(GPU), expected);
}

/// A pool's Nodes leave its list, or go while they are on it.
#[rstest]
#[case::the_list_is_shorter(true)]
#[case::the_node_is_deleted(false)]
#[tokio::test(start_paused = true)]
async fn devices_that_were_missing_until_nodes_left_their_pool_buy_no_others(#[case] is_unlisted: bool) {
    const POOL: &str = "MachinePool/team-a/workers";
    let pool = |replicas: i32, version: &str, nodes: &[&str]| {
        let refs: Vec<_> = nodes.iter().map(|name| json!({ "name": name })).collect();
        let mut value = using_template("pool");
        merge(&mut value, &json!({"metadata": {"resourceVersion": version}, "status": {"nodeRefs": refs}}));
        scalable(ScalableKind::MachinePool, "workers", replicas, ("0", "9"), &value)
    };
    let memory = Stored::default().memory();
    let spec = template_with("pool", &large(), 1);
    let index = index_with(&memory, [pool(1, "1", &["a"]), spec, member("a", "30Gi").remove(1)]);
    apply(&index, [pool(0, "2", &[]), Change::NodeGone("a".into())]);
    let gpus = || served(&index, POOL).unwrap().capacity.contains_key(GPU);
    assert!(gpus());
    let version = written(&index, POOL, 1, "3");
    index.set_own_size(&id(POOL), 0, &version);
    let amounts = json!({"cpu": "8", "memory": "30Gi"});
    let ready = json!([{"type": "Ready", "status": "True"}]);
    let labels = json!({"kubernetes.io/arch": "arm64", "disk": "ssd"});
    let status = json!({"capacity": amounts, "allocatable": amounts, "conditions": ready});
    apply(&index, [pool(1, "4", &["b"]), node("b", &json!({"metadata": {"labels": labels}, "status": status}))]);
    tokio::time::advance(Duration::from_secs(11 * 60)).await;
    let gone = Change::NodeGone("b".into());
    apply(&index, if is_unlisted { vec![pool(0, "5", &[]), gone] } else { vec![gone, pool(0, "5", &[])] });
    assert!(!gpus());
}

#[test]
fn a_config_map_that_is_made_anew_gets_what_it_had() {
    let mut stored = with_one_node();
    let memory = stored.memory();
    memory.set_deleted(&config_map(), "there is no such ConfigMap");
    assert_eq!(memory_of(&at_zero(&memory), WORKERS), Some(remembered("30Gi")));
    assert!(memory.write(&config_map(), &BTreeSet::new()).is_none(), "it isn't there");
    let data = std::mem::take(&mut stored.data);
    stored.version += 1;
    stored.show(&memory);
    assert!(stored.write(&memory));
    assert_eq!(stored.data, data);
}

#[test]
fn a_spec_that_was_changed_in_place_is_another_one() {
    let memory = Stored::default().memory();
    let index = index_with(&memory, running("a", "30Gi"));
    let small = json!({"template": {"spec": {"size": "small"}}});
    index.apply_and_take_notices(template_with("old", &small, 2));
    apply(&index, gone("a"));
    assert_eq!(memory_of(&index, WORKERS).map(|(_, source)| source), None, "its Node was made from the old one");
    let created = Timestamp::now() + SignedDuration::from_secs(1);
    let name = "b";
    let more = json!({
        "metadata": {"creationTimestamp": created.to_string()},
        "spec": {"providerID": format!("cloud:///zone/{name}")},
        "status": {"phase": "Running", "nodeRef": {"name": name}},
    });
    index.apply_and_take_notices(machine("MachineSet/workers-1", name, &more));
    index.apply_and_take_notices(member(name, "10Gi").remove(1));
    apply(&index, gone(name));
    assert_eq!(memory_of(&index, WORKERS), Some(remembered("10Gi")));
    index.apply_and_take_notices(template_with("old", &large(), 3));
    assert_eq!(memory_of(&index, WORKERS), Some(remembered("30Gi")), "the old one is back");
}

#[rstest]
#[case::as_it_is("true", true)]
#[case::opted_out("false", false)]
#[case::neither("maybe", true)]
fn a_group_opts_out_by_an_annotation(#[case] value: &str, #[case] remembers: bool) {
    let mut stored = Stored::default();
    let memory = stored.memory();
    let annotated = json!({"metadata": {"annotations": {"capacity.capi-autoscaler-provider.io/remember": value}}});
    index_with(&memory, [group_with("workers", 1, "old", &annotated), member("a", "30Gi")].concat());
    assert!(stored.write(&memory));
    assert_eq!(stored.data.len(), usize::from(remembers));
    let index = index_with(&with_one_node().memory(), group_with("workers", 0, "old", &annotated));
    assert_eq!(memory_of(&index, WORKERS).is_some(), remembers);
}

#[test]
fn bootstrap_templates_are_part_of_the_key_where_they_can_be_read() {
    let configs = || KindRef { group: "bootstrap.cluster.x-k8s.io".into(), kind: "CloudConfigTemplate".into() };
    let using = |name: &str| {
        json!({"spec": {"template": {"spec": {"bootstrap": {"configRef":
            {"apiGroup": "bootstrap.cluster.x-k8s.io", "kind": "CloudConfigTemplate", "name": name}}}}}})
    };
    let memory = Stored::default().memory();
    let index = index_with(&memory, [group_with("workers", 1, "old", &using("a")), member("a", "30Gi")].concat());
    let entries = || memory.view()[0].entries;
    assert!(index.wanted_kinds().contains_key(&configs()));
    assert_eq!(entries(), 0, "it isn't known yet whether it can be read");
    index.apply_and_take_notices(template_in(NAMESPACE, configs(), "a", &json!({"file": "x"}), 1));
    assert_eq!(entries(), 1);
    apply(&index, group_with("others", 0, "old", &using("b")));
    let others = "MachineDeployment/team-a/others";
    index.apply_and_take_notices(template_in(NAMESPACE, configs(), "b", &json!({"file": "y"}), 1));
    assert_eq!(memory_of(&index, others), None, "another configuration");
    index.apply_and_take_notices(template_in(NAMESPACE, configs(), "b", &json!({"file": "x"}), 1));
    assert_eq!(memory_of(&index, others), Some(remembered("30Gi")));
    for name in ["a", "b"] {
        index.apply_and_take_notices(Change::TemplateGone(configs(), ObjectKey::new(NAMESPACE, name)));
    }
    index.apply_and_take_notices(Change::Kind(configs(), KindState::Unreadable("forbidden".into())));
    assert_eq!((entries(), memory_of(&index, others)), (2, Some(remembered("30Gi"))), "the key is without it");
}

#[test]
fn two_replicas_that_write_at_the_same_time_lose_nothing() {
    let mut stored = Stored::default();
    let memories = [stored.memory(), stored.memory()];
    for (memory, (name, amount)) in memories.iter().zip([("a", "30Gi"), ("b", "20Gi")]) {
        index_with(memory, running(name, amount));
    }
    assert!(stored.write(&memories[0]));
    assert!(!stored.write(&memories[1]), "another has written");
    stored.show(&memories[1]);
    assert!(stored.write(&memories[1]));
    for memory in &memories {
        stored.show(memory);
    }
    let index = at_zero(&stored.memory());
    assert_eq!(memory_of(&index, WORKERS), Some(remembered("20Gi")));
    let version = stored.version;
    assert!(memories.iter().all(|memory| stored.write(memory)));
    assert_eq!(stored.version, version, "nothing is left to write");
}

#[test]
fn a_hostile_content_changes_no_other_group() {
    let mut stored = with_one_node();
    let key = stored.data.keys().next().unwrap().clone();
    stored.data.insert("README".into(), "hello".into());
    stored.data.insert(key.replace("arm64", "amd64"), "{".into());
    let memory = stored.memory();
    let view = &memory.view()[0];
    assert_eq!((view.entries, view.set_aside.len()), (1, 2));
    assert_eq!(memory_of(&at_zero(&memory), WORKERS), Some(remembered("30Gi")));
}

#[test]
fn an_entry_that_was_taken_out_is_forgotten() {
    let mut stored = with_one_node();
    let memory = stored.memory();
    let index = at_zero(&memory);
    stored.data.clear();
    stored.version += 1;
    stored.show(&memory);
    index.apply_and_take_notices(Change::Remembered(Arc::new(memory.take_changed())));
    assert_eq!(memory_of(&index, WORKERS), None);
    assert!(memory.write(&config_map(), &BTreeSet::new()).is_none());
}

/// Infrastructure providers write the instances into the spec of a pool's infrastructure object.
#[test]
fn the_nodes_of_a_pool_that_joined_since_the_start_are_remembered() {
    let memory = Stored::default().memory();
    let mut value = using_template("pool");
    merge(&mut value, &json!({"status": {"nodeRefs": [{"name": "a"}, {"name": "b"}]}}));
    let pool = scalable(ScalableKind::MachinePool, "workers", 2, ("0", "9"), &value);
    let index = index_with(&memory, [pool, template_with("pool", &large(), 7)]);
    let member = |name: &str, amount: &str, created: Timestamp| {
        let amounts = json!({"cpu": "8", "memory": amount});
        let status = json!({
            "capacity": amounts, "allocatable": amounts, "conditions": [{"type": "Ready", "status": "True"}],
        });
        node(name, &json!({"metadata": {"creationTimestamp": created.to_string()}, "status": status}))
    };
    let entries = || memory.view()[0].entries;
    index.apply_and_take_notices(member("a", "20Gi", Timestamp::now() - SignedDuration::from_hours(1)));
    assert_eq!(entries(), 0, "its spec may have been another one");
    index.apply_and_take_notices(member("b", "30Gi", Timestamp::now() + SignedDuration::from_secs(2)));
    assert_eq!(entries(), 1);
}

#[test]
fn the_nodes_of_a_pool_are_remembered_too() {
    let memory = Stored::default().memory();
    let mut value = using_template("pool");
    merge(&mut value, &json!({"status": {"nodeRefs": [{"name": "a"}]}}));
    let pool = |replicas| scalable(ScalableKind::MachinePool, "workers", replicas, ("0", "9"), &value);
    let spec = json!({"size": "large", "providerIDList": ["x"]});
    let changes = [pool(1), template_with("pool", &spec, 1), member("a", "30Gi").remove(1)];
    let index = index_with(&memory, changes);
    assert_eq!(memory.view()[0].entries, 1);
    index.apply_and_take_notices(template_with("pool", &json!({"size": "large", "providerIDList": []}), 2));
    index.apply_and_take_notices(scalable(
        ScalableKind::MachinePool,
        "workers",
        0,
        ("0", "9"),
        &using_template("pool"),
    ));
    index.apply_and_take_notices(Change::NodeGone("a".into()));
    assert_eq!(
        memory_of(&index, "MachinePool/team-a/workers"),
        Some(remembered("30Gi")),
        "its instances aren't in the key"
    );
}

#[test]
fn nothing_is_remembered_unless_it_is_asked_for() {
    let index = index(running("a", "30Gi").into_iter().chain(gone("a")));
    assert_eq!(memory_of(&index, WORKERS), None);
}
