//! The Nodes of the calls: those of a cluster, or made up from the provider's own instances.

use std::{
    collections::{BTreeMap, HashMap},
    path::Path,
};

use anyhow::{Context as _, ensure};
use connect::Source;
use k8s_openapi::api::core::v1::Node;
use kube::{Api, api::ListParams};
use proto::{ExternalGrpcNode, InstanceStatus, instance_status::InstanceState};

use super::{
    args::Args,
    calls::{Caller, Fleet},
};

const PAGE: u32 = 500;

/// Returns the Nodes that the flags choose.
pub(crate) async fn fleet(caller: &mut Caller, args: &Args) -> anyhow::Result<Fleet> {
    let known = caller.look().await?;
    let groups = known.len();
    let nodes = if let Some(file) = &args.kubeconfig {
        of_cluster(file).await?
    } else {
        let running = known.iter().flat_map(|(_, instances)| instances).filter(|instance| {
            let state = instance.status.as_ref().map(InstanceStatus::instance_state);
            state == Some(InstanceState::InstanceRunning)
        });
        let mut nodes: Vec<_> = running.map(|instance| made_up(&instance.id)).collect();
        if let Some(wanted) = args.nodes {
            nodes.truncate(wanted);
            let missing = wanted - nodes.len();
            nodes.extend((0..missing).map(|number| made_up(&format!("elsewhere:///zone-z/other-{number}"))));
        }
        nodes
    };
    ensure!(!nodes.is_empty() || groups > 0, "there are no Nodes and no groups: --nodes N makes some Nodes up");
    let mut grouped = 0;
    for node in &nodes {
        grouped += usize::from(caller.group_of(node).await?.is_some());
    }
    Ok(Fleet { nodes, grouped, groups })
}

/// Returns a Node with as many labels and annotations as a real one, since each call sends them all.
fn made_up(provider_id: &str) -> ExternalGrpcNode {
    let name = provider_id.rsplit('/').next().unwrap_or(provider_id).to_owned();
    let texts = |pairs: &[(&str, &str)]| -> HashMap<String, String> {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    };
    let labels = texts(&[
        ("beta.kubernetes.io/arch", "amd64"),
        ("beta.kubernetes.io/os", "linux"),
        ("kubernetes.io/arch", "amd64"),
        ("kubernetes.io/hostname", &name),
        ("kubernetes.io/os", "linux"),
        ("node.cluster.x-k8s.io/pool", "workers"),
        ("node.kubernetes.io/instance-type", "standard-8"),
        ("topology.kubernetes.io/region", "region-1"),
        ("topology.kubernetes.io/zone", "zone-a"),
    ]);
    let annotations = texts(&[
        ("cluster.x-k8s.io/cluster-name", "prod"),
        ("cluster.x-k8s.io/labels-from-machine", "node.cluster.x-k8s.io/pool"),
        ("cluster.x-k8s.io/owner-kind", "MachineSet"),
        ("node.alpha.kubernetes.io/ttl", "0"),
        ("volumes.kubernetes.io/controller-managed-attach-detach", "true"),
    ]);
    ExternalGrpcNode { provider_id: provider_id.to_owned(), name, labels, annotations }
}

async fn of_cluster(file: &Path) -> anyhow::Result<Vec<ExternalGrpcNode>> {
    let clients = Source::File(file.to_owned()).connect().await?;
    let api: Api<Node> = Api::all(clients.writes);
    let mut nodes = Vec::new();
    let mut page = ListParams::default().limit(PAGE);
    loop {
        let list = api.list(&page).await.context("can't list the Nodes")?;
        nodes.extend(list.items.into_iter().map(wire));
        match list.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => page = page.continue_token(&token),
            None => return Ok(nodes),
        }
    }
}

fn wire(node: Node) -> ExternalGrpcNode {
    let texts = |texts: Option<BTreeMap<String, String>>| texts.unwrap_or_default().into_iter().collect();
    ExternalGrpcNode {
        provider_id: node.spec.and_then(|spec| spec.provider_id).unwrap_or_default(),
        name: node.metadata.name.unwrap_or_default(),
        labels: texts(node.metadata.labels),
        annotations: texts(node.metadata.annotations),
    }
}
