//! Commands that wait for their turn, and their callers.

use std::{
    collections::HashMap,
    sync::{Arc, Weak},
    time::Duration,
};

use arcstr::ArcStr;
use opentelemetry::Context;
use tokio::{sync::oneshot, time::Instant};

use super::error::ScaleError;

/// A Node as the caller names it.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct NodeName {
    /// Its name, or the instance id of one that has no Node.
    pub name: String,
    /// Its providerID, or the instance id of one that has no Node.
    pub provider_id: String,
    /// Its annotations.
    pub annotations: HashMap<String, String>,
}

impl NodeName {
    /// Returns the text that identifies it: its providerID, or its name if it has none.
    pub(super) fn text(&self) -> &str {
        if self.provider_id.is_empty() { &self.name } else { &self.provider_id }
    }

    /// Returns the length of its texts in bytes.
    fn bytes(&self) -> usize {
        let annotations = self.annotations.iter().map(|(key, value)| key.len() + value.len());
        self.name.len() + self.provider_id.len() + annotations.sum::<usize>()
    }
}

/// The caller that waits for a command's result.
pub(super) struct Caller {
    command: &'static str,
    /// The number of Nodes that the command names.
    nodes: Option<usize>,
    begun: Instant,
    trace: Context,
    /// The name of the client that asks.
    client: Option<ArcStr>,
    answer: oneshot::Sender<Result<(), ScaleError>>,
    /// Held by the call for as long as it waits.
    waiting: Weak<()>,
}

impl Caller {
    /// Returns the caller that holds `waiting`.
    pub(super) fn new(
        command: &'static str,
        answer: oneshot::Sender<Result<(), ScaleError>>,
        waiting: &Arc<()>,
    ) -> Self {
        let (begun, trace, waiting) = (Instant::now(), crate::traces::current(), Arc::downgrade(waiting));
        Self { command, nodes: None, begun, trace, client: None, answer, waiting }
    }

    /// Returns what the call holds for as long as it waits.
    pub(super) fn waiting(&self) -> &Weak<()> {
        &self.waiting
    }

    /// Sets the client that asks.
    pub(super) fn requested_by(self, client: Option<ArcStr>) -> Self {
        Self { client, ..self }
    }

    pub(super) fn client(&self) -> Option<&ArcStr> {
        self.client.as_ref()
    }

    /// Sets the number of Nodes that the command names.
    pub(super) fn naming(self, nodes: usize) -> Self {
        Self { nodes: Some(nodes), ..self }
    }

    pub(super) fn nodes(&self) -> Option<usize> {
        self.nodes
    }

    /// Returns the trace that the command is a part of.
    pub(super) fn trace(&self) -> &Context {
        &self.trace
    }

    /// Returns the time since the command was asked for.
    pub(super) fn elapsed(&self) -> Duration {
        self.begun.elapsed()
    }

    /// Returns the command as a metric label.
    pub(super) fn command(&self) -> &'static str {
        self.command
    }

    /// Returns true if nobody waits for the result any more.
    pub(super) fn is_gone(&self) -> bool {
        self.answer.is_closed()
    }

    pub(super) fn answer(self, result: Result<(), ScaleError>) {
        // The caller may have left: the log has the result.
        let _ = self.answer.send(result);
    }
}

/// A delete that waits for its turn.
pub(super) struct Delete {
    pub(super) nodes: Vec<NodeName>,
    pub(super) caller: Caller,
}

/// A command that waits for its turn.
pub(super) enum Command {
    Increase(i32, Caller),
    Decrease(i32, Caller),
    Delete(Delete),
}

/// The numbers of Nodes and of bytes of text from which on a command is large.
const LARGE: (usize, usize) = (100, 64 << 10);

impl Command {
    /// Returns true if nobody waits for the result any more.
    pub(super) fn is_abandoned(&self) -> bool {
        match self {
            Self::Increase(_, caller) | Self::Decrease(_, caller) | Self::Delete(Delete { caller, .. }) => {
                caller.is_gone()
            }
        }
    }

    /// Returns true for a command that takes much memory while it waits.
    pub(super) fn is_large(&self) -> bool {
        let Self::Delete(Delete { nodes, .. }) = self else { return false };
        let (most_nodes, most_bytes) = LARGE;
        nodes.len() > most_nodes || nodes.iter().map(NodeName::bytes).sum::<usize>() > most_bytes
    }

    pub(super) fn into_caller(self) -> Caller {
        match self {
            Self::Increase(_, caller) | Self::Decrease(_, caller) | Self::Delete(Delete { caller, .. }) => caller,
        }
    }
}
