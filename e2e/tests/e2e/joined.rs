//! Machines that have joined count as such whatever `status.nodeRef` holds: it lags while Cluster API can't reach the
//! workload cluster, and while the program's watch is behind. Giving one of them up would delete a running Node.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use e2e::{
    objects::Contract,
    pool::{Group, Pool},
    proto::{ExternalGrpcNode, instance_status::InstanceState},
    provider::{Provider, assert_refused, made_up_node},
    proxy::Proxy,
    wait::{SOON, eventually},
    world::World,
};
use serde_json::{Value, json};
use tonic::Code;

use crate::sizes::assert_scale;

/// The link from a Node to its Machine.
#[derive(Clone, Copy)]
enum Known {
    /// By the providerID, which both have.
    ByProviderId,
    /// By the Node's annotations.
    ByAnnotation,
}

/// They are in state Running, and their instance id is the providerID.
pub(crate) async fn machines_whose_nodes_are_known_run(world: &World) -> Result<()> {
    let groups = lagging(world).await?;
    let provider = world.serve().await?;
    provider.shows(&groups.each_ref().map(|group| group.id.as_str())).await?;
    for group in &groups {
        let nodes = group.nodes.iter().map(|node| (node.provider_id.clone(), InstanceState::InstanceRunning));
        let expected: BTreeMap<_, _> = nodes.collect();
        eventually(&format!("instances of {}", group.id), SOON, async || {
            let mut seen = BTreeMap::new();
            for instance in provider.instances(&group.id).await? {
                let status = instance.status.context("an instance without status")?;
                ensure!(status.error_info.is_none(), "{} has an error: {status:?}", instance.id);
                seen.insert(instance.id, status.instance_state());
            }
            ensure!(seen == expected, "they are {seen:?}, expected {expected:?}");
            Ok(())
        })
        .await?;
    }
    Ok(())
}

/// No Machine may be taken, and nothing is written.
pub(crate) async fn a_decrease_takes_no_machine_whose_node_is_known(world: &World) -> Result<()> {
    let groups = lagging(world).await?;
    let provider = world.serve().await?;
    provider.shows(&groups.each_ref().map(|group| group.id.as_str())).await?;
    for group in &groups {
        provider.decrease(&group.id, -2).await?;
        is_untouched(world, &provider, group).await?;
    }
    Ok(())
}

/// The id under which it was listed before is refused, since the Machine runs.
pub(crate) async fn a_machine_whose_node_is_known_is_not_deleted_as_one_that_never_joined(world: &World) -> Result<()> {
    let groups = lagging(world).await?;
    let provider = world.serve().await?;
    provider.shows(&groups.each_ref().map(|group| group.id.as_str())).await?;
    for group in &groups {
        let refused = provider.delete(&group.id, &[pending(world, &group.machines[1])]).await;
        assert_refused(refused, Code::FailedPrecondition, &[&group.machines[1]])?;
        is_untouched(world, &provider, group).await?;
    }
    Ok(())
}

/// The Machine is read before it is given up: one that has joined stays, whatever the watch has delivered.
pub(crate) async fn a_decrease_reads_machines_that_the_watch_says_never_joined(world: &World) -> Result<()> {
    let (group, proxy) = (Pool::new("workers").running(1).pending(2).create(world).await?, world.plane.proxy().await?);
    let provider = behind(world, &proxy, &group).await?;
    join(world, &group.machines[1]).await?;
    provider.decrease(&group.id, -2).await?;
    assert_scale(world, &group, 2).await?;
    ensure!(provider.target_size(&group.id).await? == 2, "the size answered is another one");
    world.objects.assert_deleting(&[&group.machines[2]]).await?;

    join(world, &group.machines[2]).await
}

/// The same if no Machine without a Node is left.
pub(crate) async fn a_decrease_takes_nothing_where_all_have_joined_meanwhile(world: &World) -> Result<()> {
    let (group, proxy) = (Pool::new("workers").running(1).pending(2).create(world).await?, world.plane.proxy().await?);
    let provider = behind(world, &proxy, &group).await?;
    for machine in &group.machines[1..] {
        join(world, machine).await?;
    }
    provider.decrease(&group.id, -2).await?;
    is_untouched(world, &provider, &group).await
}

/// The same for a Machine that is named by its former instance id.
pub(crate) async fn a_delete_reads_a_machine_that_the_watch_says_never_joined(world: &World) -> Result<()> {
    let (group, proxy) = (Pool::new("workers").running(1).pending(2).create(world).await?, world.plane.proxy().await?);
    let provider = behind(world, &proxy, &group).await?;
    join(world, &group.machines[1]).await?;
    let both = [1, 2].map(|index: usize| pending(world, &group.machines[index]));
    let refused = provider.delete(&group.id, &both[..1]).await;
    assert_refused(refused, Code::FailedPrecondition, &[&group.machines[1]])?;
    is_untouched(world, &provider, &group).await?;
    // Another one that is named with it goes, which the answer says.
    let refused = provider.delete(&group.id, &both).await;
    assert_refused(refused, Code::Unavailable, &[&group.machines[1], "other Machines that were named with it go"])?;
    provider.delete(&group.id, &both[1..]).await?;
    assert_scale(world, &group, 2).await?;
    world.objects.assert_deleting(&[&group.machines[2]]).await
}

/// Returns two groups of three joined Machines, of which only one has its nodeRef.
async fn lagging(world: &World) -> Result<[Group; 2]> {
    let by_id = Pool::new("by-id").running(3).create(world).await?;
    let by_annotation = Pool::new("by-annotation").running(3).create(world).await?;
    for (group, known) in [(&by_id, Known::ByProviderId), (&by_annotation, Known::ByAnnotation)] {
        for index in 1..3 {
            let (machine, node) = (&group.machines[index], &group.nodes[index].name);
            let status = json!({ "phase": "Provisioned", "nodeRef": null });
            world.objects.patch_status("Machine", machine, status).await?;
            match known {
                Known::ByProviderId => {
                    world.objects.annotate("Node", node, json!({ "cluster.x-k8s.io/machine": null })).await?;
                }
                Known::ByAnnotation => {
                    world.objects.patch("Machine", machine, json!({ "spec": { "providerID": null } })).await?;
                }
            }
        }
    }
    Ok([by_id, by_annotation])
}

/// Starts a program that knows the group, but no later writes.
async fn behind(world: &World, proxy: &Proxy, group: &Group) -> Result<Provider> {
    let provider = world.serve_through(proxy).await?;
    provider.shows(&[&group.id]).await?;
    eventually("Machines without Node as instances", SOON, async || {
        let instances = provider.instances(&group.id).await?;
        let pending = instances.iter().filter(|instance| instance.id.starts_with("pending-machine-")).count();
        ensure!(pending == 2, "{instances:?}");
        Ok(())
    })
    .await?;
    proxy.hold_watches();
    Ok(provider)
}

/// Writes the fields of a Machine that Cluster API sets when its Node has joined.
pub(crate) async fn join(world: &World, machine: &str) -> Result<()> {
    let node = format!("{}-{machine}", world.cluster);
    world.objects.patch("Machine", machine, json!({ "spec": { "providerID": format!("e2e:///{node}") } })).await?;
    let reference = match world.plane.contract {
        Contract::V1Beta1 => json!({ "apiVersion": "v1", "kind": "Node", "name": node }),
        Contract::V1Beta2 | Contract::MachineApi => json!({ "name": node }),
    };
    let status: Value = json!({ "phase": "Running", "nodeRef": reference });
    world.objects.patch_status("Machine", machine, status).await
}

fn pending(world: &World, machine: &str) -> ExternalGrpcNode {
    made_up_node(&format!("pending-machine-{}_{machine}", world.namespace))
}

/// Checks that the size is 3, and that nothing was written.
async fn is_untouched(world: &World, provider: &Provider, group: &Group) -> Result<()> {
    assert_scale(world, group, 3).await?;
    let size = provider.target_size(&group.id).await?;
    ensure!(size == 3, "the size answered is {size}");
    world.objects.assert_deleting(&[]).await
}
