//! Templates of machines: some providers publish the capacity of a template's machines in `status.capacity`.

use std::sync::Arc;

use kube::api::DynamicObject;
use serde_json::json;

use super::{Outcome, World};

pub(super) async fn template(world: Arc<World>, template: Arc<DynamicObject>) -> Outcome {
    let spec = &template.data["spec"];
    if spec["publishesCapacity"] == true {
        let status = json!({ "capacity": spec["template"]["spec"]["capacity"] });
        world.write(&template, json!({}), status).await?;
    }
    Ok(None)
}
