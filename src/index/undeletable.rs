//! Machines whose deletion the API server refused or didn't answer lately. Their errors aren't sent meanwhile: Cluster
//! Autoscaler would name them for it in every loop, and counts them as no replica.

use std::time::Duration;

use capi::{Machine, ObjectKey, Uid};
use tokio::time::Instant;

use super::{Index, live_state::LiveState};

/// The error isn't sent for so long after the first failure. Much longer than a loop of Cluster Autoscaler, which takes a size for
/// one to be fixed where it doesn't add up in several loops one after the other.
const FIRST: Duration = Duration::from_secs(5 * 60);
/// Each failure after that doubles the time, up to this: an instance without an error counts as one that may still come until
/// `--max-node-provision-time` is over, from when its error was last sent.
const LONGEST: Duration = Duration::from_secs(4 * 60 * 60);

/// A deletion that failed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Undeletable {
    /// When it last failed.
    since: Instant,
    /// The error isn't sent for so long after that.
    lasts: Duration,
}

impl Undeletable {
    fn is_over(self) -> bool {
        self.since.elapsed() >= self.lasts
    }
}

impl LiveState {
    /// Returns true if the deletion of a Machine failed lately.
    pub(super) fn is_undeletable(&self, machine: &Machine) -> bool {
        self.undeletable.get(&machine.meta.key).is_some_and(|failed| !failed.is_over())
    }
}

impl Index {
    /// The API server has refused to delete a Machine, or gave no answer.
    pub fn set_undeletable(&self, key: &ObjectKey, uid: &Uid) {
        let live = &mut self.inner.write().live;
        if live.machines.get(key).is_some_and(|machine| machine.meta.uid == *uid) {
            let lasts = match live.undeletable.get(key) {
                Some(failed) if failed.is_over() => (failed.lasts * 2).min(LONGEST),
                // It is asked for again although its error isn't sent.
                Some(failed) => failed.lasts,
                None => FIRST,
            };
            live.undeletable.insert(key.clone(), Undeletable { since: Instant::now(), lasts });
        }
    }
}
