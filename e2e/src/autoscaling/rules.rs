//! The rules that hold for every call of every autoscaler in every scenario.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, ensure};
use prost::bytes::Bytes;
use tonic::Code;

use super::{Version, record::Call};
use crate::proto::{
    ExternalGrpcNode, NodeGroupAutoscalingOptions, NodeGroupAutoscalingOptionsRequest,
    NodeGroupAutoscalingOptionsResponse, NodeGroupDecreaseTargetSizeRequest, NodeGroupDeleteNodesRequest,
    NodeGroupForNodeResponse, NodeGroupIncreaseSizeRequest, NodeGroupNodesRequest, NodeGroupNodesResponse,
    NodeGroupTargetSizeRequest, NodeGroupTargetSizeResponse, NodeGroupTemplateNodeInfoResponse, NodeGroupsResponse,
    PricingNodePriceRequest, PricingPodPriceRequest, instance_status::InstanceState,
};

/// Checks calls against all rules.
pub fn hold(calls: &[Call], version: Version) -> Result<()> {
    for call in calls.iter().filter(|call| call.code != Code::Cancelled) {
        let what = || format!("{} of Cluster Autoscaler {version}: {call:?}", call.name);
        sends_its_fields(call, version).with_context(what)?;
        answers_do_no_harm(call).with_context(what)?;
        answers_fill_all_fields(call).with_context(what)?;
    }
    node_groups_are_those_of_the_last_list(calls)?;
    sizes_show_commands_at_once(calls)?;
    loops_are_not_skipped_for_ever(calls)
}

/// Checks that a version sends the fields that it knows, and no others.
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

/// Returns whether options have the old durations, and whether they have the new ones; fails if only some of the three
/// exist.
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

/// Checks the status code: an error here would end a loop, stop all scaling, or make all groups vanish. API servers are
/// up in these scenarios.
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
        // Repeated in every loop, whatever the answer.
        "NodeGroupDeleteNodes" => &[Code::Ok, Code::FailedPrecondition, Code::Aborted],
        other => anyhow::bail!("the protocol has no {other}"),
    };
    ensure!(allowed.contains(&call.code), "answered with {:?}", call.code);
    Ok(())
}

/// Checks that an answer has all fields: some versions exit if one that they know is missing.
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

/// Checks that a Node's group is one that NodeGroups has listed since the last Refresh, with the same bounds.
fn node_groups_are_those_of_the_last_list(calls: &[Call]) -> Result<()> {
    let lists: Vec<_> = calls.iter().filter(|call| call.name == "NodeGroups" && call.code == Code::Ok).collect();
    for call in calls.iter().filter(|call| call.name == "NodeGroupForNode" && call.code == Code::Ok) {
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

/// Checks that a decrease that changed nothing isn't repeated: one that is answered with OK counts as a correction and
/// ends the loop for all groups.
pub(crate) fn loops_are_not_skipped_for_ever(calls: &[Call]) -> Result<()> {
    let (mut commands, sizes) = by_group(calls)?;
    for (group, commands) in &mut commands {
        // A refused command has changed nothing.
        commands.retain(|(_, call)| matches!(call.code, Code::Ok | Code::Cancelled));
        commands.sort_by_key(|(_, call)| call.began);
        for pair in commands.windows(2) {
            let [(_, first), (_, second)] = pair else { continue };
            let (Some(by), Some(again)) = (correction(first)?, correction(second)?) else { continue };
            let sizes = sizes.get(group).map(Vec::as_slice).unwrap_or_default();
            let before = sizes.iter().filter(|(_, size)| size.ended < first.began).max_by_key(|(_, size)| size.ended);
            let between = sizes.iter().filter(|(_, size)| size.began > first.ended && size.ended < second.began);
            let after = between.min_by_key(|(_, size)| size.began);
            let (Some((before, _)), Some((after, _))) = (before, after) else { continue };
            ensure!(
                by != again || after < before,
                "frozen: {group} was asked for {by} twice, and had the size {after} after {before}: {first:?} {second:?}"
            );
        }
    }
    Ok(())
}

/// Returns the delta of a decrease that was answered with OK.
fn correction(call: &Call) -> Result<Option<i32>> {
    if call.name != "NodeGroupDecreaseTargetSize" || call.code != Code::Ok {
        return Ok(None);
    }
    Ok(Some(call.request::<NodeGroupDecreaseTargetSizeRequest>()?.delta))
}

/// The effect of a command on the size of its group.
enum Effect {
    By(i32),
    /// It deletes these instances, and lowers the size by those that weren't deleted before.
    Delete(Vec<ExternalGrpcNode>),
    /// It stops at an instance with a Node, or was refused, perhaps after a part was done.
    Unknown,
}

/// Returns a command that changes the size of a group, and its group.
fn command(call: &Call) -> Result<Option<(String, Effect)>> {
    let (group, effect) = match call.name.as_str() {
        "NodeGroupIncreaseSize" => {
            let request: NodeGroupIncreaseSizeRequest = call.request()?;
            (request.id, Effect::By(request.delta))
        }
        "NodeGroupDeleteNodes" => {
            let request: NodeGroupDeleteNodesRequest = call.request()?;
            (request.id, Effect::Delete(request.nodes))
        }
        "NodeGroupDecreaseTargetSize" => (call.request::<NodeGroupDecreaseTargetSizeRequest>()?.id, Effect::Unknown),
        _ => return Ok(None),
    };
    Ok(Some((group, if call.code == Code::Ok { effect } else { Effect::Unknown })))
}

type Commands<'a> = BTreeMap<String, Vec<(Effect, &'a Call)>>;
type Sizes<'a> = BTreeMap<String, Vec<(i32, &'a Call)>>;

/// Returns the commands to each group, and the answered sizes.
fn by_group(calls: &[Call]) -> Result<(Commands<'_>, Sizes<'_>)> {
    let mut commands: BTreeMap<String, Vec<(Effect, &Call)>> = BTreeMap::new();
    let mut sizes: BTreeMap<String, Vec<(i32, &Call)>> = BTreeMap::new();
    for call in calls {
        if let Some((group, effect)) = command(call)? {
            commands.entry(group).or_default().push((effect, call));
        } else if call.name == "NodeGroupTargetSize" && call.code == Code::Ok {
            let group = call.request::<NodeGroupTargetSizeRequest>()?.id;
            let size = call.response::<NodeGroupTargetSizeResponse>()?.target_size;
            sizes.entry(group).or_default().push((size, call));
        }
    }
    Ok((commands, sizes))
}

/// Checks that a size read after commands includes all of them and nothing else. One read during a command may or may
/// not include it.
fn sizes_show_commands_at_once(calls: &[Call]) -> Result<()> {
    let (mut commands, mut sizes) = by_group(calls)?;
    for (group, commands) in &mut commands {
        // A cancelled command is carried out all the same, at any time.
        if commands.iter().any(|(_, call)| call.code == Code::Cancelled) {
            continue;
        }
        commands.sort_by_key(|(_, call)| call.began);
        let mut quiet = sizes.remove(group).unwrap_or_default();
        quiet.retain(|(_, size)| !commands.iter().any(|(_, call)| call.began < size.ended && call.ended > size.began));
        quiet.sort_by_key(|(_, size)| size.began);
        shows_commands(calls, group, commands, &quiet)?;
    }
    Ok(())
}

/// Returns a group's min size as last listed.
fn minimum(calls: &[Call], group: &str) -> Result<i32> {
    for call in calls.iter().rev().filter(|call| call.name == "NodeGroups" && call.code == Code::Ok) {
        let list: NodeGroupsResponse = call.response()?;
        if let Some(listed) = list.node_groups.iter().find(|listed| listed.id == group) {
            return Ok(listed.min_size);
        }
    }
    Ok(0)
}

/// Returns true if the last list of a group's instances before a command shows this Node's as being deleted: somebody
/// else deletes it, so the command lowers nothing.
fn is_going(calls: &[Call], group: &str, node: &ExternalGrpcNode, command: &Call) -> Result<bool> {
    let mut last = None;
    for call in calls.iter().filter(|call| call.name == "NodeGroupNodes" && call.code == Code::Ok) {
        let is_later = last.is_none_or(|last: &Call| call.ended > last.ended);
        if is_later && call.ended < command.began && call.request::<NodeGroupNodesRequest>()?.id == group {
            last = Some(call);
        }
    }
    let Some(call) = last else { return Ok(false) };
    let answer: NodeGroupNodesResponse = call.response()?;
    let machine = node.annotations.get("cluster.x-k8s.io/machine");
    let is_its = |id: &str| {
        let name = id.strip_prefix("deleting-machine-").and_then(|id| id.split_once('_')).map(|(_, name)| name);
        id == node.provider_id || name.is_some_and(|name| machine.is_some_and(|machine| name == machine))
    };
    let instance = answer.instances.iter().find(|instance| is_its(&instance.id));
    let status = instance.and_then(|instance| instance.status.as_ref());
    Ok(status.is_some_and(|status| status.instance_state() == InstanceState::InstanceDeleting))
}

/// Checks the sizes of one group, read while no command was under way, against its commands. The name of a placeholder
/// may later stand for another replica, or for a Machine that a decrease has already taken. At the min size a Machine
/// may be replaced, which keeps the size.
fn shows_commands(calls: &[Call], group: &str, commands: &[(Effect, &Call)], sizes: &[(i32, &Call)]) -> Result<()> {
    let minimum = minimum(calls, group)?;
    let mut deleted = BTreeSet::new();
    for pair in sizes.windows(2) {
        let [(before, from), (after, to)] = pair else { continue };
        let mut expected = Some(*before);
        let between = commands.iter().filter(|(_, call)| call.began > from.ended && call.ended < to.began);
        for (effect, command) in between {
            let is_earlier = |call: &Call| call.name == "NodeGroupDecreaseTargetSize" && call.ended < command.began;
            let has_decreased = commands.iter().any(|(_, call)| is_earlier(call));
            let is_unsure = |name: &str| {
                let is_named_again = is_placeholder(name) && deleted.contains(name);
                is_named_again || (has_decreased && is_without_node(name))
            };
            let by = match effect {
                Effect::By(by) => Some(*by),
                Effect::Delete(nodes) if nodes.iter().any(|node| is_unsure(&node.name)) => None,
                Effect::Delete(nodes) => {
                    let mut new = 0;
                    for node in nodes {
                        let is_first = deleted.insert(node.name.as_str());
                        new += i32::from(is_first && !is_going(calls, group, node, command)?);
                    }
                    Some(-new)
                }
                Effect::Unknown => None,
            };
            expected = expected.zip(by).map(|(size, by)| size + by);
        }
        if let Some(expected) = expected {
            let is_replaced = *after == *before && expected < minimum;
            ensure!(
                *after == expected || is_replaced,
                "{group} had the size {after} instead of {expected}, after {before}: {from:?} {to:?}"
            );
        }
    }
    Ok(())
}

/// Returns the name that an instance has once its increase is no longer new.
fn lasting(name: &str) -> &str {
    name.strip_prefix("new-").unwrap_or(name)
}

/// Returns true if the name is that of a replica without a Machine.
fn is_placeholder(name: &str) -> bool {
    lasting(name).starts_with("replica-")
}

/// Returns true if the name is that of an instance that never had a Node.
fn is_without_node(name: &str) -> bool {
    is_placeholder(name) || lasting(name).starts_with("pending-machine-") || name.starts_with("failed-machine-")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        proto::{
            Instance, InstanceStatus, NodeGroup, NodeGroupDecreaseTargetSizeResponse, NodeGroupDeleteNodesResponse,
            NodeGroupIncreaseSizeResponse, NodeGroupsRequest,
        },
        provider::made_up_node,
    };

    const GROUP: &str = "MachineDeployment/team-a/workers";

    fn size(time: [usize; 2], target_size: i32) -> Call {
        let asked = NodeGroupTargetSizeRequest { id: GROUP.to_owned() };
        Call::made("NodeGroupTargetSize", time, Code::Ok, &asked, &NodeGroupTargetSizeResponse { target_size })
    }

    fn increase(time: [usize; 2], delta: i32) -> Call {
        let asked = NodeGroupIncreaseSizeRequest { delta, id: GROUP.to_owned() };
        Call::made("NodeGroupIncreaseSize", time, Code::Ok, &asked, &NodeGroupIncreaseSizeResponse {})
    }

    fn delete(time: [usize; 2], node: &str, code: Code) -> Call {
        let asked = NodeGroupDeleteNodesRequest { nodes: vec![made_up_node(node)], id: GROUP.to_owned() };
        Call::made("NodeGroupDeleteNodes", time, code, &asked, &NodeGroupDeleteNodesResponse {})
    }

    fn deleted(time: [usize; 2], node: &str) -> Call {
        delete(time, node, Code::Ok)
    }

    #[test]
    fn a_size_shows_the_commands_before_it_and_nothing_else() {
        let replica = "replica-MachineDeployment-team-a_workers-0";
        let given_up = delete([2, 3], "a", Code::Cancelled);
        let rows = [
            ("an increase", vec![increase([2, 3], 2), size([4, 5], 5)], true),
            ("an increase that doesn't show", vec![increase([2, 3], 2), size([4, 5], 3)], false),
            ("two deletes at once", vec![deleted([2, 4], "a"), deleted([3, 5], "b"), size([6, 7], 1)], true),
            ("one of two deletes", vec![deleted([2, 4], "a"), deleted([3, 5], "b"), size([6, 7], 2)], false),
            ("during a delete, with it", vec![deleted([2, 5], "a"), size([3, 4], 2), size([6, 7], 2)], true),
            ("during a delete, without it", vec![deleted([2, 5], "a"), size([3, 4], 3), size([6, 7], 2)], true),
            ("a Node named again", vec![deleted([2, 3], "a"), deleted([4, 5], "a"), size([6, 7], 2)], true),
            ("a Node counted twice", vec![deleted([2, 3], "a"), deleted([4, 5], "a"), size([6, 7], 1)], false),
            ("a change without a command", vec![deleted([2, 3], "a"), size([4, 5], 2), size([6, 7], 1)], false),
            // It may stand for another replica then.
            ("a placeholder once", vec![deleted([2, 3], replica), deleted([4, 5], replica), size([6, 7], 2)], true),
            ("a placeholder twice", vec![deleted([2, 3], replica), deleted([4, 5], replica), size([6, 7], 1)], true),
            ("a delete that was given up", vec![given_up, size([4, 5], 3), size([6, 7], 2)], true),
        ];
        for (case, mut calls, holds) in rows {
            calls.insert(0, size([0, 1], 3));
            assert_eq!(sizes_show_commands_at_once(&calls).is_ok(), holds, "{case}");
        }
    }

    #[test]
    fn at_the_minimum_a_delete_may_leave_the_size() {
        let listed = |min_size| NodeGroupsResponse {
            node_groups: vec![NodeGroup { id: GROUP.to_owned(), min_size, max_size: 5, ..NodeGroup::default() }],
        };
        let calls = |min_size, after| {
            let list = Call::made("NodeGroups", [0, 1], Code::Ok, &NodeGroupsRequest {}, &listed(min_size));
            [list, size([2, 3], 2), deleted([4, 5], "failed-machine-team-a_workers-0"), size([6, 7], after)]
        };
        assert!(sizes_show_commands_at_once(&calls(2, 2)).is_ok());
        assert!(sizes_show_commands_at_once(&calls(1, 2)).is_err(), "it may be lowered");
        assert!(sizes_show_commands_at_once(&calls(1, 1)).is_ok());
    }

    #[test]
    fn a_node_that_somebody_else_deletes_lowers_nothing() {
        let calls = |state: InstanceState, after| {
            let status = Some(InstanceStatus { instance_state: state.into(), ..InstanceStatus::default() });
            let listed = Instance { id: made_up_node("a").provider_id, status };
            let asked = NodeGroupNodesRequest { id: GROUP.to_owned() };
            let answer = NodeGroupNodesResponse { instances: vec![listed] };
            let list = Call::made("NodeGroupNodes", [0, 1], Code::Ok, &asked, &answer);
            [list, size([2, 3], 2), deleted([4, 5], "a"), size([6, 7], after)]
        };
        assert!(sizes_show_commands_at_once(&calls(InstanceState::InstanceDeleting, 2)).is_ok());
        assert!(sizes_show_commands_at_once(&calls(InstanceState::InstanceDeleting, 1)).is_err());
        assert!(sizes_show_commands_at_once(&calls(InstanceState::InstanceRunning, 2)).is_err());
    }

    fn corrected(time: [usize; 2], delta: i32, code: Code) -> Call {
        let asked = NodeGroupDecreaseTargetSizeRequest { delta, id: GROUP.to_owned() };
        Call::made("NodeGroupDecreaseTargetSize", time, code, &asked, &NodeGroupDecreaseTargetSizeResponse {})
    }

    #[test]
    fn a_correction_without_effect_may_not_come_again() {
        let calls = |after, code, delta| {
            [size([0, 1], 2), corrected([2, 3], -1, code), size([4, 5], after), corrected([6, 7], delta, Code::Ok)]
        };
        assert!(loops_are_not_skipped_for_ever(&calls(2, Code::Ok, -1)).is_err());
        assert!(loops_are_not_skipped_for_ever(&calls(1, Code::Ok, -1)).is_ok(), "it had an effect");
        assert!(loops_are_not_skipped_for_ever(&calls(2, Code::Ok, -2)).is_ok(), "it is another one");
        assert!(loops_are_not_skipped_for_ever(&calls(2, Code::FailedPrecondition, -1)).is_ok(), "it was an error");
        let refused = [
            size([0, 1], 2),
            corrected([2, 3], -1, Code::Ok),
            size([4, 5], 2),
            delete([6, 7], "a", Code::FailedPrecondition),
            corrected([8, 9], -1, Code::Ok),
        ];
        assert!(loops_are_not_skipped_for_ever(&refused).is_err(), "what is refused between them changes nothing");
        let between = [
            size([0, 1], 2),
            corrected([2, 3], -1, Code::Ok),
            increase([4, 5], 1),
            size([6, 7], 3),
            corrected([8, 9], -1, Code::Ok),
        ];
        assert!(loops_are_not_skipped_for_ever(&between).is_ok(), "the group has grown meanwhile");
    }

    /// 1.37 does so, since it uses the instances from before the decrease.
    #[test]
    fn a_machine_that_a_smaller_target_size_has_taken_may_be_named_and_lowers_nothing() {
        let calls = |node: &str, after| {
            let asked = [size([0, 1], 2), corrected([2, 3], -1, Code::Ok), size([4, 5], 1)];
            asked.into_iter().chain([deleted([6, 7], node), size([8, 9], after)]).collect::<Vec<_>>()
        };
        for after in [0, 1] {
            assert!(sizes_show_commands_at_once(&calls("pending-machine-team-a_x", after)).is_ok(), "{after}");
        }
        assert!(
            sizes_show_commands_at_once(&calls("worker-1", 1)).is_err(),
            "a smaller target size takes no Machine that has a Node"
        );
    }
}
