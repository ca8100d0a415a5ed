//! The protocol that Cluster Autoscaler's own generated code reads, in versions from 1.33 on; and bytes that no generated
//! client sends.

use std::fmt::Write as _;

use prost::{
    Message,
    bytes::{Buf, BufMut, Bytes},
};
use prost_types::{
    DescriptorProto, FileDescriptorSet,
    field_descriptor_proto::{Label, Type},
};
use tonic::{
    Code, Request, Status,
    client::Grpc,
    codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder},
};

use super::{Provider, WORKERS, annotated, assert_fails};

/// The RPCs of the contract: each is unary, with a request and a response of its name.
const RPCS: &str = "NodeGroups NodeGroupForNode PricingNodePrice PricingPodPrice GPULabel GetAvailableGPUTypes Cleanup \
                    Refresh NodeGroupTargetSize NodeGroupIncreaseSize NodeGroupDeleteNodes NodeGroupDecreaseTargetSize \
                    NodeGroupNodes NodeGroupTemplateNodeInfo NodeGroupGetOptions";

/// The fields of its messages, with numbers and types. Bytes that hold an encoded Node or Pod are the same as those of the
/// embedded message, which older versions have.
const FIELDS: &str = "\
NodeGroup id=1 String minSize=2 Int32 maxSize=3 Int32 debug=4 String
ExternalGrpcNode providerID=1 String name=2 String labels=3 LabelsEntry* annotations=4 AnnotationsEntry*
LabelsEntry key=1 String value=2 String
AnnotationsEntry key=1 String value=2 String
NodeGroupsResponse nodeGroups=1 NodeGroup*
NodeGroupForNodeRequest node=1 ExternalGrpcNode
NodeGroupForNodeResponse nodeGroup=1 NodeGroup
PricingNodePriceRequest node=1 ExternalGrpcNode startTime=2 Timestamp endTime=3 Timestamp startTimestamp=4 \
Timestamp endTimestamp=5 Timestamp
PricingNodePriceResponse price=1 Double
PricingPodPriceRequest pod=1 Bytes startTime=2 Timestamp endTime=3 Timestamp pod_bytes=4 Bytes startTimestamp=5 \
Timestamp endTimestamp=6 Timestamp
PricingPodPriceResponse price=1 Double
GPULabelResponse label=1 String
GetAvailableGPUTypesResponse gpuTypes=1 GpuTypesEntry*
GpuTypesEntry key=1 String value=2 Any
NodeGroupTargetSizeRequest id=1 String
NodeGroupTargetSizeResponse targetSize=1 Int32
NodeGroupIncreaseSizeRequest delta=1 Int32 id=2 String
NodeGroupDeleteNodesRequest nodes=1 ExternalGrpcNode* id=2 String
NodeGroupDecreaseTargetSizeRequest delta=1 Int32 id=2 String
NodeGroupNodesRequest id=1 String
NodeGroupNodesResponse instances=1 Instance*
Instance id=1 String status=2 InstanceStatus
InstanceStatus instanceState=1 InstanceState errorInfo=2 InstanceErrorInfo
InstanceErrorInfo errorCode=1 String errorMessage=2 String instanceErrorClass=3 Int32
NodeGroupTemplateNodeInfoRequest id=1 String
NodeGroupTemplateNodeInfoResponse nodeInfo=1 Bytes nodeBytes=2 Bytes
MetaDuration duration=1 Int64
NodeGroupAutoscalingOptions scaleDownUtilizationThreshold=1 Double scaleDownGpuUtilizationThreshold=2 Double \
scaleDownUnneededTime=3 MetaDuration scaleDownUnreadyTime=4 MetaDuration MaxNodeProvisionTime=5 MetaDuration \
zeroOrMaxNodeScaling=6 Bool ignoreDaemonSetsUtilization=7 Bool scaleDownUnneededDuration=8 Duration \
scaleDownUnreadyDuration=9 Duration MaxNodeProvisionDuration=10 Duration maxNodeStartupDuration=11 Duration \
allowNonAtomicScaleUpToMax=12 Bool
NodeGroupAutoscalingOptionsRequest id=1 String defaults=2 NodeGroupAutoscalingOptions
NodeGroupAutoscalingOptionsResponse nodeGroupAutoscalingOptions=1 NodeGroupAutoscalingOptions
";

/// Lists the fields of messages that have some.
fn fields_of(message: &DescriptorProto) -> String {
    let mut text = message.name().to_owned();
    for field in &message.field {
        let of_scalar = format!("{:?}", field.r#type());
        let kind = match field.r#type() {
            Type::Message | Type::Enum => field.type_name().rsplit('.').next().unwrap(),
            _ => of_scalar.as_str(),
        };
        let repeated = if field.label() == Label::Repeated { "*" } else { "" };
        write!(text, " {}={} {kind}{repeated}", field.name(), field.number()).unwrap();
    }
    let nested: String = message.nested_type.iter().map(fields_of).collect();
    if message.field.is_empty() { nested } else { format!("{text}\n{nested}") }
}

#[test]
fn the_rpcs_and_fields_are_those_of_the_contract() {
    let descriptors = FileDescriptorSet::decode(proto::FILE_DESCRIPTOR_SET).unwrap();
    let package = "clusterautoscaler.cloudprovider.v1.externalgrpc";
    let file = descriptors.file.iter().find(|file| file.package() == package).unwrap();
    let [service] = file.service.as_slice() else { panic!("one service") };
    assert_eq!(service.name(), "CloudProvider");
    let mut names = Vec::new();
    for method in &service.method {
        names.push(method.name());
        assert!(!method.client_streaming() && !method.server_streaming(), "{} is unary", method.name());
        let name = if method.name() == "NodeGroupGetOptions" { "NodeGroupAutoscalingOptions" } else { method.name() };
        let types = [method.input_type(), method.output_type()];
        assert_eq!(types, ["Request", "Response"].map(|of| format!(".{package}.{name}{of}")));
    }
    assert_eq!(names.join(" "), RPCS);
    assert_eq!(file.message_type.iter().map(fields_of).collect::<String>(), FIELDS);
}

#[test]
fn states_of_an_instance_have_the_numbers_of_the_contract() {
    use proto::instance_status::InstanceState;
    let states = ["unspecified", "instanceRunning", "instanceCreating", "instanceDeleting"];
    let numbers = states.map(|state| InstanceState::from_str_name(state).map(i32::from));
    assert_eq!(numbers, [Some(0), Some(1), Some(2), Some(3)]);
}

/// A codec that passes bytes through.
#[derive(Clone, Copy, Default)]
struct RawCodec;

impl Codec for RawCodec {
    type Encode = Bytes;
    type Decode = Bytes;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        *self
    }

    fn decoder(&mut self) -> Self {
        *self
    }
}

impl Encoder for RawCodec {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, item: Bytes, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        buffer.put(item);
        Ok(())
    }
}

impl Decoder for RawCodec {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        Ok(Some(buffer.copy_to_bytes(buffer.remaining())))
    }
}

impl Provider {
    /// Calls an RPC with these bytes, and returns those of the answer.
    async fn call(&self, rpc: &str, request: impl Into<Vec<u8>>) -> Result<Bytes, Status> {
        let mut client = Grpc::new(self.channel.clone());
        client.ready().await.unwrap();
        let path = format!("/clusterautoscaler.cloudprovider.v1.externalgrpc.CloudProvider/{rpc}");
        let request: Vec<u8> = request.into();
        client
            .unary(Request::new(Bytes::from(request)), path.parse().unwrap(), RawCodec)
            .await
            .map(tonic::Response::into_inner)
    }
}

/// As a client of a later version sends them.
#[tokio::test]
async fn fields_that_are_not_known_are_passed_over() {
    let unneeded = ("cluster.x-k8s.io/autoscaling-options-scaledownunneededtime", "100ns");
    let provider = Provider::with([annotated("more", &[unneeded])]).await;
    let mut request = proto::NodeGroupAutoscalingOptionsRequest {
        id: "MachineDeployment/team-a/more".to_owned(),
        ..Default::default()
    }
    .encode_to_vec();
    // Field 13 of the defaults, and field 15 of the request.
    request.extend(b"\x12\x04\x6a\x02\x10\x07\x7a\x01?");
    let answer = provider.call("NodeGroupGetOptions", request).await.unwrap();
    let answer = proto::NodeGroupAutoscalingOptionsResponse::decode(answer).unwrap();
    let unneeded = answer.node_group_autoscaling_options.unwrap().scale_down_unneeded_time.unwrap();
    assert_eq!(unneeded.duration, 100);
}

#[tokio::test]
async fn bytes_that_are_no_message_break_nothing() {
    let mut provider = Provider::pinned(2, &[]).await;
    for garbage in [&b"\xff\xff\xff\xff"[..], b"\x0a\x7f", b"\x0a\x01\xff", b"\x00"] {
        assert!(provider.call("NodeGroupTargetSize", garbage).await.is_err());
    }
    assert_fails(provider.call("NodeGroupNothing", b"").await, Code::Unimplemented, &[]);
    assert_eq!(provider.call("NodeGroupForNode", b"").await.unwrap(), b"\x0a\0"[..], "no Node: not ours");
    assert_eq!(provider.target_size(WORKERS).await.unwrap(), 2);
}

/// These are refused before they are decoded, which shows in no answer: `bounds` of the protocol counts the memory.
#[tokio::test]
async fn a_request_of_messages_without_end_is_refused_and_the_next_is_answered() {
    let mut provider = Provider::pinned(2, &["a", "b"]).await;
    let refused = provider.call("NodeGroupDeleteNodes", [0x0a_u8, 0].repeat(1 << 19)).await;
    assert_fails(refused, Code::ResourceExhausted, &["more than 10000 Nodes", "name fewer Nodes in a call"]);
    let named = (0..5_000).map(|number| super::node(&format!("n{number}"), "")).collect();
    assert_fails(provider.delete(WORKERS, named).await, Code::NotFound, &["Node n0 leads to no Machine"]);
}
