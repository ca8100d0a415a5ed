//! The volumes and devices of Nodes that are remembered, read once for a Node. Where the right is missing, nothing is
//! asked again.

use std::time::Duration;

use connect::Access;
use index::{Index, NodeToLookAt};
use k8s_openapi::api::storage::v1::CSINode;
use kube::{
    Api, Client, Error,
    api::{ApiResource, DynamicObject, ListParams},
    core::GroupVersionKind,
};
use rules::remembered::Offers;
use tokio::time::sleep;

use super::core_kinds::LOG;

/// The pause after a request without an answer.
const AFTER_FAILURE: Duration = Duration::from_secs(60);

/// Reads what an index wants to know. Never returns; drop the future to stop.
pub(super) async fn follow(index: &Index, access: &Access) {
    let mut wanted = index.nodes_to_look_at();
    loop {
        wanted.borrow_and_update();
        for wanted in index.take_nodes_to_look_at() {
            match read(&access.clients().watches, &wanted).await {
                Ok(Some(offers)) => index.remember_offers(&wanted, &offers),
                Ok(None) => {}
                Err(Error::Api(status)) if status.is_forbidden() => {
                    tracing::debug!(target: LOG, "volumes and devices of Nodes aren't remembered: {}", status.message);
                    return std::future::pending().await;
                }
                // Another Node of the group is looked at tomorrow.
                Err(error) => {
                    tracing::debug!(target: LOG, node = %wanted.node, "can't read its volumes and devices: {error}");
                    sleep(AFTER_FAILURE).await;
                }
            }
        }
        if wanted.changed().await.is_err() {
            return;
        }
    }
}

/// Returns what a Node offers; `None` if it has no CSINode, as one that has just been deleted.
async fn read(client: &Client, wanted: &NodeToLookAt) -> Result<Option<Offers>, Error> {
    let nodes: Api<CSINode> = Api::all(client.clone());
    let Some(node) = nodes.get_opt(&wanted.node).await? else { return Ok(None) };
    let kind = GroupVersionKind::gvk("resource.k8s.io", "v1", "ResourceSlice");
    let slices: Api<DynamicObject> = Api::all_with(client.clone(), &ApiResource::from_gvk(&kind));
    let of_node = ListParams::default().fields(&format!("spec.nodeName={}", wanted.node));
    let slices = match slices.list(&of_node).await {
        Ok(slices) => slices.items.into_iter().map(|slice| slice.data).collect(),
        // Before Kubernetes 1.34.
        Err(Error::Api(status)) if status.is_not_found() => Vec::new(),
        Err(error) => return Err(error),
    };
    let node = serde_json::to_value(node).map_err(Error::SerdeError)?;
    Ok(Some(Offers::of(&node, &slices)))
}
