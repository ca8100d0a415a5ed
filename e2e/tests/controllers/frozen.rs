//! A replica that is neither a Node nor an instance that could become one, for longer than the provision time, would
//! silently end every loop of Cluster Autoscaler, which requests a smaller size, treats any answer as a correction, and
//! does nothing else.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::{
    autoscaling::{Settings, record::Call},
    controllers::{
        groups::{GRACE, Group, MIN},
        machines::{Machine, names},
        running::Autoscaling,
        testbed::{POLL_INTERVAL, TIMEOUT, Testbed},
    },
    proto::NodeGroupDecreaseTargetSizeRequest,
    wait::every,
};
use sandbox::BEHAVIOUR_LABEL;
use serde_json::{Value, json};

use crate::pods::{create_pod, pods_run, workers};

/// The Machine's Node is gone, and no new Node joins while the Machine hangs. The replica has a placeholder, by which it
/// is given up for a smaller size, which removes the Machine that is already being deleted. All groups keep working.
pub(crate) async fn a_machine_that_hangs_in_deletion_stops_no_other_group(testbed: &Testbed) -> Result<()> {
    let held = workers(testbed, "held").sized().bounds(1, 5).replicas(2).create(testbed).await?;
    let setup = Setup::set(testbed).await?;
    let machines = testbed.running(&held, 2).await?;
    testbed.hang(&machines[0]).await?;
    let mut autoscaling = setup.autoscale(testbed).await?;
    setup.another_grows(testbed, &mut autoscaling).await?;
    autoscaling.sizes(&[(&held.id, 1), (&setup.other.id, 1)]).await?;
    let_go(testbed, &machines[0]).await?;
    let left = testbed.running(&held, 1).await?;
    ensure!(names(&left) == names(&machines[1..]), "{left:?} is left");
    setup.ends(testbed, autoscaling, &[(&held, 1)]).await
}

/// The failure of the Machine is reported while a delete for it would be accepted. Otherwise Cluster Autoscaler keeps
/// waiting for the instance.
pub(crate) async fn a_machine_without_capacity_at_the_minimum_stops_no_other_group(testbed: &Testbed) -> Result<()> {
    let full = workers(testbed, "full").sized().annotate(GRACE, "0").bounds(1, 5).replicas(1).create(testbed).await?;
    let setup = Setup::set(testbed).await?;
    let first = testbed.running(&full, 1).await?;
    testbed.objects.annotate(full.kind, &full.name, json!({ MIN: "2" })).await?;
    turn(testbed, &full, "no-capacity", json!({ "spec": { "replicas": 2 } })).await?;
    testbed.machines_that(&full, "two Machines", |machines| machines.len() == 2).await?;
    fails(testbed, &full, |machine| !names(&first).contains(&machine.name)).await?;
    let mut autoscaling = setup.autoscale(testbed).await?;
    setup.another_grows(testbed, &mut autoscaling).await?;
    autoscaling.sizes(&[(&full.id, 2), (&setup.other.id, 1)]).await?;
    turn(testbed, &full, "joins", json!({})).await?;
    let left = testbed.running(&full, 2).await?;
    ensure!(names(&first).is_subset(&names(&left)), "{first:?} went, and there are {left:?}");
    setup.ends(testbed, autoscaling, &[(&full, 2)]).await
}

/// The groups besides the one that could stop them.
struct Setup {
    /// The group for a Pod that fits no other group.
    other: Group,
    /// A group whose Machine never joins. Once it is given up, the provision time is over.
    clock: Group,
}

impl Setup {
    async fn set(testbed: &Testbed) -> Result<Self> {
        let other =
            workers(testbed, "other").publishing(testbed.capacity(&testbed.cpu(16, 16))).create(testbed).await?;
        let clock = workers(testbed, "clock").sized().that("never-join").replicas(1).create(testbed).await?;
        Ok(Self { other, clock })
    }

    /// Starts an autoscaler that removes no idle Nodes.
    async fn autoscale(&self, testbed: &Testbed) -> Result<Autoscaling> {
        let provisioned = |machines: &[Machine]| machines.iter().any(|machine| machine.phase == "Provisioned");
        testbed.machines_that(&self.clock, "a provisioned Machine", provisioned).await?;
        let settings =
            Settings { unneeded: Duration::from_secs(3600), provision: Duration::from_secs(20), ..Settings::default() };
        testbed.autoscale(settings).await
    }

    /// Waits until an incorrect size would be corrected, and then creates a Pod that needs the other group.
    async fn another_grows(&self, testbed: &Testbed, autoscaling: &mut Autoscaling) -> Result<()> {
        autoscaling.sizes(&[(&self.clock.id, 0)]).await?;
        create_pod(testbed, "web", &testbed.cpu(9, 16)).await?;
        pods_run(testbed, autoscaling, 1).await?;
        testbed.running(&self.other, 1).await?;
        nothing_is_corrected(&autoscaling.calls.all())
    }

    /// Checks that sizes, Machines and Nodes agree at rest.
    async fn ends(&self, testbed: &Testbed, mut autoscaling: Autoscaling, others: &[(&Group, usize)]) -> Result<()> {
        for &(group, size) in others.iter().chain(&[(&self.other, 1), (&self.clock, 0)]) {
            testbed.running(group, size).await?;
            autoscaling.sizes(&[(&group.id, i32::try_from(size)?)]).await?;
        }
        autoscaling.wait_for_loops(4).await?;
        for &(group, size) in others {
            testbed.running(group, size).await?;
        }
        let Some(calls) = autoscaling.end().await? else { return Ok(()) };
        nothing_is_corrected(&calls)
    }
}

/// Fails if a size was ever corrected.
fn nothing_is_corrected(calls: &[Call]) -> Result<()> {
    let corrected = calls.iter().filter(|call| call.name == "NodeGroupDecreaseTargetSize").map(Call::request);
    let corrected: Vec<NodeGroupDecreaseTargetSizeRequest> = corrected.collect::<Result<_>>()?;
    ensure!(corrected.is_empty(), "sizes were taken for incorrect: {corrected:?}");
    Ok(())
}

/// Releases a hanging Machine, and waits until it is gone.
async fn let_go(testbed: &Testbed, machine: &Machine) -> Result<()> {
    testbed.objects.patch("Machine", &machine.name, json!({ "metadata": { "finalizers": null } })).await?;
    every(POLL_INTERVAL, &format!("Machine {} gone", machine.name), TIMEOUT, async || {
        let left = testbed.objects.find("Machine", &machine.name).await?;
        ensure!(left.is_none(), "it is there");
        Ok(())
    })
    .await
}

/// Waits until Cluster API reports that the infrastructure of a Machine of a group failed, or has no capacity.
async fn fails(testbed: &Testbed, group: &Group, is_it: impl Fn(&Machine) -> bool) -> Result<()> {
    let failed = ["ImageNotFound", "ProvisioningFailed"];
    every(POLL_INTERVAL, &format!("a Machine of {} that failed", group.id), TIMEOUT, async || {
        let machines = testbed.machines(group).await?;
        let machine = machines.iter().find(|machine| is_it(machine)).context("there is none")?;
        let status = testbed.objects.get("Machine", &machine.name).await?.data["status"].take();
        let mut conditions = status["conditions"].as_array().into_iter().flatten();
        let ready = conditions.find(|condition| condition["type"] == "InfrastructureReady");
        let is_failed = |ready: &Value| failed.iter().any(|reason| ready["reason"] == *reason);
        ensure!(ready.is_some_and(is_failed), "its status is {status}");
        Ok(())
    })
    .await
}

/// Changes the behaviour of a group's new Machines, with a patch that may change more.
async fn turn(testbed: &Testbed, group: &Group, behaviour: &str, mut patch: Value) -> Result<()> {
    patch["spec"]["template"]["metadata"]["labels"][BEHAVIOUR_LABEL] = json!(behaviour);
    testbed.objects.patch(group.kind, &group.name, patch).await
}
