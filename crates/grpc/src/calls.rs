//! Records the last call of Cluster Autoscaler, so that people can see that it calls. Only Refresh counts: it comes
//! once in every loop, and no other client sends it.

use std::{sync::Arc, time::Instant};

use parking_lot::Mutex;

/// The last call of Refresh. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Calls {
    refresh: Arc<Mutex<Option<Refreshed>>>,
}

/// A call of Refresh.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Refreshed {
    /// When it was answered.
    pub at: Instant,
    /// The reason why it was refused; `None` if it wasn't.
    pub refused: Option<String>,
}

impl Calls {
    /// Returns the last call of Refresh; `None` if none has come since the program started.
    #[must_use]
    pub fn last_refresh(&self) -> Option<Refreshed> {
        self.refresh.lock().clone()
    }

    pub(super) fn refreshed(&self, refused: Option<String>) {
        *self.refresh.lock() = Some(Refreshed { at: Instant::now(), refused });
    }
}
