//! Converts groups and instances to the protocol.

use index::{PinnedGroup, Served};
use proto::{NodeGroupTemplateNodeInfoResponse, instance_status::InstanceState as WireState};
use rules::{Instance, InstanceState};

/// The classes of errors: capacity or quota has run out, or anything else.
const OUT_OF_RESOURCES: i32 = 1;
const OTHER: i32 = 99;

pub(super) fn group_to_wire(group: &PinnedGroup) -> proto::NodeGroup {
    let (min, max) = (group.bounds.min, group.bounds.max);
    proto::NodeGroup {
        id: group.text.to_string(),
        min_size: min,
        max_size: max,
        debug: format!("{} (min: {min}, max: {max})", group.text),
    }
}

pub(super) fn instance_to_wire(instance: Instance) -> proto::Instance {
    let state = match instance.state {
        InstanceState::Creating => WireState::InstanceCreating,
        InstanceState::Running => WireState::InstanceRunning,
        InstanceState::Deleting => WireState::InstanceDeleting,
    };
    let error = instance.error.filter(|error| error.sent);
    let error_info = error.map(|error| proto::InstanceErrorInfo {
        error_code: error.code.into_owned(),
        error_message: error.message,
        instance_error_class: if error.out_of_resources { OUT_OF_RESOURCES } else { OTHER },
    });
    proto::Instance {
        id: instance.id,
        status: Some(proto::InstanceStatus { instance_state: state.into(), error_info }),
    }
}

// The template on the wire, in the old and the new field. Anything sent to Cluster Autoscaler beside the Node belongs
// here.

/// Returns the answer for a group; `None` if it has no template.
///
/// This is the one place where the devices and volume limits of [`Drivers`](rules::Drivers), which the definition
/// holds, have to go in once the protocol has fields for them (kubernetes/autoscaler#10277).
pub(super) fn answer(served: &Served) -> Option<NodeGroupTemplateNodeInfoResponse> {
    let node = served.template.clone()?;
    Some(NodeGroupTemplateNodeInfoResponse { node_info: node.clone(), node_bytes: node })
}

// The subject of a request, as logs and traces show it.

pub(super) trait Subject {
    /// Returns the id of the request's group or the name of its Node; empty if it has neither.
    fn subject(&self) -> &str;
}

macro_rules! about_nothing {
    ($($request:ident)*) => {
        $(impl Subject for proto::$request {
            fn subject(&self) -> &'static str {
                ""
            }
        })*
    };
}

about_nothing! {
    NodeGroupsRequest PricingPodPriceRequest GpuLabelRequest GetAvailableGpuTypesRequest CleanupRequest RefreshRequest
}

macro_rules! by_id {
    ($($request:ident)*) => {
        $(impl Subject for proto::$request {
            fn subject(&self) -> &str {
                &self.id
            }
        })*
    };
}

by_id! {
    NodeGroupTargetSizeRequest NodeGroupIncreaseSizeRequest NodeGroupDeleteNodesRequest
    NodeGroupDecreaseTargetSizeRequest NodeGroupNodesRequest NodeGroupTemplateNodeInfoRequest
    NodeGroupAutoscalingOptionsRequest
}

macro_rules! by_node {
    ($($request:ident)*) => {
        $(impl Subject for proto::$request {
            fn subject(&self) -> &str {
                self.node.as_ref().map(|node| node.name.as_str()).unwrap_or_default()
            }
        })*
    };
}

by_node! { NodeGroupForNodeRequest PricingNodePriceRequest }
