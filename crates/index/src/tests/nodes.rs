//! Tests of the resolution of a Node, as Cluster Autoscaler describes it, to its group: one rule per test.

use rstest::rstest;
use rules::capi::ScalableKind;
use serde_json::json;

use super::objects::*;

#[rstest]
#[case::whole_provider_id("cloud:///zone/a", "a")]
#[case::tail_of_the_provider_id_where_it_is_unambiguous("cloud:////other-form/a", "a")]
#[case::pending_placeholder("pending-machine-team-a_c", "pending-machine-team-a_c")]
#[case::replica_placeholder("replica-MachineDeployment-team-a_workers-0", "replica-MachineDeployment-team-a_workers-0")]
#[case::template_node("", "template-node-for-MachineDeployment/team-a/workers-5577006791947779410")]
#[case::template_node_of_a_real_node(
    "cloud:///zone/a",
    "template-node-for-MachineDeployment/team-a/workers-1-upcoming-0"
)]
fn a_node_leads_to_its_group(#[case] provider_id: &str, #[case] name: &str) {
    assert_eq!(group_of(&index(workers()), provider_id, name).as_deref(), Some(WORKERS));
}

#[rstest]
#[case::unknown_node("cloud:///zone/z", "z")]
#[case::no_provider_id("", "a")]
#[case::placeholder_of_an_unknown_machine("pending-machine-team-a_z", "pending-machine-team-a_z")]
#[case::placeholder_of_an_unknown_group("replica-MachineDeployment-team-a_other-0", "x")]
#[case::template_of_an_unknown_group("", "template-node-for-MachineDeployment/team-a/other-1")]
fn a_node_of_no_group_leads_nowhere(#[case] provider_id: &str, #[case] name: &str) {
    assert_eq!(group_of(&index(workers()), provider_id, name), None);
}

#[test]
fn a_node_without_provider_id_leads_by_its_annotations() {
    let annotations = [("cluster.x-k8s.io/machine", "c"), ("cluster.x-k8s.io/cluster-namespace", "team-a")];
    assert_eq!(group_with(&index(workers()), "", "c", &annotations).as_deref(), Some(WORKERS));
    assert_eq!(group_with(&index(workers()), "", "c", &annotations[..1]), None);
}

#[test]
fn a_tail_that_two_machines_share_leads_nowhere() {
    let mut changes = workers();
    changes.push(machine("MachineSet/workers-1", "d", &json!({"spec": {"providerID": "cloud:///elsewhere/a"}})));
    let index = index(changes);
    assert_eq!(group_of(&index, "cloud:////other-form/a", "a"), None);
    assert_eq!(group_of(&index, "cloud:///zone/a", "a").as_deref(), Some(WORKERS));
}

#[rstest]
#[case::one_pool_that_lists_it_twice(&[("pool", "a:///1/x b:///2/x")], Some("MachinePool/team-a/pool"))]
#[case::two_pools(&[("pool", "a:///1/x"), ("other", "b:///2/x")], None)]
fn a_tail_leads_to_the_one_machine_pool_that_has_it(#[case] pools: &[(&str, &str)], #[case] group: Option<&str>) {
    let pool = |(name, ids): &(&str, &str)| {
        let ids: Vec<_> = ids.split(' ').collect();
        scalable(ScalableKind::MachinePool, name, 2, ("0", "9"), &json!({"spec": {"providerIDList": ids}}))
    };
    let index = index(pools.iter().map(pool));
    assert_eq!(group_of(&index, "c:///3/x", "x").as_deref(), group);
    assert_eq!(group_of(&index, "a:///1/x", "x").as_deref(), Some("MachinePool/team-a/pool"));
}

#[test]
fn a_tail_that_a_machine_and_another_groups_pool_share_leads_nowhere() {
    let mut changes = workers();
    let more = json!({"spec": {"providerIDList": ["cloud:///elsewhere/a"]}});
    changes.push(scalable(ScalableKind::MachinePool, "pool", 1, ("0", "9"), &more));
    assert_eq!(group_of(&index(changes), "cloud:////other-form/a", "a"), None);
}

/// Machine `a` of group `workers` and Machine `z` of group `others` have one providerID.
#[rstest]
#[case::the_one_whose_node_it_is("z-node", &[], Some("MachineDeployment/team-a/others"))]
#[case::the_one_its_annotations_name("x", &[("cluster.x-k8s.io/machine", "z"), ("cluster.x-k8s.io/cluster-namespace", "team-a")],
    Some("MachineDeployment/team-a/others"))]
#[case::nobody_can_know("x", &[], None)]
fn of_two_machines_with_one_provider_id(#[case] name: &str, #[case] by: &[(&str, &str)], #[case] group: Option<&str>) {
    let mut changes = workers();
    let more = json!({"spec": {"providerID": "cloud:///zone/a"}, "status": {"nodeRef": {"name": "z-node"}}});
    changes.push(deployment("others", 1, ("1", "10"), &json!({})));
    changes.push(set_of("others", "others-1"));
    changes.push(machine("MachineSet/others-1", "z", &more));
    assert_eq!(group_with(&index(changes), "cloud:///zone/a", name, by).as_deref(), group);
}
