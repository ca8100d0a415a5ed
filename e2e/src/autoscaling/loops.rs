//! Counts the calls of whole loops.

use std::collections::BTreeMap;

use anyhow::{Result, ensure};
use tonic::Code;

use super::{Version, record::Call};
use crate::proto::NodeGroupForNodeResponse;

/// The number of calls of each RPC in a loop.
pub type Counts = BTreeMap<String, usize>;

/// Returns the finished loops, each of which begins with a Refresh. Calls about Nodes without a group are left out,
/// since other scenarios' Nodes are among them.
pub fn whole(calls: &[Call]) -> Result<Vec<Counts>> {
    let mut calls: Vec<&Call> = calls.iter().collect();
    calls.sort_by_key(|call| call.began);
    let mut loops: Vec<Counts> = Vec::new();
    for call in calls {
        if call.name == "Refresh" {
            loops.push(Counts::new());
        }
        if call.code == Code::Cancelled {
            continue;
        }
        let of_group = call.name != "NodeGroupForNode" || group_is_reported(call)?;
        if let Some(counts) = loops.last_mut().filter(|_| of_group) {
            *counts.entry(call.name.clone()).or_default() += 1;
        }
    }
    // The last loop may be unfinished.
    loops.pop();
    Ok(loops)
}

fn group_is_reported(call: &Call) -> Result<bool> {
    let answer: NodeGroupForNodeResponse = call.response()?;
    Ok(answer.node_group.is_some_and(|group| !group.id.is_empty()))
}

/// Fails unless a loop makes the calls of an idle Cluster Autoscaler for so many groups and Nodes. All Nodes must
/// belong to a group, be needed, and their groups be above the min size. `NodeGroupNodes` has an interval of its own.
pub fn is_idle(counts: &Counts, version: Version, groups: usize, nodes: usize) -> Result<()> {
    let options = if version.minor < 35 { 4 } else { 6 };
    for (name, asked) in [
        ("Refresh", 1..=1),
        ("NodeGroups", 1..=1),
        ("NodeGroupForNode", nodes..=nodes),
        ("NodeGroupTargetSize", groups..=3 * groups),
        ("NodeGroupGetOptions", nodes..=options * nodes),
        ("NodeGroupTemplateNodeInfo", 0..=0),
        ("NodeGroupIncreaseSize", 0..=0),
        ("NodeGroupDecreaseTargetSize", 0..=0),
        ("NodeGroupDeleteNodes", 0..=0),
    ] {
        let count = counts.get(name).copied().unwrap_or_default();
        ensure!(asked.contains(&count), "{count} times {name} instead of {asked:?}: {counts:?}");
    }
    Ok(())
}
