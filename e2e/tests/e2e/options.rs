//! Autoscaling options, and calls with little content.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::{
    pool::Pool,
    proto::{
        CleanupRequest, GetAvailableGpuTypesRequest, GpuLabelRequest, MetaDuration, NodeGroupAutoscalingOptions,
        NodeGroupAutoscalingOptionsRequest, PricingNodePriceRequest, PricingPodPriceRequest,
    },
    provider::{Provider, ask, assert_refused},
    world::World,
};
use tonic::{Code, Status};

const OPTION: &str = "cluster.x-k8s.io/autoscaling-options-";

/// An answer replaces all defaults, so those without an annotation are sent back, in the old fields and in the new.
pub(crate) async fn annotations_override_the_defaults_that_were_sent(world: &World) -> Result<()> {
    let option = |name: &str| format!("{OPTION}{name}");
    let pool = Pool::new("workers")
        .running(1)
        .annotate(&option("scaledownutilizationthreshold"), "0.7")
        .annotate(&option("scaledownunneededtime"), "1h30m")
        .annotate(&option("maxnodeprovisiontime"), "not a duration");
    let group = pool.create(world).await?;
    let provider = world.serve().await?;
    provider.shows(&[&group.id]).await?;

    let options = options(&provider, &group.id).await?.context("no options were sent")?;
    let threshold = options.scale_down_utilization_threshold;
    ensure!((threshold - 0.7).abs() < 1e-9, "the threshold is {threshold}");
    let threshold = options.scale_down_gpu_utilization_threshold;
    ensure!((threshold - 0.4).abs() < 1e-9, "the GPU threshold is {threshold}");
    let minutes = |old: Option<MetaDuration>, new: Option<_>| {
        let old = old.context("an old duration is missing")?.duration;
        let new: Duration = Option::<prost_types::Duration>::context(new, "a new duration is missing")?.try_into()?;
        ensure!(i128::from(old) == i128::try_from(new.as_nanos())?, "{old} ns is not {new:?}");
        anyhow::Ok(new.as_secs() / 60)
    };
    let unneeded = minutes(options.scale_down_unneeded_time, options.scale_down_unneeded_duration)?;
    let unready = minutes(options.scale_down_unready_time, options.scale_down_unready_duration)?;
    let provision = minutes(options.max_node_provision_time, options.max_node_provision_duration)?;
    assert_eq!((unneeded, unready, provision), (90, 20, 15));
    ensure!(options.zero_or_max_node_scaling && options.ignore_daemon_sets_utilization, "{options:?}");
    Ok(())
}

/// An answer with options has side effects in the caller even if it changes nothing.
pub(crate) async fn a_group_without_overrides_sends_no_options(world: &World) -> Result<()> {
    let group = Pool::new("workers").running(1).create(world).await?;
    let provider = world.serve().await?;
    provider.shows(&[&group.id]).await?;
    match options(&provider, &group.id).await {
        Ok(None) => Ok(()),
        answer => assert_refused(answer, Code::Unimplemented, &[]),
    }
}

/// Cluster Autoscaler would delete all Nodes of such a group when one of them is late.
pub(crate) async fn zero_or_max_node_scaling_is_a_problem_and_is_not_sent(world: &World) -> Result<()> {
    let pool = Pool::new("workers").running(1).annotate(&format!("{OPTION}zeroormaxnodescaling"), "true");
    let group = pool.create(world).await?;
    let provider = world.serve().await?;
    provider.shows(&[&group.id]).await?;
    let sent = options(&provider, &group.id).await;
    ensure!(sent.as_ref().ok().is_none_or(Option::is_none), "{sent:?}");
    let report = world.explain()?;
    let problems = report["groups"][0]["problems"].to_string();
    ensure!(problems.contains("deletes all Nodes of such a group when one of them is late"), "{report:#}");
    Ok(())
}

/// The caller would take errors other than UNIMPLEMENTED for faults; Cleanup of an exiting caller must end nothing.
pub(crate) async fn an_unsupported_rpc_answers_unimplemented_or_empty_and_cleanup_ends_nothing(
    world: &World,
) -> Result<()> {
    let group = Pool::new("workers").running(1).create(world).await?;
    let provider = world.serve().await?;
    provider.shows(&[&group.id]).await?;
    let mut client = provider.client();

    let price = client.pricing_node_price(ask(PricingNodePriceRequest::default())).await;
    assert_refused(price, Code::Unimplemented, &[])?;
    let price = client.pricing_pod_price(ask(PricingPodPriceRequest::default())).await;
    assert_refused(price, Code::Unimplemented, &[])?;

    let label = client.gpu_label(ask(GpuLabelRequest {})).await?;
    assert_eq!(label.into_inner().label, "cluster-api/accelerator");
    client.get_available_gpu_types(ask(GetAvailableGpuTypesRequest {})).await?;

    client.cleanup(ask(CleanupRequest {})).await?;
    assert_eq!(provider.refreshed_ids().await?, [group.id]);
    Ok(())
}

/// Sends defaults in the old fields and in the new, like Cluster Autoscaler 1.34.2 to 1.34.5.
pub(crate) async fn options(provider: &Provider, id: &str) -> Result<Option<NodeGroupAutoscalingOptions>, Status> {
    let minutes = |minutes: i64| prost_types::Duration { seconds: minutes * 60, nanos: 0 };
    let old = |minutes: i64| MetaDuration { duration: minutes * 60_000_000_000 };
    let defaults = NodeGroupAutoscalingOptions {
        scale_down_utilization_threshold: 0.5,
        scale_down_gpu_utilization_threshold: 0.4,
        scale_down_unneeded_time: Some(old(10)),
        scale_down_unready_time: Some(old(20)),
        max_node_provision_time: Some(old(15)),
        zero_or_max_node_scaling: true,
        ignore_daemon_sets_utilization: true,
        scale_down_unneeded_duration: Some(minutes(10)),
        scale_down_unready_duration: Some(minutes(20)),
        max_node_provision_duration: Some(minutes(15)),
        ..NodeGroupAutoscalingOptions::default()
    };
    let request = NodeGroupAutoscalingOptionsRequest { id: id.to_owned(), defaults: Some(defaults) };
    let answer = provider.client().node_group_get_options(ask(request)).await?;
    Ok(answer.into_inner().node_group_autoscaling_options)
}
