//! A MachineDeployment that replaces its Machines.

use anyhow::Result;
use e2e::controllers::{
    groups::Workers,
    instances::{instances, target_size_is},
    machines::{Machine, names},
    testbed::{TIMEOUT, Testbed},
};
use e2e::{provider::assert_refused, wait::eventually};
use serde_json::json;
use tonic::Code;

use crate::sizes::running;

/// The Machines of both MachineSets belong to the group, and the size is the requested one.
pub(crate) async fn a_rollout_shows_the_machines_of_both_machine_sets(testbed: &Testbed) -> Result<()> {
    let group = Workers::new("workers").replicas(2).create(testbed).await?;
    let provider = testbed.serve().await?;
    provider.shows(&[&group.id]).await?;
    let old = testbed.running(&group, 2).await?;

    roll(testbed, &group.name, "never-join").await?;
    let both = testbed
        .machines_that(&group, "one new Machine beside the old ones", |machines| {
            machines.len() == 3 && machines.iter().filter(|machine| machine.phase == "Provisioned").count() == 1
        })
        .await?;
    eventually("all three Machines as instances", TIMEOUT, async || {
        let seen = instances(&provider, &group.id).await?;
        anyhow::ensure!(seen.len() == 3, "instances are {seen:?}");
        for (id, state) in running(&old) {
            anyhow::ensure!(seen.get(&id) == Some(&state), "{id} is missing in {seen:?}");
        }
        Ok(())
    })
    .await?;
    assert!(names(&old).is_subset(&names(&both)), "{both:?}");
    provider.shows(&[&group.id]).await?;
    assert_eq!(provider.target_size(&group.id).await?, 2);

    // With the cause of the delay fixed, the rollout completes.
    roll(testbed, &group.name, "joins").await?;
    let new = testbed
        .machines_that(&group, "two new Machines", |machines| {
            machines.len() == 2 && machines.iter().all(|machine| machine.runs() && !names(&old).contains(&machine.name))
        })
        .await?;
    e2e::controllers::instances::instances_are(&provider, &group.id, running(&new)).await?;
    target_size_is(&provider, &group.id, 2).await
}

/// During a rollout a smaller size may take another Machine than the named one, so a delete is refused until it is
/// complete.
pub(crate) async fn a_delete_in_the_middle_of_a_rollout_is_refused_and_takes_nothing(testbed: &Testbed) -> Result<()> {
    let group = Workers::new("workers").replicas(2).create(testbed).await?;
    let provider = testbed.serve().await?;
    provider.shows(&[&group.id]).await?;
    let old = testbed.running(&group, 2).await?;
    roll(testbed, &group.name, "never-join").await?;
    testbed.machines_that(&group, "one new Machine beside the old ones", |machines| machines.len() == 3).await?;
    let node = testbed.node_of(&old[0]).await?;
    eventually("a refusal", TIMEOUT, async || {
        let refused = provider.delete(&group.id, std::slice::from_ref(&node)).await;
        assert_refused(refused, Code::FailedPrecondition, &["rolling out"])
    })
    .await?;
    assert_eq!(provider.target_size(&group.id).await?, 2);
    testbed.objects.assert_marked(&[]).await?;

    roll(testbed, &group.name, "joins").await?;
    let is_new = |machine: &Machine| machine.runs() && !names(&old).contains(&machine.name);
    let new = testbed
        .machines_that(&group, "two new Machines", |machines| machines.len() == 2 && machines.iter().all(is_new))
        .await?;
    let node = testbed.node_of(&new[1]).await?;
    eventually("a delete after the rollout", TIMEOUT, async || {
        Ok(provider.delete(&group.id, std::slice::from_ref(&node)).await?)
    })
    .await?;
    let left = testbed.running(&group, 1).await?;
    assert_eq!(names(&left), names(&new[..1]));
    Ok(())
}

/// Begins a rollout to Machines of another version with this behaviour.
async fn roll(testbed: &Testbed, group: &str, behaviour: &str) -> Result<()> {
    let template = json!({
        "metadata": { "labels": { sandbox::BEHAVIOUR_LABEL: behaviour } },
        "spec": { "version": "v1.36.2" },
    });
    testbed.objects.patch("MachineDeployment", group, json!({ "spec": { "template": template } })).await
}
