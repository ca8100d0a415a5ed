//! Converts groups, instances and errors to the protocol, and says what a request is about.

use index::{PinnedGroup, Served};
use proto::{NodeGroupTemplateNodeInfoResponse, instance_status::InstanceState as WireState};
use rules::{Instance, InstanceState};
use tonic::{Code, Status};

use super::call_log::LONGEST_ID;
use crate::listen::Client;

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
/// This is the one place where the devices and volume limits of [`Driver`](rules::Driver)s, which the definition holds,
/// have to go in once the protocol has fields for them (kubernetes/autoscaler#10277).
pub(super) fn answer(served: &Served) -> Option<NodeGroupTemplateNodeInfoResponse> {
    let node = served.template.clone()?;
    Some(NodeGroupTemplateNodeInfoResponse { node_info: node.clone(), node_bytes: node })
}

// The errors of calls.

/// The maximum length of an error's message in bytes: clients accept at least 16 KiB of headers.
const LONGEST_MESSAGE: usize = 4096;

pub(super) fn may_only_read(client: &Client) -> Status {
    let name = &client.name;
    Status::permission_denied(format!("client {name} may only read: it is among --tls-read-only-client-names"))
}

pub(super) fn code_of<T>(result: &Result<T, Status>) -> Code {
    result.as_ref().err().map_or(Code::Ok, Status::code)
}

pub(super) fn unknown(id: &str) -> Status {
    let id: String = id.chars().take(LONGEST_ID).collect();
    Status::not_found(format!("node group {id} is not known: ids have the form <Kind>/<namespace>/<name>"))
}

/// Cuts the message of an error, which is sent in a header, encoded to up to three times its length. A header beyond
/// the caller's limit would fail the call without the code that the caller relies on. Ids in requests and messages of
/// API servers may be that long.
pub(super) fn cut(status: Status) -> Status {
    let message = status.message();
    if message.len() <= LONGEST_MESSAGE {
        return status;
    }
    let end = (0..=LONGEST_MESSAGE).rev().find(|end| message.is_char_boundary(*end)).unwrap_or_default();
    Status::new(status.code(), format!("{} (cut)", &message[..end]))
}

// The subject of a request, as logs and traces show it.

pub(super) trait Subject {
    /// Returns the id of the request's group or the name of its Node; empty if it has neither.
    #[allow(clippy::unnecessary_literal_bound, reason = "others borrow it from the request")]
    fn subject(&self) -> &str {
        ""
    }
}

macro_rules! subjects {
    ($($request:ident)*; $($by_id:ident)*; $($by_node:ident)*) => {
        $(impl Subject for proto::$request {})*
        $(impl Subject for proto::$by_id {
            fn subject(&self) -> &str {
                &self.id
            }
        })*
        $(impl Subject for proto::$by_node {
            fn subject(&self) -> &str {
                self.node.as_ref().map(|node| node.name.as_str()).unwrap_or_default()
            }
        })*
    };
}

subjects! {
    NodeGroupsRequest PricingPodPriceRequest GpuLabelRequest GetAvailableGpuTypesRequest CleanupRequest RefreshRequest;
    NodeGroupTargetSizeRequest NodeGroupIncreaseSizeRequest NodeGroupDeleteNodesRequest
    NodeGroupDecreaseTargetSizeRequest NodeGroupNodesRequest NodeGroupTemplateNodeInfoRequest
    NodeGroupAutoscalingOptionsRequest;
    NodeGroupForNodeRequest PricingNodePriceRequest
}
