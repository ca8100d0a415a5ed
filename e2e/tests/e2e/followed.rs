//! Deletion log entries leave once a MachineSet's controller has observed the size. A reconcile that ends with an error
//! keeps `status.observedGeneration`, although it has observed the size and acted on it; its conditions show that.

use anyhow::{Context, Result, ensure};
use e2e::{
    objects::Contract,
    pool::{Group, Pool, Scalable},
    wait::{SOON, eventually},
    world::World,
};
use serde_json::{Value, json};

use crate::sizes::assert_scale;

const LOG: &str = "capi-autoscaler-provider.io/deleting";
const DESIRED: &str = "machinedeployment.clusters.x-k8s.io/desired-replicas";

/// The status by which a controller reports that it has observed a size.
#[derive(Clone, Copy)]
enum Says {
    /// The observed generation, after a reconcile without an error.
    ObservedGeneration,
    /// A condition, after a reconcile with an error.
    ScalingDown,
}

/// Up to Cluster API 1.10 in every case, later only without failures.
pub(crate) async fn an_entry_leaves_once_the_observed_generation_has_moved(world: &World) -> Result<()> {
    entries_leave(world, Says::ObservedGeneration).await
}

/// This may take days while another Machine's delete is refused, or its infrastructure object is missing.
pub(crate) async fn an_entry_leaves_where_every_reconcile_fails(world: &World) -> Result<()> {
    entries_leave(world, Says::ScalingDown).await
}

async fn entries_leave(world: &World, says: Says) -> Result<()> {
    let workers = Pool::new("workers").running(3).create(world).await?;
    let bare = Pool::new("bare").of(Scalable::MachineSet).running(3).create(world).await?;
    for set in ["workers-set", "bare"] {
        reconcile(world, set, Says::ObservedGeneration).await?;
    }
    let provider = world.serve().await?;
    provider.shows(&[&workers.id, &bare.id]).await?;
    for (group, set) in [(&workers, "workers-set"), (&bare, "bare")] {
        provider.delete(&group.id, &group.nodes[..1]).await?;
        assert_scale(world, group, 2).await?;
        if group.name != set {
            hand_down(world, group, set).await?;
        }
        reconcile(world, set, says).await?;
        let machine = &group.machines[0];
        world.objects.delete("Machine", machine).await?;
        world.objects.patch("Machine", machine, json!({ "metadata": { "finalizers": null } })).await?;
        eventually(&format!("no log of deletions on {}", group.id), SOON, async || {
            let log = log(world, group.kind, &group.name).await?;
            ensure!(log.is_none(), "it is {log:?}");
            Ok(())
        })
        .await?;
    }
    Ok(())
}

/// Copies the log and the size to the MachineSet, as the MachineDeployment's controller does.
async fn hand_down(world: &World, group: &Group, set: &str) -> Result<()> {
    let log = log(world, group.kind, &group.name).await?.context("there is no log of deletions")?;
    let patch = json!({
        "metadata": { "annotations": { LOG: log, DESIRED: "2" } },
        "spec": { "replicas": 2 },
    });
    world.objects.patch("MachineSet", set, patch).await
}

/// Writes the status of the MachineSet, as its controller does.
async fn reconcile(world: &World, set: &str, says: Says) -> Result<()> {
    let generation = world.objects.get("MachineSet", set).await?.metadata.generation;
    let condition = json!([{
        "type": "ScalingDown",
        "status": "True",
        "reason": "ScalingDown",
        "message": "Scaling down from 3 to 2 replicas",
        "lastTransitionTime": "2026-11-22T12:00:00Z",
        "observedGeneration": generation,
    }]);
    let status: Value = match (says, world.plane.contract) {
        (Says::ObservedGeneration, _) => json!({ "observedGeneration": generation }),
        (Says::ScalingDown, Contract::V1Beta1) => json!({ "v1beta2": { "conditions": condition } }),
        (Says::ScalingDown, Contract::V1Beta2 | Contract::MachineApi) => json!({ "conditions": condition }),
    };
    world.objects.patch_status("MachineSet", set, status).await
}

async fn log(world: &World, kind: &str, name: &str) -> Result<Option<String>> {
    let annotations = world.objects.get(kind, name).await?.metadata.annotations.unwrap_or_default();
    Ok(annotations.get(LOG).cloned())
}
