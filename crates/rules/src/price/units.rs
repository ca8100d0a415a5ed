//! The prices of a core, a GiB of memory and a GPU, derived from the price of a Node. The price of a whole Node is
//! split by weights, so that pods which share a Node can be priced too.

use std::collections::BTreeMap;

use super::{
    Price,
    list::{Rates, cores_and_gibibytes, gibibytes},
};
use crate::{
    Quantity, Requests, capacity,
    resource_list::{CPU, Capacity, MEMORY},
};

/// The number of GiB of memory that cost as much as a core, roughly as clouds price them.
const GIB_PER_CORE: f64 = 8.0;
/// The number of cores that cost as much as a GPU: some 10 for the smallest, some 100 for the largest.
const CORES_PER_GPU: f64 = 20.0;

/// Prices of resources.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct UnitPrices {
    /// The price of a core.
    pub cpu: Price,
    /// The price of a GiB of memory.
    pub memory: Price,
    /// The price of one GPU of each kind, by the name of the resource.
    pub gpus: BTreeMap<String, Price>,
}

/// The weights by which the parts of a Node share its price.
struct Weights {
    cpu: f64,
    memory: f64,
    gpu: f64,
}

impl Weights {
    const DEFAULT: Self = Self { cpu: 1.0, memory: 1.0 / GIB_PER_CORE, gpu: CORES_PER_GPU };

    fn of_rates(rates: &Rates) -> Self {
        let cpu = rates.cpu.per_hour();
        Self { cpu, memory: rates.memory.per_hour(), gpu: rates.gpu.map_or(cpu * CORES_PER_GPU, Price::per_hour) }
    }

    /// Returns the sum of the weights of a Node's resources.
    fn total(&self, capacity: &Capacity) -> f64 {
        let (cores, gibibytes) = cores_and_gibibytes(capacity);
        let gpus: f64 = capacity::gpus(capacity).map(|(_, count)| count.to_f64()).sum();
        self.cpu * cores + self.memory * gibibytes + self.gpu * gpus
    }
}

impl UnitPrices {
    /// Returns the unit prices of a Node with this capacity that was priced by `rates`.
    pub(super) fn of_rates(rates: Rates, capacity: &Capacity) -> Self {
        let gpu = rates.gpu.unwrap_or_default();
        let gpus = capacity::gpus(capacity).map(|(resource, _)| (resource.to_owned(), gpu)).collect();
        Self { cpu: rates.cpu, memory: rates.memory, gpus }
    }

    /// Splits the price of a Node with this capacity in the ratio of `rates`, or of the default weights if the rates
    /// don't apply. Returns `None` if the Node has no cores, memory or GPUs.
    pub(super) fn split(price: Price, capacity: &Capacity, rates: Option<&Rates>) -> Option<Self> {
        let weights = rates.map(Weights::of_rates).filter(|weights| weights.total(capacity) > 0.0);
        let weights = weights.unwrap_or(Weights::DEFAULT);
        let total = weights.total(capacity);
        if total <= 0.0 {
            return None;
        }
        let share = |weight: f64| Price::nearest(price.per_hour() * (weight / total));
        let gpus = capacity::gpus(capacity).map(|(resource, _)| (resource.to_owned(), share(weights.gpu))).collect();
        Some(Self { cpu: share(weights.cpu), memory: share(weights.memory), gpus })
    }

    /// Returns the price of these requests per hour. Resources without a price are free.
    #[must_use]
    pub fn per_hour(&self, requests: &Requests) -> f64 {
        let price = |(resource, quantity): (&String, &Quantity)| match resource.as_str() {
            CPU => quantity.to_f64() * self.cpu.per_hour(),
            MEMORY => gibibytes(quantity.to_f64()) * self.memory.per_hour(),
            _ => quantity.to_f64() * self.gpus.get(resource).copied().unwrap_or_default().per_hour(),
        };
        // An empty `f64` sum is -0.0; this makes it 0.0.
        requests.iter().map(price).sum::<f64>() + 0.0
    }
}
