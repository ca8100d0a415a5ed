//! How the driver chooses a group for pods that are pending, and what it asks for that: templates, sizes, prices, options.

use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use k8s_pb::api::core::v1::Node;
use prost::Message as _;
use tonic::Code;

use super::{
    Expander,
    driver::{Driver, Look},
    pods::{Cpu, fits, has, new_nodes, used},
};
use crate::proto::{ExternalGrpcNode, MetaDuration, NodeGroup, NodeGroupAutoscalingOptions, PricingNodePriceRequest};

/// A group that would do, and how many Nodes of it.
struct Candidate<'a> {
    group: &'a NodeGroup,
    size: i32,
    nodes: i32,
    left_over: Cpu,
    template: Node,
}

impl Driver {
    /// Increases one group by what the pending pods need beyond the room of Nodes that are there, which the scheduler has yet to find,
    /// and of those that are still coming.
    pub(super) async fn scale_up(&mut self, look: &Look, pending: &[&Pod]) -> Result<()> {
        let Some(chosen) = self.choose(look, pending).await? else { return Ok(()) };
        let id = &chosen.group.id;
        self.note("increasing", &format!("{id} by {}", chosen.nodes));
        let increased = self.caller.increase(id, chosen.nodes).await;
        let after = self.caller.target_size(id).await?;
        if increased.is_err() {
            self.memory.backed_off.insert(id.clone());
        }
        increased?;
        ensure!(after == chosen.size + chosen.nodes, "{id}: size {after} after {} + {}", chosen.size, chosen.nodes);
        self.memory.increases.insert(id.clone(), (after, chosen.nodes, Instant::now()));
        Ok(())
    }

    async fn choose<'a>(&self, look: &'a Look, pending: &[&Pod]) -> Result<Option<Candidate<'a>>> {
        let mut candidates = Vec::new();
        let mut room_is_coming = false;
        for group in look.groups.iter().filter(|group| !self.memory.backed_off.contains(&group.id)) {
            let Some(candidate) = self.candidate(look, group, pending).await? else { continue };
            room_is_coming |= candidate.nodes == 0;
            // As much as the maximum allows; others bring the rest in the next loop.
            let nodes = candidate.nodes.min(group.max_size - candidate.size);
            if nodes > 0 {
                candidates.push(Candidate { nodes, ..candidate });
            }
        }
        if room_is_coming {
            return Ok(None);
        }
        match self.settings.expander {
            Expander::LeastWaste => Ok(candidates.into_iter().min_by_key(|candidate| candidate.left_over)),
            Expander::Price => self.cheapest(candidates).await,
        }
    }

    async fn candidate<'a>(
        &self,
        look: &Look,
        group: &'a NodeGroup,
        pending: &[&Pod],
    ) -> Result<Option<Candidate<'a>>> {
        // A group of which a Node has been seen would be reckoned by that: here they are the same.
        let template = match self.caller.template(&group.id).await {
            Ok(answer) if self.version.knows_new_fields() => answer.node_bytes,
            Ok(answer) => answer.node_info,
            Err(status) if status.code() == Code::Unimplemented => return Ok(None),
            Err(status) => return Err(status.into()),
        };
        let template = Node::decode(template).context("a template that is no Node")?;
        let fitting: Vec<&Pod> = pending.iter().copied().filter(|pod| fits(pod, &template)).collect();
        if fitting.is_empty() {
            return Ok(None);
        }
        let size = look.sizes[&group.id];
        let there = look.nodes.get(&group.id).map(Vec::as_slice).unwrap_or_default();
        let mut rooms: Vec<Cpu> = there.iter().map(|node| has(&template) - used(node, &look.pods)).collect();
        rooms.resize(usize::try_from(size)?, has(&template));
        let (nodes, left_over) = new_nodes(&fitting, rooms, has(&template));
        Ok(Some(Candidate { group, size, nodes: i32::try_from(nodes)?, left_over, template }))
    }

    /// A candidate without a price is none.
    async fn cheapest<'a>(&self, candidates: Vec<Candidate<'a>>) -> Result<Option<Candidate<'a>>> {
        let mut best: Option<(f64, Candidate<'a>)> = None;
        for candidate in candidates {
            let metadata = candidate.template.metadata.clone().unwrap_or_default();
            let node = ExternalGrpcNode {
                name: format!("template-node-for-{}-1", candidate.group.id),
                labels: metadata.labels.into_iter().collect(),
                ..ExternalGrpcNode::default()
            };
            let price = match self.caller.node_price(self.price_request(node)).await {
                Ok(price) => price * f64::from(candidate.nodes),
                Err(status) if status.code() == Code::Unimplemented => continue,
                Err(status) => return Err(status.into()),
            };
            if best.as_ref().is_none_or(|(least, _)| price < *least) {
                best = Some((price, candidate));
            }
        }
        Ok(best.map(|(_, candidate)| candidate))
    }

    fn price_request(&self, node: ExternalGrpcNode) -> PricingNodePriceRequest {
        let now = SystemTime::now();
        let (start, end) = (Some(now.into()), Some((now + Duration::from_secs(3600)).into()));
        let (old, new) = (self.version.knows_old_fields(), self.version.knows_new_fields());
        PricingNodePriceRequest {
            node: Some(node),
            start_time: start.filter(|_| old),
            end_time: end.filter(|_| old),
            start_timestamp: start.filter(|_| new),
            end_timestamp: end.filter(|_| new),
        }
    }

    /// Below which utilization a Node of the group may go, and after how long: each option is asked for alone, and none is kept.
    pub(super) async fn options(&self, group: &str) -> Result<Option<(f64, Duration)>> {
        let questions = if self.version.minor < 35 { 4 } else { 6 };
        let mut options = self.defaults();
        for _ in 0..questions {
            match self.caller.options(group, self.defaults()).await {
                Ok(Some(answer)) => options = answer,
                Ok(None) => {}
                Err(status) if status.code() == Code::Unimplemented => {}
                // The Node can't be removed.
                Err(_) => return Ok(None),
            }
        }
        let unneeded = if self.version.knows_new_fields() {
            options.scale_down_unneeded_duration.map(Duration::try_from).transpose()?
        } else {
            let old = options.scale_down_unneeded_time.map(|old| u64::try_from(old.duration));
            old.transpose()?.map(Duration::from_nanos)
        };
        let unneeded = unneeded.with_context(|| format!("options of {group} without unneeded time: {options:?}"))?;
        Ok(Some((options.scale_down_utilization_threshold, unneeded)))
    }

    /// What it would do without being told otherwise, in the fields of its version.
    fn defaults(&self) -> NodeGroupAutoscalingOptions {
        let (old, new) = (self.version.knows_old_fields(), self.version.knows_new_fields());
        let old = |time: Duration| {
            let duration = i64::try_from(time.as_nanos()).unwrap_or(i64::MAX);
            old.then_some(MetaDuration { duration })
        };
        let new = |time: Duration| prost_types::Duration::try_from(time).ok().filter(|_| new);
        let (unneeded, provision) = (self.settings.unneeded, self.settings.provision);
        NodeGroupAutoscalingOptions {
            scale_down_utilization_threshold: 0.5,
            scale_down_gpu_utilization_threshold: 0.5,
            scale_down_unneeded_time: old(unneeded),
            scale_down_unready_time: old(unneeded),
            max_node_provision_time: old(provision),
            scale_down_unneeded_duration: new(unneeded),
            scale_down_unready_duration: new(unneeded),
            max_node_provision_duration: new(provision),
            ..NodeGroupAutoscalingOptions::default()
        }
    }
}
