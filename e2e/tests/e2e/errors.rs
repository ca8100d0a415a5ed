//! The instances that report an error: those whose delete would be accepted now, since Cluster Autoscaler sends it in
//! every loop and for all of them at once. Any other would be neither a Node nor an expected one for as long as the
//! delete is refused.

use anyhow::{Result, ensure};
use e2e::{
    objects::Contract,
    pool::{Group, Pool},
    proto::instance_status::InstanceState::InstanceCreating,
    provider::{Provider, made_up_node},
    wait::{SOON, eventually},
    world::World,
};
use serde_json::{Value, json};

use crate::sizes::assert_scale;

/// A group of one Node and some failed Machines.
struct Case {
    name: &'static str,
    failed: usize,
    min: i32,
    rolling: bool,
    /// The number of them that are reported as failed.
    reported: usize,
}

/// A delete leads to a smaller size, or to a replacement at the min size; during a rollout it is refused.
pub(crate) async fn failures_are_reported_where_their_delete_would_be_accepted(world: &World) -> Result<()> {
    let cases = [
        Case { name: "above", failed: 2, min: 0, rolling: false, reported: 2 },
        Case { name: "nearly", failed: 2, min: 2, rolling: false, reported: 1 },
        Case { name: "at-minimum", failed: 1, min: 2, rolling: false, reported: 1 },
        Case { name: "many-at-minimum", failed: 3, min: 4, rolling: false, reported: 1 },
        Case { name: "rolling", failed: 2, min: 0, rolling: true, reported: 0 },
        Case { name: "rolling-at-minimum", failed: 2, min: 3, rolling: true, reported: 0 },
    ];
    hold(world, &cases, &[]).await
}

/// Without replacement no Machine may be deleted at the min size.
pub(crate) async fn failures_at_the_minimum_are_not_reported_without_replacement(world: &World) -> Result<()> {
    let cases = [
        Case { name: "above", failed: 2, min: 0, rolling: false, reported: 2 },
        Case { name: "nearly", failed: 2, min: 2, rolling: false, reported: 1 },
        Case { name: "at-minimum", failed: 2, min: 3, rolling: false, reported: 0 },
    ];
    hold(world, &cases, &["--no-replacement"]).await
}

/// Until the next one may be replaced, none of the remaining ones reports an error.
pub(crate) async fn after_a_replacement_failures_at_the_minimum_are_not_reported(world: &World) -> Result<()> {
    let case = Case { name: "workers", failed: 3, min: 4, rolling: false, reported: 1 };
    let group = case.create(world).await?;
    let provider = world.serve().await?;
    provider.shows(&[&group.id]).await?;
    let reported = says(&provider, &group, 1).await?;
    provider.delete(&group.id, &[made_up_node(&reported[0])]).await?;
    says(&provider, &group, 0).await?;
    assert_scale(world, &group, 4).await
}

async fn hold(world: &World, cases: &[Case], flags: &[&str]) -> Result<()> {
    let mut groups = Vec::new();
    for case in cases {
        groups.push(case.create(world).await?);
    }
    let provider = world.serve_with(flags).await?;
    let ids: Vec<&str> = groups.iter().map(|group| group.id.as_str()).collect();
    provider.shows(&ids).await?;
    let mut wrong = Vec::new();
    for (case, group) in cases.iter().zip(&groups) {
        match says(&provider, group, case.reported).await {
            Err(error) => wrong.push(format!("{error:#}")),
            Ok(reported) if reported.is_empty() => {}
            Ok(reported) => {
                let nodes: Vec<_> = reported.iter().map(|id| made_up_node(id)).collect();
                let deleted = provider.delete(&group.id, &nodes).await;
                wrong.extend(deleted.err().map(|status| format!("deletes of {reported:?}: {status}")));
            }
        }
    }
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(())
}

/// Returns the status of a failed Machine: its phase, or in versions without that phase its conditions.
pub(crate) fn failed(contract: Contract, message: &str) -> Value {
    match contract {
        Contract::V1Beta1 => json!({ "phase": "Failed", "failureReason": "CreateError", "failureMessage": message }),
        Contract::V1Beta2 | Contract::MachineApi => not_ready("Deleted", message),
    }
}

/// Returns the status of a Machine with this infrastructure condition.
pub(crate) fn not_ready(reason: &str, message: &str) -> Value {
    json!({ "conditions": [{
        "type": "InfrastructureReady", "status": "False", "reason": reason, "message": message,
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }] })
}

impl Case {
    async fn create(&self, world: &World) -> Result<Group> {
        let group = Pool::new(self.name).running(1).pending(self.failed).bounds(self.min, 10).create(world).await?;
        for machine in &group.machines[1..] {
            world.objects.patch_status("Machine", machine, failed(world.plane.contract, "it broke")).await?;
        }
        if self.rolling {
            group.begin_rollout(world).await?;
        }
        Ok(group)
    }
}

/// Waits until this number of instances of a group in state Creating have an error. Those in state Deleting don't
/// count.
async fn says(provider: &Provider, group: &Group, expected: usize) -> Result<Vec<String>> {
    eventually(&format!("{expected} instances of {} with an error", group.id), SOON, async || {
        let instances = provider.instances(&group.id).await?;
        let failed = instances.iter().filter(|instance| {
            let status = instance.status.as_ref();
            status.is_some_and(|it| it.instance_state() == InstanceCreating && it.error_info.is_some())
        });
        let failed: Vec<_> = failed.map(|instance| instance.id.clone()).collect();
        ensure!(failed.len() == expected, "they are {failed:?} of {instances:?}");
        Ok(failed)
    })
    .await
}
