//! The price of a Node of a group, with its source and the prices it overrode, and the prices of its resources one by
//! one. The annotation of the group overrides the operator's price list. This module must never invent a price.

use arcstr::ArcStr;
use std::{collections::BTreeMap, fmt, str::FromStr};

use crate::capi::{PRICE_PER_HOUR, ScalableResource};
use thiserror::Error;

use super::{NodeTemplate, Problem, ProblemKind, RealNodes, Source, Sourced, Stated, observed::ObservedLabels};

mod list;
mod units;

pub use self::{
    list::{PriceList, PriceRule, Rates, Tariff},
    units::UnitPrices,
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
    #[must_use]
    pub fn per_hour(self) -> f64 {
        self.0
    }

    /// Returns true if the price is 0.
    #[must_use]
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
#[must_use]
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
            None => UnitPrices::split(offer.value, &template.capacity, list.resources.as_ref()),
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

#[cfg(test)]
mod tests;
