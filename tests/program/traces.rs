//! Tests of traces as a collector receives them: the links between a caller's trace, the command and the API calls.

use std::{net::SocketAddr, sync::Arc};

use opentelemetry_proto::tonic::{
    collector::trace::v1::{
        ExportTraceServiceRequest, ExportTraceServiceResponse,
        trace_service_server::{TraceService, TraceServiceServer},
    },
    common::v1::any_value,
    trace::v1::Span,
};
use parking_lot::Mutex;
use tonic::{
    Request, Response, Status,
    transport::{Server, server::TcpIncoming},
};

use proto::ExternalGrpcNode;
use serde_json::json;
use testkit::until;

use crate::world::{World, cluster, deployment};

const GROUP: &str = "MachineDeployment/team-a/workers";

/// Starts the program on a group of this size, with its traces for this collector.
async fn start(replicas: i64, collector: &Collector) -> World {
    let endpoint = format!("--otlp-endpoint=http://{}", collector.start().await);
    let manifests = vec![cluster(), deployment("workers", replicas, json!({}))];
    let world = World::start(manifests, &["--admin-listen=none", &endpoint]).await;
    until("in sync", async || world.client().await.refresh(proto::RefreshRequest {}).await.ok()).await;
    world
}

/// Waits until a Node leads to its group.
async fn until_known(world: &World, node: &ExternalGrpcNode) {
    let request = proto::NodeGroupForNodeRequest { node: Some(node.clone()) };
    until("the Node's group", async || {
        let answer = world.client().await.node_group_for_node(request.clone()).await.unwrap();
        answer.into_inner().node_group.filter(|group| group.id == GROUP)
    })
    .await;
}

/// An in-memory collector of traces.
#[derive(Clone, Default)]
struct Collector(Arc<Mutex<Vec<ExportTraceServiceRequest>>>);

#[tonic::async_trait]
impl TraceService for Collector {
    async fn export(
        &self,
        request: Request<ExportTraceServiceRequest>,
    ) -> Result<Response<ExportTraceServiceResponse>, Status> {
        self.0.lock().push(request.into_inner());
        Ok(Response::new(ExportTraceServiceResponse::default()))
    }
}

impl Collector {
    async fn start(&self) -> SocketAddr {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let server = Server::builder().add_service(TraceServiceServer::new(self.clone()));
        // The task ends with the test's runtime.
        tokio::spawn(server.serve_with_incoming(TcpIncoming::from(listener)));
        address
    }

    fn spans(&self) -> Vec<Span> {
        let requests = self.0.lock();
        let resources = requests.iter().flat_map(|request| &request.resource_spans);
        resources.flat_map(|resource| &resource.scope_spans).flat_map(|scope| scope.spans.clone()).collect()
    }

    async fn until_span(&self, name: &str) -> Span {
        until(&format!("a span {name}"), async || self.spans().into_iter().find(|span| span.name == name)).await
    }
}

fn attribute(span: &Span, key: &str) -> String {
    let found = span.attributes.iter().find(|attribute| attribute.key == key);
    match found.and_then(|attribute| attribute.value.clone()?.value) {
        Some(any_value::Value::StringValue(text)) => text,
        Some(any_value::Value::IntValue(number)) => number.to_string(),
        other => panic!("{key} is {other:?} in {span:?}"),
    }
}

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const CALLER: &str = "b7ad6b7169203331";

/// Parses an id in the form of a header.
fn id_of<const N: usize>(bytes: &[u8]) -> u128 {
    let bytes: [u8; N] = bytes.try_into().unwrap();
    bytes.iter().fold(0, |number, &byte| (number << 8) | u128::from(byte))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_delete_is_a_trace_from_its_caller_to_the_api_server() {
    let collector = Collector::default();
    let world = start(2, &collector).await;
    world.pass(60).await;
    let node = world.nodes().remove(0);
    until_known(&world, &node).await;
    let mut request =
        Request::new(proto::NodeGroupDeleteNodesRequest { id: GROUP.to_owned(), nodes: vec![node.clone()] });
    request.metadata_mut().insert("traceparent", format!("00-{TRACE}-{CALLER}-01").parse().unwrap());
    world.client().await.node_group_delete_nodes(request).await.unwrap();

    let rpc = collector.until_span("NodeGroupDeleteNodes").await;
    let ids = (format!("{:032x}", id_of::<16>(&rpc.trace_id)), format!("{:016x}", id_of::<8>(&rpc.parent_span_id)));
    assert_eq!(ids, (TRACE.to_owned(), CALLER.to_owned()));
    assert_eq!((attribute(&rpc, "group"), attribute(&rpc, "code")), (GROUP.to_owned(), "OK".to_owned()));
    assert!(rpc.end_time_unix_nano > rpc.start_time_unix_nano);
    let command = collector.until_span("delete").await;
    assert_eq!((&command.trace_id, &command.parent_span_id), (&rpc.trace_id, &rpc.span_id));
    assert_eq!(["group", "from", "to", "attempts"].map(|key| attribute(&command, key)), [GROUP, "2", "1", "1"]);
    let deletion = collector.until_span("DELETE machines").await;
    let size = collector.until_span("PATCH machinedeployments/scale").await;
    for call in [&deletion, &size] {
        assert_eq!((&call.trace_id, &call.parent_span_id), (&rpc.trace_id, &command.span_id), "{}", call.name);
        assert_eq!(attribute(call, "code"), "ok");
    }
    assert!(attribute(&deletion, "url.path").ends_with(&format!("/machines/{}", node.name)));
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_that_fails_has_its_code_in_its_trace() {
    let collector = Collector::default();
    let world = start(1, &collector).await;
    let mut client = world.client().await;
    let request = proto::NodeGroupIncreaseSizeRequest { id: GROUP.to_owned(), delta: 100 };
    client.node_group_increase_size(request).await.unwrap_err();
    let rpc = collector.until_span("NodeGroupIncreaseSize").await;
    assert_eq!(attribute(&rpc, "code"), "FAILED_PRECONDITION");
    assert!(rpc.status.unwrap().message.contains("max"), "it names the bound");
    // A failed read has a span, a successful one has none.
    client.node_group_target_size(proto::NodeGroupTargetSizeRequest { id: GROUP.to_owned() }).await.unwrap();
    let nobody = proto::NodeGroupTargetSizeRequest { id: "MachineDeployment/team-a/nobody".to_owned() };
    client.node_group_target_size(nobody).await.unwrap_err();
    let read = collector.until_span("NodeGroupTargetSize").await;
    assert_eq!(attribute(&read, "code"), "NOT_FOUND");
    assert_eq!(attribute(&read, "group"), "MachineDeployment/team-a/nobody");
    world.stop().await;
    assert_eq!(collector.spans().iter().filter(|span| span.name == "NodeGroupTargetSize").count(), 1);
}
