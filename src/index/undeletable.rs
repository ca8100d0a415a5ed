//! Machines whose deletion the API server refused or didn't answer a short while ago. Their errors aren't sent meanwhile: Cluster
//! Autoscaler would name them for it in every loop, and counts them as no replica.

use std::time::Duration;

use tokio::time::Instant;

use super::{Index, picture::Picture};
use crate::capi::{Machine, ObjectKey, Uid};

/// A deletion that failed isn't asked for anew for so long. Much longer than a loop of Cluster Autoscaler, which takes a size for
/// one to be fixed where it doesn't add up in several loops one after the other.
const FOR: Duration = Duration::from_secs(5 * 60);

impl Picture {
    /// Returns true if the deletion of a Machine failed a short while ago.
    pub(super) fn is_undeletable(&self, machine: &Machine) -> bool {
        self.undeletable.get(&machine.meta.key).is_some_and(|failed_at| failed_at.elapsed() < FOR)
    }
}

impl Index {
    /// The API server has refused to delete a Machine, or gave no answer.
    pub fn set_undeletable(&self, key: &ObjectKey, uid: &Uid) {
        let picture = &mut self.inner.write().picture;
        if picture.machines.get(key).is_some_and(|machine| machine.meta.uid == *uid) {
            picture.undeletable.insert(key.clone(), Instant::now());
        }
    }
}
