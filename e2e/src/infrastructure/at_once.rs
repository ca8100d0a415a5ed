//! Objects that are ready at once: Clusters with an externally managed control plane and its kubeconfig, bootstrap data for
//! groups that must not name a Secret of their own (those of a ClusterClass; it is never read), and templates of machines,
//! of which some providers publish the capacity.

use std::sync::Arc;

use anyhow::Result;
use kube::api::{DynamicObject, Patch, PatchParams};
use serde_json::json;

use super::{Outcome, World, condition, owner};
use crate::users::kubeconfig_secret;

/// Reports a Cluster's infrastructure as ready at once.
pub(super) async fn cluster(world: Arc<World>, cluster: Arc<DynamicObject>) -> Outcome {
    let spec = json!({ "controlPlaneEndpoint": { "host": "127.0.0.1", "port": world.settings.port } });
    let status = json!({
        "initialization": { "provisioned": true },
        "conditions": condition(&cluster, true, "Provisioned", ""),
    });
    world.write(&cluster, spec, status).await?;
    Ok(None)
}

/// Reports a control plane as ready at once, in the wanted version.
pub(super) async fn control_plane(world: Arc<World>, plane: Arc<DynamicObject>) -> Outcome {
    let Some(cluster) = owner(&plane, "Cluster") else { return Ok(None) };
    write_kubeconfig(&world, &plane, cluster).await?;
    let status = json!({
        "initialization": { "controlPlaneInitialized": true },
        "externalManagedControlPlane": true,
        "version": plane.data["spec"]["version"],
        "conditions": condition(&plane, true, "Available", ""),
    });
    world.write(&plane, json!({}), status).await?;
    Ok(None)
}

/// Writes the Secret once: a scenario's later changes to it are kept.
async fn write_kubeconfig(world: &World, plane: &DynamicObject, cluster: &str) -> Result<()> {
    let (api, name) = (world.api("Secret", plane), format!("{cluster}-kubeconfig"));
    if api.get_opt(&name).await?.is_some() {
        return Ok(());
    }
    let mut secret = kubeconfig_secret(cluster, &world.settings.kubeconfig.to_string());
    secret["apiVersion"] = json!("v1");
    let field_manager = PatchParams::apply("loopback");
    api.patch(&name, &field_manager, &Patch::Apply(secret)).await?;
    Ok(())
}

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

pub(super) async fn template(world: Arc<World>, template: Arc<DynamicObject>) -> Outcome {
    let spec = &template.data["spec"];
    if spec["publishesCapacity"] == true {
        let status = json!({ "capacity": spec["template"]["spec"]["capacity"] });
        world.write(&template, json!({}), status).await?;
    }
    Ok(None)
}
