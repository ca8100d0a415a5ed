//! Metrics of the informers, computed on each scrape: their objects, their health and the events they received.

use std::{collections::BTreeMap, fmt, time::Instant};

use prometheus_client::{collector::Collector, encoding::DescriptorEncoder};
use shared_informer::Status;

use super::Fleet;
use index::families::{count, counter, gauge};

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

/// Ages of an informer in seconds: name, help, time of the last occurrence. There is no series before the first one.
const AGES: [Age; 2] = [
    ("informer_last_event_seconds", "Seconds since a watch last gave an event or a bookmark, by resource", |status| {
        status.last_event
    }),
    ("informer_last_list_seconds", "Seconds since a list was last completed, by resource", |status| status.last_list),
];

type Count = (&'static str, &'static str, fn(&Status) -> u64);

/// Counters of an informer: name, help, value.
const COUNTERS: [Count; 5] = [
    ("informer_watch_errors", "Watches that failed, by resource", |status| status.watch_errors),
    ("informer_decode_errors", "Objects received that don't decode, by resource", |status| status.decode_errors),
    ("informer_left_out", "Objects received and excluded beyond the limit of a namespace, by resource", |status| {
        status.left_out
    }),
    ("informer_streamed_lists", "Lists received as a stream and not in pages, by resource", |status| {
        status.lists.streamed
    }),
    ("informer_handler_panics", "Calls of handlers that panicked, by resource", |status| status.handler_panics),
];

/// The collector for the informers of a management cluster, and of the only workload cluster. Those of Clusters that a
/// selector matches have no series, whose number would grow with the fleet.
pub struct InformerMetrics(Fleet);

impl InformerMetrics {
    /// Creates the collector.
    pub fn new(fleet: Fleet) -> Self {
        Self(fleet)
    }
}

impl fmt::Debug for InformerMetrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("InformerMetrics")
    }
}

impl Collector for InformerMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let informers = &self.0.informers();
        let encoder = &mut encoder;
        for (name, help, value) in GAUGES {
            let rows = informers.iter().map(|(cluster, status)| (labels(cluster, status), value(status)));
            gauge(encoder, name, help, rows)?;
        }
        let now = Instant::now();
        for (name, help, when) in AGES {
            let rows = informers.iter().filter_map(|(cluster, status)| {
                let age = now.saturating_duration_since(when(status)?).as_secs();
                Some((labels(cluster, status), count(age)))
            });
            gauge(encoder, name, help, rows)?;
        }
        for (name, help, value) in COUNTERS {
            let rows = informers.iter().map(|(cluster, status)| (labels(cluster, status), value(status)));
            counter(encoder, name, help, rows)?;
        }
        let queues = informers.iter().flat_map(|(cluster, status)| queues(cluster, status));
        gauge(encoder, "informer_handler_queue", "Objects that wait for a handler, by resource and handler", queues)?;
        let events = informers.iter().flat_map(|(cluster, status)| {
            let counts = status.events;
            [
                ("added", counts.added),
                ("updated", counts.updated),
                ("deleted", counts.deleted),
                ("bookmark", counts.bookmarks),
            ]
            .map(|(kind, value)| (labels_with(cluster, status, ("kind", kind)), value))
        });
        counter(encoder, "informer_events", "Events, by resource and kind", events)?;
        let lists = informers.iter().flat_map(|(cluster, status)| {
            let counts = status.lists;
            [
                ("first", counts.first),
                ("gone", counts.gone),
                ("expired_token", counts.expired_token),
                ("error", counts.error),
            ]
            .map(|(cause, value)| (labels_with(cluster, status, ("cause", cause)), value))
        });
        counter(encoder, "informer_lists", "Lists begun, by resource and cause", lists)
    }
}

/// Labels, as names and values.
type Labels<'a, const N: usize> = [(&'static str, &'a str); N];

fn labels<'a>(cluster: &'static str, status: &'a Status) -> Labels<'a, 3> {
    [("cluster", cluster), ("resource", &status.resource), ("namespaces", &status.namespaces)]
}

fn labels_with<'a>(cluster: &'static str, status: &'a Status, own: (&'static str, &'a str)) -> Labels<'a, 4> {
    let [cluster, resource, namespaces] = labels(cluster, status);
    [cluster, resource, namespaces, own]
}

/// Returns the number of queued events per handler name; handlers with the same name are summed.
fn queues<'a>(cluster: &'static str, status: &'a Status) -> impl Iterator<Item = (Labels<'a, 4>, i64)> {
    let mut queued: BTreeMap<&str, u64> = BTreeMap::new();
    for handler in &status.handlers {
        *queued.entry(&handler.name).or_default() += handler.queued as u64;
    }
    let row = move |(handler, queued)| (labels_with(cluster, status, ("handler", handler)), count(queued));
    queued.into_iter().map(row)
}
