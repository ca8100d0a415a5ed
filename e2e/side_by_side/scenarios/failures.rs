//! Machines that don't come, don't go, or fail.

use std::time::Duration;

use anyhow::{Result, ensure};
use e2e::{
    autoscaling::Settings,
    controllers::{
        groups::{GRACE, UNNEEDED, Workers},
        machines::Machine,
    },
};
use serde_json::json;

use super::{Outcome, PATIENCE, capacity, faults::grows_with, growing};
use crate::stage::Stage;

/// The first group wastes less, so it is chosen first.
pub(super) async fn stock_out(stage: &Stage) -> Result<Outcome> {
    let first = Workers::new("first").publishing(capacity("4")).that("no-capacity").annotate(GRACE, "6s");
    first.create(&stage.testbed).await?;
    Workers::new("second").publishing(capacity("16")).create(&stage.testbed).await?;
    let settings = Settings { provision: Duration::from_secs(120), ..growing() };
    grows_with(stage, settings, "the Pod runs in the other").await
}

/// The infrastructure refuses to make a machine, for a reason other than capacity. It might still succeed, as far as
/// Cluster API's contract tells, so that only the provision time ends the waiting.
pub(super) async fn failed_creation(stage: &Stage) -> Result<Outcome> {
    Workers::new("first").publishing(capacity("4")).that("fail").create(&stage.testbed).await?;
    Workers::new("second").publishing(capacity("16")).create(&stage.testbed).await?;
    let settings = Settings { provision: Duration::from_secs(20), ..growing() };
    grows_with(stage, settings, "the Pod runs in the other").await
}

pub(super) async fn dead_at_minimum(stage: &Stage) -> Result<Outcome> {
    replaced_at_minimum(stage, &[]).await
}

pub(super) async fn dead_at_minimum_by_force(stage: &Stage) -> Result<Outcome> {
    replaced_at_minimum(stage, &["--force-delete-unregistered-nodes"]).await
}

/// The one that comes instead doesn't join either: it is by its name that it is another.
async fn replaced_at_minimum(stage: &Stage, flags: &[&str]) -> Result<Outcome> {
    let testbed = &stage.testbed;
    let group = Workers::new("workers").sized().that("never-join").bounds(1, 5).replicas(1).create(testbed).await?;
    let provisioned = |machines: &[Machine]| machines.len() == 1 && machines[0].phase == "Provisioned";
    let first = testbed.machines_that(&group, "a Machine with a providerID", provisioned).await?;
    let settings = Settings { provision: Duration::from_secs(15), ..growing() };
    let mut run = stage.start(&stage.access(), settings, flags).await?;
    run.wait_for_loops(2, PATIENCE).await?;
    run.turn();
    let replaced = run
        .within(PATIENCE, async || {
            let machines = testbed.machines(&group).await?;
            ensure!(machines.iter().all(|machine| machine.name != first[0].name), "the Machine is still there");
            Ok(())
        })
        .await;
    Ok(Outcome::after("replaced", replaced))
}

/// Each Node takes two seconds to become ready.
pub(super) async fn starting_nodes(stage: &Stage) -> Result<Outcome> {
    let testbed = &stage.testbed;
    let group = Workers::new("workers").sized().that("slow").annotate(UNNEEDED, "1h").create(testbed).await?;
    let mut run = stage.autoscale(growing()).await?;
    stage.pod("web", "3").await?;
    run.turn();
    let mut most = 0;
    let runs = run
        .within(PATIENCE, async || {
            most = most.max(testbed.objects.scale(group.kind, &group.name).await?);
            stage.runs("web").await
        })
        .await;
    Ok(match runs {
        Ok(_) if most > 1 => Outcome::bad(format!("{most} Nodes for one Pod")),
        other => Outcome::after("the Pod runs", other),
    })
}

/// A replica whose Machine has neither gone nor a Node is missing to Cluster Autoscaler after the provision time.
pub(super) async fn hanging_deletion(stage: &Stage) -> Result<Outcome> {
    let testbed = &stage.testbed;
    let held = Workers::new("held").sized().bounds(1, 5).replicas(2).create(testbed).await?;
    let machines = testbed.running(&held, 2).await?;
    testbed.hang(&machines[0]).await?;
    let other = Workers::new("other").publishing(capacity("16"));
    other.create(testbed).await?;
    grows_after_provision(stage).await
}

/// The infrastructure has lost a machine before its Node joined.
pub(super) async fn failed_with_provider_id(stage: &Stage) -> Result<Outcome> {
    let testbed = &stage.testbed;
    let lost = Workers::new("lost").sized().that("never-join").replicas(1).create(testbed).await?;
    let provisioned = |machines: &[Machine]| machines.iter().any(|machine| machine.phase == "Provisioned");
    let machines = testbed.machines_that(&lost, "a Machine with a providerID", provisioned).await?;
    let failed = json!({ "deprecated": { "v1beta1": {
        "failureReason": "UpdateError",
        "failureMessage": "the instance was terminated by its cloud",
    } } });
    testbed.objects.patch_status("Machine", &machines[0].name, failed).await?;
    let other = Workers::new("other").publishing(capacity("16"));
    other.create(testbed).await?;
    grows_after_provision(stage).await
}

/// Judges whether a Pod that fits only another group gets a Node once missing Nodes count as such.
async fn grows_after_provision(stage: &Stage) -> Result<Outcome> {
    let provision = Duration::from_secs(15);
    let mut run = stage.autoscale(Settings { provision, ..growing() }).await?;
    tokio::time::sleep(2 * provision).await;
    run.turn();
    stage.pod("web", "9").await?;
    let runs = run.within(PATIENCE, async || stage.runs("web").await).await;
    Ok(Outcome::after("the Pod runs in another", runs))
}

/// The size is what is looked at: nothing else tells the infrastructure to stop trying.
pub(super) async fn load_gone(stage: &Stage) -> Result<Outcome> {
    let testbed = &stage.testbed;
    let group = Workers::new("workers").sized().that("no-capacity").annotate(GRACE, "20s").create(testbed).await?;
    let settings =
        Settings { provision: Duration::from_secs(30), unneeded: Duration::from_secs(2), ..Settings::default() };
    let mut run = stage.autoscale(settings).await?;
    stage.pod("web", "3").await?;
    if let Err(last) = run.within(PATIENCE, async || stage.has_size(&group, 1).await).await {
        return Ok(Outcome::bad(last));
    }
    testbed.workload.delete("Pod", "web").await?;
    run.turn();
    let back = run.within(2 * PATIENCE, async || stage.has_size(&group, 0).await).await;
    Ok(Outcome::after("zero replicas", back))
}
