//! The report for people: a block per object, its values in columns, each with where it comes from and what it overrode.
//! All texts come from clusters or manifests, so each is made plain before it is shown.

use std::fmt::Write as _;

use anstyle::{AnsiColor, Style};

use super::report::{
    DriverReport, FitReport, GroupReport, LeftOutReport, PodReport, Report, Resource, Stated, TemplateReport, Value,
};
use crate::{
    capi::CAPACITY_PREFIX,
    cli::groups::amount::{bytes, cores},
    nodegroup::capacity::{CPU, EPHEMERAL_STORAGE, MEMORY, PODS},
    state::ProblemState,
    text::visible,
};

/// The annotation keys that are long and everywhere.
const SHORT_PREFIX: &str = "capacity…/";
/// Where values and sources begin, at the least.
const NAME_WIDTH: usize = 12;
const VALUE_WIDTH: usize = 12;
/// A longer name or value moves its own line only.
const WIDEST_NAME: usize = 20;
const WIDEST_VALUE: usize = 18;

/// Labels that have a short name.
const LABELS: [(&str, &str); 5] = [
    ("kubernetes.io/arch", "arch"),
    ("kubernetes.io/os", "os"),
    ("topology.kubernetes.io/zone", "zone"),
    ("topology.kubernetes.io/region", "region"),
    ("node.kubernetes.io/instance-type", "type"),
];
/// The resources that every Node has, in this order.
const RESOURCES: [(&str, &str); 4] = [(CPU, "cpu"), (MEMORY, "memory"), (EPHEMERAL_STORAGE, "disk"), (PODS, "pods")];

const DIM: Style = AnsiColor::BrightBlack.on_default();
const GOOD: Style = AnsiColor::Green.on_default();
const BAD: Style = AnsiColor::Red.on_default();
const ODD: Style = AnsiColor::Yellow.on_default();

/// The report as text, which ends with a newline.
pub(super) fn text(report: &Report, coloured: bool) -> String {
    let paint = Paint { coloured };
    let mut blocks: Vec<_> = report.groups.iter().map(|group| paint.group(group)).collect();
    blocks.extend(report.left_out.iter().map(|object| paint.left_out(object)));
    if blocks.is_empty() {
        blocks.push("no node groups: --all shows what is left out on purpose\n".to_owned());
    }
    blocks.extend(report.pods.iter().map(|pod| paint.pod(pod)));
    blocks.join("\n")
}

/// A line: a name, a value and where it comes from.
struct Row {
    name: String,
    value: String,
    /// How the value is painted, where it is.
    style: Option<Style>,
    from: String,
}

impl Row {
    fn new(name: &str, value: impl Into<String>, from: impl Into<String>) -> Self {
        Self { name: name.to_owned(), value: value.into(), style: None, from: from.into() }
    }
}

struct Paint {
    coloured: bool,
}

impl Paint {
    fn with(&self, style: Style, text: &str) -> String {
        if self.coloured && !text.is_empty() { format!("{style}{text}{style:#}") } else { text.to_owned() }
    }

    fn group(&self, group: &GroupReport) -> String {
        let bold = Style::new().bold();
        let zero = match &group.not_from_zero {
            None => format!("scales from zero: {}", self.with(GOOD, "yes")),
            Some(_) => format!("scales from zero: {}", self.with(ODD, "no")),
        };
        let mut text = format!(
            "{}   {} of {}..{}   {zero}",
            self.with(bold, &plain(&group.id)),
            group.size,
            group.min_size,
            group.max_size
        );
        text.push_str(if group.rolling_out { "   rolling out\n" } else { "\n" });
        let mut rows = Vec::new();
        if let Some(template) = &group.template {
            rows.extend(template_rows(template));
        }
        rows.extend(listed(
            "options",
            group.options.iter().map(|(name, it)| (format!("{name}={}", it.stated.value), it)),
        ));
        rows.extend(
            group.price_per_hour.iter().map(|it| Row::new("price", format!("{}/h", it.stated.value), from(it, &plain))),
        );
        rows.extend(group.drivers.iter().map(driver));
        rows.extend(group.fits.iter().flat_map(fit));
        self.lines(&mut text, &rows, &group.problems, group.not_from_zero.iter().chain(&group.notes));
        text
    }

    fn left_out(&self, object: &LeftOutReport) -> String {
        let bold = Style::new().bold();
        let style = if object.invalid { BAD } else { ODD };
        let mut text = format!(
            "{}   {}: {}\n",
            self.with(bold, &plain(&object.id)),
            self.with(style, "left out"),
            short(&object.message)
        );
        self.lines(&mut text, &[], &object.problems, object.notes.iter());
        text
    }

    fn pod(&self, pod: &PodReport) -> String {
        let requests: Vec<_> =
            pod.requests.iter().map(|(name, amount)| format!("{}={}", plain(name), shown(name, amount))).collect();
        let asks = if requests.is_empty() { "nothing".to_owned() } else { requests.join(", ") };
        let beyond = pod.not_looked_at.join(", ");
        format!(
            "{} asks for {asks}\n{}\n",
            self.with(Style::new().bold(), &plain(&pod.pod)),
            self.with(DIM, &format!("  not looked at: {beyond}"))
        )
    }

    /// The lines of a block below its head: values, what is wrong, and what is no fault.
    fn lines<'a>(
        &self,
        text: &mut String,
        rows: &[Row],
        problems: &[ProblemState],
        notes: impl Iterator<Item = &'a String>,
    ) {
        let of_values = rows.iter().filter(|row| !row.from.is_empty()).map(|row| row.value.as_str());
        let values = column(VALUE_WIDTH, WIDEST_VALUE, of_values);
        let problems: Vec<_> =
            problems.iter().map(|it| (format!("! {}", plain(&it.kind)), short(&it.message))).collect();
        let of_names = rows.iter().map(|row| &row.name).chain(problems.iter().map(|(name, _)| name));
        let names = column(NAME_WIDTH, WIDEST_NAME, of_names.map(String::as_str));
        let mut before = "";
        for row in rows {
            let name = if row.name == before { "" } else { &row.name };
            before = &row.name;
            let value = row.style.map_or_else(|| row.value.clone(), |style| self.with(style, &row.value));
            let behind = if row.from.is_empty() { String::new() } else { gap(values, &row.value) };
            let _ = writeln!(text, "  {name}{}{value}{behind}{}", gap(names, name), self.with(DIM, &row.from));
        }
        for (name, message) in &problems {
            let _ = writeln!(text, "  {}{}{message}", self.with(BAD.bold(), name), gap(names, name));
        }
        for note in notes {
            let _ = writeln!(text, "  note{}{}", gap(names, "note"), short(note));
        }
    }
}

/// The width of a column with two spaces behind its texts, of which those that are too long don't count.
fn column<'a>(least: usize, widest: usize, texts: impl Iterator<Item = &'a str>) -> usize {
    let widths = texts.map(|text| text.chars().count() + 2).filter(|width| *width <= widest);
    widths.max().unwrap_or_default().max(least)
}

/// What fills a column up behind a text.
fn gap(width: usize, text: &str) -> String {
    " ".repeat(width.saturating_sub(text.chars().count()).max(2))
}

fn template_rows(template: &TemplateReport) -> impl Iterator<Item = Row> {
    let known = RESOURCES.iter().filter_map(|(key, name)| Some((*name, *key, template.resources.get(*key)?)));
    let others = template.resources.iter().filter(|(key, _)| RESOURCES.iter().all(|(known, _)| known != key));
    let resources = known.chain(others.map(|(key, resource)| (key.as_str(), key.as_str(), resource)));
    let resources = resources.map(|(name, key, resource)| {
        Row::new(&plain(name), shown(key, &resource.allocatable), resource_from(key, resource))
    });
    let known = LABELS.iter().filter_map(|(key, name)| Some((*name, template.labels.get(*key)?)));
    let known = known.map(|(name, label)| Row::new(name, plain(&label.stated.value), from(label, &plain)));
    let others = template.labels.iter().filter(|(key, _)| LABELS.iter().all(|(known, _)| known != key));
    let others = listed("labels", others.map(|(key, label)| (format!("{key}={}", label.stated.value), label)));
    let taints = listed("taints", template.taints.iter().map(|taint| (taint.stated.value.clone(), taint)));
    resources.chain(known).chain(others).chain(taints)
}

/// Values under one name.
fn listed<'a>(name: &'static str, values: impl Iterator<Item = (String, &'a Value)>) -> impl Iterator<Item = Row> {
    values.map(move |(value, it)| Row::new(name, plain(&value), from(it, &plain)))
}

fn driver(driver: &DriverReport) -> Row {
    let what = if driver.kind == "dra" { "devices" } else { "volumes" };
    Row::new(
        &format!("{}-driver", driver.kind),
        format!("{} {what} of {}", driver.count, plain(&driver.driver)),
        short(&driver.from),
    )
}

fn fit(fit: &FitReport) -> Vec<Row> {
    let (value, style) = match fit.fits {
        Some(true) => ("fits", GOOD),
        Some(false) => ("doesn't fit", BAD),
        None => ("not known", ODD),
    };
    let row = Row { style: Some(style), ..Row::new("pod", value, plain(&fit.pod)) };
    let missing = fit.missing.iter().map(|missing| Row::new(&row.name, format!("- {}", plain(missing)), ""));
    let missing: Vec<_> = missing.collect();
    std::iter::once(row).chain(missing).collect()
}

/// Where a resource comes from: its capacity, and what pods don't get of it.
fn resource_from(key: &str, resource: &Resource) -> String {
    let show = |amount: &str| shown(key, amount);
    let overhead = resource.overhead.as_ref().filter(|overhead| overhead.stated.value != "0");
    let Some(overhead) = overhead else { return from(&resource.capacity, &show) };
    let capacity = &resource.capacity;
    let mut text = with_value(&capacity.stated, &show);
    let of_overhead = match overhead.stated.source.as_str() {
        "learned" => source(&overhead.stated),
        _ => format!("by {}", source(&overhead.stated)),
    };
    let _ = write!(text, " − overhead {} {of_overhead}", show(&overhead.stated.value));
    text + &over(&capacity.overrode, &show) + &over(&overhead.overrode, &show)
}

/// Where a value comes from and what it overrode.
fn from(value: &Value, show: &dyn Fn(&str) -> String) -> String {
    source(&value.stated) + &over(&value.overrode, show)
}

fn source(stated: &Stated) -> String {
    short(&stated.from)
}

/// What was overridden; that nothing says it is no news.
fn over(overrode: &[Stated], show: &dyn Fn(&str) -> String) -> String {
    let stated = overrode.iter().filter(|stated| stated.source != "default");
    let stated: Vec<_> = stated.map(|stated| with_value(stated, show)).collect();
    if stated.is_empty() { String::new() } else { format!(" (over {})", stated.join(", ")) }
}

/// A source with what it states, as people would say it.
fn with_value(stated: &Stated, show: &dyn Fn(&str) -> String) -> String {
    let (from, value) = (source(stated), show(&stated.value));
    match stated.source.as_str() {
        "learned" => format!("{value} {from}"),
        "status.capacity" | "status.nodeInfo" => match from.split_once(" of ") {
            Some((field, template)) => format!("{field} {value} of {template}"),
            None => format!("{from} {value}"),
        },
        _ => format!("{from} {value}"),
    }
}

/// A cluster's text with what a terminal would obey made visible.
fn plain(text: &str) -> String {
    visible(text).into_owned()
}

/// An amount as people read it.
fn shown(resource: &str, amount: &str) -> String {
    match resource {
        CPU => cores(amount),
        MEMORY | EPHEMERAL_STORAGE => bytes(amount),
        resource if resource.starts_with("hugepages-") => bytes(amount),
        _ => plain(amount),
    }
}

/// A sentence with the long keys shortened.
fn short(text: &str) -> String {
    plain(&text.replace(CAPACITY_PREFIX, SHORT_PREFIX))
}
