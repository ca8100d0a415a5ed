//! Counts of commands and of the API calls they made. The labels are closed sets.

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family},
    registry::Registry,
};

use super::ScaleError;

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct CommandLabels {
    command: &'static str,
    result: &'static str,
}

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct WriteLabels {
    write: &'static str,
    result: &'static str,
}

/// Counts commands and API writes.
#[derive(Clone, Debug, Default)]
pub struct ScaleMetrics {
    commands: Family<CommandLabels, Counter>,
    writes: Family<WriteLabels, Counter>,
}

impl ScaleMetrics {
    /// Registers the metrics.
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        registry.register("commands", "Scaling commands, by kind and result", metrics.commands.clone());
        registry.register("writes", "API writes, by kind and result", metrics.writes.clone());
        // From 0 on, so that the first failure is an increase to whoever watches the counter.
        for write in ["size", "log", "mark", "unmark", "delete"] {
            for result in ["ok", "error"] {
                let _ = metrics.writes.get_or_create(&WriteLabels { write, result });
            }
        }
        for command in ["increase", "decrease", "delete"] {
            let _ = metrics.commands.get_or_create(&CommandLabels { command, result: "ok" });
        }
        metrics
    }

    pub(super) fn count_command(&self, command: &'static str, error: Option<&ScaleError>) {
        let result = error.map_or("ok", ScaleError::code);
        self.commands.get_or_create(&CommandLabels { command, result }).inc();
    }

    pub(super) fn count_write(&self, write: &'static str, result: &'static str) {
        self.writes.get_or_create(&WriteLabels { write, result }).inc();
    }
}
