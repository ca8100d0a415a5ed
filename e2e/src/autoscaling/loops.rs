//! The calls of whole loops, counted.

use std::collections::BTreeMap;

use anyhow::{Result, ensure};
use tonic::Code;

use super::{Version, record::Call};
use crate::proto::NodeGroupForNodeResponse;

/// The number of calls of each RPC in a loop.
pub type Counts = BTreeMap<String, usize>;

/// The loops that have come to their end: each begins with a Refresh. Questions about Nodes that belong to no group are left out: those
/// of other scenarios are among them.
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
        let of_group = call.name != "NodeGroupForNode" || group_is_told(call)?;
        if let Some(counts) = loops.last_mut().filter(|_| of_group) {
            *counts.entry(call.name.clone()).or_default() += 1;
        }
    }
    // The last one may go on.
    loops.pop();
    Ok(loops)
}

fn group_is_told(call: &Call) -> Result<bool> {
    let answer: NodeGroupForNodeResponse = call.response()?;
    Ok(answer.node_group.is_some_and(|group| !group.id.is_empty()))
}

/// Fails unless a loop asks what Cluster Autoscaler asks when it has nothing to do, for so many groups and Nodes, all of which belong
/// to a group, are needed, and are not at the minimum. `NodeGroupNodes` has a clock of its own.
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
