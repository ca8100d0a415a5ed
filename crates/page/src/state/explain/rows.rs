//! The report in lines for people: a name, a value, its source and the values that it overrode. The terminal and the
//! status page show these same lines. All texts come from clusters or manifests, so this module must escape control
//! characters; a page escapes markup as well.

use std::fmt::Write as _;

use rules::capi::CAPACITY_PREFIX;
use rules::resource_list::{CPU, EPHEMERAL_STORAGE, MEMORY, PODS};
use rules::{Driver, DriverKind, NodeTemplate, Quantity, Source, Sourced, Stated};

use super::{
    amount::{bytes, cores},
    report::{FitReport, GroupReport},
};
use rules::text::visible;

/// The short form of the long prefix that many annotation keys share.
const SHORT_PREFIX: &str = "capacity…/";
/// The labels that have a short name.
const LABELS: [(&str, &str); 5] = [
    ("kubernetes.io/arch", "arch"),
    ("kubernetes.io/os", "os"),
    ("topology.kubernetes.io/zone", "zone"),
    ("topology.kubernetes.io/region", "region"),
    ("node.kubernetes.io/instance-type", "type"),
];
/// The resources that every Node has, in the order of their lines.
const RESOURCES: [(&str, &str); 4] = [(CPU, "cpu"), (MEMORY, "memory"), (EPHEMERAL_STORAGE, "disk"), (PODS, "pods")];

/// The assessment of a value.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Tone {
    /// A value like any other.
    Plain,
    /// A good value.
    Good,
    /// A value that isn't known, or a "no" that isn't a fault.
    Odd,
    /// A wrong value.
    Bad,
}

/// A line: a name, a value and its source.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Row {
    /// The name of the value.
    pub name: String,
    /// The value.
    pub value: String,
    /// The assessment of the value.
    pub tone: Tone,
    /// The source of the value; may be empty.
    pub from: String,
}

impl Row {
    fn new(name: &str, value: impl Into<String>, from: impl Into<String>) -> Self {
        Self { name: name.to_owned(), value: value.into(), tone: Tone::Plain, from: from.into() }
    }
}

/// Returns all lines of a group, without its problems and notes.
#[must_use]
pub fn rows(group: &GroupReport) -> Vec<Row> {
    let mut rows = Vec::new();
    if let Some(template) = &group.template {
        rows.extend(template_rows(template));
    }
    let options = group.options.iter().map(|(name, it)| (format!("{name}={}", it.value), it));
    rows.extend(listed("options", options));
    let price = group.price_per_hour.iter();
    rows.extend(price.map(|it| Row::new("price", format!("{}/h", it.value), from(it, plain))));
    rows.extend(group.drivers.iter().map(driver));
    rows.extend(group.fits.iter().flat_map(fit));
    rows
}

fn template_rows(template: &NodeTemplate) -> impl Iterator<Item = Row> {
    let known = RESOURCES.iter().filter_map(|(key, name)| Some((*name, *key, template.capacity.get(*key)?)));
    let others = template.capacity.iter().filter(|(key, _)| RESOURCES.iter().all(|(known, _)| known != key));
    let resources = known.chain(others.map(|(key, resource)| (key.as_str(), key.as_str(), resource)));
    let resources = resources.map(|(name, key, capacity)| {
        let allocatable = template.allocatable(key).unwrap_or(capacity.value);
        let from = resource_from(key, capacity, template.overhead.get(key));
        Row::new(&plain(name), shown(key, &allocatable.to_string()), from)
    });
    let known = LABELS.iter().filter_map(|(key, name)| Some((*name, template.labels.get(*key)?)));
    let known = known.map(|(name, label)| Row::new(name, plain(&label.value), from(label, plain)));
    let others = template.labels.iter().filter(|(key, _)| LABELS.iter().all(|(known, _)| known != key));
    let others = listed("labels", others.map(|(key, label)| (format!("{key}={}", label.value), label)));
    let taints = listed("taints", template.taints.iter().map(|taint| (taint.value.to_string(), taint)));
    let features = template.declared_features.iter().map(|feature| (feature.value.clone(), feature));
    resources.chain(known).chain(others).chain(taints).chain(listed("features", features))
}

/// Returns one line per value, all with the same name.
fn listed<'a, T: ToString + 'a>(
    name: &'static str,
    values: impl Iterator<Item = (String, &'a Sourced<T>)>,
) -> impl Iterator<Item = Row> {
    values.map(move |(value, it)| Row::new(name, plain(&value), from(it, plain)))
}

fn driver(driver: &Driver) -> Row {
    let (name, what) = match driver.kind {
        DriverKind::Dra => ("dra-driver", "devices"),
        DriverKind::Csi => ("csi-driver", "volumes"),
    };
    Row::new(name, format!("{} {what} of {}", driver.count, plain(&driver.name)), source(&driver.source))
}

fn fit(fit: &FitReport) -> Vec<Row> {
    let (value, tone) = match fit.fits {
        Some(true) => ("fits", Tone::Good),
        Some(false) => ("doesn't fit", Tone::Bad),
        None => ("not known", Tone::Odd),
    };
    let row = Row { tone, ..Row::new("pod", value, plain(&fit.pod)) };
    let missing = fit.missing.iter().map(|missing| Row::new(&row.name, format!("- {}", plain(missing)), ""));
    let missing: Vec<_> = missing.collect();
    std::iter::once(row).chain(missing).collect()
}

/// Formats the source of a resource: the source of its capacity, and the source of its overhead.
fn resource_from(key: &str, capacity: &Sourced<Quantity>, overhead: Option<&Sourced<Quantity>>) -> String {
    let show = |amount: &str| shown(key, amount);
    let overhead = overhead.filter(|overhead| overhead.value != Quantity::ZERO);
    let Some(overhead) = overhead else { return from(capacity, show) };
    let mut text = with_value(&capacity.value, &capacity.source, show);
    let by = if matches!(overhead.source, Source::Learned(_)) { "" } else { "by " };
    let (amount, source) = (show(&overhead.value.to_string()), source(&overhead.source));
    let _ = write!(text, " − overhead {amount} {by}{source}");
    text + &over(&capacity.overrode, show) + &over(&overhead.overrode, show)
}

/// Formats the source of a value and the values that it overrode.
fn from<T: ToString>(value: &Sourced<T>, show: impl Fn(&str) -> String) -> String {
    source(&value.source) + &over(&value.overrode, show)
}

fn source(source: &Source) -> String {
    short(&source.to_string())
}

/// Formats the values that were overridden. Defaults are omitted, since they say nothing new.
fn over<T: ToString>(overrode: &[Stated<T>], show: impl Fn(&str) -> String) -> String {
    let stated = overrode.iter().filter(|stated| stated.source != Source::Default);
    let stated: Vec<_> = stated.map(|stated| with_value(&stated.value, &stated.source, &show)).collect();
    if stated.is_empty() { String::new() } else { format!(" (over {})", stated.join(", ")) }
}

/// Formats a source together with its value.
fn with_value(value: &impl ToString, source: &Source, show: impl Fn(&str) -> String) -> String {
    let (from, value) = (self::source(source), show(&value.to_string()));
    match (source, from.split_once(" of ")) {
        (Source::Learned(_), _) => format!("{value} {from}"),
        (Source::StatusCapacity(_) | Source::NodeInfo(..), Some((field, template))) => {
            format!("{field} {value} of {template}")
        }
        _ => format!("{from} {value}"),
    }
}

/// Escapes the control characters of a cluster's text, since a terminal would interpret them.
#[must_use]
pub fn plain(text: &str) -> String {
    visible(text).into_owned()
}

/// Formats the amount of a resource for people.
#[must_use]
pub fn shown(resource: &str, amount: &str) -> String {
    match resource {
        CPU => cores(amount),
        MEMORY | EPHEMERAL_STORAGE => bytes(amount),
        resource if resource.starts_with("hugepages-") => bytes(amount),
        _ => plain(amount),
    }
}

/// Shortens the long keys in a text.
#[must_use]
pub fn short(text: &str) -> String {
    plain(&text.replace(CAPACITY_PREFIX, SHORT_PREFIX))
}
