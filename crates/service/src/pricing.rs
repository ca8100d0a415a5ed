//! Prices on the wire: the choice between old and new fields, the length of the time span, and the pod of a request.

use std::collections::BTreeMap;

use index::NoPrice;
use k8s_pb::{
    api::core::v1::{self, ResourceRequirements},
    apimachinery::pkg::api::resource::Quantity,
};
use prost::{Message, bytes::Bytes};
use prost_types::Timestamp;
use proto::bounds::{PLAIN, Shape, Undecodable};
use rules::{Requests, pod};
use tonic::Status;

const NANOS_PER_SECOND: i128 = 1_000_000_000;
const NANOS_PER_HOUR: f64 = 3.6e12;

/// The range of a Timestamp: the years 1 to 9999.
const SECONDS: std::ops::RangeInclusive<i64> = -62_135_596_800..=253_402_300_799;

/// A time in both forms, of which the new one is preferred.
#[derive(Clone, Copy)]
pub(super) struct Moment<'a> {
    pub(super) new: Option<&'a Timestamp>,
    pub(super) old: Option<&'a Timestamp>,
}

/// Returns the hours between two times.
///
/// # Errors
/// `INVALID_ARGUMENT` if one is missing or isn't a valid time, or the end is before the start.
pub(super) fn hours(start: Moment<'_>, end: Moment<'_>) -> Result<f64, Status> {
    let (start, end) = (nanos("start", start)?, nanos("end", end)?);
    if end < start {
        return Err(Status::invalid_argument(
            "the time span ends before it starts: endTimestamp must not be earlier than startTimestamp",
        ));
    }
    #[allow(clippy::cast_precision_loss, reason = "a price needs no nanoseconds")]
    let span = (end - start) as f64;
    Ok(span / NANOS_PER_HOUR)
}

fn nanos(name: &str, moment: Moment<'_>) -> Result<i128, Status> {
    let time = moment.new.or(moment.old).ok_or_else(|| {
        Status::invalid_argument(format!(
            "the time span has no {name}: set {name}Timestamp, or {name}Time as Cluster Autoscaler up to 1.34.1 does"
        ))
    })?;
    if !SECONDS.contains(&time.seconds) || !(0..1_000_000_000).contains(&time.nanos) {
        return Err(Status::invalid_argument(format!(
            "the {name} of the time span is no time: {} seconds and {} nanoseconds since 1970; seconds must be within the \
             years 1 to 9999, nanoseconds from 0 to 999999999",
            time.seconds, time.nanos
        )));
    }
    Ok(i128::from(time.seconds) * NANOS_PER_SECOND + i128::from(time.nanos))
}

/// Returns the resource requests of the pod in a request; of the two forms the new one is preferred.
///
/// # Errors
/// `INVALID_ARGUMENT` if there is no pod, or it can't be decoded.
pub(super) fn requests(new: &Bytes, old: &Bytes) -> Result<Requests, Status> {
    let bytes = if new.is_empty() { old } else { new };
    if bytes.is_empty() {
        return Err(Status::invalid_argument(
            "there is no pod: set pod_bytes, or pod as Cluster Autoscaler up to 1.34.1",
        ));
    }
    let pod = decode(bytes)?;
    pod::of_wire_spec(&pod.spec)
        .map_err(|error| Status::invalid_argument(format!("pod {}/{}: {error}", pod.namespace, pod.name)))
}

/// Maps a missing price to its code. Cluster Autoscaler treats all of them alike: it chooses without the group, or
/// without the prices of pods.
pub(super) fn status_of(error: &NoPrice) -> Status {
    let message = error.to_string();
    match error {
        NoPrice::Anywhere | NoPrice::OfResources => Status::unimplemented(message),
        NoPrice::OfGroup(_) | NoPrice::OfForeignNode => Status::not_found(message),
    }
}

// The fields of an encoded Pod that its price depends on. Another field isn't decoded, and these are counted before,
// since an empty container takes two bytes on the wire and hundreds in memory.

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
mod tests {
    #![allow(clippy::unwrap_used)]

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
