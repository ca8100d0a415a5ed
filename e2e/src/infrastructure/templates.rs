//! Templates of machines: a provider says in `status.capacity` what a machine of the template will have, if it is one of those that
//! do.

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
