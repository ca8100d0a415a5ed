//! The volumes and devices of Nodes that are remembered, read once for a Node, each where the right is given.

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
use serde_json::Value;
use tokio::time::{Instant, sleep};

use super::core_kinds::LOG;

/// The pause after a request without an answer.
const AFTER_FAILURE: Duration = Duration::from_secs(60);
/// The time for which a kind isn't asked for again after the right was missing.
const AFTER_REFUSAL: Duration = Duration::from_secs(3600);

/// Reads what an index wants to know. Never returns; drop the future to stop.
pub(super) async fn follow(index: &Index, access: &Access) {
    let mut wanted = index.nodes_to_look_at();
    let (mut volumes, mut devices) = (Reader::new("CSINodes"), Reader::new("ResourceSlices"));
    loop {
        wanted.borrow_and_update();
        for NodeToLookAt { node, key } in index.take_nodes_to_look_at() {
            let client = &access.clients().watches;
            let csi_node = volumes.read(&node, csi_node(client, &node)).await;
            let slices = devices.read(&node, slices(client, &node)).await;
            index.remember_offers(&key, &Offers::of(csi_node.as_ref(), slices.as_deref()));
        }
        if wanted.changed().await.is_err() {
            return;
        }
    }
}

/// Reads one kind.
struct Reader {
    kind: &'static str,
    refused_at: Option<Instant>,
}

impl Reader {
    const fn new(kind: &'static str) -> Self {
        Self { kind, refused_at: None }
    }

    /// Returns what is read; `None` if it can't be, or isn't there.
    async fn read<T>(&mut self, node: &str, found: impl Future<Output = Result<Option<T>, Error>>) -> Option<T> {
        if self.refused_at.is_some_and(|at| at.elapsed() < AFTER_REFUSAL) {
            return None;
        }
        let kind = self.kind;
        match found.await {
            Ok(found) => return found,
            Err(Error::Api(status)) if status.is_forbidden() => {
                tracing::debug!(target: LOG, "{kind} aren't remembered: {}", status.message);
                self.refused_at = Some(Instant::now());
            }
            // Another Node of the group is looked at tomorrow.
            Err(error) => {
                tracing::debug!(target: LOG, node, "can't read its {kind}: {error}");
                sleep(AFTER_FAILURE).await;
            }
        }
        None
    }
}

async fn csi_node(client: &Client, node: &str) -> Result<Option<Value>, Error> {
    let nodes: Api<CSINode> = Api::all(client.clone());
    let found = nodes.get_opt(node).await?;
    found.map(|node| serde_json::to_value(node).map_err(Error::SerdeError)).transpose()
}

async fn slices(client: &Client, node: &str) -> Result<Option<Vec<Value>>, Error> {
    let kind = GroupVersionKind::gvk("resource.k8s.io", "v1", "ResourceSlice");
    let slices: Api<DynamicObject> = Api::all_with(client.clone(), &ApiResource::from_gvk(&kind));
    let of_node = ListParams::default().fields(&format!("spec.nodeName={node}"));
    match slices.list(&of_node).await {
        Ok(slices) => Ok(Some(slices.items.into_iter().map(|slice| slice.data).collect())),
        // Before Kubernetes 1.34.
        Err(Error::Api(status)) if status.is_not_found() => Ok(None),
        Err(error) => Err(error),
    }
}
