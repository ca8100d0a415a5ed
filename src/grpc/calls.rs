//! When Cluster Autoscaler last called, for people who ask whether it does. Only Refresh counts: it comes once in every
//! loop, and nobody else sends it.

use std::{sync::Arc, time::Instant};

use parking_lot::Mutex;

/// The last calls of Refresh. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct Calls {
    refresh: Arc<Mutex<Option<Refreshed>>>,
}

/// A call of Refresh.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Refreshed {
    /// When it was answered.
    pub at: Instant,
    /// The reason for which it was refused; `None` when it was answered.
    pub refused: Option<String>,
}

impl Calls {
    /// The last call of Refresh; `None` when none has come since the program started.
    #[must_use]
    pub fn last_refresh(&self) -> Option<Refreshed> {
        self.refresh.lock().clone()
    }

    pub(super) fn refreshed(&self, refused: Option<String>) {
        *self.refresh.lock() = Some(Refreshed { at: Instant::now(), refused });
    }
}
