//! The prices of the groups, for the price RPCs: the price of a Node through its group, and the lowest price of each
//! resource among all groups. Both are kept up to date with each change, so that an answer visits no group.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use nodegroup::{GroupId, GroupPrice, Price, UnitPrices};
use thiserror::Error;

use super::{Index, NodeQuery, live_state::LiveState};

/// The labels of a Node as the caller describes it.
pub type NodeLabels = HashMap<String, String>;

/// The reason for which there is no price.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
pub enum NoPrice {
    /// There are no prices at all.
    #[error(
        "no prices are known: give node groups the annotation {}, or the server a price file with --prices",
        capi::PRICE_PER_HOUR
    )]
    Anywhere,
    /// The group of the Node has no price.
    #[error(
        "no price is known for a Node of node group {0}: give the group the annotation {key}, or its instance type, \
         labels or resources a price in the price file",
        key = capi::PRICE_PER_HOUR
    )]
    OfGroup(GroupId),
    /// The Node belongs to no group, and has no price.
    #[error("the Node belongs to no node group, and the price file has no price for its labels")]
    OfForeignNode,
    /// Groups have a price, but the resources of their Nodes aren't known.
    #[error(
        "node groups have prices, but of none it is known how much cpu and memory its Nodes have: give one the capacity \
         annotations cpu and memory"
    )]
    OfResources,
}

impl Index {
    /// Returns the price of a Node: its group's, else the price list's for its labels.
    ///
    /// # Errors
    /// When there is no price for it.
    pub fn node_price(&self, query: NodeQuery<'_>, labels: &NodeLabels) -> Result<Price, NoPrice> {
        let inner = self.inner.read();
        let live = &inner.live;
        let id = live.group_of_node(query);
        let served = id.as_ref().and_then(|id| live.groups.get(id)?.served.as_deref());
        if let Some(price) = served.and_then(|served| served.definition.price.as_ref()) {
            return Ok(price.offer.price);
        }
        live.price_of_labels(labels).ok_or_else(|| match id {
            _ if live.has_no_prices() => NoPrice::Anywhere,
            Some(id) => NoPrice::OfGroup(id),
            None => NoPrice::OfForeignNode,
        })
    }

    /// Returns the lowest price of each resource among the groups.
    ///
    /// # Errors
    /// When no group has prices for resources.
    pub fn unit_prices(&self) -> Result<Arc<UnitPrices>, NoPrice> {
        let inner = self.inner.read();
        let prices = &inner.live.prices;
        prices.units.clone().ok_or(if prices.priced == 0 { NoPrice::Anywhere } else { NoPrice::OfResources })
    }
}

impl LiveState {
    fn price_of_labels(&self, labels: &NodeLabels) -> Option<Price> {
        let list = &self.rules.prices;
        if list.is_empty() {
            return None;
        }
        list.of_labels(&labels.iter().map(|(key, value)| (key.clone(), value.clone())).collect())
    }

    fn has_no_prices(&self) -> bool {
        self.prices.priced == 0 && self.rules.prices.is_empty()
    }
}

/// The lowest price of each resource among the groups that answer.
///
/// Groups whose Nodes are free don't count if others cost something: Cluster Autoscaler divides by the price of pods,
/// and with 0 its price expander can't compare anything any more.
#[derive(Debug, Default)]
pub(super) struct CheapestUnits {
    /// Groups that have a price.
    priced: usize,
    /// The number of groups with known resources whose Nodes are free.
    free: usize,
    cpu: Tally,
    memory: Tally,
    gpus: BTreeMap<String, Tally>,
    /// The resulting prices.
    units: Option<Arc<UnitPrices>>,
}

/// The number of groups at each price.
#[derive(Debug, Default)]
struct Tally(BTreeMap<Price, usize>);

impl CheapestUnits {
    /// Groups that have a price.
    pub(super) fn priced(&self) -> usize {
        self.priced
    }

    /// Returns true if no group is counted.
    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        let Self { priced, free, cpu, memory, gpus, units } = self;
        *priced == 0 && *free == 0 && cpu.0.is_empty() && memory.0.is_empty() && gpus.is_empty() && units.is_none()
    }

    /// Replaces the price of a group.
    pub(super) fn replace(&mut self, old: Option<&GroupPrice>, new: Option<&GroupPrice>) {
        if let Some(old) = old {
            self.count(old, Step::Down);
        }
        if let Some(new) = new {
            self.count(new, Step::Up);
        }
        self.gpus.retain(|_, tally| !tally.0.is_empty());
        let units = self.cheapest();
        if self.units.as_deref() != units.as_ref() {
            self.units = units.map(Arc::new);
        }
    }

    fn count(&mut self, price: &GroupPrice, step: Step) {
        step.take(&mut self.priced);
        let Some(units) = &price.units else { return };
        if price.offer.price.is_free() {
            step.take(&mut self.free);
            return;
        }
        self.cpu.count(units.cpu, step);
        self.memory.count(units.memory, step);
        for (resource, price) in &units.gpus {
            self.gpus.entry(resource.clone()).or_default().count(*price, step);
        }
    }

    fn cheapest(&self) -> Option<UnitPrices> {
        match (self.cpu.least(), self.memory.least()) {
            (Some(cpu), Some(memory)) => {
                let gpus = self.gpus.iter().filter_map(|(resource, tally)| Some((resource.clone(), tally.least()?)));
                Some(UnitPrices { cpu, memory, gpus: gpus.collect() })
            }
            (None, _) | (_, None) => (self.free > 0).then(UnitPrices::default),
        }
    }
}

#[derive(Clone, Copy)]
enum Step {
    Up,
    Down,
}

impl Step {
    fn take(self, count: &mut usize) {
        *count = match self {
            Self::Up => *count + 1,
            Self::Down => count.saturating_sub(1),
        };
    }
}

impl Tally {
    fn count(&mut self, price: Price, step: Step) {
        let count = self.0.entry(price).or_default();
        step.take(count);
        if *count == 0 {
            self.0.remove(&price);
        }
    }

    fn least(&self) -> Option<Price> {
        self.0.keys().next().copied()
    }
}
