//! Nodes that go.

use std::{collections::BTreeSet, time::Duration};

use anyhow::{Result, ensure};
use e2e::{
    autoscaling::Settings,
    controllers::{
        groups::Workers,
        machines::{Machine, names},
        testbed::POLL_INTERVAL,
    },
    wait::every,
};
use serde_json::{Value, json};

use super::{Outcome, PATIENCE};
use crate::stage::Stage;

const IDLE: usize = 50;
const BUSY: usize = 5;

/// The busy Nodes are those of the group's oldest Machines, and so the ones that Cluster API would rather keep.
pub(super) async fn fifty_at_once(stage: &Stage) -> Result<Outcome> {
    let testbed = &stage.testbed;
    let count = IDLE + BUSY;
    let group = Workers::new("workers").sized().bounds(0, 100).replicas(i32::try_from(count)?).create(testbed).await?;
    let machines = every(POLL_INTERVAL, "all Machines", 4 * PATIENCE, async || {
        let machines = testbed.machines(&group).await?;
        ensure!(machines.len() == count && machines.iter().all(Machine::runs), "{} Machines", machines.len());
        testbed.initialized(&machines).await?;
        Ok(machines)
    })
    .await?;
    for number in 0..BUSY {
        stage.pod(&format!("web-{number}"), "3").await?;
    }
    let pods = every(POLL_INTERVAL, "busy Nodes", PATIENCE, async || {
        for number in 0..BUSY {
            stage.runs(&format!("web-{number}")).await?;
        }
        testbed.workload.list("Pod", "").await
    })
    .await?;
    let busy: BTreeSet<&str> = pods.iter().filter_map(|pod| pod.data["spec"]["nodeName"].as_str()).collect();
    let kept = machines.iter().filter(|machine| machine.node.as_deref().is_some_and(|node| busy.contains(node)));
    let kept: BTreeSet<String> = kept.map(|machine| machine.name.clone()).collect();

    let mut run = stage.autoscale(Settings { unneeded: Duration::from_secs(2), ..Settings::default() }).await?;
    run.wait_for_loops(2, PATIENCE).await?;
    run.turn();
    let before = stage.requests()?;
    let gone = run
        .within(4 * PATIENCE, async || {
            let left = testbed.machines(&group).await?;
            let size = testbed.objects.scale(group.kind, &group.name).await?;
            ensure!(left.len() == BUSY, "{} Machines are left, and the size is {size}", left.len());
            Ok(left)
        })
        .await;
    let requests = stage.requests()? - before;
    Ok(match gone {
        Ok((left, _)) if names(&left) != kept => {
            let wrong = kept.difference(&names(&left)).count();
            Outcome::bad(format!("{wrong} busy Nodes went"))
        }
        Ok((_, took)) => Outcome::good(format!("gone after {} s by {requests} requests", took.as_secs())),
        Err(last) => Outcome::bad(last),
    })
}

/// Hooks hold the deletions, as a slow drain does. A Cluster Autoscaler that starts takes its taints off, and finds the
/// same Nodes idle again.
pub(super) async fn repeated(stage: &Stage) -> Result<Outcome> {
    let testbed = &stage.testbed;
    let group = Workers::new("workers").sized().replicas(5).create(testbed).await?;
    let machines = testbed.running(&group, 5).await?;
    testbed.hold(&machines, json!("held")).await?;
    for name in ["web-0", "web-1"] {
        stage.pod(name, "3").await?;
    }
    every(POLL_INTERVAL, "two busy Nodes", PATIENCE, async || {
        stage.runs("web-0").await?;
        stage.runs("web-1").await
    })
    .await?;
    let settings = Settings { unneeded: Duration::from_secs(2), ..Settings::default() };
    let mut run = stage.autoscale(settings).await?;
    let begun = run.within(PATIENCE, async || {
        let deleting = testbed.machines(&group).await?.iter().filter(|machine| machine.deleting).count();
        ensure!(deleting == 3, "{deleting} Machines are being deleted");
        Ok(())
    });
    if let Err(last) = begun.await {
        return Ok(Outcome::bad(last));
    }
    run.turn();
    for _ in 0..2 {
        run = stage.restart_autoscaler(run, settings).await?;
        run.wait_for_loops(8, PATIENCE).await?;
    }
    testbed.hold(&machines, Value::Null).await?;
    if let Err(last) = run.within(PATIENCE, async || stage.are_left(&group, 2).await).await {
        return Ok(Outcome::bad(last));
    }
    let quiet = run.stays(Duration::from_secs(10), async || {
        let size = testbed.objects.scale(group.kind, &group.name).await?;
        let left = testbed.machines(&group).await?.iter().filter(|machine| !machine.deleting).count();
        ensure!(size == 2 && left == 2, "a busy Node goes: {left} Machines are left, and the size is {size}");
        Ok(())
    });
    Ok(match quiet.await {
        Ok(()) => Outcome::good("three Nodes go, two stay"),
        Err(last) => Outcome::bad(last),
    })
}

/// The flags of 1.33 and later that say how many Nodes go at once, and how they are gathered.
pub(super) async fn batched(stage: &Stage) -> Result<Outcome> {
    let testbed = &stage.testbed;
    let group = Workers::new("workers").sized().replicas(6).create(testbed).await?;
    testbed.running(&group, 6).await?;
    stage.pod("web", "3").await?;
    every(POLL_INTERVAL, "a busy Node", PATIENCE, async || stage.runs("web").await).await?;
    let flags = ["--node-deletion-batcher-interval=3s", "--max-scale-down-parallelism=3"];
    let settings = Settings { unneeded: Duration::from_secs(2), ..Settings::default() };
    let mut run = stage.start(&stage.access(), settings, &flags).await?;
    run.wait_for_loops(2, PATIENCE).await?;
    run.turn();
    let gone = run.within(PATIENCE, async || {
        let left = testbed.machines(&group).await?.len();
        let size = testbed.objects.scale(group.kind, &group.name).await?;
        ensure!(left == 1, "{left} Machines are left, and the size is {size}");
        stage.runs("web").await
    });
    Ok(Outcome::after("all but the busy one are gone", gone.await))
}

/// A hook holds the drain of the old Machines, as a slow drain does. Each new Machine that goes is one that the rollout
/// makes again.
pub(super) async fn rollout(stage: &Stage) -> Result<Outcome> {
    let testbed = &stage.testbed;
    let group = Workers::new("workers").sized().replicas(3).create(testbed).await?;
    let old = testbed.running(&group, 3).await?;
    testbed.hold(&old, json!("held")).await?;
    testbed.roll(&group).await?;
    let begun =
        |machines: &[Machine]| machines.iter().any(|machine| machine.runs() && !names(&old).contains(&machine.name));
    testbed.machines_that(&group, "a new Machine", begun).await?;
    let mut run = stage.autoscale(Settings { unneeded: Duration::from_secs(2), ..Settings::default() }).await?;
    run.wait_for_loops(2, PATIENCE).await?;
    run.turn();
    let mut new = BTreeSet::new();
    let quiet = run
        .stays(Duration::from_secs(30), async || {
            let machines = testbed.machines(&group).await?;
            let now: BTreeSet<String> =
                machines.iter().filter(|machine| machine.runs()).map(|machine| machine.name.clone()).collect();
            let now: BTreeSet<String> = now.difference(&names(&old)).cloned().collect();
            let gone = new.difference(&now).count();
            new.extend(now);
            ensure!(gone == 0, "a new Machine was removed");
            Ok(())
        })
        .await;
    if let Err(last) = quiet {
        return Ok(Outcome::bad(last));
    }
    testbed.hold(&old, Value::Null).await?;
    let gone = run.within(2 * PATIENCE, async || stage.are_left(&group, 0).await).await;
    Ok(Outcome::after("all Nodes are gone", gone))
}

/// Somebody deletes Machines while the group grows: Cluster API makes them again.
pub(super) async fn deleted_by_others(stage: &Stage) -> Result<Outcome> {
    let testbed = &stage.testbed;
    let group = Workers::new("workers").sized().create(testbed).await?;
    let mut run = stage.autoscale(Settings { unneeded: Duration::from_secs(3600), ..Settings::default() }).await?;
    for number in 0..5 {
        stage.pod(&format!("web-{number}"), "3").await?;
    }
    let grown = run.within(PATIENCE, async || {
        let machines = testbed.machines(&group).await?;
        ensure!(machines.len() == 5, "{} Machines", machines.len());
        Ok(machines)
    });
    let (machines, _) = match grown.await {
        Ok(grown) => grown,
        Err(last) => return Ok(Outcome::bad(last)),
    };
    for machine in &machines[..2] {
        testbed.objects.remove("Machine", &machine.name).await?;
    }
    run.turn();
    let runs = run
        .within(2 * PATIENCE, async || {
            let size = testbed.objects.scale(group.kind, &group.name).await?;
            let running = testbed.machines(&group).await?.iter().filter(|machine| machine.runs()).count();
            ensure!(size == 5 && running == 5, "{running} of {size} Machines run");
            Ok(())
        })
        .await;
    Ok(Outcome::after("five Nodes run", runs))
}

/// The Machine's providerID differs from its Node's in a slash, as some infrastructure providers write it.
pub(super) async fn forms_of_provider_id(stage: &Stage) -> Result<Outcome> {
    let testbed = &stage.testbed;
    let group = Workers::new("workers").sized().bounds(0, 1).replicas(1).create(testbed).await?;
    let machine = testbed.change_form_of_id(&group).await?;
    stage.pod("web", "3").await?;
    let settings =
        Settings { unneeded: Duration::from_secs(2), provision: Duration::from_secs(1), ..Settings::default() };
    let mut run = stage.autoscale(settings).await?;
    run.wait_for_loops(2, PATIENCE).await?;
    run.turn();
    let quiet = run
        .stays(Duration::from_secs(20), async || {
            let machines = testbed.machines(&group).await?;
            let stays = machines.iter().any(|one| one.name == machine.name && !one.deleting);
            ensure!(stays, "its busy Machine was removed");
            Ok(())
        })
        .await;
    if let Err(last) = quiet {
        return Ok(Outcome::bad(last));
    }
    testbed.workload.delete("Pod", "web").await?;
    let gone = run.within(PATIENCE, async || Ok(testbed.running(&group, 0).await?)).await;
    Ok(Outcome::after("it stays while busy, and goes idle", gone))
}
