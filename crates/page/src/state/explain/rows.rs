//! The report in lines for people: a name, a value, its source and the values that it overrode. The terminal and the
//! status page show these same lines. All texts come from clusters or manifests, so this module must escape control
//! characters; a page escapes markup as well.

use std::fmt::Write as _;

use jiff::{SignedDuration, Timestamp};
use rules::capi::CAPACITY_PREFIX;
use rules::resource_list::{CPU, EPHEMERAL_STORAGE, MEMORY, PODS};
use rules::{Driver, DriverKind, NodeTemplate, Quantity, Source, Sourced, Stated};

use super::GroupReport;
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

/// A line: a name, a value and its source.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Row {
    /// The name of the value.
    pub name: String,
    /// The value.
    pub value: String,
    /// The source of the value; may be empty.
    pub from: String,
}

impl Row {
    fn new(name: &str, value: impl Into<String>, from: impl Into<String>) -> Self {
        Self { name: name.to_owned(), value: value.into(), from: from.into() }
    }
}

/// Returns all lines of a group, without its problems and notes.
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

/// Formats the source of a resource: the source of its capacity, and the source of its overhead.
fn resource_from(key: &str, capacity: &Sourced<Quantity>, overhead: Option<&Sourced<Quantity>>) -> String {
    let show = |amount: &str| shown(key, amount);
    let overhead = overhead.filter(|overhead| overhead.value != Quantity::ZERO);
    let Some(overhead) = overhead else { return from(capacity, show) };
    let mut text = with_value(&capacity.value, &capacity.source, show);
    let by = if matches!(overhead.source, Source::Learned(_) | Source::Remembered(_)) { "" } else { "by " };
    let (amount, source) = (show(&overhead.value.to_string()), source(&overhead.source));
    let _ = write!(text, " − overhead {amount} {by}{source}");
    text + &over(&capacity.overrode, show) + &over(&overhead.overrode, show)
}

/// Formats the source of a value and the values that it overrode.
fn from<T: ToString>(value: &Sourced<T>, show: impl Fn(&str) -> String) -> String {
    source(&value.source) + &over(&value.overrode, show)
}

fn source(source: &Source) -> String {
    let text = short(&source.to_string());
    if let Source::Remembered(seen) = source {
        return format!("{text} ({} ago)", age(Timestamp::now().duration_since(seen.at)));
    }
    text
}

/// Formats an age in its largest unit.
fn age(age: SignedDuration) -> String {
    let seconds = age.as_secs().max(0);
    let units = [(24 * 3600, "d"), (3600, "h"), (60, "m")];
    let found = units.into_iter().find(|(unit, _)| seconds >= *unit);
    found.map_or_else(|| format!("{seconds}s"), |(unit, name)| format!("{}{name}", seconds / unit))
}

/// Formats the values that were overridden. Defaults are omitted, since they say nothing new.
fn over<T: ToString>(overrode: &[Stated<T>], show: impl Fn(&str) -> String) -> String {
    let stated = overrode.iter().filter(|stated| stated.source != Source::Default);
    let stated: Vec<_> = stated.map(|stated| with_value(&stated.value, &stated.source, &show)).collect();
    if stated.is_empty() { String::new() } else { format!(" (over {})", stated.join(", ")) }
}

fn with_value(value: &impl ToString, source: &Source, show: impl Fn(&str) -> String) -> String {
    let (from, value) = (self::source(source), show(&value.to_string()));
    match (source, from.split_once(" of ")) {
        (Source::Learned(_) | Source::Remembered(_), _) => format!("{value} {from}"),
        (Source::StatusCapacity(_) | Source::NodeInfo(..), Some((field, template))) => {
            format!("{field} {value} of {template}")
        }
        _ => format!("{from} {value}"),
    }
}

/// Escapes the control characters of a cluster's text, since a terminal would interpret them.
pub fn plain(text: &str) -> String {
    visible(text).into_owned()
}

/// Formats the amount of a resource for people.
pub fn shown(resource: &str, amount: &str) -> String {
    match resource {
        CPU => cores(amount),
        MEMORY | EPHEMERAL_STORAGE => bytes(amount),
        resource if resource.starts_with("hugepages-") => bytes(amount),
        _ => plain(amount),
    }
}

/// Shortens the long keys in a text.
pub fn short(text: &str) -> String {
    plain(&text.replace(CAPACITY_PREFIX, SHORT_PREFIX))
}

const BINARY_UNITS: [&str; 7] = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];

/// Formats bytes in the largest binary unit that leaves at least 1, to one decimal. A text that isn't a quantity stays
/// as it is.
pub fn bytes(quantity: &str) -> String {
    let Ok(parsed) = quantity.parse::<Quantity>() else { return plain(quantity) };
    let mut tenths = i128::from(parsed.value()) * 10;
    let mut unit = 0;
    while tenths.abs() >= 10_240 && unit + 1 < BINARY_UNITS.len() {
        tenths = divide_to_nearest(tenths, 1024);
        unit += 1;
    }
    decimal(tenths, 1) + BINARY_UNITS[unit]
}

/// Formats cores with up to three decimals. A text that isn't a quantity stays as it is.
pub fn cores(quantity: &str) -> String {
    let parsed = quantity.parse::<Quantity>();
    parsed.map_or_else(|_| plain(quantity), |parsed| decimal(i128::from(parsed.milli_value()), 3))
}

fn divide_to_nearest(value: i128, by: i128) -> i128 {
    (value + value.signum() * by / 2) / by
}

/// Formats a number of `10^-places`, without trailing zeros.
fn decimal(value: i128, places: u32) -> String {
    let unit = 10_i128.pow(places);
    let (whole, rest) = (value / unit, (value % unit).abs());
    if rest == 0 {
        return whole.to_string();
    }
    let rest = format!("{rest:0width$}", width = places as usize);
    let sign = if value < 0 && whole == 0 { "-" } else { "" };
    format!("{sign}{whole}.{}", rest.trim_end_matches('0'))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("16Gi", "16Gi")]
    #[case("32780828Ki", "31.3Gi")]
    #[case("1023", "1023")]
    #[case("1024", "1Ki")]
    #[case("16G", "14.9Gi")]
    #[case("2Ti", "2Ti")]
    #[case("0", "0")]
    #[case("9223372036854775807", "8Ei")]
    #[case("much\u{1b}[31m", "much\\u{1b}[31m")]
    fn memory_is_shown_in_binary_units(#[case] quantity: &str, #[case] shown: &str) {
        assert_eq!(bytes(quantity), shown);
    }

    #[rstest]
    #[case("8", "8")]
    #[case("3900m", "3.9")]
    #[case("1k", "1000")]
    #[case("250m", "0.25")]
    #[case("1n", "0.001")]
    fn cpu_is_shown_in_cores(#[case] quantity: &str, #[case] shown: &str) {
        assert_eq!(cores(quantity), shown);
    }
}
