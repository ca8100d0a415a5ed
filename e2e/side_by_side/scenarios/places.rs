//! Node groups that others have a say in: labels, taints, pauses, policies, GitOps.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use e2e::{
    autoscaling::Settings,
    controllers::{
        groups::Workers,
        machines::names,
        testbed::{REMEMBERED, Testbed},
    },
};
use serde_json::json;

use super::{Outcome, PATIENCE, capacity, faults::grows, growing};
use crate::stage::{Access, Side, Stage};

pub(super) async fn template_labels(stage: &Stage) -> Result<Outcome> {
    let label = "node.cluster.x-k8s.io/pool";
    Workers::new("workers").sized().label(label, "db").create(&stage.testbed).await?;
    let mut run = stage.autoscale(growing()).await?;
    stage.pod_on("web", "3", &json!({ label: "db" })).await?;
    run.turn();
    let runs = run.within(PATIENCE, async || stage.runs("web").await).await;
    Ok(Outcome::after("the Pod runs", runs))
}

/// The group with the taint wastes less, so it would be chosen.
pub(super) async fn template_taints(stage: &Stage) -> Result<Outcome> {
    let testbed = &stage.testbed;
    let tainted = Workers::new("tainted").publishing(capacity("4")).taint("team", "db", "NoSchedule");
    let tainted = tainted.create(testbed).await?;
    Workers::new("workers").publishing(capacity("16")).create(testbed).await?;
    let outcome = grows(stage).await?;
    let size = testbed.objects.scale(tainted.kind, &tainted.name).await?;
    if size > 0 {
        return Ok(Outcome::bad(format!("the one with the taint has {size} replicas; {}", outcome.seen)));
    }
    Ok(outcome)
}

pub(super) async fn paused(stage: &Stage) -> Result<Outcome> {
    let testbed = &stage.testbed;
    let group = Workers::new("workers").sized().replicas(2).create(testbed).await?;
    testbed.running(&group, 2).await?;
    testbed.objects.patch("Cluster", &testbed.cluster, json!({ "spec": { "paused": true } })).await?;
    let mut run = stage.autoscale(Settings { unneeded: Duration::from_secs(2), ..Settings::default() }).await?;
    run.wait_for_loops(2, PATIENCE).await?;
    run.turn();
    let quiet = run
        .stays(Duration::from_secs(30), async || {
            let size = testbed.objects.scale(group.kind, &group.name).await?;
            ensure!(size == 2, "the size is {size} instead of 2");
            Ok(())
        })
        .await;
    if let Err(last) = quiet {
        return Ok(Outcome::bad(last));
    }
    testbed.objects.patch("Cluster", &testbed.cluster, json!({ "spec": { "paused": false } })).await?;
    let gone = run.within(PATIENCE, async || stage.are_left(&group, 0).await).await;
    Ok(Outcome::after("they go after the pause:", gone))
}

/// Both Clusters have the same workload cluster here, as hosted control planes of one fleet don't: what is compared is
/// that names don't collide.
pub(super) async fn two_namespaces(stage: &Stage) -> Result<Outcome> {
    let directory = stage.testbed.directory().join("second");
    std::fs::create_dir_all(&directory)?;
    let program = stage.program().to_owned();
    let second = Testbed::real(std::sync::Arc::clone(&stage.environment), program, directory).await?;
    Workers::new("workers").publishing(capacity("4")).create(&stage.testbed).await?;
    let big = Workers::new("workers").publishing(capacity("16")).create(&second).await?;
    let specs = [&stage.testbed, &second].map(|testbed| format!("clusterapi:namespace={}", testbed.namespace));
    let access = Access { specs: specs.to_vec(), ..stage.access() };
    let mut run = stage.start(&access, growing(), &[]).await?;
    stage.pod("small", "3").await?;
    stage.pod("big", "13").await?;
    run.turn();
    let both = run
        .within(PATIENCE, async || {
            stage.runs("small").await?;
            stage.runs("big").await?;
            let size = second.objects.scale(big.kind, &big.name).await?;
            ensure!(size >= 1, "the second has {size} replicas");
            Ok(())
        })
        .await;
    Ok(Outcome::after("both Pods run", both))
}

/// A GitOps controller applies a manifest that has `replicas`.
pub(super) async fn size_put_back(stage: &Stage) -> Result<Outcome> {
    let testbed = &stage.testbed;
    let fought = Workers::new("fought").publishing(capacity("4")).create(testbed).await?;
    Workers::new("workers").publishing(capacity("16")).create(testbed).await?;
    let objects = testbed.objects.clone();
    let _gitops = Gitops(tokio::spawn(async move {
        loop {
            let size = objects.scale(fought.kind, &fought.name).await;
            if size.is_ok_and(|size| size > 0) {
                let manifest = json!({ "spec": { "replicas": 0 } });
                // The next look repeats it.
                let _ = objects.patch_as("gitops", fought.kind, &fought.name, manifest).await;
            }
            tokio::time::sleep(Duration::from_millis(300)).await;
        }
    }));
    let settings = Settings { provision: Duration::from_secs(30), ..growing() };
    let mut run = stage.autoscale(settings).await?;
    stage.pod("web", "3").await?;
    run.turn();
    // The first may be chosen again and again; a Pod that fits the second alone must not wait for it.
    stage.pod("big", "13").await?;
    let runs = run.within(PATIENCE, async || stage.runs("big").await).await;
    Ok(Outcome::after("the other's Pod runs", runs))
}

struct Gitops(tokio::task::JoinHandle<()>);

impl Drop for Gitops {
    fn drop(&mut self) {
        self.0.abort();
    }
}

pub(super) async fn refusing_policy(stage: &Stage) -> Result<Outcome> {
    let testbed = &stage.testbed;
    let frozen = Workers::new("frozen").publishing(capacity("4")).create(testbed).await?;
    Workers::new("workers").publishing(capacity("16")).create(testbed).await?;
    let policy = json!({
        "kind": "ValidatingAdmissionPolicy",
        "metadata": { "name": "freeze" },
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": { "resourceRules": [{
                "apiGroups": ["cluster.x-k8s.io"],
                "apiVersions": ["*"],
                "operations": ["UPDATE"],
                "resources": ["machinedeployments", "machinedeployments/scale"],
                "resourceNames": [frozen.name],
            }] },
            "validations": [{
                "expression": "object.spec.replicas == oldObject.spec.replicas",
                "message": "sizes are frozen",
            }],
        },
    });
    testbed.objects.create(policy).await?;
    let binding = json!({
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": { "name": "freeze" },
        "spec": { "policyName": "freeze", "validationActions": ["Deny"] },
    });
    testbed.objects.create(binding).await?;
    // A policy takes a moment to be enforced.
    e2e::wait::eventually("the policy", PATIENCE, async || {
        let refused = testbed.objects.dry_run(frozen.kind, &frozen.name, json!({ "spec": { "replicas": 1 } })).await;
        refused.err().map(drop).context("it isn't enforced")
    })
    .await?;
    grows(stage).await
}

/// Nothing states the capacity. The only Node goes, and then Cluster Autoscaler and its provider restart.
pub(super) async fn remembered(stage: &Stage) -> Result<Outcome> {
    let testbed = &stage.testbed;
    testbed.keep_memory().await?;
    let flag = format!("--remember-in={}/{REMEMBERED}", testbed.namespace);
    let access = Access { flags: vec![flag], ..stage.access() };
    let group = Workers::new("workers").replicas(1).create(testbed).await?;
    testbed.running(&group, 1).await?;
    let settings = Settings { unneeded: Duration::from_secs(2), ..Settings::default() };
    let mut run = stage.start(&access, settings, &[]).await?;
    let gone = run.within(PATIENCE, async || {
        stage.are_left(&group, 0).await?;
        let kept = testbed.objects.get("ConfigMap", REMEMBERED).await?;
        ensure!(stage.side == Side::InTree || kept.data["data"].is_object(), "nothing is remembered yet");
        Ok(())
    });
    if let Err(last) = gone.await {
        return Ok(Outcome::bad(last));
    }
    run.end_autoscaler().await?;
    drop(run);
    let mut run = stage.start(&access, growing(), &[]).await?;
    stage.pod("web", "3").await?;
    run.turn();
    let runs = run.within(PATIENCE, async || stage.runs("web").await).await;
    Ok(Outcome::after("the Pod runs", runs))
}

/// The group's only Node has gone, and Cluster Autoscaler restarts, as it does at each upgrade.
pub(super) async fn overhead(stage: &Stage) -> Result<Outcome> {
    let testbed = &stage.testbed;
    let group = Workers::new("workers").publishing(capacity("4")).allocatable("3500m").replicas(1);
    let group = group.create(testbed).await?;
    testbed.running(&group, 1).await?;
    let settings = Settings { unneeded: Duration::from_secs(2), ..Settings::default() };
    let mut run = stage.autoscale(settings).await?;
    let gone = run.within(PATIENCE, async || Ok(testbed.running(&group, 0).await?)).await;
    if let Err(last) = gone {
        return Ok(Outcome::bad(last));
    }
    let mut run = stage.restart_autoscaler(run, growing()).await?;
    run.wait_for_loops(2, PATIENCE).await?;
    run.turn();
    stage.pod("web", "3800m").await?;
    let quiet = run
        .stays(Duration::from_secs(30), async || {
            let size = testbed.objects.scale(group.kind, &group.name).await?;
            ensure!(size == 0, "the size is {size}, and the Pod still waits");
            Ok(())
        })
        .await;
    Ok(quiet.map_or_else(Outcome::bad, |()| Outcome::good("none is bought")))
}

/// In-tree, the side that is looked at, and in-tree again, each of which has to grow the group by one.
pub(super) async fn switch_and_back(stage: &Stage) -> Result<Outcome> {
    let testbed = &stage.testbed;
    let group = Workers::new("workers").sized().replicas(2).create(testbed).await?;
    let first = testbed.running(&group, 2).await?;
    stage.pod("web-0", "3").await?;
    stage.pod("web-1", "3").await?;
    let settings = Settings { unneeded: Duration::from_secs(20), ..Settings::default() };
    if stage.side != Side::InTree {
        stage.grant_in_tree().await?;
    }
    for (number, side) in [(2, Side::InTree), (3, stage.side), (4, Side::InTree)] {
        let mut run = stage.start_side(side, &stage.access(), settings, &[]).await?;
        run.wait_for_loops(3, PATIENCE).await?;
        let pod = format!("web-{number}");
        stage.pod(&pod, "3").await?;
        run.turn();
        if let Err(last) = run.within(PATIENCE, async || stage.runs(&pod).await).await {
            return Ok(Outcome::bad(format!("with {}, {last}", side.as_str())));
        }
        run.end_autoscaler().await?;
    }
    let left = testbed.machines(&group).await?;
    let gone = names(&first).difference(&names(&left)).count();
    ensure!(left.len() >= 5, "{} Machines for five Pods", left.len());
    let seen = format!("{} Nodes for five Pods, {gone} of the first two gone", left.len());
    Ok(Outcome { good: gone == 0 && left.len() == 5, seen })
}
