//! The operator's prices: by label selector, by instance type, by resources, in this order. These are pure values;
//! reading and following the file isn't done here.

use std::collections::BTreeMap;

use arcstr::ArcStr;
use kube_core::{Selector, SelectorExt as _};

use super::{Price, PriceEntry};
use crate::{
    Quantity, Source, Stated, capacity,
    resource_list::{CPU, Capacity, MEMORY},
};

const INSTANCE_TYPE: &str = "node.kubernetes.io/instance-type";
const OLD_INSTANCE_TYPE: &str = "beta.kubernetes.io/instance-type";

/// The number of bytes in a GiB.
const GIB: f64 = 1_073_741_824.0;

/// The operator's prices.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PriceList {
    /// The prices by label selector; the first that matches counts.
    pub selectors: Vec<PriceRule>,
    /// The prices by the instance type in a Node's labels.
    pub instance_types: BTreeMap<ArcStr, Price>,
    /// The prices by a Node's resources.
    pub resources: Option<Rates>,
}

/// A price for the Nodes that a label selector matches.
#[derive(Clone, Debug, PartialEq)]
pub struct PriceRule {
    /// The text of the selector.
    pub text: ArcStr,
    /// The selector.
    pub selector: Selector,
    /// The price of these Nodes.
    pub tariff: Tariff,
}

/// The price of a Node.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Tariff {
    /// One price for the whole Node.
    Whole(Price),
    /// The sum of the prices of its resources.
    Resources(Rates),
}

/// Prices of resources.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rates {
    /// The price of a core.
    pub cpu: Price,
    /// The price of a GiB of memory.
    pub memory: Price,
    /// The price of a GPU; if it is missing, a Node with a GPU has no price by resources.
    pub gpu: Option<Price>,
}

/// A price, with the rates if it was computed from resources.
pub(super) type Offer = (Stated<Price>, Option<Rates>);

impl PriceList {
    /// Returns true if the list has no price.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.selectors.is_empty() && self.instance_types.is_empty() && self.resources.is_none()
    }

    /// Returns the price of a Node of which only the labels are known.
    #[must_use]
    pub fn of_labels(&self, labels: &BTreeMap<String, String>) -> Option<Price> {
        self.offers(labels, None).first().map(|(offer, _)| offer.value)
    }

    /// Returns the offers for a Node with these labels and this capacity, the strongest first.
    pub(super) fn offers(&self, labels: &BTreeMap<String, String>, capacity: Option<&Capacity>) -> Vec<Offer> {
        let stated = |value, entry| Stated { value, source: Source::PriceFile(entry) };
        let by_resources = |rates: Rates, entry| {
            let price = rates.price(capacity?)?;
            Some((stated(price, entry), Some(rates)))
        };
        let selected = self.selectors.iter().find(|rule| rule.selector.matches(labels)).and_then(|rule| {
            let entry = PriceEntry::Selector(rule.text.clone());
            match rule.tariff {
                Tariff::Whole(price) => Some((stated(price, entry), None)),
                Tariff::Resources(rates) => by_resources(rates, entry),
            }
        });
        let instance_type = [INSTANCE_TYPE, OLD_INSTANCE_TYPE].iter().find_map(|key| labels.get(*key));
        let typed = instance_type.and_then(|instance_type| self.instance_types.get_key_value(instance_type.as_str()));
        let typed =
            typed.map(|(instance_type, price)| (stated(*price, PriceEntry::InstanceType(instance_type.clone())), None));
        let resources = self.resources.and_then(|rates| by_resources(rates, PriceEntry::Resources));
        [selected, typed, resources].into_iter().flatten().collect()
    }
}

impl Rates {
    /// Returns the price of a Node with this capacity; `None` if it has a GPU and there is no rate for one.
    fn price(&self, capacity: &Capacity) -> Option<Price> {
        let (cores, gibibytes) = cores_and_gibibytes(capacity);
        let gpus: f64 = capacity::gpus(capacity).map(|(_, count)| count.to_f64()).sum();
        let gpu = match self.gpu {
            Some(gpu) => gpu.per_hour(),
            None if gpus > 0.0 => return None,
            None => 0.0,
        };
        let sum = cores * self.cpu.per_hour() + gibibytes * self.memory.per_hour() + gpus * gpu;
        Some(Price::nearest(sum))
    }
}

/// Returns the cores and the memory in GiB of a Node.
pub(super) fn cores_and_gibibytes(capacity: &Capacity) -> (f64, f64) {
    let amount = |resource| capacity.get(resource).map_or(Quantity::ZERO, |quantity| quantity.value).to_f64();
    (amount(CPU), gibibytes(amount(MEMORY)))
}

/// Converts bytes to GiB.
pub(super) fn gibibytes(bytes: f64) -> f64 {
    bytes / GIB
}
