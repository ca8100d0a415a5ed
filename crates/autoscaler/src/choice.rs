//! The driver's choice of a group for pending pods, and its calls for that: sizes, options, prices.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use anyhow::Result;
use capi_autoscaler_provider::proto::NodeGroup;
use k8s_openapi::api::core::v1::Pod;
use tokio::time::Instant;
use tonic::Code;

use super::{
    Expander,
    driver::{Driver, Look},
    fields::upcoming_node,
    pods::{Cpu, asks_for, fits, is_movable, is_unschedulable, is_younger, new_nodes},
    rooms::Rooms,
};

/// Pods that are all younger may have others coming after them.
const NEW: Duration = Duration::from_secs(2);

/// A pod that nobody has made: by what it costs, prices of nothing are kept from dividing by nothing.
const STABILIZATION: (&str, Cpu) = ("stabilize", 500);

/// A group that would do, and how many Nodes of it.
struct Candidate<'a> {
    group: &'a NodeGroup,
    nodes: i32,
    left_over: Cpu,
    pods: Vec<&'a Pod>,
}

/// Returns true if a Pod is on a Node that is being drained, and may be evicted.
fn loses_its_node(look: &Look, pod: &Pod) -> bool {
    let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_ref());
    let going = node.and_then(|node| look.going.get(node));
    going.is_some_and(|going| going.drains) && is_movable(pod)
}

impl Driver {
    /// Increases one group by what the pending Pods need beyond the room of Nodes that are there, which the scheduler has yet to find,
    /// and of those that are still coming. Says whether it has.
    pub(crate) async fn scale_up(&mut self, look: &Look) -> Result<bool> {
        self.memory.cooldown.this_loop = false;
        let pending = self.without_room(look);
        if pending.is_empty() {
            return Ok(false);
        }
        if self.settings.waits_for_more_pods && pending.iter().all(|pod| is_younger(&pod.metadata, NEW)) {
            self.memory.cooldown.this_loop = true;
            return Ok(false);
        }
        let open = look.groups.iter().filter(|group| self.is_safe(&group.id));
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
        // Others may have changed it since.
        let before = self.caller.target_size(&id).await?;
        let by = by.min(chosen.group.max_size - before);
        if by <= 0 {
            return Ok(false);
        }
        self.learn_gpus().await;
        self.note("increasing", &format!("{id} by {by}"));
        if let Err(status) = self.caller.increase(&id, by).await {
            self.back_off(&id);
            return Err(status.into());
        }
        self.register_increase(&id, by).await?;
        self.memory.cooldown.increased = Some(Instant::now());
        self.recalculate(look).await;
        let after = self.memory.targets.get(&id);
        if after != Some(&(before + by)) {
            self.note("increased", &format!("{id}: {before}, increased by {by}, is {after:?}"));
        }
        Ok(true)
    }

    /// The Pods that fit on no Node that is there or coming, with those that are about to lose theirs.
    fn without_room<'a>(&self, look: &'a Look) -> Vec<&'a Pod> {
        let mut rooms = Rooms::default();
        let mut starting = BTreeSet::new();
        for group in &look.groups {
            starting.extend(self.starting(&group.id));
            if let Some(shape) = self.memory.shapes.get(&group.id) {
                rooms.add_coming(shape, self.counted_upcoming(&group.id));
            }
        }
        for node in look.all_nodes() {
            let name = node.metadata.name.as_deref().unwrap_or_default();
            if !starting.contains(name) && !look.going.contains_key(name) {
                rooms.add(node, &look.pods);
            }
        }
        let is_pending = |pod: &&Pod| is_unschedulable(pod) || loses_its_node(look, pod);
        look.pods.iter().filter(is_pending).filter(|pod| !rooms.place(pod)).collect()
    }

    /// The number of Nodes of a group that are thought of as coming.
    pub(crate) fn counted_upcoming(&self, group: &str) -> usize {
        let nobody_waits =
            !self.memory.requests.contains_key(group) || self.memory.backed_off.has(group, Instant::now());
        if nobody_waits && !self.pattern.expects_nodes_nobody_waits_for() {
            return 0;
        }
        self.upcoming(group)
    }

    /// Made-up Nodes stand for those that are coming, and it is asked of which group they are.
    async fn ask_about_upcoming(&self, look: &Look) -> Result<()> {
        for group in &look.groups {
            let Some(shape) = self.memory.shapes.get(&group.id) else { continue };
            for number in 0..self.counted_upcoming(&group.id) {
                self.caller.group_of(&upcoming_node(&group.id, shape, number)).await?;
            }
        }
        Ok(())
    }

    /// Returns the group with the Nodes that the pods would need of it; `None` where none of them fits.
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
        let mut room = BTreeMap::new();
        for group in look.groups.iter().filter(|group| self.is_safe(&group.id)) {
            // One whose size isn't answered isn't considered.
            let Ok(size) = self.caller.target_size(&group.id).await else { continue };
            if size < group.max_size {
                room.insert(&group.id, group.max_size - size);
                self.options(&group.id, 1).await?;
            }
        }
        let mut candidates = Vec::new();
        for candidate in needs {
            let nodes = candidate.nodes.min(room.get(&candidate.group.id).copied().unwrap_or_default());
            if nodes > 0 {
                self.caller.target_size(&candidate.group.id).await?;
                self.options(&candidate.group.id, 1).await?;
                candidates.push(Candidate { nodes, ..candidate });
            }
        }
        Ok(candidates)
    }

    async fn choose<'a>(&mut self, mut candidates: Vec<Candidate<'a>>) -> Result<Option<Candidate<'a>>> {
        // Of those that are as good one is taken by chance.
        self.chance.shuffle(&mut candidates);
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
