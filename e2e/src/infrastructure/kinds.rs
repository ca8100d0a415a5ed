//! The provider's kinds: their CRDs, labelled with the contract version that they follow, which differs from their own
//! version.

use anyhow::{Context, Result};
use serde_json::{Value, json};

use crate::{
    crds::established,
    objects::{Contract, INFRASTRUCTURE_GROUP, Objects, Place},
};

/// The kinds that a provider needs from the start.
pub const KINDS: [&str; 9] = [
    "LoopbackCluster",
    "LoopbackClusterTemplate",
    "LoopbackConfig",
    "LoopbackConfigTemplate",
    "LoopbackControlPlane",
    "LoopbackControlPlaneTemplate",
    "LoopbackMachine",
    "LoopbackMachinePool",
    "LoopbackMachineTemplate",
];

/// Installs kinds and waits until they are served.
pub async fn install(objects: &Objects, kinds: &[&str]) -> Result<()> {
    let mut names = Vec::new();
    for kind in kinds {
        names.push(objects.create(definition(kind)).await?.metadata.name.context("a CRD without name")?);
    }
    for name in names {
        established(objects, &name).await?;
    }
    Ok(())
}

fn definition(kind: &str) -> Value {
    let place = Place::of(kind, Contract::V1Beta2);
    let anything = json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true });
    json!({
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": format!("{}.{INFRASTRUCTURE_GROUP}", place.resource.plural),
            "labels": { "cluster.x-k8s.io/v1beta2": place.resource.version },
        },
        "spec": {
            "group": INFRASTRUCTURE_GROUP,
            "scope": "Namespaced",
            "names": { "kind": kind, "plural": place.resource.plural, "singular": kind.to_lowercase() },
            "versions": [{
                "name": place.resource.version,
                "served": true,
                "storage": true,
                "subresources": { "status": {} },
                "schema": { "openAPIV3Schema": {
                    "type": "object",
                    "properties": { "spec": anything, "status": anything },
                } },
            }],
        },
    })
}
