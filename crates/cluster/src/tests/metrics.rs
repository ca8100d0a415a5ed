//! Tests of the metrics of a followed cluster.

use std::sync::Arc;

use prometheus_client::{encoding::text::encode, registry::Registry};
use serde_json::json;

use super::{World, fake::*, scalable};
use crate::InformerMetrics;
use index::{GroupMetrics, GroupSeries};
use service::listen::ReadinessMetrics;

/// Returns the metrics of informers, checks and node groups.
pub(super) fn metrics_of(world: &World) -> String {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(InformerMetrics::new(world.fleet.clone())));
    registry.register_collector(Box::new(ReadinessMetrics::new(Arc::new(world.fleet.clone()))));
    let index = Arc::clone(world.workload.index());
    registry.register_collector(Box::new(GroupMetrics::new(index, GroupSeries::Each)));
    let mut text = String::new();
    encode(&mut text, &registry).unwrap();
    text
}

#[tokio::test(start_paused = true)]
async fn metrics_show_what_is_held_what_is_broken_and_which_group_has_a_problem() {
    let api = FakeApi::with_capi();
    api.put("machinedeployments", "broken", &scalable(&json!({"spec": {"replicas": "three"}})));
    api.put("machinedeployments", "workers", &scalable(&json!({})));
    api.refuse("nodes", 403, "forbidden");
    let world = World::new(&api);
    world.until("all but the Nodes", |world| world.problem() == "workload/nodes: forbidden: forbidden").await;
    let text = metrics_of(&world);
    let deployments =
        "cluster=\"management\",resource=\"machinedeployments.cluster.x-k8s.io/v1beta2\",namespaces=\"all namespaces\"";
    let nodes = "cluster=\"workload\",resource=\"nodes/v1\",namespaces=\"all namespaces\"";
    for line in [
        format!("informer_objects{{{deployments}}} 2"),
        format!("informer_undecodable_objects{{{deployments}}} 1"),
        format!("informer_synced{{{deployments}}} 1"),
        format!("informer_synced{{{nodes}}} 0"),
        format!("informer_decode_errors_total{{{deployments}}} 1"),
        format!("informer_left_out_total{{{deployments}}} 0"),
        format!("informer_streamed_lists_total{{{deployments}}} 0"),
        format!("informer_handler_panics_total{{{deployments}}} 0"),
        format!("informer_last_list_seconds{{{deployments}}} 0"),
        format!("informer_handler_queue{{{deployments},handler=\"index\"}} 0"),
        format!("informer_lists_total{{{deployments},cause=\"first\"}} 1"),
        "node_group_objects{state=\"served\"} 1".to_owned(),
        "node_group_objects{state=\"undecodable\"} 1".to_owned(),
        "node_group_problem{group=\"MachineDeployment/team-a/broken\",state=\"undecodable\",problem=\"undecodable\"} 1"
            .to_owned(),
        "machines 0".to_owned(),
    ] {
        assert!(text.lines().any(|it| it == line), "{line} isn't in {text}");
    }
    let never = format!("informer_last_list_seconds{{{nodes}}}");
    assert!(!text.contains(&never), "what never was has no age");
    world.shutdown().await;
}
