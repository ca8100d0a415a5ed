//! Metrics of the informers and of the picture, gathered when they are asked for.

use std::{collections::BTreeMap, fmt, time::Instant};

use jiff::Timestamp;
use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric},
    metrics::{counter::ConstCounter, gauge::ConstGauge},
};

use super::Workload;
use crate::informer::Status;

/// Gathers the metrics of one workload cluster and the informers that feed it.
pub struct ClusterMetrics(Workload);

impl ClusterMetrics {
    /// The metrics of a workload cluster.
    #[must_use]
    pub fn new(workload: Workload) -> Self {
        Self(workload)
    }
}

impl fmt::Debug for ClusterMetrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ClusterMetrics")
    }
}

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct InformerLabels {
    cluster: &'static str,
    resource: String,
    namespaces: String,
}

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct EventLabels {
    cluster: &'static str,
    resource: String,
    namespaces: String,
    kind: &'static str,
}

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct ListLabels {
    cluster: &'static str,
    resource: String,
    namespaces: String,
    cause: &'static str,
}

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct HandlerLabels {
    cluster: &'static str,
    resource: String,
    namespaces: String,
    handler: String,
}

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct StateLabels {
    state: &'static str,
}

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct RolloutLabels {
    group: String,
    cause: &'static str,
    deletes: &'static str,
}

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct BoundLabels {
    group: String,
    bound: &'static str,
}

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct ProblemLabels {
    group: String,
    state: &'static str,
    problem: &'static str,
}

type Value = (&'static str, &'static str, fn(&Status) -> i64);

/// Gauges of an informer: name, help, value.
const GAUGES: [Value; 4] = [
    ("informer_objects", "Objects held, by resource", |status| count(status.objects as u64)),
    ("informer_undecodable_objects", "Objects held that don't decode, by resource", |status| {
        count(status.undecodable as u64)
    }),
    ("informer_synced", "Whether the first list is complete (1) or not (0), by resource", |status| {
        i64::from(status.synced)
    }),
    (
        "informer_broken_seconds",
        "Seconds since list or watch began to fail, 0 while they work, by resource",
        |status| {
            count(status.broken_since.map_or(0, |since| Instant::now().saturating_duration_since(since).as_secs()))
        },
    ),
];

type Age = (&'static str, &'static str, fn(&Status) -> Option<Instant>);

/// Seconds since something last happened to an informer: name, help, when. No series while it never has.
const AGES: [Age; 2] = [
    ("informer_last_event_seconds", "Seconds since a watch last gave an event or a bookmark, by resource", |status| {
        status.last_event
    }),
    ("informer_last_list_seconds", "Seconds since a list was last completed, by resource", |status| status.last_list),
];

type Count = (&'static str, &'static str, fn(&Status) -> u64);

/// Counters of an informer: name, help, value.
const COUNTERS: [Count; 4] = [
    ("informer_watch_errors", "Watches that failed, by resource", |status| status.watch_errors),
    ("informer_decode_errors", "Objects received that don't decode, by resource", |status| status.decode_errors),
    ("informer_streamed_lists", "Lists told as a stream and not in pages, by resource", |status| status.lists.streamed),
    ("informer_handler_panics", "Calls of handlers that panicked, by resource", |status| status.handler_panics),
];

impl Collector for ClusterMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let informers = self.0.informers();
        for (name, help, value) in GAUGES {
            let rows = informers.iter().map(|(cluster, status)| (informer_labels(cluster, status), value(status)));
            gauge(&mut encoder, name, help, rows)?;
        }
        let now = Instant::now();
        for (name, help, when) in AGES {
            let rows = informers.iter().filter_map(|(cluster, status)| {
                let age = now.saturating_duration_since(when(status)?).as_secs();
                Some((informer_labels(cluster, status), count(age)))
            });
            gauge(&mut encoder, name, help, rows)?;
        }
        for (name, help, value) in COUNTERS {
            let rows = informers.iter().map(|(cluster, status)| (informer_labels(cluster, status), value(status)));
            counter(&mut encoder, name, help, rows)?;
        }
        let queues = informers.iter().flat_map(|(cluster, status)| queues(cluster, status));
        gauge(
            &mut encoder,
            "informer_handler_queue",
            "Objects that wait for a handler, by resource and handler",
            queues,
        )?;
        let events = informers.iter().flat_map(|(cluster, status)| {
            let counts = status.events;
            [
                ("added", counts.added),
                ("updated", counts.updated),
                ("deleted", counts.deleted),
                ("bookmark", counts.bookmarks),
            ]
            .map(|(kind, value)| (event_labels(cluster, status, kind), value))
        });
        counter(&mut encoder, "informer_events", "Events, by resource and kind", events)?;
        let lists = informers.iter().flat_map(|(cluster, status)| {
            let counts = status.lists;
            [
                ("first", counts.first),
                ("gone", counts.gone),
                ("expired_token", counts.expired_token),
                ("error", counts.error),
            ]
            .map(|(cause, value)| (list_labels(cluster, status, cause), value))
        });
        counter(&mut encoder, "informer_lists", "Lists begun, by resource and cause", lists)?;
        self.encode_picture(&mut encoder)
    }
}

impl ClusterMetrics {
    fn encode_picture(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let stats = self.0.index().stats();
        let groups = stats.groups.iter().map(|(state, value)| (StateLabels { state }, count(*value)));
        gauge(
            encoder,
            "node_group_objects",
            "MachineDeployments, MachineSets and MachinePools: served as node groups, or why not",
            groups,
        )?;
        let problems = stats.problems.into_iter().map(|problem| {
            let labels = ProblemLabels { group: problem.group, state: problem.state, problem: problem.problem };
            (labels, 1)
        });
        gauge(encoder, "node_group_problem", "1 for each node group and what is wrong with it", problems)?;
        let now = Timestamp::now();
        let rollouts = stats.rollouts.into_iter().map(|rollout| {
            let age = u64::try_from(now.duration_since(rollout.since).as_secs()).unwrap_or_default();
            let deletes = if rollout.ignored { "go_on" } else { "refused" };
            (RolloutLabels { group: rollout.group, cause: rollout.cause, deletes }, count(age))
        });
        gauge(encoder, "node_group_rollout_seconds", "Seconds since a node group began to roll out", rollouts)?;
        let outside = stats
            .outside_bounds
            .into_iter()
            .map(|outside| (BoundLabels { group: outside.group, bound: outside.bound }, count(outside.by)));
        gauge(
            encoder,
            "node_group_size_outside_bounds",
            "Replicas by which a node group's size is below its minimum or above its maximum",
            outside,
        )?;
        single(encoder, "machines", "Machines in the picture", stats.machines)?;
        single(encoder, "nodes", "Nodes in the picture", stats.nodes)
    }
}

fn informer_labels(cluster: &'static str, status: &Status) -> InformerLabels {
    InformerLabels { cluster, resource: status.resource.clone(), namespaces: status.namespaces.clone() }
}

/// What waits for the handlers of an informer; for handlers of one name the sum.
fn queues(cluster: &'static str, status: &Status) -> impl Iterator<Item = (HandlerLabels, i64)> {
    let mut queued: BTreeMap<String, u64> = BTreeMap::new();
    for handler in &status.handlers {
        *queued.entry(handler.name.to_string()).or_default() += handler.queued as u64;
    }
    let (resource, namespaces) = (status.resource.clone(), status.namespaces.clone());
    queued.into_iter().map(move |(handler, queued)| {
        let (resource, namespaces) = (resource.clone(), namespaces.clone());
        (HandlerLabels { cluster, resource, namespaces, handler }, count(queued))
    })
}

fn event_labels(cluster: &'static str, status: &Status, kind: &'static str) -> EventLabels {
    EventLabels { cluster, resource: status.resource.clone(), namespaces: status.namespaces.clone(), kind }
}

fn list_labels(cluster: &'static str, status: &Status, cause: &'static str) -> ListLabels {
    ListLabels { cluster, resource: status.resource.clone(), namespaces: status.namespaces.clone(), cause }
}

fn count(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

fn gauge<L: EncodeLabelSet>(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    rows: impl IntoIterator<Item = (L, i64)>,
) -> Result<(), fmt::Error> {
    let kind = ConstGauge::new(0_i64);
    let mut family = encoder.encode_descriptor(name, help, None, kind.metric_type())?;
    for (labels, value) in rows {
        ConstGauge::new(value).encode(family.encode_family(&labels)?)?;
    }
    Ok(())
}

fn counter<L: EncodeLabelSet>(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    rows: impl IntoIterator<Item = (L, u64)>,
) -> Result<(), fmt::Error> {
    let kind = ConstCounter::new(0_u64);
    let mut family = encoder.encode_descriptor(name, help, None, kind.metric_type())?;
    for (labels, value) in rows {
        ConstCounter::new(value).encode(family.encode_family(&labels)?)?;
    }
    Ok(())
}

/// A gauge of one series without labels.
fn single(encoder: &mut DescriptorEncoder<'_>, name: &str, help: &str, value: u64) -> Result<(), fmt::Error> {
    let gauge = ConstGauge::new(count(value));
    gauge.encode(encoder.encode_descriptor(name, help, None, gauge.metric_type())?)
}
