//! Which instances of MachinePools without Machines are on their way out. There is nothing to mark or log for them, so
//! this is a memory of this process alone: named again they lower nothing, for as long as they should take to go.

use std::{collections::HashMap, time::Duration};

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::{
    index::{Index, NodeQuery},
    nodegroup::GroupId,
};

/// How long an instance that is still there counts as on its way out. An infrastructure provider that has taken another
/// one in its stead is asked again after that.
const GOING_FOR: Duration = Duration::from_secs(300);

/// What a request to delete instances of a MachinePool does that aren't Machines.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum MachinePoolDeletes {
    /// It lowers the size, and the infrastructure provider chooses which instance goes.
    #[default]
    Lower,
    /// It is refused.
    Refuse,
}

/// Accepted instances, by group and providerID, with when.
#[derive(Debug, Default)]
pub(super) struct Pools(Mutex<HashMap<GroupId, HashMap<String, Instant>>>);

impl Pools {
    /// Remembers that the size was lowered for these.
    pub(super) fn accept(&self, id: &GroupId, instances: impl Iterator<Item = String>) {
        let mut pools = self.0.lock();
        for instance in instances {
            pools.entry(id.clone()).or_default().insert(instance, Instant::now());
        }
    }

    /// Whether the size was lowered for this instance already. What is gone, or should have been long ago, is forgotten.
    pub(super) fn is_going(&self, index: &Index, id: &GroupId, provider_id: &str) -> bool {
        let mut pools = self.0.lock();
        let Some(pool) = pools.get_mut(id) else { return false };
        let no_annotations = HashMap::new();
        pool.retain(|instance, since| {
            let query = NodeQuery { name: instance, provider_id: instance, annotations: &no_annotations };
            since.elapsed() < GOING_FOR && index.resolve(query).group().as_ref() == Some(id)
        });
        let is_going = pool.contains_key(provider_id);
        if pool.is_empty() {
            pools.remove(id);
        }
        is_going
    }
}
