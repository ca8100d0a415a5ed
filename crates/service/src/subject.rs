//! The subject of a request, as logs and traces show it.

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
