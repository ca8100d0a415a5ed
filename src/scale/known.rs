//! What is known of the Machines that a request names, not from before the group's present size was there: by the watch
//! where it has come far enough, else by reading them (docs/delete-rule.md, step 2).

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use futures::{StreamExt as _, stream};

use super::{
    Command,
    api::CallError,
    rule::{Life, Named},
};
use crate::{
    capi::{Machine, ObjectKey, Uid},
    index::{Era, GroupVersion},
    informer::AsOf,
    nodegroup::DeletionLog,
};

/// How many Machines are asked for, or written, side by side.
pub(super) const SIDE_BY_SIDE: usize = 16;

/// What the watch of Machines has told.
pub trait WatchedMachines: Send + Sync {
    /// The Machine of that name as it was at this resourceVersion or later.
    fn as_of(&self, key: &ObjectKey, version: u64) -> AsOf<Machine>;
}

/// What is known of Machines.
#[derive(Debug, Default)]
pub(super) struct Known {
    pub(super) lives: HashMap<Uid, Life>,
    /// All Machines of the group that are alive; empty where nobody named one that is being deleted.
    pub(super) alive: HashSet<Uid>,
}

impl Command {
    pub(super) fn machine_key(&self, name: &str) -> ObjectKey {
        ObjectKey::new(self.id.key.namespace.clone(), name)
    }

    /// What is known of these Machines as of `version`; those in its log need none of that.
    pub(super) async fn learn(
        &self,
        version: &GroupVersion,
        log: &DeletionLog,
        named: impl IntoIterator<Item = &Named>,
    ) -> Result<Known, CallError> {
        let era = self.index().era(&self.id).filter(|era| era.generation == version.generation);
        let named: HashSet<_> = named.into_iter().filter(|named| log.get(&named.uid).is_none()).cloned().collect();
        let mut known = Known::default();
        let mut unknown = Vec::new();
        for named in named {
            match self.watched(era.as_ref(), &named) {
                Some(life) => {
                    known.lives.insert(named.uid, life);
                }
                None => unknown.push(named),
            }
        }
        let reads = stream::iter(unknown).map(async |named: Named| {
            let life = self.read_life(&named).await;
            (named.uid, life)
        });
        let mut reads = reads.buffer_unordered(SIDE_BY_SIDE);
        while let Some((uid, life)) = reads.next().await {
            known.lives.insert(uid, life?);
        }
        if known.lives.values().any(|life| *life == Life::Deleting) {
            self.count(&mut known).await?;
        }
        Ok(known)
    }

    /// What the watch says of a Machine; `None` when it hasn't come far enough to be believed.
    fn watched(&self, era: Option<&Era>, named: &Named) -> Option<Life> {
        let key = self.machine_key(&named.name);
        // It was there when the request was read: it has gone, and never comes back.
        if !self.index().has_machine(&key, &named.uid) {
            return Some(Life::Gone);
        }
        let era = era.filter(|era| !era.logged.contains(&named.uid))?;
        match self.inner.machines.as_of(&key, era.since?) {
            AsOf::Held(object) => match &object.content {
                Ok(machine) if machine.meta.uid == named.uid => Some(life_of(machine)),
                Ok(_) => Some(Life::Gone),
                Err(_) => None,
            },
            AsOf::Absent => Some(Life::Gone),
            AsOf::Behind => None,
        }
    }

    pub(super) async fn read_life(&self, named: &Named) -> Result<Life, CallError> {
        let seen = self.api().read_machine(&self.machine_key(&named.name), &named.uid).await?;
        Ok(match seen {
            None => Life::Gone,
            Some(seen) if seen.deleting => Life::Deleting,
            Some(_) => Life::Alive,
        })
    }

    /// Counts who is alive, and looks at those that are known at that same moment.
    async fn count(&self, known: &mut Known) -> Result<(), CallError> {
        let machines = self.api().list_machines(&self.id, &self.index().owners(&self.id)).await?;
        for (uid, life) in &mut known.lives {
            *life = match machines.iter().find(|machine| machine.uid == *uid) {
                None => Life::Gone,
                Some(machine) if machine.deleting => Life::Deleting,
                Some(_) => Life::Alive,
            };
        }
        known.alive = machines.into_iter().filter(|machine| !machine.deleting).map(|machine| machine.uid).collect();
        Ok(())
    }
}

fn life_of(machine: &Arc<Machine>) -> Life {
    if machine.deleting { Life::Deleting } else { Life::Alive }
}
