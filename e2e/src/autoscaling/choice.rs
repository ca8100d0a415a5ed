//! How the driver chooses a group for pods that are pending, and what it asks for that: sizes, options, prices.

use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use tonic::Code;

use super::{
    Expander,
    driver::{Driver, Look},
    fields::upcoming_node,
    pods::{Cpu, Shape, asks_for, fits, new_nodes, used},
};
use crate::proto::NodeGroup;

/// A pod that nobody has made: by what it costs, prices of nothing are kept from dividing by nothing.
const STABILIZATION: (&str, Cpu) = ("stabilize", 500);

/// A group that would do, and how many Nodes of it.
struct Candidate<'a> {
    group: &'a NodeGroup,
    nodes: i32,
    left_over: Cpu,
    pods: Vec<&'a Pod>,
}

impl Driver {
    /// Increases one group by what the pending pods need beyond the room of Nodes that are there, which the scheduler has yet to find,
    /// and of those that are still coming. Says whether it has.
    pub(super) async fn scale_up(&mut self, look: &Look, pending: &[&Pod]) -> Result<bool> {
        let pending = self.without_room(look, pending)?;
        if pending.is_empty() {
            return Ok(false);
        }
        let open = look.groups.iter().filter(|group| !self.memory.backed_off.contains(&group.id));
        let needs: Result<Vec<Candidate>> = open.filter_map(|group| self.need(group, &pending).transpose()).collect();
        let needs = needs?;
        if self.pattern.asks_about_upcoming() {
            self.ask_about_upcoming(look).await?;
        }
        if self.pattern.asks_for_sizes_before_scale_up() {
            self.sizes(&look.groups).await?;
        }
        let candidates = self.candidates(look, needs).await?;
        let Some(chosen) = self.choose(candidates).await? else { return Ok(false) };
        let (id, by) = (chosen.group.id.clone(), chosen.nodes);
        let before = self.caller.target_size(&id).await?;
        self.learn_gpus().await?;
        self.note("increasing", &format!("{id} by {by}"));
        if let Err(status) = self.caller.increase(&id, by).await {
            self.memory.backed_off.insert(id);
            return Err(status.into());
        }
        let options = self.options(&id, 1).await?.context("options of a group that was increased")?;
        let now = Instant::now();
        self.memory.increased = Some(now);
        self.memory.increases.insert(id.clone(), (by, now + options.provision));
        let after = self.sizes(&look.groups).await?;
        ensure!(after.get(&id) == Some(&(before + by)), "{id}: {before}, increased by {by}, is {after:?}");
        Ok(true)
    }

    /// The pods that fit on no Node that is there or coming.
    fn without_room<'a>(&self, look: &Look, pending: &[&'a Pod]) -> Result<Vec<&'a Pod>> {
        let mut rooms: Vec<(&Shape, Cpu)> = Vec::new();
        for group in &look.groups {
            let Some(shape) = self.memory.shapes.get(&group.id) else { continue };
            let nodes = look.nodes_of(&group.id);
            rooms.extend(nodes.iter().map(|node| (shape, shape.cpu - used(node, &look.pods))));
            let there = nodes.len() + self.long_unregistered(&group.id);
            let coming = usize::try_from(look.sizes[&group.id])?.saturating_sub(there);
            if self.pattern.expects_nodes_nobody_waits_for() || self.memory.increases.contains_key(&group.id) {
                rooms.extend(vec![(shape, shape.cpu); coming]);
            }
        }
        let mut without = Vec::new();
        for pod in pending {
            let room = rooms.iter_mut().find(|(shape, left)| fits(pod, shape) && asks_for(pod) <= *left);
            match room {
                Some((_, left)) => *left -= asks_for(pod),
                None => without.push(*pod),
            }
        }
        Ok(without)
    }

    /// Made-up Nodes stand for those that are coming, and it is asked of which group they are.
    async fn ask_about_upcoming(&self, look: &Look) -> Result<()> {
        for group in self.memory.increases.keys() {
            let (Some(shape), Some(size)) = (self.memory.shapes.get(group), look.sizes.get(group)) else { continue };
            for number in look.nodes_of(group).len()..usize::try_from(*size)? {
                let upcoming = upcoming_node(group, shape, number);
                self.caller.group_of(&upcoming).await?;
            }
        }
        Ok(())
    }

    /// What pods would need of a group: none of it where they don't fit.
    fn need<'a>(&self, group: &'a NodeGroup, pending: &[&'a Pod]) -> Result<Option<Candidate<'a>>> {
        let Some(shape) = self.memory.shapes.get(&group.id) else { return Ok(None) };
        let pods: Vec<&Pod> = pending.iter().copied().filter(|pod| fits(pod, shape)).collect();
        if pods.is_empty() {
            return Ok(None);
        }
        let (nodes, left_over) = new_nodes(&pods, shape.cpu);
        Ok(Some(Candidate { group, nodes: i32::try_from(nodes)?, left_over, pods }))
    }

    /// Those with room for more, by no more than their maximum allows: others bring the rest in the next loop.
    async fn candidates<'a>(&self, look: &'a Look, needs: Vec<Candidate<'a>>) -> Result<Vec<Candidate<'a>>> {
        for group in look.groups.iter().filter(|group| !self.memory.backed_off.contains(&group.id)) {
            if self.caller.target_size(&group.id).await? < group.max_size {
                self.options(&group.id, 1).await?;
            }
        }
        let mut candidates = Vec::new();
        for candidate in needs {
            let nodes = candidate.nodes.min(candidate.group.max_size - look.sizes[&candidate.group.id]);
            if nodes > 0 {
                self.caller.target_size(&candidate.group.id).await?;
                self.options(&candidate.group.id, 1).await?;
                candidates.push(Candidate { nodes, ..candidate });
            }
        }
        Ok(candidates)
    }

    async fn choose<'a>(&self, candidates: Vec<Candidate<'a>>) -> Result<Option<Candidate<'a>>> {
        match self.settings.expander {
            Expander::LeastWaste => Ok(candidates.into_iter().min_by_key(|candidate| candidate.left_over)),
            Expander::Price => self.cheapest(candidates).await,
        }
    }

    /// A candidate without a price is none. Pods are priced too, as Cluster Autoscaler does, but here all candidates take the same.
    async fn cheapest<'a>(&self, candidates: Vec<Candidate<'a>>) -> Result<Option<Candidate<'a>>> {
        let (name, cpu) = STABILIZATION;
        self.pod_price(name, cpu).await?;
        let mut best: Option<(f64, Candidate<'a>)> = None;
        'candidates: for candidate in candidates {
            let shape = &self.memory.shapes[&candidate.group.id];
            let price = match self.caller.node_price(self.fields.node_price(&candidate.group.id, shape)).await {
                Ok(price) => price * f64::from(candidate.nodes),
                Err(status) if status.code() == Code::Unimplemented => continue,
                Err(status) => return Err(status.into()),
            };
            for pod in &candidate.pods {
                let name = pod.metadata.name.as_deref().unwrap_or_default();
                if self.pod_price(name, asks_for(pod)).await?.is_none() {
                    continue 'candidates;
                }
            }
            if best.as_ref().is_none_or(|(least, _)| price < *least) {
                best = Some((price, candidate));
            }
        }
        Ok(best.map(|(_, candidate)| candidate))
    }

    async fn pod_price(&self, name: &str, cpu: Cpu) -> Result<Option<f64>> {
        match self.caller.pod_price(self.fields.pod_price(name, cpu)).await {
            Ok(price) => Ok(Some(price)),
            Err(status) if status.code() == Code::Unimplemented => Ok(None),
            Err(status) => Err(status.into()),
        }
    }
}
