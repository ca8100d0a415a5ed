//! Counts of commands, of their API calls, of Events, and of sizes that were put back. All labels are closed sets,
//! except field managers.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use parking_lot::Mutex;
use prometheus_client::{
    metrics::{counter::Counter, family::Family, histogram::Histogram},
    registry::Registry,
};
use rules::{call_error::CallError, named_enum};

use super::{error::ScaleError, remembered::Kept};

/// The upper bounds of the latency buckets, in seconds: from the latency of a quiet API server to beyond the deadline
/// of a caller.
const LATENCIES: [f64; 12] = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0];

/// The maximum number of field managers that have a series of their own.
const MOST_MANAGERS: usize = 20;

/// The label of a field manager that the object doesn't name.
pub(super) const UNKNOWN_MANAGER: &str = "unknown";
/// The label of field managers that have no series of their own.
const OTHER_MANAGERS: &str = "other";

named_enum! {
    /// The kind of a write.
    #[derive(Clone, Copy, Debug, Eq, PartialEq)]
    pub(super) enum Write {
        /// The size of a group.
        Size = "size",
        /// A size or a deletion, tried without doing it.
        DryRun = "dry_run",
        /// The delete-machine annotation, set.
        Mark = "mark",
        /// The delete-machine annotation, removed.
        Unmark = "unmark",
        /// A Machine, deleted.
        Delete = "delete",
    }
}

named_enum! {
    /// The result of an Event.
    #[derive(Clone, Copy, Debug, Eq, PartialEq)]
    pub(super) enum EventResult {
        /// The API server has stored it, as a new Event or as one more of a series.
        Sent = "sent",
        /// A limit was reached.
        Limited = "limited",
        /// The queue was full.
        Dropped = "dropped",
        /// The API server hasn't stored it.
        Failed = "failed",
    }
}

/// Labels, as names and values.
type Labels<const N: usize> = [(&'static str, &'static str); N];

/// Counts commands, API writes and Events.
#[derive(Clone, Debug)]
pub struct ScaleMetrics {
    commands: Family<Labels<2>, Counter>,
    repeated: Family<Labels<1>, Counter>,
    writes: Family<Labels<2>, Counter>,
    latencies: Family<Labels<1>, Histogram, fn() -> Histogram>,
    retries: Counter,
    events: Family<Labels<1>, Counter>,
    put_back: Family<[(&'static str, String); 1], Counter>,
    kept: Family<Labels<1>, Counter>,
    /// The field managers that have a series.
    managers: Arc<Mutex<BTreeSet<String>>>,
}

impl Default for ScaleMetrics {
    fn default() -> Self {
        Self {
            commands: Family::default(),
            repeated: Family::default(),
            writes: Family::default(),
            latencies: Family::new_with_constructor(|| Histogram::new(LATENCIES)),
            retries: Counter::default(),
            events: Family::default(),
            put_back: Family::default(),
            kept: Family::default(),
            managers: Arc::default(),
        }
    }
}

impl ScaleMetrics {
    /// Registers the metrics.
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        registry.register("commands", "Scaling commands, by kind and result", metrics.commands.clone());
        registry.register(
            "repeated_commands_without_effect",
            "Scaling commands that succeeded, changed nothing, and had done so before within 15 minutes",
            metrics.repeated.clone(),
        );
        registry.register("writes", "API writes, by kind and result", metrics.writes.clone());
        registry.register("write_seconds", "How long API writes take, by kind", metrics.latencies.clone());
        registry.register("write_retries", "Repetitions of reads and writes by a command", metrics.retries.clone());
        registry.register("events", "Kubernetes Events on node groups, by outcome", metrics.events.clone());
        registry.register(
            "sizes_put_back",
            "Sizes that a field manager has put back, and had put back before within an hour, by that manager",
            metrics.put_back.clone(),
        );
        registry.register(
            "remembered_writes",
            "Writes of the ConfigMap that remembers Nodes, by result",
            metrics.kept.clone(),
        );
        // Series start at 0, so that the first failure is an increase of the counter.
        for write in Write::ALL.map(Write::as_str) {
            let _ = metrics.latencies.get_or_create(&[("write", write)]);
            for result in ["ok"].into_iter().chain(CallError::LABELS) {
                let _ = metrics.writes.get_or_create(&[("write", write), ("result", result)]);
            }
        }
        for command in ["increase", "decrease", "delete"] {
            let _ = metrics.repeated.get_or_create(&[("command", command)]);
            for result in ["ok"].into_iter().chain(ScaleError::CODES) {
                let _ = metrics.commands.get_or_create(&[("command", command), ("result", result)]);
            }
        }
        for manager in [UNKNOWN_MANAGER, OTHER_MANAGERS].map(str::to_owned) {
            let _ = metrics.put_back.get_or_create(&[("manager", manager)]);
        }
        for result in Kept::ALL.map(Kept::as_str) {
            let _ = metrics.kept.get_or_create(&[("result", result)]);
        }
        for result in EventResult::ALL.map(EventResult::as_str) {
            let _ = metrics.events.get_or_create(&[("result", result)]);
        }
        metrics
    }

    pub(super) fn count_command(&self, command: &'static str, error: Option<&ScaleError>) {
        let result = error.map_or("ok", ScaleError::code);
        self.commands.get_or_create(&[("command", command), ("result", result)]).inc();
    }

    pub(super) fn count_kept(&self, kept: Kept) {
        self.kept.get_or_create(&[("result", kept.as_str())]).inc();
    }

    pub(super) fn count_repeated(&self, command: &'static str) {
        self.repeated.get_or_create(&[("command", command)]).inc();
    }

    pub(super) fn count_write(&self, write: Write, error: Option<&CallError>, took: Duration) {
        let (write, result) = (write.as_str(), error.map_or("ok", CallError::label));
        self.writes.get_or_create(&[("write", write), ("result", result)]).inc();
        self.latencies.get_or_create(&[("write", write)]).observe(took.as_secs_f64());
    }

    /// Counts a size that a field manager has put back. Others choose the names of managers, so a limited number have a
    /// series, and the rest share one.
    pub(super) fn count_put_back(&self, manager: &str) {
        let mut managers = self.managers.lock();
        let is_named = managers.contains(manager) || managers.len() < MOST_MANAGERS;
        let manager = if is_named { manager } else { OTHER_MANAGERS }.to_owned();
        if is_named {
            managers.insert(manager.clone());
        }
        drop(managers);
        self.put_back.get_or_create(&[("manager", manager)]).inc();
    }

    /// Returns the counter of repetitions.
    pub(super) fn retries(&self) -> Counter {
        self.retries.clone()
    }

    pub(super) fn count_events(&self, result: EventResult, count: u64) {
        self.events.get_or_create(&[("result", result.as_str())]).inc_by(count);
    }
}
