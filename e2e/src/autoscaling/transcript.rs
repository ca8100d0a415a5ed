//! Formats requests and answers as text, one line per call, to compare autoscalers or to find the reason of a failed
//! scenario. No check may depend on it.

use std::fmt::Debug;

use anyhow::{Result, bail};
use prost::Message;

use super::record::Call;
use crate::proto::{
    CleanupRequest, CleanupResponse, GetAvailableGpuTypesRequest, GetAvailableGpuTypesResponse, GpuLabelRequest,
    GpuLabelResponse, NodeGroupAutoscalingOptionsRequest, NodeGroupAutoscalingOptionsResponse,
    NodeGroupDecreaseTargetSizeRequest, NodeGroupDecreaseTargetSizeResponse, NodeGroupDeleteNodesRequest,
    NodeGroupDeleteNodesResponse, NodeGroupForNodeRequest, NodeGroupForNodeResponse, NodeGroupIncreaseSizeRequest,
    NodeGroupIncreaseSizeResponse, NodeGroupNodesRequest, NodeGroupNodesResponse, NodeGroupTargetSizeRequest,
    NodeGroupTargetSizeResponse, NodeGroupTemplateNodeInfoRequest, NodeGroupTemplateNodeInfoResponse,
    NodeGroupsRequest, NodeGroupsResponse, PricingNodePriceRequest, PricingNodePriceResponse, PricingPodPriceRequest,
    PricingPodPriceResponse, RefreshRequest, RefreshResponse,
};

/// Formats the start and end, name and code, request, and answer if there was one.
pub(super) fn line(call: &Call) -> String {
    let messages = messages(call).unwrap_or_else(|error| format!("{error:#}"));
    format!("{} {} {} {:?} {messages}", call.began, call.ended, call.name, call.code)
}

fn messages(call: &Call) -> Result<String> {
    match call.name.as_str() {
        "NodeGroups" => both::<NodeGroupsRequest, NodeGroupsResponse>(call),
        "NodeGroupForNode" => both::<NodeGroupForNodeRequest, NodeGroupForNodeResponse>(call),
        "PricingNodePrice" => both::<PricingNodePriceRequest, PricingNodePriceResponse>(call),
        "PricingPodPrice" => both::<PricingPodPriceRequest, PricingPodPriceResponse>(call),
        "GPULabel" => both::<GpuLabelRequest, GpuLabelResponse>(call),
        "GetAvailableGPUTypes" => both::<GetAvailableGpuTypesRequest, GetAvailableGpuTypesResponse>(call),
        "Cleanup" => both::<CleanupRequest, CleanupResponse>(call),
        "Refresh" => both::<RefreshRequest, RefreshResponse>(call),
        "NodeGroupTargetSize" => both::<NodeGroupTargetSizeRequest, NodeGroupTargetSizeResponse>(call),
        "NodeGroupIncreaseSize" => both::<NodeGroupIncreaseSizeRequest, NodeGroupIncreaseSizeResponse>(call),
        "NodeGroupDeleteNodes" => both::<NodeGroupDeleteNodesRequest, NodeGroupDeleteNodesResponse>(call),
        "NodeGroupDecreaseTargetSize" => {
            both::<NodeGroupDecreaseTargetSizeRequest, NodeGroupDecreaseTargetSizeResponse>(call)
        }
        "NodeGroupNodes" => both::<NodeGroupNodesRequest, NodeGroupNodesResponse>(call),
        "NodeGroupTemplateNodeInfo" => {
            both::<NodeGroupTemplateNodeInfoRequest, NodeGroupTemplateNodeInfoResponse>(call)
        }
        "NodeGroupGetOptions" => both::<NodeGroupAutoscalingOptionsRequest, NodeGroupAutoscalingOptionsResponse>(call),
        other => bail!("the protocol has no {other}"),
    }
}

fn both<Asked, Answered>(call: &Call) -> Result<String>
where
    Asked: Message + Default + Debug,
    Answered: Message + Default + Debug,
{
    let asked: Asked = call.request()?;
    // A failed call has no answer message.
    Ok(match call.response::<Answered>() {
        Ok(answered) => format!("{asked:?} -> {answered:?}"),
        Err(_) => format!("{asked:?}"),
    })
}
