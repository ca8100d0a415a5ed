//! Tests of `--read-only`: every call is answered, and nothing is written.

use std::time::Duration;

use proto::{ExternalGrpcNode, NodeGroupAutoscalingOptions};
use testkit::get;
use tonic::Code;

use super::world::{GROUP, Start, World};

const LONG: Duration = Duration::from_secs(30);

/// Returns the writes to either cluster, except those of the controllers, which use no HTTP.
fn writes(world: &World) -> Vec<String> {
    let servers = [world.sandbox.management(), world.sandbox.workload()];
    let requests = servers.iter().flat_map(|server| server.requests().all());
    let writes = requests.filter(|request| !matches!(request.verb, "get" | "list" | "watch"));
    writes.map(|request| format!("{} {}", request.verb, request.path)).collect()
}

/// Makes every call of the protocol.
async fn call_all(world: &World, copy: usize) {
    let mut client = world.client(copy);
    let node: ExternalGrpcNode = world.nodes().remove(0);
    let id = GROUP.to_owned();
    client.refresh(proto::RefreshRequest {}).await.unwrap();
    assert_eq!(client.node_groups(proto::NodeGroupsRequest {}).await.unwrap().into_inner().node_groups.len(), 1);
    let request = proto::NodeGroupForNodeRequest { node: Some(node.clone()) };
    client.node_group_for_node(request).await.unwrap();
    assert_eq!(world.target_size(copy).await, 3);
    let request = proto::NodeGroupNodesRequest { id: id.clone() };
    assert_eq!(client.node_group_nodes(request).await.unwrap().into_inner().instances.len(), 3);
    client.node_group_template_node_info(proto::NodeGroupTemplateNodeInfoRequest { id: id.clone() }).await.unwrap();
    client.gpu_label(proto::GpuLabelRequest {}).await.unwrap();
    client.get_available_gpu_types(proto::GetAvailableGpuTypesRequest {}).await.unwrap();
    client.cleanup(proto::CleanupRequest {}).await.unwrap();
    // Without prices these two return an error.
    let price = proto::PricingNodePriceRequest { node: Some(node.clone()), ..Default::default() };
    client.pricing_node_price(price).await.unwrap_err();
    client.pricing_pod_price(proto::PricingPodPriceRequest::default()).await.unwrap_err();

    let defaults = NodeGroupAutoscalingOptions { scale_down_utilization_threshold: 0.5, ..Default::default() };
    let request = proto::NodeGroupAutoscalingOptionsRequest { id, defaults: Some(defaults) };
    let options = client.node_group_get_options(request).await.unwrap().into_inner();
    let threshold = options.node_group_autoscaling_options.unwrap().scale_down_utilization_threshold;
    assert!(threshold < 0.0, "no Node is chosen, and so none is drained: {threshold}");

    let refused = world.increase(copy, 2, LONG).await.unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition);
    assert!(refused.message().starts_with(&format!("{GROUP}: would be scaled from 3 to 5; nothing was changed")));
    let refused = world.delete(copy, vec![node], LONG).await.unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition);
    assert!(refused.message().contains("would be scaled from 3 to 2, for Machines workers-"), "{refused}");
    // After a success the caller would take the size for corrected, in every loop.
    let refused = world.decrease(copy, -1, LONG).await.unwrap_err();
    assert!(refused.message().contains("--read-only"), "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn no_call_writes() {
    let mut world = World::start(Start { copies: 0, machines: 3 }).await;
    let copy = world.add_copy(&["--read-only"]).await;
    world.until_known(copy).await;
    for _ in 0..3 {
        call_all(&world, copy).await;
    }
    let http = world.http_address(copy).to_string();
    let (status, ready) = get(&http, "/readyz?verbose").await;
    assert!(status == 200 && ready.contains("read-only"), "{status}: {ready}");
    let (_, metrics) = get(&http, "/metrics").await;
    for command in ["increase", "delete"] {
        let counted = metrics
            .lines()
            .any(|line| line.contains(&format!("command=\"{command}\",result=\"read_only\"")) && line.ends_with(" 3"));
        assert!(counted, "{command}: {metrics}");
    }
    assert_eq!(writes(&world), Vec::<String>::new());

    // The same call to a copy that may write is seen.
    let copy = world.add_copy(&[]).await;
    world.increase(copy, 1, LONG).await.unwrap();
    assert!(!writes(&world).is_empty());
    world.stop().await;
}
