//! Groups that fail to grow: another one grows instead, and the missing Nodes are given up.

use std::time::Duration;

use anyhow::{Result, ensure};
use e2e::{
    autoscaling::Settings,
    controllers::{
        groups::GRACE,
        machines::{Machine, names},
        testbed::{TIMEOUT, Testbed},
    },
    proto::{NodeGroupDeleteNodesRequest, NodeGroupIncreaseSizeRequest},
    wait::eventually,
};
use serde_json::json;

use crate::pods::{create_pod, pods_run, workers};

/// Longer than instances have the ids of a recent increase: before that, Cluster Autoscaler since 1.36 may back off no
/// group.
const PROVISION: Duration = Duration::from_secs(80);

/// The infrastructure lacks capacity, which is reported, and another group grows.
pub(crate) async fn a_group_without_capacity_is_left_for_another(testbed: &Testbed) -> Result<()> {
    another_takes_over(testbed, "no-capacity", Settings::default()).await
}

/// A Machine that never becomes a Node is given up after a while, and its group is backed off.
pub(crate) async fn a_group_whose_machines_never_join_is_left_for_another(testbed: &Testbed) -> Result<()> {
    // The provision time of the second group is no longer.
    another_takes_over(testbed, "never-join", Settings { provision: PROVISION, ..Settings::default() }).await
}

/// Bare metal: at first no host is available, and later one is. The Machine isn't deleted, and no other group grows.
pub(crate) async fn a_host_that_comes_late_is_waited_for(testbed: &Testbed) -> Result<()> {
    let first = workers(testbed, "first").publishing(testbed.capacity(&testbed.cpu(4, 16)));
    let first = first.that("no-capacity").annotate(GRACE, "10m").create(testbed).await?;
    let second = workers(testbed, "second").publishing(testbed.capacity(&testbed.cpu(16, 16))).create(testbed).await?;
    // The scheduler retries a Pod only after ten seconds; until then its Node is idle.
    let settings = Settings { unneeded: Duration::from_secs(3600), ..Settings::default() };
    let mut autoscaling = testbed.autoscale(settings).await?;
    create_pod(testbed, "web", &testbed.cpu(3, 16)).await?;
    let machines = testbed.machines_that(&first, "a Machine", |machines| machines.len() == 1).await?;
    lacks_capacity(testbed, &machines[0]).await?;
    // Otherwise it would be deleted in the first of them.
    autoscaling.wait_for_loops(4).await?;
    let label = json!({ "spec": { "template": { "metadata": { "labels": { sandbox::BEHAVIOUR_LABEL: "joins" } } } } });
    testbed.objects.patch(first.kind, &first.name, label).await?;
    pods_run(testbed, &mut autoscaling, 1).await?;
    let running = testbed.running(&first, 1).await?;
    ensure!(names(&running) == names(&machines), "another Machine came: {running:?}");
    autoscaling.sizes(&[(&first.id, 1), (&second.id, 0)]).await?;
    let Some(calls) = autoscaling.end().await? else { return Ok(()) };
    let deletes = calls.iter().filter(|call| call.name == "NodeGroupDeleteNodes").count();
    ensure!(deletes == 0, "{deletes} deletes");
    Ok(())
}

/// Waits until Cluster API reports the lack of capacity of a Machine.
async fn lacks_capacity(testbed: &Testbed, machine: &Machine) -> Result<()> {
    eventually("a Machine without capacity", TIMEOUT, async || {
        let status = testbed.objects.get("Machine", &machine.name).await?.data["status"].take();
        let mut conditions = status["conditions"].as_array().into_iter().flatten();
        let ready = conditions.find(|condition| condition["type"] == "InfrastructureReady");
        let message = ready.and_then(|ready| ready["message"].as_str()).unwrap_or_default();
        ensure!(message.contains("InsufficientInstanceCapacity"), "its status is {status}");
        Ok(())
    })
    .await
}

async fn another_takes_over(testbed: &Testbed, behaviour: &str, settings: Settings) -> Result<()> {
    // The first wastes fewer CPUs, so it is chosen first.
    let first = workers(testbed, "first").publishing(testbed.capacity(&testbed.cpu(4, 16)));
    let first = first.that(behaviour).annotate(GRACE, "6s").create(testbed).await?;
    let second = workers(testbed, "second").publishing(testbed.capacity(&testbed.cpu(16, 16))).create(testbed).await?;
    let mut autoscaling = testbed.autoscale(settings).await?;
    create_pod(testbed, "web", &testbed.cpu(3, 16)).await?;
    pods_run(testbed, &mut autoscaling, 1).await?;
    autoscaling.sizes(&[(&first.id, 0), (&second.id, 1)]).await?;
    testbed.running(&first, 0).await?;
    testbed.running(&second, 1).await?;
    let Some(calls) = autoscaling.end().await? else { return Ok(()) };
    let mut increased = Vec::new();
    let mut deleted = Vec::new();
    for call in &calls {
        match call.name.as_str() {
            "NodeGroupIncreaseSize" => increased.push(call.request::<NodeGroupIncreaseSizeRequest>()?.id),
            "NodeGroupDeleteNodes" => deleted.push(call.request::<NodeGroupDeleteNodesRequest>()?.id),
            _ => {}
        }
    }
    ensure!(increased == [first.id.clone(), second.id], "increases of {increased:?}");
    ensure!(deleted.iter().all(|id| *id == first.id), "deletes of {deleted:?}");
    Ok(())
}
