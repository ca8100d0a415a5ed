//! Commands of a server that may not write: what would be done is decided as far as memory tells, said and counted, and
//! nothing is done.
//!
//! All are refused. To say that an increase or a delete was done would have Cluster Autoscaler wait for Nodes that never
//! come, and again in every loop: an error backs the group off. To say so of a decrease of the target size would have it
//! take the size for mended and skip the rest of its loop for all groups, in silence and for ever; an error ends the loop
//! as well, and says why.

use std::sync::{Arc, atomic::AtomicBool};

use parking_lot::Mutex;

use super::{Command, NodeName, Scale, ScaleError};
use crate::{
    index::NotScalable,
    nodegroup::{GroupId, size},
};

/// A size that would be written.
struct Would {
    from: i32,
    to: i32,
    /// The Machines that would go for it, by name.
    machines: Vec<String>,
}

impl Scale {
    /// Whether nothing is written.
    #[must_use]
    pub fn is_read_only(&self) -> bool {
        self.inner.options.read_only
    }

    pub(super) fn would_increase(&self, id: GroupId, delta: i32) -> Result<(), ScaleError> {
        self.tell_only(id, "increase", |command| {
            let view = command.view()?;
            let from = view.version.replicas;
            let to = size::increase(from, delta, view.bounds).map_err(|error| command.refused(&error))?;
            Ok(Would { from, to, machines: Vec::new() })
        })
    }

    pub(super) fn would_decrease(&self, id: GroupId, delta: i32) -> Result<(), ScaleError> {
        self.tell_only(id, "decrease", |command| {
            size::decrease(0, delta, 0, 0).map_err(|error| command.refused(&error))?;
            let unchanged = |why: &str| {
                ScaleError::ReadOnly(format!(
                    "{}: the size would be left as it is: {why}; this server is started with --read-only and changes none",
                    command.id
                ))
            };
            if let Err(NotScalable::LeftOut(why)) = command.index().scale_view(&command.id) {
                return Err(unchanged(&why));
            }
            let view = command.view()?;
            let from = view.version.replicas;
            let least = if view.rollout.is_some() { from } else { view.machines_with_node };
            match size::decrease(from, delta, least, view.bounds.min).map_err(|error| command.refused(&error))? {
                to if to == from => Err(unchanged("all of it has Nodes, is the minimum, or is rolling out")),
                to => Ok(Would { from, to, machines: Vec::new() }),
            }
        })
    }

    pub(super) fn would_delete(&self, id: GroupId, nodes: &[NodeName]) -> Result<(), ScaleError> {
        self.tell_only(id, "delete", |command| {
            let view = command.view()?;
            let log = command.log_of(&view.version)?;
            let named = command.find(nodes)?;
            let there = command.index().members(&command.id);
            let is_going = |uid: &_| {
                log.get(uid).is_some() || !there.iter().any(|it| it.machine.meta.uid == *uid && !it.machine.deleting)
            };
            let machines: Vec<_> = named
                .machines
                .iter()
                .filter(|(_, (uid, _))| !is_going(uid))
                .map(|(key, _)| key.name.to_string())
                .collect();
            let count = machines.len() + named.replicas.len() + named.instances.len();
            if let Some(rollout) = view.rollout.as_ref().filter(|_| count > 0) {
                return Err(ScaleError::FailedPrecondition(command.rollout_refusal(rollout)));
            }
            let from = view.version.replicas;
            let to = size::delete(from, count, view.bounds).map_err(|error| command.refused(&error))?;
            Ok(Would { from, to, machines })
        })
    }

    /// Decides, says and counts; never `Ok`, but where there is nothing to do.
    fn tell_only(
        &self,
        id: GroupId,
        name: &'static str,
        decide: impl FnOnce(&Command) -> Result<Would, ScaleError>,
    ) -> Result<(), ScaleError> {
        let command = Command {
            inner: Arc::clone(&self.inner),
            id,
            resized: Mutex::default(),
            clients: Mutex::default(),
            has_written: AtomicBool::default(),
        };
        let result = decide(&command).and_then(|Would { from, to, machines }| {
            if from == to && machines.is_empty() {
                return Ok(());
            }
            let machines = machines.join(",");
            tracing::info!(group = %command.id, command = name, from, to, machines, "read-only: this size would be written");
            let what = if machines.is_empty() { String::new() } else { format!(", for Machines {machines}") };
            Err(ScaleError::ReadOnly(format!(
                "{}: would be scaled from {from} to {to}{what}; nothing was changed, since this server is started with \
                 --read-only",
                command.id
            )))
        });
        if let Err(error) = &result
            && !matches!(error, ScaleError::ReadOnly(_))
        {
            tracing::info!(group = %command.id, command = name, code = error.code(), "read-only: this would be refused: {error}");
        }
        if let Err(error) = &result {
            self.inner.history.answered(&command.id, name, error, self.client.as_ref());
        }
        self.inner.metrics.count_command(name, result.as_ref().err());
        result
    }
}
