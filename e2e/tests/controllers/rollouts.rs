//! A MachineDeployment that replaces its Machines.

use anyhow::{Result, bail, ensure};
use e2e::controllers::{
    groups::{Group, Workers},
    instances::{instances_are, target_size_is},
    machines::{Machine, names},
    testbed::{POLL_INTERVAL, TIMEOUT, Testbed},
};
use e2e::{
    provider::assert_refused,
    wait::{eventually, every},
};
use kube::api::DynamicObject;
use serde_json::json;
use tonic::Code;

use crate::sizes::running;

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

/// With `OnDelete` a Machine stays until somebody deletes it. A smaller size takes Machines of the oldest MachineSet, and
/// the newest one keeps its Machines as long as an older one has any.
pub(crate) async fn with_on_delete_a_smaller_size_takes_machines_of_the_oldest_machine_set(
    testbed: &Testbed,
) -> Result<()> {
    let group = Workers::new("workers").replicas(3).create(testbed).await?;
    let provider = testbed.serve().await?;
    provider.shows(&[&group.id]).await?;
    let first = testbed.running(&group, 3).await?;
    let strategy = json!({ "type": "OnDelete", "rollingUpdate": null });
    let strategy = json!({ "spec": { "rollout": { "strategy": strategy } } });
    testbed.objects.patch(group.kind, &group.name, strategy).await?;

    for (machine, version, revision) in [(&first[0], "v1.36.2", "2"), (&first[1], "v1.36.3", "3")] {
        let version = json!({ "spec": { "template": { "spec": { "version": version } } } });
        testbed.objects.patch(group.kind, &group.name, version).await?;
        every(POLL_INTERVAL, &format!("revision {revision}"), TIMEOUT, async || {
            let deployment = testbed.objects.get(group.kind, &group.name).await?;
            ensure!(revision_of(&deployment) == revision, "its revision is {}", revision_of(&deployment));
            Ok(())
        })
        .await?;
        testbed.objects.delete("Machine", &machine.name).await?;
        testbed
            .machines_that(&group, "a new Machine for the deleted one", |machines| {
                machines.len() == 3 && machines.iter().all(Machine::runs) && !names(machines).contains(&machine.name)
            })
            .await?;
    }
    let old = sets_by_age(testbed, &group, "3").await?;
    let [(oldest, 1), (older, 1), (newest, 1)] = &old[..] else { bail!("MachineSets are {old:?}") };

    for (size, left) in [(2, vec![older, newest]), (1, vec![newest])] {
        testbed.objects.patch(group.kind, &group.name, json!({ "spec": { "replicas": size } })).await?;
        let kept = |machines: &[Machine]| {
            machines.len() == left.len() && left.iter().all(|set| machines.iter().any(|machine| machine.owner == **set))
        };
        testbed.machines_that(&group, &format!("Machines of {left:?}, without {oldest}"), kept).await?;
        target_size_is(&provider, &group.id, size).await?;
    }
    let left = testbed.running(&group, 1).await?;
    instances_are(&provider, &group.id, running(&left)).await
}

/// Returns a group's MachineSets with their sizes, in the order in which a smaller size takes their Machines: the one of
/// the newest revision is the last.
async fn sets_by_age(testbed: &Testbed, group: &Group, newest: &str) -> Result<Vec<(String, i64)>> {
    let mut sets = testbed.objects.list("MachineSet", &format!("pool={}", group.name)).await?;
    sets.sort_by_key(|set| {
        let is_newest = revision_of(set) == newest;
        (is_newest, set.metadata.creation_timestamp.clone(), set.metadata.name.clone())
    });
    let size = |set: &DynamicObject| set.data["spec"]["replicas"].as_i64().unwrap_or_default();
    Ok(sets.into_iter().map(|set| (set.metadata.name.clone().unwrap_or_default(), size(&set))).collect())
}

fn revision_of(object: &DynamicObject) -> &str {
    let annotations = object.metadata.annotations.as_ref();
    annotations.and_then(|all| all.get("machinedeployment.clusters.x-k8s.io/revision")).map_or("", String::as_str)
}

/// Begins a rollout to Machines of another version with this behaviour.
async fn roll(testbed: &Testbed, group: &str, behaviour: &str) -> Result<()> {
    let template = json!({
        "metadata": { "labels": { sandbox::BEHAVIOUR_LABEL: behaviour } },
        "spec": { "version": "v1.36.2" },
    });
    testbed.objects.patch("MachineDeployment", group, json!({ "spec": { "template": template } })).await
}
