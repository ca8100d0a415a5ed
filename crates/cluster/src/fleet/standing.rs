//! The standing of a Cluster in a fleet: served, or left for a reason, for good; and the certificates that its
//! autoscaler may have.

use std::{fmt, sync::OnceLock};

use parking_lot::Mutex;
use rules::capi::NotBefore;

/// The reason why a Cluster isn't served any more.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Left {
    /// Its labels don't match the selector any more.
    OptedOut,
    /// It was deleted.
    Deleted,
    /// Another Cluster has its name.
    Replaced,
}

impl fmt::Display for Left {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::OptedOut => "its labels don't match --fleet-selector any more",
            Self::Deleted => "it was deleted",
            Self::Replaced => "another Cluster of its name was created",
        })
    }
}

/// The standing of a Cluster. One that has left never comes back: it is served anew, from an index of its own.
#[derive(Debug, Default)]
pub(crate) struct Standing {
    left: OnceLock<Left>,
    client_not_before: Mutex<Option<NotBefore>>,
}

impl Standing {
    /// Notes that the Cluster has left; the first reason counts.
    pub(crate) fn leave(&self, why: Left) {
        // It has left already.
        let _ = self.left.set(why);
    }

    /// Returns the reason why it isn't served any more; `None` while it is.
    pub(crate) fn left(&self) -> Option<Left> {
        self.left.get().copied()
    }

    /// Sets the certificates that its autoscaler may have.
    pub(crate) fn set_client_not_before(&self, not_before: Option<NotBefore>) {
        *self.client_not_before.lock() = not_before;
    }

    /// Returns the choice of certificates; `None` if any will do.
    pub(crate) fn client_not_before(&self) -> Option<NotBefore> {
        *self.client_not_before.lock()
    }
}
