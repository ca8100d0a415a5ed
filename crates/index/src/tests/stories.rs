//! Tests of the index's rules, one per test.

use std::{collections::HashSet, sync::Arc};

use capi::{Machine, ObjectKey, ScalableKind};
use k8s_pb::api::core::v1::Node;
use nodegroup::{
    Bounds, Exclusion, GroupId, InstanceState, ProblemKind, Rules, Scope, ScopeSpec, writing::NotScalable,
};
use prost::Message;
use rstest::rstest;
use serde_json::{Value, json};
use shared_informer::{DecodeError, Event, Handler, Metadata, Object};

use super::objects::*;
use crate::{Change, Feed, Index, KindState};

fn group_ids(index: &Index) -> Vec<String> {
    index.groups().iter().map(|group| group.text.to_string()).collect()
}

fn instance_ids(index: &Index, group: &str) -> Vec<String> {
    index.instances(&id(group)).unwrap().into_iter().map(|instance| instance.id).collect()
}

#[test]
fn a_group_has_its_machines_and_a_placeholder_for_each_replica_without_one() {
    let index = index(workers());
    assert_eq!(
        instance_ids(&index, WORKERS),
        [
            "cloud:///zone/a",
            "cloud:///zone/b",
            "pending-machine-team-a_c",
            "replica-MachineDeployment-team-a_workers-0",
        ]
    );
    assert_eq!(index.target_size(&id(WORKERS)), Some(4));
    assert_eq!(index.groups()[0].bounds, Bounds { min: 1, max: 10 });
}

#[test]
fn a_machine_without_provider_id_is_known_by_its_nodes() {
    let mut changes = workers();
    changes.push(machine("MachineSet/workers-1", "d", &json!({"status": {"nodeRef": {"name": "d"}}})));
    changes.push(node("d", &json!({})));
    assert!(instance_ids(&index(changes), WORKERS).contains(&"cloud:///zone/d".to_owned()));
}

#[test]
fn machines_of_every_machine_set_of_a_deployment_are_its_instances() {
    let mut changes = workers();
    changes.push(set_of("workers", "workers-2"));
    changes.push(joined("MachineSet/workers-2", "d"));
    let index = index(changes);
    assert_eq!(instance_ids(&index, WORKERS).len(), 4);
    assert_eq!(group_of(&index, "cloud:///zone/d", "d").as_deref(), Some(WORKERS));
    assert_eq!(group_ids(&index), [WORKERS], "a MachineSet of a MachineDeployment is no group");
}

#[test]
fn a_machine_set_without_deployment_is_a_group() {
    let index = index([
        scalable(ScalableKind::MachineSet, "alone", 1, ("0", "3"), &json!({})),
        joined("MachineSet/alone", "a"),
    ]);
    assert_eq!(group_ids(&index), ["MachineSet/team-a/alone"]);
    assert_eq!(group_of(&index, "cloud:///zone/a", "a").as_deref(), Some("MachineSet/team-a/alone"));
}

#[test]
fn a_machine_pools_instances_are_its_provider_ids() {
    let more = json!({"spec": {"providerIDList": ["cloud:///zone/a", "cloud:///zone/b"]}});
    let index = index([scalable(ScalableKind::MachinePool, "pool", 3, ("0", "3"), &more)]);
    let group = "MachinePool/team-a/pool";
    assert_eq!(
        instance_ids(&index, group),
        ["cloud:///zone/a", "cloud:///zone/b", "replica-MachinePool-team-a_pool-0"]
    );
    assert_eq!(group_of(&index, "cloud:///zone/b", "b").as_deref(), Some(group));
    let owner = [
        ("cluster.x-k8s.io/cluster-namespace", "team-a"),
        ("cluster.x-k8s.io/owner-kind", "MachinePool"),
        ("cluster.x-k8s.io/owner-name", "pool"),
    ];
    assert_eq!(group_with(&index, "", "c", &owner).as_deref(), Some(group));
}

#[test]
fn a_wrong_group_is_left_out_with_its_reason_and_all_others_go_on() {
    let mut changes = workers();
    changes.push(deployment("wrong", 1, ("five", "10"), &json!({})));
    let index = index(changes);
    assert_eq!(group_ids(&index), [WORKERS]);
    let stats = index.stats();
    assert_eq!(stats.problems.len(), 1);
    assert_eq!(stats.problems[0].group, "MachineDeployment/team-a/wrong");
    assert_eq!(stats.problems[0].problem, ProblemKind::Bounds.as_str());
}

#[test]
fn a_reason_is_reported_once_per_change() {
    let index = index([]);
    let wrong = || deployment("wrong", 1, ("five", "10"), &json!({}));
    let reported = index.apply_quietly(wrong());
    assert_eq!(reported.len(), 1);
    assert_eq!(reported[0].problems[0].kind, ProblemKind::Bounds);
    assert_eq!(index.apply_quietly(wrong()), []);
    let mended = index.apply_quietly(deployment("wrong", 1, ("5", "10"), &json!({})));
    assert_eq!(mended[0].excluded, None);
}

#[test]
fn a_group_reports_a_missing_template_only_after_the_template_kind_has_synced() {
    let index = index([]);
    let reported = index.apply_quietly(deployment("workers", 0, ("0", "10"), &using_template("small")));
    assert_eq!(reported[0].excluded, Some(Exclusion::WaitingForTemplate));
    let reported = index.apply_quietly(Change::Kind(kind(), KindState::Synced));
    assert_eq!(reported[0].excluded, Some(Exclusion::NoScaleFromZero));
    assert_eq!(reported[0].problems[0].kind, ProblemKind::Template);
}

#[test]
fn a_problem_of_a_group_that_stays_one_is_reported() {
    let index = index(workers());
    let options = json!({"metadata": {"annotations": {
        "cluster.x-k8s.io/autoscaling-options-scaledownunneededtime": "soon",
    }}});
    let mut wrong = capacity_annotations("4", "16Gi");
    merge(&mut wrong, &options);
    let reported = index.apply_quietly(deployment("workers", 4, ("1", "10"), &wrong));
    assert_eq!(reported.len(), 1);
    assert_eq!((reported[0].excluded, reported[0].problems[0].kind), (None, ProblemKind::Options));
}

#[test]
fn an_undecodable_group_is_left_out_until_it_decodes_again() {
    let index = index(workers());
    index.apply_quietly(Change::ScalableUndecodable(id(WORKERS), "replicas: not a number".into()));
    index.refresh();
    assert!(index.groups().is_empty());
    assert_eq!(index.stats().problems[0].problem, ProblemKind::Undecodable.as_str());
    for change in workers() {
        index.apply_quietly(change);
    }
    index.refresh();
    assert_eq!(group_ids(&index), [WORKERS]);
}

#[test]
fn an_object_that_never_decoded_is_reported_after_a_refresh_too() {
    let index = index([Change::ScalableUndecodable(id(WORKERS), "spec: broken".into())]);
    assert_eq!(index.stats().problems.len(), 1);
}

#[test]
fn a_machine_set_that_does_not_decode_any_more_keeps_its_machines_in_their_group() {
    let index = index(workers());
    let before = instance_ids(&index, WORKERS);
    let set = GroupId::new(ScalableKind::MachineSet, ObjectKey::new(NAMESPACE, "workers-1"));
    index.apply_quietly(Change::ScalableUndecodable(set.clone(), "replicas: not a number".into()));
    index.refresh();
    assert_eq!(instance_ids(&index, WORKERS), before, "no Machine has become a replica that never came");
    assert_eq!(group_of(&index, "cloud:///zone/a", "a").as_deref(), Some(WORKERS));
    index.apply_quietly(Change::ScalableGone(set));
    assert_eq!(group_of(&index, "cloud:///zone/a", "a"), None);
}

#[test]
fn a_machine_that_does_not_decode_any_more_stays_as_it_was_known_until_it_is_gone() {
    let index = Arc::new(index(workers()));
    let before = instance_ids(&index, WORKERS);
    let metadata =
        Metadata { key: ObjectKey::new(NAMESPACE, "a"), uid: "uid-of-a".into(), resource_version: "2".into() };
    let broken: Arc<Object<Machine>> =
        Arc::new(Object { metadata, content: Err(DecodeError::new("status: not an object")) });
    let mut feed = Feed::new(Arc::clone(&index), (), HashSet::new());
    feed.handle(Event::Added { object: Arc::clone(&broken), initial: true });
    feed.handle(Event::Updated { old: Arc::clone(&broken), new: Arc::clone(&broken) });
    assert_eq!(instance_ids(&index, WORKERS), before);
    feed.handle(Event::Deleted { last: broken, found_by_relist: true });
    assert!(!instance_ids(&index, WORKERS).contains(&"cloud:///zone/a".to_owned()));
}

#[test]
fn membership_is_pinned_by_refresh() {
    let index = index(workers());
    index.apply_quietly(deployment("later", 1, ("1", "2"), &json!({})));
    index.apply_quietly(set_of("later", "later-1"));
    index.apply_quietly(joined("MachineSet/later-1", "x"));
    assert_eq!(group_ids(&index), [WORKERS]);
    assert_eq!(group_of(&index, "cloud:///zone/x", "x"), None, "its group isn't in the last NodeGroups answer");
    index.refresh();
    assert_eq!(group_ids(&index), ["MachineDeployment/team-a/later", WORKERS]);
    assert_eq!(group_of(&index, "cloud:///zone/x", "x").as_deref(), Some("MachineDeployment/team-a/later"));
}

#[rstest]
#[case::invalid(deployment("workers", 4, ("x", "10"), &json!({})))]
#[case::undecodable(Change::ScalableUndecodable(id(WORKERS), "spec: broken".into()))]
#[case::deleted(Change::ScalableGone(id(WORKERS)))]
#[case::cluster_paused(cluster("stage", true))]
fn a_group_that_vanishes_answers_its_last_values_until_the_next_refresh(#[case] vanishes: Change) {
    let index = index(workers());
    index.apply_quietly(vanishes);
    assert_eq!(index.target_size(&id(WORKERS)), Some(4));
    assert!(instance_ids(&index, WORKERS).contains(&"cloud:///zone/a".to_owned()));
    assert!(index.served(&id(WORKERS)).unwrap().template.is_some());
    assert_eq!(group_of(&index, "cloud:///zone/a", "a").as_deref(), Some(WORKERS));
    assert!(matches!(index.scale_view(&id(WORKERS)), Err(NotScalable::Excluded(_))), "a command is refused");
    index.refresh();
    assert_eq!(index.target_size(&id(WORKERS)), None);
    assert_eq!(index.instances(&id(WORKERS)), None);
    assert_eq!(group_of(&index, "cloud:///zone/a", "a"), None);
    assert_eq!(index.scale_view(&id(WORKERS)), Err(NotScalable::Unknown));
}

#[test]
fn pinned_bounds_change_at_refresh_and_commands_see_the_live_ones() {
    let index = index(workers());
    index.apply_quietly(deployment("workers", 4, ("2", "20"), &json!({})));
    assert_eq!(index.groups()[0].bounds, Bounds { min: 1, max: 10 });
    assert_eq!(index.scale_view(&id(WORKERS)).unwrap().bounds, Bounds { min: 2, max: 20 });
    index.refresh();
    assert_eq!(index.groups()[0].bounds, Bounds { min: 2, max: 20 });
}

#[test]
fn groups_asked_for_before_the_first_refresh_are_pinned_then() {
    let index = Index::new(rules());
    for change in workers() {
        index.apply_quietly(change);
    }
    assert_eq!(group_of(&index, "cloud:///zone/a", "a"), None);
    assert_eq!(group_ids(&index), [WORKERS]);
    assert_eq!(group_of(&index, "cloud:///zone/a", "a").as_deref(), Some(WORKERS));
}

#[test]
fn a_group_scales_from_zero_once_its_template_is_known() {
    let index = index([deployment("workers", 0, ("0", "10"), &using_template("small"))]);
    assert!(index.groups().is_empty());
    assert_eq!(index.wanted_kinds().keys().collect::<Vec<_>>(), [&kind()]);
    index.apply_quietly(template("small", &json!({"cpu": 2, "memory": "4Gi"})));
    index.refresh();
    let bytes = index.served(&id(WORKERS)).unwrap().template.clone().unwrap();
    let node = Node::decode(bytes).unwrap();
    let capacity = node.status.unwrap().capacity;
    assert_eq!(capacity["cpu"].string.as_deref(), Some("2"));
    assert_eq!(capacity["memory"].string.as_deref(), Some("4Gi"));
}

#[rstest]
#[case::missing(KindState::Synced, "doesn't exist")]
#[case::forbidden(KindState::Unreadable("forbidden".into()), "forbidden")]
fn a_template_that_cannot_be_read_is_a_problem_and_the_annotations_serve(#[case] state: KindState, #[case] why: &str) {
    let mut group = using_template("small");
    merge(&mut group, &capacity_annotations("1", "1Gi"));
    let index = index([deployment("workers", 0, ("0", "10"), &group), Change::Kind(kind(), state)]);
    assert_eq!(group_ids(&index), [WORKERS]);
    let served = index.served(&id(WORKERS)).unwrap();
    let problem = &served.definition.problems[0];
    assert_eq!(problem.kind, ProblemKind::Template);
    assert!(problem.message.contains(why), "{problem}");
}

#[test]
fn a_template_once_known_serves_while_its_kind_cannot_be_read() {
    let group = deployment("workers", 0, ("0", "10"), &using_template("small"));
    let index = index([group, template("small", &json!({"cpu": 2, "memory": "4Gi"}))]);
    index.apply_quietly(Change::Kind(kind(), KindState::Unreadable("forbidden".into())));
    index.refresh();
    assert_eq!(group_ids(&index), [WORKERS]);
    assert_eq!(index.served(&id(WORKERS)).unwrap().definition.problems, []);
}

#[test]
fn a_paused_group_keeps_its_template_kind_wanted() {
    let index = index([cluster("stage", true), deployment("workers", 1, ("0", "10"), &using_template("small"))]);
    assert!(index.wanted_kinds().contains_key(&kind()), "it comes back at any time");
}

#[test]
fn no_kind_is_wanted_by_what_is_no_group() {
    let index = index([
        deployment("workers", 1, ("0", "0"), &using_template("small")),
        deployment("wrong", 1, ("3", "2"), &using_template("small")),
    ]);
    assert!(index.wanted_kinds().is_empty());
}

#[test]
fn no_kind_is_wanted_by_a_group_out_of_scope() {
    let scope = Scope::Specs(vec![ScopeSpec::cluster(NAMESPACE, "another")]);
    let index = Index::new(Rules { scope, ..rules() });
    index.apply_quietly(deployment("workers", 1, ("0", "10"), &using_template("small")));
    assert!(index.wanted_kinds().is_empty());
}

#[test]
fn a_template_takes_the_labels_on_which_real_nodes_agree() {
    let mut changes = workers();
    let in_zone = |zone: &str| json!({"metadata": {"labels": {"topology.kubernetes.io/zone": zone}}});
    changes.push(node("b", &in_zone("zone-b")));
    let index = index(changes);
    let zone = |index: &Index| {
        let bytes = index.served(&id(WORKERS)).unwrap().template.clone().unwrap();
        Node::decode(bytes).unwrap().metadata.unwrap().labels.get("topology.kubernetes.io/zone").cloned()
    };
    assert_eq!(zone(&index).as_deref(), Some("zone-b"), "the other Node, a, has none");
    index.apply_quietly(node("a", &in_zone("zone-b")));
    assert_eq!(zone(&index).as_deref(), Some("zone-b"));
    index.apply_quietly(node("a", &in_zone("zone-a")));
    assert_eq!(zone(&index), None);
    index.apply_quietly(Change::MachineGone(ObjectKey::new(NAMESPACE, "a")));
    assert_eq!(zone(&index), None, "the next Node may be in either");
}

/// With several clusters in one index a Node's name may be that of another cluster's Node.
#[rstest]
#[case::another_provider_id("cloud:///zone/a", &json!({"spec": {"providerID": "cloud:///elsewhere/a"}}))]
#[case::another_machine("", &json!({"metadata": {"annotations": {
    "cluster.x-k8s.io/machine": "z", "cluster.x-k8s.io/cluster-namespace": "team-a",
}}}))]
fn a_node_of_the_same_name_that_belongs_elsewhere_gives_no_labels(#[case] provider_id: &str, #[case] more: &Value) {
    let mut labelled = json!({"metadata": {"labels": {"topology.kubernetes.io/zone": "zone-z"}}});
    merge(&mut labelled, more);
    let status = json!({"spec": {"providerID": provider_id}, "status": {"nodeRef": {"name": "a"}}});
    let index = index([
        deployment("workers", 1, ("1", "10"), &capacity_annotations("4", "16Gi")),
        set_of("workers", "workers-1"),
        machine("MachineSet/workers-1", "a", &status),
        node("a", &labelled),
    ]);
    let template = index.served(&id(WORKERS)).unwrap().template.clone().unwrap();
    let labels = Node::decode(template).unwrap().metadata.unwrap().labels;
    assert!(!labels.contains_key("topology.kubernetes.io/zone"), "{labels:?}");
}

#[test]
fn a_machine_pools_template_takes_the_labels_on_which_its_nodes_agree() {
    let pool = |nodes: &[&str]| {
        let mut more = capacity_annotations("4", "16Gi");
        let nodes: Vec<_> = nodes.iter().map(|name| json!({"name": name})).collect();
        merge(&mut more, &json!({"status": {"nodeRefs": nodes}}));
        scalable(ScalableKind::MachinePool, "pool", 2, ("0", "3"), &more)
    };
    let in_zone =
        |name: &str, zone: &str| node(name, &json!({"metadata": {"labels": {"topology.kubernetes.io/zone": zone}}}));
    let zone = |index: &Index| {
        let bytes = index.served(&id("MachinePool/team-a/pool")).unwrap().template.clone().unwrap();
        Node::decode(bytes).unwrap().metadata.unwrap().labels.get("topology.kubernetes.io/zone").cloned()
    };
    let index = index([pool(&["a", "b"]), in_zone("b", "zone-b")]);
    assert_eq!(zone(&index).as_deref(), Some("zone-b"), "of those that are known");
    index.apply_quietly(in_zone("a", "zone-a"));
    assert_eq!(zone(&index), None);
    index.apply_quietly(pool(&["b"]));
    assert_eq!(zone(&index), None, "the next Node may be in either");
}

#[test]
fn an_own_write_is_answered_at_once_and_until_the_watch_has_caught_up() {
    let index = index(workers());
    index.set_written(&id(WORKERS), written(&index, WORKERS, 7, "5"));
    assert_eq!(index.target_size(&id(WORKERS)), Some(7));
    assert_eq!(instance_ids(&index, WORKERS).len(), 7);
    index.apply_quietly(deployment("workers", 4, ("1", "10"), &json!({})));
    assert_eq!(index.target_size(&id(WORKERS)), Some(7), "that event was older than the write");
}

#[test]
fn a_size_beyond_all_reason_gives_a_bounded_answer() {
    let index = index([deployment("workers", i32::MAX, ("0", "10"), &json!({}))]);
    assert_eq!(index.instances(&id(WORKERS)).unwrap().len(), 10_000);
    assert_eq!(index.target_size(&id(WORKERS)), Some(i32::MAX));
}

#[test]
fn deleting_machines_take_the_place_of_a_placeholder_until_their_nodes_are_gone() {
    let mut changes = workers();
    changes.push(machine(
        "MachineSet/workers-1",
        "b",
        &json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}, "status": {"nodeRef": {"name": "b"}}}),
    ));
    let index = index(changes);
    let instances = index.instances(&id(WORKERS)).unwrap();
    assert_eq!(instances.len(), 4);
    assert_eq!(instances.iter().filter(|instance| instance.state == InstanceState::Deleting).count(), 1);
    let view = index.scale_view(&id(WORKERS)).unwrap();
    assert_eq!((view.version.replicas, view.machines, view.machines_with_node), (4, 3, 1));
}

#[test]
fn texts_are_shared_with_the_objects() {
    let index = index(workers());
    let first = index.groups();
    let second = index.groups();
    assert!(Arc::ptr_eq(&first, &second));
    index.refresh();
    assert!(Arc::ptr_eq(&first, &index.groups()), "nothing changed, so nothing is pinned anew");
}
