//! The driver's choice of a group for pending Pods, and the calls for sizes, options and prices that the choice needs.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use anyhow::Result;
use k8s_openapi::api::core::v1::Pod;
use proto::NodeGroup;
use tokio::time::Instant;
use tonic::Code;

use super::{
    Expander,
    caller::upcoming_node,
    driver::Driver,
    state::LoopInput,
    workload::{ClusterSnapshot, Cpu, asks_for, fits, is_movable, is_unschedulable, is_younger, new_nodes},
};

/// The age up to which a Pod counts as new. If all are new, the loop waits, since more may follow.
const NEW: Duration = Duration::from_secs(2);

/// A Pod that does not exist. Cluster Autoscaler adds its price to every cost, so that a price of zero can't divide by
/// zero.
const STABILIZATION: (&str, Cpu) = ("stabilize", 500);

/// A group that fits pending Pods, and the number of Nodes that they need.
struct Candidate<'a> {
    group: &'a NodeGroup,
    nodes: i32,
    left_over: Cpu,
    pods: Vec<&'a Pod>,
}

/// Returns true if a Pod is on a Node that is being drained, and may be evicted.
fn loses_its_node(input: &LoopInput, pod: &Pod) -> bool {
    let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_ref());
    let deletion = node.and_then(|node| input.deleting.get(node));
    deletion.is_some_and(|deletion| deletion.drains) && is_movable(pod)
}

impl Driver {
    /// Increases one group for the pending Pods that fit on no upcoming Node and on no existing Node, where the
    /// scheduler would place them. Returns true if a group was increased.
    pub(super) async fn scale_up(&mut self, input: &LoopInput) -> Result<bool> {
        self.memory.cooldown.this_loop = false;
        let pending = self.unschedulable(input);
        if pending.is_empty() {
            return Ok(false);
        }
        if self.settings.waits_for_more_pods && pending.iter().all(|pod| is_younger(&pod.metadata, NEW)) {
            self.memory.cooldown.this_loop = true;
            return Ok(false);
        }
        let open = input.groups.iter().filter(|group| self.is_safe(&group.id));
        let needs: Result<Vec<Candidate>> = open.filter_map(|group| self.need(group, &pending).transpose()).collect();
        let needs = needs?;
        if self.pattern.asks_about_upcoming() {
            self.ask_about_upcoming(input).await?;
        }
        if self.pattern.asks_for_sizes_before_scale_up() {
            self.sizes(&input.groups).await?;
        }
        let candidates = self.candidates(input, needs).await?;
        let Some(chosen) = self.choose(candidates).await? else { return Ok(false) };
        let (id, by) = (chosen.group.id.clone(), chosen.nodes);
        // Another client may have changed the size since.
        let before = self.caller.target_size(&id).await?;
        let by = by.min(chosen.group.max_size - before);
        if by <= 0 {
            return Ok(false);
        }
        self.fetch_gpus().await;
        self.note("increasing", &format!("{id} by {by}"));
        if let Err(status) = self.caller.increase(&id, by).await {
            self.back_off(&id);
            return Err(status.into());
        }
        self.register_increase(&id, by).await?;
        self.memory.cooldown.increased = Some(Instant::now());
        self.recalculate(input).await;
        let after = self.memory.targets.get(&id);
        if after != Some(&(before + by)) {
            self.note("increased", &format!("{id}: {before}, increased by {by}, is {after:?}"));
        }
        Ok(true)
    }

    /// Returns the Pods that fit on no existing or upcoming Node, including Pods of Nodes that are being drained.
    fn unschedulable<'a>(&self, input: &'a LoopInput) -> Vec<&'a Pod> {
        let mut snapshot = ClusterSnapshot::default();
        let mut starting = BTreeSet::new();
        for group in &input.groups {
            starting.extend(self.starting(&group.id));
            if let Some(shape) = self.memory.shapes.get(&group.id) {
                snapshot.add_coming(shape, self.counted_upcoming(&group.id));
            }
        }
        for node in input.all_nodes() {
            let name = node.metadata.name.as_deref().unwrap_or_default();
            if !starting.contains(name) && !input.deleting.contains_key(name) {
                snapshot.add(node, &input.pods);
            }
        }
        let is_pending = |pod: &&Pod| is_unschedulable(pod) || loses_its_node(input, pod);
        input.pods.iter().filter(is_pending).filter(|pod| !snapshot.place(pod)).collect()
    }

    /// Calls `NodeGroupForNode` with a made-up Node for each upcoming one.
    async fn ask_about_upcoming(&self, input: &LoopInput) -> Result<()> {
        for group in &input.groups {
            let Some(shape) = self.memory.shapes.get(&group.id) else { continue };
            for number in 0..self.counted_upcoming(&group.id) {
                self.caller.group_of(&upcoming_node(&group.id, shape, number)).await?;
            }
        }
        Ok(())
    }

    /// Returns the group with the number of Nodes that the Pods would need, or `None` if none of them fits.
    fn need<'a>(&self, group: &'a NodeGroup, pending: &[&'a Pod]) -> Result<Option<Candidate<'a>>> {
        let Some(shape) = self.memory.shapes.get(&group.id) else { return Ok(None) };
        let pods: Vec<&Pod> = pending.iter().copied().filter(|pod| fits(pod, shape)).collect();
        if pods.is_empty() {
            return Ok(None);
        }
        let (nodes, left_over) = new_nodes(&pods, shape.cpu);
        Ok(Some(Candidate { group, nodes: i32::try_from(nodes)?, left_over, pods }))
    }

    /// Returns the candidates below their max size, with their Nodes capped by it. Other groups provide the rest in the
    /// next loop.
    async fn candidates<'a>(&self, input: &'a LoopInput, needs: Vec<Candidate<'a>>) -> Result<Vec<Candidate<'a>>> {
        let mut headroom = BTreeMap::new();
        for group in input.groups.iter().filter(|group| self.is_safe(&group.id)) {
            // A group whose size call fails is skipped.
            let Ok(size) = self.caller.target_size(&group.id).await else { continue };
            if size < group.max_size {
                headroom.insert(&group.id, group.max_size - size);
                self.options(&group.id, 1).await?;
            }
        }
        let mut candidates = Vec::new();
        for candidate in needs {
            let nodes = candidate.nodes.min(headroom.get(&candidate.group.id).copied().unwrap_or_default());
            if nodes > 0 {
                self.caller.target_size(&candidate.group.id).await?;
                self.options(&candidate.group.id, 1).await?;
                candidates.push(Candidate { nodes, ..candidate });
            }
        }
        Ok(candidates)
    }

    async fn choose<'a>(&mut self, mut candidates: Vec<Candidate<'a>>) -> Result<Option<Candidate<'a>>> {
        // Ties are broken at random.
        self.rng.shuffle(&mut candidates);
        match self.settings.expander {
            Expander::LeastWaste => Ok(candidates.into_iter().min_by_key(|candidate| candidate.left_over)),
            Expander::Price => self.cheapest(candidates).await,
        }
    }

    /// Returns the cheapest candidate. A candidate without a price is dropped. Pod prices are requested as Cluster
    /// Autoscaler does, but don't matter, since all candidates take the same Pods here.
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
