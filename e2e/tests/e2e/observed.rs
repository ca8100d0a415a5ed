//! Sizes that were written without effect: another writer keeps reverting them, or no Machine is created for them.

use anyhow::{Result, ensure};
use e2e::{
    objects::Contract,
    pool::{Group, Pool},
    provider::{Provider, assert_refused},
    wait::{SOON, eventually},
    world::World,
};
use serde_json::{Value, json};
use tonic::Code;

use crate::{refusals::are_held, replacements::event_says, sizes::assert_scale};

const PUT_BACK: &str = "capi_autoscaler_provider_sizes_put_back_total";

/// A single revert doesn't count, nor does another size. Afterwards increases are refused, so that Cluster Autoscaler tries
/// other groups.
pub(crate) async fn a_manager_that_keeps_putting_a_size_back_is_named(world: &World) -> Result<()> {
    let group = Pool::new("workers").running(3).create(world).await?;
    let provider = world.serve().await?;
    provider.shows(&[&group.id]).await?;
    for (manager, size) in [("kubectl", 2), ("argocd-controller", 3)] {
        provider.increase(&group.id, 2).await?;
        put_back(world, &provider, &group, manager, size).await?;
    }
    let (_, metrics) = provider.http("/metrics").await?;
    ensure!(!metrics.lines().any(|line| line.starts_with(PUT_BACK) && !line.ends_with(" 0")), "{metrics}");

    provider.increase(&group.id, 2).await?;
    put_back(world, &provider, &group, "argocd-controller", 3).await?;
    event_says(world, &group, "SizePutBack", "field manager argocd-controller keeps putting the size back: 5→3")
        .await?;
    let expected = format!("{PUT_BACK}{{manager=\"argocd-controller\"}} 1");
    eventually("the metric", SOON, async || {
        let (_, metrics) = provider.http("/metrics").await?;
        ensure!(metrics.lines().any(|line| line == expected), "{metrics}");
        Ok(())
    })
    .await?;
    let refused = provider.increase(&group.id, 1).await;
    assert_refused(refused, Code::FailedPrecondition, &["argocd-controller keeps putting the size back"])?;
    assert_scale(world, &group, 3).await?;
    ensure!(are_held(&provider, &group).await?, "the options let Nodes be chosen");
    Ok(())
}

/// Writes a size as another writer, and waits until the program has identified it.
async fn put_back(world: &World, provider: &Provider, group: &Group, manager: &str, size: i32) -> Result<()> {
    let patch = json!({ "spec": { "replicas": size } });
    world.objects.patch_as(manager, group.kind, &group.name, patch).await?;
    eventually(&format!("the size {size}"), SOON, async || {
        let answered = provider.target_size(&group.id).await?;
        ensure!(answered == size, "it is {answered}");
        let reads = e2e::audit::answered(world, &world.user)?;
        let last = reads.iter().rev().find(|it| it.name == group.name && matches!(it.verb.as_str(), "get" | "patch"));
        ensure!(last.is_some_and(|last| last.verb == "get"), "the object wasn't read since the size was written");
        Ok(())
    })
    .await
}

/// A MachineSet's controller creates no Machine during an upgrade of the control plane.
pub(crate) async fn machines_that_are_not_made_are_reported(world: &World) -> Result<()> {
    let pool = Pool::new("workers").running(2).capacity("cpu", "4").capacity("memory", "16Gi");
    let group = pool.create(world).await?;
    let provider = world.serve().await?;
    provider.shows(&[&group.id]).await?;
    provider.increase(&group.id, 1).await?;
    let upgrading = "LoopbackControlPlane team-a/prod is upgrading (\"ControlPlaneIsStable\" preflight check failed)";
    let blocked = format!("Scaling up from 2 to 3 replicas is blocked because:\n* {upgrading}");
    scaling_up(world, &blocked).await?;
    event_says(world, &group, "ScaleUpHeldBack", upgrading).await?;
    let report = world.explain()?;
    let notes = report["groups"][0]["notes"].to_string();
    let why = "Cluster API creates no Machine for now";
    ensure!(notes.contains(why) && notes.contains("is upgrading"), "{report:#}");
    let page = format!("/groups/{}", group.id);
    let (status, body) = provider.admin(&page).await?;
    ensure!(status == 200 && body.contains(why) && body.contains("is upgrading"), "{page} answers {status}: {body}");

    scaling_up(world, "Scaling up from 2 to 3 replicas").await?;
    let report = world.explain()?;
    assert_eq!(report["groups"][0]["notes"], json!([]));
    eventually("the page without it", SOON, async || {
        let (_, body) = provider.admin(&page).await?;
        ensure!(!body.contains(why), "{body}");
        Ok(())
    })
    .await
}

/// Writes the condition of a MachineSet's controller that works towards a size.
async fn scaling_up(world: &World, message: &str) -> Result<()> {
    let conditions = json!([{
        "type": "ScalingUp",
        "status": "True",
        "reason": "ScalingUp",
        "message": message,
        "lastTransitionTime": "2026-11-22T12:00:00Z",
    }]);
    let status: Value = match world.plane.contract {
        Contract::V1Beta1 => json!({ "v1beta2": { "conditions": conditions } }),
        Contract::V1Beta2 | Contract::MachineApi => json!({ "conditions": conditions }),
    };
    world.objects.patch_status("MachineSet", "workers-set", status).await
}
