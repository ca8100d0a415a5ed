//! The subject of a request, as the log and traces name it.

pub(super) trait Asked {
    /// Returns the id of its group or the name of its Node; empty if it names none.
    fn asked(&self) -> &str;
}

macro_rules! about_nothing {
    ($($request:ident)*) => {
        $(impl Asked for proto::$request {
            fn asked(&self) -> &'static str {
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
        $(impl Asked for proto::$request {
            fn asked(&self) -> &str {
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
        $(impl Asked for proto::$request {
            fn asked(&self) -> &str {
                self.node.as_ref().map(|node| node.name.as_str()).unwrap_or_default()
            }
        })*
    };
}

by_node! { NodeGroupForNodeRequest PricingNodePriceRequest }
