//! The bytes that clients of several versions send and get, which the generated types can't show.

use k8s_pb::{
    api::core::v1::{Node, Pod},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use prost::{
    Message,
    bytes::{Buf, BufMut, Bytes},
};
use tonic::{
    Code, Request, Status,
    client::Grpc,
    codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder},
};

use super::{
    Provider, WORKERS, annotated, assert_fails,
    wire::{block, double, small},
};

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
    async fn call(&self, rpc: &str, request: &[u8]) -> Result<Bytes, Status> {
        let mut client = Grpc::new(self.channel.clone());
        client.ready().await.unwrap();
        let path = format!("/clusterautoscaler.cloudprovider.v1.externalgrpc.CloudProvider/{rpc}");
        let request = Request::new(Bytes::copy_from_slice(request));
        client.unary(request, path.parse().unwrap(), RawCodec).await.map(tonic::Response::into_inner)
    }
}

const MORE: &[u8] = b"MachineDeployment/team-a/more";

fn options_annotation() -> (&'static str, &'static str) {
    ("cluster.x-k8s.io/autoscaling-options-scaledownunneededtime", "100ns")
}

/// Returns both fields of all three pairs, with the nanoseconds of each.
fn durations([unneeded, unready, provision]: [u8; 3]) -> Vec<u8> {
    let pair = |old, new, nanos| (block(old, &small(1, nanos)), block(new, &small(2, nanos)));
    let (old_unneeded, new_unneeded) = pair(3, 8, unneeded);
    let (old_unready, new_unready) = pair(4, 9, unready);
    let (old_provision, new_provision) = pair(5, 10, provision);
    let flags = [small(6, 1), small(7, 1)].concat();
    [old_unneeded, old_unready, old_provision, flags, new_unneeded, new_unready, new_provision].concat()
}

/// Cluster Autoscaler 1.33 sends thresholds, meta/v1 Durations and switches, and reads the same fields of the answer.
#[tokio::test]
async fn an_old_client_sends_and_gets_old_durations() {
    let provider = Provider::with([annotated("more", &[options_annotation()])]).await;
    let thresholds = [double(1, 0.5), double(2, 0.5)].concat();
    let old = [block(3, &small(1, 7)), block(4, &small(1, 8)), block(5, &small(1, 9))].concat();
    let defaults = [thresholds.clone(), old, small(6, 1), small(7, 1)].concat();
    let request = [block(1, MORE), block(2, &defaults)].concat();
    let answer = provider.call("NodeGroupGetOptions", &request).await.unwrap();
    assert_eq!(answer, block(1, &[thresholds, durations([100, 8, 9])].concat()));
}

/// 1.35 and later send google.protobuf.Durations only.
#[tokio::test]
async fn a_new_client_sends_and_gets_new_durations() {
    let provider = Provider::with([annotated("more", &[options_annotation()])]).await;
    let new = [block(8, &small(2, 7)), block(9, &small(2, 8)), block(10, &small(2, 9))].concat();
    let thresholds = [double(1, 0.5), double(2, 0.5)].concat();
    let defaults = [thresholds.clone(), small(6, 1), small(7, 1), new].concat();
    let request = [block(1, MORE), block(2, &defaults)].concat();
    let answer = provider.call("NodeGroupGetOptions", &request).await.unwrap();
    assert_eq!(answer, block(1, &[thresholds, durations([100, 8, 9])].concat()));
}

/// A future client sends `maxNodeStartupDuration 11` (KA PR 10266), and gets it back or the value that overrides it.
#[tokio::test]
async fn a_client_that_knows_a_startup_time_gets_one() {
    let startup = ("cluster.x-k8s.io/autoscaling-options-maxnodestartuptime", "8s");
    for (annotations, expected) in [(&[options_annotation()][..], 7), (&[startup][..], 8)] {
        let provider = Provider::with([annotated("more", annotations)]).await;
        let request = [block(1, MORE), block(2, &block(11, &small(1, 7)))].concat();
        let answer = provider.call("NodeGroupGetOptions", &request).await.unwrap();
        assert!(answer.ends_with(&block(11, &small(1, expected))), "{answer:?}");
        let unknowing = provider.call("NodeGroupGetOptions", &block(1, MORE)).await.unwrap();
        assert_eq!(unknowing.is_empty(), expected == 8, "nothing else is overridden: {unknowing:?}");
    }
}

#[tokio::test]
async fn fields_that_are_not_known_are_passed_over() {
    let provider = Provider::with([annotated("more", &[options_annotation()])]).await;
    let defaults = block(13, &small(2, 7));
    let request = [block(1, MORE), block(2, &defaults), block(15, b"?")].concat();
    let answer = provider.call("NodeGroupGetOptions", &request).await.unwrap();
    let zero = |number| block(number, b"");
    let rest = [zero(4), zero(5), block(8, &small(2, 100)), zero(9), zero(10)].concat();
    assert_eq!(answer, block(1, &[block(3, &small(1, 100)), rest].concat()));
}

#[tokio::test]
async fn options_that_are_unset_are_no_bytes_at_all() {
    let provider = Provider::with([annotated("more", &[])]).await;
    let request = [block(1, MORE), block(2, &small(6, 1))].concat();
    assert!(provider.call("NodeGroupGetOptions", &request).await.unwrap().is_empty());
}

/// The old field is an embedded core/v1 Node to a client that reads it.
#[tokio::test]
async fn a_template_is_an_embedded_node_in_field_1_and_bytes_in_field_2() {
    #[derive(Clone, PartialEq, Message)]
    struct Old {
        #[prost(message, optional, tag = "1")]
        node_info: Option<Node>,
    }
    #[derive(Clone, PartialEq, Message)]
    struct New {
        #[prost(bytes = "vec", tag = "2")]
        node_bytes: Vec<u8>,
    }
    let capacity = [
        ("capacity.cluster-autoscaler.kubernetes.io/cpu", "4"),
        ("capacity.cluster-autoscaler.kubernetes.io/memory", "16Gi"),
    ];
    let provider = Provider::with([annotated("more", &capacity)]).await;
    let answer = provider.call("NodeGroupTemplateNodeInfo", &block(1, MORE)).await.unwrap();
    let old = Old::decode(answer.clone()).unwrap().node_info.unwrap();
    let new = Node::decode(&New::decode(answer).unwrap().node_bytes[..]).unwrap();
    assert!(old.status.as_ref().unwrap().capacity.contains_key("cpu"));
    assert_eq!(old, new);
}

/// The old field is an embedded core/v1 Pod, and the times are meta/v1 Times.
#[tokio::test]
async fn a_price_request_of_an_old_client_is_read() {
    let metadata = Some(ObjectMeta { name: Some("pod".to_owned()), ..ObjectMeta::default() });
    let pod = Pod { metadata, ..Pod::default() }.encode_to_vec();
    let time = [small(1, 5), small(2, 6)].concat();
    let request = [block(1, &pod), block(2, &time), block(3, &time)].concat();
    let decoded = proto::PricingPodPriceRequest::decode(&request[..]).unwrap();
    assert_eq!(decoded.pod, pod);
    assert_eq!(decoded.start_time, Some(prost_types::Timestamp { seconds: 5, nanos: 6 }));
    assert_eq!(decoded.start_time, decoded.end_time);
    let provider = Provider::new(1, &[]).await;
    assert_fails(provider.call("PricingPodPrice", &request).await, Code::Unimplemented, &[]);
}

#[tokio::test]
async fn an_empty_request_is_answered_like_any_other() {
    let provider = Provider::pinned(2, &[]).await;
    assert_eq!(provider.call("NodeGroupForNode", b"").await.unwrap(), block(1, b""), "an empty id: not ours");
    assert_fails(provider.call("NodeGroupTargetSize", b"").await, Code::NotFound, &[]);
    assert_fails(provider.call("NodeGroupIncreaseSize", b"").await, Code::NotFound, &[]);
    assert_fails(provider.call("NodeGroupDeleteNodes", b"").await, Code::NotFound, &[]);
    assert_eq!(provider.call("Refresh", b"").await.unwrap(), b""[..]);
}

#[tokio::test]
async fn bytes_that_are_no_message_break_nothing() {
    let provider = Provider::pinned(2, &[]).await;
    for garbage in [&b"\xff\xff\xff\xff"[..], b"\x0a\x7f", b"\x0a\x01\xff", b"\x00"] {
        assert!(provider.call("NodeGroupTargetSize", garbage).await.is_err());
    }
    assert_fails(provider.call("NodeGroupNothing", b"").await, Code::Unimplemented, &[]);
    let size = provider.call("NodeGroupTargetSize", &block(1, WORKERS.as_bytes())).await.unwrap();
    assert_eq!(size, small(1, 2));
}

/// These are refused before they are decoded, which shows in no answer: `bounds` of the protocol counts the memory.
#[tokio::test]
async fn a_request_of_messages_without_end_is_refused_and_the_next_is_answered() {
    let provider = Provider::pinned(2, &["a", "b"]).await;
    let nodes = [0x0a, 0].repeat(1 << 19);
    let refused = provider.call("NodeGroupDeleteNodes", &nodes).await;
    assert_fails(refused, Code::ResourceExhausted, &["more than 10000 Nodes", "name fewer Nodes in a call"]);
    let id = block(2, WORKERS.as_bytes());
    let named: Vec<_> = (0..5_000).flat_map(|number| block(1, &block(2, format!("n{number}").as_bytes()))).collect();
    let refused = provider.call("NodeGroupDeleteNodes", &[named, id].concat()).await;
    assert_fails(refused, Code::NotFound, &["Node n0 leads to no Machine"]);
}
