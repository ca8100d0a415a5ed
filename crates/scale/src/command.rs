//! Commands that wait for their turn, and their callers.

use std::{
    collections::HashMap,
    sync::{Arc, Weak},
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
}

/// The caller that waits for a command's result.
pub(super) struct Caller {
    /// The command as a metric label.
    pub(super) command: &'static str,
    /// The number of Nodes that it names.
    pub(super) nodes: Option<usize>,
    /// The time at which it was asked for.
    pub(super) begun: Instant,
    /// The trace that it is a part of.
    pub(super) trace: Context,
    /// The name of the client that asks.
    pub(super) client: Option<ArcStr>,
    /// Held by the call for as long as it waits.
    pub(super) waiting: Weak<()>,
    answer: oneshot::Sender<Result<(), ScaleError>>,
}

impl Caller {
    /// Returns the caller that holds `waiting`.
    pub(super) fn new(
        command: &'static str,
        client: Option<ArcStr>,
        answer: oneshot::Sender<Result<(), ScaleError>>,
        waiting: &Arc<()>,
    ) -> Self {
        let (begun, trace, waiting) = (Instant::now(), crate::traces::current(), Arc::downgrade(waiting));
        Self { command, nodes: None, begun, trace, client, waiting, answer }
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

impl Command {
    /// Returns true if nobody waits for the result any more.
    pub(super) fn is_abandoned(&self) -> bool {
        match self {
            Self::Increase(_, caller) | Self::Decrease(_, caller) | Self::Delete(Delete { caller, .. }) => {
                caller.is_gone()
            }
        }
    }

    pub(super) fn into_caller(self) -> Caller {
        match self {
            Self::Increase(_, caller) | Self::Decrease(_, caller) | Self::Delete(Delete { caller, .. }) => caller,
        }
    }
}
