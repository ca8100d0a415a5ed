//! The fields of an encoded Pod that its price depends on. Another field isn't decoded, and these are counted before,
//! since an empty container takes two bytes on the wire and hundreds in memory.

use std::collections::BTreeMap;

use k8s_pb::{
    api::core::v1::{self, ResourceRequirements},
    apimachinery::pkg::api::resource::Quantity,
};
use prost::{Message, bytes::Bytes};
use proto::bounds::{PLAIN, Shape, Undecodable};
use tonic::Status;

/// The maximum number of containers and amounts of resources. An API server takes less than 1.5 MiB as a Pod.
const MOST: usize = 5_000;

/// The names and the spec of a Pod.
#[derive(Debug)]
pub(super) struct Pod {
    pub(super) namespace: String,
    pub(super) name: String,
    /// Its containers and resources alone.
    pub(super) spec: v1::PodSpec,
}

const RESOURCES: Shape = Shape(&[(1, PLAIN), (2, PLAIN), (3, PLAIN)]);
const CONTAINER: Shape = Shape(&[(8, RESOURCES)]);
const SPEC: Shape = Shape(&[(2, CONTAINER), (20, CONTAINER), (32, PLAIN), (40, RESOURCES)]);
const POD: Shape = Shape(&[(1, PLAIN), (2, SPEC)]);

#[derive(Clone, PartialEq, Message)]
struct WirePod {
    #[prost(message, optional, tag = "1")]
    metadata: Option<WireMeta>,
    #[prost(message, optional, tag = "2")]
    spec: Option<WireSpec>,
}

#[derive(Clone, PartialEq, Message)]
struct WireMeta {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "3")]
    namespace: String,
}

#[derive(Clone, PartialEq, Message)]
struct WireSpec {
    #[prost(message, repeated, tag = "2")]
    containers: Vec<WireContainer>,
    #[prost(message, repeated, tag = "20")]
    init_containers: Vec<WireContainer>,
    #[prost(btree_map = "string, message", tag = "32")]
    overhead: BTreeMap<String, Quantity>,
    #[prost(message, optional, tag = "40")]
    resources: Option<ResourceRequirements>,
}

#[derive(Clone, PartialEq, Message)]
struct WireContainer {
    #[prost(string, optional, tag = "1")]
    name: Option<String>,
    #[prost(message, optional, tag = "8")]
    resources: Option<ResourceRequirements>,
    #[prost(string, optional, tag = "24")]
    restart_policy: Option<String>,
}

/// Decodes a Pod.
///
/// # Errors
/// `INVALID_ARGUMENT` if it is none, or has more containers and amounts than a Pod may have.
pub(super) fn decode(bytes: &Bytes) -> Result<Pod, Status> {
    POD.check(bytes, &mut [MOST]).map_err(|error| match error {
        Undecodable::TooMany => {
            Status::invalid_argument(format!("the pod has more than {MOST} containers and amounts of resources"))
        }
        Undecodable::Malformed => no_pod("a field is longer than what it is in, or has an unknown type"),
    })?;
    let WirePod { metadata, spec } = WirePod::decode(bytes.clone()).map_err(|error| no_pod(error.to_string()))?;
    let (WireMeta { name, namespace }, spec) = (metadata.unwrap_or_default(), spec.unwrap_or_default());
    let containers = |all: Vec<WireContainer>| all.into_iter().map(WireContainer::into_container).collect();
    let spec = v1::PodSpec {
        containers: containers(spec.containers),
        init_containers: containers(spec.init_containers),
        overhead: spec.overhead,
        resources: spec.resources,
        ..v1::PodSpec::default()
    };
    Ok(Pod { namespace, name, spec })
}

fn no_pod(why: impl std::fmt::Display) -> Status {
    Status::invalid_argument(format!("the pod is no encoded core/v1 Pod: {why}"))
}

impl WireContainer {
    fn into_container(self) -> v1::Container {
        let Self { name, resources, restart_policy } = self;
        v1::Container { name, resources, restart_policy, ..v1::Container::default() }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_of_empty_containers_or_amounts_is_refused_before_it_is_decoded() {
        let spec = |content: &[u8]| {
            let mut bytes = vec![0x12];
            prost::encoding::encode_varint(content.len() as u64, &mut bytes);
            bytes.extend(content);
            Bytes::from(bytes)
        };
        let containers = [0x12, 0].repeat(MOST);
        // A container with an amount each, and the amounts of the pod itself.
        for content in [containers.clone(), [0x12, 4, 0x42, 2, 0x0a, 0].repeat(MOST / 2), [0x82, 2, 0].repeat(MOST)] {
            let status = decode(&spec(&content)).unwrap_err();
            assert!(status.message().contains("more than 5000 containers"), "{status}");
        }
        let most = &containers[..2 * (MOST - 1)];
        assert_eq!(decode(&spec(most)).unwrap().spec.containers.len(), MOST - 1);
        // Of what has no effect on a price, nothing is decoded, however much it is.
        let volumes = [0x0a, 0].repeat(1 << 20);
        assert_eq!(decode(&spec(&volumes)).unwrap().spec, v1::PodSpec::default());
    }
}
