//! The work on one group in one turn: the group's current state, and the attempts of its calls.

use std::{
    collections::BTreeSet,
    sync::{Arc, Weak, atomic::AtomicBool},
};

use arcstr::ArcStr;
use parking_lot::Mutex;
use rules::{GroupId, writing::CallError};

use super::{answer, api::Api, error::ScaleError, retry::Attempts, shared::Shared};
use index::{Index, ScaleView};

/// The work on one group: a command or an observation.
pub(super) struct Work {
    pub(super) shared: Arc<Shared>,
    pub(super) id: GroupId,
    /// The size written in this turn.
    pub(super) resized: Mutex<Option<Resized>>,
    /// The clients whose commands this turn carries out.
    pub(super) clients: Mutex<BTreeSet<ArcStr>>,
    /// The calls that wait for this turn's commands.
    pub(super) callers: Mutex<Vec<Weak<()>>>,
    /// True once something was written in this turn.
    pub(super) has_written: AtomicBool,
    /// True once a write of this turn had no answer.
    pub(super) may_have_written: AtomicBool,
}

/// A size that has been written.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Resized {
    pub(super) from: i32,
    pub(super) to: i32,
    pub(super) attempts: u32,
}

impl Work {
    pub(super) fn new(shared: Arc<Shared>, id: GroupId) -> Self {
        Self {
            shared,
            id,
            resized: Mutex::default(),
            clients: Mutex::default(),
            callers: Mutex::default(),
            has_written: AtomicBool::default(),
            may_have_written: AtomicBool::default(),
        }
    }

    pub(super) fn index(&self) -> &Index {
        &self.shared.index
    }

    pub(super) fn api(&self) -> &Api {
        &self.shared.api
    }

    /// Returns the group as it is now.
    pub(super) fn view(&self) -> Result<ScaleView, ScaleError> {
        self.index().scale_view(&self.id).map_err(|why| answer::not_scalable(&self.id, &why))
    }

    /// Returns attempts that count each retry.
    pub(super) fn attempts(&self) -> Attempts {
        Attempts::counted(self.shared.metrics.retries())
    }

    /// Returns attempts of what must not be given up early.
    pub(super) fn persistent_attempts(&self) -> Attempts {
        Attempts::persistent(self.shared.metrics.retries())
    }

    /// Converts a failed call to an error of this group.
    pub(super) fn failed(&self, error: &CallError) -> ScaleError {
        answer::failed(&self.id, error)
    }
}
