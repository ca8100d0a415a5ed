//! The prices of the groups, for the price RPCs: the price of a Node through its group, and the lowest price of each
//! resource among all groups.

use std::{collections::HashMap, sync::Arc};

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
        "node groups have prices, but the cpu and memory of their Nodes aren't known: give one the capacity \
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
        let live = &inner.live;
        let units = live.cheapest_units.get_or_init(|| live.find_cheapest_units().map(Arc::new));
        units
            .clone()
            .ok_or_else(|| if live.priced().next().is_none() { NoPrice::Anywhere } else { NoPrice::OfResources })
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
        self.priced().next().is_none() && self.rules.prices.is_empty()
    }

    /// Iterates over the prices of the served groups.
    pub(super) fn priced(&self) -> impl Iterator<Item = &GroupPrice> {
        self.groups.values().filter_map(|group| group.served.as_ref()?.definition.price.as_ref())
    }

    /// Returns the lowest price of each resource among the served groups.
    ///
    /// Groups whose Nodes are free don't count if others cost something: Cluster Autoscaler divides by the price of
    /// pods, and with 0 its price expander can't compare anything any more.
    pub(super) fn find_cheapest_units(&self) -> Option<UnitPrices> {
        let units = |is_free: bool| {
            let prices = self.priced().filter(move |price| price.offer.price.is_free() == is_free);
            prices.filter_map(|price| price.units.as_ref())
        };
        let cheapest = units(false).cloned().reduce(|mut cheapest, units| {
            cheapest.cpu = cheapest.cpu.min(units.cpu);
            cheapest.memory = cheapest.memory.min(units.memory);
            for (resource, price) in units.gpus {
                let least = cheapest.gpus.entry(resource).or_insert(price);
                *least = price.min(*least);
            }
            cheapest
        });
        cheapest.or_else(|| units(true).next().map(|_| UnitPrices::default()))
    }
}
