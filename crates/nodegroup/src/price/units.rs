//! The prices of a core, a GiB of memory and a GPU, from the price of a Node that has them. A price for a whole Node is
//! split by weights, as every answer about a pod that shares Nodes with others has to be.

use std::collections::BTreeMap;

use super::{
    Price,
    list::{Rates, cores_and_gibibytes, gibibytes},
};
use crate::{
    Quantity, Requests,
    capacity::{self, CPU, Capacity, MEMORY},
};

/// As many GiB of memory cost as much as a core, as clouds price them more or less.
const GIB_PER_CORE: f64 = 8.0;
/// As many cores cost as much as a GPU: some 10 for the smallest, some 100 for the largest.
const CORES_PER_GPU: f64 = 20.0;

/// Prices of resources.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct UnitPrices {
    /// A core.
    pub cpu: Price,
    /// A GiB of memory.
    pub memory: Price,
    /// One of each kind of GPU, by the name of the resource.
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

    /// The sum of the weights of all that a Node has.
    fn total(&self, capacity: &Capacity) -> f64 {
        let (cores, gibibytes) = cores_and_gibibytes(capacity);
        let gpus: f64 = capacity::gpus(capacity).map(|(_, count)| count.to_f64()).sum();
        self.cpu * cores + self.memory * gibibytes + self.gpu * gpus
    }
}

impl UnitPrices {
    /// The rates that a Node with this capacity was priced by.
    pub(super) fn of_rates(rates: Rates, capacity: &Capacity) -> Self {
        let gpu = rates.gpu.unwrap_or_default();
        let gpus = capacity::gpus(capacity).map(|(resource, _)| (resource.to_owned(), gpu)).collect();
        Self { cpu: rates.cpu, memory: rates.memory, gpus }
    }

    /// The price of a Node with this capacity, split by the ratio of `rates`, or by the usual one. `None`: it has nothing
    /// of what a price is split over.
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

    /// Returns the price of these requests per hour. Resources that have no price cost nothing.
    #[must_use]
    pub fn per_hour(&self, requests: &Requests) -> f64 {
        let price = |(resource, quantity): (&String, &Quantity)| match resource.as_str() {
            CPU => quantity.to_f64() * self.cpu.per_hour(),
            MEMORY => gibibytes(quantity.to_f64()) * self.memory.per_hour(),
            _ => quantity.to_f64() * self.gpus.get(resource).copied().unwrap_or_default().per_hour(),
        };
        // The sum of no numbers is -0.
        requests.iter().map(price).sum::<f64>() + 0.0
    }
}
