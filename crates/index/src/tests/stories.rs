//! Tests of what becomes of a group as its objects change. What makes an object a group is tested in `rules`.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use k8s_pb::api::core::v1::Node;
use prost::Message;
use rstest::rstest;
use rules::capi::{ObjectKey, PRICE_PER_HOUR, ScalableKind};
use rules::{Bounds, Exclusion, GroupId, Instance, ProblemKind, Rules, Scope, ScopeSpec, group_version::NotScalable};
use serde_json::json;
use tokio::time::advance;

use super::objects::*;
use crate::{Change, Detail, GroupSnapshot, Index, KindState};

fn group_ids(index: &Index) -> Vec<String> {
    index.groups().iter().map(|group| group.text.to_string()).collect()
}

fn instance_ids(index: &Index, group: &str) -> Vec<String> {
    index.instances(&id(group)).unwrap().into_iter().map(|instance| instance.id).collect()
}

/// Returns the Node of a group's template.
fn template_of_group(index: &Index, group: &str) -> Node {
    Node::decode(index.served(&id(group)).unwrap().template.clone().unwrap()).unwrap()
}

#[test]
fn a_group_has_the_machines_of_all_its_machine_sets_and_a_placeholder_for_each_other_replica() {
    let mut changes = workers();
    changes.extend([set_of("workers", "workers-2"), joined("MachineSet/workers-2", "d")]);
    changes[0] = deployment("workers", 5, ("1", "10"), &capacity_annotations("4", "16Gi"));
    let index = index(changes);
    assert_eq!(
        instance_ids(&index, WORKERS),
        [
            "cloud:///zone/a",
            "cloud:///zone/b",
            "pending-machine-team-a_c",
            "cloud:///zone/d",
            "replica-MachineDeployment-team-a_workers-0",
        ]
    );
    assert_eq!(group_of(&index, "cloud:///zone/d", "d").as_deref(), Some(WORKERS));
    assert_eq!((index.target_size(&id(WORKERS)), index.groups()[0].bounds), (Some(5), Bounds { min: 1, max: 10 }));
    assert_eq!(group_ids(&index), [WORKERS], "a MachineSet of a MachineDeployment is no group");
    let view = index.scale_view(&id(WORKERS)).unwrap();
    assert_eq!((view.version.replicas, view.machines_with_node), (5, 3));
}

#[test]
fn a_machine_set_without_deployment_is_a_group() {
    let set = scalable(ScalableKind::MachineSet, "alone", 1, ("0", "3"), &json!({}));
    let index = index([set, joined("MachineSet/alone", "a")]);
    assert_eq!(group_ids(&index), ["MachineSet/team-a/alone"]);
    assert_eq!(group_of(&index, "cloud:///zone/a", "a").as_deref(), Some("MachineSet/team-a/alone"));
}

#[test]
fn a_machine_pools_instances_are_its_provider_ids() {
    let more = json!({"spec": {"providerIDList": ["cloud:///zone/a", "cloud:///zone/b"]}});
    let index = index([scalable(ScalableKind::MachinePool, "pool", 3, ("0", "3"), &more)]);
    let group = "MachinePool/team-a/pool";
    let ids = ["cloud:///zone/a", "cloud:///zone/b", "replica-MachinePool-team-a_pool-0"];
    assert_eq!(instance_ids(&index, group), ids);
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
    let index = index(workers());
    let wrong = |min: &str| deployment("wrong", 1, (min, "10"), &json!({}));
    let reported = index.apply_and_take_notices(wrong("five"));
    assert_eq!((reported.len(), reported[0].problems[0].kind), (1, ProblemKind::Bounds));
    assert_eq!(index.apply_and_take_notices(wrong("five")), [], "once per change");
    index.refresh();
    assert_eq!(group_ids(&index), [WORKERS]);
    let problems = index.stats().problems;
    assert_eq!((problems.len(), problems[0].group.as_str()), (1, "MachineDeployment/team-a/wrong"));
    assert_eq!(problems[0].problem, ProblemKind::Bounds.as_str());
    assert_eq!(index.apply_and_take_notices(wrong("5"))[0].excluded, None);
}

#[test]
fn an_undecodable_group_is_left_out_until_it_decodes_again() {
    let never_decoded = index([Change::ScalableUndecodable(id(WORKERS), "spec: broken".into())]);
    assert_eq!(never_decoded.stats().problems[0].problem, ProblemKind::Undecodable.as_str());
    let index = index(workers());
    let reported =
        index.apply_and_take_notices(Change::ScalableUndecodable(id(WORKERS), "replicas: not a number".into()));
    assert!(reported[0].problems[0].message.contains("replicas: not a number"), "{reported:?}");
    index.refresh();
    assert!(index.groups().is_empty());
    assert_eq!(index.stats().problems[0].problem, ProblemKind::Undecodable.as_str());
    apply(&index, workers());
    index.refresh();
    assert_eq!(group_ids(&index), [WORKERS]);
}

#[test]
fn a_machine_set_that_does_not_decode_any_more_keeps_its_machines_in_their_group() {
    let index = index(workers());
    let before = instance_ids(&index, WORKERS);
    let set = GroupId::new(ScalableKind::MachineSet, ObjectKey::new(NAMESPACE, "workers-1"));
    index.apply_and_take_notices(Change::ScalableUndecodable(set.clone(), "replicas: not a number".into()));
    index.refresh();
    assert_eq!(instance_ids(&index, WORKERS), before, "no Machine has become a replica that never came");
    assert_eq!(group_of(&index, "cloud:///zone/a", "a").as_deref(), Some(WORKERS));
    index.apply_and_take_notices(Change::ScalableGone(set));
    assert_eq!(group_of(&index, "cloud:///zone/a", "a"), None);
}

#[test]
fn membership_and_bounds_are_pinned_by_refresh_and_commands_see_the_live_ones() {
    let index = Index::new(rules());
    apply(&index, workers());
    assert_eq!(group_of(&index, "cloud:///zone/a", "a"), None);
    assert_eq!(group_ids(&index), [WORKERS], "asking for the groups pins them the first time");
    let pinned = index.groups();
    index.apply_and_take_notices(deployment("workers", 4, ("2", "20"), &json!({})));
    let later =
        [deployment("later", 1, ("1", "2"), &json!({})), set_of("later", "later-1"), joined("MachineSet/later-1", "x")];
    apply(&index, later);
    assert!(Arc::ptr_eq(&pinned, &index.groups()));
    assert_eq!(pinned[0].bounds, Bounds { min: 1, max: 10 });
    assert_eq!(index.scale_view(&id(WORKERS)).unwrap().bounds, Bounds { min: 2, max: 20 });
    assert_eq!(group_of(&index, "cloud:///zone/x", "x"), None, "its group isn't in the last NodeGroups answer");
    index.refresh();
    assert_eq!(group_ids(&index), ["MachineDeployment/team-a/later", WORKERS]);
    assert_eq!(index.groups()[1].bounds, Bounds { min: 2, max: 20 });
    assert_eq!(group_of(&index, "cloud:///zone/x", "x").as_deref(), Some("MachineDeployment/team-a/later"));
    let pinned = index.groups();
    index.refresh();
    assert!(Arc::ptr_eq(&pinned, &index.groups()), "nothing changed, so nothing is pinned anew");
}

#[rstest]
#[case::invalid(deployment("workers", 4, ("x", "10"), &json!({})))]
#[case::undecodable(Change::ScalableUndecodable(id(WORKERS), "spec: broken".into()))]
#[case::deleted(Change::ScalableGone(id(WORKERS)))]
#[case::cluster_paused(cluster("stage", true))]
fn a_group_that_vanishes_answers_its_last_values_until_the_next_refresh(#[case] vanishes: Change) {
    let index = index(workers());
    index.apply_and_take_notices(vanishes);
    assert_eq!(index.target_size(&id(WORKERS)), Some(4));
    assert!(instance_ids(&index, WORKERS).contains(&"cloud:///zone/a".to_owned()));
    assert!(index.served(&id(WORKERS)).unwrap().template.is_some());
    assert_eq!(group_of(&index, "cloud:///zone/a", "a").as_deref(), Some(WORKERS));
    assert!(matches!(index.scale_view(&id(WORKERS)), Err(NotScalable::Excluded(_))), "a command is refused");
    index.refresh();
    assert_eq!((index.target_size(&id(WORKERS)), index.instances(&id(WORKERS))), (None, None));
    assert_eq!(group_of(&index, "cloud:///zone/a", "a"), None);
    assert_eq!(index.scale_view(&id(WORKERS)), Err(NotScalable::Unknown));
}

#[test]
fn a_group_scales_from_zero_once_its_template_is_known() {
    let index = index([]);
    let reported = index.apply_and_take_notices(deployment("workers", 0, ("0", "10"), &using_template("small")));
    assert_eq!(reported[0].excluded, Some(Exclusion::WaitingForTemplate));
    assert_eq!(index.wanted_kinds().keys().collect::<Vec<_>>(), [&kind()]);
    let reported = index.apply_and_take_notices(Change::Kind(kind(), KindState::Synced));
    assert_eq!(reported[0].excluded, Some(Exclusion::NoScaleFromZero), "all templates are known now");
    assert_eq!(reported[0].problems[0].kind, ProblemKind::Template);
    index.apply_and_take_notices(template("small", &json!({"cpu": 2, "memory": "4Gi"})));
    let capacity = template_of_group(&index, WORKERS).status.unwrap().capacity;
    assert_eq!(["cpu", "memory"].map(|it| capacity[it].string.as_deref()), [Some("2"), Some("4Gi")]);
    index.apply_and_take_notices(Change::Kind(kind(), KindState::Unreadable("forbidden".into())));
    index.refresh();
    assert_eq!(group_ids(&index), [WORKERS], "what was read once stays");
    assert_eq!(index.served(&id(WORKERS)).unwrap().definition.problems, []);
}

#[rstest]
#[case::missing(KindState::Synced, "doesn't exist")]
#[case::forbidden(KindState::Unreadable("forbidden".into()), "forbidden")]
fn a_template_that_cannot_be_read_is_a_problem_and_the_annotations_serve(#[case] state: KindState, #[case] why: &str) {
    let mut group = using_template("small");
    merge(&mut group, &capacity_annotations("1", "1Gi"));
    let index = index([deployment("workers", 0, ("0", "10"), &group), Change::Kind(kind(), state)]);
    let problem = &index.served(&id(WORKERS)).unwrap().definition.problems[0];
    assert_eq!(problem.kind, ProblemKind::Template);
    assert!(problem.message.contains(why), "{problem}");
}

#[rstest]
#[case::by_a_group_that_is_paused(&[cluster("stage", true), deployment("workers", 1, ("0", "10"), &using_template("t"))], true)]
#[case::by_none_that_may_not_grow(&[deployment("workers", 1, ("0", "0"), &using_template("t"))], false)]
#[case::by_none_of_wrong_bounds(&[deployment("workers", 1, ("3", "2"), &using_template("t"))], false)]
#[case::by_none_out_of_scope(&[deployment("workers", 1, ("0", "9"), &{
    let mut elsewhere = using_template("t");
    merge(&mut elsewhere, &json!({"spec": {"clusterName": "another"}}));
    elsewhere
})], false)]
fn a_kind_of_template_is_wanted(#[case] changes: &[Change], #[case] expected: bool) {
    let scope = Scope::Specs(vec![ScopeSpec::cluster(NAMESPACE, "stage")]);
    let index = Index::new(Rules { scope, ..rules() });
    apply(&index, changes.iter().cloned());
    assert_eq!(index.wanted_kinds().contains_key(&kind()), expected);
}

#[rstest]
#[case::within(4, ("1", "10"), &[])]
#[case::at_the_bounds(4, ("4", "4"), &[])]
#[case::below_the_minimum(1, ("3", "10"), &[("min", 2)])]
#[case::above_the_maximum(12, ("3", "10"), &[("max", 2)])]
fn a_size_outside_the_bounds_is_answered_as_it_is_and_warned_of(
    #[case] replicas: i32,
    #[case] bounds: (&str, &str),
    #[case] expected: &[(&str, u64)],
) {
    let index = index([deployment("workers", replicas, bounds, &json!({}))]);
    assert_eq!(index.target_size(&id(WORKERS)), Some(replicas));
    let outside: Vec<_> = index.stats().outside_bounds.into_iter().map(|it| (it.bound, it.by)).collect();
    assert_eq!(outside, expected);
}

// A copy of the index for displays.

fn instances(group: &GroupSnapshot) -> Vec<Instance> {
    group.instances(true).unwrap().map(|owned| owned.instance).collect()
}

#[test]
fn a_copy_has_the_instances_and_sizes_that_are_answered() {
    let pool = json!({"spec": {"providerIDList": ["cloud:///zone/p1", "cloud:///zone/p2"]}});
    let changes = workers().into_iter().chain([
        scalable(ScalableKind::MachinePool, "pool", 3, ("0", "9"), &pool),
        deployment("empty", 0, ("0", "3"), &capacity_annotations("1", "1Gi")),
        // It has no providerID of its own, and gets its Node's.
        machine("MachineSet/workers-1", "d", &json!({"status": {"nodeRef": {"name": "d"}}})),
        node("d", &json!({})),
    ]);
    let index = index(changes);
    index.set_known_version(&id(WORKERS), written(&index, WORKERS, 6, "2"));
    let snapshot = index.snapshot(None, Detail::Instances);
    assert_eq!((snapshot.machines, snapshot.nodes), (4, 3));
    let groups: BTreeMap<_, _> = snapshot.groups.into_iter().map(|it| (it.id.to_string(), it)).collect();
    for text in [WORKERS, "MachinePool/team-a/pool", "MachineDeployment/team-a/empty"] {
        let group = &groups[text];
        assert!(group.standing.is_ok() && group.pinned, "{text}");
        assert_eq!(Some(group.size), index.target_size(&id(text)), "{text}");
        assert_eq!(Some(instances(group)), index.instances(&id(text)), "{text}");
    }
    let workers = &groups[WORKERS];
    let machines: Vec<_> = workers.instances(true).unwrap().map(|owned| owned.machine.unwrap_or_default()).collect();
    assert_eq!(machines, ["a", "b", "c", "d", "", ""]);
    assert_eq!((workers.size, workers.written.map(|written| written.replicas)), (6, Some(6)));
    assert_eq!(workers.object.as_ref().and_then(|object| object.replicas), Some(4));
    let set = &groups["MachineSet/team-a/workers-1"];
    assert!(set.standing.is_err());
    assert_eq!(instances(set), [], "they are shown by the MachineDeployment");
}

#[test]
fn a_group_that_turned_invalid_is_shown_with_its_problem_and_stays_pinned_until_a_refresh() {
    let index = index(workers());
    index.apply_and_take_notices(deployment("workers", 4, ("many", "10"), &json!({})));
    let shown = || index.snapshot(Some(&id(WORKERS)), Detail::Instances).groups.remove(0);
    let left_out = shown();
    assert!(matches!(&left_out.standing, Err(excluded) if excluded.problems.len() == 1));
    assert!(left_out.pinned);
    index.refresh();
    assert!(!shown().pinned);
    assert_eq!(index.snapshot(Some(&id("MachineDeployment/team-a/other")), Detail::Instances).groups.len(), 0);
}

// Deleted groups, on a copy of the program that gets no Refresh.

const MINUTE: Duration = Duration::from_secs(60);

fn priced(name: &str) -> Change {
    let mut more = capacity_annotations("4", "16Gi");
    merge(&mut more, &json!({"metadata": {"annotations": {PRICE_PER_HOUR: "1"}}}));
    deployment(name, 1, ("1", "10"), &more)
}

/// Applies an unrelated change.
fn something_happens(index: &Index) {
    index.apply_and_take_notices(Change::NodeGone("elsewhere".into()));
}

#[rstest]
#[case::that_was_never_asked(false)]
#[case::that_was_asked_once(true)]
#[tokio::test(start_paused = true)]
async fn a_group_is_kept_for_15_minutes_after_it_is_gone(#[case] is_pinned: bool) {
    let index = Index::new(rules());
    index.apply_and_take_notices(priced("workers"));
    if is_pinned {
        index.refresh();
    }
    index.apply_and_take_notices(Change::ScalableGone(id(WORKERS)));
    advance(14 * MINUTE).await;
    // The deletion is reported a second time.
    index.apply_and_take_notices(Change::ScalableGone(id(WORKERS)));
    assert!(index.served(&id(WORKERS)).is_some());
    assert_eq!(index.target_size(&id(WORKERS)), Some(1));
    advance(MINUTE).await;
    something_happens(&index);
    assert!(index.served(&id(WORKERS)).is_none(), "it is kept for ever");
    assert_eq!((index.target_size(&id(WORKERS)), index.instances(&id(WORKERS))), (None, None));
    assert_eq!(index.stats().priced, 0);
    assert_eq!(index.inner.read().live.leftovers(), Vec::<&str>::new());
}

#[tokio::test(start_paused = true)]
async fn a_group_that_was_made_anew_stays() {
    let index = Index::new(rules());
    index.apply_and_take_notices(priced("workers"));
    index.apply_and_take_notices(Change::ScalableGone(id(WORKERS)));
    advance(14 * MINUTE).await;
    index.apply_and_take_notices(priced("workers"));
    advance(2 * MINUTE).await;
    something_happens(&index);
    assert!(index.served(&id(WORKERS)).is_some());
    index.apply_and_take_notices(Change::ScalableGone(id(WORKERS)));
    advance(14 * MINUTE).await;
    something_happens(&index);
    assert!(index.served(&id(WORKERS)).is_some(), "its time begins anew");
    assert_eq!(index.stats().priced, 1);
}

/// NodeGroupForNode never returns a group that the pinned list lacks.
#[tokio::test(start_paused = true)]
async fn the_pinned_list_stays_as_it_is_until_the_next_refresh() {
    let index = index(workers());
    index.apply_and_take_notices(Change::ScalableGone(id(WORKERS)));
    advance(16 * MINUTE).await;
    something_happens(&index);
    let named = |index: &Index| {
        [("a", "cloud:///zone/a"), ("x", "replica-MachineDeployment-team-a_workers-0")]
            .map(|(name, provider_id)| group_of(index, provider_id, name))
    };
    assert_eq!(index.groups().len(), 1);
    assert_eq!(named(&index), [Some(WORKERS.to_owned()), None]);
    index.apply_and_take_notices(deployment("workers", 1, ("1", "10"), &json!({})));
    assert_eq!(named(&index)[1], Some(WORKERS.to_owned()), "it is pinned still");
    index.apply_and_take_notices(Change::ScalableGone(id(WORKERS)));
    advance(16 * MINUTE).await;
    something_happens(&index);
    index.refresh();
    assert_eq!((index.groups().len(), named(&index)), (0, [None, None]));
}
