//! The lowest price of each resource, kept up to date with the price of each group, so that an answer visits none.

use std::{collections::BTreeMap, sync::Arc};

use nodegroup::{GroupPrice, Price, UnitPrices};

/// The lowest price of each resource among the served groups.
///
/// Groups whose Nodes are free don't count if others cost something: Cluster Autoscaler divides by the price of pods,
/// and with 0 its price expander can't compare anything any more.
#[derive(Debug, Default)]
pub(super) struct CheapestUnits {
    /// The number of groups that have a price.
    priced: usize,
    /// The number of groups with known resources whose Nodes are free.
    free: usize,
    cpu: Tally,
    memory: Tally,
    gpus: BTreeMap<String, Tally>,
    /// The resulting prices.
    pub(super) units: Option<Arc<UnitPrices>>,
}

/// The number of groups at each price.
#[derive(Debug, Default)]
struct Tally(BTreeMap<Price, usize>);

impl CheapestUnits {
    /// The number of groups that have a price.
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
