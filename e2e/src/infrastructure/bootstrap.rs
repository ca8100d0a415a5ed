//! Bootstrap data, for groups that must not name a Secret of their own: those of a ClusterClass. It is never read.

use std::sync::Arc;

use kube::api::DynamicObject;
use serde_json::json;

use super::{Outcome, World, condition};

/// Reports empty bootstrap data at once.
pub(super) async fn config(world: Arc<World>, config: Arc<DynamicObject>) -> Outcome {
    let status = json!({
        "initialization": { "dataSecretCreated": true },
        "dataSecretName": "none",
        "conditions": condition(&config, true, "Created", ""),
    });
    world.write(&config, json!({}), status).await?;
    Ok(None)
}
