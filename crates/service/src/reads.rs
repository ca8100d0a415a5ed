//! The answers to reads: queries of the index, without an await or an API call.

use std::collections::HashMap;

use index::NodeQuery;
use prost_types::Any;
use rules::{GroupId, rollout};
use tonic::Status;

use super::{
    options,
    pricing::{self, Moment},
    session::Session,
    wire::{self, group_to_wire, instance_to_wire, unknown},
};
use crate::listen::Connection;

impl Session {
    pub(super) fn groups(&self, caller: Option<&Connection>) -> Result<proto::NodeGroupsResponse, Status> {
        // Cluster Autoscaler takes an error for an empty list, which is right only before anything was pinned.
        self.pin_if_unused(caller)?;
        Ok(proto::NodeGroupsResponse { node_groups: self.index.groups().iter().map(group_to_wire).collect() })
    }

    pub(super) fn group_for_node(
        &self,
        node: Option<&proto::ExternalGrpcNode>,
        caller: Option<&Connection>,
    ) -> proto::NodeGroupForNodeResponse {
        // Before its first Refresh, Cluster Autoscaler asks for the groups of Nodes with its taints. While nothing can
        // be pinned, no Node belongs to a group.
        let _ = self.pin_if_unused(caller);
        let pinned = node.and_then(|node| {
            self.index.group_of_node(NodeQuery {
                name: &node.name,
                provider_id: &node.provider_id,
                annotations: &node.annotations,
            })
        });
        // An empty id makes the caller ignore the Node; an error would stop the caller's whole loop.
        proto::NodeGroupForNodeResponse {
            node_group: Some(pinned.map_or_else(proto::NodeGroup::default, |group| group_to_wire(&group))),
        }
    }

    pub(super) fn target_size(&self, id: &str) -> Result<proto::NodeGroupTargetSizeResponse, Status> {
        let target_size = GroupId::parse(id).and_then(|id| self.index.target_size(&id)).ok_or_else(|| unknown(id))?;
        Ok(proto::NodeGroupTargetSizeResponse { target_size })
    }

    pub(super) fn instances(&self, id: &str) -> Result<proto::NodeGroupNodesResponse, Status> {
        let instances = GroupId::parse(id).and_then(|id| self.index.instances(&id)).ok_or_else(|| unknown(id))?;
        Ok(proto::NodeGroupNodesResponse { instances: instances.into_iter().map(instance_to_wire).collect() })
    }

    pub(super) fn template(&self, id: &str) -> Result<proto::NodeGroupTemplateNodeInfoResponse, Status> {
        let served = GroupId::parse(id).and_then(|id| self.index.served(&id)).ok_or_else(|| unknown(id))?;
        wire::answer(&served).ok_or_else(|| {
            Status::unimplemented(format!(
                "node group {id} has no template: set its cpu and memory capacity annotations, or use an \
                 infrastructure template with status.capacity"
            ))
        })
    }

    pub(super) fn options(
        &self,
        request: &proto::NodeGroupAutoscalingOptionsRequest,
    ) -> Result<proto::NodeGroupAutoscalingOptionsResponse, Status> {
        let id = GroupId::parse(&request.id).ok_or_else(|| unknown(&request.id))?;
        let options = self.index.options(&id).ok_or_else(|| unknown(&request.id))?;
        // Cluster Autoscaler drains a Node before it requests the deletion. These options keep it from choosing a Node
        // that can't be deleted.
        let held = self.scale.is_read_only().then(|| rollout::keep_nodes(&options));
        let (defaults, overrides) = (request.defaults.as_ref(), held.as_ref().unwrap_or(&options));
        if options::must_wait(defaults, overrides, || self.index.has_starting_node(&id)) {
            return Ok(proto::NodeGroupAutoscalingOptionsResponse { node_group_autoscaling_options: None });
        }
        Ok(proto::NodeGroupAutoscalingOptionsResponse {
            // Options replace all of the caller's defaults, and reset those that the protocol can't carry to zero, so
            // the answer has none if nothing is overridden.
            node_group_autoscaling_options: options::overrides_anything(defaults, overrides)
                .then(|| options::override_defaults(defaults, overrides)),
        })
    }

    pub(super) fn node_price(
        &self,
        request: &proto::PricingNodePriceRequest,
    ) -> Result<proto::PricingNodePriceResponse, Status> {
        let unset = proto::ExternalGrpcNode::default();
        let node = request.node.as_ref().unwrap_or(&unset);
        let query = NodeQuery { name: &node.name, provider_id: &node.provider_id, annotations: &node.annotations };
        let price = self.index.node_price(query, &node.labels).map_err(|error| pricing::status_of(&error))?;
        let start = Moment { new: request.start_timestamp.as_ref(), old: request.start_time.as_ref() };
        let end = Moment { new: request.end_timestamp.as_ref(), old: request.end_time.as_ref() };
        Ok(proto::PricingNodePriceResponse { price: price.per_hour() * pricing::hours(start, end)? })
    }

    pub(super) fn pod_price(
        &self,
        request: &proto::PricingPodPriceRequest,
    ) -> Result<proto::PricingPodPriceResponse, Status> {
        let prices = self.index.unit_prices().map_err(|error| pricing::status_of(&error))?;
        let start = Moment { new: request.start_timestamp.as_ref(), old: request.start_time.as_ref() };
        let end = Moment { new: request.end_timestamp.as_ref(), old: request.end_time.as_ref() };
        let hours = pricing::hours(start, end)?;
        let requests = pricing::requests(&request.pod_bytes, &request.pod)?;
        Ok(proto::PricingPodPriceResponse { price: prices.per_hour(&requests) * hours })
    }

    pub(super) fn gpu_types(&self) -> proto::GetAvailableGpuTypesResponse {
        let gpu_types: HashMap<_, _> =
            self.index.gpu_types().into_iter().map(|gpu_type| (gpu_type, Any::default())).collect();
        proto::GetAvailableGpuTypesResponse { gpu_types }
    }
}
