//! People who make calls by hand, as the seed decides.

use std::{collections::BTreeSet, ops::Range, time::Duration};

use connect::Policy;
use k8s_openapi::api::core::v1::Node;
use kube::{Api, ResourceExt as _, api::ListParams};
use proto::{
    ExternalGrpcNode, NodeGroupDecreaseTargetSizeRequest, NodeGroupDeleteNodesRequest, NodeGroupForNodeRequest,
    NodeGroupIncreaseSizeRequest, NodeGroupNodesRequest, NodeGroupTargetSizeRequest, NodeGroupsRequest, RefreshRequest,
    cloud_provider_client::CloudProviderClient,
};
use tokio::time::sleep;
use tonic::Code;

use crate::{
    actor::Script,
    network::{Caller, Port},
    plan::Chance,
};

/// Returns the milliseconds between two calls. Some worlds are left to Cluster Autoscaler, and in most of the others
/// people make calls now and then.
fn pause(chance: Chance) -> Option<Range<u64>> {
    match chance.of("operator's pace", 0, 0).u32(0..4) {
        0 => None,
        1 => Some(200..6000),
        _ => Some(10_000..120_000),
    }
}

/// Returns true if a failed delete is repeated, as by a script.
pub(crate) fn is_patient(chance: Chance) -> bool {
    pause(chance).is_some() && chance.of("operator's patience", 0, 0).bool()
}

/// Habits that people keep throughout a world.
#[derive(Clone, Copy)]
struct Habits {
    /// True if a Refresh comes first, as with Cluster Autoscaler.
    refreshes: bool,
    /// The number of times that a failed delete is repeated.
    repeats: usize,
}

impl Habits {
    fn draw(chance: Chance) -> Self {
        let refreshes = chance.of("operator's refresh", 0, 0).bool();
        Self { refreshes, repeats: if is_patient(chance) { 12 } else { 0 } }
    }
}

/// The group of another Cluster, by the number of that one.
pub(crate) type ForeignGroup = (usize, String);

/// Runs until the host ends. In a fleet people ask for groups of other Clusters too.
pub(crate) async fn run(port: Port, copies: usize, seed: u64, script: Script, foreign: Vec<ForeignGroup>) {
    let chance = Chance::new(seed);
    let Some(pause) = pause(chance) else { return };
    let habits = Habits::draw(chance);
    for ordinal in 0.. {
        let mut draw = chance.of("operator", 0, ordinal);
        sleep(Duration::from_millis(draw.u64(pause.clone()))).await;
        if script.is_quiet() {
            return;
        }
        if !script.has("operator", ordinal) {
            continue;
        }
        let caller = port.caller(draw.usize(0..copies));
        let is_foreign = !foreign.is_empty() && draw.u32(0..3) == 0;
        let done = if is_foreign {
            ask_for_foreign(caller, &port, &mut draw, &foreign).await
        } else {
            act(caller, &port, &mut draw, habits, &script).await
        };
        if let Err(status) = done {
            port.note(format!("operator: {:?} {}", status.code(), status.message()));
        }
    }
}

/// Returns true for an error after which a script repeats its call.
fn may_heal(code: Code) -> bool {
    !matches!(code, Code::FailedPrecondition | Code::NotFound | Code::InvalidArgument | Code::OutOfRange)
}

/// Makes a call about a group of another Cluster or of none, or about another Cluster's Node.
async fn ask_for_foreign(
    caller: Caller,
    port: &Port,
    draw: &mut fastrand::Rng,
    foreign: &[ForeignGroup],
) -> Result<(), tonic::Status> {
    let mut client = CloudProviderClient::new(caller);
    let (cluster, id) = foreign[draw.usize(0..foreign.len())].clone();
    let nodes: Api<Node> = Api::all(port.of_cluster(cluster).workload(Policy::WRITES));
    let nodes = nodes.list(&ListParams::default()).await.map(|list| list.items).unwrap_or_default();
    let node = draw.choice(&nodes).map(|node| {
        let provider_id = node.spec.as_ref().and_then(|spec| spec.provider_id.clone()).unwrap_or_default();
        ExternalGrpcNode { provider_id, name: node.name_any(), ..ExternalGrpcNode::default() }
    });
    let id = if draw.u32(0..4) == 0 { "MachineDeployment/team-a/nobodys".to_owned() } else { id };
    match (draw.u32(0..6), node) {
        (0, _) => drop(client.node_group_target_size(NodeGroupTargetSizeRequest { id }).await?),
        (1, _) => drop(client.node_group_nodes(NodeGroupNodesRequest { id }).await?),
        (2, _) => drop(client.node_group_increase_size(NodeGroupIncreaseSizeRequest { delta: 1, id }).await?),
        (3, _) => {
            drop(client.node_group_decrease_target_size(NodeGroupDecreaseTargetSizeRequest { delta: -1, id }).await?);
        }
        (4, Some(node)) => {
            drop(client.node_group_delete_nodes(NodeGroupDeleteNodesRequest { nodes: vec![node], id }).await?);
        }
        (_, Some(node)) => {
            drop(client.node_group_for_node(NodeGroupForNodeRequest { node: Some(node) }).await?);
        }
        (_, None) => {}
    }
    Ok(())
}

async fn act(
    caller: Caller,
    port: &Port,
    draw: &mut fastrand::Rng,
    habits: Habits,
    script: &Script,
) -> Result<(), tonic::Status> {
    let mut client = CloudProviderClient::new(caller);
    if habits.refreshes {
        client.refresh(RefreshRequest {}).await?;
    }
    let groups = client.node_groups(NodeGroupsRequest {}).await?.into_inner().node_groups;
    if groups.is_empty() {
        return Ok(());
    }
    let id = groups[draw.usize(0..groups.len())].id.clone();
    match draw.u32(0..12) {
        10.. => {
            let nodes: Api<Node> = Api::all(port.workload(Policy::WRITES));
            let nodes = nodes.list(&ListParams::default()).await.map(|list| list.items).unwrap_or_default();
            if let Some(node) = draw.choice(&nodes) {
                let provider_id = node.spec.as_ref().and_then(|spec| spec.provider_id.clone()).unwrap_or_default();
                let asked = ExternalGrpcNode { provider_id, name: node.name_any(), ..ExternalGrpcNode::default() };
                client.node_group_for_node(NodeGroupForNodeRequest { node: Some(asked) }).await?;
            }
        }
        0..4 => {
            let delta = draw.i32(1..3);
            client.node_group_increase_size(NodeGroupIncreaseSizeRequest { delta, id: id.clone() }).await?;
            port.note(format!("increased {id} by {delta}"));
        }
        4..6 => {
            let delta = -draw.i32(1..3);
            client
                .node_group_decrease_target_size(NodeGroupDecreaseTargetSizeRequest { delta, id: id.clone() })
                .await?;
            port.note(format!("decreased {id} by {delta}"));
        }
        _ => {
            let instances =
                client.node_group_nodes(NodeGroupNodesRequest { id: id.clone() }).await?.into_inner().instances;
            if instances.is_empty() {
                return Ok(());
            }
            // Mostly one instance, now and then several at once.
            let count = if draw.u32(0..3) == 0 { draw.usize(2..5) } else { 1 };
            let names: BTreeSet<_> = (0..count).map(|_| instances[draw.usize(0..instances.len())].id.clone()).collect();
            let node = |name: &String| ExternalGrpcNode {
                provider_id: name.clone(),
                name: name.clone(),
                ..ExternalGrpcNode::default()
            };
            let nodes: Vec<_> = names.iter().map(node).collect();
            for _ in 0..=habits.repeats {
                let request = NodeGroupDeleteNodesRequest { nodes: nodes.clone(), id: id.clone() };
                let Err(status) = client.node_group_delete_nodes(request).await else {
                    port.note(format!("deleted {names:?} of {id}"));
                    return Ok(());
                };
                port.note(format!("operator: {:?} {}", status.code(), status.message()));
                if script.is_quiet() || !may_heal(status.code()) {
                    return Ok(());
                }
                sleep(Duration::from_millis(draw.u64(1_000..8_000))).await;
            }
        }
    }
    Ok(())
}
