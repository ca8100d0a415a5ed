//! The fields of every message by number and wire type, which Cluster Autoscaler's own generated code reads. The
//! expected bytes are written here by hand, and not by the generated code.

use std::collections::HashMap;

use prost::Message;
use prost_types::{Any, Duration, FileDescriptorSet, Timestamp};
use rstest::rstest;

const VARINT: u8 = 0;
const DOUBLE: u8 = 1;
const BLOCK: u8 = 2;

/// Returns the key of a field: all numbers here take one byte.
fn key(number: u8, wire_type: u8) -> u8 {
    assert!(number < 16);
    number << 3 | wire_type
}

/// Encodes a number below 128.
pub(super) fn small(number: u8, value: u8) -> Vec<u8> {
    assert!(value < 128);
    vec![key(number, VARINT), value]
}

/// Encodes -1, which takes ten bytes as an int64.
fn minus_one(number: u8) -> Vec<u8> {
    let mut bytes = vec![key(number, VARINT)];
    bytes.extend([0xff; 9]);
    bytes.push(0x01);
    bytes
}

pub(super) fn double(number: u8, value: f64) -> Vec<u8> {
    let mut bytes = vec![key(number, DOUBLE)];
    bytes.extend(value.to_le_bytes());
    bytes
}

/// Encodes a text, bytes, a message or an entry of a map, which are the same on the wire.
pub(super) fn block(number: u8, content: &[u8]) -> Vec<u8> {
    let length = u8::try_from(content.len()).unwrap();
    assert!(length < 128);
    let mut bytes = vec![key(number, BLOCK), length];
    bytes.extend(content);
    bytes
}

/// Encodes an entry of a `map<string, …>`.
fn entry(number: u8, name: &str, value: &[u8]) -> Vec<u8> {
    block(number, &[block(1, name.as_bytes()), block(2, value)].concat())
}

#[track_caller]
fn check<M: Message + Default + PartialEq + std::fmt::Debug>(field: &str, message: &M, expected: &[u8]) {
    assert_eq!(message.encode_to_vec(), expected, "{field}, encoded");
    assert_eq!(&M::decode(expected).unwrap(), message, "{field}, decoded");
}

/// Checks messages in which only one field is set.
macro_rules! fields {
    ($($message:ident { $field:ident: $value:expr } = $expected:expr;)*) => {
        $({
            #[allow(clippy::needless_update)]
            let message = proto::$message { $field: $value, ..Default::default() };
            check(concat!(stringify!($message), ".", stringify!($field)), &message, &$expected);
        })*
    };
}

fn text(text: &str) -> String {
    text.to_owned()
}

#[allow(clippy::unnecessary_wraps)] // as the fields have it
fn time() -> Option<Timestamp> {
    Some(Timestamp { seconds: 5, nanos: 6 })
}

/// Encodes seconds in field 1 and nanoseconds in field 2, as a meta/v1 Time, a Timestamp and a Duration have them.
fn time_bytes(number: u8) -> Vec<u8> {
    block(number, &[small(1, 5), small(2, 6)].concat())
}

#[test]
fn fields_of_groups_and_nodes_have_the_numbers_of_the_contract() {
    let group = || proto::NodeGroup { id: text("g"), ..Default::default() };
    let node = || proto::ExternalGrpcNode { name: text("n"), ..Default::default() };
    fields! {
        NodeGroup { id: text("g") } = block(1, b"g");
        NodeGroup { min_size: 3 } = small(2, 3);
        NodeGroup { max_size: 3 } = small(3, 3);
        NodeGroup { debug: text("d") } = block(4, b"d");
        ExternalGrpcNode { provider_id: text("p") } = block(1, b"p");
        ExternalGrpcNode { name: text("n") } = block(2, b"n");
        ExternalGrpcNode { labels: HashMap::from([(text("k"), text("v"))]) } = entry(3, "k", b"v");
        ExternalGrpcNode { annotations: HashMap::from([(text("k"), text("v"))]) } = entry(4, "k", b"v");
        NodeGroupsResponse { node_groups: vec![group(), group()] } =
            [block(1, &block(1, b"g")), block(1, &block(1, b"g"))].concat();
        NodeGroupForNodeRequest { node: Some(node()) } = block(1, &block(2, b"n"));
        NodeGroupForNodeResponse { node_group: Some(group()) } = block(1, &block(1, b"g"));
        NodeGroupForNodeResponse { node_group: Some(proto::NodeGroup::default()) } = block(1, b"");
        GpuLabelResponse { label: text("l") } = block(1, b"l");
        GetAvailableGpuTypesResponse { gpu_types: HashMap::from([(text("t"), any())]) } =
            entry(1, "t", &block(1, b"u"));
    }
}

fn any() -> Any {
    Any { type_url: text("u"), value: Vec::new() }
}

#[test]
fn fields_of_prices_have_the_numbers_of_the_contract() {
    let node = || proto::ExternalGrpcNode { name: text("n"), ..Default::default() };
    fields! {
        PricingNodePriceRequest { node: Some(node()) } = block(1, &block(2, b"n"));
        PricingNodePriceRequest { start_time: time() } = time_bytes(2);
        PricingNodePriceRequest { end_time: time() } = time_bytes(3);
        PricingNodePriceRequest { start_timestamp: time() } = time_bytes(4);
        PricingNodePriceRequest { end_timestamp: time() } = time_bytes(5);
        PricingNodePriceResponse { price: 1.5 } = double(1, 1.5);
        PricingPodPriceRequest { pod: b"pod"[..].into() } = block(1, b"pod");
        PricingPodPriceRequest { start_time: time() } = time_bytes(2);
        PricingPodPriceRequest { end_time: time() } = time_bytes(3);
        PricingPodPriceRequest { pod_bytes: b"pod"[..].into() } = block(4, b"pod");
        PricingPodPriceRequest { start_timestamp: time() } = time_bytes(5);
        PricingPodPriceRequest { end_timestamp: time() } = time_bytes(6);
        PricingPodPriceResponse { price: 1.5 } = double(1, 1.5);
    }
}

#[test]
fn fields_of_sizes_and_instances_have_the_numbers_of_the_contract() {
    let node = || proto::ExternalGrpcNode { name: text("n"), ..Default::default() };
    let instance = || proto::Instance { id: text("i"), status: None };
    fields! {
        NodeGroupTargetSizeRequest { id: text("g") } = block(1, b"g");
        NodeGroupTargetSizeResponse { target_size: 7 } = small(1, 7);
        NodeGroupIncreaseSizeRequest { delta: 7 } = small(1, 7);
        NodeGroupIncreaseSizeRequest { id: text("g") } = block(2, b"g");
        NodeGroupDecreaseTargetSizeRequest { delta: -1 } = minus_one(1);
        NodeGroupDecreaseTargetSizeRequest { id: text("g") } = block(2, b"g");
        NodeGroupDeleteNodesRequest { nodes: vec![node()] } = block(1, &block(2, b"n"));
        NodeGroupDeleteNodesRequest { id: text("g") } = block(2, b"g");
        NodeGroupNodesRequest { id: text("g") } = block(1, b"g");
        NodeGroupNodesResponse { instances: vec![instance()] } = block(1, &block(1, b"i"));
        Instance { id: text("i") } = block(1, b"i");
        Instance { status: Some(proto::InstanceStatus { instance_state: 2, error_info: None }) } =
            block(2, &small(1, 2));
        InstanceStatus { instance_state: 2 } = small(1, 2);
        InstanceStatus { error_info: Some(proto::InstanceErrorInfo { instance_error_class: 99, ..Default::default() }) } =
            block(2, &small(3, 99));
        InstanceErrorInfo { error_code: text("c") } = block(1, b"c");
        InstanceErrorInfo { error_message: text("m") } = block(2, b"m");
        InstanceErrorInfo { instance_error_class: 1 } = small(3, 1);
    }
}

#[test]
fn fields_of_templates_and_options_have_the_numbers_of_the_contract() {
    let meta = |duration| Some(proto::MetaDuration { duration });
    let duration = || Some(Duration { seconds: 5, nanos: 6 });
    let options = || proto::NodeGroupAutoscalingOptions { zero_or_max_node_scaling: true, ..Default::default() };
    fields! {
        NodeGroupTemplateNodeInfoRequest { id: text("g") } = block(1, b"g");
        NodeGroupTemplateNodeInfoResponse { node_info: b"node"[..].into() } = block(1, b"node");
        NodeGroupTemplateNodeInfoResponse { node_bytes: b"node"[..].into() } = block(2, b"node");
        MetaDuration { duration: 9 } = small(1, 9);
        MetaDuration { duration: -1 } = minus_one(1);
        NodeGroupAutoscalingOptions { scale_down_utilization_threshold: 0.5 } = double(1, 0.5);
        NodeGroupAutoscalingOptions { scale_down_gpu_utilization_threshold: 0.5 } = double(2, 0.5);
        NodeGroupAutoscalingOptions { scale_down_unneeded_time: meta(9) } = block(3, &small(1, 9));
        NodeGroupAutoscalingOptions { scale_down_unready_time: meta(9) } = block(4, &small(1, 9));
        NodeGroupAutoscalingOptions { max_node_provision_time: meta(9) } = block(5, &small(1, 9));
        NodeGroupAutoscalingOptions { max_node_provision_time: meta(0) } = block(5, b"");
        NodeGroupAutoscalingOptions { zero_or_max_node_scaling: true } = small(6, 1);
        NodeGroupAutoscalingOptions { ignore_daemon_sets_utilization: true } = small(7, 1);
        NodeGroupAutoscalingOptions { scale_down_unneeded_duration: duration() } = time_bytes(8);
        NodeGroupAutoscalingOptions { scale_down_unready_duration: duration() } = time_bytes(9);
        NodeGroupAutoscalingOptions { max_node_provision_duration: duration() } = time_bytes(10);
        NodeGroupAutoscalingOptions { max_node_startup_duration: duration() } = time_bytes(11);
        NodeGroupAutoscalingOptions { allow_non_atomic_scale_up_to_max: true } = small(12, 1);
        NodeGroupAutoscalingOptionsRequest { id: text("g") } = block(1, b"g");
        NodeGroupAutoscalingOptionsRequest { defaults: Some(options()) } = block(2, &small(6, 1));
        NodeGroupAutoscalingOptionsResponse { node_group_autoscaling_options: Some(options()) } =
            block(1, &small(6, 1));
    }
}

/// The tables above cover every field of every message.
#[rstest]
#[case("NodeGroup", 4)]
#[case("ExternalGrpcNode", 4)]
#[case("NodeGroupsRequest", 0)]
#[case("NodeGroupsResponse", 1)]
#[case("NodeGroupForNodeRequest", 1)]
#[case("NodeGroupForNodeResponse", 1)]
#[case("PricingNodePriceRequest", 5)]
#[case("PricingNodePriceResponse", 1)]
#[case("PricingPodPriceRequest", 6)]
#[case("PricingPodPriceResponse", 1)]
#[case("GPULabelRequest", 0)]
#[case("GPULabelResponse", 1)]
#[case("GetAvailableGPUTypesRequest", 0)]
#[case("GetAvailableGPUTypesResponse", 1)]
#[case("CleanupRequest", 0)]
#[case("CleanupResponse", 0)]
#[case("RefreshRequest", 0)]
#[case("RefreshResponse", 0)]
#[case("NodeGroupTargetSizeRequest", 1)]
#[case("NodeGroupTargetSizeResponse", 1)]
#[case("NodeGroupIncreaseSizeRequest", 2)]
#[case("NodeGroupIncreaseSizeResponse", 0)]
#[case("NodeGroupDeleteNodesRequest", 2)]
#[case("NodeGroupDeleteNodesResponse", 0)]
#[case("NodeGroupDecreaseTargetSizeRequest", 2)]
#[case("NodeGroupDecreaseTargetSizeResponse", 0)]
#[case("NodeGroupNodesRequest", 1)]
#[case("NodeGroupNodesResponse", 1)]
#[case("Instance", 2)]
#[case("InstanceStatus", 2)]
#[case("InstanceErrorInfo", 3)]
#[case("NodeGroupTemplateNodeInfoRequest", 1)]
#[case("NodeGroupTemplateNodeInfoResponse", 2)]
#[case("NodeGroupAutoscalingOptions", 12)]
#[case("NodeGroupAutoscalingOptionsRequest", 2)]
#[case("NodeGroupAutoscalingOptionsResponse", 1)]
fn a_message_has_no_field_beyond_the_contract(#[case] name: &str, #[case] count: usize) {
    let descriptors = FileDescriptorSet::decode(proto::FILE_DESCRIPTOR_SET).unwrap();
    let message = descriptors.file.iter().flat_map(|file| &file.message_type).find(|message| message.name() == name);
    assert_eq!(message.expect("such a message").field.len(), count);
}

#[test]
fn states_of_an_instance_have_the_numbers_of_the_contract() {
    use proto::instance_status::InstanceState;
    let states = [
        InstanceState::Unspecified,
        InstanceState::InstanceRunning,
        InstanceState::InstanceCreating,
        InstanceState::InstanceDeleting,
    ];
    assert_eq!(states.map(i32::from), [0, 1, 2, 3]);
    assert_eq!(
        states.map(|state| state.as_str_name()),
        ["unspecified", "instanceRunning", "instanceCreating", "instanceDeleting"]
    );
}

#[test]
fn the_service_has_the_fifteen_rpcs_of_the_contract() {
    let descriptors = FileDescriptorSet::decode(proto::FILE_DESCRIPTOR_SET).unwrap();
    let package = "clusterautoscaler.cloudprovider.v1.externalgrpc";
    let file = descriptors.file.iter().find(|file| file.package() == package).unwrap();
    let [service] = file.service.as_slice() else { panic!("one service") };
    assert_eq!(service.name(), "CloudProvider");
    let methods: Vec<_> = service
        .method
        .iter()
        .map(|method| {
            assert!(!method.client_streaming() && !method.server_streaming(), "{} is unary", method.name());
            let short = |name: &str| name.strip_prefix(&format!(".{package}.")).unwrap().to_owned();
            (method.name(), short(method.input_type()), short(method.output_type()))
        })
        .collect();
    let expected = [
        "NodeGroups",
        "NodeGroupForNode",
        "PricingNodePrice",
        "PricingPodPrice",
        "GPULabel",
        "GetAvailableGPUTypes",
        "Cleanup",
        "Refresh",
        "NodeGroupTargetSize",
        "NodeGroupIncreaseSize",
        "NodeGroupDeleteNodes",
        "NodeGroupDecreaseTargetSize",
        "NodeGroupNodes",
        "NodeGroupTemplateNodeInfo",
        "NodeGroupGetOptions",
    ]
    .map(|name| {
        let message = if name == "NodeGroupGetOptions" { "NodeGroupAutoscalingOptions" } else { name };
        (name, format!("{message}Request"), format!("{message}Response"))
    });
    assert_eq!(methods, expected);
}
