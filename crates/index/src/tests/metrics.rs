//! Tests of the node groups' metrics, with an index built by hand.

use std::sync::Arc;

use prometheus_client::{encoding::text::encode, registry::Registry};
use rstest::rstest;
use rules::capi::ObjectKey;
use serde_json::{Value, json};

use super::objects::*;
use crate::{Change, GroupMetrics, GroupSeries, Index, Memory, MemoryMetrics};

fn text(index: Index, series: GroupSeries) -> String {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(GroupMetrics::new(Arc::new(index), series)));
    let mut text = String::new();
    encode(&mut text, &registry).unwrap();
    text
}

fn assert_lines(text: &str, lines: &[&str]) {
    for line in lines {
        assert!(text.lines().any(|it| it == *line), "{line} isn't in {text}");
    }
}

#[test]
fn a_group_is_reported_with_its_size_bounds_and_instances() {
    let failed = json!({"status": {"phase": "Failed", "deprecated": {"v1beta1": {"failureReason": "CreateError", "failureMessage": "no"}}}});
    let changes = workers().into_iter().chain([
        machine("MachineSet/workers-1", "d", &failed),
        machine("MachineSet/workers-1", "e", &json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}})),
    ]);
    let text = text(index(changes), GroupSeries::Each);
    assert_lines(
        &text,
        &[
            "node_group_size{group=\"MachineDeployment/team-a/workers\"} 4",
            "node_group_min_size{group=\"MachineDeployment/team-a/workers\"} 1",
            "node_group_max_size{group=\"MachineDeployment/team-a/workers\"} 10",
            "node_group_instances{group=\"MachineDeployment/team-a/workers\",state=\"running\"} 2",
            "node_group_instances{group=\"MachineDeployment/team-a/workers\",state=\"creating\"} 2",
            "node_group_instances{group=\"MachineDeployment/team-a/workers\",state=\"deleting\"} 1",
            "node_group_failed_instances{group=\"MachineDeployment/team-a/workers\"} 1",
            "node_group_template_source{group=\"MachineDeployment/team-a/workers\",source=\"annotation\"} 1",
        ],
    );
}

#[test]
fn sums_are_over_all_groups() {
    let changes = workers().into_iter().chain([
        deployment("more", 3, ("2", "5"), &json!({})),
        deployment("wrong", 1, ("five", "10"), &json!({})),
        deployment("outside", 7, ("0", "5"), &json!({})),
    ]);
    let text = text(index(changes), GroupSeries::Each);
    assert_lines(
        &text,
        &[
            "node_groups_size 14",
            "node_groups_min_size 3",
            "node_groups_max_size 20",
            "instances{state=\"running\"} 2",
            "instances{state=\"creating\"} 12",
            "instances{state=\"deleting\"} 0",
            "failed_instances 0",
            "node_groups_by_template_source{source=\"annotation\"} 1",
            "node_groups_by_template_source{source=\"none\"} 2",
            "node_group_objects{state=\"served\"} 3",
            "node_groups_with_problem{state=\"invalid_bounds\",problem=\"bounds\"} 1",
            "node_group_problem{group=\"MachineDeployment/team-a/wrong\",state=\"invalid_bounds\",problem=\"bounds\"} 1",
            "node_groups_outside_bounds{bound=\"max\"} 1",
        ],
    );
}

/// Returns the group `workers` with a Machine that became Node `a`, whose resources are known.
fn learned_from_a_node() -> Vec<Change> {
    let shown = json!({"status": {
        "conditions": [{"type": "Ready", "status": "True"}],
        "capacity": {"cpu": "2", "memory": "7Gi"}, "allocatable": {"cpu": "2", "memory": "6Gi"},
    }});
    let set = set_of_with("workers", "workers-1", &using_template("small"));
    vec![workers_with(&using_template("small")), set, joined("MachineSet/workers-1", "a"), node("a", &shown)]
}

fn workers_with(more: &Value) -> Change {
    deployment("workers", 1, ("0", "9"), more)
}

#[rstest]
#[case::annotations(vec![workers_with(&capacity_annotations("4", "16Gi"))], "annotation")]
#[case::the_infrastructure_template(vec![workers_with(&using_template("small"))], "status.capacity")]
#[case::a_real_node(learned_from_a_node(), "learned")]
#[case::nothing(vec![workers_with(&json!({}))], "none")]
fn a_template_has_its_cpu_and_memory_from(#[case] changes: Vec<Change>, #[case] source: &str) {
    let capacity = template("small", &json!({"cpu": "2", "memory": "8Gi"}));
    let text = text(index(changes.into_iter().chain([capacity])), GroupSeries::Each);
    let line = format!("node_group_template_source{{group=\"{WORKERS}\",source=\"{source}\"}} 1");
    assert_lines(&text, &[&line, &format!("node_groups_by_template_source{{source=\"{source}\"}} 1")]);
}

/// Of two groups without Nodes, one has another's remembered Node.
#[test]
fn remembered_nodes_and_the_groups_that_live_by_them_are_counted() {
    let config_map = ObjectKey::new("capi", "remembered-nodes");
    let memory = Arc::new(Memory::new(std::slice::from_ref(&config_map)));
    memory.set_content(&config_map, "1", [("README", "hello")]);
    let (using, nothing) = (using_template("small"), template("small", &json!({})));
    let sister = [deployment("sister", 0, ("0", "9"), &using), deployment("other", 1, ("0", "9"), &json!({}))];
    let index = Index::new(rules()).remembering(Some(Arc::clone(&memory)));
    apply(&index, std::iter::once(nothing).chain(learned_from_a_node()).chain(sister));
    assert_lines(
        &text(index, GroupSeries::SumsOnly),
        &["node_groups_from_zero{by=\"remembered\"} 2", "node_groups_from_zero{by=\"none\"} 1"],
    );
    let mut registry = Registry::default();
    registry.register_collector(Box::new(MemoryMetrics::new(Some(memory))));
    let mut text = String::new();
    encode(&mut text, &registry).unwrap();
    assert_lines(&text, &["remembered_nodes 1", "remembered_nodes_set_aside 1"]);
}

fn fleet(groups: usize) -> Index {
    index((0..groups).flat_map(|number| {
        let name = format!("production-eu-central-1a-general-purpose-{number:04}");
        let set = format!("{name}-abcde");
        let machine_name = format!("{set}-fghij");
        [
            deployment(&name, 3, ("1", "100"), &capacity_annotations("8", "32Gi")),
            set_of(&name, &set),
            joined(&format!("MachineSet/{set}"), &machine_name),
        ]
    }))
}

/// The program's other metrics don't grow with the fleet, and take some 60 KB.
#[test]
fn a_fleet_of_1000_groups_takes_less_than_2_mb_and_its_sums_alone_next_to_nothing() {
    let each = text(fleet(1_000), GroupSeries::Each);
    assert_eq!(each.matches("node_group_size{").count(), 1_000);
    assert!(each.len() < 1_500_000, "{} bytes", each.len());
    let sums = text(fleet(1_000), GroupSeries::SumsOnly);
    assert!(!sums.contains("group=\""), "{sums}");
    assert_lines(&sums, &["node_groups_size 3000", "node_group_objects{state=\"served\"} 1000"]);
    assert!(sums.len() < 10_000, "{} bytes", sums.len());
}
