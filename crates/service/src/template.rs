//! The template on the wire, in the old and the new field. Anything sent to Cluster Autoscaler beside the Node belongs
//! here.

use index::Served;
use proto::NodeGroupTemplateNodeInfoResponse;

/// Returns the answer for a group; `None` if it has no template.
///
/// This is the one place where the devices and volume limits of [`Drivers`](rules::Drivers), which the definition
/// holds, have to go in once the protocol has fields for them (kubernetes/autoscaler#10277).
pub(super) fn answer(served: &Served) -> Option<NodeGroupTemplateNodeInfoResponse> {
    let node = served.template.clone()?;
    Some(NodeGroupTemplateNodeInfoResponse { node_info: node.clone(), node_bytes: node })
}
