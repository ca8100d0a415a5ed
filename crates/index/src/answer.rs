//! Answers Cluster Autoscaler's reads, each from one consistent state of the index.

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
    time::Instant,
};

use jiff::{SignedDuration, Timestamp};
use rules::capi::ScalableKind;
use rules::{GroupId, GroupPrice, Instance, Overrides, Price, UnitPrices, instance, rollout};
use thiserror::Error;

use super::{
    group::{Group, Served},
    resolve::NodeQuery,
    state::{Index, Inner, LiveState},
};

/// Cluster Autoscaler's `--max-node-startup-time`, unless it is set.
const STARTUP_TIME: SignedDuration = SignedDuration::from_mins(15);

/// The maximum number of starting Nodes of all groups that are looked at for one group.
const STARTING_LOOKED_AT: usize = 256;

impl Index {
    /// Returns the served values of a group: the current ones, or the last ones if it has stopped being a group since
    /// the last Refresh.
    pub fn served(&self, id: &GroupId) -> Option<Arc<Served>> {
        self.inner.read().live.groups.get(id)?.served.clone()
    }

    /// Returns the options for Cluster Autoscaler: the served ones, or those that keep the Nodes of a group that is
    /// left alone from being chosen.
    pub fn options(&self, id: &GroupId) -> Option<Overrides> {
        let inner = self.inner.read();
        let group = inner.live.groups.get(id)?;
        let options = &group.served.as_ref()?.options;
        let is_held = group.held.as_ref().is_some_and(|held| held.why().is_some());
        Some(if is_held { rollout::keep_nodes(options) } else { options.clone() })
    }

    /// Returns true if a Node of a group was created within Cluster Autoscaler's default startup time and isn't ready.
    pub fn has_starting_node(&self, id: &GroupId) -> bool {
        let inner = self.inner.read();
        let live = &inner.live;
        let oldest = Timestamp::now() - STARTUP_TIME;
        let starting = live.unready_nodes.iter().filter(|(_, created)| **created > oldest).take(STARTING_LOOKED_AT);
        let nodes = starting.filter_map(|(name, _)| live.nodes.get(name));
        nodes.map(|node| live.group_of_known_node(node)).any(|group| group.as_ref() == Some(id))
    }

    /// Returns the desired size, including own writes; `None` if there is no such group.
    pub fn target_size(&self, id: &GroupId) -> Option<i32> {
        let inner = self.inner.read();
        Some(inner.answering(id)?.size(Instant::now()))
    }

    /// Returns the instances of a group: its Machines, or a MachinePool's providerIDs, and a placeholder for each
    /// missing replica. The instances of a recent increase have temporary ids. `None` if there is no such group.
    pub fn instances(&self, id: &GroupId) -> Option<Vec<Instance>> {
        let inner = self.inner.read();
        let live = &inner.live;
        let group = inner.answering(id)?;
        let now = Instant::now();
        // A deleted group creates no more Machines.
        let size = if group.object.is_some() { group.size(now) } else { 0 };
        let mut members = Vec::new();
        let conditions = || group.delete_conditions(live.rules.errors);
        let mut instances = match live.pool_view(id, group) {
            Some(view) => {
                let ids = live.instance_ids_of(view.pool);
                instance::of_pool(id, size, ids.iter().map(|id| id.as_str()), view, conditions)
            }
            None if id.kind == ScalableKind::MachinePool => Vec::new(),
            None => {
                members.extend(live.members_of(id));
                instance::of_group(id, size, &members, conditions)
            }
        };
        if let Some(increase) = group.increase {
            increase.use_temporary_ids(&mut instances, &members);
        }
        Some(instances)
    }

    /// Returns the GPU types of all templates: the values of their GPU label.
    pub fn gpu_types(&self) -> BTreeSet<String> {
        let inner = self.inner.read();
        let served = inner.live.groups.values().filter_map(|group| group.served.as_deref());
        served
            .filter_map(|served| served.definition.template.as_ref()?.labels.get(rules::GPU_LABEL))
            .map(|label| label.value.clone())
            .collect()
    }
}

impl Inner {
    /// Returns a group that is served: a live one, or one that was live at the last Refresh.
    fn answering(&self, id: &GroupId) -> Option<&Group> {
        self.live.groups.get(id).filter(|group| group.served.is_some())
    }
}

// The prices of the groups, for the price RPCs: the price of a Node through its group, and the lowest price of each
// resource among all groups.

/// The labels of a Node as the caller describes it.
pub type NodeLabels = HashMap<String, String>;

/// The reason for which there is no price.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
pub enum NoPrice {
    /// There are no prices at all.
    #[error(
        "no prices are known: give node groups the annotation {}, or the server a price file with --prices",
        rules::capi::PRICE_PER_HOUR
    )]
    Anywhere,
    /// The group of the Node has no price.
    #[error(
        "no price is known for a Node of node group {0}: give the group the annotation {key}, or its instance type, \
         labels or resources a price in the price file",
        key = rules::capi::PRICE_PER_HOUR
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
        let id = live.find_group_of(query);
        let served = id.as_ref().and_then(|id| live.groups.get(id)?.served.as_deref());
        if let Some(price) = served.and_then(|served| served.definition.price.as_ref()) {
            return Ok(price.price.value);
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
            let prices = self.priced().filter(move |price| price.price.value.is_free() == is_free);
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
