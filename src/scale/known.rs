//! What is known of the Machines that a request names, not from before the group's present size was there: by the watch
//! where it has come far enough, else by reading them (docs/delete-rule.md, step 2).

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use futures::{StreamExt as _, stream};

use super::{
    Command,
    api::{CallError, WholeMachine},
    rule::{Life, Listed, Named, RULE},
};
use crate::{
    capi::{Machine, ObjectKey, ScalableKind, Uid},
    index::{Era, GroupVersion},
    informer::{AsOf, ResourceVersion},
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
    /// Those that have a Node although they are given up as ones that never joined.
    pub(super) joined: HashSet<Uid>,
    /// The versions in which the others of those have none.
    pub(super) versions: HashMap<Uid, ResourceVersion>,
    /// Those that couldn't be read.
    pub(super) unread: HashMap<Uid, CallError>,
    /// All Machines of the group; empty where nobody named one that is being deleted, nor a placeholder.
    pub(super) listed: Listed,
}

impl Command {
    pub(super) fn machine_key(&self, name: &str) -> ObjectKey {
        ObjectKey::new(self.id.key.namespace.clone(), name)
    }

    /// Finds the state of these Machines as of `version`, but for those in its log and those that can't be read. Where
    /// `counts`, all Machines of the group are listed.
    pub(super) async fn learn(
        &self,
        version: &GroupVersion,
        log: &DeletionLog,
        named: impl IntoIterator<Item = &Named>,
        counts: bool,
    ) -> Result<Known, CallError> {
        let era = self.index().era(&self.id).filter(|era| era.generation() == version.generation);
        let named: HashSet<_> = named.into_iter().filter(|named| log.get(&named.uid).is_none()).cloned().collect();
        let mut known = Known::default();
        let mut unknown = Vec::new();
        for named in named {
            match self.watched(era.as_ref(), &named) {
                // No watch tells for certain that it hasn't joined.
                Some(Life::Alive) | None if named.never_joined => unknown.push(named),
                Some(life) => {
                    known.lives.insert(named.uid, life);
                }
                None => unknown.push(named),
            }
        }
        let reads = stream::iter(unknown).map(async |named: Named| {
            let read = if named.never_joined {
                self.read_whole(&named).await
            } else {
                self.read_life(&named).await.map(|life| (life, None))
            };
            (named.uid, read)
        });
        let mut reads = reads.buffer_unordered(SIDE_BY_SIDE);
        while let Some((uid, read)) = reads.next().await {
            let (life, pending) = match read {
                Ok(read) => read,
                Err(error) => {
                    known.unread.insert(uid, error);
                    continue;
                }
            };
            match pending {
                Some(Pending::Joined) => {
                    known.joined.insert(uid.clone());
                }
                Some(Pending::Still(version)) => {
                    known.versions.insert(uid.clone(), version);
                }
                None => {}
            }
            known.lives.insert(uid, life);
        }
        let is_deleting = |life: &Life| *life == Life::Deleting;
        if (counts || known.lives.values().any(is_deleting))
            && let Err(error) = self.count(&mut known).await
        {
            if counts {
                return Err(error);
            }
            // Only those that are being deleted needed it.
            let uncounted: Vec<_> = known.lives.extract_if(|_, life| is_deleting(life)).collect();
            known.unread.extend(uncounted.into_iter().map(|(uid, _)| (uid, error.clone())));
        }
        Ok(known)
    }

    /// Reads a Machine that is given up as one that never joined: its life, and while it is alive whether it has a Node.
    async fn read_whole(&self, named: &Named) -> Result<(Life, Option<Pending>), CallError> {
        let key = self.machine_key(&named.name);
        Ok(match self.api().read_whole_machine(&key, &named.uid).await? {
            None => (Life::Gone, None),
            Some(machine) if machine.deleting => (Life::Deleting, None),
            Some(machine) if self.has_joined(&key, &machine) => (Life::Alive, Some(Pending::Joined)),
            Some(machine) => (Life::Alive, Some(Pending::Still(machine.version))),
        })
    }

    /// Returns true if a Machine as it was read has a Node: its nodeRef says so, or a Node of the workload cluster leads to it.
    pub(super) fn has_joined(&self, key: &ObjectKey, machine: &WholeMachine) -> bool {
        machine.node_name.is_some() || self.index().knows_node_of(key, machine.provider_id.as_ref())
    }

    /// What the watch says of a Machine; `None` when it hasn't come far enough to be believed.
    fn watched(&self, era: Option<&Era>, named: &Named) -> Option<Life> {
        let key = self.machine_key(&named.name);
        // It was there when the request was read: it has gone, and never comes back.
        if !self.index().has_machine(&key, &named.uid) {
            return Some(Life::Gone);
        }
        match self.inner.machines.as_of(&key, RULE.believed_since(era?, &named.uid)?) {
            AsOf::Held(object) => match &object.content {
                Ok(machine) if machine.meta.uid == named.uid => Some(life_of(machine)),
                Ok(_) => Some(Life::Gone),
                Err(_) => None,
            },
            // One that nobody saw go may be too new.
            AsOf::Absent | AsOf::Behind => None,
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

    /// Counts the group's Machines, and looks at those that are known at that same moment.
    async fn count(&self, known: &mut Known) -> Result<(), CallError> {
        let listed = self.list().await?;
        for (uid, life) in &mut known.lives {
            *life = match (listed.alive.contains(uid), listed.has(uid)) {
                (true, _) => Life::Alive,
                (false, true) => Life::Deleting,
                (false, false) => Life::Gone,
            };
        }
        known.listed = listed;
        Ok(())
    }

    /// All Machines of the group, as the API server has them now.
    pub(super) async fn list(&self) -> Result<Listed, CallError> {
        let machines = self.api().list_machines(&self.id, &self.index().owners(&self.id)).await?;
        let members = self.index().members(&self.id);
        let with_node: HashSet<_> =
            members.iter().filter(|member| member.node.is_some()).map(|member| &member.machine.meta.uid).collect();
        let mut listed = Listed::default();
        for machine in machines {
            if !machine.deleting {
                listed.alive.insert(machine.uid);
            } else if with_node.contains(&machine.uid) {
                listed.draining.insert(machine.uid);
            } else {
                listed.without_node.push(Named { name: machine.name, uid: machine.uid, never_joined: false });
            }
        }
        listed.without_node.sort_by(|a, b| a.name.cmp(&b.name));
        if self.id.kind == ScalableKind::MachinePool {
            let Ok(view) = self.index().scale_view(&self.id) else {
                return Err(CallError::Unknown(format!("{} can't be counted: it isn't a group now", self.id), None));
            };
            let known = usize::try_from(view.machines).unwrap_or_default();
            listed.instances = Some(known.max(listed.alive.len() + listed.draining.len()));
        }
        Ok(listed)
    }
}

/// A Machine that is alive and given up as one that never joined.
enum Pending {
    /// It has a Node.
    Joined,
    /// It has none in this version.
    Still(ResourceVersion),
}

fn life_of(machine: &Arc<Machine>) -> Life {
    if machine.deleting { Life::Deleting } else { Life::Alive }
}
