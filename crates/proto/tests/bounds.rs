//! The memory that requests decode to, counted by an allocator of this binary's own.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::collections::HashMap;

use allocation_counter::measure;
use prost::{Message as _, bytes::Bytes};
use proto::{
    ExternalGrpcNode, NodeGroupDeleteNodesRequest, NodeGroupForNodeRequest,
    bounds::{Bounded, decode},
};
use tonic::{Code, Status};

const MEBIBYTE: usize = 1 << 20;

/// Decodes a request, and returns the largest number of bytes that were allocated meanwhile.
fn decoded<M: Bounded>(bytes: &[u8]) -> (Result<M, Status>, u64) {
    let bytes = Bytes::copy_from_slice(bytes);
    let mut result = None;
    let counted = measure(|| result = Some(decode(bytes)));
    (result.unwrap(), counted.bytes_max)
}

/// Encodes a field with a length.
fn block(number: u8, content: &[u8]) -> Vec<u8> {
    let mut bytes = vec![number << 3 | 2];
    prost::encoding::encode_varint(content.len() as u64, &mut bytes);
    bytes.extend(content);
    bytes
}

#[track_caller]
fn refused<M: Bounded + std::fmt::Debug>(bytes: &[u8]) {
    let (result, allocated) = decoded::<M>(bytes);
    let status = result.unwrap_err();
    assert_eq!(status.code(), Code::ResourceExhausted, "{status}");
    assert!(status.message().contains("name fewer Nodes in a call"), "{status}");
    assert!(allocated < 4 * MEBIBYTE as u64, "{allocated} bytes");
}

#[test]
fn a_mebibyte_of_empty_nodes_allocates_little() {
    refused::<NodeGroupDeleteNodesRequest>(&[0x0a, 0].repeat(MEBIBYTE / 2));
}

#[test]
fn a_mebibyte_of_tiny_labels_and_annotations_allocates_little() {
    let pairs = |number: u8| -> Vec<u8> {
        (0..u16::MAX).flat_map(|key| block(number, &block(1, format!("{key:x}").as_bytes()))).collect()
    };
    for number in [3, 4] {
        refused::<NodeGroupForNodeRequest>(&block(1, &[pairs(number), pairs(number)].concat()));
        // In many Nodes of which each has few.
        let node = block(1, &block(number, &[]).repeat(20));
        refused::<NodeGroupDeleteNodesRequest>(&node.repeat(9_000));
    }
}

#[test]
fn the_most_that_is_decoded_is_bounded() {
    let node = block(1, &[block(3, &[]), block(4, &[])].concat());
    let (result, allocated) = decoded::<NodeGroupDeleteNodesRequest>(&node.repeat(6_000));
    assert_eq!(result.unwrap().nodes.len(), 6_000);
    assert!(allocated < 8 * MEBIBYTE as u64, "{allocated} bytes");
}

#[test]
fn a_node_that_claims_less_than_its_content_is_refused_before_it_is_decoded() {
    let mut bytes = vec![0x0a, 2];
    bytes.extend(block(3, &[0; 200]));
    let (result, allocated) = decoded::<NodeGroupDeleteNodesRequest>(&bytes);
    assert_eq!(result.unwrap_err().code(), Code::Internal);
    assert!(allocated < 1_000, "{allocated} bytes");
}

/// Cluster Autoscaler sends each Node whole.
#[test]
fn a_request_of_5000_real_nodes_is_decoded() {
    let texts = |prefix: &str, number: usize| -> HashMap<_, _> {
        (0..number).map(|it| (format!("{prefix}.kubernetes.io/{it}"), "a-value".to_owned())).collect()
    };
    let nodes = (0..5_000).map(|number| ExternalGrpcNode {
        provider_id: format!("aws:///eu-central-1a/i-{number:017x}"),
        name: format!("ip-10-0-{}-{}.eu-central-1.compute.internal", number / 250, number % 250),
        labels: texts("label", 30),
        annotations: texts("annotation", 15),
    });
    let request = NodeGroupDeleteNodesRequest { nodes: nodes.collect(), id: "MachineDeployment/a/b".to_owned() };
    assert_eq!(decoded::<NodeGroupDeleteNodesRequest>(&request.encode_to_vec()).0.unwrap(), request);
    let bare = |node: &ExternalGrpcNode| ExternalGrpcNode { name: node.name.clone(), ..ExternalGrpcNode::default() };
    let bare = NodeGroupDeleteNodesRequest { nodes: request.nodes.iter().map(bare).collect(), id: String::new() };
    assert_eq!(decoded::<NodeGroupDeleteNodesRequest>(&bare.encode_to_vec()).0.unwrap(), bare);
}
