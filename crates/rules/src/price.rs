//! The price of a Node of a group, with its source and the prices it overrode, and the prices of its resources one by
//! one. The annotation of the group overrides the operator's price list. This module must never invent a price.

use std::{collections::BTreeMap, fmt, str::FromStr};

use arcstr::ArcStr;
use kube_core::{Selector, SelectorExt as _};
use thiserror::Error;

use crate::{
    NodeTemplate, Problem, ProblemKind, Quantity, RealNodes, Requests, Source, Sourced, Stated, capacity,
    capi::{PRICE_PER_HOUR, ScalableResource},
    observed::ObservedLabels,
    resource_list::{CPU, Capacity, MEMORY},
};

/// An amount of money per hour, in the one currency of all prices: from 0 to [`Price::LARGEST`].
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Price(f64);

/// The reason why a text or number is no price.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
pub enum PriceError {
    /// The text isn't a plain decimal number.
    #[error("a price is a plain decimal number such as 0.096, without a sign, a unit and an exponent")]
    NotPlain,
    /// The number is negative.
    #[error("a price must not be negative")]
    Negative,
    /// The number is infinite or NaN.
    #[error("a price must be a finite number")]
    NotFinite,
    /// The number exceeds [`Price::LARGEST`].
    #[error("a price must not be more than {} per hour", Price::LARGEST)]
    TooLarge,
}

impl Price {
    /// More than any Node costs per hour, and small enough that no time span makes it infinite.
    pub const LARGEST: f64 = 1e9;

    /// Returns the amount per hour.
    pub fn per_hour(self) -> f64 {
        self.0
    }

    /// Returns true if the price is 0.
    pub fn is_free(self) -> bool {
        self.0 <= 0.0
    }

    /// Returns the price nearest to a number that was computed from prices.
    fn nearest(per_hour: f64) -> Self {
        Self(if per_hour.is_nan() { 0.0 } else { per_hour.clamp(0.0, Self::LARGEST) })
    }
}

impl TryFrom<f64> for Price {
    type Error = PriceError;

    fn try_from(per_hour: f64) -> Result<Self, PriceError> {
        match per_hour {
            _ if !per_hour.is_finite() => Err(PriceError::NotFinite),
            _ if per_hour < 0.0 => Err(PriceError::Negative),
            _ if per_hour > Self::LARGEST => Err(PriceError::TooLarge),
            // This turns -0 into 0.
            _ => Ok(Self(per_hour + 0.0)),
        }
    }
}

impl FromStr for Price {
    type Err = PriceError;

    fn from_str(text: &str) -> Result<Self, PriceError> {
        if text.strip_prefix('-').is_some_and(is_plain) {
            return Err(PriceError::Negative);
        }
        if !is_plain(text) {
            return Err(PriceError::NotPlain);
        }
        let per_hour: f64 = text.parse().map_err(|_| PriceError::NotPlain)?;
        // A text of very many digits is parsed as infinite.
        if per_hour.is_infinite() { Err(PriceError::TooLarge) } else { per_hour.try_into() }
    }
}

/// Returns true for digits, and optionally a point and more digits.
fn is_plain(text: &str) -> bool {
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    text.split_once('.').map_or_else(|| digits(text), |(whole, fraction)| digits(whole) && digits(fraction))
}

impl Eq for Price {}

impl Ord for Price {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.0.total_cmp(&other.0)
    }
}

impl PartialOrd for Price {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl fmt::Display for Price {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// An entry of the price file.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum PriceEntry {
    /// A label selector.
    Selector(ArcStr),
    /// An instance type.
    InstanceType(ArcStr),
    /// The resource prices.
    Resources,
}

/// Writes the entry for people.
impl fmt::Display for PriceEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Selector(selector) => write!(f, "selector {selector}"),
            Self::InstanceType(instance_type) => write!(f, "instance type {instance_type}"),
            Self::Resources => f.write_str("resources"),
        }
    }
}

/// The price of a Node of a group.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct GroupPrice {
    /// The price in effect, and those it overrode.
    pub price: Sourced<Price>,
    /// The prices of the Node's resources one by one; `None` while the Node's capacity is unknown.
    pub units: Option<UnitPrices>,
}

/// Returns the price of a Node of the group, and the problems of the annotation. Without a template, only the labels
/// of its real Nodes are known.
pub fn of_group(
    group: &ScalableResource,
    template: Option<&NodeTemplate>,
    nodes: RealNodes<'_>,
    list: &PriceList,
) -> (Option<GroupPrice>, Vec<Problem>) {
    let (annotated, problems) = annotated(group);
    let of_list = if list.is_empty() {
        Vec::new()
    } else {
        let capacity = template.map(|template| &template.capacity);
        list.offers(&labels_of(template, nodes), capacity)
    };
    let source = Source::Annotation(arcstr::literal!(PRICE_PER_HOUR));
    let annotated = annotated.map(|price| (Stated { value: price, source }, None));
    let mut offers = annotated.into_iter().chain(of_list);
    let price = offers.next().map(|(offer, rates)| {
        let units = template.and_then(|template| match rates {
            Some(rates) => Some(UnitPrices::of_rates(rates, &template.capacity)),
            None => UnitPrices::split(offer.value, &template.capacity, list.resources),
        });
        let Stated { value, source } = offer;
        let price = Sourced { value, source, overrode: offers.map(|(offer, _)| offer).collect() };
        GroupPrice { price, units }
    });
    (price, problems)
}

fn annotated(group: &ScalableResource) -> (Option<Price>, Vec<Problem>) {
    let Some(text) = group.annotations.get(PRICE_PER_HOUR) else { return (None, Vec::new()) };
    match text.trim() {
        "" => (None, Vec::new()),
        trimmed => match trimmed.parse() {
            Ok(price) => (Some(price), Vec::new()),
            Err(error) => {
                let rule = format!("{error}; it is ignored, and the price file is asked");
                (None, vec![Problem::annotation(ProblemKind::Price, PRICE_PER_HOUR, text, &rule)])
            }
        },
    }
}

fn labels_of(template: Option<&NodeTemplate>, nodes: RealNodes<'_>) -> BTreeMap<String, String> {
    let learned = nodes.of_sibling.into_iter().chain(nodes.observed).flat_map(ObservedLabels::agreed);
    let of_template = template.into_iter().flat_map(|template| &template.labels);
    learned
        .map(|(key, value, _)| (key.to_owned(), value.to_string()))
        .chain(of_template.map(|(key, label)| (key.clone(), label.value.clone())))
        .collect()
}

// The operator's prices: by label selector, by instance type, by resources, in this order. These are pure values;
// reading and following the file isn't done here.

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
type Offer = (Stated<Price>, Option<Rates>);

impl PriceList {
    /// Returns true if the list has no price.
    pub fn is_empty(&self) -> bool {
        self.selectors.is_empty() && self.instance_types.is_empty() && self.resources.is_none()
    }

    /// Returns the price of a Node of which only the labels are known.
    pub fn of_labels(&self, labels: &BTreeMap<String, String>) -> Option<Price> {
        self.offers(labels, None).first().map(|(offer, _)| offer.value)
    }

    /// Returns the offers for a Node with these labels and this capacity, the strongest first.
    fn offers(&self, labels: &BTreeMap<String, String>, capacity: Option<&Capacity>) -> Vec<Offer> {
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
    /// The weights by which the parts of a Node share its price if no rates apply.
    const USUAL: Self = Self { cpu: Price(1.0), memory: Price(1.0 / GIB_PER_CORE), gpu: Some(Price(CORES_PER_GPU)) };

    /// Returns the price of a Node with this capacity; `None` if it has a GPU and there is no rate for one.
    fn price(&self, capacity: &Capacity) -> Option<Price> {
        let has_gpu = capacity::gpus(capacity).next().is_some();
        (self.gpu.is_some() || !has_gpu).then(|| Price::nearest(self.sum(capacity)))
    }

    /// Returns the sum over a Node's resources, in which GPUs without a rate count nothing.
    fn sum(&self, capacity: &Capacity) -> f64 {
        let amount = |resource| capacity.get(resource).map_or(Quantity::ZERO, |quantity| quantity.value).to_f64();
        let gpus: f64 = capacity::gpus(capacity).map(|(_, count)| count.to_f64()).sum();
        amount(CPU) * self.cpu.per_hour()
            + gibibytes(amount(MEMORY)) * self.memory.per_hour()
            + gpus * self.gpu.unwrap_or_default().per_hour()
    }
}

/// Converts bytes to GiB.
fn gibibytes(bytes: f64) -> f64 {
    bytes / GIB
}

// The prices of a core, a GiB of memory and a GPU, derived from the price of a Node. The price of a whole Node is
// split by weights, so that pods which share a Node can be priced too.

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

impl UnitPrices {
    /// Returns the unit prices of a Node with this capacity that was priced by `rates`.
    fn of_rates(rates: Rates, capacity: &Capacity) -> Self {
        let gpu = rates.gpu.unwrap_or_default();
        let gpus = capacity::gpus(capacity).map(|(resource, _)| (resource.to_owned(), gpu)).collect();
        Self { cpu: rates.cpu, memory: rates.memory, gpus }
    }

    /// Splits the price of a Node with this capacity in the ratio of `rates`, or of the usual weights if the rates
    /// don't apply. Returns `None` if the Node has no cores, memory or GPUs.
    fn split(price: Price, capacity: &Capacity, rates: Option<Rates>) -> Option<Self> {
        let with_gpu = |rates: Rates| {
            let gpu = rates.gpu.unwrap_or(Price(rates.cpu.per_hour() * CORES_PER_GPU));
            Rates { gpu: Some(gpu), ..rates }
        };
        let weights = rates.map(with_gpu).filter(|rates| rates.sum(capacity) > 0.0).unwrap_or(Rates::USUAL);
        let total = weights.sum(capacity);
        if total <= 0.0 {
            return None;
        }
        let share = |weight: Price| Price::nearest(price.per_hour() * (weight.per_hour() / total));
        let shares = Rates { cpu: share(weights.cpu), memory: share(weights.memory), gpu: weights.gpu.map(share) };
        Some(Self::of_rates(shares, capacity))
    }

    /// Returns the price of these requests per hour. Resources without a price are free.
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

#[cfg(test)]
mod tests;
