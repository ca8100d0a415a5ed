//! Checks everything that works with all rights: every RPC, deletions, replacements, and Events.

use anyhow::{Context as _, Result, ensure};
use e2e::{
    pool::{Group, Pool, Scalable},
    proto::{NodeGroupAutoscalingOptions, PricingNodePriceRequest, PricingPodPriceRequest},
    provider::{Provider, ask, assert_refused, made_up_node},
    wait::{SOON, eventually},
};
use k8s_pb::{
    api::core::v1::{Container, Pod, PodSpec, ResourceRequirements},
    apimachinery::pkg::api::resource::Quantity,
};
use kube::api::DynamicObject;
use prost::Message as _;
use tonic::Code;

use super::Release;

const THRESHOLD: &str = "cluster.x-k8s.io/autoscaling-options-scaledownutilizationthreshold";

/// Checks all 15 RPCs.
pub(super) async fn all_work(release: &Release) -> Result<()> {
    let workers = release.group(Pool::new("all-workers").sized().annotate(THRESHOLD, "0.7").running(2)).await?;
    let set = release.group(Pool::new("all-set").of(Scalable::MachineSet).running(3)).await?;
    let pool = release.group(Pool::new("all-pool").of(Scalable::MachinePool).running(1)).await?;
    reads(&release.provider, &workers).await?;
    for group in [&workers, &set, &pool] {
        let before = release.provider.target_size(&group.id).await?;
        release.provider.increase(&group.id, 2).await?;
        release.scale_is(group, before + 2).await?;
        release.provider.decrease(&group.id, -2).await?;
        release.scale_is(group, before).await?;
    }
    eventually("Events of what was done", SOON, async || {
        let events = events_of(release, &workers).await?;
        ensure!(events.iter().any(|event| event.data["reason"] == "ScaledUp"), "{events:#?}");
        Ok(())
    })
    .await?;
    a_named_machine_is_deleted(release, &set).await?;
    a_machine_of_a_pool_is_marked(release).await?;
    a_machine_is_replaced(release).await?;
    release.provider.cleanup().await?;
    release.provider.refresh().await?;
    Ok(())
}

/// Checks the reads. `Refresh` and `NodeGroups` have been called before.
async fn reads(provider: &Provider, group: &Group) -> Result<()> {
    let (id, node) = (&group.id, &group.nodes[0]);
    let found = provider.group_of(node).await?.context("a Node without a group")?;
    ensure!(found.id == *id, "the Node's group is {}", found.id);
    assert_eq!(provider.target_size(id).await?, 2);
    assert_eq!(provider.instances(id).await?.len(), 2);
    ensure!(!provider.template(id).await?.node_bytes.is_empty(), "no template");
    let options = provider.options(id, NodeGroupAutoscalingOptions::default()).await?.context("no options")?;
    ensure!((options.scale_down_utilization_threshold - 0.7).abs() < 1e-9, "{options:?}");
    ensure!(!provider.gpu_label().await?.is_empty(), "no label of GPUs");
    provider.gpu_types().await?;
    let hour = [0, 3600].map(|seconds| Some(prost_types::Timestamp { seconds, nanos: 0 }));
    let [start_timestamp, end_timestamp] = hour;
    let of_node =
        PricingNodePriceRequest { node: Some(node.clone()), start_timestamp, end_timestamp, ..Default::default() };
    let price = provider.node_price(of_node).await?;
    ensure!(price > 0.0, "a Node costs {price}");
    let pod_bytes = pod().encode_to_vec().into();
    let of_pod = PricingPodPriceRequest { pod_bytes, start_timestamp, end_timestamp, ..Default::default() };
    let price = provider.client().pricing_pod_price(ask(of_pod)).await?.into_inner().price;
    ensure!(price > 0.0, "a pod costs {price}");
    Ok(())
}

/// Returns a Pod that requests one CPU.
fn pod() -> Pod {
    let core = ("cpu".to_owned(), Quantity { string: Some("1".to_owned()) });
    let resources = ResourceRequirements { requests: [core].into_iter().collect(), ..Default::default() };
    let container = Container { resources: Some(resources), ..Default::default() };
    let spec = PodSpec { containers: vec![container], ..Default::default() };
    Pod { spec: Some(spec), ..Default::default() }
}

/// Checks that a named Machine is deleted, and then the size is lowered.
async fn a_named_machine_is_deleted(release: &Release, set: &Group) -> Result<()> {
    let machine = &set.machines[0];
    release.provider.delete(&set.id, &set.nodes[..1]).await?;
    ensure!(release.is_deleting(machine).await?, "{machine} isn't being deleted");
    release.scale_is(set, 2).await
}

/// Checks that a named Machine of a MachinePool is marked, and then the size is lowered.
async fn a_machine_of_a_pool_is_marked(release: &Release) -> Result<()> {
    let pool = Pool::new("all-marked").of(Scalable::MachinePool).with_machines().running(2);
    let group = release.group(pool).await?;
    release.provider.delete(&group.id, &group.nodes[..1]).await?;
    let machine = &group.machines[0];
    release.world.objects.deletion_mark(machine).await?.context("the Machine isn't marked")?;
    ensure!(!release.is_deleting(machine).await?, "{machine} is being deleted");
    release.scale_is(&group, 1).await
}

async fn a_machine_is_replaced(release: &Release) -> Result<()> {
    let group = release.group(Pool::new("all-pending").pending(1).bounds(1, 5)).await?;
    let machine = &group.machines[0];
    let node = made_up_node(&format!("pending-machine-{}_{machine}", release.world.namespace));
    release.provider.delete(&group.id, &[node]).await?;
    ensure!(release.is_deleting(machine).await?, "{machine} isn't being deleted");
    release.scale_is(&group, 1).await
}

/// Checks that a repeated Event is counted, at the latest when its server ends.
pub(super) async fn repeated_events_are_counted(release: &mut Release) -> Result<()> {
    let group = release.group(Pool::new("all-series").running(1)).await?;
    let mut provider = release.another(&[])?;
    provider.ready().await?;
    let event = refused_twice(release, &mut provider, &group).await?;
    ensure!(event.data["series"]["count"] == 2, "the Event wasn't counted: {event:#?}");
    Ok(())
}

/// Returns the Event of a server that refuses the same request twice, and ends.
pub(super) async fn refused_twice(release: &Release, provider: &mut Provider, group: &Group) -> Result<DynamicObject> {
    for _ in 0..2 {
        assert_refused(provider.increase(&group.id, 1000).await, Code::FailedPrecondition, &["1001"])?;
    }
    eventually("the Event of a refusal", SOON, async || {
        events_of(release, group).await?.pop().context("no Event")?;
        Ok(())
    })
    .await?;
    provider.process.terminate()?;
    provider.process.ended(SOON).await?;
    let mut events = events_of(release, group).await?;
    ensure!(events.len() == 1, "Events are {events:#?}");
    events.pop().context("the Event is gone")
}

/// Returns the Events about a node group.
pub(super) async fn events_of(release: &Release, group: &Group) -> Result<Vec<DynamicObject>> {
    let mut events = release.world.objects.list("Event", "").await?;
    events.retain(|event| event.data["regarding"]["name"] == *group.name);
    Ok(events)
}
