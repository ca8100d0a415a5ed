//! The provider's kinds: their CRDs, labelled with the contract version that they follow, which differs from their own
//! version.

use anyhow::{Context, Result};
use serde_json::{Value, json};

use crate::{
    crds::{self, Reach, established},
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
    let version = Place::of(kind, Contract::V1Beta2).resource.version;
    let mut definition = crds::open(INFRASTRUCTURE_GROUP, kind, &[&version], Reach::Namespace);
    definition["metadata"]["labels"] = json!({ "cluster.x-k8s.io/v1beta2": version });
    definition
}
