//! The protocol fields that the modelled version sends and reads.

use std::time::{Duration, SystemTime};

use anyhow::{Context as _, Result};
use k8s_pb::api::core::v1::{Container, Node, Pod, PodSpec, ResourceRequirements};
use k8s_pb::apimachinery::pkg::{api::resource::Quantity, apis::meta::v1::ObjectMeta};
use prost::{Message as _, bytes::Bytes};
use prost_types::Timestamp;
use proto::{
    ExternalGrpcNode, MetaDuration, NodeGroupAutoscalingOptions, NodeGroupTemplateNodeInfoResponse,
    PricingNodePriceRequest, PricingPodPriceRequest,
};

use super::{
    Settings, Version,
    pods::{Cpu, Shape},
};

/// The field generations that a version knows: some fields were replaced by new ones, and some versions know both.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fields {
    old: bool,
    new: bool,
}

/// The options of a group.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Options {
    /// The utilization below which a Node may be removed.
    pub(crate) threshold: f64,
    /// The time that a Node must be unneeded before it is removed.
    pub(crate) unneeded: Duration,
    /// The same for a Node that isn't ready.
    pub(crate) unready: Duration,
    /// The time within which a Node must join.
    pub(crate) provision: Duration,
    /// The age up to which a Node that isn't ready counts as starting.
    pub(crate) startup: Duration,
}

impl Fields {
    pub(crate) fn of(version: Version) -> Self {
        Self { old: version.knows_old_fields(), new: version.knows_new_fields() }
    }

    /// Decodes the Node of a template.
    pub(crate) fn template(self, answer: NodeGroupTemplateNodeInfoResponse) -> Result<Node> {
        let bytes = if self.new { answer.node_bytes } else { answer.node_info };
        Node::decode(bytes).context("a template that is no Node")
    }

    pub(crate) fn defaults(self, settings: Settings) -> NodeGroupAutoscalingOptions {
        let old = |time: Duration| {
            let duration = i64::try_from(time.as_nanos()).unwrap_or(i64::MAX);
            self.old.then_some(MetaDuration { duration })
        };
        let new = |time: Duration| prost_types::Duration::try_from(time).ok().filter(|_| self.new);
        let (unneeded, unready, provision) = (settings.unneeded, settings.unready, settings.provision);
        NodeGroupAutoscalingOptions {
            scale_down_utilization_threshold: 0.5,
            scale_down_gpu_utilization_threshold: 0.5,
            scale_down_unneeded_time: old(unneeded),
            scale_down_unready_time: old(unready),
            max_node_provision_time: old(provision),
            scale_down_unneeded_duration: new(unneeded),
            scale_down_unready_duration: new(unready),
            max_node_provision_duration: new(provision),
            ..NodeGroupAutoscalingOptions::default()
        }
    }

    /// Decodes the options of an answer. They replace all options of the request.
    pub(crate) fn options(self, answer: &NodeGroupAutoscalingOptions, startup: Duration) -> Result<Options> {
        let time = |old: Option<MetaDuration>, new: Option<prost_types::Duration>| -> Result<Duration> {
            if self.new {
                return Ok(new.context("a new duration is missing")?.try_into()?);
            }
            Ok(Duration::from_nanos(old.context("an old duration is missing")?.duration.try_into()?))
        };
        Ok(Options {
            threshold: answer.scale_down_utilization_threshold,
            unneeded: time(answer.scale_down_unneeded_time, answer.scale_down_unneeded_duration)?,
            unready: time(answer.scale_down_unready_time, answer.scale_down_unready_duration)?,
            provision: time(answer.max_node_provision_time, answer.max_node_provision_duration)?,
            startup,
        })
    }

    /// Builds the request for the price of a group's Node.
    pub(crate) fn node_price(self, group: &str, shape: &Shape) -> PricingNodePriceRequest {
        let node = template_node(format!("template-node-for-{group}-1"), shape);
        let hour = TheNextHour::begin();
        PricingNodePriceRequest {
            node: Some(node),
            start_time: self.old_time(hour.start),
            end_time: self.old_time(hour.end),
            start_timestamp: self.new_time(hour.start),
            end_timestamp: self.new_time(hour.end),
        }
    }

    /// Builds the request for the price of a Pod that requests the given CPU.
    pub(crate) fn pod_price(self, name: &str, cpu: Cpu) -> PricingPodPriceRequest {
        let quantity = |text: String| Quantity { string: Some(text) };
        let requests = [("cpu", format!("{cpu}m")), ("memory", "500Mi".to_owned())];
        let requests = requests.into_iter().map(|(resource, text)| (resource.to_owned(), quantity(text))).collect();
        let resources = ResourceRequirements { requests, ..ResourceRequirements::default() };
        let container = Container { resources: Some(resources), ..Container::default() };
        let pod = Pod {
            metadata: Some(ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() }),
            spec: Some(PodSpec { containers: vec![container], ..PodSpec::default() }),
            ..Pod::default()
        };
        let pod = Bytes::from(pod.encode_to_vec());
        let hour = TheNextHour::begin();
        PricingPodPriceRequest {
            pod: if self.old { pod.clone() } else { Bytes::new() },
            start_time: self.old_time(hour.start),
            end_time: self.old_time(hour.end),
            pod_bytes: if self.new { pod } else { Bytes::new() },
            start_timestamp: self.new_time(hour.start),
            end_timestamp: self.new_time(hour.end),
        }
    }

    /// Returns the value of an old time field, which holds whole seconds.
    fn old_time(self, time: Timestamp) -> Option<Timestamp> {
        self.old.then_some(Timestamp { nanos: 0, ..time })
    }

    fn new_time(self, time: Timestamp) -> Option<Timestamp> {
        self.new.then_some(time)
    }
}

/// Returns the made-up Node that stands for an upcoming one.
pub(crate) fn upcoming_node(group: &str, shape: &Shape, number: usize) -> ExternalGrpcNode {
    let annotations = [("cluster-autoscaler.k8s.io/upcoming-node".to_owned(), "true".to_owned())];
    let node = template_node(format!("template-node-for-{group}-1-upcoming-{number}"), shape);
    ExternalGrpcNode { annotations: annotations.into_iter().collect(), ..node }
}

/// Returns a made-up Node of a group. It has no providerID.
fn template_node(name: String, shape: &Shape) -> ExternalGrpcNode {
    let own = [("kubernetes.io/hostname", name.as_str()), ("cluster-autoscaler.kubernetes.io/template-node", "true")];
    let own = own.map(|(key, value)| (key.to_owned(), value.to_owned()));
    let labels = shape.labels.clone().into_iter().chain(own).collect();
    ExternalGrpcNode { name, labels, ..ExternalGrpcNode::default() }
}

/// The hour from now, for which prices are requested.
struct TheNextHour {
    start: Timestamp,
    end: Timestamp,
}

impl TheNextHour {
    fn begin() -> Self {
        let now = SystemTime::now();
        Self { start: now.into(), end: (now + Duration::from_secs(3600)).into() }
    }
}
