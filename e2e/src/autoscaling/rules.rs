//! What must hold for every call that an autoscaler made, whoever it was and whatever the scenario.

use anyhow::{Context, Result, ensure};
use prost::bytes::Bytes;
use tonic::Code;

use super::{Version, record::Call};
use crate::proto::{
    NodeGroupAutoscalingOptions, NodeGroupAutoscalingOptionsRequest, NodeGroupAutoscalingOptionsResponse,
    NodeGroupDecreaseTargetSizeRequest, NodeGroupDeleteNodesRequest, NodeGroupForNodeResponse,
    NodeGroupIncreaseSizeRequest, NodeGroupTargetSizeRequest, NodeGroupTargetSizeResponse,
    NodeGroupTemplateNodeInfoResponse, NodeGroupsResponse, PricingNodePriceRequest, PricingPodPriceRequest,
};

/// Holds them to all rules.
pub fn hold(calls: &[Call], version: Version) -> Result<()> {
    for call in calls {
        let what = || format!("{} of Cluster Autoscaler {version}: {call:?}", call.name);
        sends_its_fields(call, version).with_context(what)?;
        answers_do_no_harm(call).with_context(what)?;
        answers_fill_all_fields(call).with_context(what)?;
    }
    node_groups_are_those_of_the_last_list(calls)?;
    sizes_show_increases_at_once(calls)
}

/// A version sends the fields that it knows, and no others.
fn sends_its_fields(call: &Call, version: Version) -> Result<()> {
    let (old, new) = match call.name.as_str() {
        "NodeGroupGetOptions" => {
            let request: NodeGroupAutoscalingOptionsRequest = call.request()?;
            fields(&request.defaults.context("options without defaults")?)?
        }
        "PricingNodePrice" => {
            let request: PricingNodePriceRequest = call.request()?;
            (request.start_time.is_some(), request.start_timestamp.is_some())
        }
        "PricingPodPrice" => {
            let request: PricingPodPriceRequest = call.request()?;
            let (old, new) = (!request.pod.is_empty(), !request.pod_bytes.is_empty());
            ensure!(old == request.start_time.is_some(), "the old Pod and the old time don't go together");
            ensure!(new == request.start_timestamp.is_some(), "the new Pod and the new time don't go together");
            (old, new)
        }
        _ => return Ok(()),
    };
    ensure!(old == version.knows_old_fields(), "old fields: {old}");
    ensure!(new == version.knows_new_fields(), "new fields: {new}");
    Ok(())
}

/// Whether options hold the old durations, and whether the new ones: all three of them or none.
fn fields(options: &NodeGroupAutoscalingOptions) -> Result<(bool, bool)> {
    let old = [options.scale_down_unneeded_time, options.scale_down_unready_time, options.max_node_provision_time]
        .map(|duration| duration.is_some());
    let new = [
        options.scale_down_unneeded_duration,
        options.scale_down_unready_duration,
        options.max_node_provision_duration,
    ]
    .map(|duration| duration.is_some());
    for fields in [old, new] {
        ensure!(fields.iter().all(|there| *there == fields[0]), "some durations are missing: {options:?}");
    }
    Ok((old[0], new[0]))
}

/// An error here would end a loop, stop scaling for all, or make all groups vanish. API servers are up in these scenarios.
fn answers_do_no_harm(call: &Call) -> Result<()> {
    let allowed: &[Code] = match call.name.as_str() {
        "Refresh"
        | "NodeGroups"
        | "NodeGroupForNode"
        | "NodeGroupTargetSize"
        | "NodeGroupNodes"
        | "NodeGroupIncreaseSize"
        | "NodeGroupDecreaseTargetSize"
        | "GPULabel"
        | "GetAvailableGPUTypes"
        | "Cleanup" => &[Code::Ok],
        "NodeGroupTemplateNodeInfo" | "NodeGroupGetOptions" | "PricingNodePrice" | "PricingPodPrice" => {
            &[Code::Ok, Code::Unimplemented]
        }
        // Asked for in every loop, whatever was answered.
        "NodeGroupDeleteNodes" => &[Code::Ok, Code::FailedPrecondition, Code::Aborted],
        other => anyhow::bail!("the protocol has no {other}"),
    };
    ensure!(allowed.contains(&call.code), "answered with {:?}", call.code);
    Ok(())
}

/// Some versions end when one that they know is missing.
fn answers_fill_all_fields(call: &Call) -> Result<()> {
    if call.code != Code::Ok {
        return Ok(());
    }
    match call.name.as_str() {
        "NodeGroupTemplateNodeInfo" => {
            let answer: NodeGroupTemplateNodeInfoResponse = call.response()?;
            ensure!(answer.node_bytes != Bytes::new(), "an empty Node");
            ensure!(answer.node_bytes == answer.node_info, "the two Nodes differ");
        }
        "NodeGroupGetOptions" => {
            let answer: NodeGroupAutoscalingOptionsResponse = call.response()?;
            if let Some(options) = answer.node_group_autoscaling_options {
                ensure!(fields(&options)? == (true, true), "durations are missing: {options:?}");
            }
        }
        _ => {}
    }
    Ok(())
}

/// A Node's group is one that NodeGroups has listed since the last Refresh, with the bounds it had there.
fn node_groups_are_those_of_the_last_list(calls: &[Call]) -> Result<()> {
    let lists: Vec<_> = calls.iter().filter(|call| call.name == "NodeGroups").collect();
    for call in calls.iter().filter(|call| call.name == "NodeGroupForNode") {
        let answer: NodeGroupForNodeResponse = call.response()?;
        let Some(group) = answer.node_group.filter(|group| !group.id.is_empty()) else { continue };
        let Some(list) = lists.iter().rev().find(|list| list.ended < call.began) else { continue };
        let list: NodeGroupsResponse = list.response()?;
        let listed = list.node_groups.iter().find(|listed| listed.id == group.id);
        let listed = listed.with_context(|| format!("{group:?} wasn't listed: {list:?}"))?;
        let (bounds, expected) = ((group.min_size, group.max_size), (listed.min_size, listed.max_size));
        ensure!(bounds == expected, "{group:?} was listed as {listed:?}");
    }
    Ok(())
}

/// A command that changes the size of a group: which, and how it was meant to.
fn command(call: &Call) -> Result<Option<(String, Option<i32>)>> {
    Ok(match call.name.as_str() {
        "NodeGroupIncreaseSize" => {
            let request: NodeGroupIncreaseSizeRequest = call.request()?;
            Some((request.id, (call.code == Code::Ok).then_some(request.delta)))
        }
        "NodeGroupDecreaseTargetSize" => Some((call.request::<NodeGroupDecreaseTargetSizeRequest>()?.id, None)),
        "NodeGroupDeleteNodes" => Some((call.request::<NodeGroupDeleteNodesRequest>()?.id, None)),
        _ => None,
    })
}

/// The first size asked for after an increase is the last one before it and the increase, unless another command came between.
fn sizes_show_increases_at_once(calls: &[Call]) -> Result<()> {
    let mut commands = Vec::new();
    let mut sizes = Vec::new();
    for call in calls {
        if let Some((group, by)) = command(call)? {
            commands.push((group, by, call));
        } else if call.name == "NodeGroupTargetSize" {
            let group = call.request::<NodeGroupTargetSizeRequest>()?.id;
            sizes.push((group, call.response::<NodeGroupTargetSizeResponse>()?.target_size, call));
        }
    }
    for (group, by, increase) in &commands {
        let Some(by) = by else { continue };
        let of_group = || sizes.iter().filter(|(id, ..)| id == group);
        let before = of_group().filter(|(.., size)| size.ended < increase.began).max_by_key(|(.., size)| size.ended);
        let after = of_group().filter(|(.., size)| size.began > increase.ended).min_by_key(|(.., size)| size.began);
        let (Some((_, was, from)), Some((_, is, to))) = (before, after) else { continue };
        let disturbed = commands.iter().any(|(id, _, other)| {
            id == group && other.began != increase.began && other.began < to.ended && other.ended > from.began
        });
        ensure!(disturbed || *is == was + by, "{group} had the size {is} after {was} and an increase by {by}");
    }
    Ok(())
}
