//! Metrics of the node groups, computed on each scrape: sums over all of them, which are always present, and series per
//! group. A scrape must never block the writer for long: sums take one short visit to all groups, series copy the index
//! group by group, and all of it is evaluated afterwards.

use std::{collections::BTreeMap, fmt, sync::Arc};

use jiff::Timestamp;
use prometheus_client::{collector::Collector, encoding::DescriptorEncoder};
use rules::{FromZero, InstanceCounts, NodeTemplate, Source};

use super::{
    families::{count, gauge, single},
    remembered::{Memory, PlaceView},
    state::Index,
    view::{Detail, GroupSnapshot, Stats},
};

/// The sources of a template's capacity, as label values.
const SOURCES: [&str; 5] = ["annotation", "learned", "remembered", "status.capacity", "none"];

/// The choice of series for node groups.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum GroupSeries {
    /// Each group has its own series, besides the sums over all groups.
    Each,
    /// Only sums, so that the number of series doesn't grow with the fleet.
    SumsOnly,
}

/// The collector for the node groups of one workload cluster.
#[derive(Debug)]
pub struct GroupMetrics {
    index: Arc<Index>,
    series: GroupSeries,
}

impl GroupMetrics {
    /// Creates the collector of an index.
    pub fn new(index: Arc<Index>, series: GroupSeries) -> Self {
        Self { index, series }
    }
}

impl Collector for GroupMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let (encoder, now) = (&mut encoder, Timestamp::now());
        let values = Values::of(&self.index);
        encode_sums(&values.stats, encoder)?;
        encode_fleet(&values.groups, encoder)?;
        // Families without series are encoded too, so that the set of names doesn't depend on the fleet.
        let values = match self.series {
            GroupSeries::Each => values,
            GroupSeries::SumsOnly => Values::default(),
        };
        encode_series(&values, now, encoder)
    }
}

/// Encodes the series of each node group of several workload clusters, without sums.
///
/// # Errors
/// Those of the encoder.
pub fn encode_groups<'a>(
    indexes: impl IntoIterator<Item = &'a Index>,
    encoder: &mut DescriptorEncoder<'_>,
) -> Result<(), fmt::Error> {
    let mut all = Values::default();
    for index in indexes {
        all.extend_series(Values::of(index));
    }
    encode_series(&all, Timestamp::now(), encoder)
}

/// The collector for what is remembered of Nodes.
#[derive(Debug)]
pub struct MemoryMetrics(Option<Arc<Memory>>);

impl MemoryMetrics {
    /// Creates the collector of a memory, if there is one.
    pub fn new(memory: Option<Arc<Memory>>) -> Self {
        Self(memory)
    }
}

impl Collector for MemoryMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let places = self.0.as_ref().map(|memory| memory.view()).unwrap_or_default();
        let sum = |of: fn(&PlaceView) -> usize| count(places.iter().map(of).sum::<usize>() as u64);
        let encoder = &mut encoder;
        single(encoder, "remembered_nodes", "Entries about Nodes that are remembered", sum(|place| place.entries))?;
        single(
            encoder,
            "remembered_nodes_set_aside",
            "Entries about Nodes that can't be used",
            sum(|place| place.set_aside.len()),
        )
    }
}

fn encode_series(values: &Values, now: Timestamp, encoder: &mut DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
    encode_each(&values.groups, encoder)?;
    encode_exceptions(&values.stats, now, encoder)
}

fn age(now: Timestamp, since: Timestamp) -> i64 {
    now.duration_since(since).as_secs().max(0)
}

fn deletes(ignored: bool) -> &'static str {
    if ignored { "go_on" } else { "refused" }
}

fn tally<L: Ord>(labels: impl Iterator<Item = L>) -> BTreeMap<L, i64> {
    let mut tally = BTreeMap::new();
    for label in labels {
        *tally.entry(label).or_default() += 1;
    }
    tally
}

fn encode_sums(stats: &Stats, encoder: &mut DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
    let groups = stats.groups.iter().map(|(state, value)| ([("state", *state)], count(*value)));
    gauge(
        encoder,
        "node_group_objects",
        "MachineDeployments, MachineSets and MachinePools: served as node groups, or why not",
        groups,
    )?;
    let problems = tally(stats.problems.iter().map(|it| [("state", it.state), ("problem", it.problem)]));
    gauge(encoder, "node_groups_with_problem", "Node groups that have a kind of problem", problems)?;
    let rollouts = tally(stats.rollouts.iter().map(|it| [("cause", it.cause), ("deletes", deletes(it.ignored))]));
    gauge(encoder, "node_groups_rolling_out", "Node groups that are rolling out, or about to", rollouts)?;
    let outside = tally(stats.outside_bounds.iter().map(|it| [("bound", it.bound)]));
    gauge(
        encoder,
        "node_groups_outside_bounds",
        "Node groups whose size is below their minimum or above their maximum",
        outside,
    )?;
    single(encoder, "machines", "Machines in the index", count(stats.machines))?;
    single(encoder, "nodes", "Nodes in the index", count(stats.nodes))?;
    single(encoder, "node_groups_priced", "Node groups that have a price", count(stats.priced))
}

fn encode_fleet(groups: &[GroupNumbers], encoder: &mut DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
    let sum = |value: fn(&GroupNumbers) -> i64| groups.iter().map(value).sum::<i64>();
    single(encoder, "node_groups_size", "Replicas asked for, of all node groups", sum(|it| it.size))?;
    single(encoder, "node_groups_min_size", "Minimum sizes of all node groups together", sum(|it| it.min))?;
    single(encoder, "node_groups_max_size", "Maximum sizes of all node groups together", sum(|it| it.max))?;
    let states =
        [("running", sum(|it| it.running)), ("creating", sum(|it| it.creating)), ("deleting", sum(|it| it.deleting))];
    let states = states.map(|(state, value)| ([("state", state)], value));
    gauge(encoder, "instances", "Instances of all node groups, by state", states)?;
    single(encoder, "failed_instances", "Instances of all node groups that have an error", sum(|it| it.failed))?;
    let by_source =
        SOURCES.map(|source| ([("source", source)], groups.iter().filter(|it| it.source == source).count() as u64));
    let from_zero = FromZero::ALL.map(FromZero::as_str).into_iter().chain(["none"]);
    let from_zero =
        from_zero.map(|by| ([("by", by)], count(groups.iter().filter(|it| it.from_zero == by).count() as u64)));
    gauge(encoder, "node_groups_from_zero", "Node groups by what lets them scale from zero", from_zero)?;
    gauge(
        encoder,
        "node_groups_by_template_source",
        "Node groups by where cpu and memory of their template come from",
        by_source.map(|(labels, value)| (labels, count(value))),
    )
}

fn encode_each(groups: &[GroupNumbers], encoder: &mut DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
    let rows = |value: fn(&GroupNumbers) -> i64| groups.iter().map(move |it| ([("group", it.id.as_str())], value(it)));
    gauge(encoder, "node_group_size", "Replicas asked for, own writes included", rows(|it| it.size))?;
    gauge(encoder, "node_group_min_size", "Minimum size", rows(|it| it.min))?;
    gauge(encoder, "node_group_max_size", "Maximum size", rows(|it| it.max))?;
    let states = groups.iter().flat_map(|it| {
        [("running", it.running), ("creating", it.creating), ("deleting", it.deleting)]
            .map(|(state, value)| ([("group", it.id.as_str()), ("state", state)], value))
    });
    gauge(encoder, "node_group_instances", "Instances, by state", states)?;
    let failed = rows(|it| it.failed).filter(|(_, failed)| *failed > 0);
    gauge(encoder, "node_group_failed_instances", "Instances that have an error, where there are any", failed)?;
    let sources = groups.iter().map(|it| ([("group", it.id.as_str()), ("source", it.source)], 1));
    gauge(encoder, "node_group_template_source", "1: where cpu and memory of the template come from", sources)
}

fn encode_exceptions(stats: &Stats, now: Timestamp, encoder: &mut DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
    let problems = stats
        .problems
        .iter()
        .map(|it| ([("group", it.group.as_str()), ("state", it.state), ("problem", it.problem)], 1));
    gauge(encoder, "node_group_problem", "1 for each node group and what is wrong with it", problems)?;
    let rollouts = stats.rollouts.iter().map(|it| {
        let labels = [("group", it.group.as_str()), ("cause", it.cause), ("deletes", deletes(it.ignored))];
        (labels, age(now, it.since))
    });
    gauge(encoder, "node_group_rollout_seconds", "Seconds since a node group began to roll out", rollouts)?;
    let outside =
        stats.outside_bounds.iter().map(|it| ([("group", it.group.as_str()), ("bound", it.bound)], count(it.by)));
    gauge(
        encoder,
        "node_group_size_outside_bounds",
        "Replicas by which a node group's size is below its minimum or above its maximum",
        outside,
    )
}

// The values of node groups for a scrape. The index is copied group by group, and nothing is encoded here.

pub(super) struct GroupNumbers {
    pub(super) id: String,
    pub(super) size: i64,
    pub(super) min: i64,
    pub(super) max: i64,
    pub(super) running: i64,
    pub(super) creating: i64,
    pub(super) deleting: i64,
    pub(super) failed: i64,
    pub(super) source: &'static str,
    pub(super) from_zero: &'static str,
}

/// The values of the series, sorted by group.
#[derive(Default)]
pub(super) struct Values {
    pub(super) stats: Stats,
    pub(super) groups: Vec<GroupNumbers>,
}

impl Values {
    pub(super) fn of(index: &Index) -> Self {
        let stats = index.stats();
        let snapshot = index.snapshot(None, Detail::Counts);
        let mut groups: Vec<_> = snapshot.groups.iter().filter_map(numbers).collect();
        groups.sort_unstable_by(|a, b| a.id.cmp(&b.id));
        Self { stats, groups }
    }

    /// Adds what has series per group.
    pub(super) fn extend_series(&mut self, other: Self) {
        let Self { stats: Stats { problems, rollouts, outside_bounds, .. }, groups } = other;
        self.stats.problems.extend(problems);
        self.stats.rollouts.extend(rollouts);
        self.stats.outside_bounds.extend(outside_bounds);
        self.groups.extend(groups);
    }
}

/// Returns the numbers of a live group, or `None` for an object that isn't one.
fn numbers(group: &GroupSnapshot) -> Option<GroupNumbers> {
    let served = group.served()?;
    let bounds = served.definition.bounds;
    let InstanceCounts { running, creating, deleting, failed } = group.counts;
    Some(GroupNumbers {
        id: group.id.to_string(),
        size: group.size.into(),
        min: bounds.min.into(),
        max: bounds.max.into(),
        running: count(running),
        creating: count(creating),
        deleting: count(deleting),
        failed: count(failed),
        from_zero: served.definition.from_zero.map_or("none", FromZero::as_str),
        source: served.definition.template.as_ref().and_then(NodeTemplate::source).map_or("none", Source::as_str),
    })
}
