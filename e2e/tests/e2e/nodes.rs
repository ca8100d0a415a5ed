//! `NodeGroupForNode`: an error for one Node would end the caller's loop, so it never fails.

use anyhow::{Context, Result, ensure};
use e2e::{
    fixtures::{self, Moment},
    pool::{Pool, Scalable},
    proto::ExternalGrpcNode,
    provider::{Provider, made_up_node},
    world::World,
};

/// By providerID, and by Cluster API's annotations on a Node without one.
pub(crate) async fn real_nodes_lead_to_their_group(world: &World) -> Result<()> {
    let workers = Pool::new("workers").running(2).bounds(1, 5).create(world).await?;
    let batch = Pool::new("batch").of(Scalable::MachineSet).running(1).create(world).await?;
    let spot = Pool::new("spot").of(Scalable::MachinePool).running(1).create(world).await?;
    let provider = world.serve().await?;
    provider.shows(&[&workers.id, &batch.id, &spot.id]).await?;

    for group in [&workers, &batch, &spot] {
        for node in &group.nodes {
            let by_id = made_up_node(&node.provider_id);
            assert_group(&provider, &by_id, &group.id).await?;
            assert_group(&provider, node, &group.id).await?;
        }
    }
    for node in workers.nodes.iter().chain(&batch.nodes) {
        let by_annotation = ExternalGrpcNode { provider_id: String::new(), ..node.clone() };
        let id = if workers.nodes.contains(node) { &workers.id } else { &batch.id };
        assert_group(&provider, &by_annotation, id).await?;
    }
    let found = provider.group_of(&workers.nodes[0]).await?.context("no group")?;
    assert_eq!((found.min_size, found.max_size), (1, 5));
    Ok(())
}

/// The caller makes up Nodes for instances without one, and for templates.
pub(crate) async fn made_up_nodes_lead_to_their_group(world: &World) -> Result<()> {
    let workers = Pool::new("workers").running(1).pending(1).missing(2).create(world).await?;
    let empty = Pool::new("empty").sized().create(world).await?;
    world.objects.delete("Machine", &workers.machines[0]).await?;
    let provider = world.serve().await?;
    provider.shows(&[&workers.id, &empty.id]).await?;

    let instances = provider.instances(&workers.id).await?;
    for kind in ["deleting-machine-", "pending-machine-", "replica-MachineDeployment-"] {
        let found = instances.iter().any(|instance| instance.id.starts_with(kind));
        ensure!(found, "no {kind} among {instances:?}");
    }
    for instance in &instances {
        assert_group(&provider, &made_up_node(&instance.id), &workers.id).await?;
    }
    for group in [&workers, &empty] {
        let mut node = ExternalGrpcNode {
            name: format!("template-node-for-{}-1234567890", group.id),
            ..ExternalGrpcNode::default()
        };
        assert_group(&provider, &node, &group.id).await?;
        if let Some(real) = group.nodes.first() {
            node.provider_id.clone_from(&real.provider_id);
            assert_group(&provider, &node, &group.id).await?;
        }
    }
    Ok(())
}

/// An empty id means that the Node must be left alone.
pub(crate) async fn nodes_of_no_group_have_an_empty_answer(world: &World) -> Result<()> {
    let recorded = fixtures::load(world, Moment::Steady).await?;
    let provider = world.serve().await?;
    let id = recorded.name("MachineDeployment/team-a/stage-md-0-mnr6p");
    provider.shows(&[&id]).await?;

    let worker = recorded.name("in-memory://stage-md-0-mnr6p-x9wfq-wdn6x");
    assert_group(&provider, &made_up_node(&worker), &id).await?;

    let control_plane = recorded.name("in-memory://stage-9xnds-gs9wn");
    let gone_template = "template-node-for-MachineDeployment/nowhere/nothing-1";
    let strangers = [
        control_plane.as_str(),
        "",
        "/",
        "aws:///eu-west-1a/i-0123456789abcdef0",
        "replica-MachineDeployment-nowhere_nothing-0",
        "replica-MachineDeployment-nowhere_nothing-99999999999999999999",
        "pending-machine-nowhere_nothing",
        "deleting-machine-",
        "failed-machine-___",
        gone_template,
    ];
    for stranger in strangers {
        let found = provider.group_of(&made_up_node(stranger)).await?;
        ensure!(found.is_none(), "{stranger:?} leads to {found:?}");
    }
    Ok(())
}

async fn assert_group(provider: &Provider, node: &ExternalGrpcNode, id: &str) -> Result<()> {
    let found = provider.group_of(node).await?;
    ensure!(
        found.as_ref().is_some_and(|group| group.id == id),
        "{} ({}) leads to {found:?}, not to {id}",
        node.name,
        node.provider_id
    );
    Ok(())
}
